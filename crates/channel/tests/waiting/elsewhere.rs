//! Servers that complete requests when somebody looks, and clients in other processes: threads of Genie's look, and sleep where the
//! completer says.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use genie_channel::{Driven, ServeOptions};
use genie_io::{Completer, Error, Incoming, Pending, RequestId, Server, Service};
use genie_sys::poll::readable;

use super::fixture::{
    ASK, FOR_EVER, Finally, Fixture, SERVICES, assert_idle, await_clients, interface, options,
};
use super::rings::{Gives, Middle, Ring, submit};

/// Longer than threads look before they sleep.
const PAUSE: Duration = Duration::from_millis(3);

/// Completes requests until so many have been.
fn work(ring: &Ring, mut count: usize) {
    let start = Instant::now();
    while count > 0 {
        assert!(start.elapsed() < FOR_EVER, "{count} requests have not come");
        count = count.saturating_sub(ring.work());
        thread::yield_now();
    }
}

fn takes(pending: Pending<'_>) {
    assert!(pending.wait(FOR_EVER), "nobody reaped");
    pending.sync().expect("a reply");
}

/// Attends, and makes sure that something came; returns false when the server was stopped.
fn attend(driven: &mut Driven) -> bool {
    match driven.attend(FOR_EVER) {
        Ok(is_served) => assert!(is_served, "nothing woke it"),
        Err(error) => assert!(matches!(error, Error::Stopped { .. }), "{error}"),
    }
    !matches!(driven.attend(Duration::ZERO), Err(Error::Stopped { .. }))
}

/// Each client got its reply only if a thread of the server's own waited for the ring.
#[test]
fn rings_of_servers_elsewhere_are_reaped_whatever_they_give_to_wait_for() {
    for gives in [
        Gives::Bell,
        Gives::Nothing,
        Gives::File,
        Gives::NoRest,
        Gives::WhenArmed,
        Gives::OneByOne,
        Gives::PanicForDescriptor,
        Gives::PanicForArm,
    ] {
        for spin in [Duration::ZERO, ServeOptions::default().spin] {
            let (fixture, ring, interface) = (Fixture::new(), Ring::new(gives), interface());
            let running = fixture
                .bind("ring", ring.clone(), ServeOptions { spin, ..options() })
                .start()
                .expect("threads");
            let server = fixture.connect(&interface, "ring");
            for round in 0..20 {
                let (first, second) = (submit(&interface, &server), submit(&interface, &server));
                if round % 2 == 0 {
                    thread::sleep(PAUSE);
                }
                work(&ring, 2);
                takes(first);
                takes(second);
            }
            let reapers = ring.reapers();
            assert!(
                !reapers.is_empty() && !reapers.contains(&thread::current().id()),
                "a server's thread reaped"
            );
            let arms = ring.0.arms.load(Ordering::Relaxed);
            match gives {
                Gives::Nothing | Gives::File | Gives::PanicForDescriptor => assert_eq!(arms, 0, "{gives:?}"),
                // The threads that armed it at the same time.
                Gives::PanicForArm => assert!((1..=16).contains(&arms), "{arms} panics"),
                _ => assert!(arms > 0, "{gives:?}: somebody slept"),
            }
            drop((server, running));
            assert_idle(&interface);
        }
    }
}

/// Threads went on looking when nobody had asked for anything.
#[test]
fn a_completer_that_cannot_be_armed_costs_nothing_while_nothing_is_pending() {
    let (fixture, ring, interface) = (Fixture::new(), Ring::new(Gives::NoRest), interface());
    let _running = fixture.serve("ring", ring.clone());
    let server = fixture.connect(&interface, "ring");
    let pending = submit(&interface, &server);
    work(&ring, 1);
    takes(pending);
    let (arms, start) = (|| ring.0.arms.load(Ordering::Relaxed), Instant::now());
    let before = arms();
    thread::sleep(Duration::from_millis(200));
    // A thread that looks every 2 ms arms twice each time; one that sleeps arms a few times a second.
    let most = 40.0 + 20.0 * start.elapsed().as_secs_f64();
    assert!(f64::from(arms() - before) < most, "{} looks", arms() - before);
}

