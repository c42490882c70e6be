//! Servers that the program drives: its thread serves requests while it attends, and nobody is lost while it is elsewhere.
#![allow(unsafe_code, reason = "sends a signal to one thread")]

use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::thread::JoinHandleExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use genie_channel::{Connect, ConnectOptions, Driven, ServeOptions, Stopper};
use genie_io::servers::memory::NULL;
use genie_io::{
    Client, ClientId, Completer, Error, Incoming, Interface, Out, RequestId, Server, ServerHandle, Service,
    ServiceId,
};
use genie_passing::Preferred;
use genie_sys::event::Event;
use genie_sys::lock::Mutex;
use genie_sys::poll::readable;
use genie_sys::socket::Socket;
use rustix::process::Signal;

use super::fixture::{
    ASK, FOR_EVER, Finally, Fixture, Keeper, SERVICES, assert_idle, interface, memory, options,
    store_and_fetch,
};
use crate::support::peer::{Ask, Peer};

/// Replies at once, and notes what it hears, and in which threads it is asked.
#[derive(Clone, Default)]
struct Noting(Arc<Notes>);

#[derive(Default)]
struct Notes {
    askers: Mutex<Vec<ThreadId>>,
    layouts: AtomicU32,
    departures: AtomicU32,
}

impl Server for Noting {
    fn name(&self) -> &str {
        "noting"
    }

    fn services(&self) -> &[Service] {
        &SERVICES
    }

    fn request(&self, request: Incoming) {
        self.0.askers.lock().push(thread::current().id());
        request.reply(Ok(()));
    }

    fn abort(&self, _request: RequestId) {}

    fn departed(&self, _client: ClientId) {
        self.0.departures.fetch_add(1, Ordering::SeqCst);
    }

    fn preferred(&self, _client: &Client, _service: ServiceId, _argument: &[u8]) -> Option<Preferred> {
        self.0.layouts.fetch_add(1, Ordering::SeqCst);
        Some(Preferred { len: 1000, ..Preferred::default() })
    }
}

#[track_caller]
fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < FOR_EVER, "{what}, after a while");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Has a client's request served by this thread, whatever else comes.
#[track_caller]
fn serve_one(driven: &mut Driven, interface: &Interface, server: &ServerHandle) {
    let data = interface.allocate(100_000).expect("memory");
    let request = interface.request(server, ASK).out(Out::emulated_copy(&data));
    let pending = request.submit().expect("a request");
    while !pending.is_replied() {
        assert_eq!(driven.attend(FOR_EVER), Ok(true), "nothing woke it");
    }
    pending.sync().expect("a reply");
}

/// Clients waited until the program came back: to connect, for answers, and for their memory when they had left.
#[test]
fn clients_come_ask_and_go_while_the_program_is_elsewhere() {
    let (fixture, noting) = (Fixture::new(), Noting::default());
    let mut driven = fixture.bind("noting", noting.clone(), options()).drive().expect("a server");
    let (staying, leaving) = (interface(), interface());
    let (server, left) = (fixture.connect(&staying, "noting"), fixture.connect(&leaving, "noting"));
    let preferred = staying.preferred(&server, ASK, &[]).expect("an answer").preferred();
    assert_eq!(preferred.expect("a layout").len, 1000);
    assert_eq!(noting.0.layouts.load(Ordering::SeqCst), 1);
    assert!(server.adjust(1 << 20, 10).expect("an answer").1 >= 10);
    let lost = leaving.request(&left, ASK).submit().expect("a request");
    drop((lost, left, leaving));
    eventually("the server has not heard of it", || noting.0.departures.load(Ordering::SeqCst) == 1);
    assert!(noting.0.askers.lock().is_empty(), "requests wait for the program");
    serve_one(&mut driven, &staying, &server);
    assert_eq!(*noting.0.askers.lock(), [thread::current().id()]);
    drop(server);
    eventually("the server has not heard of it", || noting.0.departures.load(Ordering::SeqCst) == 2);
    assert_idle(&staying);
}

