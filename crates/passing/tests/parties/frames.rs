//! Frames: how many are away, and who is shown them.

use std::sync::atomic::{AtomicUsize, Ordering};

use genie_memory::{Config, Frames, Granularity, GranuleKind, Migrant, Part, Space, Span};
use genie_passing::{Layout, Overlays, Parties, Reason, Scheme, Source, Target};

use super::fixture::{DIRT, Fixture, begin, pattern};

on_both_kinds! {
    a_server_elsewhere_is_shown_no_frames,
    threads_never_have_more_frames_than_may_be_away,
    a_moved_frame_without_headroom_comes_home,
    clients_are_told_where_data_begins_in_frames_that_can_be_swapped,
}

/// Where a client has memory of a frame's, what it passes on is copied: whoever maps the object finds headers and other data there.
fn a_server_elsewhere_is_shown_no_frames(fixture: &Fixture) {
    let (space, passing, granule) = (&fixture.space, &fixture.passing, fixture.granule());
    let server = fixture.lender(8);
    let mut frames = space.make_frames(granule, 2).unwrap();
    let object = frames.addresses();
    let is_in = |segments: &[Span]| segments.iter().any(|span| object.contains(&span.addr()));
    let data = pattern(granule);
    frames.buffers()[0].data().fill(DIRT);
    let mut client = space.allocate(granule).unwrap();
    let mut frame = frames.take_back(1).unwrap();
    frame.data().copy_from(&data);
    assert_eq!(space.deliver(&mut frame, &mut client, &(0..1)).unwrap().swapped, 1);
    drop(frame);
    let outputs = |client: &[u8]| {
        for scheme in [Scheme::EmulatedCopy, Scheme::Share, Scheme::EmulatedShare] {
            for (source, held) in [(Source::Native(client), false), (Source::Owned(client), true)] {
                let output = passing.output_from(scheme, source, server).unwrap();
                assert!(!is_in(&output.segments()), "{scheme}");
                assert_eq!(output.receipt().reason, Some(Reason::Unshown), "{scheme} {held}");
                let seen = fixture.seen(&output.segments());
                assert_eq!((seen.lender, seen.data), (Some(server), data.clone()), "{scheme}");
            }
        }
    };
    outputs(&client);
    let (addr, len) = (client.as_ptr().addr(), client.len());
    for scheme in [Scheme::Share, Scheme::EmulatedShare] {
        let mut input = begin(passing, scheme, Target::Native { addr, len }, server);
        assert!(!is_in(input.ready().unwrap().segments()), "{scheme}");
        input.data().copy_from(&data);
        input.deliver(len, Some(&mut client)).unwrap();
        assert_eq!(input.receipt().reason, Some(Reason::Unshown), "{scheme}");
        assert_eq!(&*client, data);
    }
    // In this process nobody is shown more than there is, and a server elsewhere gets a copy where that is forwarded.
    let output = passing.output(Scheme::EmulatedCopy, Source::Native(&client)).unwrap();
    assert!(is_in(&output.segments()) && !space.may_show(output.segments()[0], server, true));
    drop(output);
    for scheme in [Scheme::Move, Scheme::EmulatedMove, Scheme::WeakMove, Scheme::EmulatedWeakMove] {
        let migrant = arrived(fixture, &frames, &data, matches!(scheme, Scheme::Move | Scheme::EmulatedMove));
        let mut output = passing.output_from(scheme, Source::Migrant(migrant), server).unwrap();
        assert!(!is_in(&output.segments()), "{scheme}");
        assert_eq!(fixture.seen(&output.segments()).data, data, "{scheme}");
        assert_eq!(
            (output.receipt().copied, output.receipt().reason),
            (len, Some(Reason::Unshown)),
            "{scheme}"
        );
        output.complete().unwrap();
        drop(output);
        assert!(frames.take_back(0).is_some(), "{scheme}: the region is gone");
    }
    // What was in the frames is there as long as their memory is.
    drop(frames);
    outputs(&client);
}

/// A migrant buffer whose memory is the first frame's.
fn arrived(fixture: &Fixture, frames: &Frames, data: &[u8], strong: bool) -> Migrant {
    let (space, len) = (&fixture.space, data.len());
    let mut frame = frames.take_back(0).expect("home");
    frame.data().copy_from(data);
    let mut region = space.dequeue(len, strong).unwrap();
    region.align(&frame, Part::all(len), len).unwrap();
    region.reinstate().unwrap();
    let passed = region.delivery(len).unwrap().from_one(&mut frame, &(0..1)).unwrap();
    assert_eq!(passed.swapped, 1);
    region.arrive(len)
}

