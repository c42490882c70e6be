//! What the tests of waiting need: a directory for servers, interfaces, a server that keeps its requests, and a server that
//! replies after a moment.

use std::sync::Arc;
use std::time::{Duration, Instant};

use genie_channel::directory::Directory;
use genie_channel::{Connect, ConnectOptions, Listener, Running, ServeOptions, Serving};
use genie_io::servers::memory::{FETCH, Memory, STORE};
use genie_io::{In, Incoming, Interface, Limits, Out, RequestId, Server, ServerHandle, Service, ServiceId};
use genie_memory::{Config, Granularity, GranuleKind, Space};
use genie_passing::{Costs, Passing, Thresholds};
use genie_sys::Condvar;
use genie_sys::lock::{Mutex, MutexGuard};

/// No wait of these tests takes this long, unless it never ends.
pub(crate) const FOR_EVER: Duration = Duration::from_secs(60);

/// A place where servers and clients find each other.
pub(crate) struct Fixture {
    pub(crate) directory: Directory,
    _scratch: tempfile::TempDir,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        let scratch = tempfile::tempdir().expect("a directory");
        let directory = Directory::at(scratch.path().join("run")).expect("a run-time directory");
        Self { directory, _scratch: scratch }
    }

    /// With a server named "keeper" in it.
    pub(crate) fn with_keeper() -> (Self, Keeper, Running) {
        let (fixture, keeper) = (Self::new(), Keeper::default());
        let running = fixture.serve("keeper", keeper.clone());
        (fixture, keeper, running)
    }

    pub(crate) fn bind(&self, name: &str, server: impl Server, options: ServeOptions) -> Serving {
        Listener::bind_in(&self.directory, name, server, options).expect("a name that is free")
    }

    pub(crate) fn serve(&self, name: &str, server: impl Server) -> Running {
        self.bind(name, server, options()).start().expect("threads")
    }

    pub(crate) fn connect(&self, interface: &Interface, name: &str) -> ServerHandle {
        interface.connect_with(&self.directory, name, &ConnectOptions::default()).expect("a connection")
    }
}

/// Waits until a server has so many clients.
#[track_caller]
pub(crate) fn await_clients(running: &Running, count: u32) {
    let start = Instant::now();
    while running.status().clients_total != count {
        assert!(start.elapsed() < FOR_EVER, "not {count} clients: {:?}", running.status());
        std::thread::yield_now();
    }
}

/// A server's options, with pools of a size that lets there be many.
pub(crate) fn options() -> ServeOptions {
    ServeOptions { pool: 2 << 20, private_pool: 0, ..ServeOptions::default() }
}

/// An interface of small granules whose emulated copy never copies whole ones.
pub(crate) fn interface() -> Interface {
    interface_with(Limits::default())
}

pub(crate) fn interface_with(limits: Limits) -> Interface {
    let config =
        Config { granularity: Granularity::Only(GranuleKind::Base), limit: 32 << 20, ..Config::default() };
    let space = Space::new(&config).expect("a space");
    Interface::new(Passing::new(space, Costs::default()).with_thresholds(Thresholds::ALWAYS), limits)
}

/// Verifies that nothing is left of any request.
#[track_caller]
pub(crate) fn assert_idle(interface: &Interface) {
    let usage = interface.space().check().unwrap_or_else(|wrong| panic!("{wrong}"));
    assert_eq!((interface.pending_bytes(), usage.references, usage.system), (0, 0, 0), "{usage:?}");
}

