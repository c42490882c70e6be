//! Continuations: what runs where a reply is taken, for how long, and what becomes of it when there is no reply.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use genie_io::servers::memory::NULL;
use genie_io::{
    Completions, Error, Failed, HIJACK_LIMIT, Incoming, Interface, Limits, Out, Pending, Reply, RequestId,
    Server, ServerHandle, Service,
};
use genie_passing::Scheme;
use genie_sys::lock::Mutex;

use super::fixture::{
    ASK, Deaf, FOR_EVER, Fixture, Keeper, SERVICES, assert_idle, interface, interface_with, memory,
};
use super::rings::submit;

/// What the continuations here say they cost.
const SHORT: Duration = Duration::from_micros(20);
/// What one says that gets a thread of its own.
const LONG: Duration = Duration::from_secs(1);

/// What came of a request, and in which thread that was known.
type Came = (Result<Reply, Failed>, ThreadId);

fn then(pending: Pending<'static>, cost: Duration) -> Receiver<Came> {
    let (sender, receiver) = channel();
    pending.then(cost, move |came| drop(sender.send((came, thread::current().id()))));
    receiver
}

#[track_caller]
fn receive(came: &Receiver<Came>) -> Came {
    came.recv_timeout(FOR_EVER).expect("a continuation runs")
}

/// Runs a test at a server in this process, and at one elsewhere.
fn everywhere(test: impl Fn(&Interface, &ServerHandle, &Keeper)) {
    let (fixture, keeper, _running) = Fixture::with_keeper();
    let interface = interface();
    test(&interface, &ServerHandle::new(keeper.clone()), &keeper);
    test(&interface, &fixture.connect(&interface, "keeper"), &keeper);
    assert_idle(&interface);
}

/// Collects until something is there.
#[track_caller]
fn collect_until(interface: &Interface, is_there: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_there() {
        interface.collect();
        assert!(start.elapsed() < FOR_EVER, "nothing comes");
    }
}

#[test]
fn a_short_continuation_runs_in_the_thread_that_takes_the_reply_and_has_the_buffers() {
    everywhere(|interface, server, keeper| {
        let mut buffer = interface.allocate(5_000).expect("memory");
        buffer.fill(3);
        let request = interface.request(server, ASK).out(Out::owned(Scheme::EmulatedCopy, buffer));
        let came = then(request.submit().expect("a request"), SHORT);
        let taken = keeper.take(1).remove(0);
        assert!(came.try_recv().is_err(), "there is no reply yet");
        taken.reply(Ok(()));
        interface.collect();
        let (came, by) = came.try_recv().expect("it has run");
        let mut reply = came.expect("a reply");
        assert_eq!(by, thread::current().id());
        assert!(reply.take_buffer().expect("its buffer").iter().all(|byte| *byte == 3));
    });
}

#[test]
fn a_continuation_runs_at_once_where_the_reply_is_there() {
    everywhere(|interface, server, keeper| {
        let pending = submit(interface, server);
        keeper.take(1).remove(0).reply(Ok(()));
        assert!(pending.wait(FOR_EVER));
        let (came, by) = then(pending, SHORT).try_recv().expect("it has run");
        came.expect("a reply");
        assert_eq!(by, thread::current().id());
    });
}

#[test]
fn a_continuation_runs_with_the_error_of_a_request_that_fails() {
    everywhere(|interface, server, keeper| {
        let dropped = then(submit(interface, server), SHORT);
        drop(keeper.take(1));
        collect_until(interface, || keeper.count() == 0);
        interface.collect();
        assert_eq!(receive(&dropped).0.expect_err("dropped").error, Error::Dropped);
        let timeout = Duration::from_millis(5);
        let late = interface.request(server, ASK).timeout(timeout).submit().expect("a request");
        let late = then(late, SHORT);
        assert_eq!(receive(&late).0.expect_err("late").error, Error::TimedOut { timeout });
        keeper.kept().clear();
        assert!(interface.flush(server, FOR_EVER));
    });
}

#[test]
fn a_continuation_runs_when_its_server_goes_and_nobody_looks() {
    let (fixture, keeper, running) = Fixture::with_keeper();
    let interface = interface();
    let server = fixture.connect(&interface, "keeper");
    let came = then(submit(&interface, &server), SHORT);
    let kept = keeper.take(1);
    drop((running, kept));
    let error = receive(&came).0.expect_err("its server is gone").error;
    assert!(matches!(error, Error::Gone { .. } | Error::Dropped), "{error}");
}

