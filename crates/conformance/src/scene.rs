//! Scenes: a client's interface and the servers that it reaches. Promises know a subject by its scenes only.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use genie_io::servers::memory::{FETCH, Memory, STORE};
use genie_io::{Interface, Limits, ServerHandle, ServiceId};
use genie_memory::Space;
use genie_passing::{Layout, Overlays, Thresholds};

use crate::heap;
use crate::holder::{ARRIVAL, Holder};
use crate::promise::Need;
use crate::setup::{Buffering, Setup, assert_idle_within, interface};

/// How long a server under test may take to reply, and to know that it has, if nothing else is said.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// How many buffers each pool of a server has, and how many requests a server must be able to serve at a time.
pub const POOLED: usize = 2;

/// A client's interface, and what it reaches.
pub struct Scene {
    setup: Setup,
    interface: Interface,
    servers: Servers,
    patience: Duration,
    /// How often the interface was asked for, which each request does first.
    uses: Arc<AtomicUsize>,
}

/// The servers that a subject's client reaches, and what they can do.
#[derive(Default)]
pub struct Servers {
    holder: Option<Holder>,
    memory: Option<ServerHandle>,
    store: Option<Store>,
    lacks: Vec<(Need, String)>,
    reserved: usize,
    has_devices: bool,
    /// Dropped last.
    settle: Option<Box<dyn Fn() + Send + Sync>>,
}

/// Services that keep bytes under a name, and give them back.
pub struct Store {
    pub(crate) server: ServerHandle,
    pub(crate) put: ServiceId,
    pub(crate) get: ServiceId,
    pub(crate) argument: Box<Naming>,
}

/// Makes an argument of a name.
type Naming = dyn Fn(&str) -> Vec<u8> + Send + Sync;

impl Store {
    /// Says how a server keeps bytes: `put` keeps output buffer 0 under the name that `argument` makes an argument of, over what
    /// was kept there before if that was not longer; `get` fills input buffer 0 with it, as much as fits, and fails if there is
    /// nothing of that name. Up to 2 MiB are put, or as much as the server's own buffers have where the configuration has such
    /// ([`Buffering::Pooled`]).
    pub fn new(
        server: ServerHandle,
        put: ServiceId,
        get: ServiceId,
        argument: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static,
    ) -> Self {
        Self { server, put, get, argument: Box::new(argument) }
    }
}

impl Servers {
    /// A carrier's: it reaches a [holder](crate::holder) and a [memory server](Memory).
    pub fn carried(holder: Holder, memory: ServerHandle) -> Self {
        let name = |name: &str| name.as_bytes().to_vec();
        let store = Some(Store::new(memory.clone(), STORE, FETCH, name));
        Self { holder: Some(holder), memory: Some(memory), store, ..Self::default() }
    }

    /// A server that is itself held to the promises.
    pub fn storing(store: Store) -> Self {
        Self { store: Some(store), ..Self::default() }
    }

    /// Says that promises which need this cannot be tried, and why.
    #[must_use]
    pub fn lacking(mut self, need: Need, why: &str) -> Self {
        self.lacks.push((need, why.to_owned()));
        self
    }

    /// Says that the servers keep so many granules of the client's space for themselves.
    #[must_use]
    pub fn reserving(self, granules: usize) -> Self {
        Self { reserved: granules, ..self }
    }

    /// Says that requests to servers in the client's process go the way that is tried, so that devices of the suite's own can.
    #[must_use]
    pub fn with_devices(self) -> Self {
        Self { has_devices: true, ..self }
    }

    /// Has the suite call `settle` when a promise has been tried: it returns when the servers know that all requests are over,
    /// and panics if they do not come to know it. It is dropped after the scene's other parts.
    #[must_use]
    pub fn settling(self, settle: impl Fn() + Send + Sync + 'static) -> Self {
        Self { settle: Some(Box::new(settle)), ..self }
    }
}

impl Scene {
    /// Puts together what a promise needs.
    pub fn new(setup: Setup, interface: Interface, servers: Servers) -> Self {
        heap::keep_what_is_freed();
        Self { setup, interface, servers, patience: PATIENCE, uses: Arc::default() }
    }

    /// Servers of the suite's in the client's process, and an interface with these limits and thresholds. Where the machine
    /// cannot, says so and returns `None`.
    pub fn in_process(test: &str, setup: Setup, limits: Limits, thresholds: Thresholds) -> Option<Self> {
        Some(Self::on(setup.space(test, setup.memory_limit())?, setup, limits, thresholds))
    }

    /// The same on a space that is there, with nothing in it.
    pub fn on(space: Space, setup: Setup, limits: Limits, thresholds: Thresholds) -> Self {
        let interface = interface(space, limits, thresholds);
        let servers = Servers::in_process(&interface, &setup);
        Self::new(setup, interface, servers)
    }

