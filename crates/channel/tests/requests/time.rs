//! Timeouts of synchronous and asynchronous requests.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use genie_conformance::Scene;
use genie_io::{
    Error, In, Incoming, Limits, Out, Pending, RequestId, Server, ServerHandle, Service, ServiceId,
};
use genie_sys::lock::Mutex;

use super::{client, finish, submit};
use crate::support::holder::HOLD;

const TIMEOUT: Duration = Duration::from_millis(20);
const GRACE: Duration = Duration::from_millis(50);
/// No wait of these tests takes this long, unless it never ends.
const FOR_EVER: Duration = Duration::from_secs(60);

fn limits() -> Limits {
    Limits { abort_timeout: GRACE, ..Limits::default() }
}

#[test]
fn a_synchronous_request_times_out_and_the_server_is_told() {
    let Some(t) = client("a_synchronous_request_times_out", limits()) else { return };
    t.holder().set_obliging(true);
    let shared = t.interface().allocate(5000).expect("a buffer");
    let request = t.interface().request(t.holder().handle(), HOLD).timeout(TIMEOUT);
    let mut failed = request.out(Out::emulated_share(shared)).send().expect_err("no reply");
    assert_eq!(failed.error, Error::TimedOut { timeout: TIMEOUT });
    assert_eq!(t.holder().aborted().len(), 1, "the server was asked to let go");
    assert!(failed.take_buffer().is_some(), "it let go, so the buffer comes back");
    t.assert_idle();
}

#[test]
fn buffers_that_a_server_keeps_do_not_come_back() {
    let Some(t) = client("buffers_that_a_server_keeps", limits()) else { return };
    let shared = t.interface().allocate(5000).expect("a buffer");
    let request = t.interface().request(t.holder().handle(), HOLD).timeout(TIMEOUT);
    let began = Instant::now();
    let mut failed = request.input(In::emulated_share(shared)).send().expect_err("no reply");
    assert!(began.elapsed() >= TIMEOUT + GRACE, "the server had its time to let go");
    assert!(failed.take_buffer().is_none() && failed.kept, "the server may still write into it");
    assert!(failed.to_string().ends_with("the server still has the buffers that were given by value"));
    let late = t.holder().held()[0];
    t.holder().write(late, 0, &[1; 5000]);
    t.holder().reply(late);
    t.assert_idle();
}

#[test]
fn an_asynchronous_request_times_out_by_itself() {
    let Some(t) = client("an_asynchronous_request_times_out", limits()) else { return };
    t.holder().set_obliging(true);
    let request = t.interface().request(t.holder().handle(), HOLD).timeout(TIMEOUT);
    let pending = request.out(Out::copy(b"late")).submit().expect("a request");
    assert!(pending.wait(FOR_EVER), "nobody asks, and it ends");
    assert_eq!(pending.sync().expect_err("no reply").error, Error::TimedOut { timeout: TIMEOUT });
    t.assert_idle();
}

/// The timer forgot a request for which no thread waited, so a server that keeps requests until it is asked to let go kept
/// that request for ever.
#[test]
fn a_forgotten_request_times_out() {
    let Some(t) = client("a_forgotten_request_times_out", limits()) else { return };
    t.holder().set_obliging(true);
    let request = t.interface().request(t.holder().handle(), HOLD).timeout(TIMEOUT);
    drop(request.out(Out::copy(b"forgotten")).submit().expect("a request"));
    let deadline = Instant::now() + FOR_EVER;
    while t.interface().pending_bytes() > 0 {
        assert!(Instant::now() < deadline, "the server was never asked to let go");
        std::thread::sleep(Duration::from_millis(1));
    }
    t.assert_idle();
}

#[test]
fn timeouts_hold_when_the_interface_has_been_dropped() {
    let Some(t) = client("timeouts_hold_when_the_interface_has_been_dropped", limits()) else { return };
    let interface = t.interface().clone();
    let request = interface.request(t.holder().handle(), HOLD).timeout(TIMEOUT);
    let pending = request.out(Out::copy(b"late")).submit().expect("a request");
    let id = pending.id();
    let (holder, interface_of_t) = t.into_parts();
    drop((interface, interface_of_t));
    assert!(pending.wait(FOR_EVER), "the request has a timeout of {TIMEOUT:?}");
    assert_eq!(pending.sync().expect_err("no reply").error, Error::TimedOut { timeout: TIMEOUT });
    holder.reply(id);
}

