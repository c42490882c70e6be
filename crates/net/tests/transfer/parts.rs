//! Requests that end early: what has come is taken, the stream goes on without a gap, and only what came before its request is copied.

use std::time::Duration;

use genie_conformance::bytes::{pattern, same};
use genie_io::{In, Out, Pending, Reply};
use genie_net::transfer::{in_parts, port};
use genie_passing::{Overlays, Scheme};

use crate::link::{Kind, Link, PORT, RECEIVE, SEND, receiving};

const PAGE: usize = 4096;

fn ask(link: &Link, offset: usize, len: usize, argument: &[u8]) -> Pending<'static> {
    let buffer = link.genie.allocate_at(offset, len).expect("memory");
    let asked = link.genie.request(&link.receiver, RECEIVE).argument(argument);
    asked.input(In::owned(Scheme::EmulatedCopy, buffer)).submit().expect("a request")
}

fn send(link: &Link, data: &[u8]) {
    link.genie.request(&link.sender, SEND).argument(&port(PORT)).out(Out::copy(data)).send().expect("sent");
}

/// The reply, which is there.
fn reply(pending: Pending<'static>) -> Reply {
    assert!(pending.is_replied());
    pending.sync().expect("data")
}

/// Checks what came against `data`, and that as many of its pages changed places.
fn check(mut reply: Reply, data: &[u8], swapped: u64) {
    let (actual, receipt) = (reply.actual(), reply.receipt());
    same(&reply.take_buffer().expect("the buffer")[..actual], data, format_args!("{receipt:?}"));
    assert_eq!(u64::from(receipt.swapped), swapped, "{receipt:?}");
}

#[test]
fn a_client_takes_what_has_come_and_the_rest_goes_on_elsewhere_with_nothing_copied() {
    for kind in [Kind::SnapOff, Kind::Approximation] {
        let (link, data) = (Link::open(kind, receiving(3000)), pattern(1, 10 * PAGE));
        let asked = ask(&link, 0, 5 * PAGE, &in_parts(PORT));
        assert_eq!(asked.progress(0), 0);
        send(&link, &data[..2 * PAGE]);
        assert_eq!(asked.wait_for_progress(0, 0, Duration::from_secs(60)), 2 * PAGE, "{kind:?}");
        assert!(!asked.is_replied(), "{kind:?}");
        check(asked.abort().expect("what has come"), &data[..2 * PAGE], 2);
        let next = ask(&link, 1024, 8 * PAGE, &port(PORT));
        send(&link, &data[2 * PAGE..]);
        check(reply(next), &data[2 * PAGE..], 9);
        assert_eq!(link.receiving.totals().copied, 0, "{kind:?}");
    }
}

#[test]
fn of_what_comes_before_its_request_as_many_bytes_are_copied_and_the_rest_is_stored_in_its_place() {
    for kind in [Kind::SnapOff, Kind::Approximation] {
        let (link, data) = (Link::open(kind, receiving(3000)), pattern(2, 5 * PAGE));
        send(&link, &data[..5000]);
        let asked = ask(&link, 1024, 5 * PAGE, &in_parts(PORT));
        assert_eq!(asked.progress(0), 5000, "{kind:?}");
        send(&link, &data[5000..]);
        check(reply(asked), &data, 6);
        assert_eq!(link.receiving.totals().copied, 5000, "{kind:?}");
    }
}

#[test]
fn what_a_request_has_received_that_its_client_was_not_told_of_is_the_next_ones() {
    for kind in Kind::ALL {
        let (link, data) = (Link::open(kind, receiving(3000)), pattern(3, 5 * PAGE));
        let given_up = ask(&link, 0, 2 * PAGE, &port(PORT));
        let waits = ask(&link, 1024, 4 * PAGE, &port(PORT));
        send(&link, &data[..5000]);
        assert_eq!(given_up.progress(0), 0, "{kind:?}");
        given_up.abort().expect_err("it is not filled");
        send(&link, &data[5000..]);
        let mut filled = reply(waits);
        same(&filled.take_buffer().expect("the buffer"), &data[..4 * PAGE], format_args!("{kind:?}"));
        let last = reply(ask(&link, 0, PAGE, &port(PORT)));
        assert_eq!(last.actual(), PAGE);
        if kind == Kind::SnapOff {
            // Out of the one's memory, and into the other's.
            assert_eq!(link.receiving.totals().copied, 10_000);
        }
    }
}

/// A client that has taken 5,000 bytes of 8 pages, and 10,000 that have come since then.
fn ahead(link: &Link, data: &[u8]) {
    let asked = ask(link, 1024, 8 * PAGE, &in_parts(PORT));
    send(link, &data[..5000]);
    // Of the second page there is too little.
    check(asked.abort().expect("what has come"), &data[..5000], 1);
    send(link, &data[5000..15_000]);
}

#[test]
fn with_speculation_pages_change_places_with_what_came_before_it_was_asked_for() {
    for kind in [Kind::SnapOff, Kind::Approximation] {
        let (link, data) = (Link::open(kind, receiving(3000)), pattern(4, 8 * PAGE));
        let pool = Overlays::reserve(link.genie.space(), 0, PAGE, 16).expect("memory");
        link.receiving.set_speculation(Some(pool.clone()));
        ahead(&link, &data);
        assert!(pool.free() < 16, "{kind:?}");
        let rest = ask(&link, 1024 + 5000 - PAGE, 8 * PAGE - 5000, &port(PORT));
        send(&link, &data[15_000..]);
        check(reply(rest), &data[5000..], 8);
        assert_eq!(link.receiving.totals().copied, 0, "{kind:?}");
        assert_eq!(pool.free(), 16, "{kind:?}");
    }
}

#[test]
fn a_request_that_is_not_for_the_rest_amends_and_what_has_come_is_copied() {
    for (kind, offset, len, argument) in [
        (Kind::SnapOff, 100, 6 * PAGE, &port(PORT)[..]),
        (Kind::Approximation, 100, 6 * PAGE, &port(PORT)),
        (Kind::SnapOff, 1928, 8 * PAGE - 5000, &in_parts(PORT)),
    ] {
        let (link, data) = (Link::open(kind, receiving(3000)), pattern(5, 10 * PAGE));
        let pool = Overlays::reserve(link.genie.space(), 0, PAGE, 16).expect("memory");
        link.receiving.set_speculation(Some(pool.clone()));
        ahead(&link, &data);
        let other = ask(&link, offset, len, argument);
        assert_eq!(pool.free(), 16, "{kind:?}");
        send(&link, &data[15_000..5000 + len]);
        check(reply(other), &data[5000..5000 + len], (offset + len).div_ceil(PAGE) as u64);
        assert_eq!(link.receiving.totals().copied, 10_000, "{kind:?}");
    }
}
