//! Continuations where no thread can be made.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use genie_channel::directory::Directory;
use genie_channel::{Listener, ServeOptions, Serving};
use genie_io::servers::memory::{Memory, NULL};
use genie_io::{Interface, Pending, ServerHandle, ServiceId};
use genie_sys::lock::Mutex;

use super::{Handing, NAME, connect, without_threads};

/// No wait takes this long, unless it never ends.
const FOR_EVER: Duration = Duration::from_secs(60);
/// What a continuation here says that it costs, which is to have a thread of its own.
const LONG: Duration = Duration::from_secs(1);
const SHORT: Duration = Duration::from_micros(20);

/// Each kind of them in turn. The server is there before the process may do less.
pub(crate) fn continuations(directory: &Directory) {
    let genie = Interface::open().expect("an interface");
    link(&genie, directory);
    timer(&genie);
    collects(&genie);
    chain(&genie);
}

/// Has a continuation wait that costs much, and another one tell of itself. Returns by what to end the wait, and what is told then.
fn follow(waits: Pending<'static>, tells: Pending<'static>) -> (Sender<()>, Receiver<()>, Receiver<()>) {
    let ((end, may_end), (ended, has_ended), (told, is_told)) = (channel(), channel(), channel());
    waits.then(LONG, move |_| {
        may_end.recv_timeout(2 * FOR_EVER).expect("the end of the wait");
        ended.send(()).expect("a test");
    });
    tells.then(SHORT, move |_| told.send(()).expect("a test"));
    (end, has_ended, is_told)
}

/// A server that keeps what it is asked, in the test's hands, and a request whose time is over soon; the timer has started.
fn late(genie: &Interface) -> (ServerHandle, impl Fn(u64) -> Pending<'static>) {
    let (sender, kept) = channel();
    let server = ServerHandle::new(Handing(Mutex::new(sender)));
    let (interface, asked) = (genie.clone(), server.clone());
    let late = move |ms| {
        let _ = &kept;
        interface
            .request(&asked, ServiceId(0))
            .timeout(Duration::from_millis(ms))
            .submit()
            .expect("a request")
    };
    late(1).sync().expect_err("nobody replies");
    (server, late)
}

fn timer(genie: &Interface) {
    let (_server, late) = late(genie);
    let (end, has_ended, is_told) = without_threads(|| {
        let (end, has_ended, is_told) = follow(late(20), late(30));
        is_told.recv_timeout(FOR_EVER).expect("the timer goes on");
        (end, has_ended, is_told)
    });
    // Now there is a thread for it, which the timer starts.
    end.send(()).expect("a continuation that waits");
    has_ended.recv_timeout(FOR_EVER).expect("the continuation runs");
    drop(is_told);
}

fn collects(genie: &Interface) {
    let (_server, late) = late(genie);
    without_threads(|| {
        let (by, ran_by) = channel();
        late(20).then(LONG, move |_| by.send(thread::current().id()).expect("a test"));
        let (told, is_told) = channel();
        late(30).then(SHORT, move |_| told.send(()).expect("a test"));
        is_told.recv_timeout(FOR_EVER).expect("the timer goes on");
        assert!(ran_by.try_recv().is_err(), "a thread of Genie's runs it");
        genie.collect();
        assert_eq!(ran_by.try_recv(), Ok(thread::current().id()));
    });
}

fn link(genie: &Interface, directory: &Directory) {
    let (sender, kept) = channel();
    let listener = Listener::bind_in(directory, NAME, Handing(Mutex::new(sender)), ServeOptions::default());
    let running = listener.and_then(Serving::start).expect("a server");
    let server = connect(genie, directory).expect("a connection");
    let ask = || genie.request(&server, ServiceId(0)).submit().expect("a request");
    let (end, has_ended, is_told) = follow(ask(), ask());
    let kept = [(); 2].map(|()| kept.recv_timeout(FOR_EVER).expect("a request"));
    without_threads(|| {
        running.stopper().stop();
        is_told.recv_timeout(FOR_EVER).expect("the link's thread goes on");
    });
    end.send(()).expect("a continuation that waits");
    has_ended.recv_timeout(FOR_EVER).expect("the continuation runs");
    drop(kept);
}

fn chain(genie: &Interface) {
    fn step(genie: &Interface, server: &ServerHandle, left: u32, done: Sender<()>) {
        let (interface, there) = (genie.clone(), server.clone());
        let pending = genie.request(server, NULL).submit().expect("a request");
        pending.then(LONG, move |_| match left {
            0 => done.send(()).expect("a test"),
            _ => step(&interface, &there, left - 1, done),
        });
    }
    let (done, is_done) = channel();
    without_threads(|| step(genie, &ServerHandle::new(Memory::customized()), 100_000, done));
    is_done.recv_timeout(FOR_EVER).expect("the last one runs");
}
