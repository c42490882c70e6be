//! A sitting: for one length after the other, first the parties pass data, and then a client of the pooled server does.

use std::collections::BTreeMap;

use genie::Scheme;
use genie_passing::Recorder;

use super::pooled::Pooled;
use crate::error::{Error, Result};
use crate::experiment::{Options, Sitting, Step};
use crate::experiments::turns::transfer;
use crate::length;
use crate::measurement::{Measured, Quantity};
use crate::model::breakdown::Buffering;
use crate::model::measured::{GRANULE, Side};
use crate::operations::OperationTime;
use crate::parties::{Measure, Parties, Route, Transfer, Transferred};
use crate::samples::nanoseconds;
use fastrand::Rng;
use genie_net::Rate;

/// How often each scheme passes data shorter than `LONG`.
const ROUNDS: usize = 100;
const ROUNDS_LONG: usize = 40;
const ROUNDS_SMOKE: usize = 3;
/// Room for the operations of one request.
const RECORDS: usize = 64;
/// The shortest data that counts as long.
const LONG: usize = 4 << 20;
/// About how long one round of all schemes takes, and how much longer for each byte.
const ROUND_SECONDS: f64 = 0.0008;
const ROUND_SECONDS_A_BYTE: f64 = 3.7e-9;

/// The schemes that copy unless the client's memory is laid out like the pooled buffers.
const NATIVE: [Scheme; 4] = [Scheme::Copy, Scheme::EmulatedCopy, Scheme::Share, Scheme::EmulatedShare];

/// How many times each scheme passes data of this length, not counting the first, which warms up.
fn rounds(len: usize, smoke: bool) -> usize {
    match (smoke, len < LONG) {
        (true, _) => ROUNDS_SMOKE,
        (false, true) => ROUNDS,
        (false, false) => ROUNDS_LONG,
    }
}

/// About how long a step takes.
pub(super) fn seconds(len: usize, smoke: bool) -> f64 {
    (rounds(len, smoke) + 1) as f64 * (ROUND_SECONDS + ROUND_SECONDS_A_BYTE * len as f64)
}

/// The sitting.
pub(super) struct Operations<'o> {
    options: &'o Options,
    parties: Parties,
    random: Rng,
    /// The recorder of the pooled server's client.
    recorder: &'static Recorder,
}

/// Samples so far, by setting, series and quantity.
#[derive(Default)]
struct Collected(BTreeMap<(String, String, Quantity), Vec<u64>>);

impl<'o> Operations<'o> {
    /// Starts the parties.
    pub(super) fn open(options: &'o Options) -> Result<Self> {
        let longest = super::lengths(options).iter().copied().max().unwrap_or_default();
        let parties = Parties::open(options.granule, longest, Route::Device(Rate::Unlimited))?;
        let recorder = Recorder::new(RECORDS);
        Ok(Self { options, parties, random: Rng::with_seed(options.seed), recorder })
    }

    /// Has the parties pass data once by each scheme, in any order.
    fn demultiplexed(&mut self, len: usize, collected: &mut Collected) -> Result<()> {
        let mut schemes = Scheme::ALL;
        self.random.shuffle(&mut schemes);
        for scheme in schemes {
            if let Some(transferred) = self.transfer(scheme, len, Measure::Operations)? {
                for (side, times) in [Side::Sender, Side::Receiver].into_iter().zip(&transferred.operations) {
                    collected.add_times(side, scheme, Buffering::EarlyDemultiplexed, times);
                }
            }
        }
        if let Some(transferred) = self.transfer(Scheme::EmulatedShare, len, Measure::Latency)? {
            let latency = nanoseconds(transferred.latency);
            collected.add("", Scheme::EmulatedShare.name(), Quantity::Latency, latency);
        }
        Ok(())
    }

    /// Passes data; returns none where memory would have to be wired and may not be.
    fn transfer(&mut self, scheme: Scheme, len: usize, measure: Measure) -> Result<Option<Transferred>> {
        transfer(&mut self.parties, &Transfer { measure, ..Transfer::of(scheme, len) })
    }

    /// Receives data from the pooled server once by each scheme, into aligned and into unaligned buffers, in any order.
    fn pooled(&mut self, pooled: &mut Pooled, collected: &mut Collected) -> Result<()> {
        let aligned = Scheme::ALL.map(|scheme| (scheme, Buffering::PooledAligned));
        let unaligned = NATIVE.map(|scheme| (scheme, Buffering::PooledUnaligned));
        let mut inputs: Vec<_> = aligned.into_iter().chain(unaligned).collect();
        self.random.shuffle(&mut inputs);
        for (scheme, buffering) in inputs {
            let times = pooled.receive(scheme, buffering)?;
            collected.add_times(Side::Receiver, scheme, buffering, &times);
        }
        Ok(())
    }
}

impl Sitting for Operations<'_> {
    fn measure(&mut self, step: &Step) -> Result<Vec<Measured>> {
        let len = length::parse(&step.name).map_err(Error::Peer)?;
        let (mut collected, mut warming_up) = (Collected::default(), Collected::default());
        let rounds = rounds(len, self.options.smoke);
        self.demultiplexed(len, &mut warming_up)?;
        for _ in 0..rounds {
            self.demultiplexed(len, &mut collected)?;
        }
        let mut pooled = Pooled::open(self.options.granule, self.recorder, len)?;
        self.pooled(&mut pooled, &mut warming_up)?;
        for _ in 0..rounds {
            self.pooled(&mut pooled, &mut collected)?;
        }
        let granule = self.parties.granule() as u64;
        collected.add("", GRANULE, Quantity::Bytes, granule);
        Ok(collected.into_measured(len))
    }
}

impl Collected {
    fn add(&mut self, setting: &str, series: &str, quantity: Quantity, sample: u64) {
        self.0.entry((setting.to_owned(), series.to_owned(), quantity)).or_default().push(sample);
    }

    /// Adds the times of the operations that `scheme` itself ran.
    fn add_times(&mut self, side: Side, scheme: Scheme, buffering: Buffering, times: &[OperationTime]) {
        let how = match buffering {
            Buffering::EarlyDemultiplexed => "",
            Buffering::PooledAligned => ", pooled",
            Buffering::PooledUnaligned => ", pooled, unaligned",
        };
        let setting = format!("{}, {scheme}{how}", side.name());
        for time in times.iter().filter(|time| time.scheme == scheme.name()) {
            self.add(&setting, &time.row, Quantity::OperationTime, time.nanoseconds);
        }
    }

    fn into_measured(self, len: usize) -> Vec<Measured> {
        let measured = |((setting, series, quantity), samples): ((String, String, _), _)| {
            Measured::new(setting, series, len, quantity, samples)
        };
        self.0.into_iter().map(measured).collect()
    }
}