/// A server that does something once, and replies.
struct Calling(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl Server for Calling {
    fn name(&self) -> &str {
        "calling"
    }

    fn services(&self) -> &[Service] {
        &SERVICES
    }

    fn request(&self, request: Incoming) {
        let act = self.0.lock().take();
        act.into_iter().for_each(|act| act());
        request.reply(Ok(()));
    }

    fn abort(&self, _request: RequestId) {}
}

/// The request ended only with the call of the server's code in which its reply was given: never, where that waited for it.
#[test]
fn a_continuation_that_panics_ends_the_request_that_it_has_in_its_hands() {
    let (interface, keeper, (sender, found)) = (interface(), Keeper::default(), channel());
    let leaf = ServerHandle::new(keeper.clone());
    let original = submit(&interface, &leaf);
    let held = keeper.take(1).remove(0);
    submit(&interface, &leaf).then(SHORT, move |_| {
        let _held = held;
        panic!("a continuation's panic is part of the test");
    });
    let last = keeper.take(1).remove(0);
    let calling = ServerHandle::new(Calling(Mutex::new(Some(Box::new(move || {
        last.reply(Ok(()));
        sender.send(original.is_replied()).expect("a test");
        let error = original.sync().expect_err("nobody has replied").error;
        assert!(matches!(&error, Error::Panicked { message } if message.contains("continuation")), "{error}");
    })))));
    submit(&interface, &calling).sync().expect("a reply");
    assert_eq!(found.try_recv(), Ok(true));
}

/// It would wait for a thread that it keeps from taking replies, or a timer that it keeps from giving up requests.
#[test]
fn a_short_continuation_may_submit_and_may_not_wait() {
    everywhere(|interface, server, keeper| {
        let (sender, found): (Sender<Vec<Error>>, _) = channel();
        let (last, came) = channel();
        let (genie, there) = (interface.clone(), server.clone());
        submit(interface, server).then(SHORT, move |came| {
            came.expect("a reply");
            let sent = genie.request(&there, ASK).send().expect_err("it would wait").error;
            let pending = submit(&genie, &there);
            assert!(!pending.wait(FOR_EVER), "it does not wait");
            let synced = pending.sync().expect_err("it would wait").error;
            let peeked = submit(&genie, &there).peek(&mut []).expect_err("it would wait");
            sender.send(vec![sent, synced, peeked]).expect("a test");
            let flushed = genie.flush(&there, FOR_EVER);
            submit(&genie, &there)
                .then(SHORT, move |came| last.send((flushed, came.is_ok())).expect("a test"));
        });
        keeper.take(1).remove(0).reply(Ok(()));
        interface.collect();
        let errors = found.try_recv().expect("it has run");
        assert_eq!(errors, [Error::MayNotWait, Error::MayNotWait, Error::MayNotWait]);
        // What was refused was not sent.
        keeper.take(3).into_iter().for_each(|request| request.reply(Ok(())));
        assert_eq!(keeper.count(), 0);
        interface.collect();
        assert_eq!(came.recv_timeout(FOR_EVER), Ok((false, true)));
        assert!(interface.flush(server, FOR_EVER));
    });
}

/// As above: each of these waits elsewhere for as long as it may.
#[test]
fn what_waits_elsewhere_ends_at_once_in_a_short_continuation() {
    let (fixture, keeper) = (Fixture::new(), Keeper::default());
    let _running = fixture.serve("deaf", Deaf(keeper.clone()));
    let interface =
        interface_with(Limits { pending_requests: 2, abort_timeout: FOR_EVER, ..Limits::default() });
    for server in [ServerHandle::new(Deaf(keeper.clone())), fixture.connect(&interface, "deaf")] {
        let (sender, found) = channel();
        let (genie, there) = (interface.clone(), server.clone());
        submit(&interface, &server).then(SHORT, move |came| {
            drop(came);
            let (pending, completions) = (submit(&genie, &there), Completions::default());
            let progress = pending.wait_for_progress(0, 0, FOR_EVER);
            completions.add(submit(&genie, &there), ());
            let is_any_over = completions.wait(&there, FOR_EVER);
            let crowded = genie.request(&there, ASK).submit_when_room().expect_err("no room").error;
            let aborted = pending.abort().expect_err("the server does not let it go").error;
            let asked = (genie.preferred(&there, ASK, b"").err(), there.adjust(1, 1).err());
            sender.send((progress, is_any_over, crowded, aborted, asked)).expect("a test");
        });
        let start = Instant::now();
        keeper.take(1).remove(0).reply(Ok(()));
        interface.collect();
        let (progress, is_any_over, crowded, aborted, asked) = found.try_recv().expect("it has run");
        assert!(start.elapsed() < FOR_EVER, "it waited");
        assert_eq!((progress, is_any_over, aborted), (0, false, Error::Aborted));
        assert!(crowded.is_congestion(), "{crowded}");
        let refused = server.is_remote().then_some(Error::MayNotWait);
        assert_eq!(asked, (refused.clone(), refused));
        keeper.take(2).into_iter().for_each(|request| request.reply(Ok(())));
        assert!(interface.flush(&server, FOR_EVER));
    }
}

/// A server that asks another one, and waits for the reply.
struct Waits(Interface, ServerHandle);

impl Server for Waits {
    fn name(&self) -> &str {
        "waits"
    }

    fn services(&self) -> &[Service] {
        &SERVICES
    }

    fn request(&self, request: Incoming) {
        let came = self.0.request(&self.1, ASK).send();
        request.reply(came.map(drop).map_err(|failed| failed.error.into()));
    }

    fn abort(&self, _request: RequestId) {}
}

#[test]
fn a_server_that_waits_in_its_clients_thread_may_not_in_a_short_continuation() {
    everywhere(|interface, server, keeper| {
        let waits = ServerHandle::new(Waits(interface.clone(), server.clone()));
        let (sender, found) = channel();
        let genie = interface.clone();
        submit(interface, server).then(SHORT, move |_| {
            let came = submit(&genie, &waits).sync();
            sender.send(came.expect_err("it would wait").error.errno()).expect("a test");
        });
        keeper.take(1).remove(0).reply(Ok(()));
        interface.collect();
        assert_eq!(found.try_recv(), Ok(Error::MayNotWait.errno()));
    });
}

#[test]
fn a_continuation_that_costs_much_has_a_thread_of_its_own_and_may_wait_there() {
    everywhere(|interface, server, keeper| {
        let (sender, waited) = channel();
        let (genie, there) = (interface.clone(), server.clone());
        submit(interface, server).then(LONG, move |came| {
            let waited = came.and_then(|_| genie.request(&there, ASK).send());
            sender.send((waited.map(drop), thread::current().id())).expect("a test");
        });
        keeper.take(1).remove(0).reply(Ok(()));
        interface.collect();
        // Others go on: this thread replies.
        keeper.take(1).remove(0).reply(Ok(()));
        let (waited, by) = waited.recv_timeout(FOR_EVER).expect("it runs");
        waited.unwrap_or_else(|failed| panic!("{}", failed.error));
        assert_ne!(by, thread::current().id());
    });
}

/// Twenty that take 20 us each would keep the thread from looking for 400.
#[test]
fn a_thread_runs_continuations_up_to_the_limit_and_another_one_the_rest_in_their_order() {
    let (fixture, keeper, _running) = Fixture::with_keeper();
    let interface = interface();
    let server = fixture.connect(&interface, "keeper");
    let (sender, ran) = channel();
    for number in 0..20 {
        let sender = sender.clone();
        submit(&interface, &server)
            .then(SHORT, move |_| sender.send((number, thread::current().id())).expect("a test"));
    }
    keeper.take(20).into_iter().for_each(|request| request.reply(Ok(())));
    assert_eq!(interface.collect(), 20);
    let ran: Vec<_> = (0..20).map(|_| ran.recv_timeout(FOR_EVER).expect("it runs")).collect();
    let (here, there): (Vec<_>, Vec<_>) = ran.iter().partition(|(_, by)| *by == thread::current().id());
    // On a busy machine the first one may take longer than it said.
    assert!([1, 2].contains(&here.len()), "{ran:?}");
    assert_eq!(HIJACK_LIMIT.as_micros() / SHORT.as_micros(), 2);
    assert!(here.iter().chain(&there).zip(0..).all(|((number, _), expected)| *number == expected), "{ran:?}");
    assert!(there.iter().all(|(_, by)| *by == there[0].1), "{ran:?}");
    assert_idle(&interface);
}

/// Thirty-two that said 1 us and took 10 ms held the thread for 320.
#[test]
fn a_continuation_counts_for_what_it_takes_where_it_said_less() {
    let (fixture, keeper, _running) = Fixture::with_keeper();
    let interface = interface();
    let server = fixture.connect(&interface, "keeper");
    let (sender, ran) = channel();
    for number in 0..20 {
        let sender = sender.clone();
        submit(&interface, &server).then(Duration::from_micros(1), move |_| {
            thread::sleep(2 * HIJACK_LIMIT);
            sender.send((number, thread::current().id())).expect("a test");
        });
    }
    keeper.take(20).into_iter().for_each(|request| request.reply(Ok(())));
    assert_eq!(interface.collect(), 20);
    let ran: Vec<_> = (0..20).map(|_| ran.recv_timeout(FOR_EVER).expect("it runs")).collect();
    let here = ran.iter().filter(|(_, by)| *by == thread::current().id());
    assert_eq!(here.map(|(number, _)| *number).collect::<Vec<_>>(), [0]);
    assert_idle(&interface);
}

/// The thread never came back.
#[test]
fn continuations_that_say_they_cost_nothing_and_follow_from_one_another_let_their_thread_go() {
    fn step(genie: &Interface, server: &ServerHandle, is_over: Arc<AtomicBool>, done: Sender<()>) {
        let (interface, there) = (genie.clone(), server.clone());
        let pending = genie.request(server, NULL).submit().expect("a request");
        pending.then(Duration::ZERO, move |_| match is_over.load(Ordering::Acquire) {
            true => done.send(()).expect("a test"),
            false => step(&interface, &there, is_over, done),
        });
    }
    let (interface, is_over) = (interface(), Arc::new(AtomicBool::new(false)));
    let (done, is_done) = channel();
    step(&interface, &ServerHandle::new(memory()), Arc::clone(&is_over), done);
    is_over.store(true, Ordering::Release);
    is_done.recv_timeout(FOR_EVER).expect("the last one runs");
}

/// A long one that followed from a short one ran in the thread for the short ones, and waited there for one of those behind it.
#[test]
fn a_long_continuation_has_a_thread_of_its_own_also_where_it_follows_from_a_short_one() {
    let (fixture, keeper, _running) = Fixture::with_keeper();
    let interface = interface();
    let (server, here) = (fixture.connect(&interface, "keeper"), ServerHandle::new(memory()));
    let null = || interface.request(&here, NULL).submit().expect("a request");
    // The one that takes longer than the limit has the others run in a thread for that.
    submit(&interface, &server).then(SHORT, |_| thread::sleep(2 * HIJACK_LIMIT));
    let (next_long, next_short) = (null(), null());
    let ((sends, comes), (sender, waited)) = (channel(), channel());
    submit(&interface, &server).then(SHORT, move |_| {
        next_long.then(LONG, move |_| sender.send(comes.recv_timeout(FOR_EVER)).expect("a test"));
    });
    submit(&interface, &server)
        .then(SHORT, move |_| next_short.then(SHORT, move |_| sends.send(()).expect("a test")));
    keeper.take(3).into_iter().for_each(|request| request.reply(Ok(())));
    assert_eq!(interface.collect(), 3);
    assert_eq!(waited.recv_timeout(2 * FOR_EVER), Ok(Ok(())), "the short one is kept waiting");
    assert_idle(&interface);
}

#[test]
fn a_continuation_that_panics_harms_neither_those_behind_it_nor_the_channel() {
    everywhere(|interface, server, keeper| {
        submit(interface, server).then(SHORT, |_| panic!("a continuation's panic is part of the test"));
        let next = then(submit(interface, server), SHORT);
        keeper.take(2).into_iter().for_each(|request| request.reply(Ok(())));
        interface.collect();
        receive(&next).0.expect("a reply");
        let again = then(submit(interface, server), SHORT);
        keeper.take(1).remove(0).reply(Ok(()));
        interface.collect();
        receive(&again).0.expect("a reply");
        assert!(interface.flush(server, FOR_EVER));
    });
}

/// Each was run inside the one before it, until there was no stack left.
#[test]
fn continuations_whose_replies_are_there_at_once_do_not_pile_up() {
    fn step(genie: &Interface, server: &ServerHandle, left: u32, done: Sender<()>) {
        let (interface, there) = (genie.clone(), server.clone());
        let pending = genie.request(server, NULL).submit().expect("a request");
        pending.then(Duration::from_micros(1), move |_| match left {
            0 => done.send(()).expect("a test"),
            _ => step(&interface, &there, left - 1, done),
        });
    }
    let interface = interface();
    let (done, is_done) = channel();
    step(&interface, &ServerHandle::new(memory()), 100_000, done);
    is_done.recv_timeout(FOR_EVER).expect("the last one runs");
}

/// Threads that wait for replies of their own run the continuations of others.
#[test]
fn many_threads_wait_while_continuations_make_requests() {
    const EACH: u32 = 200;
    let fixture = Fixture::new();
    let _running = fixture.serve("memory", memory());
    let interface = interface();
    let server = fixture.connect(&interface, "memory");
    let (count, ends) = (Arc::new(AtomicU32::new(0)), Arc::new(Mutex::new(Vec::new())));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..EACH {
                    let (genie, there, count) = (interface.clone(), server.clone(), Arc::clone(&count));
                    let ends = Arc::clone(&ends);
                    interface.request(&server, NULL).submit().expect("a request").then(SHORT, move |came| {
                        came.expect("a reply");
                        let next = genie.request(&there, NULL).submit().expect("a request");
                        next.then(SHORT, move |came| {
                            count.fetch_add(1, Ordering::Relaxed);
                            ends.lock().push(came.is_ok());
                        });
                    });
                    interface.request(&server, NULL).send().expect("a reply");
                }
            });
        }
    });
    collect_until(&interface, || count.load(Ordering::Relaxed) == 4 * EACH);
    collect_until(&interface, || ends.lock().len() == 4 * EACH as usize);
    assert!(ends.lock().iter().all(|is_ok| *is_ok));
    assert!(interface.flush(&server, FOR_EVER));
    assert_idle(&interface);
}
