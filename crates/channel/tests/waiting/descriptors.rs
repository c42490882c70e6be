//! Descriptors: clients and servers that wait in event loops of their own.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use genie_channel::{Driven, Layout, ServeOptions};
use genie_io::servers::memory::NULL;
use genie_io::{Error, Interface, Limits, Pending};
use genie_sys::poll::{Poller, readable};

use super::fixture::{
    ASK, Deaf, FOR_EVER, Finally, Fixture, Keeper, Random, Slow, assert_idle, interface, interface_with,
    memory, options, store_and_fetch,
};

/// Waits by descriptor until one of the pending requests is replied to.
#[track_caller]
fn await_one(interface: &Interface, poller: &Poller, pending: &[Pending<'_>]) {
    let start = Instant::now();
    let mut events = Vec::new();
    loop {
        interface.collect();
        // By what the requests themselves know: this must not take replies off the channel.
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        if pending.iter().any(|pending| pending.poll(&mut context).is_ready()) {
            return;
        }
        if interface.arm() {
            poller.wait(Some(FOR_EVER), &mut events).unwrap();
        }
        assert!(start.elapsed() < FOR_EVER, "no reply has come, or the descriptor was not readable then");
    }
}

fn poller_of(interface: &Interface) -> Poller {
    let poller = Poller::new().unwrap();
    poller.add(interface.descriptor().unwrap(), 1).unwrap();
    poller
}

#[test]
fn replies_of_all_servers_make_one_descriptor_readable() {
    let fixture = Fixture::new();
    let no_spinning = ServeOptions { spin: Duration::ZERO, ..options() };
    let bind = |name, seed| fixture.bind(name, Slow::new(seed), no_spinning.clone()).start().unwrap();
    let _running = [bind("one", 1), bind("two", 2)];
    let interface = interface();
    let one = fixture.connect(&interface, "one");
    let poller = poller_of(&interface);
    // This one is connected after the descriptor was made.
    let servers = [one, fixture.connect(&interface, "two")];
    let mut random = Random::new(3);
    let mut pending = Vec::new();
    for number in 0..10_000 {
        random.pause(10);
        pending.push(interface.request(&servers[number % 2], ASK).submit().unwrap());
        if pending.len() == 8 {
            await_one(&interface, &poller, &pending);
            pending.retain(|pending| !pending.is_replied());
        }
    }
    while !pending.is_empty() {
        await_one(&interface, &poller, &pending);
        pending.retain(|pending| !pending.is_replied());
    }
    assert_idle(&interface);
}

#[test]
fn replies_that_another_thread_takes_make_the_descriptor_readable() {
    let fixture = Fixture::new();
    let _running = fixture.bind("slow", Slow::new(5), options()).start().unwrap();
    let interface = interface();
    let server = fixture.connect(&interface, "slow");
    let poller = poller_of(&interface);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                interface.request(&server, ASK).send().unwrap();
            }
        });
        let _over = Finally(|| is_over.store(true, Ordering::Relaxed));
        for _ in 0..3_000 {
            let pending = [interface.request(&server, ASK).submit().unwrap()];
            await_one(&interface, &poller, &pending);
        }
    });
    assert_idle(&interface);
}

#[test]
fn a_request_that_a_silent_server_does_not_let_go_makes_the_descriptor_readable() {
    let fixture = Fixture::new();
    let keeper = Keeper::default();
    let _running = fixture.serve("keeper", Deaf(keeper.clone()));
    let interface = interface_with(Limits { abort_timeout: Duration::from_millis(10), ..Limits::default() });
    let server = fixture.connect(&interface, "keeper");
    let poller = poller_of(&interface);
    let timeout = Duration::from_millis(20);
    let pending = [interface.request(&server, ASK).timeout(timeout).submit().unwrap()];
    await_one(&interface, &poller, &pending);
    let [pending] = pending;
    assert_eq!(pending.sync().unwrap_err().error, Error::TimedOut { timeout });
    drop(keeper.take(1));
    assert!(interface.flush(&server, FOR_EVER));
    assert_idle(&interface);
}

