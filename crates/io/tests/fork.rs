//! Fork: what a child does with its copies of handles neither harms its parent nor kills or hangs the child, and a child can
//! have an interface of its own.
//!
//! How: each child ends with the number of the claim that was found wrong, or is killed when it takes too long. Values are
//! dropped in the child by copies of their bytes, since the parent goes on with them.
#![allow(
    unsafe_code,
    reason = "forks, and drops in the child what the parent goes on with: the two have different memory"
)]

#[path = "../../sys/tests/child/mod.rs"]
mod child;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use genie_io::channel::directory::Directory;
use genie_io::channel::{ConnectOptions, Listener, Running, ServeOptions, Serving};
use genie_io::servers::memory::{FETCH, Memory, NULL, STORE};
use genie_io::{
    ClientId, Completer, Completions, Error, In, Incoming, Interface, Limits, Out, Pending, RequestId,
    Server, ServerHandle, Service, ServiceId,
};
use genie_memory::{Config, Direction, Granularity, GranuleKind, Space};
use genie_passing::{Costs, Passing, Thresholds};
use rustix::process::{Pid, Signal, WaitOptions, waitpid};

use child::{ExitOutcome, fork_child};

/// No child takes as long, unless it hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// A memory server, in this process, and a client of it.
struct Stage {
    interface: Interface,
    server: ServerHandle,
    running: Running,
    directory: Directory,
    _scratch: tempfile::TempDir,
}

impl Stage {
    fn open() -> Self {
        Self::serve(Memory::customized())
    }

    fn serve(server: impl Server) -> Self {
        let scratch = tempfile::tempdir().expect("a directory");
        let directory = Directory::at(scratch.path().join("run")).expect("a run-time directory");
        let options = ServeOptions { pool: 2 << 20, private_pool: 0, ..ServeOptions::default() };
        let serving = Listener::bind_in(&directory, "server", server, options).expect("a name");
        let running = serving.start().expect("threads");
        let interface = interface();
        let server = connect(&interface, &directory).expect("a connection");
        Self { interface, server, running, directory, _scratch: scratch }
    }

    /// Client and server go on over their channel, and new clients find the server.
    #[track_caller]
    fn is_unharmed(&self) {
        store_and_fetch(&self.interface, &self.server).expect("the channel goes on");
        let new = connect(&self.interface, &self.directory).expect("the server is found");
        store_and_fetch(&self.interface, &new).expect("a new channel");
        self.interface.space().check().unwrap_or_else(|wrong| panic!("{wrong}"));
    }
}

fn interface() -> Interface {
    let granularity = Granularity::Only(GranuleKind::Base);
    let config = Config { granularity, limit: 32 << 20, ..Config::default() };
    let space = Space::new(&config).expect("a space");
    Interface::new(
        Passing::new(space, Costs::default()).with_thresholds(Thresholds::ALWAYS),
        Limits::default(),
    )
}

fn connect(interface: &Interface, directory: &Directory) -> Result<ServerHandle, Error> {
    interface.connect_with(directory, "server", &ConnectOptions::default())
}

fn store_and_fetch(interface: &Interface, server: &ServerHandle) -> Result<(), Error> {
    let mut buffer = interface.allocate(20_000)?;
    buffer.fill(7);
    let store = interface.request(server, STORE).out(Out::emulated_copy(&buffer));
    store.argument(b"name").send().map_err(|failed| failed.error)?;
    buffer.fill(0);
    let fetch = interface.request(server, FETCH).input(In::emulated_copy(&mut buffer));
    fetch.argument(b"name").send().map_err(|failed| failed.error)?;
    assert!(buffer.iter().all(|byte| *byte == 7), "what was stored is fetched");
    Ok(())
}

/// Runs claims in a child, and fails with the number of the first that does not hold.
#[track_caller]
fn in_child(claims: impl FnOnce() -> Result<(), u8>) {
    // SAFETY: the C library keeps its own locks in order, and the child takes none that another thread of this process's
    // holds: that it does not is what these tests claim. What the library has in arenas the child has as zeros.
    let child = unsafe { fork_child(|| claims().err().unwrap_or(0)) }.expect("a child");
    let pid = child.pid();
    let is_over = AtomicBool::new(false);
    let outcome = std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            std::thread::park_timeout(PATIENCE);
            if !is_over.load(Ordering::Acquire) {
                let _ = rustix::process::kill_process(pid, Signal::KILL);
            }
        });
        let outcome = child.wait().expect("its end");
        is_over.store(true, Ordering::Release);
        watch.thread().unpark();
        outcome
    });
    assert_eq!(outcome, ExitOutcome::Code(0), "the claim of this number does not hold, or the child hung");
}