    /// The same, with a server that may take so long to reply, and to know that a request is over.
    pub(crate) fn patient(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// The configuration.
    pub fn setup(&self) -> Setup {
        self.setup
    }

    /// The client's interface.
    pub fn interface(&self) -> &Interface {
        self.uses.fetch_add(1, Ordering::Relaxed);
        &self.interface
    }

    /// The memory server.
    ///
    /// # Panics
    /// The subject has none.
    pub fn memory(&self) -> &ServerHandle {
        self.servers.memory.as_ref().expect("promises that use it need it")
    }

    /// The server that keeps requests until it is told what to do with them.
    ///
    /// # Panics
    /// The subject has none.
    pub fn holder(&self) -> &Holder {
        self.servers.holder.as_ref().expect("promises that use it need it")
    }

    /// How long a promise that goes on makes no request at most, on a machine that has other things to do.
    pub(crate) fn longest_wait(&self) -> Duration {
        self.patience + if self.servers.holder.is_some() { ARRIVAL } else { PATIENCE }
    }

    /// A count that grows while the scene is used.
    pub(crate) fn uses(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.uses)
    }

    /// How long a server under test may take.
    pub(crate) fn patience(&self) -> Duration {
        self.patience
    }

    /// The services under test.
    pub(crate) fn store(&self) -> &Store {
        self.servers.store.as_ref().expect("promises that use it need it")
    }

    /// Verifies that nothing is left of any request.
    #[track_caller]
    pub fn assert_idle(&self) {
        self.servers.settle.iter().for_each(|settle| settle());
        assert_idle_within(self.patience, self.interface(), self.servers.reserved);
    }

    /// The holder and the interface, to be dropped one after the other.
    ///
    /// # Panics
    /// There is no holder.
    pub fn into_parts(self) -> (Holder, Interface) {
        (self.servers.holder.expect("a holder"), self.interface)
    }

    /// Why the subject cannot be tried on what has this need, if so.
    pub(crate) fn lacks(&self, need: Need) -> Option<String> {
        let servers = &self.servers;
        let said = servers.lacks.iter().find(|(lacking, _)| *lacking == need).map(|(_, why)| why.clone());
        let without = |has: bool, why: &str| (!has).then(|| why.to_owned());
        said.or_else(|| match need {
            Need::Holder => without(servers.holder.is_some(), "its requests do not reach the suite's holder"),
            Need::Memory => without(servers.memory.is_some(), "its requests do not reach the memory server"),
            Need::Store => without(servers.store.is_some(), "it is no server that keeps bytes"),
            Need::Device => {
                without(servers.has_devices, "it does not carry what a device of the client's does")
            }
            Need::Customized => {
                let is_so = self.setup.buffering == Buffering::Customized;
                without(is_so, "the data is in the server's own buffer until the reply")
            }
            Need::InPlace | Need::Frames => None,
        })
    }
}

impl Servers {
    /// Servers of the suite's in the client's process.
    pub fn in_process(interface: &Interface, setup: &Setup) -> Self {
        let space = interface.space();
        let len = setup.granules() * setup.granule();
        let (memory, holder, reserved) = match setup.buffering {
            Buffering::Customized => (Memory::customized(), Holder::in_process(None), 0),
            Buffering::Pooled => {
                // The holder puts an input into two buffers of a good half of its length.
                let half = (len / 2 + 77).next_multiple_of(setup.granule());
                let overlays = Overlays::reserve(space, 0, half, 2 * POOLED).expect("memory for the pool");
                let memory = Memory::pooled(space, 0, len, POOLED).expect("memory for the pool");
                let reserved = 2 * POOLED * half / setup.granule() + POOLED * setup.granules();
                (memory, Holder::in_parts(overlays, setup.granule()), reserved)
            }
            Buffering::Framed => return Self::framed(space, setup, len),
        };
        Self::carried(holder, ServerHandle::new(memory)).reserving(reserved).with_devices()
    }

    /// Servers whose buffers are frames: the memory server's of odd places, which are copied, and the holder's of whole granules,
    /// some of which clients may have.
    fn framed(space: &Space, setup: &Setup, len: usize) -> Self {
        let (granule, half) = (setup.granule(), len / 2 + 77);
        let framed = |stride, layout, count| {
            let frames = space.make_frames(stride, count).expect("memory for the frames");
            (frames.addresses().len() / granule, Overlays::framed(frames, layout))
        };
        let (odd, memory) = framed(len + 333, Layout { headroom: 259, len: len + 1, away: 0 }, POOLED);
        let layout = Layout { headroom: granule, len: half, away: 2 * POOLED };
        let (whole, overlays) = framed((granule + half).next_multiple_of(granule), layout, 4 * POOLED);
        let holder = Holder::in_parts(overlays.clone(), granule);
        let memory = ServerHandle::new(Memory::overlaid(memory));
        Self::carried(holder, memory).reserving(odd + whole).with_devices().settling(move || {
            let end = Instant::now() + PATIENCE;
            while overlays.free() < 4 * POOLED {
                assert!(Instant::now() < end, "frames are away");
                std::thread::sleep(Duration::from_millis(1));
            }
        })
    }
}
