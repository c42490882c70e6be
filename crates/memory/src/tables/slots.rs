//! Slots: the granule-sized places of a space's window arena, where clients see their granules.
//!
//! Invariants: a slot that belongs to a region maps exactly one granule; a slot marked protected is write-protected in
//! the page tables; the count of protected slots, which may be read without the space's lock, is never less than the
//! number of slots marked protected.
//! Limits: entries are 8 bytes, so that the slots of a 16 MiB buffer of huge pages are one cache line.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::Result;
use crate::tables::room::reserve;
use crate::tables::runs::{FreeRuns, Run};

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

/// A slot as it is stored: numbers plus one, so that zero is none, and the protection in the region's highest bit.
#[derive(Debug, Clone, Copy, Default)]
struct Entry {
    granule: u32,
    region: u32,
}

const PROTECTED: u32 = 1 << 31;

impl Entry {
    fn pack(slot: Slot) -> Self {
        let number = |number: Option<u32>| number.map_or(0, |number| number + 1);
        let region = number(slot.region);
        debug_assert!(region < PROTECTED, "fewer than 2^31 regions");
        Self { granule: number(slot.granule), region: region | if slot.protected { PROTECTED } else { 0 } }
    }

    fn unpack(self) -> Slot {
        Slot {
            granule: self.granule.checked_sub(1),
            region: (self.region & !PROTECTED).checked_sub(1),
            protected: self.is_protected(),
        }
    }

    fn is_protected(self) -> bool {
        self.region & PROTECTED != 0
    }
}

/// All slots; those that were never used are not stored.
#[derive(Debug)]
pub(crate) struct Slots {
    table: Vec<Entry>,
    free: FreeRuns,
    protected: Arc<AtomicU32>,
}

impl Slots {
    /// Slots that are all free; `protected` will count those protected.
    pub(crate) fn new(count: u32, protected: Arc<AtomicU32>) -> Self {
        let mut free = FreeRuns::default();
        free.give(Run { start: 0, len: count });
        Self { table: Vec::new(), free, protected }
    }

    /// All slots that were ever used.
    pub(crate) fn used(&self) -> std::ops::Range<u32> {
        0..self.table.len() as u32
    }

    /// Takes a run of addresses, if there is one.
    ///
    /// # Errors
    /// The table has no room; nothing was taken.
    pub(crate) fn take(&mut self, len: u32, align: u32) -> Result<Option<Run>> {
        let taken = self.free.take(len, align);
        self.enter(taken)
    }

    /// Takes this run of addresses, if all of it is free; otherwise as [`Slots::take`].
    #[cfg(feature = "allocator")]
    pub(crate) fn take_at(&mut self, run: Run) -> Result<bool> {
        let taken = self.free.take_chosen(run.len, |free| {
            (free.start <= run.start && run.end() <= free.end()).then_some(run.start)
        });
        Ok(self.enter(taken)?.is_some())
    }

    /// Has entries in the table for a run that was taken.
    fn enter(&mut self, taken: Option<Run>) -> Result<Option<Run>> {
        let Some(run) = taken else { return Ok(None) };
        let len = run.end() as usize;
        if self.table.len() < len {
            reserve(&mut self.table, len).inspect_err(|_| self.free.give(run))?;
            self.table.resize(len, Entry::default());
        }
        Ok(taken)
    }

    /// Gives a run of addresses back; nothing may be mapped there.
    pub(crate) fn give(&mut self, run: Run) {
        self.clear(run);
        self.free.give(run);
    }

    /// Forgets what a run of slots shows.
    pub(crate) fn clear(&mut self, run: Run) {
        run.numbers().for_each(|slot| self.set(slot, Slot::default()));
    }

    pub(crate) fn get(&self, slot: u32) -> Slot {
        self.table.get(slot as usize).map_or_else(Slot::default, |entry| entry.unpack())
    }

    pub(crate) fn set(&mut self, slot: u32, to: Slot) {
        let entry = &mut self.table[slot as usize];
        let before = std::mem::replace(entry, Entry::pack(to)).is_protected();
        self.count(u32::from(to.protected), u32::from(before));
    }

    /// Marks a run of slots protected or not; returns how many marks changed.
    pub(crate) fn set_protected(&mut self, run: Run, protected: bool) -> u32 {
        let mut changed = 0;
        for entry in &mut self.table[run.start as usize..run.end() as usize] {
            changed += u32::from(entry.is_protected() != protected);
            *entry = Entry::pack(Slot { protected, ..entry.unpack() });
        }
        if protected {
            self.count(changed, 0)
        } else {
            self.count(0, changed)
        }
        changed
    }

    /// Shows another granule, writable, at a slot; returns the granule that was there before.
    pub(crate) fn show(&mut self, slot: u32, granule: u32) -> Option<u32> {
        let before = self.get(slot);
        self.set(slot, Slot { granule: Some(granule), protected: false, ..before });
        before.granule
    }

    pub(crate) fn run(&self, run: Run) -> impl Iterator<Item = Slot> + '_ {
        self.table[run.start as usize..run.end() as usize].iter().map(|entry| entry.unpack())
    }

    /// The granules that a run of slots shows.
    pub(crate) fn granules(&self, run: Run) -> impl Iterator<Item = u32> + '_ {
        self.run(run).filter_map(|slot| slot.granule)
    }

    /// The slots that were ever used.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, Slot)> {
        (0..).zip(self.table.iter().map(|entry| entry.unpack()))
    }

    fn count(&self, more: u32, less: u32) {
        // Relaxed: the thread that now delivers into a slot is the thread that protected it, or has synchronized with that
        // thread.
        if more != less {
            self.protected.fetch_add(more.wrapping_sub(less), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_hold_what_was_put_in() {
        for granule in [None, Some(0), Some(7), Some(u32::MAX - 1)] {
            for region in [None, Some(0), Some((1 << 31) - 2)] {
                for protected in [false, true] {
                    let slot = Slot { granule, region, protected };
                    assert_eq!(Entry::pack(slot).unpack(), slot);
                }
            }
        }
    }

    #[test]
    fn protected_slots_are_counted_whichever_way_they_end() {
        let protected = Arc::new(AtomicU32::new(0));
        let count = || protected.load(Ordering::Relaxed);
        let mut slots = Slots::new(16, Arc::clone(&protected));
        let run = slots.take(8, 1).unwrap().unwrap();
        for slot in run.numbers() {
            slots.set(slot, Slot { granule: Some(slot), region: Some(1), protected: false });
        }
        assert_eq!((slots.set_protected(run, true), count()), (8, 8));
        assert_eq!((slots.set_protected(run, true), count()), (0, 8));
        assert_eq!((slots.set_protected(Run { start: 0, len: 2 }, false), count()), (2, 6));
        assert_eq!((slots.show(2, 99), count()), (Some(2), 5));
        slots.clear(Run { start: 0, len: 4 });
        assert_eq!(count(), 4);
        slots.give(run);
        assert_eq!(count(), 0);
    }
}
