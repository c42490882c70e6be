//! What flows promise, over cards and over rings whose other side is the test.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use genie_conformance::bytes::pattern;
use genie_net::streaming::{End, Error, How, Statistics, Streaming, Style, Tray, WhenFull};
use genie_net::wire::{Clock, Options, Station};
use genie_net::{Frame, Wire};
use genie_sys::Errno;
use genie_sys::lock::Mutex;

use super::child::{ExitOutcome, fork_child};
use super::fakes::Fake;
use super::{STYLES, card_elsewhere, end, how, started, streaming, until};

const LONG: Option<Duration> = Some(Duration::from_secs(20));

fn fake(name: &str, room: usize) -> (Fake, End) {
    let fake = Fake::new(room);
    (fake.clone(), End::new(name, fake).expect("descriptors"))
}

#[test]
fn each_style_brings_all_packets_in_order_from_card_to_card_with_its_number_of_copies() {
    for (style, copies) in STYLES.into_iter().zip(1..) {
        // Threads that never spin sleep between packets that come apart.
        for (spin, interval) in [(0, 200), (20, 0)] {
            let streaming = Streaming::new(Duration::from_micros(spin)).expect("descriptors");
            let ((from, source), (to, sink)) = (end("from"), end("to"));
            let flow = started(&streaming, &from, &to, how(style, WhenFull::Hold));
            sink.expect(1000).expect("a device");
            source.generate(4072, 1000, Duration::from_micros(interval)).expect("a device");
            until("all have come", || sink.report().expect("a device").tally.missing == 0);
            let tally = sink.report().expect("a device").tally;
            let bad = (tally.duplicated, tally.reordered, tally.truncated, tally.damaged);
            assert_eq!((tally.arrived, bad, tally.latencies.len()), (1000, (0, 0, 0, 0), 1000));
            flow.stop().expect("it flows");
            let Statistics { packets, bytes, copied, dropped, .. } = flow.statistics();
            assert_eq!((packets, bytes, copied, dropped), (1000, 4_072_000, copies * 4_072_000, 0));
        }
    }
}

#[test]
fn flows_both_ways_between_two_cards_disturb_each_other_in_nothing() {
    for style in STYLES {
        let streaming = streaming();
        let ((one, first), (other, second)) = (end("one"), end("other"));
        let how = how(style, WhenFull::Hold);
        let _flows = [started(&streaming, &one, &other, how), started(&streaming, &other, &one, how)];
        for control in [&first, &second] {
            control.expect(1000).expect("a device");
        }
        for control in [&first, &second] {
            control.generate(500, 1000, Duration::from_micros(20)).expect("a device");
        }
        for control in [&first, &second] {
            until("all have come", || control.report().expect("a device").tally.missing == 0);
            assert_eq!(control.report().expect("a device").tally.reordered, 0);
        }
    }
}

/// Once a thread that had flows both ways between two ends woke itself whenever it went to sleep.
#[test]
fn threads_sleep_while_nothing_comes_and_wake_for_the_next_packet() {
    for style in STYLES {
        let ((one, first), (other, second)) = (fake("one", 10), fake("other", 10));
        let (streaming, how) = (streaming(), how(style, WhenFull::Hold));
        let flows = [started(&streaming, &first, &second, how), started(&streaming, &second, &first, how)];
        let looks = || [&one, &other].map(|fake| fake.peek(|state| state.looks));
        for count in 1..4 {
            until("they sleep", || {
                let before = looks();
                std::thread::sleep(Duration::from_millis(2));
                before == looks()
            });
            one.bring([vec![1]]);
            other.bring([vec![2]]);
            until("the next ones come", || flows.iter().all(|flow| flow.statistics().packets == count));
        }
    }
}

