//! Replacement: showing a client copies of granules into which it stores while outputs from them are pending.
//!
//! Why: a fault takes as long as copying some hundred kilobytes. A client that overwrites all of a long buffer would fault for
//! each granule of 4 KiB, and pay many times for what a copy at the request would have cost once.
//! How: a store replaces the granule that it hits. If it hits the granule after one that has been replaced, the granules that
//! follow are replaced as well, [`OVERWRITTEN`] bytes at once.
//! Source: thesis §4.2, which replaces single pages.

use std::sync::atomic::Ordering::Relaxed;

use crate::space::{Core, State};
use crate::tables::granule::Place;
use crate::tables::runs::Run;
use crate::{Direction, LenderId, Result, aliases};

/// How many bytes of small granules are replaced at once where the client seems to overwrite its data.
const OVERWRITTEN: usize = 256 << 10;
/// Copying and mapping so many granules of 4 KiB takes as long as a fault that replaces one. Measured: 16 MiB that were
/// overwritten took 9 ms longer, and 85 ms where each granule faulted (Linux 6.18, Xeon).
const GRANULES_PER_FAULT: u64 = 8;

/// How many granules are replaced at once, at most.
pub(crate) fn most_at_once(core: &Core) -> u32 {
    (OVERWRITTEN / core.granule()).max(1) as u32
}

/// Finds the granule at a slot, if an output is pending from it that a store there must not reach.
pub(crate) type Pending = fn(&State, u32) -> Option<u32>;

/// A granule, shown at a slot, and the free one that is to be shown there.
#[derive(Debug, Clone, Copy)]
struct Replacement {
    slot: u32,
    granule: u32,
    fresh: u32,
}

impl Core {
    /// Replaces the granules at `slots` by copies of theirs, as far as they are still protected for a pending output, and wakes
    /// the threads that wait to store at the first of them.
    ///
    /// # Errors
    /// No granule or mapping is left for one of them, which is as it was before.
    pub(crate) fn replace(&self, slots: Run) -> Result<()> {
        self.replace_while(slots, State::pending_output)
    }

    /// The same while `pending` finds the granules.
    ///
    /// The copying runs without the lock. An extra output reference, held from before the copying until after it, keeps
    /// a granule from being reused and its slot from being unprotected, so that no store can come between the copy
    /// and its use.
    pub(crate) fn replace_while(&self, slots: Run, pending: Pending) -> Result<()> {
        let replacements = self.lock().start_replacements(self, slots, pending)?;
        for one in &replacements {
            aliases::granule(self, one.fresh).copy_data(&aliases::granule(self, one.granule));
        }
        let mut guard = self.lock();
        let state = &mut *guard;
        let shown = state.show_replacements(self, replacements, pending);
        state.unmap_retired(self);
        state.let_waiters_store(self);
        shown?;
        state.let_store(self, slots.start);
        Ok(())
    }
}

impl State {
    /// Which slots to replace after a store into `slot`, from which an output is pending; `own` are those of its region.
    pub(crate) fn overwritten(&self, core: &Core, slot: u32, own: Run) -> Run {
        let goes_on = slot > own.start && !self.slots.get(slot - 1).protected;
        let most = if goes_on { most_at_once(core) } else { 1 };
        let end = own.end().min(slot + most);
        let end = (slot + 1..end).find(|slot| self.pending_output(*slot).is_none()).unwrap_or(end);
        Run { start: slot, len: end - slot }
    }

    /// Takes free granules for a first part of `slots`, which ends where no output is pending any more, or nothing is free.
    fn start_replacements(&mut self, core: &Core, slots: Run, pending: Pending) -> Result<Vec<Replacement>> {
        let mut started = Vec::with_capacity(slots.len as usize);
        for slot in slots.numbers() {
            match self.start_replacement(core, slot, pending) {
                Ok(Some(one)) => started.push(one),
                Err(error) if started.is_empty() => return Err(error),
                Ok(None) | Err(_) => break,
            }
        }
        Ok(started)
    }

    /// Takes a free granule to replace the granule at `slot`, and references the granule at `slot`; none when no output is
    /// pending there any more.
    fn start_replacement(&mut self, core: &Core, slot: u32, pending: Pending) -> Result<Option<Replacement>> {
        let Some(granule) = pending(self, slot) else { return Ok(None) };
        let fresh = match self.granules.take_promised(granule) {
            Some(fresh) => fresh,
            // The output is not by copy-on-write, or the promise was broken.
            None => self.take_granules(core, LenderId::OWN, 1)?[0].start,
        };
        // Taking one may have removed a cached region, this slot's among them.
        let Some(granule) = pending(self, slot) else {
            self.release(core, [fresh]);
            return Ok(None);
        };
        self.replacing += 1;
        self.granules.use_up(fresh);
        self.granules.reference(Run { start: granule, len: 1 }, Direction::Out);
        Ok(Some(Replacement { slot, granule, fresh }))
    }

    /// Shows copies in the places of the granules of which they were made, and unreferences these. By now other threads may have
    /// swapped or removed some, or their outputs may have completed; then their copies are not needed.
    fn show_replacements(&mut self, core: &Core, all: Vec<Replacement>, pending: Pending) -> Result<()> {
        self.replacing -= all.len() as u32;
        let granules: Vec<u32> = all.iter().map(|one| one.granule).collect();
        let (needed, late): (Vec<_>, Vec<_>) = all.into_iter().partition(|one| {
            pending(self, one.slot) == Some(one.granule) && self.granules.get(one.granule).outputs > 1
        });
        self.release(core, late.iter().map(|one| one.fresh));
        let mut shown = Ok(());
        let mut left = &needed[..];
        while !left.is_empty() {
            let (part, rest) = left.split_at(self.one_mapping(left));
            shown = shown.and(self.show_part(core, part));
            left = rest;
        }
        for granule in granules {
            self.granules.unreference(Run { start: granule, len: 1 }, Direction::Out);
        }
        shown
    }

    /// How many of these replacements, from the first on, one mapping shows: mapping them succeeds or fails for all.
    fn one_mapping(&self, all: &[Replacement]) -> usize {
        let follows =
            |pair: &&[Replacement]| pair[1].slot == pair[0].slot + 1 && pair[1].fresh == pair[0].fresh + 1;
        let len = 1 + all.windows(2).take_while(follows).count() as u32;
        self.objects.parts(Run { start: all[0].fresh, len }).next().map_or(1, |part| part.len as usize)
    }

    fn show_part(&mut self, core: &Core, part: &[Replacement]) -> Result<()> {
        let fresh = Run { start: part[0].fresh, len: part.len() as u32 };
        if let Err(error) = self.map(core, part[0].slot, &[fresh]) {
            self.release(core, fresh.numbers());
            // The replacements that have just become free again are promised again.
            part.iter().for_each(|one| self.granules.promise(Run { start: one.granule, len: 1 }));
            return Err(error);
        }
        let region = self.slots.get(part[0].slot).region;
        for one in part {
            self.slots.show(one.slot, one.fresh);
            self.granules.put(one.fresh, Place::Region { slot: one.slot });
        }
        self.release(core, part.iter().map(|one| one.granule));
        self.statistics.replacements += part.len() as u64;
        if let Some(region) = region.and_then(|region| self.regions.at(region)) {
            let faults = 1 + (part.len() as u64 - 1) / GRANULES_PER_FAULT;
            region.credit.spend(faults * core.replacement_cost.load(Relaxed));
        }
        Ok(())
    }
}
