//! Slots: the granule-sized places of a space's window arena, where clients see their granules.
//!
//! Invariants: a slot that belongs to a region or to a pooled window maps exactly one granule; a slot marked protected
//! is write-protected in the page tables.

use crate::runs::{FreeRuns, Run};

/// One granule-sized place.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Slot {
    /// The granule mapped here.
    pub(crate) granule: Option<u32>,
    /// The region that the slot belongs to.
    pub(crate) region: Option<u32>,
    /// Whether stores fault.
    pub(crate) protected: bool,
}

/// All slots; those that were never used are not stored.
#[derive(Debug)]
pub(crate) struct Slots {
    table: Vec<Slot>,
    free: FreeRuns,
}

impl Slots {
    pub(crate) fn new(count: u32) -> Self {
        let mut free = FreeRuns::default();
        free.give(Run { start: 0, len: count });
        Self { table: Vec::new(), free }
    }

    /// Takes a run of addresses.
    pub(crate) fn take(&mut self, len: u32, align: u32) -> Option<Run> {
        let run = self.free.take(len, align)?;
        if self.table.len() < run.end() as usize {
            self.table.resize(run.end() as usize, Slot::default());
        }
        Some(run)
    }

    /// Gives a run of addresses back; nothing may be mapped there.
    pub(crate) fn give(&mut self, run: Run) {
        self.table[run.start as usize..run.end() as usize].fill(Slot::default());
        self.free.give(run);
    }

    pub(crate) fn get(&self, slot: u32) -> Slot {
        self.table.get(slot as usize).copied().unwrap_or_default()
    }

    pub(crate) fn get_mut(&mut self, slot: u32) -> &mut Slot {
        &mut self.table[slot as usize]
    }

    pub(crate) fn run(&self, run: Run) -> &[Slot] {
        &self.table[run.start as usize..run.end() as usize]
    }

    pub(crate) fn run_mut(&mut self, run: Run) -> &mut [Slot] {
        &mut self.table[run.start as usize..run.end() as usize]
    }

    /// The slots that were ever used.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Slot)> {
        (0..).zip(&self.table)
    }
}