#[test]
fn a_synchronous_flow_puts_packets_from_where_the_source_has_them() {
    for style in STYLES {
        let ((source, from), (sink, to)) = (fake("from", 0), fake("to", 1000));
        let flow = started(&streaming(), &from, &to, how(style, WhenFull::Hold));
        source.bring((0..100).map(|number| pattern(number, 700)));
        until("all are put", || flow.statistics().packets == 100);
        let shown = source.change(|state| std::mem::take(&mut state.shown));
        let put = sink.change(|state| std::mem::take(&mut state.put));
        let places: Vec<_> = put.iter().map(|(_, place)| *place).collect();
        assert_eq!(places == shown, style == Style::Synchronous, "{style:?}");
        assert!(put.into_iter().map(|(bytes, _)| bytes).eq((0..100).map(|number| pattern(number, 700))));
    }
}

#[test]
fn a_flow_that_holds_loses_nothing_and_takes_nothing_that_it_has_no_room_for() {
    for style in STYLES {
        let ((source, from), (sink, to)) = (fake("from", 0), fake("to", 10));
        let how = How { queue: 8, ..how(style, WhenFull::Hold) };
        let flow = started(&streaming(), &from, &to, how);
        source.bring((0..100u8).map(|number| vec![number; 10]));
        let queued = if style == Style::Asynchronous { 8 } else { 0 };
        until("it is full", || source.change(|state| state.coming.len()) == 90 - queued);
        until("it is held", || flow.statistics().held > 0);
        assert_eq!(source.change(|state| state.coming.len()), 90 - queued);
        for room in (20..=100).step_by(10) {
            sink.change(|state| state.room = 10);
            until("room is used", || sink.change(|state| state.put.len()) == room);
        }
        let put = sink.change(|state| std::mem::take(&mut state.put));
        assert!(put.into_iter().map(|(bytes, _)| bytes[0]).eq(0..100));
        until("it is counted", || flow.statistics().packets == 100);
        assert_eq!(flow.statistics().dropped, 0);
    }
}

#[test]
fn a_flow_that_drops_counts_each_packet_once() {
    for style in STYLES {
        let ((source, from), (sink, to)) = (fake("from", 0), fake("to", 10));
        let how = How { queue: 8, ..how(style, WhenFull::Drop) };
        let flow = streaming().connect(&from, &to, how, None).expect("a flow");
        source.bring((0..100u8).map(|number| vec![number; 10]));
        flow.start().expect("it is new");
        until("all were taken", || source.change(|state| state.coming.is_empty()));
        let left = || flow.statistics().packets + flow.statistics().dropped;
        until("they are counted", || left() >= if style == Style::Asynchronous { 92 } else { 100 });
        sink.change(|state| state.room = 100);
        until("the queue is sent", || left() == 100);
        assert_eq!(flow.statistics().packets, sink.change(|state| state.put.len()) as u64);
        assert!(style == Style::Asynchronous || flow.statistics().dropped == 90);
    }
}

/// A low flow that floods: a high one waits for one quantum of it at most, and neither waits for ever.
#[test]
fn a_flow_waits_for_one_quantum_at_most_of_a_flow_of_lower_priority() {
    const QUANTUM: usize = 8;
    for style in STYLES {
        let ((flood, low_from), (rare, high_from), (sink, to)) =
            (fake("low", 0), fake("high", 0), fake("to", usize::MAX));
        // How many packets of the low flow were put since a high one could be taken, and the most that there were.
        let (waits, worst) = (Arc::new(AtomicUsize::new(usize::MAX)), Arc::new(AtomicUsize::new(0)));
        let (wait, most, high, mut count) = (Arc::clone(&waits), Arc::clone(&worst), rare.clone(), 0);
        sink.change(|state| {
            state.sees = Some(Box::new(move |packet| {
                let waited = wait.load(Ordering::Relaxed);
                if packet[0] == 1 {
                    most.fetch_max(waited, Ordering::Relaxed);
                    wait.store(usize::MAX, Ordering::Relaxed);
                    return;
                }
                if waited < usize::MAX {
                    wait.store(waited + 1, Ordering::Relaxed);
                }
                count += 1;
                // In the midst of a quantum, now here, now there.
                if count % 37 == 0 && waited == usize::MAX {
                    wait.store(0, Ordering::Relaxed);
                    high.bring([vec![1; 10]]);
                }
            }));
        });
        let streaming = streaming();
        let flow = |from, priority| {
            let how = How { priority, quantum: QUANTUM, queue: QUANTUM, ..how(style, WhenFull::Hold) };
            streaming.connect(from, &to, how, None).expect("a flow")
        };
        let (low, high) = (flow(&low_from, 1), flow(&high_from, 2));
        flood.bring((0..10_000).map(|_| vec![0; 10]));
        high.start().and_then(|()| low.start()).expect("they are new");
        until("the flood is over", || low.statistics().packets == 10_000);
        assert!(high.statistics().packets > 100, "{:?}", high.statistics());
        // An asynchronous packet waits for the reaper's quantum, and then for the scheduler's.
        if style == Style::Synchronous {
            assert!(worst.load(Ordering::Relaxed) <= QUANTUM, "it waited for {worst:?} packets");
        }
        assert!(low.statistics().turns >= 10_000 / QUANTUM as u64);
    }
}

