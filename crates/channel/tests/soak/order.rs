//! Orders: what a client asks a leaf to do, as the argument of its request's first buffer.

use genie_io::{Service, ServiceId};

use crate::random::Random;

/// Verifies output buffer 0 against the order's pattern.
pub(crate) const TAKE: ServiceId = ServiceId(0);
/// Makes the order's pattern in input buffer 0.
pub(crate) const GIVE: ServiceId = ServiceId(1);
/// Verifies output buffer 0, and makes the answer's pattern in input buffer 1.
pub(crate) const EXCHANGE: ServiceId = ServiceId(2);

/// The services of leaves; those of relays have the same numbers and no mapping flags.
pub(crate) static SERVICES: [Service; 3] = [
    Service::new("take", true, false),
    Service::new("give", false, true),
    Service::new("exchange", true, true),
];

/// The code of an error that was ordered.
pub(crate) const ORDERED: i32 = 77;

/// What a relay puts before the first output, where the order says so.
pub(crate) const HEADER: &[u8] = b"forwarded: ";

/// How the leaf is to behave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    /// It replies in the thread that took the request.
    Now,
    /// It replies later, from another thread.
    Later,
    /// It replies at once and reads later.
    Anticipate,
    /// It fills a buffer of its own first.
    Overlay,
    /// It replies with an error.
    Fail,
    /// It drops the request.
    Drop,
    /// It keeps the request until it is asked to let it go.
    Keep,
    /// It panics with the request in its hands.
    Panic,
    /// It keeps the request until it is asked to let it go, and panics then.
    KeepAndPanic,
}

const MANNERS: [Manner; 9] = [
    Manner::Now,
    Manner::Later,
    Manner::Anticipate,
    Manner::Overlay,
    Manner::Fail,
    Manner::Drop,
    Manner::Keep,
    Manner::Panic,
    Manner::KeepAndPanic,
];

/// One order.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Order {
    /// Names the pattern.
    pub(crate) seed: u64,
    pub(crate) manner: Manner,
    /// How long it takes, in milliseconds, unless it is done at once.
    pub(crate) delay: u8,
    /// Whether a relay put a header before the first output.
    pub(crate) is_headed: bool,
    /// The way on which relays forward it: each relay takes the last target away.
    route: [u8; 2],
    hops: u8,
}

impl Order {
    /// An order that goes this way; the first relay finds its target's number first.
    pub(crate) fn random(random: &mut Random, route: &[u8]) -> Self {
        let manner = match random.below(16) {
            0..6 => Manner::Now,
            6..9 => Manner::Later,
            9..11 => Manner::Anticipate,
            11 => Manner::Overlay,
            12 => Manner::Fail,
            13 => Manner::Drop,
            14 => Manner::Keep,
            _ => random.choose(&[Manner::Keep, Manner::Panic, Manner::KeepAndPanic]),
        };
        let mut order = Self {
            seed: random.next(),
            manner,
            delay: random.below(12) as u8,
            is_headed: false,
            route: [0; 2],
            hops: route.len() as u8,
        };
        for (place, target) in order.route.iter_mut().zip(route.iter().rev()) {
            *place = *target;
        }
        order
    }

    /// The order as an argument: 10 bytes long, if the way is direct.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let manner = MANNERS.iter().position(|manner| *manner == self.manner).expect("it is in the list");
        let flags = manner as u8 | if self.is_headed { 0x80 } else { 0 };
        let route = &self.route[..usize::from(self.hops)];
        [&self.seed.to_le_bytes()[..], &[flags, self.delay], route].concat()
    }

    pub(crate) fn decode(argument: &[u8]) -> Self {
        let (seed, rest) = argument.split_first_chunk().expect("an order begins with its seed");
        let [flags, delay, ways @ ..] = rest else { panic!("an order of {} bytes", argument.len()) };
        let mut route = [0; 2];
        route[..ways.len()].copy_from_slice(ways);
        Self {
            seed: u64::from_le_bytes(*seed),
            manner: MANNERS[usize::from(flags & 0x7f)],
            delay: *delay,
            is_headed: flags & 0x80 != 0,
            route,
            hops: ways.len() as u8,
        }
    }

    /// Takes the next target off the way.
    pub(crate) fn hop(&mut self) -> usize {
        self.hops = self.hops.checked_sub(1).expect("a way to go");
        usize::from(self.route[usize::from(self.hops)])
    }

    /// Whether only an abort ends it.
    pub(crate) fn is_kept(&self) -> bool {
        matches!(self.manner, Manner::Keep | Manner::KeepAndPanic)
    }

    /// Whether it comes by way of relays.
    pub(crate) fn is_relayed(&self) -> bool {
        self.hops > 0
    }

    /// Which pattern the leaf makes.
    pub(crate) fn answer(&self) -> u64 {
        self.seed ^ 0x5555
    }

    /// How many of `len` bytes the leaf passes: often all.
    pub(crate) fn actual(&self, len: usize) -> usize {
        match self.seed % 4 {
            0 => (self.seed >> 8) as usize % (len + 1),
            _ => len,
        }
    }
}
