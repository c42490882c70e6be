//! Tasks whose waking is code that makes requests and waits: at the channel, or the completer, whose replies the thread that wakes them
//! takes for all.
//!
//! How: each test's own wait is bounded by a time that no test takes, and so is the request that a task makes: where the thread that wakes
//! a task has the lock under which replies are taken, the task's request has no reply in time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::Duration;

use genie_channel::{Layout, ServeOptions};
use genie_io::servers::memory::NULL;
use genie_io::{Interface, Limits, Out, Pending, ServerHandle};
use genie_sys::lock::Mutex;

use super::fixture::{
    ASK, FOR_EVER, Fixture, Keeper, assert_idle, interface, interface_with, memory, options,
};
use super::rings::{Gives, Ring, submit};

/// A request of a task's has its reply long before, unless nobody takes it.
const LONG: Duration = Duration::from_secs(20);

/// A task that does something when it is woken.
struct Task<F>(F);

impl<F: Fn() + Send + Sync + 'static> Wake for Task<F> {
    fn wake(self: Arc<Self>) {
        (self.0)();
    }
}

/// A task that does that when the request is over.
#[track_caller]
fn wake_for(pending: &Pending<'_>, act: impl Fn() + Send + Sync + 'static) {
    let task = Waker::from(Arc::new(Task(act)));
    assert!(pending.poll(&mut Context::from_waker(&task)).is_pending());
}

