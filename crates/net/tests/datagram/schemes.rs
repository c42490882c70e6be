//! Every length by every scheme over every adapter.

use genie_conformance::bytes::{pattern, same};
use genie_io::{In, Out};
use genie_net::datagram::{ARRIVED, RECEIVE, SEND, Summing, port_argument, send_argument};
use genie_net::wire;
use genie_passing::model::Allocation;
use genie_passing::{Reason, Scheme, Thresholds};

use crate::hosts::{Hosts, Level, address, out, room, synced, taken};

const LENGTHS: [usize; 7] = [0, 1, 17, 1472, 4096, 8192, 60_000];

#[test]
fn datagrams_of_every_length_pass_by_every_scheme_over_every_adapter() {
    for level in Level::ALL {
        for summing in [Summing::None, Summing::Separate, Summing::Integrated] {
            let hosts = Hosts::with(level, wire::Options::default(), |options| options.summing = summing);
            for is_v6 in [false, true] {
                every_length(&hosts, level, is_v6);
            }
            hosts.assert_idle(level);
        }
    }
}

fn every_length(hosts: &Hosts, level: Level, is_v6: bool) {
    let (alice, bob) = (hosts.socket(0), hosts.socket(1));
    for (seed, len) in LENGTHS.into_iter().enumerate() {
        for scheme in Scheme::ALL {
            let (bytes, to) = (pattern(seed as u64, len), address(1, is_v6, &bob));
            // The request is first, or the datagram is.
            for waits in [true, false] {
                let what = format!("{level:?}, {len} bytes by {scheme}, v6 {is_v6}, waits {waits}");
                let data = out(&hosts.genie, scheme, &bytes);
                let receive = || bob.submit(room(&hosts.genie, scheme, len.max(1) + 3)).expect("a request");
                let before = waits.then(receive);
                alice.send_to(data, to).unwrap_or_else(|failed| panic!("{what}: {}", failed.error));
                let (reply, arrived) = synced(before.unwrap_or_else(receive))
                    .unwrap_or_else(|failed| panic!("{what}: {}", failed.error));
                let (found, _) = taken(reply);
                same(&found, &bytes, &what);
                assert_eq!((arrived.from, arrived.len), (address(0, is_v6, &alice), len), "{what}");
                hosts.check();
            }
        }
    }
    let (sent, received) = (alice.statistics().expect("counters"), bob.statistics().expect("counters"));
    assert_eq!(sent.sent, received.received);
}

#[test]
fn datagrams_pass_wherever_buffers_begin() {
    for level in Level::ALL {
        let hosts = Hosts::new(level);
        let (alice, bob) = (hosts.socket(0), hosts.socket(1));
        let offsets = [0, 8, 42, 1000, 4095];
        let native = Scheme::ALL.into_iter().filter(|scheme| scheme.allocation() == Allocation::Native);
        let cases = native.flat_map(|scheme| LENGTHS[1..].iter().map(move |len| (scheme, *len)));
        for ((scheme, len), seed) in cases.flat_map(|case| offsets.map(|offset| (case, offset as u64))) {
            for (from, waits) in [(0, true), (1234, true), (4095, false)] {
                let offset = seed as usize;
                let what =
                    format!("{level:?}, {len} bytes by {scheme} from {from} to {offset}, waits {waits}");
                let buffer = |offset| hosts.genie.allocate_at(offset, len).expect("memory");
                let (mut sent, mut room) = (buffer(from), buffer(offset));
                sent.copy_from_slice(&pattern(seed, len));
                room.fill(0xee);
                let mut room = Some(In::owned(scheme, room));
                let mut receive = || bob.submit(room.take().expect("it is given once")).expect("a request");
                let before = waits.then(&mut receive);
                alice.send_to(Out::owned(scheme, sent), address(1, false, &bob)).expect("it is sent");
                let (reply, _) = synced(before.unwrap_or_else(receive)).expect("it arrives");
                same(&taken(reply).0, &pattern(seed, len), what);
            }
        }
        hosts.check();
    }
}