/// Stores bytes of its own under its own name and fetches them, and compares.
pub(crate) fn store_and_fetch(interface: &Interface, server: &ServerHandle, number: u32, round: u32) {
    let name = number.to_le_bytes();
    let len = 1 + (number * 1_313 + round * 7_919) as usize % 20_000;
    let bytes: Vec<u8> = (0..len).map(|at| (at as u32 * 31 + number * 7 + round) as u8).collect();
    let mut buffer = interface.allocate(len).expect("memory");
    buffer.copy_from_slice(&bytes);
    interface
        .request(server, STORE)
        .out(Out::emulated_copy(&buffer))
        .argument(&name)
        .send()
        .expect("a reply");
    buffer.fill(0);
    let fetch = interface.request(server, FETCH).input(In::emulated_copy(&mut buffer)).argument(&name);
    assert_eq!(fetch.send().expect("a reply").actual(), len);
    assert!(*buffer == *bytes, "client {number}, round {round}");
}

/// Something to be done at the end, even if a test fails, so that other threads end, too.
pub(crate) struct Finally<F: Fn()>(pub(crate) F);

impl<F: Fn()> Drop for Finally<F> {
    fn drop(&mut self) {
        self.0();
    }
}

/// A memory server.
pub(crate) fn memory() -> Memory {
    Memory::customized()
}

/// Numbers that look random, the same for each seed.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    /// Works for up to so many microseconds, often for none.
    pub(crate) fn pause(&mut self, longest_us: u64) {
        let drawn = self.below(2 * longest_us * 1_000);
        let (until, start) = (Duration::from_nanos(drawn.saturating_sub(longest_us * 1_000)), Instant::now());
        while start.elapsed() < until {
            std::hint::spin_loop();
        }
    }
}

/// The only service of the servers here.
pub(crate) const ASK: ServiceId = ServiceId(0);

pub(crate) static SERVICES: [Service; 1] = [Service::new("ask", true, true)];

/// A server that replies after a moment.
pub(crate) struct Slow(Mutex<Random>);

impl Slow {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Mutex::new(Random::new(seed)))
    }
}

impl Server for Slow {
    fn name(&self) -> &str {
        "slow"
    }

    fn services(&self) -> &[Service] {
        &SERVICES
    }

    fn request(&self, request: Incoming) {
        self.0.lock().pause(15);
        request.reply(Ok(()));
    }

    fn abort(&self, _request: RequestId) {
        // Each request is replied to before the next one is taken.
    }
}

/// A server that keeps its requests until the test takes them out, or until they are aborted.
#[derive(Clone, Default)]
pub(crate) struct Keeper(Arc<(Mutex<Vec<Incoming>>, Condvar)>);

impl Keeper {
    pub(crate) fn kept(&self) -> MutexGuard<'_, Vec<Incoming>> {
        self.0.0.lock()
    }

    /// How many it has.
    pub(crate) fn count(&self) -> usize {
        self.kept().len()
    }

    /// Waits until it has so many.
    pub(crate) fn wait_for(&self, count: usize) {
        let end = Instant::now() + FOR_EVER;
        let (kept, have_come) = self.0.1.wait_until(self.kept(), Some(end), |kept| kept.len() >= count);
        assert!(have_come, "{} of {count} requests have come", kept.len());
    }

    /// The names of the requests that it has, in the order in which they came.
    pub(crate) fn names(&self) -> Vec<RequestId> {
        self.kept().iter().map(Incoming::id).collect()
    }

    /// Waits until it has so many, and takes them out.
    pub(crate) fn take(&self, count: usize) -> Vec<Incoming> {
        self.wait_for(count);
        self.kept().drain(..count).collect()
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
        self.kept().push(request);
        self.0.1.notify_all();
    }

    fn abort(&self, request: RequestId) {
        // Dropping a request may have others aborted that are kept here.
        let gone: Vec<_> = self.kept().extract_if(.., |kept| kept.id() == request).collect();
        drop(gone);
    }
}

/// A keeper that keeps its requests also when they are aborted.
pub(crate) struct Deaf(pub(crate) Keeper);

impl Server for Deaf {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn services(&self) -> &[Service] {
        self.0.services()
    }

    fn request(&self, request: Incoming) {
        self.0.request(request);
    }

    fn abort(&self, _request: RequestId) {}
}
