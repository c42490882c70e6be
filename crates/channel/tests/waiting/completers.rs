//! Servers in this process that complete requests when their clients look, and queues of requests that are over.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use genie_io::carrier::Code;
use genie_io::{
    Completer, Completions, Error, Incoming, Interface, Out, RequestId, Server, ServerHandle, Service,
};
use genie_sys::lock::Mutex;

use super::fixture::{ASK, FOR_EVER, Fixture, SERVICES, assert_idle, interface};
use super::rings::{Gives, Middle, Patient, Ring};

/// A task that notes that it was woken.
struct Task(Mutex<bool>);

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        *self.0.lock() = true;
    }
}

#[test]
fn threads_that_wait_for_a_ring_reap_it_for_one_another() {
    let (ring, interface) = (Ring::new(Gives::Nothing), interface());
    let server = ServerHandle::new(ring.clone());
    const CLIENTS: usize = 4;
    const ROUNDS: usize = 300;
    let clients: HashSet<ThreadId> = thread::scope(|scope| {
        let client = || {
            for round in 0..ROUNDS {
                let request = interface.request(&server, ASK).out(Out::copy(b"asked"));
                match round % 3 {
                    0 => drop(request.send().expect("a reply")),
                    1 => drop(request.submit().expect("a request").sync().expect("a reply")),
                    _ => {
                        let pending = request.submit().expect("a request");
                        assert!(pending.wait(FOR_EVER), "nobody reaped");
                        pending.sync().expect("a reply");
                    }
                }
            }
            thread::current().id()
        };
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(client)).collect();
        let (start, mut completed) = (Instant::now(), 0);
        while completed < CLIENTS * ROUNDS {
            assert!(start.elapsed() < FOR_EVER, "{completed} requests have come");
            completed += ring.work();
            thread::yield_now();
        }
        clients.into_iter().map(|client| client.join().expect("no panic")).collect()
    });
    assert!(ring.reapers().is_subset(&clients), "the clients reaped, and nobody else");
    assert_idle(&interface);
}

#[test]
fn a_ring_is_reaped_by_whatever_looks_for_replies() {
    let (ring, interface) = (Ring::new(Gives::Nothing), interface());
    let server = ServerHandle::new(ring.clone());
    let submit = || interface.request(&server, ASK).out(Out::copy(b"asked")).submit().expect("a request");
    let (looked_at, polled, flushed) = (submit(), submit(), submit());
    assert!(!looked_at.is_replied() && !looked_at.wait(Duration::from_millis(1)));
    assert!(!interface.flush(&server, Duration::from_millis(1)), "they are outstanding");
    ring.work();
    assert!(looked_at.is_replied(), "a look reaps");
    drop((looked_at, polled, flushed));

    let polled = submit();
    let task = Arc::new(Task(Mutex::new(false)));
    let waker = Waker::from(Arc::clone(&task));
    assert!(polled.poll(&mut Context::from_waker(&waker)).is_pending());
    ring.work();
    assert_eq!(interface.collect(), 1, "a loop reaps");
    assert!(*task.0.lock(), "the task was woken");
    polled.sync().expect("a reply");

    let flushed = submit();
    ring.work();
    assert!(interface.flush(&server, FOR_EVER), "a flush reaps");
    flushed.sync().expect("a reply");

    let late =
        interface.request(&server, ASK).timeout(Duration::from_millis(5)).send().expect_err("no reply");
    assert!(matches!(late.error, Error::TimedOut { .. }), "{late}");
    let aborted = submit().abort().expect_err("no reply");
    assert_eq!(aborted.error, Error::Aborted);
    assert_idle(&interface);
}

/// A ring that has another thread look as soon as it has completed something, and something to complete by then.
struct LooksAgain(Ring, Interface, AtomicBool);

impl Server for LooksAgain {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn services(&self) -> &[Service] {
        self.0.services()
    }

    fn request(&self, request: Incoming) {
        self.0.request(request);
    }

    fn abort(&self, request: RequestId) {
        self.0.abort(request);
    }

    fn completer(&self) -> Option<&dyn Completer> {
        Some(self)
    }
}

impl Completer for LooksAgain {
    fn collect(&self) -> usize {
        let count = self.0.collect();
        if count > 0 && !self.2.swap(true, Ordering::Relaxed) {
            assert_eq!(self.1.collect(), 0, "this thread is looking already");
            let other = thread::scope(|scope| scope.spawn(|| (self.0.work(), self.1.collect())).join());
            assert_eq!(other.expect("no panic"), (1, 0), "another look is under way");
        }
        count
    }

