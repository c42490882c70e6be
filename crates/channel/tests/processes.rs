//! Client and servers in several processes: page frames and mappings show how data is passed, and a process that ends, stops
//! or lacks memory harms no other.
//!
//! How: servers live in processes that the test starts, stops and kills, and whose mappings it reads.
//! Source: thesis chapter 5, §3.1.2.

mod abandoned;
mod chain;
mod departure;
mod eviction;
mod frames;
mod growth;
mod limits;
mod mapping;
mod pause;
mod traffic;

use std::time::{Duration, Instant};

use genie_channel::{Connect, ConnectOptions};
use genie_conformance::{Scene, Setup};
use genie_io::{Interface, Limits, ServerHandle};
use genie_memory::{Buffer, GranuleKind};
use genie_passing::Thresholds;

use crate::support::channel::pool;
use crate::support::holder::Holder;
use crate::support::machine::{mappings_of, object_at, skip};
use crate::support::peer::{Ask, Kind, Link, Opening, Peer};
use crate::support::transport::{Place, open_at};

/// A client here, and servers in a process of the test's own.
struct Fixture {
    /// Dropped before the process is killed.
    channel: Scene,
    peer: Peer,
}

impl Fixture {
    /// Opens a client, a holder and a memory server. Where the machine cannot, says so and returns `None`.
    fn open(test: &str, kind: GranuleKind, place: Place) -> Option<Self> {
        Self::open_with(test, kind, place, Limits::default())
    }

    fn open_with(test: &str, kind: GranuleKind, place: Place, limits: Limits) -> Option<Self> {
        let peer = Peer::own();
        let setup = Setup::allowed(kind);
        let channel = open_at(&peer, test, setup, place, limits, Thresholds::ALWAYS)?;
        Some(Self { channel, peer })
    }

    fn interface(&self) -> &Interface {
        self.channel.interface()
    }

    fn holder(&self) -> &Holder {
        self.channel.holder()
    }

    fn granule(&self) -> usize {
        self.channel.setup().granule()
    }

    /// The length of the tests' buffers.
    fn len(&self) -> usize {
        self.channel.setup().granules() * self.granule()
    }

    /// A buffer whose every granule is there.
    fn buffer(&self, seed: u64) -> Buffer {
        filled(self.interface(), seed, self.len())
    }
}

impl Fixture {
    /// Whether the data that the server sees at these places is at the same addresses here. If not, the test says why; the
    /// only allowed reason is that the server has something else there.
    fn has_one_address(&self, test: &str, places: &[(usize, usize)]) -> bool {
        let theirs = mappings_of(self.peer.pid());
        let at = |addr: usize| theirs.iter().find(|mapping| (mapping.start..mapping.end).contains(&addr));
        let is_same = |(addr, _): &(usize, usize)| {
            let there = at(*addr).and_then(|mapping| mapping.object.clone());
            there.is_some() && there == object_at(*addr)
        };
        if places.iter().all(is_same) {
            return true;
        }
        let space = self.interface().space();
        let arena = space.aliases_base()..space.aliases_base() + space.aliases_len();
        let is_taken = theirs.iter().any(|mapping| mapping.start < arena.end && arena.start < mapping.end);
        assert!(is_taken, "the addresses from {:#x} on are free in the server, but not used", arena.start);
        skip(test, "the client's addresses are in use in the server's process");
        false
    }
}

/// A buffer with a pattern in it.
fn filled(interface: &Interface, seed: u64, len: usize) -> Buffer {
    let mut buffer = interface.allocate(len).expect("a buffer");
    buffer.copy_from_slice(&crate::support::bytes::pattern(seed, len));
    buffer
}

/// Opens a server in a peer, for as long as the link is there.
fn open(peer: &Peer, opening: Opening) -> Link {
    let link = peer.link();
    link.done(Ask::Open(opening));
    link
}

/// An opening with a pool of small granules and patience with aborted requests.
fn opening(name: &str, kind: Kind) -> Opening {
    Opening { abort_timeout: 10_000, ..Opening::new(name, kind, pool(GranuleKind::Base)) }
}

/// Connects to a peer's server.
fn connect(interface: &Interface, peer: &Peer, name: &str) -> ServerHandle {
    let connected = interface.connect_with(&peer.directory(), name, &ConnectOptions::default());
    connected.unwrap_or_else(|error| panic!("connecting to {name}: {error}"))
}

/// Waits until something is so.
#[track_caller]
fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}, after a while");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Whether page frames are shown; says so if not.
fn shows_frames(test: &str, buffer: &Buffer) -> bool {
    let addresses = buffer.addresses();
    let is_shown =
        crate::support::machine::frames(addresses.start, 1, crate::support::machine::PAGE).is_some();
    if !is_shown {
        skip(test, "page frames are hidden (CAP_SYS_ADMIN is missing)");
    }
    is_shown
}

/// Makes a test of each granule kind.
#[macro_export]
macro_rules! on_both_granules {
    ($($test:ident),* $(,)?) => {$(
        mod $test {
            #[test]
            fn huge() {
                let name = concat!(stringify!($test), "::huge");
                $crate::support::machine::proc::while_pages_stay(|| super::$test(name, genie_memory::GranuleKind::Huge));
            }

            #[test]
            fn base() {
                let name = concat!(stringify!($test), "::base");
                $crate::support::machine::proc::while_pages_stay(|| super::$test(name, genie_memory::GranuleKind::Base));
            }
        }
    )*};
}