#[test]
fn data_is_gathered_and_scattered() {
    for level in Level::ALL {
        let hosts = Hosts::new(level);
        let (alice, bob) = (hosts.socket(0), hosts.socket(1));
        for (len, cuts) in [(3, [1, 2]), (9000, [42, 5000]), (20_000, [4096, 8192])] {
            for waits in [true, false] {
                let bytes = pattern(7, len);
                let send = || {
                    let argument = send_argument(alice.port(), Some(address(1, false, &bob)));
                    let request = hosts.genie.request(&hosts.handles[0], SEND).argument(&argument);
                    let request = request.out(Out::emulated_copy(&bytes[..cuts[0]]));
                    let request =
                        request.and_out(out(&hosts.genie, Scheme::EmulatedMove, &bytes[cuts[0]..cuts[1]]));
                    request.and_out(Out::copy(&bytes[cuts[1]..])).send().expect("it is sent");
                };
                // The elements are others than those that were sent.
                let (mut first, mut last) = (hosts.genie.allocate(len / 3).expect("memory"), vec![0; len]);
                let argument = port_argument(bob.port());
                let request =
                    hosts.genie.request(&hosts.handles[1], RECEIVE).argument(&argument).room(ARRIVED);
                let request = request.input(In::emulated_copy(&mut first)).and_input(In::weak_move(len / 3));
                let request = request.and_input(In::copy(&mut last));
                if !waits {
                    send();
                }
                let pending = request.submit().expect("a request");
                if waits {
                    send();
                }
                let (mut reply, arrived) = synced(pending).expect("it arrives");
                assert_eq!((arrived.len, reply.actual()), (len, len));
                let migrant = reply.take_migrant().expect("a migrant");
                let rest = len - 2 * (len / 3);
                let found = [&first[..], &migrant[..len / 3], &last[..rest]].concat();
                same(&found, &bytes, format!("{level:?} {len} {waits}"));
                assert!(last[rest..].iter().all(|byte| *byte == 0));
            }
        }
        drop((alice, bob));
        hosts.assert_idle(level);
    }
}

#[test]
fn posted_and_split_data_is_not_copied() {
    let len = 8192;
    for level in [Level::Splitting, Level::Early, Level::EarlySplitting, Level::SnapOff, Level::Approximation]
    {
        let hosts = Hosts::with(level, wire::Options::default(), |options| options.summing = Summing::None);
        let (alice, bob) = (hosts.socket(0), hosts.socket(1));
        for scheme in Scheme::ALL.into_iter().filter(|scheme| *scheme != Scheme::Copy) {
            let pending = bob.submit(room(&hosts.genie, scheme, len)).expect("a request");
            let data = out(&hosts.genie, scheme, &pattern(1, len));
            let sent = alice.send_to(data, address(1, false, &bob)).expect("it is sent");
            assert_eq!(sent.receipt().copied, 0, "{level:?}, {scheme}, output");
            let (reply, _) = synced(pending).expect("it arrives");
            let in_place = matches!(scheme, Scheme::Share | Scheme::EmulatedShare);
            // A pooled buffer that is shared is copied.
            if !(in_place && level == Level::Splitting) {
                assert_eq!(reply.receipt().copied, 0, "{level:?}, {scheme}, input");
            }
            same(&taken(reply).0, &pattern(1, len), format!("{level:?}, {scheme}"));
        }
        assert_eq!(bob.statistics().expect("counters").copied, 0, "{level:?}");
    }
}

#[test]
fn a_migrant_input_at_the_offset_of_a_header_is_not_copied() {
    let hosts =
        Hosts::with(Level::Pooled, wire::Options::default(), |options| options.summing = Summing::None);
    let (alice, bob) = (hosts.socket(0), hosts.socket(1));
    let bytes = pattern(3, 8000);
    for scheme in [Scheme::Move, Scheme::EmulatedMove, Scheme::WeakMove, Scheme::EmulatedWeakMove] {
        let pending = bob.submit(In::migrant(scheme, 8000)).expect("a request");
        alice.send_to(Out::copy(&bytes), address(1, false, &bob)).expect("it is sent");
        let (reply, _) = synced(pending).expect("it arrives");
        assert_eq!(reply.receipt().copied, 0, "{scheme}");
        same(&taken(reply).0, &bytes, scheme);
    }
    assert_eq!(hosts.servers[1].counters().copied, 0);
}

