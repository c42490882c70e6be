//! What is copied, and which pages change places.

use std::collections::HashSet;

use genie_conformance::bytes::{pattern, same};
use genie_conformance::machine::{frames, skip};
use genie_io::{In, Interface, Out, Pending, Reply};
use genie_net::adapter::{Adapter, EarlyDemultiplexing, Pool, Pooled};
use genie_net::transfer::{Receiving, Shape, layout, port};
use genie_passing::{Overlay, Overlays, Scheme};

use crate::link::{Kind, Link, PORT, RECEIVE, SEGMENT, SEND, receiving};

/// Lengths of a page and two.
const PAGE: usize = 4096;
const TWO: usize = 8192;

fn ask(link: &Link, offset: usize, len: usize, scheme: Scheme) -> Pending<'static> {
    let buffer = link.genie.allocate_at(offset, len).expect("memory");
    let port = port(PORT);
    let asked = link.genie.request(&link.receiver, RECEIVE).argument(&port).input(In::owned(scheme, buffer));
    asked.submit().expect("a request")
}

fn send(link: &Link, data: &[u8]) {
    let port = port(PORT);
    link.genie.request(&link.sender, SEND).argument(&port).out(Out::copy(data)).send().expect("sent");
}

/// Sends `data` to a client whose buffer begins `offset` bytes into a page. Returns the reply, and how many bytes of data were copied, by
/// the server and for the client.
fn pass(link: &Link, data: &[u8], offset: usize, scheme: Scheme, is_posted: bool) -> (Reply, usize) {
    let before = link.receiving.totals().copied;
    let mut asked = is_posted.then(|| ask(link, offset, data.len(), scheme));
    send(link, data);
    let asked = asked.take().unwrap_or_else(|| ask(link, offset, data.len(), scheme));
    assert!(asked.is_replied(), "{:?}", link.receiving.totals());
    let mut reply = asked.sync().expect("data");
    let buffer = reply.take_buffer().expect("the buffer");
    same(&buffer, data, format_args!("{scheme:?} at {offset}"));
    let copied = link.receiving.totals().copied - before;
    let passed = reply.receipt().copied + copied as usize;
    (reply, passed)
}

fn cut(header: usize, data: usize) -> Receiving {
    Receiving { expected: Shape { headers: vec![header], ..Shape::of(data) }, ..receiving(data) }
}

/// Figure 6.1: five pages in packets of two, behind a header, to a buffer that begins where the data does in its packet.
#[test]
fn what_fits_a_packets_pages_is_swapped_by_pooled_buffering_and_the_rest_is_as_long_as_the_header() {
    for header in [8, 42, 255] {
        let link = Link::open(Kind::Pooled, cut(header, TWO));
        let (reply, copied) = pass(&link, &pattern(1, 5 * PAGE), header, Scheme::EmulatedCopy, false);
        assert!(reply.receipt().swapped >= 5, "{header}: {:?}", reply.receipt());
        // The ends of the packets.
        assert!(copied <= 3 * header, "{copied} bytes for headers of {header}");
    }
}

/// Figure 6.3.
#[test]
fn with_headers_split_off_whole_pages_are_swapped_and_nothing_is_copied() {
    let link = Link::open(Kind::Splitting, receiving(TWO));
    let (reply, copied) = pass(&link, &pattern(2, 5 * PAGE), 0, Scheme::EmulatedCopy, false);
    assert_eq!((reply.receipt().swapped, copied), (5, 0));
}

/// Figure 6.6: packets as an ATM network has them, to a buffer that begins anywhere.
#[test]
fn what_is_posted_is_swapped_wherever_the_buffer_begins() {
    for (kind, offset) in [Kind::Early, Kind::EarlySplitting, Kind::Approximation, Kind::SnapOff]
        .into_iter()
        .flat_map(|kind| [0, 1024, 4000].map(|offset| (kind, offset)))
    {
        let link = Link::open(kind, receiving(9172));
        let (reply, copied) = pass(&link, &pattern(3, 5 * PAGE), offset, Scheme::EmulatedCopy, true);
        let pages = (offset + 5 * PAGE).div_ceil(PAGE);
        assert_eq!(reply.receipt().swapped as usize, pages, "{kind:?} at {offset}");
        assert_eq!(copied, 0, "{kind:?} at {offset}");
    }
}

#[test]
fn outboard_data_is_stored_into_the_clients_own_pages_whatever_they_are() {
    let link = Link::open(Kind::Outboard, receiving(3000));
    for is_posted in [false, true] {
        let (reply, copied) = pass(&link, &pattern(4, 5 * PAGE), 123, Scheme::EmulatedCopy, is_posted);
        assert_eq!((reply.receipt().swapped, copied), (0, 0));
    }
}

