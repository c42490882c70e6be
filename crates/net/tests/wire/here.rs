//! In one process.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Instant;

use genie_conformance::bytes::pattern;
use genie_conformance::{assert_idle, checked};
use genie_io::{Error, ServerError};
use genie_net::Rate;
use genie_net::wire::{LINK_HEADER, MTU_MAX};

use super::*;

const MS: Duration = Duration::from_millis(1);

#[test]
fn a_frame_arrives_in_its_senders_call_and_only_the_station_copies_it() {
    let recorder = Recorder::default();
    let end = End::new(Options::default(), &Clock::default(), recorder.clone());
    let (header, mut data) = (pattern(1, 42), end.interface.allocate(60_000).expect("a buffer"));
    data.copy_from_slice(&pattern(2, 60_000));
    let pending = end.submit(&header);
    assert!(pending.is_replied());
    assert_eq!(recorder.bytes(), [&header[..]]);
    let request = end.interface.request(&end.handle, TRANSMIT);
    let reply = request.out(Out::copy(&header)).and_out(Out::emulated_copy(&data)).send().expect("a reply");
    assert_eq!(recorder.bytes(), [[header, data.to_vec()].concat()]);
    let copied: Vec<_> = reply.receipts().map(|receipt| receipt.copied).collect();
    assert_eq!(copied, [42, 0], "the header was to be copied, and no more");
    let counters = end.wire.counters();
    assert_eq!((counters.sent, counters.delivered, counters.bytes), (2, 2, 60_084));
    drop((data, pending));
    assert_idle(&end.interface, 0);
}

#[test]
fn the_mtu_counts_what_is_behind_the_link_header() {
    let lens = Arc::new(AtomicUsize::new(0));
    struct Lens(Arc<AtomicUsize>);
    impl Station for Lens {
        fn arrive(&self, frame: &Frame<'_>) {
            self.0.store(frame.len(), Ordering::Relaxed);
        }
    }
    let frame = pattern(1, 1 << 20);
    let interface = interface();
    for mtu in (1..=1500).chain((1501..MTU_MAX).step_by(997)).chain([MTU_MAX, 1_000_000]) {
        let wire =
            Wire::new(Options { mtu, ..Options::default() }, Clock::default(), Lens(Arc::clone(&lens)));
        let handle = ServerHandle::new(wire.expect("an MTU"));
        let send =
            |len: usize| interface.request(&handle, TRANSMIT).out(Out::emulated_copy(&frame[..len])).send();
        send(mtu + LINK_HEADER).expect("a frame that is no longer");
        assert_eq!(lens.load(Ordering::Relaxed), mtu + LINK_HEADER);
        let refused = send(mtu + LINK_HEADER + 1).expect_err("a frame that is longer").error;
        assert!(refused.to_string().contains(&format!("longer than the MTU, {mtu}, ")), "{refused}");
        assert_eq!(refused.errno(), genie_sys::Errno::MSGSIZE.raw_os_error());
    }
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let unusable = |options| {
        Wire::new(options, Clock::default(), Recorder::default()).expect_err("nonsense").to_string()
    };
    let sensible = Options::default;
    assert_eq!(
        unusable(Options { loss: 1.1, ..sensible() }),
        "the probability of loss is from 0 to 1, not 1.1"
    );
    assert!(unusable(Options { damage: f64::NAN, ..sensible() }).contains("damage"));
    assert!(unusable(Options { mtu: 0, ..sensible() }).contains("MTU"));
    assert!(unusable(Options { displacement: 0, ..sensible() }).contains("displacement"));
    assert!(unusable(Options { in_flight: 0, ..sensible() }).contains("in flight"));
    assert!(unusable(Options { damaged_bits: 1025, ..sensible() }).contains("1025"));
}