/// The control thread took one and went to sleep: the descriptor stayed readable, and nothing made it so anew.
#[test]
fn what_a_completer_leaves_is_collected_at_once() {
    let (fixture, ring, interface) = (Fixture::new(), Ring::new(Gives::OneByOne), interface());
    let _running = fixture.serve("ring", ring.clone());
    let server = fixture.connect(&interface, "ring");
    let is_control = |name: &String| name == "genie-control";
    let begun = Instant::now();
    while begun.elapsed() < FOR_EVER {
        let outstanding: Vec<_> = (0..10).map(|_| submit(&interface, &server)).collect();
        let start = Instant::now();
        while ring.asked() < outstanding.len() {
            assert!(start.elapsed() < FOR_EVER, "{} requests have come", ring.asked());
            thread::yield_now();
        }
        thread::sleep(PAUSE);
        work(&ring, outstanding.len());
        outstanding.into_iter().for_each(takes);
        if ring.reaped().windows(2).any(|two| two.iter().all(is_control)) {
            return;
        }
    }
    panic!("other threads than the control thread took what was left: {:?}", ring.reaped());
}

/// A ring, and a thread that is in the server's code with the request "long" until the test lets it go.
struct Busy {
    ring: Ring,
    may_return: Arc<AtomicBool>,
}

impl Server for Busy {
    fn name(&self) -> &str {
        "busy"
    }

    fn services(&self) -> &[Service] {
        &SERVICES
    }

    fn request(&self, request: Incoming) {
        if request.argument().is_empty() {
            return self.ring.request(request);
        }
        while !self.may_return.load(Ordering::Acquire) {
            thread::sleep(Duration::from_millis(1));
        }
        request.reply(Ok(()));
    }

    fn abort(&self, request: RequestId) {
        self.ring.abort(request);
    }

    fn completer(&self) -> Option<&dyn Completer> {
        Some(&self.ring)
    }
}

/// Nobody looked while the only thread that had been started was in the server's code.
#[test]
fn a_thread_that_is_in_the_servers_code_for_long_does_not_keep_replies_back() {
    for gives in [Gives::WhenArmed, Gives::Nothing] {
        let (fixture, ring, interface) = (Fixture::new(), Ring::new(gives), interface());
        let may_return = Arc::new(AtomicBool::new(false));
        let server = Busy { ring: ring.clone(), may_return: Arc::clone(&may_return) };
        let _running = fixture.serve("busy", server);
        let _finally = Finally(|| may_return.store(true, Ordering::Release));
        let server = fixture.connect(&interface, "busy");
        let short: Vec<_> = (0..3).map(|_| submit(&interface, &server)).collect();
        let long = interface.request(&server, ASK).argument(b"long").submit().expect("a request");
        for pending in short {
            let start = Instant::now();
            while !ring.work_one() {
                assert!(start.elapsed() < FOR_EVER, "a request has not come");
            }
            takes(pending);
            thread::sleep(PAUSE);
        }
        assert!(!long.is_replied());
        may_return.store(true, Ordering::Release);
        takes(long);
    }
}

/// Requests end one by one while all threads of the server sleep: each end must find the bell armed again.
#[test]
fn a_bell_that_rang_is_armed_again_while_more_is_outstanding() {
    let (fixture, ring, interface) = (Fixture::new(), Ring::new(Gives::Bell), interface());
    let _running = fixture.serve("ring", ring.clone());
    let server = fixture.connect(&interface, "ring");
    for _ in 0..3 {
        let outstanding: Vec<_> = (0..10).map(|_| submit(&interface, &server)).collect();
        thread::sleep(PAUSE);
        for pending in outstanding {
            let start = Instant::now();
            while !ring.work_one() {
                assert!(start.elapsed() < FOR_EVER, "a request has not come");
            }
            takes(pending);
            thread::sleep(PAUSE);
        }
    }
}