/// Changing places costs more than copying so few bytes, whoever chooses where they lie.
#[test]
fn a_migrant_input_that_is_shorter_than_the_thresholds_is_copied() {
    let bytes = pattern(4, 8000);
    let within = Thresholds { input_run: 8001, input: 8001, input_alone: 8001, ..Thresholds::ALWAYS };
    for (level, thresholds) in
        Level::ALL.into_iter().flat_map(|level| [(level, Thresholds::NEVER), (level, within)])
    {
        let hosts = Hosts::with(level, wire::Options::default(), |options| options.summing = Summing::None);
        hosts.genie.passing().adjust_thresholds(|changed| *changed = thresholds);
        let (alice, bob) = (hosts.socket(0), hosts.socket(1));
        for scheme in [Scheme::Move, Scheme::EmulatedMove, Scheme::WeakMove, Scheme::EmulatedWeakMove] {
            alice.send_to(Out::copy(&bytes), address(1, false, &bob)).expect("it is sent");
            let (reply, _) = bob.receive(In::migrant(scheme, 9000)).expect("it arrives");
            // A device transfers what it has in its own memory into the region.
            let expected = if level == Level::Outboard { 0 } else { bytes.len() };
            assert_eq!(
                (reply.receipt().copied, reply.receipt().swapped),
                (expected, 0),
                "{level:?}, {scheme}"
            );
            same(&taken(reply).0, &bytes, format!("{level:?}, {scheme}"));
            hosts.check();
        }
        drop((alice, bob));
        hosts.assert_idle(level);
    }
}

#[test]
fn the_receipt_says_that_other_bytes_on_the_page_were_in_the_way() {
    let hosts = Hosts::new(Level::SnapOff);
    let (alice, bob) = (hosts.socket(0), hosts.socket(1));
    let mut arena = hosts.genie.allocate(16 << 10).expect("memory");
    let reasons =
        [(0..8192, None), (100..8192, Some(Reason::Neighbours)), (100..200, Some(Reason::Neighbours))];
    for (part, reason) in reasons {
        let pending = bob.submit(In::emulated_copy(&mut arena[part.clone()])).expect("a request");
        alice.send_to(Out::copy(&vec![1; part.len()]), address(1, false, &bob)).expect("it is sent");
        let (reply, _) = synced(pending).expect("it arrives");
        assert_eq!(reply.buffers[0].elements[0].receipt.reason, reason, "{part:?}: {}", reply.receipt());
    }
}

/// Data that the adapter had stored too far to the front was moved as far as an element's end, over what was still to be moved behind that.
#[test]
fn data_behind_headers_of_another_length_than_the_last_ones_is_moved_to_its_place() {
    let hosts = Hosts::new(Level::Early);
    let (alice, bob) = (hosts.socket(0), hosts.socket(1));
    let argument = port_argument(bob.port());
    for (seed, is_v6) in [true, false, true, false].into_iter().enumerate() {
        let bytes = pattern(seed as u64, 20_000);
        let (mut first, mut second) = (vec![0; 8192], vec![0; 20_000 - 8192]);
        let request = hosts.genie.request(&hosts.handles[1], RECEIVE).argument(&argument).room(ARRIVED);
        let request = request.input(In::copy(&mut first)).and_input(In::copy(&mut second));
        let pending = request.submit().expect("a request");
        alice.send_to(Out::copy(&bytes), address(1, is_v6, &bob)).expect("it is sent");
        synced(pending).expect("it arrives");
        same(&[first, second].concat(), &bytes, format!("datagram {seed}"));
    }
}

#[test]
fn buffers_as_the_server_prefers_them_change_places() {
    let mtu = 8042 - 14;
    for level in [Level::Pooled, Level::Splitting] {
        let hosts = Hosts::with(level, wire::Options::default(), |options| options.mtu = mtu);
        let (alice, bob) = (hosts.socket(0), hosts.socket(1));
        let preferred = hosts.genie.preferred(&hosts.handles[1], RECEIVE, &port_argument(bob.port()));
        let preferred = preferred.expect("an answer").preferred().expect("a layout");
        let expected = if level == Level::Pooled { (42, 8000) } else { (0, 8000) };
        assert_eq!((preferred.offset, preferred.len), expected);
        let bytes = pattern(9, preferred.len);
        for (offset, copied) in [(preferred.offset, 0..=300), (100, 8000..=8000)] {
            let mut buffer = hosts.genie.allocate_at(offset, bytes.len()).expect("memory");
            alice.send_to(Out::copy(&bytes), address(1, false, &bob)).expect("it is sent");
            let (reply, _) = bob.receive(In::emulated_copy(&mut buffer)).expect("it arrives");
            same(&buffer, &bytes, format!("{level:?} at {offset}"));
            let found = reply.receipt().copied;
            assert!(copied.contains(&found), "{level:?} at {offset}: {found}");
        }
    }
}