/// Figure 8.8: packets twice as long as they are known to be cost one transfer its copies; and half as long, as many packets as it takes to
/// believe it.
#[test]
fn tracking_learns_of_longer_packets_after_one_transfer_and_of_shorter_ones_after_a_while() {
    let how = Receiving { tracks: true, ..receiving(9172) };
    let link = Link::open(Kind::Early, how);
    let data = pattern(5, 60 << 10);
    let copied = |mtu: usize| {
        link.sending.set_shape(Shape::of(mtu - 8));
        let (_, copied) = pass(&link, &data, 1024, Scheme::EmulatedCopy, true);
        copied
    };
    assert_eq!(copied(9180), 0);
    assert!(copied(18_360) > data.len() / 2);
    assert_eq!([copied(18_360), copied(18_360)], [0, 0]);
    let until_learnt = (0..12).find(|_| copied(9180) == 0).expect("a rule by which it comes down");
    assert!((1..=5).contains(&until_learnt), "{until_learnt} transfers of 7 packets");
    assert_eq!(copied(9180), 0);
}

/// A pool's page frames; none if they cannot be seen.
fn frames_of(overlays: &Overlays) -> Option<HashSet<u64>> {
    let all: Vec<Overlay> = std::iter::from_fn(|| overlays.allocate()).collect();
    let each = |overlay: &Overlay| frames(overlay.data().segments()[0].addr(), overlay.len(), PAGE);
    Some(all.iter().map(each).collect::<Option<Vec<_>>>()?.concat().into_iter().collect())
}

/// Sends 8,000 bytes behind 42 of headers to a migrant buffer.
fn migrate(genie: Interface, adapter: Box<dyn Adapter>, frames_before: Option<&HashSet<u64>>) {
    let link = Link::with(genie, adapter, cut(42, 8000));
    let data = pattern(6, 8000);
    let port = port(PORT);
    for scheme in [Scheme::Move, Scheme::EmulatedMove, Scheme::WeakMove, Scheme::EmulatedWeakMove] {
        send(&link, &data);
        let asked = link.genie.request(&link.receiver, RECEIVE).argument(&port);
        let mut reply = asked.input(In::migrant(scheme, data.len())).send().expect("data");
        let receipt = reply.receipt();
        let migrant = reply.take_migrant().expect("a migrant buffer");
        same(&migrant, &data, format_args!("{scheme:?}"));
        assert_eq!(receipt.copied, 0, "{scheme:?}: {receipt:?}");
        assert_eq!(migrant.as_ptr().addr() % PAGE, 42, "{scheme:?}: where the packet had it");
        if let Some(before) = frames_before {
            let now = frames(migrant.as_ptr().addr(), migrant.len(), PAGE).expect("frames are seen");
            let is_moved = now.iter().all(|frame| before.contains(frame));
            // The pool was refilled by other page frames, so only the first scheme finds its first ones alone.
            assert!(is_moved || scheme != Scheme::Move, "{scheme:?}");
        }
    }
    assert_eq!(link.receiving.totals().copied, 0);
}

#[test]
fn migrant_data_at_any_offset_changes_places_with_nothing_copied() {
    let link = Link::open(Kind::Pooled, cut(42, 8000));
    let overlays = Overlays::reserve(link.genie.space(), 0, SEGMENT, 16).expect("memory");
    let before = frames_of(&overlays);
    if before.is_none() {
        skip("page frames move to a migrant buffer", "page frames are hidden (CAP_SYS_ADMIN is missing)");
    }
    let adapter = Box::new(Pooled::new(Pool::of(overlays)));
    migrate(link.genie.clone(), adapter, before.as_ref());
}

#[test]
fn a_frame_for_which_there_are_no_segments_is_dropped_and_leaves_all_as_it_was() {
    let link = Link::open(Kind::SnapOff, receiving(TWO));
    let pool = Pool::reserve(link.genie.space(), SEGMENT, 1).expect("memory");
    let adapter = Box::new(EarlyDemultiplexing::new(layout(), pool));
    let link = Link::with(link.genie.clone(), adapter, receiving(100));
    let asked = ask(&link, 0, 100, Scheme::EmulatedCopy);
    link.sending.set_shape(Shape::of(3 * PAGE));
    send(&link, &pattern(7, 3 * PAGE));
    assert!(!asked.is_replied());
    let counters = link.receiving.totals().adapter;
    assert_eq!((counters.packets, counters.no_buffers), (0, 1));
    // The same request is filled by the next packet, in its place.
    drop(asked);
}