#[test]
fn a_request_without_a_frame_is_refused() {
    let end = End::new(Options::default(), &Clock::default(), Recorder::default());
    let refused = end.interface.request(&end.handle, TRANSMIT).send().expect_err("no frame").error;
    assert!(matches!(refused, Error::Server(ServerError { .. })), "{refused}");
    assert_eq!(end.wire.counters().sent, 0);
}

/// Sends each frame that arrives on by another wire, with 1 added to its number, until that is 100,000.
struct Echo {
    interface: Interface,
    back: Arc<OnceLock<ServerHandle>>,
    turns: Arc<AtomicU32>,
    /// The lowest address of the stack at which a frame has arrived.
    lowest: Arc<AtomicUsize>,
}

impl Station for Echo {
    fn arrive(&self, frame: &Frame<'_>) {
        let mut number = [0; 4];
        frame.read(0, &mut number);
        self.lowest.fetch_min(&raw const number as usize, Ordering::Relaxed);
        let next = u32::from_le_bytes(number) + 1;
        self.turns.store(next, Ordering::Relaxed);
        if next < 100_000 {
            let back = self.back.get().expect("the other wire");
            let frame = next.to_le_bytes();
            let request = self.interface.request(back, TRANSMIT).out(Out::copy(&frame));
            drop(request.submit().expect("a request"));
        }
    }
}

#[test]
fn frames_that_stations_send_back_and_forth_take_no_more_stack_for_many() {
    let (turns, lowest) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicUsize::new(usize::MAX)));
    let (there, back) = (Arc::new(OnceLock::new()), Arc::new(OnceLock::new()));
    let ends = [&back, &there].map(|other| {
        let (back, turns, lowest) = (Arc::clone(other), Arc::clone(&turns), Arc::clone(&lowest));
        End::new(Options::default(), &Clock::default(), Echo { interface: interface(), back, turns, lowest })
    });
    there.set(ends[0].handle.clone()).expect("set once");
    back.set(ends[1].handle.clone()).expect("set once");
    let here = 0u8;
    ends[0].send(&[0; 4]).expect("the first frame");
    assert_eq!(turns.load(Ordering::Relaxed), 100_000);
    let depth = (&raw const here as usize).abs_diff(lowest.load(Ordering::Relaxed));
    assert!(depth < 256 << 10, "{depth} bytes of stack");
    assert_eq!(ends.map(|end| end.wire.in_flight()), [0, 0]);
}

#[test]
fn a_frame_with_one_bit_damaged_arrives_so_and_its_sender_has_it_as_it_was() {
    let recorder = Recorder::default();
    let options = Options { damage: 1.0, seed: 5, ..Options::default() };
    let end = End::new(options, &Clock::default(), recorder.clone());
    let mut data = end.interface.allocate(9000).expect("a buffer");
    let sent = pattern(3, 9000);
    data.copy_from_slice(&sent);
    end.interface.request(&end.handle, TRANSMIT).out(Out::emulated_copy(&data)).send().expect("a reply");
    let [arrived] = &recorder.bytes()[..] else { panic!("one frame") };
    let turned: u32 = arrived.iter().zip(&sent).map(|(is, was)| (is ^ was).count_ones()).sum();
    assert_eq!(turned, 1);
    assert_eq!(data[..], sent[..]);
}

#[test]
fn the_same_seed_has_the_same_frames_arrive_and_another_seed_others() {
    let arrived = |seed| {
        let (loss, duplication, reordering, truncation, damage) = (0.2, 0.2, 0.2, 0.2, 0.2);
        let options = Options {
            loss,
            duplication,
            reordering,
            displacement: 3,
            truncation,
            damage,
            seed,
            ..Options::default()
        };
        let (clock, recorder) = (Clock::stepped(), Recorder::default());
        let end = End::new(options, &clock, recorder.clone());
        (0..200).for_each(|number| drop(end.submit(&pattern(number, 100))));
        clock.advance(1000 * MS);
        assert_eq!(end.wire.in_flight(), 0);
        (recorder.bytes(), end.wire.counters())
    };
    let (first, again, other) = (arrived(1), arrived(1), arrived(2));
    assert_eq!(first, again);
    assert_ne!(first.0, other.0);
    let counters = first.1;
    let all = [counters.lost, counters.duplicated, counters.reordered, counters.truncated, counters.damaged];
    assert!(all.iter().all(|count| *count > 10), "{counters:?}");
}

