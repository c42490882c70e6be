//! Datagrams that are looked at before they are delivered, and delivered elsewhere (§7.1).

use genie_conformance::bytes::{pattern, same};
use genie_io::{In, Out};
use genie_passing::Scheme;

use crate::hosts::{Hosts, Level, address};

#[test]
fn datagrams_can_be_peeked_at_and_delivered_elsewhere() {
    let len = 9000;
    for level in Level::ALL {
        let hosts = Hosts::new(level);
        let (alice, bob) = (hosts.socket(0), hosts.socket(1));
        for (scheme, is_owned, waits) in [Scheme::Copy, Scheme::EmulatedCopy]
            .into_iter()
            .flat_map(|scheme| [(scheme, false), (scheme, true)])
            .flat_map(|(scheme, is_owned)| [(scheme, is_owned, true), (scheme, is_owned, false)])
        {
            let what = format!("{level:?}, {scheme}, owned {is_owned}, waits {waits}");
            let bytes = pattern(4, len);
            let mut buffer = hosts.genie.allocate(len).expect("memory");
            let mut own = hosts.genie.allocate(len).expect("memory");
            [&mut own, &mut buffer].into_iter().for_each(|buffer| buffer.fill(0xdd));
            let send =
                || alice.send_to(Out::copy(&bytes), address(1, false, &bob)).map(drop).expect("it is sent");
            if !waits {
                send();
            }
            let mut elsewhere = vec![0; len];
            let mut reply = {
                let room = match is_owned {
                    true => In::owned(scheme, own),
                    false => In::borrowed(scheme, &mut buffer[..]),
                };
                let pending = bob.submit(room).expect("a request");
                if waits {
                    send();
                }
                let mut head = [0; 100];
                assert_eq!(pending.peek(&mut [&mut head]).expect("a look"), [100], "{what}");
                same(&head, &bytes[..100], &what);
                // A second look sees the same.
                let mut more = vec![0; len];
                assert_eq!(pending.peek(&mut [&mut more]).expect("a look"), [len], "{what}");
                same(&more, &bytes, &what);
                pending.redirect([&mut elsewhere[..]]).expect("it is delivered")
            };
            same(&elsewhere, &bytes, &what);
            let untouched = reply.take_buffer().unwrap_or(buffer);
            assert!(untouched.iter().all(|byte| *byte == 0xdd), "{what}: the request's buffer has changed");
        }
        drop((alice, bob));
        hosts.assert_idle(level);
    }
}