/// Drops, in a child, what the parent goes on with.
fn drop_copy<T>(of: &T) {
    // SAFETY: the child has its own copy of all memory, and uses the value no more.
    drop(unsafe { std::ptr::read(of) });
}

/// A child that dropped its copy of an interface said goodbye on the socket that it shared with its parent, and hung it up.
#[test]
fn a_child_drops_its_copies_and_its_parent_goes_on() {
    let stage = Stage::open();
    store_and_fetch(&stage.interface, &stage.server).expect("a reply");
    let mut buffer = stage.interface.allocate(10_000).expect("memory");
    buffer.fill(3);
    let migrant = stage.interface.allocate_migrant(10_000, true).expect("memory");
    let request = stage.interface.request(&stage.server, NULL).out(Out::emulated_copy(&buffer));
    let pending = request.timeout(PATIENCE).submit().expect("a request");
    in_child(|| {
        drop_copy(&pending);
        drop_copy(&buffer);
        drop_copy(&migrant);
        drop_copy(&stage.server);
        drop_copy(&stage.interface);
        Ok(())
    });
    pending.sync().expect("a reply");
    assert!(buffer.iter().all(|byte| *byte == 3), "the parent's buffer");
    drop((buffer, migrant));
    stage.is_unharmed();
}

/// A child's copy of a server said goodbye to all clients, waited for threads that it did not have, and removed the name.
#[test]
fn a_childs_copy_of_a_server_harms_neither_its_clients_nor_its_name() {
    let kept = Keeper::default();
    let stage = Stage::serve(kept.clone());
    let buffer = stage.interface.allocate(10_000).expect("memory");
    let request = stage.interface.request(&stage.server, NULL).out(Out::emulated_copy(&buffer));
    let pending = request.submit().expect("a request");
    let incoming = kept.take();
    in_child(|| {
        drop_copy(&incoming);
        stage.running.stopper().stop();
        drop_copy(&stage.running);
        Ok(())
    });
    assert!(!pending.wait(Duration::from_millis(50)), "the request was not replied to");
    incoming.reply(Ok(()));
    pending.sync().expect("a reply");
    connect(&stage.interface, &stage.directory).expect("the server is found");
}

/// The same of a server that the program drives, whose code was told in the child that its clients had left.
#[test]
fn a_childs_copy_of_a_driven_server_tells_nobody_that_anybody_has_left() {
    let scratch = tempfile::tempdir().expect("a directory");
    let directory = Directory::at(scratch.path().join("run")).expect("a run-time directory");
    let kept = Keeper::default();
    let serving = Listener::bind_in(&directory, "server", kept.clone(), ServeOptions::default());
    let mut driven = serving.and_then(Serving::drive).expect("a server");
    let interface = interface();
    let server = std::thread::scope(|scope| {
        let connecting = scope.spawn(|| connect(&interface, &directory));
        while !connecting.is_finished() {
            driven.serve();
        }
        connecting.join().expect("no panic").expect("a connection")
    });
    in_child(|| {
        drop_copy(&driven);
        if kept.1.load(Ordering::Relaxed) { Err(1) } else { Ok(()) }
    });
    let pending = interface.request(&server, NULL).submit().expect("a request");
    while !driven.serve() {
        std::thread::yield_now();
    }
    kept.take().reply(Ok(()));
    pending.sync().expect("a reply");
}

/// A child that read a buffer, or made a request, died by SIGSEGV, by safe code alone.
#[test]
fn a_childs_handles_refuse_and_its_buffers_are_zeros() {
    let stage = Stage::open();
    let mut buffer = stage.interface.allocate(10_000).expect("memory");
    buffer.fill(3);
    let bytes = [1; 100];
    let pending = stage.interface.request(&stage.server, NULL).submit().expect("a request");
    let refused = |number, result: Result<(), Error>| match result {
        Err(Error::Inherited) => Ok(()),
        _ => Err(number),
    };
    in_child(|| {
        if buffer.iter().any(|byte| *byte != 0) {
            return Err(1);
        }
        let Stage { interface, server, directory, .. } = &stage;
        let request = || interface.request(server, NULL).out(Out::copy(&bytes));
        refused(2, request().send().map(drop).map_err(|failed| failed.error))?;
        refused(3, request().submit().map(drop).map_err(|failed| failed.error))?;
        refused(4, connect(interface, directory).map(drop))?;
        refused(5, interface.allocate(100).map(drop))?;
        refused(6, interface.allocate_migrant(100, true).map(drop))?;
        refused(7, interface.descriptor().map(drop))?;
        refused(8, server.adjust(1, 1).map(drop))?;
        if interface.flush(server, PATIENCE) || interface.collect() > 0 {
            return Err(9);
        }
        // SAFETY: as in `drop_copy`; it is forgotten with the child.
        let pending = unsafe { std::ptr::read(&raw const pending) };
        if !pending.is_replied() || !pending.wait(PATIENCE) {
            return Err(10);
        }
        refused(11, pending.sync().map(drop).map_err(|failed| failed.error))
    });
    pending.sync().expect("a reply");
    assert!(buffer.iter().all(|byte| *byte == 3), "the parent's buffer");
    drop(buffer);
    stage.is_unharmed();
}

