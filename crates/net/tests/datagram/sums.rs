//! Checksums of what arrives, by whoever sums it.

use fastrand::Rng;
use genie_conformance::bytes::{pattern, same};
use genie_io::Error;
use genie_memory::Data;
use genie_net::Frame;
use genie_net::datagram::{Arrived, Counters, Socket, Verifying};
use genie_net::packet::Header;
use genie_net::wire::{self, Station};
use genie_passing::Scheme;

use crate::frames::header;
use crate::hosts::{Hosts, Level, room, synced, taken};

const WAYS: [Verifying; 3] = [Verifying::Separate, Verifying::Integrated, Verifying::Adapter];
/// None, one byte, an odd number, a page, and several buffers of the adapter's.
const LENGTHS: [usize; 5] = [0, 1, 1473, 4096, 20_001];

fn hosts(level: Level, verifying: Verifying) -> Hosts {
    Hosts::with(level, wire::Options::default(), |options| options.verifying = verifying)
}

/// The port's counters, of which those of sums are as they are to be.
#[track_caller]
fn assert_counted(bob: &Socket, expected: Counters, what: &str) {
    let found = bob.statistics().expect("counters");
    assert_eq!(found, Counters { copied: found.copied, ..expected }, "{what}");
}

/// Damages a datagram: its data, or where there is none its checksum.
fn damaged(mut header: Header, mut bytes: Vec<u8>) -> (Header, Vec<u8>) {
    match bytes.last_mut() {
        Some(last) => *last ^= 0x10,
        None => header.checksum ^= 1,
    }
    (header, bytes)
}

#[test]
fn a_wrong_sum_delivers_nothing_and_leaves_strong_integritys_buffers_as_they_were() {
    for (level, verifying) in Level::ALL.into_iter().flat_map(|level| WAYS.map(|way| (level, way))) {
        let hosts = hosts(level, verifying);
        for (number, scheme) in Scheme::ALL.into_iter().enumerate() {
            for (len, waits, is_v6) in LENGTHS.into_iter().flat_map(|len| {
                [(len, true, false), (len, false, false), (len, true, true), (len, false, true)]
            }) {
                let what =
                    format!("{level:?}, {verifying:?}, {len} bytes by {scheme}, waits {waits}, v6 {is_v6}");
                let bob = hosts.socket(1);
                let bytes = pattern(number as u64, len);
                let right = header(is_v6, bob.port(), &bytes);
                let (wrong, spoilt) = damaged(right, bytes.clone());
                // Of one length there is not room for all.
                let most = if len == 4096 { 1000 } else { len + 3 };
                let receive = || bob.submit(room(&hosts.genie, scheme, most)).expect("a request");
                let inject = |header: &Header, bytes: &[u8]| {
                    hosts.inject(&header.build().expect("a header"), bytes);
                };
                // A datagram that is damaged takes no place: neither the first request's nor the second's.
                let early = waits.then(|| [receive(), receive()]);
                inject(&wrong, &spoilt);
                let [first, second] = early.unwrap_or_else(|| [receive(), receive()]);
                assert!(!first.is_replied(), "{what}: it was delivered");
                let counters = bob.statistics().expect("counters");
                assert_eq!((counters.damaged, counters.received), (1, 0), "{what}");

                // What follows a damaged one need not have a checksum.
                let checksum = if len == 1473 && !is_v6 { 0 } else { right.checksum };
                inject(&Header { checksum, ..right }, &bytes);
                let (reply, arrived) =
                    synced(first).unwrap_or_else(|failed| panic!("{what}: {}", failed.error));
                assert_eq!(arrived.len, len, "{what}");
                same(&taken(reply).0, &bytes[..len.min(most)], &what);

                inject(&wrong, &spoilt);
                let mut failed = second.abort().expect_err("nothing has come");
                assert_eq!(failed.error, Error::Aborted, "{what}");
                if matches!(scheme, Scheme::Copy | Scheme::EmulatedCopy) {
                    let buffer = failed.take_buffer().expect("the buffer");
                    assert!(buffer.iter().all(|byte| *byte == 0xee), "{what}: the buffer has changed");
                }
                assert_eq!(bob.statistics().expect("counters").damaged, 2, "{what}");
            }
            hosts.check();
        }
        hosts.assert_buffers_free();
        hosts.assert_idle(level);
    }
}