#[test]
fn requests_that_time_out_together_do_not_wait_for_one_another() {
    // If one request waited for another request's server to let go, it would wait longer than this test does.
    let limits = Limits { abort_timeout: 2 * FOR_EVER, ..Limits::default() };
    let Some(t) = client("requests_that_time_out_together", limits) else { return };
    let request = || t.interface().request(t.holder().handle(), HOLD).timeout(TIMEOUT);
    let pendings: Vec<_> =
        (0..20).map(|_| request().out(Out::copy(b"late")).submit().expect("a request")).collect();
    let deadline = Instant::now() + FOR_EVER;
    while t.holder().aborted().len() < pendings.len() {
        assert!(Instant::now() < deadline, "{} were to be let go", t.holder().aborted().len());
        std::thread::sleep(Duration::from_millis(1));
    }
    t.holder().held().into_iter().for_each(|late| t.holder().drop_request(late));
    for pending in pendings {
        assert_eq!(pending.sync().expect_err("no reply").error, Error::TimedOut { timeout: TIMEOUT });
    }
    t.assert_idle();
}

#[test]
fn the_interfaces_timeout_holds_for_every_request() {
    let limits = Limits { timeout: Some(TIMEOUT), ..limits() };
    let Some(t) = client("the_interfaces_timeout", limits) else { return };
    t.holder().set_obliging(true);
    for asked in [None, Some(Duration::from_secs(60))] {
        let request = t.interface().request(t.holder().handle(), HOLD);
        let request = asked.into_iter().fold(request, |request, asked| request.timeout(asked));
        let failed = request.out(Out::copy(b"late")).send().expect_err("no reply");
        assert_eq!(failed.error, Error::TimedOut { timeout: TIMEOUT });
    }
    t.assert_idle();
}

#[test]
fn a_reply_in_time_is_a_reply() {
    let Some(t) = client("a_reply_in_time", limits()) else { return };
    // On a busy machine the reply may be late, which says nothing.
    let is_in_time = (0..10).any(|doublings| is_replied_to_in_time(&t, TIMEOUT * (1 << doublings)));
    assert!(is_in_time, "no reply came in time");
    finish(&t, submit(&t, b"and another"));
    t.assert_idle();
}

/// Whether a request was replied to before it timed out; if so, the reply counts, however late the client looks at it.
fn is_replied_to_in_time(t: &Scene, timeout: Duration) -> bool {
    let aborted = t.holder().aborted();
    let began = Instant::now();
    let request = t.interface().request(t.holder().handle(), HOLD).timeout(timeout);
    let pending = request.out(Out::copy(b"in time")).submit().expect("a request");
    t.holder().reply(pending.id());
    if began.elapsed() >= timeout {
        return false;
    }
    std::thread::sleep(timeout * 2);
    pending.sync().expect("the reply that came in time");
    assert_eq!(t.holder().aborted(), aborted);
    true
}

/// A deadline was computed as the time of now plus the timeout, which panicked where the clock cannot count that far:
/// `Duration::MAX` was no timeout for a client that waits as long as it takes.
#[test]
fn a_timeout_that_no_clock_reaches_never_ends() {
    let limits = Limits { pending_requests: 2, abort_timeout: GRACE, ..Limits::default() };
    let Some(t) = client("a_timeout_that_no_clock_reaches", limits) else { return };
    for timeout in [Duration::MAX, Duration::MAX - Duration::from_nanos(1), Duration::from_secs(u64::MAX / 2)]
    {
        let request = || t.interface().request(t.holder().handle(), HOLD).out(Out::copy(b"patient"));
        let first = request().timeout(timeout).submit().expect("a request");
        let second = request().submit().expect("a request");
        std::thread::scope(|threads| {
            // This one waits for room first.
            let third = threads.spawn(|| request().timeout(timeout).send());
            let flush = threads.spawn(|| t.interface().flush(t.holder().server(), timeout));
            for earlier in [&first, &second] {
                t.holder().reply(earlier.id());
                assert!(earlier.wait(timeout), "it has been replied to");
            }
            [first, second].into_iter().for_each(|pending| drop(pending.sync().expect("a reply")));
            t.holder().reply(t.holder().arrival());
            third.join().expect("no panic").expect("a reply");
            assert!(flush.join().expect("no panic"), "all is completed");
        });
    }
    t.assert_idle();
}