#[test]
fn frames_arrive_when_their_last_bits_do_by_a_clock_that_a_test_sets() {
    let clock = Clock::stepped();
    let recorder = Recorder::by(&clock);
    let (rate, delay) = (Rate::Bits(155_000_000), 5 * MS);
    let end = End::new(Options { rate, delay, ..Options::default() }, &clock, recorder.clone());
    clock.advance(MS);
    let lens = [60, 9180, 1, 1500, 65_000, 60];
    let pending: Vec<_> = lens.iter().map(|len| end.submit(&pattern(1, *len))).collect();
    assert!(pending.iter().all(|pending| !pending.is_replied()));
    assert_eq!(clock.next_due(), Some(MS + rate.time(60) + delay));
    clock.advance(rate.time(60 + 9180) + delay);
    let replied: Vec<_> = pending.iter().map(Pending::is_replied).collect();
    assert_eq!(replied, [true, true, false, false, false, false]);
    clock.advance(100 * MS);
    let sums = lens.iter().scan(0, |sum, len| {
        *sum += *len as u64;
        Some(MS + rate.time(*sum) + delay)
    });
    let at: Vec<_> = recorder.take().into_iter().map(|(at, _)| at).collect();
    assert_eq!(at, sums.collect::<Vec<_>>());
    assert_eq!(clock.next_due(), None);
    assert!(pending.iter().all(Pending::is_replied));
}

#[test]
fn frames_by_a_polled_clock_arrive_in_no_other_thread_and_never_early() {
    let clock = Clock::polled();
    let recorder = Recorder::by(&clock);
    let end = End::new(Options { delay: 2 * MS, ..Options::default() }, &clock, recorder.clone());
    let begun = clock.now();
    let pending = end.submit(&pattern(1, 100));
    let due = clock.next_due().expect("a frame in flight");
    assert!(due >= begun + 2 * MS);
    while clock.now() < due + 10 * MS {
        std::thread::yield_now();
    }
    assert!(!pending.is_replied() && recorder.take().is_empty(), "nobody has looked");
    clock.poll();
    assert!(pending.is_replied() && clock.next_due().is_none());
    assert_eq!(recorder.bytes(), [pattern(1, 100)]);
    let pending = end.submit(&pattern(2, 100));
    while !pending.is_replied() {
        clock.poll();
    }
    let (at, bytes) = recorder.take().pop().expect("a frame");
    assert!(at >= due + 12 * MS && bytes == pattern(2, 100));
}

/// Sends on what arrives.
struct Forward(Interface, ServerHandle);

impl Station for Forward {
    fn arrive(&self, frame: &Frame<'_>) {
        let mut bytes = vec![0; frame.len()];
        frame.read(0, &mut bytes);
        drop(self.0.request(&self.1, TRANSMIT).out(Out::copy(&bytes)).submit().expect("a request"));
    }
}

#[test]
fn a_step_of_time_lets_a_frame_pass_several_wires_each_at_its_time() {
    let clock = Clock::stepped();
    let recorder = Recorder::by(&clock);
    let options = Options { delay: 3 * MS, ..Options::default() };
    let last = End::new(options.clone(), &clock, recorder.clone());
    let first = End::new(options, &clock, Forward(interface(), last.handle.clone()));
    drop([first.submit(&[1]), first.submit(&[2])]);
    clock.advance(2 * MS);
    drop(first.submit(&[3]));
    clock.advance(100 * MS);
    assert_eq!(recorder.take(), [(6 * MS, vec![1]), (6 * MS, vec![2]), (8 * MS, vec![3])]);
    assert_eq!(clock.now(), 102 * MS);
}

