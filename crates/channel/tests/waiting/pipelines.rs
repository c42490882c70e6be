//! Pipelines: buffers that take turns, room that is waited for, servers that come late or come again.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant};

use genie_channel::{Connect, ConnectOptions, ServeOptions};
use genie_io::{Error, In, Limits, Out};
use genie_passing::Scheme;
use genie_series::{BufferRing, Reconnecting};

use super::fixture::{
    ASK, FOR_EVER, Fixture, Keeper, assert_idle, interface, interface_with, memory, options,
};

const SOURCE: genie_io::ServiceId = genie_io::servers::memory::SOURCE;
const STORE: genie_io::ServiceId = genie_io::servers::memory::STORE;

#[test]
fn buffers_take_turns_in_requests_in_flight() {
    let fixture = Fixture::new();
    let _running = fixture.serve("memory", memory());
    let interface = interface();
    let server = fixture.connect(&interface, "memory");
    let mut ring = BufferRing::new(&interface, 3, 10_000);
    let (mut turns, mut addresses) = (Vec::new(), HashSet::new());
    for turn in 0..50_u8 {
        let (buffer, reply) = ring.take().expect("a buffer");
        addresses.insert(buffer.addresses().start);
        turns.extend(reply.map(|_| buffer[9_999]));
        let request = interface.request(&server, SOURCE).argument(std::slice::from_ref(&turn));
        ring.push(request.input(In::owned(Scheme::EmulatedCopy, buffer)).submit().expect("a request"));
        assert!(ring.in_flight() <= 3 && ring.awaited().is_some() == (ring.in_flight() == 3));
    }
    while let Some((buffer, _)) = ring.oldest().expect("a reply") {
        turns.push(buffer[0]);
    }
    assert_eq!(turns, (0..50).collect::<Vec<u8>>());
    assert!(addresses.len() <= 3, "{} buffers", addresses.len());
    drop(ring);
    assert_idle(&interface);
}

#[test]
fn a_ring_goes_on_after_a_request_that_failed() {
    let (fixture, keeper, _running) = Fixture::with_keeper();
    let interface = interface();
    let server = fixture.connect(&interface, "keeper");
    let mut ring = BufferRing::new(&interface, 2, 5_000);
    let submit = |ring: &mut BufferRing| {
        let (buffer, _) = ring.take().expect("a buffer");
        let input = In::owned(Scheme::EmulatedShare, buffer);
        ring.push(interface.request(&server, ASK).input(input).submit().expect("a request"));
    };
    submit(&mut ring);
    submit(&mut ring);
    keeper.take(2).into_iter().for_each(|request| request.reply(Err("not now".into())));
    for _ in 0..2 {
        assert!(matches!(ring.take().expect_err("it failed").error, Error::Server(_)));
        submit(&mut ring);
    }
    keeper.take(2).into_iter().for_each(|request| request.reply(Ok(())));
    assert!(ring.oldest().expect("a reply").is_some() && ring.oldest().expect("a reply").is_some());
    assert!(ring.oldest().expect("nothing").is_none());
    let (kept, output) = (interface.allocate(5_000).expect("memory"), Out::copy(b"text"));
    ring.push_with(interface.request(&server, ASK).out(output).submit().expect("a request"), kept);
    keeper.take(1).into_iter().for_each(|request| request.reply(Ok(())));
    assert_eq!(ring.oldest().expect("a reply").expect("a request").0.len(), 5_000);
}

/// Nothing took the reply off its channel, so that such a loop never ended.
#[test]
fn looking_at_a_request_again_and_again_finds_its_reply() {
    let (fixture, keeper) = (Fixture::new(), Keeper::default());
    let running = fixture.serve("keeper", keeper.clone());
    let interface = interface_with(Limits::default());
    let server = fixture.connect(&interface, "keeper");
    let pending = interface.request(&server, ASK).submit().expect("a request");
    assert!(!pending.wait(Duration::ZERO));
    keeper.take(1).remove(0).reply(Ok(()));
    let start = Instant::now();
    while !pending.wait(Duration::ZERO) {
        assert!(start.elapsed() < FOR_EVER, "the reply is never found");
    }
    pending.sync().expect("a reply");
    drop((server, running));
}