#[test]
fn a_child_can_store_into_its_zeros_and_its_parent_does_not_see_it() {
    let stage = Stage::open();
    let mut buffer = stage.interface.allocate(10_000).expect("memory");
    buffer.fill(3);
    in_child(|| {
        // SAFETY: as in `drop_copy`; it is forgotten with the child.
        let mut copy = std::mem::ManuallyDrop::new(unsafe { std::ptr::read(&raw const buffer) });
        copy.fill(4);
        if copy.iter().all(|byte| *byte == 4) { Ok(()) } else { Err(1) }
    });
    assert!(buffer.iter().all(|byte| *byte == 3), "the parent's buffer");
}

#[test]
#[cfg_attr(sanitized, ignore = "ThreadSanitizer allows no new thread in the child of a process with several")]
fn a_child_opens_an_interface_of_its_own_and_connects() {
    let stage = Stage::open();
    store_and_fetch(&stage.interface, &stage.server).expect("a reply");
    in_child(|| {
        let interface = interface();
        let server = connect(&interface, &stage.directory).map_err(|_| 1)?;
        store_and_fetch(&interface, &server).map_err(|_| 2)?;
        let refused = interface.request(&stage.server, NULL).send();
        if !refused.is_err_and(|failed| matches!(failed.error, Error::Inherited)) {
            return Err(3);
        }
        drop((server, interface));
        Ok(())
    });
    stage.is_unharmed();
}

/// Those of them that change the books panicked in a child, or were made to by `Passing::new`.
#[test]
fn what_a_child_asks_of_its_copy_of_a_space_is_refused_or_does_nothing() {
    let stage = Stage::open();
    let space = stage.interface.space();
    let buffer = stage.interface.allocate(4096).expect("memory");
    let [weak, strong] =
        [false, true].map(|strong| stage.interface.allocate_migrant(100, strong).expect("memory"));
    let reference = space.reference(buffer.as_ptr().addr(), 4096, Direction::Out).expect("a reference");
    in_child(|| {
        let lender = space.add_lender();
        space.on_loss(lender, || ());
        space.on_shortage(lender, |_| ());
        space.remove_lender(lender);
        drop(Passing::new(space.clone(), Costs::default()));
        if !matches!(space.read_only(&reference), Err(genie_memory::Error::Inherited)) {
            return Err(1);
        }
        // SAFETY: as in `drop_copy`; they are forgotten with the child.
        let [weak, strong] = unsafe { [std::ptr::read(&raw const weak), std::ptr::read(&raw const strong)] };
        if !matches!(weak.emigrate(), Err(genie_memory::Error::Inherited)) {
            return Err(2);
        }
        if !matches!(strong.emigrate_referenced(), Err(genie_memory::Error::Inherited)) {
            return Err(3);
        }
        Ok(())
    });
    drop((reference, buffer, weak, strong));
    stage.is_unharmed();
}

/// Threads of the parent's hold any of its locks when it forks.
#[test]
fn no_lock_that_a_thread_of_the_parent_holds_hangs_a_child() {
    let stage = Stage::open();
    let is_over = AtomicBool::new(false);
    let buffer = stage.interface.allocate(10_000).expect("memory");
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    store_and_fetch(&stage.interface, &stage.server).expect("a reply");
                }
            });
        }
        for _ in 0..50 {
            in_child(|| {
                let request = stage.interface.request(&stage.server, NULL).out(Out::emulated_copy(&buffer));
                let sent = request.send();
                drop_copy(&buffer);
                drop_copy(&stage.server);
                drop_copy(&stage.interface);
                if sent.is_err() { Ok(()) } else { Err(1) }
            });
        }
        is_over.store(true, Ordering::Relaxed);
    });
    drop(buffer);
    stage.is_unharmed();
}

