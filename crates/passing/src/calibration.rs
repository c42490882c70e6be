//! Calibration: measuring the primitive operations of table 8.2 on this machine, and remembering the result.
//!
//! How: each operation is run on real buffers of a space at a few lengths. The operations take turns, so that a quiet
//! moment of the machine favours none of them. Lines are fitted to the medians. Two threads on two CPUs measure what waking
//! a sleeper costs, and over how many system buffers to rotate. The costs are stored as JSON in the user's cache directory,
//! one file for each machine, kernel, processor and granule kind, together with how they were measured: under which load,
//! and by what build.
//! Source: thesis §8.2.2, table 8.2.

mod between;
mod circumstances;
mod effort;
mod measure;
mod pair;
mod rotation;
mod store;

pub use circumstances::{Circumstances, Measured};
pub use effort::Effort;
pub use measure::measure;
pub use store::{load, path, store};

use genie_memory::{Config, Faults, Granularity, Protection, Result, Space};
use genie_sys::cgroup;

use crate::Costs;
use pair::Pair;

/// The most memory that is measured with; as much as the longest rotation of buffers takes.
const MEMORY: usize = 64 << 20;
/// The part of what the process's memory cgroup leaves that each of the measurements' two spaces may take.
const ROOM_PART: usize = 4;

/// The stored costs for this machine and this space's granule kind. If there are none, runs a quick calibration and
/// stores its costs. If the thread that measured the stored costs was held on one CPU, or could have no second thread,
/// the costs lack what two CPUs measure; a thread that may use two CPUs measures them again.
///
/// What is measured is a space like this one, which gives its memory back. Where the process's memory cgroup leaves little,
/// only short lengths are measured, and what they cost is not stored. Where there is too little memory for any, costs are
/// unknown, and there is none: then everything is copied. A cache that cannot be read or written only means that costs are measured
/// again.
pub fn load_or_measure(space: &Space) -> Option<Measured> {
    let lacks_wake = |costs: &Costs| costs.wake.points.is_empty() && Pair::of_this_thread().is_some();
    if let Some(stored) = load(space).filter(|stored| !lacks_wake(&stored.costs)) {
        return Some(stored);
    }
    let room = cgroup::tightest().map_or(usize::MAX, |cgroup| cgroup.left() as usize);
    let memory = MEMORY.min(space.limit()).min(room / ROOM_PART);
    let measured = like(space, memory).and_then(|like| measure(&like, Effort::Quick)).ok()?;
    if memory == MEMORY.min(space.limit()) {
        let _ = store(space, &measured);
    }
    Some(measured)
}

/// Makes a space of the same granules, whose stores are caught in the same way.
fn like(space: &Space, limit: usize) -> Result<Space> {
    Space::new(&Config {
        granularity: Granularity::Only(store::kind(space)),
        limit,
        faults: space.fault_way().map_or(Faults::Never, Faults::Only),
        kernel_never_stores: space.protection() == Protection::StoresOnly,
        pool: limit,
    })
}