#[test]
fn each_way_reads_what_it_has_to_read_and_no_more() {
    for (level, verifying) in Level::ALL.into_iter().flat_map(|level| WAYS.map(|way| (level, way))) {
        let hosts = hosts(level, verifying);
        for len in LENGTHS {
            for scheme in Scheme::ALL {
                let what = format!("{level:?}, {verifying:?}, {len} bytes by {scheme}");
                let (bob, bytes) = (hosts.socket(1), pattern(len as u64, len));
                let pending = bob.submit(room(&hosts.genie, scheme, len + 3)).expect("a request");
                hosts.inject(&header(false, bob.port(), &bytes).build().expect("a header"), &bytes);
                let (reply, Arrived { work, .. }) = synced(pending).expect("it arrives");
                same(&taken(reply).0, &bytes, &what);
                let (received, len) = (1, len as u64);
                let expected = match verifying {
                    Verifying::Adapter => Counters { received, by_adapter: len, ..Counters::default() },
                    // The transfer is the server's to make.
                    Verifying::Integrated if level == Level::Outboard => {
                        Counters { received, integrated: len, ..Counters::default() }
                    }
                    // What is in its place, or in pooled buffers, is not moved by the server.
                    _ => Counters { received, summed: len, ..Counters::default() },
                };
                assert_counted(&bob, expected, &what);
                let told = [work.summed, work.integrated, work.by_adapter, work.copied].map(|len| len as u64);
                let Counters { summed, integrated, by_adapter, .. } = expected;
                assert_eq!(told, [summed, integrated, by_adapter, 0], "{what}");
                assert_eq!(bob.statistics().expect("counters").copied, 0, "{what}");
            }
        }
    }
}

/// An adapter that does not split has stored the data behind headers of another length than it expected.
#[test]
fn data_that_the_server_moves_is_summed_meanwhile() {
    let hosts = hosts(Level::Early, Verifying::Integrated);
    let (bob, len) = (hosts.socket(1), 20_001);
    for (number, scheme) in [Scheme::Copy, Scheme::EmulatedCopy, Scheme::Move].into_iter().enumerate() {
        let bytes = pattern(number as u64, len);
        let before = bob.statistics().expect("counters");
        let pending = bob.submit(room(&hosts.genie, scheme, len)).expect("a request");
        let right = header(number % 2 == 0, bob.port(), &bytes);
        let (wrong, spoilt) = damaged(right, bytes.clone());
        hosts.inject(&wrong.build().expect("a header"), &spoilt);
        assert!(!pending.is_replied());
        hosts.inject(&right.build().expect("a header"), &bytes);
        let (reply, Arrived { work, .. }) = synced(pending).expect("it arrives");
        same(&taken(reply).0, &bytes, scheme);
        assert_eq!(work.summed + work.integrated, len, "{work:?}");
        assert!(work.integrated == 0 || work.copied > 0, "{work:?}");
        let after = bob.statistics().expect("counters");
        assert_eq!((after.damaged, after.received), (before.damaged + 1, before.received + 1));
        assert_eq!(after.summed + after.integrated - before.summed - before.integrated, 2 * len as u64);
        // The wrong one was behind other headers than the last right one, or than are expected at first.
        assert!(after.integrated - before.integrated >= len as u64, "{scheme}: {after:?}");
    }
}

