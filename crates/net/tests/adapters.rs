//! Adapters by themselves: where they store what, level by level.

use genie_io::Interface;
use genie_net::Frame;
use genie_net::adapter::{
    Adapter, Approximation, Dropped, EarlyDemultiplexing, Layout, Mode, Outboard, Parsed, Piece, Pool,
    Pooled, Port, Posting, PostingId, Received, Segment, SnapOff,
};

const PORT: Port = Port(9);
/// Frames of these tests have the port in their first two bytes, of four, and a trailer of two.
const HEADER: usize = 4;
const TRAILER: usize = 2;

fn layout() -> Layout {
    Layout::Constants(Parsed { port: PORT, header: HEADER, trailer: TRAILER })
}

/// A frame for the port with bytes from `first` on for data.
fn frame(first: u8, len: u8) -> Vec<u8> {
    let data = (0..len).map(|at| first + at);
    [0, 9, 0xaa, 0xbb].into_iter().chain(data).chain([0xcc, 0xdd]).collect()
}

fn arrive(adapter: &mut dyn Adapter, bytes: &[u8]) -> Result<Received, Dropped> {
    adapter.arrive(&Frame::new(bytes.into()))
}

fn posting(id: u64, lens: &[usize]) -> Posting {
    let segments = lens.iter().map(|len| Segment::Own(vec![0xee; *len].into())).collect();
    Posting { id: PostingId(id), segments }
}

fn post(adapter: &mut dyn Adapter, id: u64, lens: &[usize]) {
    adapter.post(PORT, posting(id, lens), false).expect("an adapter with lists");
}

/// What is in a posting's segments.
fn bytes(posting: &Posting) -> Vec<Vec<u8>> {
    let all = |segment: &Segment| segment.with(0..segment.len(), |data| data.to_vec());
    posting.segments.iter().map(all).collect()
}

/// Which parts of postings a packet is in: posting, segment, where, how long; and how much of it is in pooled segments.
fn places(received: &Received) -> (Vec<(u64, usize, usize, usize)>, usize) {
    let mut pooled = 0;
    let mut places = Vec::new();
    for piece in &received.pieces {
        match piece {
            Piece::Posted { posting, segment, at, len } => places.push((posting.0, *segment, *at, *len)),
            Piece::Pooled(overlay) => pooled += overlay.len(),
            Piece::Outboard(_) => panic!("nothing is outboard here"),
        }
    }
    (places, pooled)
}

fn pool(segments: usize) -> Pool {
    let genie = Interface::open().expect("an interface");
    Pool::reserve(genie.space(), 4096, segments).expect("memory")
}

#[test]
fn pooled_segments_are_taken_whole_and_come_back() {
    let mut adapter = Pooled::new(pool(3));
    let long = vec![7; 5000];
    let received = arrive(&mut adapter, &long).expect("two segments");
    assert_eq!(received.pieces.iter().map(Piece::len).collect::<Vec<_>>(), [4096, 904]);
    assert_eq!(arrive(&mut adapter, &long).expect_err("one is left"), Dropped::NoBuffers);
    assert!(arrive(&mut adapter, &long[..100]).is_ok());
    drop(received);
    assert!(arrive(&mut adapter, &long).is_ok());
    let counters = adapter.counters();
    assert_eq!((counters.packets, counters.stored, counters.no_buffers), (3, 10_100, 1));
}

#[test]
fn a_split_header_is_apart_whatever_the_packets_length() {
    let mut adapter = Pooled::splitting(pool(4), HEADER);
    for len in 0..20 {
        let bytes = frame(1, 30);
        let received = arrive(&mut adapter, &bytes[..len]).expect("a segment");
        assert_eq!(received.header[..], bytes[..len.min(HEADER)]);
        assert_eq!(places(&received), (vec![], len.saturating_sub(HEADER)));
    }
}

#[test]
fn early_demultiplexing_fills_segment_after_segment_and_drops_what_is_left_of_the_last() {
    let mut adapter = EarlyDemultiplexing::new(layout(), pool(4));
    post(&mut adapter, 1, &[4, 10, 2, 4, 10]);
    let first = arrive(&mut adapter, &frame(1, 10)).expect("room");
    assert_eq!(places(&first).0, [(1, 0, 0, 4), (1, 1, 0, 10), (1, 2, 0, 2)]);
    // The trailer of a shorter packet is where data is expected, and the remainder of that segment is dropped.
    let second = arrive(&mut adapter, &frame(50, 5)).expect("room");
    assert_eq!(places(&second), (vec![(1, 3, 0, 4), (1, 4, 0, 7)], 0));
    let third = arrive(&mut adapter, &frame(90, 1)).expect("room");
    assert_eq!(places(&third), (vec![], 7), "nothing is posted any more");
    let posting = adapter.reclaim(PORT, PostingId(1)).expect("it was posted");
    assert_eq!(bytes(&posting)[1], (1..11).collect::<Vec<u8>>());
    assert_eq!(bytes(&posting)[4][..7], [50, 51, 52, 53, 54, 0xcc, 0xdd]);
}