/// The requests of a client that had died, and its memory, were kept until the program came back.
#[test]
fn requests_of_a_client_that_is_killed_are_aborted_while_the_program_is_elsewhere() {
    let (fixture, keeper) = (Fixture::new(), Keeper::default());
    let mut driven = fixture.bind("keeper", keeper.clone(), options()).drive().expect("a server");
    let peer = Peer::own();
    let (directory, server) = (fixture.directory.path().to_owned(), "keeper".to_owned());
    let link = peer.link();
    link.done(Ask::Send { directory, server, len: 300_000 });
    while keeper.count() == 0 {
        assert_eq!(driven.attend(FOR_EVER), Ok(true), "nothing woke it");
    }
    peer.kill();
    eventually("the request is kept", || keeper.count() == 0);
    let interface = interface();
    let server = fixture.connect(&interface, "keeper");
    let pending = interface.request(&server, ASK).submit().expect("a request");
    while keeper.count() == 0 {
        assert_eq!(driven.attend(FOR_EVER), Ok(true), "nothing woke it");
    }
    keeper.take(1).into_iter().for_each(|request| request.reply(Ok(())));
    pending.sync().expect("a reply");
}

/// Attends until the server is stopped. Nothing may come that does not wake this thread.
fn attend_until_stopped(driven: &mut Driven) {
    loop {
        match driven.attend(FOR_EVER) {
            Ok(is_served) => assert!(is_served, "nothing woke it"),
            Err(error) => return assert_eq!(error, Error::Stopped { server: "memory".to_owned() }),
        }
    }
}

#[test]
fn a_thread_that_attends_sleeps_until_there_is_something_and_ends_when_it_is_stopped() {
    for spin in [Duration::ZERO, ServeOptions::default().spin] {
        let fixture = Fixture::new();
        let serving = fixture.bind("memory", memory(), ServeOptions { spin, ..options() });
        let (stopper, mut driven) = (serving.stopper(), serving.drive().expect("a server"));
        assert_eq!(driven.attend(Duration::ZERO), Ok(false));
        assert_eq!(driven.attend(Duration::from_millis(1)), Ok(false));
        let left = AtomicU32::new(3);
        thread::scope(|scope| {
            for number in 0..3 {
                let (fixture, left, stopper) = (&fixture, &left, &stopper);
                scope.spawn(move || {
                    let _finally = Finally(|| {
                        if left.fetch_sub(1, Ordering::SeqCst) == 1 {
                            stopper.stop();
                        }
                    });
                    for round in 0..5 {
                        let interface = interface();
                        let server = fixture.connect(&interface, "memory");
                        (0..30).for_each(|again| {
                            store_and_fetch(&interface, &server, number, round * 30 + again)
                        });
                        thread::sleep(Duration::from_millis(u64::from(number)));
                        assert_idle(&interface);
                    }
                });
            }
            attend_until_stopped(&mut driven);
        });
        assert!(!driven.arm(), "there is something to be told");
        driven.attend(FOR_EVER).expect_err("it was stopped");
    }
}

/// A server whose completer stops it when the thread that attends is about to sleep, and waits until nobody attends to clients.
#[derive(Clone)]
struct Stopping(Arc<(Mutex<Option<Stopper>>, PathBuf)>);

impl Server for Stopping {
    fn name(&self) -> &str {
        "stopping"
    }

    fn services(&self) -> &[Service] {
        &SERVICES
    }

    fn request(&self, request: Incoming) {
        request.reply(Ok(()));
    }

    fn abort(&self, _request: RequestId) {}

    fn completer(&self) -> Option<&dyn Completer> {
        Some(self)
    }
}

impl Completer for Stopping {
    fn collect(&self) -> usize {
        0
    }

    fn wait(&self, _timeout: Duration) {}

    fn arm(&self) -> bool {
        if let Some(stopper) = self.0.0.lock().take() {
            stopper.stop();
            eventually("somebody listens", || Socket::connect(&self.0.1).is_err());
        }
        true
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        static NEVER: LazyLock<Event> = LazyLock::new(|| Event::new().expect("an event"));
        Some(NEVER.as_fd())
    }
}

