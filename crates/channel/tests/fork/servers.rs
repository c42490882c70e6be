//! Servers whose code forks and returns in both processes.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use genie_channel::directory::Directory;
use genie_channel::{Listener, ServeOptions, Serving};
use genie_io::{Completer, Error, Incoming, Pending, RequestId, Server, ServerHandle, Service, ServiceId};
use genie_sys::event::Event;
use genie_sys::lock::Mutex;
use genie_sys::poll;
use genie_sys::socket::Socket;
use rustix::process::{Pid, Signal, WaitOptions, waitpid};

use super::{Fixture, PATIENCE, connect, in_child, interface};

/// A server whose code forks, and returns in both processes.
#[derive(Clone, Default)]
struct Forking(Arc<Mutex<Option<Pid>>>);

impl Server for Forking {
    fn name(&self) -> &str {
        "forking"
    }

    fn services(&self) -> &[Service] {
        static SERVICES: [Service; 2] = [Service::new("fork", true, true), Service::new("pass", true, true)];
        &SERVICES
    }

    fn request(&self, request: Incoming) {
        if request.service() == ServiceId(0) {
            // SAFETY: the child goes on with what Genie does in it, which takes no lock of another thread's: that is the claim.
            let pid = unsafe { libc::fork() };
            if let Some(child) = Pid::from_raw(pid) {
                *self.0.lock() = Some(child);
            }
        }
        request.reply(Ok(()));
    }

    fn abort(&self, _request: RequestId) {}
}

/// A server whose code forks, in the thread of its client, and returns in both processes.
#[derive(Clone, Default)]
struct ForkingHere(Arc<Here>);

#[derive(Default)]
struct Here {
    kept: Mutex<Vec<Incoming>>,
    child: Mutex<Option<Pid>>,
    has_waited: AtomicBool,
}

/// Forks when it takes the request, and when it waits.
const IN_REQUEST: ServiceId = ServiceId(0);
const IN_WAIT: ServiceId = ServiceId(1);

impl ForkingHere {
    fn fork(&self) {
        // SAFETY: the child goes on with what Genie does in it, which takes no lock of another thread's, and ends.
        *self.0.child.lock() = Pid::from_raw(unsafe { libc::fork() });
    }
}

impl Server for ForkingHere {
    fn name(&self) -> &str {
        "forking here"
    }

    fn services(&self) -> &[Service] {
        static SERVICES: [Service; 2] =
            [Service::new("in request", true, true), Service::new("in wait", true, true)];
        &SERVICES
    }

    fn request(&self, request: Incoming) {
        if request.service() == IN_REQUEST {
            self.fork();
        }
        self.0.kept.lock().push(request);
    }

    fn abort(&self, _request: RequestId) {}

    fn completer(&self) -> Option<&dyn Completer> {
        Some(self)
    }
}

impl Completer for ForkingHere {
    fn collect(&self) -> usize {
        if !self.0.has_waited.load(Ordering::Relaxed) {
            return 0;
        }
        let kept = std::mem::take(&mut *self.0.kept.lock());
        kept.into_iter().map(|request| request.reply(Ok(()))).count()
    }

    fn wait(&self, _longest: Duration) {
        let is_first = !self.0.has_waited.swap(true, Ordering::Relaxed);
        if is_first && self.0.kept.lock()[0].service() == IN_WAIT {
            self.fork();
        }
    }
}

/// A server that keeps a request until there is another one, and replies to that when its client has forked.
struct KeepingTwo(ForkingHere, Mutex<Option<Incoming>>);

impl Server for KeepingTwo {
    fn name(&self) -> &str {
        "keeping two"
    }

    fn services(&self) -> &[Service] {
        static SERVICES: [Service; 1] = [Service::new("keep", true, true)];
        &SERVICES
    }

    fn request(&self, request: Incoming) {
        let mut kept = self.1.lock();
        match kept.take() {
            Some(first) => {
                first.reply(Ok(()));
                while self.0.0.child.lock().is_none() {
                    std::thread::sleep(Duration::from_millis(1));
                }
                request.reply(Ok(()));
            }
            None => *kept = Some(request),
        }
    }

    fn abort(&self, _request: RequestId) {}
}