#[test]
fn flows_of_one_priority_take_turns() {
    const QUANTUM: usize = 5;
    let (sink, to) = fake("to", usize::MAX);
    let (streaming, mut flows) = (streaming(), Vec::new());
    let gate = Arc::new(Mutex::new(()));
    let closed = gate.lock();
    let at_gate = Arc::clone(&gate);
    sink.change(|state| state.sees = Some(Box::new(move |_| drop(at_gate.lock()))));
    for number in 0..3u8 {
        let (source, from) = fake("from", 0);
        source.bring((0..100).map(|_| vec![number]));
        let how = How { quantum: QUANTUM, ..How::default() };
        flows.push(started(&streaming, &from, &to, how));
    }
    // All have something before the first quantum is over.
    drop(closed);
    until("all have come", || flows.iter().all(|flow| flow.statistics().packets == 100));
    let put: Vec<_> = sink.change(|state| state.put.iter().map(|(packet, _)| packet[0]).collect());
    for turns in put.chunks(3 * QUANTUM) {
        for number in 0..3 {
            assert_eq!(turns.iter().filter(|packet| **packet == number).count(), QUANTUM, "{put:?}");
        }
    }
}

#[test]
fn a_tap_sees_each_packet_once_and_its_panic_ends_its_flow_alone() {
    for style in STYLES {
        let streaming = streaming();
        let ((source, from), (sink, to)) = (fake("from", 0), fake("to", 1000));
        let ((other, other_from), (_, other_to)) = (fake("other", 0), fake("its sink", 1000));
        let good = started(&streaming, &other_from, &other_to, how(style, WhenFull::Hold));
        let seen: Arc<Mutex<Vec<u8>>> = Arc::default();
        let sees = Arc::clone(&seen);
        let tap = move |packet: &genie_memory::Data<'_>| {
            let number = packet.to_vec()[0];
            sees.lock().push(number);
            assert!(number != 20, "this is what is tested");
        };
        let how = how(style, WhenFull::Hold);
        let flow = streaming.connect(&from, &to, how, Some(Box::new(tap))).expect("a flow");
        flow.start().expect("it is new");
        source.bring((0..40u8).map(|number| vec![number; 10]));
        let expected = Error::Tap { from: "from".to_owned(), to: "to".to_owned() };
        assert_eq!(flow.wait(LONG), Err(expected));
        assert!(seen.lock().iter().copied().eq(0..=20));
        assert_eq!(sink.change(|state| state.put.len()), 20);
        other.bring([vec![1]]);
        until("the other flow goes on", || good.statistics().packets == 1);
    }
}