#[test]
fn a_packet_goes_on_in_the_next_requests_segments_where_they_have_no_bounds() {
    let mut adapter = EarlyDemultiplexing::new(layout(), pool(4));
    post(&mut adapter, 1, &[4, 3]);
    post(&mut adapter, 2, &[4, 8]);
    let received = arrive(&mut adapter, &frame(1, 6)).expect("room");
    assert_eq!(places(&received).0, [(1, 0, 0, 4), (1, 1, 0, 3), (2, 0, 0, 4), (2, 1, 0, 1)]);
}

#[test]
fn what_is_reclaimed_is_stored_into_no_more() {
    for adapter in [
        &mut EarlyDemultiplexing::new(layout(), pool(8)) as &mut dyn Adapter,
        &mut SnapOff::new(layout(), pool(8)),
        &mut Approximation::new(layout(), pool(8)),
    ] {
        post(adapter, 1, &[100]);
        post(adapter, 2, &[100]);
        let posting = adapter.reclaim(PORT, PostingId(1)).expect("it was posted");
        let received = arrive(adapter, &frame(1, 50)).expect("room");
        assert!(places(&received).0.iter().all(|(id, ..)| *id == 2));
        assert_eq!(bytes(&posting), [vec![0xee; 100]]);
        assert!(adapter.reclaim(PORT, PostingId(1)).is_none(), "it was reclaimed before");
        assert!(adapter.reclaim(PORT, PostingId(2)).is_some(), "filled or not");
        let received = arrive(adapter, &frame(1, 50)).expect("room");
        assert!(places(&received).0.is_empty());
    }
}

#[test]
fn snap_off_ends_a_requests_buffering_with_its_packet() {
    let mut adapter = SnapOff::new(layout(), pool(4));
    post(&mut adapter, 1, &[10, 10]);
    post(&mut adapter, 2, &[3]);
    let shorter = arrive(&mut adapter, &frame(1, 5)).expect("room");
    assert_eq!((places(&shorter), &shorter.ended[..]), ((vec![(1, 0, 0, 5)], 0), &[PostingId(1)][..]));
    assert_eq!((&shorter.header[..], &shorter.trailer[..]), (&[0, 9, 0xaa, 0xbb][..], &[0xcc, 0xdd][..]));
    // What a request has no room for goes to pooled segments: the whole packet is there to be checked.
    let longer = arrive(&mut adapter, &frame(20, 8)).expect("room");
    assert_eq!((places(&longer), &longer.ended[..]), ((vec![(2, 0, 0, 3)], 5), &[PostingId(2)][..]));
    let empty = arrive(&mut adapter, &frame(0, 0)).expect("room");
    assert!(empty.ended.is_empty() && empty.pieces.is_empty());
}

#[test]
fn a_packet_without_data_ends_a_requests_buffering_too() {
    let mut adapter = SnapOff::new(layout(), pool(4));
    post(&mut adapter, 1, &[10]);
    assert_eq!(arrive(&mut adapter, &frame(0, 0)).expect("room").ended[..], [PostingId(1)]);
}

#[test]
fn in_multiple_packet_mode_packets_follow_each_other_and_go_on_in_the_next_requests_buffering() {
    let mut adapter = SnapOff::new(layout(), pool(4));
    assert!(adapter.set_mode(PORT, Mode::MultiplePacket));
    post(&mut adapter, 1, &[6, 6]);
    post(&mut adapter, 2, &[8]);
    let first = arrive(&mut adapter, &frame(1, 8)).expect("room");
    assert_eq!(places(&first).0, [(1, 0, 0, 6), (1, 1, 0, 2)]);
    assert!(first.ended.is_empty());
    let second = arrive(&mut adapter, &frame(9, 8)).expect("room");
    assert_eq!(places(&second).0, [(1, 1, 2, 4), (2, 0, 0, 4)]);
    assert_eq!(second.ended[..], [PostingId(1)]);
    let third = arrive(&mut adapter, &frame(17, 7)).expect("room");
    assert_eq!((places(&third), &third.ended[..]), ((vec![(2, 0, 4, 4)], 3), &[PostingId(2)][..]));
    let first = adapter.reclaim(PORT, PostingId(1)).expect("it was posted");
    let second = adapter.reclaim(PORT, PostingId(2)).expect("it was posted");
    let all: Vec<u8> = bytes(&first).into_iter().chain(bytes(&second)).flatten().collect();
    assert_eq!(all, (1..21).collect::<Vec<u8>>());
}