#[test]
fn what_fills_a_frame_up_and_a_sum_of_zero_make_no_difference() {
    for (level, verifying) in Level::ALL.into_iter().flat_map(|level| WAYS.map(|way| (level, way))) {
        let hosts = hosts(level, verifying);
        let bob = hosts.socket(1);
        let mut random = Rng::with_seed(1);
        for (len, is_v6) in (0..20).flat_map(|len| [(len, false), (len, true)]) {
            for more in 0..=18 {
                let bytes: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(len).collect();
                let mut right = header(is_v6, bob.port(), &bytes);
                let all = |bytes: &[u8]| [bytes, &vec![0xa5; more]].concat();
                let what = format!("{level:?}, {verifying:?}, {len} bytes and {more}, v6 {is_v6}");
                let pending =
                    bob.submit(room(&hosts.genie, Scheme::EmulatedCopy, len + 1)).expect("a request");
                right.checksum ^= 0x100;
                hosts.inject(&right.build().expect("a header"), &all(&bytes));
                assert!(!pending.is_replied(), "{what}");
                right.checksum ^= 0x100;
                hosts.inject(&right.build().expect("a header"), &all(&bytes));
                same(&taken(synced(pending).expect(&what).0).0, &bytes, &what);
            }
        }
        let words = (0..=u16::MAX).map(u16::to_be_bytes);
        let zero = words.map(|word| [[7; 4].as_slice(), &word].concat());
        let zero = zero.map(|bytes| (header(true, bob.port(), &bytes), bytes));
        let (zero, bytes) = zero.into_iter().find(|(header, _)| header.checksum == 0xffff).expect("a sum");
        let pending = bob.submit(room(&hosts.genie, Scheme::Copy, 9)).expect("a request");
        hosts.inject(&zero.build().expect("a header"), &bytes);
        same(&taken(synced(pending).expect("it arrives").0).0, &bytes, "a sum of zero");
        // A datagram without a checksum is not summed.
        let before = bob.statistics().expect("counters");
        let none = Header { checksum: 0, ..header(false, bob.port(), &bytes) };
        let pending = bob.submit(room(&hosts.genie, Scheme::Copy, 9)).expect("a request");
        hosts.inject(&none.build().expect("a header"), &damaged(none, bytes).1);
        synced(pending).expect("nobody knows that it is damaged");
        let received = before.received + 1;
        assert_counted(&bob, Counters { received, ..before }, &format!("{level:?}, {verifying:?}"));
    }
}

/// A kernel that sends by a virtual link leaves the sum of the pseudo-header where the checksum belongs.
#[test]
fn of_a_frame_that_may_be_unsummed_the_pseudo_headers_sum_is_taken_for_right_and_no_other() {
    for (level, verifying) in Level::ALL.into_iter().flat_map(|level| WAYS.map(|way| (level, way))) {
        let hosts = hosts(level, verifying);
        let (bob, station) = (hosts.socket(1), hosts.servers[1].station());
        for (len, is_v6, waits) in
            [(1, false, true), (1473, true, false), (4096, false, true), (8001, true, true)]
        {
            let what = format!("{level:?}, {verifying:?}, {len} bytes, v6 {is_v6}, waits {waits}");
            let bytes = pattern(len as u64, len);
            let whole = header(is_v6, bob.port(), &bytes);
            let partial = Header { checksum: whole.partial_sum(), ..whole };
            let wrong = Header { checksum: partial.checksum ^ 1, ..whole };
            let arrive = |header: Header, may_be_unsummed: bool| {
                let frame = [&header.build().expect("a header")[..], &bytes].concat();
                let frame = Frame::new(Data::from(&frame[..]));
                station.arrive(&if may_be_unsummed { frame.unsummed() } else { frame });
            };
            let receive =
                || bob.submit(room(&hosts.genie, Scheme::EmulatedCopy, len + 1)).expect("a request");
            let before = bob.statistics().expect("counters");
            let early = waits.then(receive);
            arrive(partial, false);
            arrive(wrong, true);
            assert!(early.as_ref().is_none_or(|early| !early.is_replied()), "{what}");
            arrive(partial, true);
            same(&taken(synced(early.unwrap_or_else(receive)).expect(&what).0).0, &bytes, &what);
            arrive(whole, true);
            same(&taken(synced(receive()).expect(&what).0).0, &bytes, &what);
            let after = bob.statistics().expect("counters");
            assert_eq!(after.received - before.received, 2, "{what}");
            assert_eq!((after.damaged - before.damaged, after.unsummed - before.unsummed), (2, 1), "{what}");
        }
    }
}

/// An adapter that sums what comes from the wire transfers nothing that is damaged (WCAB); one that sums what it transfers does (Afterburner).
#[test]
fn outboard_data_spoils_a_shared_buffer_only_where_it_is_summed_while_it_is_transferred() {
    for verifying in WAYS {
        let hosts = hosts(Level::Outboard, verifying);
        let (bob, bytes) = (hosts.socket(1), pattern(1, 5000));
        let pending = bob.submit(room(&hosts.genie, Scheme::Share, 5000)).expect("a request");
        let (wrong, spoilt) = damaged(header(false, bob.port(), &bytes), bytes);
        hosts.inject(&wrong.build().expect("a header"), &spoilt);
        let mut failed = pending.abort().expect_err("nothing has come");
        let expected = if verifying == Verifying::Integrated { spoilt } else { vec![0xee; 5000] };
        same(&failed.take_buffer().expect("the buffer"), &expected, format!("{verifying:?}"));
    }
}