/// Where the limits left no room, an asynchronous request could only be tried again.
#[test]
fn an_asynchronous_request_can_wait_for_room() {
    let limited_here = (Limits { pending_requests: 2, ..Limits::default() }, options());
    let limited_there = (Limits::default(), ServeOptions { pending_requests: 2, ..options() });
    for (limits, options) in [limited_here, limited_there] {
        let (fixture, keeper) = (Fixture::new(), Keeper::default());
        let _running = fixture.bind("keeper", keeper.clone(), options).start().expect("threads");
        let interface = interface_with(limits);
        let server = fixture.connect(&interface, "keeper");
        let request = || interface.request(&server, ASK).out(Out::copy(b"text"));
        let [first, second] = [request(), request()].map(|request| request.submit().expect("a request"));
        let refused = request().submit().expect_err("no room").error;
        assert!(refused.is_congestion(), "{refused}");
        let (woken, task) = flag();
        assert!(request().poll_room(&mut Context::from_waker(&task)).is_pending());
        let short = Duration::from_millis(20);
        let late = request().timeout(short).submit_when_room().expect_err("no room").error;
        assert!(late.is_congestion(), "{late}");
        std::thread::scope(|threads| {
            let third = threads.spawn(|| request().submit_when_room());
            keeper.take(1).into_iter().for_each(|request| request.reply(Ok(())));
            first.sync().expect("a reply");
            let third = third.join().expect("no panic").expect("room");
            keeper.take(2).into_iter().for_each(|request| request.reply(Ok(())));
            second.sync().expect("a reply");
            third.sync().expect("a reply");
        });
        assert!(woken.0.load(Ordering::SeqCst), "the task was not woken");
        assert!(request().poll_room(&mut Context::from_waker(&task)).is_ready());
        assert_idle(&interface);
    }
}

/// The client was told that the server had gone, if the thread that waited for the reply had not taken it yet.
#[test]
fn a_reply_that_comes_just_before_its_server_goes_counts() {
    let interface = interface_with(Limits::default());
    for _ in 0..100 {
        let (fixture, keeper, running) = Fixture::with_keeper();
        let server = fixture.connect(&interface, "keeper");
        std::thread::scope(|threads| {
            let sent = threads.spawn(|| interface.request(&server, ASK).send());
            keeper.take(1).remove(0).reply(Ok(()));
            drop(running);
            sent.join().expect("no panic").expect("a reply");
        });
    }
}

/// An event loop that took the replies did not tell those that waited for room.
#[test]
fn a_task_that_waits_for_room_is_woken_where_a_loop_collects() {
    let (fixture, keeper) = (Fixture::new(), Keeper::default());
    let options = ServeOptions { pending_requests: 1, ..options() };
    let _running = fixture.bind("keeper", keeper.clone(), options).start().expect("threads");
    let interface = interface_with(Limits::default());
    let server = fixture.connect(&interface, "keeper");
    let request = || interface.request(&server, ASK);
    let first = request().submit().expect("a request");
    let (woken, task) = flag();
    assert!(request().poll_room(&mut Context::from_waker(&task)).is_pending());
    keeper.take(1).remove(0).reply(Ok(()));
    let begun = Instant::now();
    while interface.collect() == 0 {
        assert!(begun.elapsed() < FOR_EVER, "no reply");
    }
    assert!(woken.0.load(Ordering::SeqCst), "the task was not woken");
    first.sync().expect("a reply");
    assert_idle(&interface);
}

