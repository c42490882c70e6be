//! Fork: whatever a child does with its copies of handles, it neither harms its parent nor dies or hangs; and it can have an
//! interface of its own.
//!
//! How: each child ends with the number of the claim that it found wrong, or is killed when it takes too long. The parent
//! goes on with its values, so the child drops copies of their bytes.
#![allow(
    unsafe_code,
    reason = "forks, and drops in the child what the parent goes on with: the two have different memory"
)]

#[path = "../../sys/tests/child/mod.rs"]
mod child;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use genie_channel::directory::Directory;
use genie_channel::{Connect, ConnectOptions, Listener, Running, ServeOptions};
use genie_io::servers::memory::{FETCH, Memory, STORE};
use genie_io::{Error, In, Interface, Limits, Out, Server, ServerHandle};
use genie_memory::{Config, Granularity, GranuleKind, Space};
use genie_passing::{Costs, Passing, Thresholds};
use rustix::process::Signal;

#[path = "fork/copies.rs"]
mod copies;
#[path = "fork/servers.rs"]
mod servers;

use child::{ExitOutcome, fork_child};

/// No child takes this long, unless it hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// A memory server, in this process, and a client of it.
struct Fixture {
    interface: Interface,
    server: ServerHandle,
    running: Running,
    directory: Directory,
    _scratch: tempfile::TempDir,
}

impl Fixture {
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
