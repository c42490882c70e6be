//! Clients: they use every server, by every way and scheme, from several threads, and check their own accounts in between.

use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

use genie_channel::ConnectOptions;
use genie_channel::directory::Directory;
use genie_conformance::checked;
use genie_io::{Error, Interface, Limits, Pending, ServerHandle};
use genie_memory::{Buffer, Config, Error as Memory, Faults, Granularity, GranuleKind, Migrant, Space};
use genie_passing::{Costs, Error as Passed, Passing, Thresholds};
use genie_sys::lock::Mutex;
use genie_sys::poll::readable;

use crate::cast::{ConductorLink, Cue, Kind, Word};
use crate::door::{Door, Visit};
use crate::leaf::{PATIENCE, eventually};
use crate::random::Random;
use crate::relay::{held, lent};
use crate::scarcity::Scarcity;
use crate::steps::step;
use crate::tally::Tally;
use crate::traces::Traces;
use crate::verdict::{is_short, names_descriptors};

/// The servers, as clients know them.
pub(crate) const SERVERS: [&str; 4] = ["alpha", "beta", "gamma", "delta"];

/// Which server is asked, and which way it forwards the request: the relay *gamma* to the leaves, *delta* also to *gamma*.
const WAYS: [(usize, &[u8]); 12] = [
    (0, &[]),
    (1, &[]),
    (0, &[]),
    (1, &[]),
    (0, &[]),
    (1, &[]),
    (2, &[0]),
    (2, &[1]),
    (3, &[0]),
    (3, &[1]),
    (3, &[2, 0]),
    (3, &[2, 1]),
];

/// How many of these ways have no relay.
const DIRECT: usize = 6;

/// Bytes of memory: at times too few for all requests.
pub(crate) const LIMIT: usize = 80 << 20;

/// A client.
pub(crate) struct Client {
    pub(crate) interface: Interface,
    directory: Directory,
    doors: Vec<Door>,
    kind: Kind,
    /// Whether the process has all descriptors that it may have.
    is_scarce: AtomicBool,
    /// The thread that runs a client's event loop.
    watch: Option<Mutex<()>>,
    tally: Mutex<Tally>,
}

impl Client {
    pub(crate) fn open(link: &ConductorLink, kind: &Kind, random: &mut Random) -> Self {
        let mut passing = Passing::new(space(kind), Costs::default());
        if random.once_in(2) {
            passing = passing.with_thresholds(Thresholds::ALWAYS);
        }
        let abort_timeout = Duration::from_millis(random.choose(&[1, 10, 50]));
        let limits =
            Limits { pending_bytes: 40 << 20, pending_requests: 40, abort_timeout, ..Limits::default() };
        let options = ConnectOptions { untrusted: kind.is_untrusted, ..ConnectOptions::default() };
        let interface = Interface::new(passing, limits);
        let watch = random.once_in(2).then(|| {
            interface.descriptor().expect("a descriptor");
            Mutex::new(())
        });
        Self {
            interface,
            watch,
            directory: link.directory(),
            doors: SERVERS.iter().map(|name| Door::new(name, options.clone())).collect(),
            kind: *kind,
            is_scarce: AtomicBool::new(false),
            tally: Mutex::default(),
        }
    }

    /// A client that also has a server in this process, which is asked as often as all others together.
    pub(crate) fn with(mut self, server: &ServerHandle) -> Self {
        self.doors.push(Door::within(server));
        self
    }

    /// A way to a leaf that is open now.
    pub(crate) fn visit(&self, random: &mut Random) -> Option<(&Door, Visit, &'static [u8])> {
        // Data copied for a relay is not its client's memory any more, so the relay can't forward that memory.
        let ways = if self.kind.is_untrusted { &WAYS[..DIRECT] } else { &WAYS[..] };
        let (mut door, mut route) = random.choose(ways);
        if self.doors.len() > SERVERS.len() && random.once_in(2) {
            (door, route) = (SERVERS.len(), &[]);
        }
        let door = &self.doors[door];
        let visit = door.enter(&self.interface, &self.directory, |error| {
            let is_scarce = self.is_scarce() && names_descriptors(error);
            if is_scarce {
                self.count("connections not made: there were no descriptors");
            }
            is_scarce
        })?;
        Some((door, visit, route))
    }

    /// Whether the process has all descriptors that it may have.
    pub(crate) fn is_scarce(&self) -> bool {
        self.is_scarce.load(Ordering::Relaxed)
    }

    pub(crate) fn buffer(&self, len: usize) -> Option<Buffer> {
        self.had(self.interface.allocate(len))
    }

    pub(crate) fn migrant(&self, len: usize, is_strong: bool) -> Option<Migrant> {
        self.had(self.interface.allocate_migrant(len, is_strong))
    }

    /// Memory may be short while servers that are stopped hold it.
    fn had<T>(&self, had: Result<T, Error>) -> Option<T> {
        let error = match had {
            Ok(had) => return Some(had),
            Err(error) => error,
        };
        let is_right = match &error {
            Error::Passing(Passed::Memory(Memory::Limit { limit, .. })) => *limit == self.kind.limit,
            Error::Passing(Passed::Memory(memory)) if is_short(memory) => true,
            error => self.is_scarce() && names_descriptors(error),
        };
        assert!(is_right, "{error}, where {:?} may be had", self.kind);
        self.count(&format!("no buffer: {}", short(&error)));
        None
    }

