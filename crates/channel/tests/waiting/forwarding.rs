//! Servers in this process whose replies come from other threads than the one that looks for them: from continuations, say.
//!
//! How: a thread that waits at one of these completers waits until it is woken, and fails its test if it is not.

use std::os::fd::{AsFd, BorrowedFd};
use std::thread;
use std::time::{Duration, Instant};

use genie_io::{
    Completer, Error, HIJACK_LIMIT, Incoming, Interface, Out, RequestId, Server, ServerHandle, Service,
};
use genie_sys::event::Event;
use genie_sys::lock::Mutex;

use super::fixture::{ASK, FOR_EVER, Fixture, Keeper, SERVICES, assert_idle, interface};
use super::rings::{Patient, submit};

/// What a continuation says that gets a thread of its own.
const LONG: Duration = Duration::from_secs(1);

/// A server that has another one do its work, and a continuation reply.
struct Forwards {
    behind: ServerHandle,
    inner: Interface,
    cost: Duration,
    /// What is done when a thread first arms this, as it does before it waits.
    when_armed: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Server for Forwards {
    fn name(&self) -> &str {
        "forwards"
    }

    fn services(&self) -> &[Service] {
        &SERVICES
    }

    fn request(&self, request: Incoming) {
        let cost = self.cost;
        submit(&self.inner, &self.behind).then(cost, move |came| {
            if cost > HIJACK_LIMIT {
                // Meanwhile the client begins to wait.
                thread::sleep(Duration::from_millis(5));
            }
            request.reply(came.map(drop).map_err(|failed| failed.error.into()));
        });
    }

    fn abort(&self, _request: RequestId) {}

    fn completer(&self) -> Option<&dyn Completer> {
        Some(self)
    }
}

impl Completer for Forwards {
    fn collect(&self) -> usize {
        self.inner.collect_from(&self.behind)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.inner.descriptor().ok()
    }

    fn arm(&self) -> bool {
        let when_armed = self.when_armed.lock().take();
        when_armed.into_iter().for_each(|act| act());
        self.inner.collect();
        self.inner.arm()
    }
}

/// The thread slept while the continuation that replies waited for this thread.
#[test]
fn a_thread_does_not_sleep_on_a_continuation_that_it_has_put_off() {
    let (fixture, keeper, _running) = Fixture::with_keeper();
    for cost in [HIJACK_LIMIT, LONG] {
        let (inner, interface) = (interface(), interface());
        let keeper = keeper.clone();
        let replies: Box<dyn FnOnce() + Send> = Box::new(move || keeper.take(1).remove(0).reply(Ok(())));
        let behind = fixture.connect(&inner, "keeper");
        let server = Forwards { behind, inner, cost, when_armed: Mutex::new(Some(replies)) };
        let server = ServerHandle::new(Patient(server));
        let start = Instant::now();
        interface.request(&server, ASK).send().expect("a reply");
        assert!(start.elapsed() < FOR_EVER, "it waited for a time that no wait takes");
        assert_idle(&interface);
    }
}

/// The clients slept on, since their replies made nothing readable.
#[test]
fn clients_have_replies_that_continuations_give_in_other_threads_at_once() {
    let (fixture, keeper, _running) = Fixture::with_keeper();
    for cost in [Duration::from_micros(20), LONG] {
        let (inner, interface) = (interface(), interface());
        let behind = fixture.connect(&inner, "keeper");
        let server = Forwards { behind, inner, cost, when_armed: Mutex::default() };
        let server = ServerHandle::new(Patient(server));
        let start = Instant::now();
        for _ in 0..3 {
            thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| interface.request(&server, ASK).send().expect("a reply"));
                }
                let kept = keeper.take(3);
                // Meanwhile the clients begin to wait. One look takes all three replies.
                thread::sleep(Duration::from_millis(5));
                kept.into_iter().for_each(|request| request.reply(Ok(())));
            });
        }
        assert!(start.elapsed() < FOR_EVER, "one waited for a time that no wait takes");
        assert_idle(&interface);
    }
}

/// A keeper whose completer never has anything, and has a descriptor that is never readable.
struct LookedAt(Keeper, Event);

impl Server for LookedAt {
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

impl Completer for LookedAt {
    fn collect(&self) -> usize {
        0
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.1.as_fd())
    }
}

/// They waited for up to 100 ms.
#[test]
fn a_thread_that_waits_at_a_completer_hears_of_whatever_other_threads_do_with_its_request() {
    let (interface, keeper) = (interface(), Keeper::default());
    let looked_at = LookedAt(keeper.clone(), Event::new().expect("an eventfd"));
    let server = ServerHandle::new(Patient(looked_at));
    let request = || {
        let request = interface.request(&server, ASK).out(Out::copy(&[0; 100]));
        request.submit().expect("a request")
    };
    let (start, anticipated) = (Instant::now(), Mutex::new(Vec::new()));
    // Does this to the request while `wait` waits.
    let meanwhile = |act: &(dyn Fn(Incoming) + Sync), wait: &dyn Fn()| {
        thread::scope(|scope| {
            scope.spawn(|| {
                let request = keeper.take(1).remove(0);
                thread::sleep(Duration::from_millis(5));
                act(request);
            });
            wait();
        });
        keeper.kept().clear();
        anticipated.lock().clear();
        assert!(start.elapsed() < FOR_EVER, "it waited for a time that no wait takes");
    };
    meanwhile(&|taken| taken.reply(Ok(())), &|| drop(request().sync().expect("a reply")));
    meanwhile(&|taken| drop(taken), &|| {
        assert_eq!(request().sync().expect_err("no reply").error, Error::Dropped);
    });
    meanwhile(
        // The server keeps the outputs until the client has its reply.
        &|taken| anticipated.lock().push(taken.anticipate().expect("there are outputs alone")),
        &|| assert!(request().sync().expect("a reply").anticipated),
    );
    meanwhile(
        &|mut taken| {
            taken.progress(0, 10).expect("progress");
            keeper.kept().push(taken);
        },
        &|| {
            let pending = request();
            assert_eq!(pending.wait_for_progress(0, 0, FOR_EVER), 10);
            drop(pending);
        },
    );
    let pending = request();
    meanwhile(
        &|taken| {
            keeper.kept().push(taken);
            pending.give_up();
        },
        &|| assert!(pending.wait(FOR_EVER)),
    );
    drop(pending);
    assert!(interface.flush(&server, FOR_EVER));
    assert_idle(&interface);
}