/// It ended the thread of all flows.
#[test]
fn a_driver_that_panics_ends_its_flow_alone() {
    for style in STYLES {
        let streaming = streaming();
        let ((source, from), (sink, to)) = (fake("from", 0), fake("to", 1000));
        let ((other, other_from), (_, other_to)) = (fake("other", 0), fake("its sink", 1000));
        sink.change(|state| state.sees = Some(Box::new(|_| panic!("this is what is tested"))));
        let good = started(&streaming, &other_from, &other_to, how(style, WhenFull::Hold));
        let flow = started(&streaming, &from, &to, how(style, WhenFull::Hold));
        source.bring([vec![1]]);
        let expected = Error::Driver { from: "from".to_owned(), to: "to".to_owned() };
        assert_eq!(flow.wait(LONG), Err(expected));
        other.bring([vec![1]]);
        until("the other flow goes on", || good.statistics().packets == 1);
    }
}

/// What was in the queue was lost, and not counted.
#[test]
fn what_came_before_a_source_failed_goes_on_or_is_counted() {
    let streaming = streaming();
    let ((source, from), (sink, to)) = (fake("from", 0), fake("to", 1));
    let flow = started(&streaming, &from, &to, how(Style::Asynchronous, WhenFull::Hold));
    let failed = Err(Error::Source { end: "from".to_owned(), errno: Errno::NODEV });
    source.change(|state| {
        (state.coming, state.fails) = ((0..20).map(|n| vec![n]).collect(), Some(Errno::NODEV))
    });
    until("all is in the queue", || source.peek(|state| state.coming.is_empty()));
    assert_eq!(flow.wait(Some(Duration::from_millis(5))), Ok(false), "the sink has no room");
    sink.change(|state| state.room = 100);
    assert_eq!(flow.wait(LONG), failed);
    assert_eq!((flow.statistics().packets, flow.statistics().dropped), (20, 0));
    assert!(sink.peek(|state| state.put.iter().map(|(packet, _)| packet[0]).eq(0..20)));
    // A flow that ends otherwise sends no more.
    let ((source, from), (sink, to)) = (fake("from", 0), fake("to", 0));
    let tap = |packet: &genie_memory::Data<'_>| assert_ne!(packet.to_vec(), [5], "this is what is tested");
    let how = how(Style::Asynchronous, WhenFull::Hold);
    let flow = streaming.connect(&from, &to, how, Some(Box::new(tap))).expect("a flow");
    flow.start().expect("it is new");
    source.bring((0..20).map(|n| vec![n]));
    until("all is in the queue", || source.peek(|state| state.coming.is_empty()));
    sink.change(|state| state.room = 100);
    flow.wait(LONG).expect_err("its tap has panicked");
    assert_eq!((flow.statistics().packets, flow.statistics().dropped), (5, 15));
}

#[test]
fn a_tap_may_stop_its_flow() {
    let ((source, from), (_sink, to)) = (fake("from", 0), fake("to", 1000));
    let flow: Arc<Mutex<Option<genie_net::streaming::Flow>>> = Arc::default();
    let own = Arc::clone(&flow);
    let tap =
        move |_: &genie_memory::Data<'_>| own.lock().as_ref().expect("a flow").stop().expect("it flows");
    let streaming = streaming();
    let made = streaming.connect(&from, &to, How { quantum: 1, ..How::default() }, Some(Box::new(tap)));
    *flow.lock() = Some(made.expect("a flow"));
    source.bring([vec![1], vec![2]]);
    flow.lock().as_ref().expect("a flow").start().expect("it is new");
    let packets = || flow.lock().as_ref().expect("a flow").statistics().packets;
    until("the first has come", || packets() == 1);
    assert_eq!(source.change(|state| state.coming.len()), 1);
    flow.lock().as_ref().expect("a flow").start().expect("it has stopped");
    until("the second has come", || packets() == 2);
    // The tap has a handle of its own flow.
    let last = flow.lock().take();
    drop(last);
}

