//! Traffic: a generator of payloads that can be told apart, and a sink that says what became of them.
//!
//! Why: what a network, an adapter or a server does to packets is found out from outside: by what comes of what was sent.
//! How: each payload begins with a stamp: its number, when it was sent, its length, and a checksum over all the rest. The sink is a
//! [`Station`]; payloads that come by another way are shown to it as frames without a header. Both go by a [`Clock`], whose time is the
//! same for all processes.
//! Trust: what arrives is anybody's. What has no stamp that is right counts as damaged.
//! Limits: the sink remembers each payload that it expects, by 24 bytes.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use genie_sys::fork::Maker;
use genie_sys::lock::Mutex;

use crate::checksum::{Checksum, Sum};
use crate::wire::{Clock, Station};
use crate::{Frame, Rate};

/// The shortest payload: a stamp.
pub const STAMP: usize = 24;
/// Where the checksum is in the stamp; it covers what is before it, and what is behind the stamp.
const SUM_AT: usize = 20;

/// Makes payloads.
#[derive(Debug, Clone)]
pub struct Generator {
    /// How long each is: at least [`STAMP`].
    pub len: usize,
    /// How many.
    pub count: u64,
    /// How fast they are sent.
    pub rate: Rate,
}

/// What a sink has found.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Tally {
    /// How many payloads have come, those that were damaged too.
    pub arrived: u64,
    /// How many of those that are expected have not come yet as they were sent.
    pub missing: u64,
    /// How many came that had come before.
    pub duplicated: u64,
    /// How many came first after one that was sent later.
    pub reordered: u64,
    /// How many came too short.
    pub truncated: u64,
    /// How many came with a stamp or bytes that are wrong.
    pub damaged: u64,
    /// For each that came as it was sent, in the order in which they first came: its number, and how long it was on its way.
    pub latencies: Vec<(u64, Duration)>,
}

/// Takes payloads. Clones are handles of the same sink.
#[derive(Debug, Clone)]
pub struct Sink(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    clock: Clock,
    /// How long the headers are in front of payloads.
    header: usize,
    found: Mutex<Found>,
    maker: Maker,
}

#[derive(Debug)]
struct Found {
    tally: Tally,
    /// Which payloads have come.
    come: Vec<bool>,
    /// One more than the highest number that has come.
    latest: u64,
}

impl Generator {
    /// Makes payload `number`, which is sent now.
    ///
    /// # Panics
    /// When there is no room for a stamp.
    pub fn fill(number: u64, now: Duration, payload: &mut [u8]) {
        let len = payload.len() as u32;
        Rng::with_seed(number).fill(&mut payload[STAMP..]);
        payload[..8].copy_from_slice(&number.to_le_bytes());
        payload[8..16].copy_from_slice(&(now.as_nanos() as u64).to_le_bytes());
        payload[16..SUM_AT].copy_from_slice(&len.to_le_bytes());
        let mut sum = Sum::new(Checksum::Crc32c);
        sum.add(&payload[..SUM_AT]);
        sum.add(&payload[STAMP..]);
        payload[SUM_AT..STAMP].copy_from_slice(&sum.finish().to_le_bytes());
    }

    /// Has all payloads sent by `send`, each when its time has come, or as soon as it can be after that: a stepped clock goes on by
    /// these calls.
    ///
    /// # Errors
    /// The first of `send`'s.
    pub fn run<E>(&self, clock: &Clock, mut send: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        let (begun, mut payload) = (clock.now(), vec![0; self.len]);
        for number in 0..self.count {
            clock.wait_until(begun + self.rate.time(number * self.len as u64));
            Self::fill(number, clock.now(), &mut payload);
            send(&payload)?;
        }
        Ok(())
    }
}

impl Sink {
    /// A sink that expects the first `count` payloads of a generator, behind headers of `header` bytes.
    pub fn new(count: u64, header: usize, clock: Clock) -> Self {
        let tally = Tally { missing: count, ..Tally::default() };
        let found = Mutex::new(Found { tally, come: vec![false; count as usize], latest: 0 });
        Self(Arc::new(Inner { clock, header, found, maker: Maker::this_process() }))
    }

    /// What it has found so far.
    ///
    /// In a child made by fork, it is what it was then; nothing while a thread was inside.
    pub fn tally(&self) -> Tally {
        self.0.found.lock_made_by(self.0.maker).map_or_else(Tally::default, |found| found.tally.clone())
    }
}

impl Station for Sink {
    fn arrive(&self, frame: &Frame<'_>) {
        // In a child made by fork, a thread that is not there may have the lock.
        if !self.0.maker.is_this_process() {
            return;
        }
        let (now, header) = (self.0.clock.now(), self.0.header);
        let mut stamp = [0; STAMP];
        let is_stamped = frame.read(header, &mut stamp) == STAMP;
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| stamp[at + byte]));
        let (number, sent, len, sum) = (word(0), word(8), word(16) as u32 as usize, (word(16) >> 32) as u32);
        let is_whole = is_stamped && frame.len() - header >= len;
        let is_right = is_whole && len >= STAMP && {
            let mut found = Sum::new(Checksum::Crc32c);
            found.add(&stamp[..SUM_AT]);
            frame.sum(header + STAMP..header + len, &mut found);
            found.finish() == sum
        };
        let mut found = self.0.found.lock();
        found.tally.arrived += 1;
        if !is_whole {
            found.tally.truncated += 1;
        } else if !is_right || number >= found.come.len() as u64 {
            found.tally.damaged += 1;
        } else {
            found.note(number, now.saturating_sub(Duration::from_nanos(sent)));
        }
    }
}

impl Found {
    /// A payload has come as it was sent.
    fn note(&mut self, number: u64, latency: Duration) {
        if std::mem::replace(&mut self.come[number as usize], true) {
            self.tally.duplicated += 1;
            return;
        }
        self.tally.missing -= 1;
        self.tally.reordered += u64::from(number < self.latest);
        self.latest = self.latest.max(number);
        self.tally.latencies.push((number, latency));
    }
}
