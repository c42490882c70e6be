//! The checker: every granule is in exactly one place, and every count adds up.
//!
//! Source: thesis §3.2.2; run by tests after each step, and by anyone who doubts.

use std::fmt;

use crate::granule::Place;
use crate::space::Space;

/// Where a space's granules are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// In regions, queued ones included.
    pub regions: u32,
    /// Of these, in emigrant and weak emigrant regions that wait for reuse.
    pub queued: u32,
    /// In system buffers in use.
    pub system: u32,
    /// In system buffers kept for reuse, and cut into chunks.
    pub pooled: u32,
    /// Given up, but referenced by a pending request.
    pub deferred: u32,
    /// On the free list.
    pub free: u32,
    /// References by pending inputs and outputs.
    pub references: u32,
    /// Memory objects.
    pub objects: u32,
}

/// What the checker found wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckFailed(pub Vec<String>);

impl fmt::Display for CheckFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the granule books do not add up: {}", self.0.join("; "))
    }
}

impl std::error::Error for CheckFailed {}

impl Space {
    /// Verifies that each granule is in exactly one of a region, a system buffer, the pool, deferral or the free list.
    ///
    /// # Errors
    /// Every contradiction found, as a sentence.
    ///
    /// # Cost
    /// Looks at every granule and slot under the lock; for tests.
    pub fn check(&self) -> Result<Usage, CheckFailed> {
        let state = self.core().lock();
        let total = state.granules.len();
        let mut places: Vec<Vec<&'static str>> = vec![Vec::new(); total as usize];
        for (number, slot) in state.slots.iter() {
            if let Some(id) = slot.granule {
                places[id as usize].push("region");
                if state.granules.get(id).place != (Place::Region { slot: number }) {
                    places[id as usize].push("region with another slot");
                }
            }
        }
        state.granules.free_numbers().for_each(|id| places[id as usize].push("free list"));
        state.pool.granules().for_each(|id| places[id as usize].push("pool"));
        state.pool.cut().iter().for_each(|id| places[*id as usize].push("pool"));

        let mut usage = Usage { objects: state.objects() as u32, system: state.in_use, ..Usage::default() };
        let mut wrong = Vec::new();
        let mut in_use = 0;
        for (id, granule) in state.granules.iter() {
            usage.references += granule.inputs + granule.outputs;
            let expected = match (granule.place, places[id as usize].as_slice()) {
                (Place::Region { .. }, ["region"]) => &mut usage.regions,
                (Place::Free, ["free list"]) if granule.inputs + granule.outputs == 0 => &mut usage.free,
                (Place::System, ["pool"]) => &mut usage.pooled,
                (Place::System, []) => &mut in_use,
                (Place::Deferred, []) if granule.inputs + granule.outputs > 0 => &mut usage.deferred,
                (place, found) => {
                    wrong.push(format!("granule {id} is {place:?} and found in {found:?}: {granule:?}"));
                    continue;
                }
            };
            *expected += 1;
        }
        for region in state.queues.iter() {
            usage.queued += state.regions.get(region).map_or(0, |region| region.slots.len);
        }
        let mapped: u32 = state.regions.iter().map(|(_, region)| region.slots.len).sum();
        for (what, count, expected) in [
            ("granules of system buffers in use", in_use, usage.system),
            ("deferred granules", usage.deferred, state.granules.deferred()),
            ("granules of regions", usage.regions, mapped),
            ("free granules", usage.free, state.granules.free()),
        ] {
            if count != expected {
                wrong.push(format!("{count} {what}, but {expected} are booked"));
            }
        }
        if wrong.is_empty() { Ok(usage) } else { Err(CheckFailed(wrong)) }
    }
}
