//! Calibration: measuring the primitive operations of table 8.2 on this machine, and remembering the result.
//!
//! How: each operation is run on real buffers of a space at a few lengths. The operations take turns, so that a quiet
//! moment of the machine favours none of them. Lines are fitted to the medians. Two threads on two CPUs measure what waking
//! a sleeper costs, and over how many system buffers to rotate. The costs are stored as JSON in the user's cache directory,
//! one file for each machine, kernel, processor and granule kind.
//! Source: thesis §8.2.2, table 8.2.

mod between;
mod measure;
mod pair;
mod rotation;
mod store;

pub use measure::{Effort, measure};
pub use store::{load, path, store};

use genie_memory::{Result, Space};

use crate::Costs;
use pair::Pair;

/// The stored costs for this machine and this space's granule kind. If there are none, runs a quick calibration and
/// stores its costs. If the thread that measured the stored costs was held on one CPU, or could have no second thread,
/// the costs lack what two CPUs measure; a thread that may use two CPUs measures them again.
///
/// # Errors
/// The calibration ran out of memory. A cache that cannot be read or written is no error: the costs are measured again.
pub fn load_or_measure(space: &Space) -> Result<Costs> {
    let lacks_wake = |costs: &Costs| costs.wake.points.is_empty() && Pair::of_this_thread().is_some();
    if let Some(costs) = load(space).filter(|costs| !lacks_wake(costs)) {
        return Ok(costs);
    }
    let costs = measure(space, Effort::Quick)?;
    let _ = store(space, &costs);
    Ok(costs)
}
