//! Which granules an input swaps, by the thresholds and by what lies beside the data.
//!
//! Source: thesis §4.1.

use std::ops::Range;

use genie_memory::{LenderId, Part, Space};

use crate::{Passing, Reason};

impl Passing {
    /// Which granules an emulated-copy input of `len` bytes at `addr` from `server` swaps.
    pub(crate) fn swaps(&self, addr: usize, len: usize, server: LenderId) -> Range<u32> {
        let can_keep = self.space().at(addr).can_swap_partial_granules();
        self.swaps_of_part(addr..addr + len, Part::all(len), server, (false, can_keep))
    }

    /// Why an emulated-copy input of `len` bytes at `addr` from `server` swaps no granules.
    pub(super) fn why_copied(&self, addr: usize, len: usize, server: LenderId) -> Reason {
        let swaps = self.swaps_of_part(addr..addr + len, Part::all(len), server, (false, true));
        if swaps.is_empty() { Reason::Short } else { Reason::Neighbours }
    }

    /// Which granules `part` of an emulated-copy input to these addresses swaps. If it `completes` granules with zeros, it stores into
    /// all bytes beside the data; if it `can_keep` what the client has there, granules with such bytes are swapped, too.
    pub(crate) fn swaps_of_part(
        &self,
        all: Range<usize>,
        part: Part,
        server: LenderId,
        (completes, can_keep): (bool, bool),
    ) -> Range<u32> {
        let (space, rules) = self.at(all.start);
        let granule = space.granule();
        let start = all.start + part.at;
        let first = start & !(granule - 1);
        let skipped = (start / granule - all.start / granule) as u32;
        let forced = |index: u32| space.has_protected_output(first + index as usize * granule, granule);
        let beside = |index: u32| {
            let kept = space.bytes_beside(all.start, all.len(), skipped + index);
            let at = first + index as usize * granule;
            let data = all.end.min(at + granule) - all.start.max(at);
            (kept == 0 || can_keep).then_some(if completes { granule - data } else { kept })
        };
        rules.thresholds(server).swaps(granule, (start & (granule - 1), part.len), beside, forced)
    }

    /// The same of `len` bytes at `addr` in an immigrating region, where nothing lies beside the data, and no output is pending.
    pub(super) fn swaps_into_region(
        &self,
        space: &Space,
        addr: usize,
        len: usize,
        server: LenderId,
    ) -> Range<u32> {
        let granule = space.granule();
        let thresholds = self.rules(space).thresholds(server);
        thresholds.swaps(granule, (addr & (granule - 1), len), |_| Some(0), |_| false)
    }
}