#[test]
fn a_server_that_goes_makes_the_descriptor_readable_once() {
    let (fixture, keeper, gone) = Fixture::with_keeper();
    let _running = fixture.serve("memory", memory());
    let interface = interface();
    let (lost, server) = (fixture.connect(&interface, "keeper"), fixture.connect(&interface, "memory"));
    let poller = poller_of(&interface);
    let pending = [interface.request(&lost, ASK).submit().unwrap()];
    let kept = keeper.take(1);
    drop((gone, kept));
    await_one(&interface, &poller, &pending);
    let [pending] = pending;
    pending.sync().unwrap_err();
    let start = Instant::now();
    // What is left of the dead server's channel is soon no reason to look any more.
    while {
        interface.collect();
        !interface.arm() || readable(interface.descriptor().unwrap(), Some(Duration::ZERO)).unwrap()
    } {
        assert!(start.elapsed() < FOR_EVER, "the descriptor stays readable");
    }
    let pending = [interface.request(&server, NULL).submit().unwrap()];
    await_one(&interface, &poller, &pending);
    assert!(matches!(interface.request(&lost, ASK).send().unwrap_err().error, Error::Gone { .. }));
}

/// Serves in this thread until `is_over`.
fn drive(driven: &mut Driven, is_over: impl Fn() -> bool) -> u32 {
    let poller = Poller::new().unwrap();
    poller.add(driven.descriptor(), 1).unwrap();
    let (mut events, mut sleeps) = (Vec::new(), 0);
    while !is_over() {
        if !driven.attend(Duration::ZERO).expect("a server") && driven.arm() {
            // The end comes without a word, so that sleeps are short; but no client may depend on that.
            poller.wait(Some(Duration::from_millis(500)), &mut events).unwrap();
            sleeps += u32::from(!events.is_empty());
        }
    }
    sleeps
}

#[test]
fn an_event_loop_serves_clients_that_come_and_go() {
    let fixture = Fixture::new();
    let mut driven = fixture.bind("memory", memory(), options()).drive().unwrap();
    let finished = AtomicU32::new(0);
    let sleeps = std::thread::scope(|scope| {
        for number in 0..4 {
            let (fixture, finished) = (&fixture, &finished);
            scope.spawn(move || {
                let _finished = Finally(|| {
                    finished.fetch_add(1, Ordering::Release);
                });
                for round in 0..5 {
                    let interface = interface();
                    let server = fixture.connect(&interface, "memory");
                    (0..30)
                        .for_each(|again| store_and_fetch(&interface, &server, number, round * 30 + again));
                    assert_idle(&interface);
                }
            });
        }
        drive(&mut driven, || finished.load(Ordering::Acquire) == 4)
    });
    assert!(sleeps > 0, "the loop slept and was woken");
    let start = Instant::now();
    while driven.attend(Duration::ZERO).expect("a server")
        || !driven.arm()
        || readable(driven.descriptor().as_fd(), Some(Duration::ZERO)).unwrap()
    {
        assert!(start.elapsed() < FOR_EVER, "the descriptor stays readable when all clients have gone");
    }
}

#[test]
fn an_event_loop_is_woken_to_send_replies_that_found_no_room() {
    let fixture = Fixture::new();
    let keeper = Keeper::default();
    let rings = Layout { lines: 2, area: 128 };
    let mut driven =
        fixture.bind("keeper", keeper.clone(), ServeOptions { rings, ..options() }).drive().unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _over = Finally(|| is_over.store(true, Ordering::Release));
            let interface = interface();
            let server = fixture.connect(&interface, "keeper");
            for _ in 0..200 {
                let mut pending = Vec::new();
                while pending.len() < 10 {
                    pending.extend(interface.request(&server, ASK).submit());
                }
                keeper.take(10).into_iter().for_each(|request| request.reply(Ok(())));
                for request in pending {
                    assert!(request.wait(FOR_EVER), "a reply is missing");
                    request.sync().unwrap();
                }
            }
        });
        drive(&mut driven, || is_over.load(Ordering::Acquire));
    });
}
