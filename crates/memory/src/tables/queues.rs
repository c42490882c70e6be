//! Queues: regions that migrant buffers, or the allocator's blocks, have left, kept for the next ones.
//!
//! Invariants: a region in a queue belongs to nobody, and holds no granules of a lender that is gone.
//! Limits: migrant buffers' queues together keep [`MIGRANTS_KEPT`] bytes in granules of each size, or `Config::pool` if that is
//! less, and blocks' queue what the allocator says. Beyond that the region that has waited longest is removed.
//! Source: thesis §3.3 (region caching, region hiding).

use std::collections::VecDeque;

use crate::Mark;
use crate::tables::regions::RegionId;

/// Regions are reused only for buffers of as many granules, so regions of lengths that never come again would take all the memory
/// that queues may keep. This is enough for four regions of 16 MiB.
pub(crate) const MIGRANTS_KEPT: usize = 64 << 20;

/// Regions kept for reuse.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    /// Emigrant and weak emigrant ones.
    migrants: Queue,
    /// Those of blocks that were freed.
    natives: Queue,
}

/// Regions that share a limit, the most recent last.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    regions: VecDeque<Queued>,
    granules: u32,
}

#[derive(Debug)]
struct Queued {
    region: RegionId,
    granules: u32,
    mark: Mark,
}

impl Queue {
    pub(crate) fn push(&mut self, region: RegionId, granules: u32, mark: Mark) {
        self.regions.push_back(Queued { region, granules, mark });
        self.granules += granules;
    }

    /// Takes the most recent region of this many granules with this mark.
    pub(crate) fn take(&mut self, granules: u32, mark: Mark) -> Option<RegionId> {
        let fits = |queued: &Queued| queued.granules == granules && queued.mark == mark;
        let at = self.regions.iter().rposition(fits)?;
        self.granules -= granules;
        self.regions.remove(at).map(|queued| queued.region)
    }

    /// Takes the region that has waited longest, when more granules wait than are to be kept; never the last one.
    pub(crate) fn take_excess(&mut self, limit: u32) -> Option<RegionId> {
        if self.granules <= limit || self.regions.len() < 2 {
            return None;
        }
        let oldest = self.regions.pop_front()?;
        self.granules -= oldest.granules;
        Some(oldest.region)
    }
}

impl Queues {
    /// The queue that regions with this mark are in.
    pub(crate) fn of(&mut self, mark: Mark) -> &mut Queue {
        match mark {
            Mark::Emigrant | Mark::WeakEmigrant => &mut self.migrants,
            Mark::Native => &mut self.natives,
            Mark::Immigrant | Mark::Immigrating | Mark::Emigrating => {
                unreachable!("regions marked {mark} are in no queue")
            }
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = RegionId> {
        self.migrants.regions.iter().chain(&self.natives.regions).map(|queued| queued.region)
    }
}
