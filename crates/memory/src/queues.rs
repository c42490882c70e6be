//! Queues: regions that migrant buffers, or the allocator's blocks, have left, kept for the next ones.
//!
//! Invariants: a region in a queue belongs to nobody, and holds no granules of a lender that is gone.
//! Limits: a queue keeps `Config::pool` bytes; beyond that the region that has waited longest is removed.
//! Source: thesis §3.3 (region caching, region hiding).

use crate::space::{Core, State};
use crate::{LenderId, Mark, RegionId};

/// Regions kept for reuse.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    emigrant: Queue,
    weak_emigrant: Queue,
    /// Those of blocks that were freed.
    native: Queue,
}

/// Regions of one mark, each with its number of granules, the most recent last.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    regions: Vec<(RegionId, u32)>,
    granules: u32,
}

impl Queue {
    pub(crate) fn push(&mut self, region: RegionId, granules: u32) {
        self.regions.push((region, granules));
        self.granules += granules;
    }

    /// Takes the most recent region of this many granules.
    pub(crate) fn take(&mut self, granules: u32) -> Option<RegionId> {
        let at = self.regions.iter().rposition(|(_, len)| *len == granules)?;
        self.granules -= granules;
        Some(self.regions.remove(at).0)
    }

    /// Takes the region that has waited longest, when more granules wait than are to be kept; never the last one.
    pub(crate) fn take_excess(&mut self, limit: u32) -> Option<RegionId> {
        if self.granules <= limit || self.regions.len() < 2 {
            return None;
        }
        let (region, granules) = self.regions.remove(0);
        self.granules -= granules;
        Some(region)
    }
}

impl Queues {
    /// The queue of regions with this mark.
    pub(crate) fn of(&mut self, mark: Mark) -> &mut Queue {
        match mark {
            Mark::Emigrant => &mut self.emigrant,
            Mark::WeakEmigrant => &mut self.weak_emigrant,
            Mark::Native => &mut self.native,
            Mark::Immigrant | Mark::Immigrating | Mark::Emigrating => {
                unreachable!("regions marked {mark} are in no queue")
            }
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = RegionId> {
        let queues = [&self.emigrant, &self.weak_emigrant, &self.native];
        queues.into_iter().flat_map(|queue| &queue.regions).map(|(region, _)| *region)
    }
}

impl State {
    /// Whether a region holds granules of a lender that is gone, and so should not last.
    pub(crate) fn holds_leftovers(&self, region: RegionId) -> bool {
        if self.granules.lent_objects.all_stay() {
            return false;
        }
        let Some(region) = self.regions.get(region) else { return false };
        let mut granules = self.slots.run(region.slots).filter_map(|slot| slot.granule);
        granules.any(|id| !self.granules.belongs(id, LenderId::OWN))
    }

    /// Removes the regions in the queues.
    pub(crate) fn flush_queues(&mut self, core: &Core) {
        let queued: Vec<_> = self.queues.iter().collect();
        self.queues = Queues::default();
        for region in queued {
            // When the kernel cannot unmap, the addresses stay reserved; the granules are free all the same.
            let _ = self.remove_region(core, region);
        }
    }

    /// Whether one of the granules that `of` selects is in a region kept for reuse.
    pub(crate) fn is_queued(&self, of: impl Fn(u32) -> bool) -> bool {
        let queued = self.queues.iter().filter_map(|region| self.regions.get(region));
        queued.flat_map(|region| self.slots.run(region.slots)).filter_map(|slot| slot.granule).any(of)
    }
}