    pub(crate) fn granule(&self) -> usize {
        self.interface.space().granule()
    }

    pub(crate) fn count(&self, what: &str) {
        self.tally.lock().count(what);
    }

    /// Waits for a reply as an event loop does, if there is one and no other thread runs it.
    pub(crate) fn watch(&self, pending: &Pending<'_>) {
        let Some(_runs) = self.watch.as_ref().and_then(Mutex::try_lock) else { return };
        let descriptor = self.interface.descriptor().expect("a descriptor");
        let mut context = Context::from_waker(Waker::noop());
        loop {
            self.interface.collect();
            if pending.poll(&mut context).is_ready() {
                return self.count("replies waited for by descriptor");
            }
            if self.interface.arm() {
                let is_readable = readable(descriptor, Some(PATIENCE)).expect("a descriptor");
                assert!(is_readable, "the descriptor tells of no reply");
            }
        }
    }

    /// Several threads make requests; afterwards the accounts must add up.
    pub(crate) fn round(&self, random: &mut Random) {
        let threads = 1 + random.below(3);
        let seeds: Vec<u64> = (0..threads).map(|_| random.next()).collect();
        std::thread::scope(|scope| {
            for seed in seeds {
                let mut random = Random::new(seed);
                scope.spawn(move || (0..1 + random.below(6)).for_each(|_| step(self, &mut random)));
            }
        });
        checked(self.interface.space());
        if random.once_in(4) {
            random.choose(&self.doors.iter().collect::<Vec<_>>()).close();
            self.count("connections let go");
        }
        if random.once_in(8) {
            eventually("memory is held that no thread waits for", || held(&self.interface));
            self.count("times that nothing was pending");
        }
    }

    /// A round while connections can hardly be made; afterwards they can be made again.
    fn scarce_round(&self, random: &mut Random) {
        random.choose(&self.doors.iter().collect::<Vec<_>>()).close();
        self.is_scarce.store(true, Ordering::Relaxed);
        let scarcity = Scarcity::begin(random);
        self.round(random);
        drop(scarcity);
        self.is_scarce.store(false, Ordering::Relaxed);
        self.count("rounds with hardly any descriptors");
    }

    /// What has happened since this was called last.
    pub(crate) fn tally(&self) -> Tally {
        std::mem::take(&mut *self.tally.lock())
    }

    /// Lets all servers go, and makes sure that no memory is held.
    pub(crate) fn let_go(&self) {
        self.doors.iter().for_each(Door::close);
        eventually("memory is held that no thread waits for", || held(&self.interface));
        eventually("lent memory is kept", || lent(&self.interface));
        let usage = checked(self.interface.space());
        assert_eq!(usage.regions, usage.queued, "no buffer is left: {usage:?}");
    }

    /// Lets all servers go, and makes sure that no memory is held and that nothing of the servers is left.
    fn rest(&self, base: &Traces, objects: u32) {
        self.let_go();
        let own = || checked(self.interface.space()).objects.saturating_sub(objects) as usize;
        let left = Traces::settle(base, PATIENCE, own);
        left.unwrap_or_else(|left| panic!("all servers were let go, but not {left}"));
    }
}

/// Plays this part until the conductor ends it.
pub(crate) fn play(mut link: ConductorLink, kind: Kind) {
    let before = Traces::now();
    let mut random = Random::new(link.script.seed);
    let client = Client::open(&link, &kind, &mut random);
    let (base, objects) = (Traces::now(), checked(client.interface.space()).objects);
    link.tell(&Word::Ready);
    loop {
        if random.once_in(6) {
            client.scarce_round(&mut random);
        } else {
            client.round(&mut random);
        }
        link.tell(&Word::Done(client.tally()));
        if let Some(Cue::Rest) = link.cue() {
            client.rest(&base, objects);
            if !link.rest() {
                break;
            }
        }
    }
    drop(client);
    Traces::settle(&before, PATIENCE, || 0)
        .unwrap_or_else(|left| panic!("the client is done, but not {left}"));
}

/// The client's memory. Huge pages may still be with a client that was killed just now.
fn space(kind: &Kind) -> Space {
    let config = Config {
        granularity: Granularity::Only(if kind.is_huge { GranuleKind::Huge } else { GranuleKind::Base }),
        limit: kind.limit,
        faults: Faults::Best,
        // Nothing here reads from a file or a socket into a buffer.
        kernel_never_stores: true,
        pool: kind.limit / 2,
    };
    let mut made = Space::new(&config);
    for _ in 0..200 {
        if made.is_ok() {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
        made = Space::new(&config);
    }
    made.unwrap_or_else(|error| panic!("no memory for a client: {error}"))
}

/// An error's first words, so that errors that differ only in numbers are counted as one.
fn short(error: &Error) -> String {
    let mut text: Vec<char> =
        error.to_string().chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    text.dedup_by(|next, last| (*next, *last) == ('0', '0'));
    text.into_iter().take(50).collect()
}