#[test]
fn frames_whose_sender_gives_them_up_or_leaves_are_let_go() {
    let (clock, recorder) = (Clock::stepped(), Recorder::default());
    let end = End::new(Options { delay: MS, ..Options::default() }, &clock, recorder.clone());
    let (given_up, stays) = (end.submit(&[1; 5000]), end.submit(&[2; 5000]));
    assert!(matches!(given_up.abort(), Err(failed) if matches!(failed.error, Error::Aborted)));
    assert_eq!((end.wire.in_flight(), end.wire.counters().let_go), (1, 1));
    let other = interface();
    drop(other.request(&end.handle, TRANSMIT).out(Out::copy(&[3; 5000])).submit().expect("a request"));
    assert_eq!(end.wire.in_flight(), 2);
    drop(other);
    assert_eq!((end.wire.in_flight(), end.wire.counters().let_go), (1, 2));
    clock.advance(MS);
    assert_eq!(recorder.bytes(), [[2; 5000]]);
    drop(stays);
    assert_idle(&end.interface, 0);
}

#[test]
fn too_many_frames_in_flight_are_refused() {
    let clock = Clock::stepped();
    let end =
        End::new(Options { delay: MS, in_flight: 3, ..Options::default() }, &clock, Recorder::default());
    let there: Vec<_> = (0..3).map(|_| end.submit(&[0; 60])).collect();
    let refused = end.send(&[0; 60]).expect_err("a fourth").error;
    assert_eq!(refused.errno(), genie_sys::Errno::NOBUFS.raw_os_error());
    assert!(refused.to_string().contains("3 frames are in flight already"), "{refused}");
    clock.advance(MS);
    there.into_iter().for_each(|pending| drop(pending.sync().expect("a reply")));
    assert_eq!((end.wire.counters().dropped, end.wire.counters().delivered), (1, 3));
}

/// Panics at frames that begin with 1.
struct Panicking(Recorder);

impl Station for Panicking {
    fn arrive(&self, frame: &Frame<'_>) {
        let mut first = [0];
        frame.read(0, &mut first);
        assert_ne!(first, [1], "this is what is tested");
        self.0.arrive(frame);
    }
}

#[test]
fn a_panic_of_the_station_ends_its_frames_request_and_no_other() {
    for delay in [Duration::ZERO, 2 * MS] {
        let recorder = Recorder::default();
        let options = Options { delay, ..Options::default() };
        let end = End::new(options, &Clock::default(), Panicking(recorder.clone()));
        let pending = [1, 2, 1, 3].map(|first| end.submit(&[first; 100]));
        let came = pending.map(|pending| match pending.sync() {
            Ok(_) => true,
            Err(failed) if matches!(failed.error, Error::Panicked { .. }) => false,
            Err(failed) => panic!("{failed}"),
        });
        assert_eq!(came, [false, true, false, true]);
        assert_eq!(recorder.bytes(), [[2; 100], [3; 100]]);
    }
}

#[test]
fn in_real_time_no_frame_is_early_and_the_wires_thread_leaves_with_the_last_frame() {
    let clock = Clock::default();
    let recorder = Recorder::by(&clock);
    let (rate, delay) = (Rate::Bits(100_000_000), 3 * MS);
    let end = End::new(Options { rate, delay, ..Options::default() }, &clock, recorder.clone());
    for _ in 0..3 {
        let begun = clock.now();
        let pending: Vec<_> = (0..10).map(|_| end.submit(&[7; 5000])).collect();
        pending.into_iter().for_each(|pending| drop(pending.sync().expect("a reply")));
        let arrivals = recorder.take();
        assert_eq!(arrivals.len(), 10);
        for (number, (at, _)) in arrivals.into_iter().enumerate() {
            let due = begun + rate.time(5000 * (number as u64 + 1)) + delay;
            assert!(at >= due, "frame {number} came at {at:?}, and was due at {due:?}");
        }
    }
    drop(end);
    assert_gone(&recorder.0);
}