#[test]
fn an_end_is_the_source_of_one_flow_and_never_its_own_sink() {
    let ((_, one), (_, other)) = (fake("one", 0), fake("other", 0));
    let streaming = streaming();
    let connect = |from, to| streaming.connect(from, to, How::default(), None);
    let taken = |end: &str| Error::Taken { end: end.to_owned() };
    assert_eq!(connect(&one, &one).map(drop), Err(taken("one")));
    let flow = connect(&one, &other).expect("a flow");
    assert_eq!(connect(&one, &other).map(drop), Err(taken("one")));
    let back = connect(&other, &one).expect("a flow");
    drop(flow);
    connect(&one, &other).map(drop).expect("it is free again");
    drop(back);
}

#[test]
fn a_device_that_is_killed_ends_its_flows_by_its_name() {
    for style in STYLES {
        let (card, mut device) = card_elsewhere();
        let control = card.control();
        let bad = End::new("killed", card).expect("descriptors");
        let ((from, source), (to, sink)) = (end("from"), end("to"));
        let streaming = streaming();
        let how = how(style, WhenFull::Hold);
        let into = started(&streaming, &from, &bad, how);
        let out = started(&streaming, &bad, &to, how);
        sink.expect(u64::from(u16::MAX)).expect("a device");
        control.generate(1000, u64::MAX, Duration::from_micros(10)).expect("a device");
        source.generate(1000, u64::MAX, Duration::from_micros(10)).expect("a device");
        until("it flows", || out.statistics().packets > 50 && into.statistics().packets > 50);
        device.kill().and_then(|()| device.wait()).expect("it is there");
        let name = || "killed".to_owned();
        // Its bell may be gone before its socket is.
        let failed = into.wait(LONG).expect_err("its sink is gone");
        assert!(matches!(&failed, Error::Sink { end, .. } if *end == name()), "{failed}");
        assert_eq!(out.wait(LONG), Err(Error::Source { end: name(), errno: Errno::NODEV }));
        let tally = sink.report().expect("a device").tally;
        assert_eq!((tally.damaged, tally.reordered), (0, 0));
        drop(into);
        let flow = started(&streaming, &from, &to, how);
        until("the others go on", || flow.statistics().packets > 50);
    }
}

#[test]
#[allow(unsafe_code, reason = "forks a child that makes no calls but these")]
fn a_child_made_by_fork_has_errors_and_its_parents_flows_go_on() {
    let (source, from) = fake("from", 0);
    let (_sink, to) = fake("to", 1000);
    let streaming = streaming();
    let flow = started(&streaming, &from, &to, How::default());
    let in_child = || {
        let is_refused = flow.start() == Err(Error::Child)
            && flow.stop() == Err(Error::Child)
            && flow.wait(None) == Err(Error::Child)
            && streaming.connect(&to, &from, How::default(), None).map(drop) == Err(Error::Child);
        u8::from(!is_refused)
    };
    // SAFETY: the child makes calls that load a number, and fail.
    let child = unsafe { fork_child(in_child) };
    assert_eq!(child.expect("a child").wait().expect("it ends"), ExitOutcome::Code(0));
    source.bring([vec![1]]);
    until("the parent's flow goes on", || flow.statistics().packets == 1);
}

#[test]
fn frames_of_a_wire_flow_on_damaged_as_they_are() {
    let (tray, (sink, to)) = (Tray::new(4).expect("descriptors"), fake("to", 1000));
    let from = End::new("wire", tray.clone()).expect("descriptors");
    let flow = streaming().connect(&from, &to, How::default(), None).expect("a flow");
    let (bytes, flips) = (pattern(1, 100), [(7, 0x10)]);
    for _ in 0..6 {
        tray.arrive(&Frame::damaged(genie_memory::Data::from(&bytes[..]), &flips));
    }
    assert_eq!((from.counters().received, from.counters().dropped), (4, 2));
    flow.start().expect("it is new");
    until("they have come", || flow.statistics().packets == 4);
    let mut expected = bytes;
    expected[7] ^= 0x10;
    assert!(sink.change(|state| state.put.iter().all(|(packet, _)| *packet == expected)));
    // It is a wire's station as it is.
    Wire::new(Options::default(), Clock::default(), tray).expect("a wire");
}