    fn wait(&self, timeout: Duration) {
        self.0.wait(timeout);
    }
}

/// A loop had been woken by what came while another thread looked, and could not look itself: nobody took it.
#[test]
fn a_look_that_another_one_was_in_the_way_of_is_made_up_for() {
    let (ring, interface) = (Ring::new(Gives::Nothing), interface());
    let looks_again = LooksAgain(ring.clone(), interface.clone(), AtomicBool::new(false));
    let server = ServerHandle::new(looks_again);
    let submit = || interface.request(&server, ASK).submit().expect("a request");
    let first = submit();
    ring.work();
    let second = submit();
    assert_eq!(interface.collect(), 2, "the look that was under way is followed by one more");
    first.sync().expect("a reply");
    second.sync().expect("a reply");
    assert_idle(&interface);
}

/// A thread that waited when the server panicked over its completer did not look any more, and slept as long as it might.
#[test]
fn a_thread_goes_on_looking_when_the_server_panics_over_its_completer() {
    let (ring, interface) = (Ring::new(Gives::PanicForCompleter), interface());
    let server = ServerHandle::new(ring.clone());
    let pending = interface.request(&server, ASK).submit().expect("a request");
    ring.work();
    assert!(pending.wait(FOR_EVER), "nobody reaped");
    pending.sync().expect("a reply");
}

#[test]
fn a_queue_gives_back_the_requests_that_are_over_and_no_others() {
    let (fixture, keeper, running) = Fixture::with_keeper();
    let interface = interface();
    let here = ServerHandle::new(keeper.clone());
    for server in [here, fixture.connect(&interface, "keeper")] {
        let completions = Completions::default();
        for number in 0..5 {
            let pending =
                interface.request(&server, ASK).out(Out::copy(b"asked")).submit().expect("a request");
            keeper.wait_for(number + 1);
            completions.add(pending, number);
        }
        assert!(!completions.wait(&server, Duration::from_millis(1)) && completions.next().is_none());
        let mut kept = keeper.take(5);
        for number in [3, 1] {
            kept.remove(number).reply(Ok(()));
            assert!(completions.wait(&server, FOR_EVER), "request {number} is over");
            let (pending, found) = completions.next().expect("a request that is over");
            assert!(pending.is_replied() && found == number, "{found}, not {number}");
            pending.sync().expect("a reply");
        }
        let removed = completions.remove(|number| *number == 0);
        assert_eq!(removed.len(), 1);
        kept.remove(0).reply(Ok(()));
        assert!(removed[0].0.wait(FOR_EVER), "its reply comes all the same");
        assert!(!completions.has_next(), "a request that was removed is not in the queue");
        drop(kept);
        let mut left = vec![];
        while left.len() < 2 {
            assert!(completions.wait(&server, FOR_EVER));
            while let Some((pending, number)) = completions.next() {
                assert_eq!(pending.sync().expect_err("dropped").error, Error::Dropped);
                left.push(number);
            }
        }
        assert!(!completions.wait(&server, Duration::MAX), "nothing is pending, so that it does not wait");
        assert_eq!(left, [2, 4]);
        assert!(completions.is_empty());
        drop(removed);
        assert!(interface.flush(&server, FOR_EVER));
    }
    drop(running);
    assert_idle(&interface);
}

/// A server that keeps its requests, and whose completer counts wrongly; it may have the interface of its clients look, too.
#[derive(Default)]
struct Boaster(Mutex<Vec<Incoming>>, Option<Interface>);

impl Server for Boaster {
    fn name(&self) -> &str {
        "boaster"
    }

    fn services(&self) -> &[Service] {
        &SERVICES
    }

    fn request(&self, request: Incoming) {
        self.0.lock().push(request);
    }

    fn abort(&self, _request: RequestId) {}

    fn completer(&self) -> Option<&dyn Completer> {
        Some(self)
    }
}

impl Completer for Boaster {
    fn collect(&self) -> usize {
        self.1.as_ref().map_or(usize::MAX, |interface| interface.collect() + 1)
    }

    fn wait(&self, _timeout: Duration) {}
}