/// A child that asked whether there were requests left waited for ever for a lock that its parent had when it forked.
#[test]
fn completions_hold_nothing_in_a_child_and_take_no_lock() {
    let stage = Stage::open();
    let submit = || stage.interface.request(&stage.server, NULL).submit().expect("a request");
    let belonging = Arc::new(());
    let completions = Completions::default();
    completions.add(submit(), Arc::clone(&belonging));
    assert!(completions.wait(&stage.server, PATIENCE), "a reply");
    let other = submit();
    let fork = || {
        in_child(|| {
            if !completions.is_empty() || completions.has_next() || completions.next().is_some() {
                return Err(1);
            }
            // SAFETY: as in `drop_copy`.
            completions.add(unsafe { std::ptr::read(&raw const other) }, Arc::new(()));
            if !completions.remove(|_| true).is_empty() || completions.wait(&stage.server, PATIENCE) {
                return Err(2);
            }
            if !format!("{completions:?}").contains("inherited") {
                return Err(3);
            }
            drop_copy(&completions);
            // Its parent may have been changing the table of them.
            if Arc::strong_count(&belonging) == 2 { Ok(()) } else { Err(4) }
        });
    };
    // The requests are locked while it looks for those to be removed.
    let removed = completions.remove(|_| {
        fork();
        false
    });
    assert!(removed.is_empty(), "none was to be removed");
    let (pending, _) = completions.next().expect("the parent's request");
    pending.sync().expect("its reply");
    other.sync().expect("a reply");
    stage.is_unharmed();
}

/// A server that keeps its requests, and notes that a client has left.
#[derive(Clone, Default)]
struct Keeper(Arc<Mutex<Vec<Incoming>>>, Arc<AtomicBool>);

static SERVICES: [Service; 1] = [Service::new("keep", true, true)];

impl Keeper {
    /// Takes the next one out, when it is there.
    fn take(&self) -> Incoming {
        loop {
            if let Some(kept) = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop() {
                return kept;
            }
            std::thread::yield_now();
        }
    }
}

impl Server for Keeper {
    fn name(&self) -> &str {
        "keeper"
    }

    fn services(&self) -> &[Service] {
        &SERVICES
    }

    fn request(&self, request: Incoming) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(request);
    }

    fn abort(&self, _request: RequestId) {}

    fn departed(&self, _client: ClientId) {
        self.1.store(true, Ordering::Relaxed);
    }
}

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
                *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(child);
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
        // SAFETY: this process has one thread; the child goes on with what Genie does in it, and ends.
        *self.0.child.lock().unwrap_or_else(PoisonError::into_inner) = Pid::from_raw(unsafe { libc::fork() });
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
        self.0.kept.lock().unwrap_or_else(PoisonError::into_inner).push(request);
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
        let kept = std::mem::take(&mut *self.0.kept.lock().unwrap_or_else(PoisonError::into_inner));
        kept.into_iter().map(|request| request.reply(Ok(()))).count()
    }

    fn wait(&self, _longest: Duration) {
        let is_first = !self.0.has_waited.swap(true, Ordering::Relaxed);
        if is_first && self.0.kept.lock().unwrap_or_else(PoisonError::into_inner)[0].service() == IN_WAIT {
            self.fork();
        }
    }
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
            let child = *forking.0.child.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(child) = child else {
                let is_refused = matches!(replied, Err(failed) if failed.error == Error::Inherited);
                std::process::exit(if is_refused { 0 } else { 1 });
            };
            match (replied, ends_well(child)) {
                (Ok(_), true) => Ok(()),
                (Err(_), _) => Err(1),
                (_, false) => Err(2),
            }
        });
    }
}

/// Such a child took turns with its parent at the clients' rings, or slept for ever with their sockets open: clients of a server
/// that had died were not told.
#[test]
fn a_child_that_returns_from_its_servers_code_ends() {
    let forking = Forking::default();
    let stage = Stage::serve(forking.clone());
    stage.interface.request(&stage.server, ServiceId(0)).send().expect("the parent's reply");
    let child = forking.0.lock().unwrap_or_else(PoisonError::into_inner).take().expect("a child");
    let deadline = Instant::now() + PATIENCE;
    let ended = || waitpid(Some(child), WaitOptions::NOHANG).expect("a child").is_some();
    while !ended() {
        if Instant::now() > deadline {
            let _ = rustix::process::kill_process(child, Signal::KILL);
            panic!("the child goes on");
        }
        stage.interface.request(&stage.server, ServiceId(1)).send().expect("the parent serves");
        std::thread::sleep(Duration::from_millis(1));
    }
    stage.interface.request(&stage.server, ServiceId(1)).send().expect("the parent serves");
}