/// A task that makes a request, and notes how many of those have their replies.
fn asks(
    interface: &Interface,
    server: &ServerHandle,
    replied: &Arc<AtomicU32>,
) -> impl Fn() + Send + Sync + use<> {
    let (interface, server, replied) = (interface.clone(), server.clone(), Arc::clone(replied));
    move || {
        if interface.request(&server, ASK).timeout(LONG).send().is_ok() {
            replied.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Replies to what comes from now on.
fn reply_from_now_on(keeper: &Keeper, count: usize) -> thread::JoinHandle<()> {
    let keeper = keeper.clone();
    thread::spawn(move || (0..count).for_each(|_| keeper.take(1).remove(0).reply(Ok(()))))
}

/// The thread that took the reply had the lock by which replies are taken, and waited for it for ever.
#[test]
fn a_task_waits_at_the_channel_whose_replies_are_just_taken() {
    let (fixture, keeper, _running) = Fixture::with_keeper();
    let interface = interface();
    let server = fixture.connect(&interface, "keeper");
    let takers: [fn(&Interface, &ServerHandle, &Pending<'_>); 4] = [
        |_, _, pending| assert!(pending.wait(FOR_EVER)),
        // It leads for a request of its own.
        |interface, server, _| drop(interface.request(server, ASK).send().expect("a reply")),
        |interface, _, pending| {
            while !pending.is_replied() {
                interface.arm();
                interface.collect();
            }
        },
        |interface, server, _| assert!(interface.flush(server, FOR_EVER)),
    ];
    for (number, take) in takers.into_iter().enumerate() {
        let replied = Arc::default();
        let pending = submit(&interface, &server);
        wake_for(&pending, asks(&interface, &server, &replied));
        let replies = reply_from_now_on(&keeper, 2 + usize::from(number == 1));
        take(&interface, &server, &pending);
        pending.sync().expect("a reply");
        assert_eq!(replied.load(Ordering::Relaxed), 1, "taker {number}: the task's request has no reply");
        replies.join().expect("a server");
    }
    assert_idle(&interface);
}

#[test]
fn a_task_that_hears_of_progress_waits_at_the_same_channel() {
    let (fixture, keeper, _running) = Fixture::with_keeper();
    let interface = interface();
    let server = fixture.connect(&interface, "keeper");
    let request = interface.request(&server, ASK).out(Out::copy(&[1; 64]));
    let (pending, replied) = (request.submit().expect("a request"), Arc::default());
    let task = Waker::from(Arc::new(Task(asks(&interface, &server, &replied))));
    assert!(pending.poll_progress(0, 0, &mut Context::from_waker(&task)).is_pending());
    let mut served = keeper.take(1).remove(0);
    let replies = reply_from_now_on(&keeper, 1);
    served.progress(0, 10).expect("progress");
    assert_eq!(pending.wait_for_progress(0, 0, FOR_EVER), 10);
    assert_eq!(replied.load(Ordering::Relaxed), 1, "the task's request has no reply");
    let woken = Arc::new(AtomicU32::new(0));
    let count = {
        let woken = Arc::clone(&woken);
        Waker::from(Arc::new(Task(move || {
            woken.fetch_add(1, Ordering::Relaxed);
        })))
    };
    assert!(pending.poll_progress(0, 10, &mut Context::from_waker(&count)).is_pending());
    served.reply(Ok(()));
    assert!(pending.wait(FOR_EVER));
    assert_eq!(woken.load(Ordering::Relaxed), 1, "the reply ends the wait for progress, too");
    pending.sync().expect("a reply");
    replies.join().expect("a server");
    assert_idle(&interface);
}

/// The same for a task that waits for room: a thread that leads has made room.
#[test]
fn a_task_that_waited_for_room_waits_at_the_channel_that_has_made_it() {
    let (fixture, keeper) = (Fixture::new(), Keeper::default());
    let few = ServeOptions { pending_requests: 3, ..options() };
    let _running = fixture.bind("keeper", keeper.clone(), few).start().expect("threads");
    let interface = interface();
    let server = fixture.connect(&interface, "keeper");
    let replied = Arc::default();
    let pending = [(); 3].map(|()| submit(&interface, &server));
    let task = Waker::from(Arc::new(Task(asks(&interface, &server, &replied))));
    let wants_room = interface.request(&server, ASK);
    assert!(wants_room.poll_room(&mut Context::from_waker(&task)).is_pending());
    let kept = keeper.take(3);
    let replies = thread::spawn(move || {
        // Only the last reply is awaited: the thread that waits for it leads when the others come.
        kept.into_iter().for_each(|request| {
            thread::sleep(Duration::from_millis(5));
            request.reply(Ok(()));
        });
    });
    let rest = reply_from_now_on(&keeper, 1);
    let [first, second, last] = pending;
    last.sync().expect("a reply");
    [first, second].into_iter().for_each(|pending| drop(pending.sync().expect("a reply")));
    assert_eq!(replied.load(Ordering::Relaxed), 1, "the task's request has no reply");
    [replies, rest].into_iter().for_each(|thread| thread.join().expect("a server"));
    assert_idle(&interface);
}

/// Nor could it wait for the completer at whose server the thread had just looked.
#[test]
fn a_task_waits_at_the_completer_that_has_just_collected() {
    let (ring, interface) = (Ring::new(Gives::Bell), interface());
    let server = ServerHandle::new(ring.clone());
    let replied = Arc::default();
    let pending = submit(&interface, &server);
    wake_for(&pending, asks(&interface, &server, &replied));
    let is_over = Arc::new(Mutex::new(false));
    let works = thread::spawn({
        let (ring, is_over) = (ring, Arc::clone(&is_over));
        move || ring.work_until(|| *is_over.lock())
    });
    assert!(pending.wait(FOR_EVER));
    pending.sync().expect("a reply");
    *is_over.lock() = true;
    works.join().expect("a server");
    assert_eq!(replied.load(Ordering::Relaxed), 1, "the task's request has no reply");
}

/// However many tasks there are, one call takes all replies that are there, and wakes each task once, in the order of the replies.
#[test]
fn one_look_takes_all_replies_and_wakes_each_task_in_their_order() {
    let (fixture, keeper) = (Fixture::new(), Keeper::default());
    let many =
        ServeOptions { pending_requests: 200, rings: Layout { lines: 256, area: 1 << 16 }, ..options() };
    let _running = fixture.bind("keeper", keeper.clone(), many).start().expect("threads");
    let interface = interface_with(Limits { pending_requests: 200, ..Limits::default() });
    let server = fixture.connect(&interface, "keeper");
    let woken = Arc::new(Mutex::new(Vec::new()));
    let pending: Vec<_> = (0..150).map(|_| submit(&interface, &server)).collect();
    let mut kept = keeper.take(150);
    for pending in &pending {
        let (woken, id) = (Arc::clone(&woken), pending.id());
        wake_for(pending, move || woken.lock().push(id));
    }
    // The last one first.
    kept.drain(..).rev().for_each(|request| request.reply(Ok(())));
    assert_eq!(interface.collect(), 150);
    let expected: Vec<_> = pending.iter().rev().map(Pending::id).collect();
    assert_eq!(*woken.lock(), expected);
    pending.into_iter().for_each(|pending| drop(pending.sync().expect("a reply")));
    assert_idle(&interface);
}

/// The threads that wait at a channel go on while a task that was woken there takes long.
#[test]
fn others_have_their_replies_while_a_task_takes_long() {
    let (fixture, keeper, _running) = Fixture::with_keeper();
    let _memory = fixture.serve("memory", memory());
    let interface = interface();
    let server = fixture.connect(&interface, "keeper");
    let elsewhere = fixture.connect(&interface, "memory");
    let (begun, go_on) = (std::sync::mpsc::channel(), std::sync::mpsc::channel());
    let (begins, goes_on) = (Mutex::new(begun.0), Mutex::new(go_on.1));
    let slow = submit(&interface, &server);
    wake_for(&slow, move || {
        begins.lock().send(()).expect("a test");
        let _ = goes_on.lock().recv_timeout(LONG);
    });
    let other = submit(&interface, &server);
    let [first, second] = <[_; 2]>::try_from(keeper.take(2)).expect("two");
    thread::scope(|scope| {
        let slow = scope.spawn(|| slow.sync().map(drop));
        first.reply(Ok(()));
        begun.1.recv_timeout(FOR_EVER).expect("the task is woken");
        second.reply(Ok(()));
        assert!(other.wait(LONG), "it waits for the task of another");
        interface.request(&elsewhere, NULL).send().expect("a reply");
        go_on.0.send(()).expect("the task goes on");
        slow.join().expect("a thread").expect("a reply");
    });
    other.sync().expect("a reply");
    assert_idle(&interface);
}