/// A limit on time that no clock reaches made every request panic, and as the time for letting a request go it ended the
/// timer's thread: no later request of the interface timed out.
#[test]
fn limits_that_no_clock_reaches_let_requests_time_out() {
    let endless = Limits { timeout: Some(Duration::MAX), abort_timeout: Duration::MAX, ..Limits::default() };
    let Some(t) = client("limits_that_no_clock_reaches", endless) else { return };
    let late = |timeout| {
        let request = t.interface().request(t.holder().handle(), HOLD).timeout(timeout);
        request.out(Out::copy(b"late")).submit().expect("a request")
    };
    let expect_late = |pending: Pending<'_>| {
        let deadline = Instant::now() + FOR_EVER;
        while !t.holder().aborted().iter().any(|aborted| *aborted == pending.id()) {
            assert!(Instant::now() < deadline, "the server was never asked to let go");
            std::thread::sleep(Duration::from_millis(1));
        }
        t.holder().drop_request(pending.id());
        assert_eq!(pending.sync().expect_err("no reply").error, Error::TimedOut { timeout: TIMEOUT });
    };
    // The server does not let the first one go before the second is asked for.
    let (first, second) = (late(TIMEOUT), late(TIMEOUT));
    expect_late(second);
    t.holder().drop_request(first.id());
    assert_eq!(first.sync().expect_err("no reply").error, Error::TimedOut { timeout: TIMEOUT });
    let in_time = late(Duration::MAX);
    finish(&t, in_time);
    t.assert_idle();
}

/// Keeps one request, and is known to be gone when nobody has a handle of it.
struct Mortal {
    kept: Arc<Mutex<Vec<Incoming>>>,
    _life: Arc<()>,
}

static SERVICES: [Service; 1] = [Service::new("keep", false, false)];

impl Server for Mortal {
    fn name(&self) -> &str {
        "mortal"
    }

    fn services(&self) -> &[Service] {
        &SERVICES
    }

    fn request(&self, request: Incoming) {
        self.kept.lock().push(request);
    }

    fn abort(&self, _request: RequestId) {}
}

/// The timer kept a handle of the server, and some memory, until the time allowed was over, however early the reply came: of a
/// million requests with an hour each, for an hour.
#[test]
fn a_request_that_is_over_leaves_the_timer_at_once() {
    let Some(t) = client("a_request_that_is_over_leaves_the_timer", limits()) else { return };
    let (kept, life) = (Arc::default(), Arc::new(()));
    let is_alive: Weak<()> = Arc::downgrade(&life);
    let server = ServerHandle::new(Mortal { kept: Arc::clone(&kept), _life: life });
    let submit = || {
        let request = t.interface().request(&server, ServiceId(0)).timeout(60 * FOR_EVER);
        request.out(Out::copy(b"quick")).submit().expect("a request")
    };
    let reply = || {
        let replied: Vec<Incoming> = std::mem::take(&mut *kept.lock());
        replied.into_iter().for_each(|request| request.reply(Ok(())));
    };
    let awaited = submit();
    reply();
    awaited.sync().expect("a reply");
    let given_up = submit();
    assert_eq!(given_up.abort().expect_err("given up").error, Error::Aborted);
    let anticipated = submit();
    let last = kept.lock().pop().expect("a request");
    let continued = last.anticipate().expect("nothing is awaited");
    assert!(anticipated.sync().expect("a reply").anticipated);
    drop(continued);
    drop(submit());
    // The reply comes when nobody waits for it any more.
    reply();
    drop(server);
    assert!(is_alive.upgrade().is_none(), "somebody has a handle of the server");
    t.assert_idle();
}

