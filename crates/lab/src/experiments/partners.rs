//! Experiments with fbufs: this process, pinned to a CPU, and partners of it in other processes.
//!
//! Why: what it costs to pass a buffer depends on where the other process runs. On another CPU, both work at once, and a wait
//! ends with a cache line that comes; on the same CPU, each wait is a switch between the processes. A scheduler may choose
//! either, so both are measured.

use std::time::Duration;

use genie_fbufs::Pool;

use crate::error::{Error, Result};
use crate::probe::Probe;
use crate::transport::{self, Means, Partner};
use fastrand::Rng;

/// The settings in which two processes are, those that are alike first.
pub(super) const PLACES: [&str; 2] = ["a CPU each", "one CPU"];

/// A pool, and a partner for each place that this machine has.
pub(super) struct Partners {
    partners: Vec<(&'static str, Partner)>,
    pub(super) pool: Pool,
    _probe: Probe,
}

impl Partners {
    /// Pins this thread, and starts partners that have all these means.
    ///
    /// # Errors
    /// A process does not start, or there is no memory.
    pub(super) fn open(means: &[Means]) -> Result<Self> {
        let probe = Probe::pin()?;
        let pool = Pool::new(transport::config())?;
        let seats = PLACES.into_iter().zip([probe.other(), Some(probe.here())]);
        let seats = seats.filter_map(|(place, cpu)| Some((place, cpu?)));
        let partners = seats.map(|(place, cpu)| Ok((place, Partner::open(cpu, means, &pool)?)));
        Ok(Self { partners: partners.collect::<Result<_>>()?, pool, _probe: probe })
    }

    /// The places of the partners.
    pub(super) fn places(&self) -> Vec<&'static str> {
        self.partners.iter().map(|(place, _)| *place).collect()
    }

    /// The partner at a place.
    pub(super) fn at(&mut self, place: &str) -> Result<&mut Partner> {
        let partner = self.partners.iter_mut().find(|(there, _)| *there == place);
        partner.map(|(_, partner)| partner).ok_or(Error::NoCpu)
    }
}

/// Has subjects take turns, each round in another order. The first round is to warm up. Returns the samples of each subject.
///
/// # Errors
/// Those of `turn`, which makes one subject's turn.
pub(super) fn take_turns<T>(
    subjects: usize,
    rounds: usize,
    seed: u64,
    mut turn: impl FnMut(usize) -> Result<Vec<T>>,
) -> Result<Vec<Vec<T>>> {
    let mut random = Rng::with_seed(seed);
    let mut order: Vec<usize> = (0..subjects).collect();
    let mut samples: Vec<Vec<T>> = (0..subjects).map(|_| Vec::new()).collect();
    for round in 0..=rounds {
        random.shuffle(&mut order);
        for &index in &order {
            let taken = turn(index)?;
            if round > 0 {
                samples[index].extend(taken);
            }
        }
    }
    Ok(samples)
}

/// A time, divided among so many, in nanoseconds.
pub(super) fn each(time: Duration, count: usize) -> u64 {
    crate::samples::nanoseconds(time) / count.max(1) as u64
}