/// Waits until nobody else has it: the wire has gone, and its thread.
fn assert_gone<T>(kept: &Arc<T>) {
    let deadline = Instant::now() + 10_000 * MS;
    while Arc::strong_count(kept) > 1 {
        assert!(Instant::now() < deadline, "the wire's thread is there, with nothing to do");
        std::thread::sleep(MS);
    }
}

#[test]
fn the_wires_thread_leaves_when_the_last_frame_is_given_up() {
    let recorder = Recorder::default();
    let options = Options { delay: Duration::from_secs(3600), ..Options::default() };
    let end = End::new(options, &Clock::default(), recorder.clone());
    let pending = end.submit(&[0; 60]);
    std::thread::sleep(MS);
    assert!(pending.abort().is_err());
    drop(end);
    assert_gone(&recorder.0);
}

/// Keeps the thread that brings frames that begin with 2 until it is told.
struct Gate(Recorder, Arc<Mutex<()>>);

impl Station for Gate {
    fn arrive(&self, frame: &Frame<'_>) {
        let mut first = [0];
        frame.read(0, &mut first);
        if first == [2] {
            drop(self.1.lock());
        }
        self.0.arrive(frame);
    }
}

#[test]
fn the_wires_thread_leaves_when_a_sender_delivers_the_last_frame_before_it() {
    // The first frame is to come behind the third, and the second at once.
    let options = |seed| Options { reordering: 0.5, displacement: 2, seed, ..Options::default() };
    let is_so = |seed: &u64| {
        let end = End::new(options(*seed), &Clock::stepped(), Recorder::default());
        let replied = [1, 2].map(|first| end.submit(&[first]).is_replied());
        replied == [false, true] && end.wire.in_flight() == 1
    };
    let seed = (0..1000).find(is_so).expect("one of so many seeds");
    let (recorder, gate) = (Recorder::default(), Arc::new(Mutex::new(())));
    let end = End::new(options(seed), &Clock::default(), Gate(recorder.clone(), Arc::clone(&gate)));
    let closed = gate.lock();
    let late = end.submit(&[1]);
    std::thread::scope(|scope| {
        scope.spawn(|| end.send(&[2]).expect("a reply"));
        // The late frame is due while the second one keeps the thread that brings it.
        std::thread::sleep(40 * MS);
        drop(closed);
    });
    late.sync().expect("a reply");
    // On a machine that is busy the late frame may be due before the other one is sent.
    assert_eq!(recorder.bytes().len(), 2);
    drop((end, gate));
    assert_gone(&recorder.0);
}

#[test]
fn threads_that_send_at_the_same_time_lose_no_frame_and_keep_their_order() {
    for rate in [Rate::Unlimited, Rate::Bits(10_000_000_000)] {
        let recorder = Recorder::default();
        let end = End::new(Options { rate, ..Options::default() }, &Clock::default(), recorder.clone());
        std::thread::scope(|scope| {
            for thread in 0..4u8 {
                let end = &end;
                scope.spawn(move || {
                    let interface = interface();
                    for number in 0..500u16 {
                        let frame = [&[thread][..], &number.to_le_bytes()].concat();
                        let request = interface.request(&end.handle, TRANSMIT).out(Out::copy(&frame));
                        request.send().expect("a reply");
                    }
                    checked(interface.space());
                });
            }
        });
        let frames = recorder.bytes();
        for thread in 0..4 {
            let numbers = frames.iter().filter(|frame| frame[0] == thread).map(|frame| [frame[1], frame[2]]);
            assert!(numbers.eq((0..500u16).map(u16::to_le_bytes)), "thread {thread}");
        }
        assert_eq!(frames.len(), 2000);
    }
}