/// Takes longer over a request than the tests' timeout, in the thread that calls it.
struct Slow;

impl Server for Slow {
    fn name(&self) -> &str {
        "slow"
    }

    fn services(&self) -> &[Service] {
        &SERVICES
    }

    fn request(&self, request: Incoming) {
        std::thread::sleep(TIMEOUT + TIMEOUT / 10);
        request.reply(Ok(()));
    }

    fn abort(&self, _request: RequestId) {}
}

/// A request with a timeout of 1 ms succeeded after 5 ms.
#[test]
fn a_success_after_the_deadline_is_none() {
    let Some(t) = client("a_success_after_the_deadline", limits()) else { return };
    let slow = ServerHandle::new(Slow);
    let request = || t.interface().request(&slow, ServiceId(0)).timeout(TIMEOUT);
    let late = Error::TimedOut { timeout: TIMEOUT };
    assert_eq!(request().send().expect_err("too late").error, late);
    assert_eq!(request().submit().expect("a request").sync().expect_err("too late").error, late);
    let mut failed =
        request().out(Out::emulated_share(t.interface().allocate(5000).expect("a buffer"))).send();
    let failed = failed.as_mut().expect_err("too late");
    assert!(failed.error == late && !failed.kept && failed.take_buffer().is_some(), "{failed}");
    t.assert_idle();
}

/// After the abort a server replied with a success, and the request with a timeout of 1 ms succeeded after 50 ms.
#[test]
fn a_success_after_the_abort_is_too_late() {
    let Some(t) = client("a_success_after_the_abort", limits()) else { return };
    let shared = t.interface().allocate(5000).expect("a buffer");
    let request = t.interface().request(t.holder().handle(), HOLD).timeout(TIMEOUT);
    let mut failed = std::thread::scope(|threads| {
        let sent = threads.spawn(|| request.out(Out::emulated_share(shared)).send());
        let deadline = Instant::now() + FOR_EVER;
        while t.holder().aborted().is_empty() {
            assert!(Instant::now() < deadline, "the server was never asked to let go");
            std::thread::yield_now();
        }
        t.holder().held().into_iter().for_each(|late| t.holder().reply(late));
        sent.join().expect("no panic").expect_err("too late")
    });
    assert_eq!(failed.error, Error::TimedOut { timeout: TIMEOUT });
    // On a busy machine the reply may come after the time for that.
    assert_ne!(
        failed.take_buffer().is_some(),
        failed.kept,
        "it comes back, or the error says that it does not"
    );
    t.assert_idle();
}

/// The error came when the server had let go of the request, or after another 100 ms, also where no buffer was to come back.
#[test]
fn the_error_comes_at_the_deadline_if_no_buffer_is_to_come_back() {
    let limits = Limits { abort_timeout: 10 * FOR_EVER, ..Limits::default() };
    let Some(t) = client("the_error_comes_at_the_deadline", limits) else { return };
    let (output, mut input) = (t.interface().allocate(5000).expect("a buffer"), [7; 5000]);
    let began = Instant::now();
    let request = || t.interface().request(t.holder().handle(), HOLD).timeout(TIMEOUT);
    let sent = request().out(Out::emulated_copy(&output)).input(In::copy(&mut input)).send();
    let submitted = request().out(Out::emulated_copy(&output)).submit().expect("a request").sync();
    for failed in [sent.expect_err("no reply"), submitted.expect_err("no reply")] {
        assert_eq!((&failed.error, failed.kept), (&Error::TimedOut { timeout: TIMEOUT }, false));
    }
    assert!(began.elapsed() < 5 * FOR_EVER, "the server's time to let go was waited for");
    assert_eq!((t.holder().aborted().len(), input), (2, [7; 5000]));
    t.holder().held().into_iter().for_each(|late| t.holder().drop_request(late));
    drop(output);
    t.assert_idle();
}