/// The queue had the request only after its wait had ended for want of time.
#[test]
fn a_queue_for_which_a_completer_waits_has_each_request_at_once() {
    let (fixture, keeper, _running) = Fixture::with_keeper();
    let (inner, interface) = (interface(), interface());
    let server = ServerHandle::new(Patient(Middle::new(fixture.connect(&inner, "keeper"), inner)));
    let start = Instant::now();
    for _ in 0..3 {
        thread::scope(|scope| {
            scope.spawn(|| {
                let request = keeper.take(1).remove(0);
                // Meanwhile the client begins to wait.
                thread::sleep(Duration::from_millis(5));
                request.reply(Ok(()));
            });
            interface.request(&server, ASK).send().expect("a reply");
        });
    }
    assert!(start.elapsed() < FOR_EVER, "it waited for a time that no wait takes");
    assert_idle(&interface);
}

/// One of them took the last request, and the others slept for ever.
#[test]
fn threads_that_wait_for_one_queue_end_when_it_is_empty() {
    let (fixture, keeper, _running) = Fixture::with_keeper();
    let interface = interface();
    let here = ServerHandle::new(keeper.clone());
    for server in [here, fixture.connect(&interface, "keeper")] {
        for is_removed in [false, true] {
            let completions = Completions::default();
            completions.add(interface.request(&server, ASK).submit().expect("a request"), ());
            thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| {
                        while completions.wait(&server, Duration::MAX) {
                            completions.next().into_iter().for_each(|(pending, ())| drop(pending.sync()));
                        }
                    });
                }
                thread::sleep(Duration::from_millis(10));
                let kept = keeper.take(1);
                if is_removed {
                    assert_eq!(completions.remove(|()| true).len(), 1);
                }
                drop(kept);
            });
            assert!(completions.is_empty());
        }
    }
    assert_idle(&interface);
}

/// The sum of what two servers said that they had completed overflowed, which is a panic in debug builds.
#[test]
fn a_wrong_count_of_completed_requests_panics_nobody() {
    let interface = interface();
    let boasters = [Boaster::default(), Boaster::default()].map(ServerHandle::new);
    let pending =
        boasters.each_ref().map(|server| interface.request(server, ASK).submit().expect("a request"));
    assert!(interface.collect() > 1);
    drop(pending);
}

#[test]
fn a_server_that_looks_while_it_is_asked_to_look_looks_once() {
    let interface = interface();
    let server = ServerHandle::new(Boaster(Mutex::default(), Some(interface.clone())));
    let pending = interface.request(&server, ASK).submit().expect("a request");
    assert_eq!(interface.collect(), 1);
    drop(pending);
}

/// A server that has another thread collect while one does; how often it has been asked to.
#[derive(Clone, Default)]
struct Crowded(Arc<(Mutex<Option<Code>>, Mutex<usize>)>);

impl Server for Crowded {
    fn name(&self) -> &str {
        "crowded"
    }

    fn services(&self) -> &[Service] {
        &SERVICES
    }

    fn request(&self, _request: Incoming) {}

    fn abort(&self, _request: RequestId) {}

    fn completer(&self) -> Option<&dyn Completer> {
        Some(self)
    }
}

impl Completer for Crowded {
    fn collect(&self) -> usize {
        let times = {
            let mut times = self.0.1.lock();
            *times += 1;
            *times
        };
        let code = self.0.0.lock().clone().expect("it is set before");
        let others = || if times < 4 { code.collect_if_free() } else { code.collect() };
        if times < 9 {
            assert_eq!(thread::scope(|scope| scope.spawn(others).join()).expect("no panic"), 0);
        }
        1
    }

    fn wait(&self, _timeout: Duration) {}
}

/// Each of several busy threads had the one that collected do so once more, so that this one did nothing else.
#[test]
fn threads_that_come_back_do_not_have_another_one_collect_for_them() {
    let crowded = Crowded::default();
    let code = Code::new(crowded.clone());
    *crowded.0.0.lock() = Some(code.clone());
    assert_eq!((code.collect_if_free(), *crowded.0.1.lock()), (1, 1));
    assert_eq!((code.collect(), *crowded.0.1.lock()), (1, 2));
    assert_eq!((code.collect_if_free(), *crowded.0.1.lock()), (1, 3));
    // Those that don't come back do: from the fourth time to the ninth, when nobody comes any more.
    assert_eq!((code.collect_if_free(), *crowded.0.1.lock()), (6, 9));
    *crowded.0.0.lock() = None;
}