/// The thread slept until its time was over.
#[test]
fn a_thread_that_is_about_to_sleep_is_told_that_the_server_is_stopped() {
    let fixture = Fixture::new();
    let path = fixture.directory.socket_path("stopping").expect("a name");
    let stopping = Stopping(Arc::new((Mutex::new(None), path)));
    let serving = fixture.bind("stopping", stopping.clone(), options());
    let (stopper, mut driven) = (serving.stopper(), serving.drive().expect("a server"));
    *stopping.0.0.lock() = Some(stopper);
    let start = Instant::now();
    driven.attend(FOR_EVER).expect_err("it was stopped");
    assert!(start.elapsed() < FOR_EVER / 2, "it has slept until its time was over");
}

/// The server was told when the program came back, or let it go.
#[test]
fn a_stopped_server_hears_that_its_clients_have_left_while_the_program_is_elsewhere() {
    let (fixture, noting) = (Fixture::new(), Noting::default());
    let serving = fixture.bind("noting", noting.clone(), options());
    let (stopper, mut driven) = (serving.stopper(), serving.drive().expect("a server"));
    let interface = interface();
    let server = fixture.connect(&interface, "noting");
    serve_one(&mut driven, &interface, &server);
    stopper.stop();
    eventually("the server has not heard of it", || noting.0.departures.load(Ordering::SeqCst) == 1);
}

#[test]
fn threads_attend_by_turns() {
    let fixture = Fixture::new();
    let serving = fixture.bind("memory", memory(), options());
    let stopper = serving.stopper();
    let driven = Mutex::new(serving.drive().expect("a server"));
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| while driven.lock().attend(Duration::from_millis(1)).is_ok() {});
        }
        let _finally = Finally(|| stopper.stop());
        let interface = interface();
        let server = fixture.connect(&interface, "memory");
        (0..200).for_each(|round| store_and_fetch(&interface, &server, 1, round));
        assert_idle(&interface);
    });
}

/// Clients of a server that nobody drove any more waited for seconds to be let in.
#[test]
fn clients_that_connect_to_a_server_that_is_dropped_are_told() {
    let fixture = Fixture::new();
    for _ in 0..10 {
        let driven = fixture.bind("memory", memory(), options()).drive().expect("a server");
        let silent = Socket::connect(&fixture.directory.socket_path("memory").expect("a name"));
        let silent = silent.expect("a connection");
        let is_connected = AtomicBool::new(false);
        thread::scope(|scope| {
            let client = scope.spawn(|| {
                let interface = interface();
                let connect =
                    || interface.connect_with(&fixture.directory, "memory", &ConnectOptions::default());
                let server = fixture.connect(&interface, "memory");
                is_connected.store(true, Ordering::SeqCst);
                let error = std::iter::repeat_with(connect).find_map(Result::err).expect("an error");
                let request = interface.request(&server, NULL).send().expect_err("nobody serves it").error;
                assert!(matches!(request, Error::Gone { .. }), "{request}");
                error
            });
            eventually("it has not connected", || is_connected.load(Ordering::SeqCst));
            thread::sleep(Duration::from_millis(2));
            drop(driven);
            let error = client.join().expect("a client");
            assert!(!matches!(error, Error::Silent { .. }), "{error}");
        });
        assert!(readable(&silent, Some(FOR_EVER)).expect("an answer"), "it has not hung up");
    }
}

#[test]
fn a_signal_ends_the_sleep() {
    let caught = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(Signal::USR2.as_raw(), Arc::clone(&caught)).expect("a handler");
    let fixture = Fixture::new();
    let mut driven = fixture.bind("memory", memory(), options()).drive().expect("a server");
    let attending = thread::spawn(move || driven.attend(FOR_EVER));
    let start = Instant::now();
    while !attending.is_finished() && start.elapsed() < FOR_EVER / 2 {
        // SAFETY: the thread has not been joined, so its name is good.
        unsafe { libc::pthread_kill(attending.as_pthread_t(), Signal::USR2.as_raw()) };
        thread::sleep(Duration::from_millis(1));
    }
    assert!(attending.is_finished(), "it goes on sleeping");
    assert_eq!(attending.join().expect("no panic"), Ok(false));
    assert!(caught.load(Ordering::SeqCst));
}