#[test]
fn amended_buffering_is_filled_behind_what_was_received_before() {
    for adapter in [
        &mut SnapOff::new(layout(), pool(4)) as &mut dyn Adapter,
        &mut Approximation::new(layout_without_trailer(), pool(4)),
    ] {
        adapter.set_mode(PORT, Mode::MultiplePacket);
        post(adapter, 1, &[6, 6]);
        post(adapter, 2, &[6]);
        let received = arrive(adapter, &frame(1, 8)).expect("room");
        let came: usize = received.pieces.iter().map(Piece::len).sum();
        adapter.processed(&received);
        let refused = adapter.amend(PORT, posting(3, &[came - 1])).expect_err("it is too short");
        assert_eq!(refused.0.id, PostingId(3), "it comes back");
        let amended = adapter.amend(PORT, posting(3, &[4, 20])).expect("longer than what came");
        assert_eq!((amended.received, amended.before.len()), (came, 2));
        let received = arrive(adapter, &frame(50, 4)).expect("room");
        assert_eq!(places(&received).0[0].0, 3);
        let at = 4 + places(&received).0[0].2;
        assert_eq!(at, came, "behind what has to be copied there");
    }
}

fn layout_without_trailer() -> Layout {
    Layout::Constants(Parsed { port: PORT, header: HEADER, trailer: 0 })
}

#[test]
fn snap_off_in_software_fails_where_packets_come_back_to_back_and_counts_that() {
    let mut adapter = Approximation::new(layout_without_trailer(), pool(4));
    adapter.set_mode(PORT, Mode::MultiplePacket);
    post(&mut adapter, 1, &[10, 10, 10]);
    let first = arrive(&mut adapter, &frame(1, 2)).expect("room");
    adapter.processed(&first);
    let second = arrive(&mut adapter, &frame(5, 2)).expect("room");
    assert_eq!((places(&second).0, adapter.back_to_back()), (vec![(1, 0, 4, 4)], 0), "without a gap");
    // Before the second one was processed:
    let third = arrive(&mut adapter, &frame(9, 2)).expect("room");
    assert_eq!((places(&third).0, adapter.back_to_back()), (vec![(1, 1, 0, 4)], 1), "behind a gap");
    adapter.processed(&second);
    adapter.processed(&third);
    let fourth = arrive(&mut adapter, &frame(13, 2)).expect("room");
    assert_eq!((places(&fourth).0, adapter.back_to_back()), (vec![(1, 1, 4, 4)], 1), "without another one");
}

#[test]
fn a_frame_that_is_dropped_leaves_lists_as_they_were() {
    for adapter in [
        &mut EarlyDemultiplexing::new(layout(), pool(0)) as &mut dyn Adapter,
        &mut SnapOff::new(layout(), pool(0)),
    ] {
        post(adapter, 1, &[20]);
        assert_eq!(arrive(adapter, &frame(1, 100)).expect_err("it is too long"), Dropped::NoBuffers);
        let received = arrive(adapter, &frame(1, 4)).expect("room");
        assert_eq!(
            places(&received).0.first().map(|(id, segment, at, _)| (*id, *segment, *at)),
            Some((1, 0, 0))
        );
    }
}

#[test]
fn outboard_memory_is_bounded_and_comes_back_with_the_last_part_of_a_packet() {
    let mut adapter = Outboard::new(100);
    let received = arrive(&mut adapter, &frame(1, 50)).expect("memory");
    assert_eq!(arrive(&mut adapter, &frame(1, 50)).expect_err("no memory"), Dropped::NoBuffers);
    let Some(Piece::Outboard(buffer)) = received.pieces.into_iter().next() else { panic!("it is outboard") };
    let part = buffer.part(HEADER..HEADER + 3);
    drop(buffer);
    assert_eq!((part.data().to_vec(), adapter.used()), (vec![1, 2, 3], 56), "read where it lies");
    drop(part);
    assert_eq!(adapter.used(), 0);
}