/// They were told that there was no room, which there would never be.
#[test]
fn requests_that_wait_for_room_learn_that_the_server_has_gone() {
    let (fixture, keeper) = (Fixture::new(), Keeper::default());
    let options = ServeOptions { pending_requests: 1, ..options() };
    let running = fixture.bind("keeper", keeper.clone(), options).start().expect("threads");
    let interface = interface_with(Limits::default());
    let server = fixture.connect(&interface, "keeper");
    let request = || interface.request(&server, ASK);
    let first = request().submit().expect("a request");
    let (woken, task) = flag();
    assert!(request().poll_room(&mut Context::from_waker(&task)).is_pending());
    std::thread::scope(|threads| {
        let sent = threads.spawn(|| request().send().expect_err("no room"));
        let submitted = threads.spawn(|| request().submit_when_room().expect_err("no room"));
        std::thread::sleep(Duration::from_millis(20));
        drop((running, keeper.take(1)));
        for refused in [sent, submitted] {
            let error = refused.join().expect("no panic").error;
            assert!(matches!(error, Error::Gone { asked: false, .. }), "{error}");
        }
    });
    drop(first);
    let begun = Instant::now();
    while !woken.0.load(Ordering::SeqCst) {
        assert!(begun.elapsed() < FOR_EVER, "the task was not woken");
    }
}

struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn flag() -> (Arc<Flag>, Waker) {
    let flag = Arc::new(Flag(AtomicBool::new(false)));
    (Arc::clone(&flag), Waker::from(flag))
}

#[test]
fn connecting_can_wait_for_the_server() {
    let fixture = Fixture::new();
    let interface = interface();
    let connect = |wait| {
        let options = ConnectOptions { wait, ..ConnectOptions::default() };
        interface.connect_with(&fixture.directory, "late", &options)
    };
    for wait in [Duration::ZERO, Duration::from_millis(5)] {
        let refused = connect(wait).expect_err("nobody serves");
        assert!(matches!(refused, Error::NoServer { .. }), "{refused}");
    }
    std::thread::scope(|threads| {
        let waiting = threads.spawn(|| connect(FOR_EVER).expect("a server comes"));
        std::thread::sleep(Duration::from_millis(30));
        let _running = fixture.serve("late", memory());
        let server = waiting.join().expect("no panic");
        interface.request(&server, STORE).out(Out::copy(b"text")).send().expect("a reply");
    });
}

/// Requests in flight and requests never sent failed alike, so that no client could send the second again.
#[test]
fn a_server_that_goes_and_comes_again_is_found_again() {
    let (fixture, keeper, running) = Fixture::with_keeper();
    let interface = interface();
    let options = ConnectOptions { wait: FOR_EVER, ..ConnectOptions::default() };
    let keepers = Reconnecting::new_in(&interface, &fixture.directory, "keeper", options);
    let first = keepers.handle().expect("a server");
    let in_flight = interface.request(&first, ASK).submit().expect("a request");
    keeper.wait_for(1);
    drop(running);
    let failed = in_flight.sync().expect_err("it has gone").error;
    assert!(matches!(failed, Error::Gone { asked: true, .. }), "{failed}");
    let never_sent = interface.request(&first, ASK).send().expect_err("it has gone").error;
    assert!(matches!(never_sent, Error::Gone { asked: false, .. }), "{never_sent}");
    assert!(first.is_gone());
    keeper.kept().clear();
    let again = fixture.serve("keeper", keeper.clone());
    let (mut handles, waker) = (
        Vec::new(),
        std::thread::scope(|threads| {
            let asked = threads.spawn(|| keepers.with(|server| interface.request(server, ASK).send()));
            keeper.take(1).into_iter().for_each(|request| request.reply(Ok(())));
            asked.join().expect("no panic")
        }),
    );
    waker.expect("the second server replies");
    // The server goes between the handle and the request.
    let mut again = Some(again);
    let answered = std::thread::scope(|threads| {
        let asked = threads.spawn(|| {
            keepers.with(|server| {
                if let Some(running) = again.take() {
                    drop(running);
                    let begun = Instant::now();
                    while !server.is_gone() {
                        assert!(begun.elapsed() < FOR_EVER, "it does not go");
                        std::thread::yield_now();
                    }
                    handles.push(fixture.serve("keeper", keeper.clone()));
                }
                interface.request(server, ASK).send()
            })
        });
        keeper.take(1).into_iter().for_each(|request| request.reply(Ok(())));
        asked.join().expect("no panic")
    });
    answered.expect("the third server replies");
}