fn threads_never_have_more_frames_than_may_be_away(fixture: &Fixture) {
    const COUNT: usize = 4;
    const AWAY: usize = 2;
    let (space, passing, len) = (&fixture.space, &fixture.passing, 2 * fixture.granule());
    let frames = space.make_frames(len, COUNT).unwrap();
    let pool = Overlays::framed(frames, Layout { headroom: 0, len, away: AWAY });
    let (away, rounds) = (AtomicUsize::new(0), if fixture.granule() > 4096 { 20 } else { 300 });
    let receive = |byte: u8| {
        let overlay = pool.allocate()?;
        overlay.data().fill(byte);
        let mut client = space.allocate(len).unwrap();
        let target = Target::Native { addr: client.as_ptr().addr(), len };
        let mut input = begin(passing, Scheme::EmulatedCopy, target, Parties::OWN);
        input.overlay(overlay);
        input.deliver(len, Some(&mut client)).unwrap();
        assert!(client.iter().all(|found| *found == byte));
        let is_swapped = input.receipt().swapped > 0;
        if is_swapped {
            assert!(away.fetch_add(1, Ordering::SeqCst) < AWAY, "one more frame is away than may be");
        }
        Some((client, is_swapped))
    };
    std::thread::scope(|scope| {
        for thread in 1..=3 {
            let (receive, away) = (&receive, &away);
            scope.spawn(move || {
                let mut held = None;
                for round in 0..rounds {
                    let next = receive(thread * 64 + round as u8 % 64);
                    if let Some((client, is_swapped)) = std::mem::replace(&mut held, next) {
                        away.fetch_sub(usize::from(is_swapped), Ordering::SeqCst);
                        drop(client);
                    }
                }
                away.fetch_sub(
                    usize::from(held.take().is_some_and(|(_, is_swapped)| is_swapped)),
                    Ordering::SeqCst,
                );
            });
        }
    });
    assert_eq!(pool.free(), COUNT, "all are home");
}

/// A buffer of another pool is refilled when it has become a region.
fn a_moved_frame_without_headroom_comes_home(fixture: &Fixture) {
    let (passing, len) = (&fixture.passing, 2 * fixture.granule());
    let frames = fixture.space.make_frames(len, 1).unwrap();
    let pool = Overlays::framed(frames, Layout { headroom: 0, len, away: 1 });
    for scheme in [Scheme::Move, Scheme::EmulatedMove] {
        let (overlay, data) = (pool.allocate().expect("the frame is found where it was"), pattern(len));
        overlay.data().copy_from(&data);
        let mut input = begin(passing, scheme, Target::Migrant { len }, Parties::OWN);
        input.overlay(overlay);
        let migrant = input.deliver(len, None).unwrap().expect("a buffer");
        assert_eq!((input.receipt().swapped, &migrant[..]), (2, &data[..]), "{scheme}");
        drop(input);
        assert!(pool.allocate().is_none(), "{scheme}: it is away");
        drop(migrant);
    }
}

fn clients_are_told_where_data_begins_in_frames_that_can_be_swapped(fixture: &Fixture) {
    let (space, granule) = (&fixture.space, fixture.granule());
    for (stride, offset) in [(2 * granule, 100), (granule + 333, 0)] {
        let layout = Layout { headroom: granule + 100, len: 200, away: 1 };
        let pool = Overlays::framed(space.make_frames(stride, 1).unwrap(), layout);
        let preferred = pool.preferred();
        assert_eq!((preferred.offset, preferred.len), (offset, 200), "frames of {stride}");
        assert_eq!(pool.allocate().unwrap().headroom().len(), granule + 100);
    }
    let other = Overlays::reserve(space, 0, granule, 1).unwrap().allocate().unwrap();
    assert!(other.part(10..granule).headroom().is_empty(), "it is no frame");
}

#[test]
#[cfg_attr(miri, ignore = "memfd")]
#[should_panic(expected = "4000 bytes of data behind 100 of headroom do not fit in frames of 4096")]
fn frames_have_room_for_their_data() {
    let config =
        Config { granularity: Granularity::Only(GranuleKind::Base), limit: 1 << 20, ..Config::default() };
    let frames = Space::new(&config).and_then(|space| space.make_frames(4096, 1)).unwrap();
    let _ = Overlays::framed(frames, Layout { headroom: 100, len: 4000, away: 1 });
}