/// A completer that left some for the next call had nobody make it, since its descriptor does not tell of them again.
#[test]
fn a_server_that_is_driven_reaps_its_ring_and_is_woken_by_it() {
    for gives in [Gives::Bell, Gives::OneByOne] {
        let (fixture, ring, interface) = (Fixture::new(), Ring::new(gives), interface());
        let mut driven = fixture.bind("ring", ring.clone(), options()).drive().expect("descriptors");
        let server = fixture.connect(&interface, "ring");
        for _ in 0..50 {
            let outstanding = [(); 3].map(|()| submit(&interface, &server));
            while !outstanding.iter().all(Pending::is_replied) {
                driven.attend(Duration::ZERO).expect("a server");
                if !driven.arm() {
                    continue;
                }
                // Nothing can come but what is rung for: the client, its requests, and what has been done.
                ring.work();
                assert!(
                    readable(driven.descriptor(), Some(FOR_EVER)).expect("a descriptor"),
                    "nothing woke it"
                );
            }
            outstanding.into_iter().for_each(takes);
            assert!(ring.reapers().contains(&thread::current().id()), "this thread drives the server");
        }
        assert_idle(&interface);
    }
}

#[test]
fn a_thread_that_attends_reaps_whatever_the_ring_gives_to_wait_for_and_no_other_does() {
    for gives in
        [Gives::Bell, Gives::Nothing, Gives::NoRest, Gives::WhenArmed, Gives::OneByOne, Gives::PanicForArm]
    {
        let (fixture, ring, interface) = (Fixture::new(), Ring::new(gives), interface());
        let serving = fixture.bind("ring", ring.clone(), ServeOptions { spin: Duration::ZERO, ..options() });
        let (stopper, mut driven) = (serving.stopper(), serving.drive().expect("descriptors"));
        let server = fixture.connect(&interface, "ring");
        thread::scope(|scope| {
            let attending = scope.spawn(move || while attend(&mut driven) {});
            let attends = attending.thread().id();
            let finally = Finally(|| stopper.stop());
            for round in 0..20 {
                let (first, second) = (submit(&interface, &server), submit(&interface, &server));
                if round % 2 == 0 {
                    thread::sleep(PAUSE);
                }
                work(&ring, 2);
                takes(first);
                takes(second);
            }
            drop(finally);
            attending.join().expect("something woke it each time");
            assert!(
                ring.reapers().iter().all(|reaper| *reaper == attends),
                "{gives:?}: another thread reaped"
            );
        });
        drop(server);
        assert_idle(&interface);
    }
}

/// A server between, in a process of its own, had to have threads that waited for the server behind.
#[test]
fn a_server_between_needs_no_thread_that_waits_for_the_one_behind() {
    let (fixture, ring) = (Fixture::new(), Ring::new(Gives::Bell));
    let _behind = fixture.serve("behind", ring.clone());
    let inner = interface();
    let middle = Middle::new(fixture.connect(&inner, "behind"), inner.clone());
    let running = fixture.serve("middle", middle);
    let clients: Vec<_> = (0..3).map(|_| interface()).collect();
    thread::scope(|scope| {
        let ask = |number: usize| {
            let (interface, fixture) = (&clients[number], &fixture);
            move || {
                let server = fixture.connect(interface, "middle");
                for round in 0..40 {
                    if round % 10 == number {
                        thread::sleep(PAUSE);
                    }
                    interface.request(&server, ASK).timeout(FOR_EVER).send().expect("a reply");
                }
            }
        };
        let asking: Vec<_> = (0..3).map(|number| scope.spawn(ask(number))).collect();
        ring.work_until(|| asking.iter().all(|asking| asking.is_finished()));
    });
    clients.iter().for_each(|interface| assert_idle(interface));
    drop(running);
    assert_idle(&inner);
}

/// What a client that has left had asked for is collected all the same, and others are served.
#[test]
fn a_client_that_leaves_takes_its_requests_along_and_no_others() {
    let (fixture, ring) = (Fixture::new(), Ring::new(Gives::Bell));
    let running = fixture.serve("ring", ring.clone());
    let (leaving, staying) = (interface(), interface());
    let (left, server) = (fixture.connect(&leaving, "ring"), fixture.connect(&staying, "ring"));
    let lost = submit(&leaving, &left);
    let start = Instant::now();
    while running.status().clients.iter().map(|client| client.pending.pending_requests).sum::<u32>() == 0 {
        assert!(start.elapsed() < FOR_EVER, "the request has not come");
    }
    let kept = submit(&staying, &server);
    drop((lost, left, leaving));
    await_clients(&running, 1);
    ring.work_until(|| kept.is_replied());
    kept.sync().expect("a reply");
}
