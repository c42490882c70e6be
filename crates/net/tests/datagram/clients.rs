//! Clients that leave, and clients that look for what is not theirs.

use std::time::Duration;

use genie_io::{In, Out};
use genie_net::datagram::{
    ARRIVED, Counters, OPEN, OPENED, Open, RECEIVE, SEND, Socket, open_argument, port_argument, send_argument,
};
use genie_net::wire;
use genie_passing::Scheme;

use crate::hosts::{Hosts, Level, address, host, open, room, synced};

#[test]
fn of_a_client_that_leaves_nothing_is_left() {
    for level in Level::ALL {
        let hosts = Hosts::new(level);
        let alice = hosts.socket(0);
        for round in 0..3 {
            let leaving = open();
            // No socket closes these.
            for port in [7, 8] {
                let argument = open_argument(&Open { port, ..Open::default() });
                let request = leaving.request(&hosts.handles[1], OPEN).argument(&argument).room(OPENED);
                request.send().expect("a port that is free again");
            }
            // Some requests wait, and some datagrams.
            for len in [1, 5000, 60_000] {
                let (argument, room) = (port_argument(7), room(&leaving, Scheme::Move, len));
                let request = leaving.request(&hosts.handles[1], RECEIVE).argument(&argument).room(ARRIVED);
                drop(request.input(room).submit().expect("a request"));
                alice.send_to(Out::copy(&vec![1; len]), (host(1, false), 8).into()).expect("it is sent");
            }
            let space = leaving.space().clone();
            drop(leaving);
            let usage = genie_conformance::checked(&space);
            assert_eq!((usage.references, usage.regions - usage.queued), (0, 0), "{level:?}, round {round}");
        }
        drop(alice);
        hosts.assert_buffers_free();
        hosts.assert_idle(level);
    }
}

#[test]
fn requests_at_a_port_that_is_closed_fail() {
    for level in Level::ALL {
        let hosts = Hosts::new(level);
        let bob = hosts.socket(1);
        let mut buffer = vec![0xab; 5000];
        let pending = bob.submit(In::emulated_copy(&mut buffer)).expect("a request");
        drop(bob);
        let failed = synced(pending).expect_err("it was closed");
        assert!(failed.error.to_string().contains("was closed"), "{}", failed.error);
        assert!(buffer.iter().all(|byte| *byte == 0xab));
        hosts.assert_idle(level);
    }
}

#[test]
fn a_datagram_in_flight_is_not_counted_at_the_ports_next_owner() {
    let slow = wire::Options { delay: Duration::from_millis(20), ..wire::Options::default() };
    let hosts = Hosts::with(Level::Pooled, slow, |_| {});
    let (alice, bob, others) = (hosts.socket(0), hosts.socket(1), open());
    let (port, argument) = (alice.port(), send_argument(alice.port(), Some(address(1, false, &bob))));
    let request = hosts.genie.request(&hosts.handles[0], SEND).argument(&argument);
    let pending = request.out(Out::emulated_copy(b"late")).submit().expect("a request");
    drop(alice);
    let next = Socket::open(&others, &hosts.handles[0], &Open { port, ..Open::default() });
    let next = next.expect("the port is free");
    pending.sync().expect("it is sent");
    assert_eq!(next.statistics().expect("counters"), Counters::default());
    assert_eq!(hosts.servers[0].counters().sent, 1);
}

#[test]
fn datagrams_that_wait_at_a_port_that_is_closed_are_counted() {
    let hosts = Hosts::new(Level::Pooled);
    let (alice, bob) = (hosts.socket(0), hosts.socket(1));
    for _ in 0..3 {
        alice.send_to(Out::copy(b"nobody reads this"), address(1, false, &bob)).expect("it is sent");
    }
    drop(bob);
    let Counters { received, unclaimed, .. } = hosts.servers[1].counters();
    assert_eq!((received, unclaimed), (0, 3));
}

/// What is beside data in an adapter's buffers, behind its end, and what was cut off, is no other client's data.
#[test]
fn no_client_sees_another_clients_data() {
    let canary = *b"this is for nobody but bob";
    let secret: Vec<u8> = canary.iter().copied().cycle().take(60_000).collect();
    for level in Level::ALL {
        let hosts = Hosts::new(level);
        let (alice, bob, eve) = (hosts.socket(0), hosts.socket(1), hosts.socket(1));
        for scheme in Scheme::ALL {
            // Every buffer of the adapter's has had the secret.
            for _ in 0..10 {
                alice.send_to(Out::copy(&secret), address(1, false, &bob)).expect("it is sent");
                bob.receive(In::copy(&mut [0; 100])).expect("it arrives");
            }
            for (len, most, waits) in
                [(1, 9000, true), (5000, 5000, false), (8000, 20_000, false), (9000, 4000, true)]
            {
                let receive = || eve.submit(room(&hosts.genie, scheme, most)).expect("a request");
                let before = waits.then(receive);
                alice.send_to(Out::copy(&vec![7; len]), address(1, false, &eve)).expect("it is sent");
                let (reply, arrived) = synced(before.unwrap_or_else(receive)).expect("it arrives");
                let what = format!("{level:?}, {scheme}, {len} bytes into {most}");
                let actual = reply.actual();
                assert_eq!((arrived.len, actual), (len, len.min(most)), "{what}");
                let (mut reply, mut data) = (reply, 0);
                let shown = match (reply.take_buffer(), reply.take_migrant()) {
                    (Some(buffer), _) => buffer.to_vec(),
                    (_, Some(migrant)) => {
                        // All of its granules can be seen.
                        let before = migrant.as_ptr().addr() % 4096;
                        let all = (before + migrant.len()).next_multiple_of(4096);
                        data = before;
                        migrant.widened(before, all).to_vec()
                    }
                    _ => unreachable!("buffers are given by value"),
                };
                assert!(shown[data..data + actual].iter().all(|byte| *byte == 7), "{what}");
                let found = shown.windows(4).any(|bytes| canary.windows(4).any(|canary| canary == bytes));
                assert!(!found, "{what}: the canary was seen");
            }
        }
        drop((alice, bob, eve));
        hosts.assert_idle(level);
    }
}
