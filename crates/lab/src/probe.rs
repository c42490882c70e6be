//! The CPU on which measurements run, and how near another CPU is at the moment.
//!
//! Why: the host of a virtual machine moves its CPUs. Measurements with unlike placement are kept apart.

use std::sync::OnceLock;
use std::time::Duration;

use genie_sys::machine::{self, Pinned};

use crate::error::{Error, Result};
use crate::placement::Placement;

/// Enough round trips to even out the scheduler's delays, and over in about a millisecond.
const ROUND_TRIPS: u32 = 2_000;

/// The CPUs that this process had when it was first asked: a thread that has been pinned since then sees only one CPU.
///
/// # Errors
/// There is no CPU.
pub fn cpus() -> Result<&'static [usize]> {
    static CPUS: OnceLock<Vec<usize>> = OnceLock::new();
    if CPUS.get().is_none() {
        let _ = CPUS.set(machine::allowed_cpus()?);
    }
    CPUS.get().map(Vec::as_slice).filter(|cpus| !cpus.is_empty()).ok_or(Error::NoCpu)
}

/// The CPU of this thread and of all threads that it starts, and another CPU.
#[derive(Debug)]
pub struct Probe {
    here: usize,
    other: Option<usize>,
    _pinned: Pinned,
}

impl Probe {
    /// Pins this thread to the last CPU that it may use: the first CPUs serve most interrupts.
    pub fn pin() -> Result<Self> {
        let [rest @ .., here] = cpus()? else {
            return Err(Error::NoCpu);
        };
        let pinned = machine::pin_thread(*here)?;
        Ok(Self { here: *here, other: rest.last().copied(), _pinned: pinned })
    }

    /// The CPU of this thread.
    pub fn here(&self) -> usize {
        self.here
    }

    /// The other CPU, for a party that works at the same time.
    pub fn other(&self) -> Option<usize> {
        self.other
    }

    /// The round trip of a cache line between the two CPUs, where there are two.
    pub fn round_trip(&self) -> Option<Duration> {
        // If the other CPU was taken away meanwhile, there is no round trip.
        self.other.and_then(|other| machine::ping_pong(self.here, other, ROUND_TRIPS).ok())
    }
}

/// The placement that most of these have; in a tie, that of the first. None where there is one CPU.
pub fn majority(placements: impl Iterator<Item = Option<Placement>>) -> Option<Placement> {
    let placements: Vec<_> = placements.collect();
    let count = |one: &Option<Placement>| placements.iter().filter(|other| *other == one).count();
    let most = placements.iter().map(count).max()?;
    placements.iter().find(|one| count(one) == most).copied().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use Placement::{Far, Near};

    #[test]
    fn the_majority_wins_and_a_tie_goes_to_the_first() {
        assert_eq!(majority([Some(Near), Some(Far), Some(Far)].into_iter()), Some(Far));
        assert_eq!(majority([Some(Far), Some(Near)].into_iter()), Some(Far));
        assert_eq!(majority([None, None].into_iter()), None);
        assert_eq!(majority([].into_iter()), None);
    }
}