/// Waits for a child, at most for half of [`PATIENCE`]; returns whether it has ended well.
fn ends_well(child: Pid) -> bool {
    let deadline = Instant::now() + PATIENCE / 2;
    loop {
        match waitpid(Some(child), WaitOptions::NOHANG).expect("a child") {
            Some((_, status)) => return status.exit_status() == Some(0),
            None if Instant::now() > deadline => {
                let _ = rustix::process::kill_process(child, Signal::KILL);
                return false;
            }
            None => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// In a child that a server's code had forked in its client's thread, the client waited for ever: the reply comes to the parent.
#[test]
#[cfg_attr(sanitized, ignore = "ThreadSanitizer allows no new thread in the child of a process with several")]
fn a_child_forked_while_its_client_waits_gets_an_error() {
    for (service, is_sent) in [(IN_REQUEST, true), (IN_REQUEST, false), (IN_WAIT, true), (IN_WAIT, false)] {
        in_child(|| {
            let forking = ForkingHere::default();
            let (interface, server) = (interface(), ServerHandle::new(forking.clone()));
            let request = interface.request(&server, service);
            let replied = if is_sent { request.send() } else { request.submit().and_then(Pending::sync) };
            let child = *forking.0.child.lock();
            let Some(child) = child else {
                let is_refused = matches!(replied, Err(failed) if failed.error == Error::Inherited);
                // SAFETY: the child ends here. (`std::process::exit` takes a lock that a thread of the test's process may have held.)
                unsafe { libc::_exit(i32::from(!is_refused)) };
            };
            match (replied, ends_well(child)) {
                (Ok(_), true) => Ok(()),
                (Err(_), _) => Err(1),
                (_, false) => Err(2),
            }
        });
    }
}

/// As above, in a child that a client's continuation had forked.
#[test]
#[cfg_attr(sanitized, ignore = "ThreadSanitizer allows no new thread in the child of a process with several")]
fn a_child_forked_by_a_continuation_while_its_thread_waits_gets_an_error() {
    in_child(|| {
        let forking = ForkingHere::default();
        let fixture = Fixture::serve(KeepingTwo(forking.clone(), Mutex::default()));
        let submit = || fixture.interface.request(&fixture.server, ServiceId(0)).submit().expect("a request");
        let forks = forking.clone();
        submit().then(Duration::from_micros(20), move |_| forks.fork());
        let replied = submit().sync();
        let Some(child) = *forking.0.child.lock() else {
            let is_refused = matches!(replied, Err(failed) if failed.error == Error::Inherited);
            // SAFETY: as above.
            unsafe { libc::_exit(i32::from(!is_refused)) };
        };
        match (replied, ends_well(child)) {
            (Ok(_), true) => Ok(()),
            (Err(_), _) => Err(1),
            (_, false) => Err(2),
        }
    });
}

/// As above, in threads of Genie's own: the child went on for its parent, and lived for ever.
#[test]
fn a_child_that_returns_from_a_continuation_in_the_timer_or_at_its_servers_end_ends() {
    let (forking, late) = (ForkingHere::default(), Duration::from_millis(5));
    let kept = ForkingHere::default();
    let fixture = Fixture::serve(kept.clone());
    let here = ServerHandle::new(kept);
    for server in [&here, &fixture.server] {
        let request = fixture.interface.request(server, IN_WAIT);
        let request = if server.is_remote() { request } else { request.timeout(late) };
        let pending = request.submit().expect("a request");
        let (forks, (sender, ran)) = (forking.clone(), channel());
        pending.then(Duration::from_micros(20), move |_| {
            forks.fork();
            // Only the parent's thread that waits for this is there.
            sender.send(()).expect("a test");
        });
        if server.is_remote() {
            fixture.running.stopper().stop();
        }
        ran.recv_timeout(PATIENCE).expect("the continuation runs");
        assert!(
            ends_well(forking.0.child.lock().take().expect("a child")),
            "the child goes on, or has failed"
        );
    }
}

/// The child took requests off the clients' rings beside its parent, or slept for ever with their sockets open: clients of a
/// server that had died were not told.
#[test]
fn a_child_that_returns_from_its_servers_code_ends() {
    let forking = Forking::default();
    let fixture = Fixture::serve(forking.clone());
    fixture.interface.request(&fixture.server, ServiceId(0)).send().expect("the parent's reply");
    let child = forking.0.lock().take().expect("a child");
    let deadline = Instant::now() + PATIENCE;
    let ended = || waitpid(Some(child), WaitOptions::NOHANG).expect("a child").is_some();
    while !ended() {
        if Instant::now() > deadline {
            let _ = rustix::process::kill_process(child, Signal::KILL);
            panic!("the child goes on");
        }
        fixture.interface.request(&fixture.server, ServiceId(1)).send().expect("the parent serves");
        std::thread::sleep(Duration::from_millis(1));
    }
    fixture.interface.request(&fixture.server, ServiceId(1)).send().expect("the parent serves");
}

/// The child attended to its parent's clients, or waited for a lock that its parent's control thread had.
#[test]
fn a_child_that_returns_from_a_driven_servers_code_is_told() {
    let scratch = tempfile::tempdir().expect("a directory");
    let directory = Directory::at(scratch.path().join("run")).expect("a run-time directory");
    let forking = Forking::default();
    let serving = Listener::bind_in(&directory, "server", forking.clone(), ServeOptions::default());
    let mut driven = serving.and_then(Serving::drive).expect("a server");
    let interface = interface();
    let server = connect(&interface, &directory).expect("a connection");
    let parent = std::process::id();
    for service in [0, 1, 0, 1] {
        let pending = interface.request(&server, ServiceId(service)).submit().expect("a request");
        while !pending.is_replied() {
            let attended = driven.attend(PATIENCE);
            if std::process::id() != parent {
                let is_told =
                    [attended, driven.attend(PATIENCE)] == [Err(Error::Inherited), Err(Error::Inherited)];
                drop(driven);
                // SAFETY: as above.
                unsafe { libc::_exit(i32::from(!is_told)) };
            }
            assert_eq!(attended, Ok(true), "nothing woke it");
        }
        pending.sync().expect("the parent's reply");
        if let Some(child) = forking.0.lock().take() {
            assert!(ends_well(child), "the child goes on, or has failed");
        }
    }
}

/// A server whose completer forks, and returns in both processes, when it collects or is armed for the first time after it was told.
#[derive(Clone)]
struct ForkingCompleter(Arc<Elsewhere>);

struct Elsewhere {
    kept: Mutex<Vec<Incoming>>,
    bell: Event,
    in_collect: AtomicBool,
    in_arm: AtomicBool,
    child: Mutex<Option<Pid>>,
}

impl ForkingCompleter {
    fn fork_if(&self, told: &AtomicBool) {
        if told.swap(false, Ordering::SeqCst) {
            // SAFETY: the child goes on with what Genie does in it, which takes no lock of another thread's: that is the claim.
            let pid = unsafe { libc::fork() };
            if let Some(child) = Pid::from_raw(pid) {
                *self.0.child.lock() = Some(child);
            }
        }
    }
}

impl Server for ForkingCompleter {
    fn name(&self) -> &str {
        "forking completer"
    }

    fn services(&self) -> &[Service] {
        static SERVICES: [Service; 1] = [Service::new("ask", true, true)];
        &SERVICES
    }

    fn request(&self, request: Incoming) {
        self.0.kept.lock().push(request);
    }

    fn abort(&self, _request: RequestId) {}

    fn completer(&self) -> Option<&dyn Completer> {
        Some(self)
    }
}

impl Completer for ForkingCompleter {
    fn collect(&self) -> usize {
        self.0.bell.clear().expect("an eventfd");
        let kept = std::mem::take(&mut *self.0.kept.lock());
        let count = kept.into_iter().map(|request| request.reply(Ok(()))).count();
        self.fork_if(&self.0.in_collect);
        count
    }

    fn wait(&self, _longest: Duration) {}

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.bell.as_fd())
    }

    fn arm(&self) -> bool {
        self.fork_if(&self.0.in_arm);
        true
    }
}

/// As above, where threads of the server's look for what its completer has: a worker, and the control thread.
#[test]
fn a_child_that_returns_from_its_servers_completer_ends() {
    let server = ForkingCompleter(Arc::new(Elsewhere {
        kept: Mutex::default(),
        bell: Event::new().expect("an eventfd"),
        in_collect: AtomicBool::new(false),
        in_arm: AtomicBool::new(false),
        child: Mutex::default(),
    }));
    let fixture = Fixture::serve(server.clone());
    let ask = || {
        fixture.interface.request(&fixture.server, ServiceId(0)).send().expect("the parent's reply");
    };
    for round in 0..6 {
        ask();
        // The worker goes to sleep. It wakes for the request, or the control thread for the bell.
        std::thread::sleep(Duration::from_millis(5));
        let told = if round % 2 == 0 { &server.0.in_collect } else { &server.0.in_arm };
        told.store(true, Ordering::SeqCst);
        if round % 3 > 0 {
            server.0.bell.signal().expect("an eventfd");
        }
        let deadline = Instant::now() + PATIENCE / 2;
        let child = loop {
            ask();
            if let Some(child) = server.0.child.lock().take() {
                break child;
            }
            assert!(Instant::now() < deadline, "nobody has forked");
            std::thread::sleep(Duration::from_millis(1));
        };
        assert!(ends_well(child), "the child goes on, or has failed");
        ask();
    }
}

/// Sends a server the end of a pipe, which it has a thread close; returns whether that happens.
fn closes_a_pipe(directory: &Directory) -> bool {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let socket = Socket::connect(&directory.socket_path("server").expect("a name")).expect("a connection");
    socket.send(b"nothing", &[reader.as_fd()]).expect("a server that listens");
    drop(reader);
    // The server hands it to that thread, and then answers.
    let becomes_ready =
        |descriptor: BorrowedFd<'_>| poll::readable(descriptor, Some(PATIENCE / 2)).expect("a look");
    assert!(becomes_ready(socket.as_fd()), "no answer");
    // The kernel tells of an error when nobody can read any more.
    becomes_ready(writer.as_fd())
}

/// A child's server must not leave what is to be closed to its parent's thread: the child does not have it.
#[test]
#[cfg_attr(sanitized, ignore = "ThreadSanitizer allows no new thread in the child of a process with several")]
fn a_childs_server_closes_unwanted_descriptors_by_a_thread_of_its_own() {
    let fixture = Fixture::open();
    assert!(closes_a_pipe(&fixture.directory));
    in_child(|| if closes_a_pipe(&Fixture::open().directory) { Ok(()) } else { Err(1) });
    fixture.is_unharmed();
}
