//! Transient output copy-on-write: output in place, with copy's meaning.
//!
//! How: an output references its granules and makes them read-only in their window. A store then faults; the handler
//! 1. copies the granule, still protected, into a free one,
//! 2. maps that one in its place and registers the place for faults again,
//! 3. and only then wakes the storing thread, whose store goes to the new granule.
//!
//! The server keeps reading the old granule through its alias. Any other order loses updates. When no output is pending
//! any more, the handler only gives the permission back.
//! So that no store ever waits for memory, each granule is promised a free one before it is protected; an output for
//! which there are too few free granules is not protected, but copied.
//! Invariants: a slot whose granule has a pending output made by [`Space::read_only`] is protected, or shows another
//! granule by now.
//! Limits: no mapping can be promised, since the rest of the process makes mappings, too. At the limit of mappings
//! (vm.max_map_count) the storing thread waits until the output has completed, or until the handler, which tries again every
//! [`RETRY`], gets a mapping. A storing thread waits in the same way if a lender has left and taken the promised granule
//! along, and the space cannot grow to replace it.
//! If the program's only thread stores so, and the output ends only when that thread takes a reply off its channel, the thread
//! waits for ever, unless mappings become free.
//! Source: thesis §4.2, §4.3; §3.2.4 for inputs pending in place. Differs: `reinstatement` says when write permission comes
//! back.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::granule::Place;
use crate::runs::Run;
use crate::slots::Slot;
use crate::space::{Core, Protection, Space, State};
use crate::{Direction, Error, LenderId, Reference, RegionId, Result, views};

/// How long the fault handler waits before it tries again to get what a waiting store needs. That is a resource of the
/// process or the machine, so nothing in the space can tell when it is there.
pub(crate) const RETRY: Duration = Duration::from_millis(10);

impl Space {
    /// Removes write permission from referenced granules, where it is not removed already; returns how many granules
    /// changed.
    ///
    /// # Errors
    /// [`Error::Unprotectable`], also while a server stores into the same granules in place, which no write protection
    /// stops (input-disabled copy-on-write); [`Error::Irreplaceable`]: the space has no free granule for each that may have to
    /// be replaced; or the kernel's reason. The output must then be copied.
    ///
    /// # Panics
    /// When the reference is of another space.
    pub fn read_only(&self, reference: &Reference) -> Result<u32> {
        Ok(self.protect_output(reference, None)?.unwrap_or_default())
    }

    /// As [`Space::read_only`], unless faults in the region have lately cost more than protection saved: then nothing
    /// is done, and the output is better copied. `saving` is what this output saves when it is protected, in
    /// nanoseconds.
    ///
    /// # Errors
    /// As [`Space::read_only`].
    ///
    /// # Panics
    /// As [`Space::read_only`].
    pub fn read_only_if_it_pays(&self, reference: &Reference, saving: u64) -> Result<Option<u32>> {
        self.protect_output(reference, Some(saving))
    }

    fn protect_output(&self, reference: &Reference, saving: Option<u64>) -> Result<Option<u32>> {
        let core = self.core();
        core.ensure_own()?;
        reference.assert_of(self);
        if let Protection::None(reason) = core.protection {
            return Err(Error::Unprotectable { reason });
        }
        let mut guard = core.lock();
        let state = &mut *guard;
        let mut unpromised = 0;
        for run in reference.runs() {
            let reason = "an input is pending in place on the same granules";
            unpromised += state.granules.lacking(*run).ok_or(Error::Unprotectable { reason })?;
        }
        // The granules of a region that is gone are shown by no window.
        let Some(region) = state.regions.get_mut(reference.region) else { return Ok(Some(0)) };
        if saving.is_some() && !region.credit.allows() {
            return Ok(None);
        }
        if unpromised > 0 {
            state.promise(core, reference, unpromised)?;
        }
        let Some(region) = state.regions.get_mut(reference.region) else { return Ok(Some(0)) };
        region.credit.earn(saving.unwrap_or(0));
        region.reinstatement.output();
        state.protect(core, reference.slots).map(Some)
    }
}

impl State {
    /// Promises replacements to the `count` granules of an output that have no promise yet. Granules that cannot be
    /// protected after all keep their promises until the output ends.
    fn promise(&mut self, core: &Core, output: &Reference, count: u32) -> Result<()> {
        self.make_available(core, count).map_err(|_| {
            let free = core.bytes(self.granules.available(LenderId::OWN));
            Error::Irreplaceable { asked: core.bytes(count), free }
        })?;
        output.runs().iter().for_each(|run| self.granules.promise(*run));
        Ok(())
    }

    pub(crate) fn protect(&mut self, core: &Core, slots: Run) -> Result<u32> {
        let Some(first) = slots.numbers().find(|slot| !self.slots.get(*slot).protected) else { return Ok(0) };
        let run = Run { start: first, len: slots.end() - first };
        if let Some(userfault) = &core.userfault {
            userfault.protect(core.slot_addr(run.start), core.bytes(run.len))?;
        }
        let changed = self.slots.set_protected(run, true);
        self.statistics.protected += u64::from(changed);
        Ok(changed)
    }

    /// The last output from a run of slots has completed.
    pub(crate) fn output_completed(&mut self, core: &Core, region: RegionId, slots: Run) {
        let Some(found) = self.regions.get_mut(region) else { return };
        let own = found.slots;
        if !slots.numbers().any(|slot| self.slots.get(slot).protected) || !found.reinstatement.completed() {
            return;
        }
        let mut rest = self.idle_around(slots, own);
        while let Some(run) = self.idle_protected(rest) {
            if self.unprotect(core, run).is_err() {
                // It stays protected; the next store faults and tries again.
                return;
            }
            rest = Run { start: run.end(), len: rest.end() - run.end() };
        }
    }

    /// `slots` and its neighbours within `own` that an earlier output has left protected.
    fn idle_around(&self, slots: Run, own: Run) -> Run {
        let idle = |slot: u32| self.idle_protected(Run { start: slot, len: 1 }).is_some();
        let start =
            (own.start..slots.start).rev().take_while(|slot| idle(*slot)).last().unwrap_or(slots.start);
        let end =
            (slots.end()..own.end()).take_while(|slot| idle(*slot)).last().map_or(slots.end(), |s| s + 1);
        Run { start, len: end - start }
    }

    /// Lets threads go on that waited for an output because no replacement could be had.
    pub(crate) fn let_waiters_store(&mut self, core: &Core) {
        if self.waiting.is_empty() {
            return;
        }
        for slot in std::mem::take(&mut self.waiting) {
            match self.pending_output(slot) {
                Some(_) => self.waiting.push(slot),
                None => self.let_store(core, slot),
            }
        }
    }

    /// The granule at a slot, if it is protected because an output is pending from it.
    pub(crate) fn pending_output(&self, slot: u32) -> Option<u32> {
        let entry = self.slots.get(slot);
        entry.granule.filter(|granule| entry.protected && self.granules.get(*granule).outputs > 0)
    }

    /// Wakes the threads that wait for a slot, with write permission if no output needs it.
    pub(crate) fn let_store(&mut self, core: &Core, slot: u32) {
        let idle = self.idle_protected(Run { start: slot, len: 1 });
        if idle.is_none_or(|run| self.unprotect(core, run).is_err()) {
            wake(core, slot);
        }
    }
}

impl Core {
    /// A thread stored into protected memory at `addr`, and waits.
    pub(crate) fn store_faulted(&self, addr: usize) {
        let Some(slot) = self.slot_at(addr) else { return };
        let mut guard = self.lock();
        let state = &mut *guard;
        state.statistics.faults += 1;
        let region = match state.slots.get(slot) {
            Slot { granule: Some(_), region: Some(region), protected: true } => region,
            // Somebody has unprotected or replaced it meanwhile, or a protection failed half-way.
            Slot { region: Some(_), .. } => {
                if state.unprotect(self, Run { start: slot, len: 1 }).is_err() {
                    wake(self, slot);
                }
                return;
            }
            _ => return wake(self, slot),
        };
        let slots = state.regions.at(region).map_or(Run { start: slot, len: 1 }, |region| {
            region.faults += 1;
            region.reinstatement.faulted();
            Run { start: slot, len: region.slots.end() - slot }
        });
        if state.pending_output(slot).is_some() {
            drop(guard);
            if self.replace(slot).is_err() {
                self.wait_for_output(slot);
            }
            return;
        }
        let run = state.idle_protected(slots).unwrap_or(Run { start: slot, len: 1 });
        if state.unprotect(self, run).is_err() {
            wake(self, slot);
        }
    }

    /// Replaces the granule at `slot` by a copy of it, if it is still protected for a pending output, and wakes the
    /// threads that wait to store there.
    ///
    /// # Errors
    /// No granule or mapping is left for that: nothing has changed.
    ///
    /// The copying runs without the lock. An extra output reference, held from before the copying until after it, keeps
    /// the granule from being reused and the slot from being unprotected, so that no store can come between the copy
    /// and its use.
    pub(crate) fn replace(&self, slot: u32) -> Result<()> {
        let Some((granule, fresh)) = self.start_replacement(slot)? else {
            self.lock().let_store(self, slot);
            return Ok(());
        };
        views::granule(self, fresh).copy_data(&views::granule(self, granule));
        let mut guard = self.lock();
        let state = &mut *guard;
        state.replacing -= 1;
        // By now another thread may have swapped or removed the granule, or the outputs may have completed.
        let needed = state.pending_output(slot) == Some(granule) && state.granules.get(granule).outputs > 1;
        let mapped = needed.then(|| state.map(self, slot, &[Run { start: fresh, len: 1 }])).transpose();
        if let Ok(Some(())) = mapped {
            self.enter_replacement(state, slot, granule, fresh);
        } else {
            state.release(self, [fresh]);
            if needed {
                // The replacement that has just become free again is promised again.
                state.granules.promise(Run { start: granule, len: 1 });
            }
        }
        state.granules.unreference(Run { start: granule, len: 1 }, Direction::Out);
        state.unmap_retired(self);
        state.let_waiters_store(self);
        mapped?;
        state.let_store(self, slot);
        Ok(())
    }

    /// Takes a free granule to replace the granule at `slot`, and references the granule at `slot`. Returns (old, free),
    /// or none when no output is pending there any more.
    fn start_replacement(&self, slot: u32) -> Result<Option<(u32, u32)>> {
        let mut guard = self.lock();
        let state = &mut *guard;
        let Some(granule) = state.pending_output(slot) else { return Ok(None) };
        let fresh = match state.granules.take_promised(granule) {
            Some(fresh) => fresh,
            // The output is not by copy-on-write, or the promise was broken.
            None => state.take_granules(self, LenderId::OWN, 1)?[0].start,
        };
        // Taking one may have removed a cached region, this slot's among them.
        let Some(granule) = state.pending_output(slot) else {
            state.release(self, [fresh]);
            return Ok(None);
        };
        state.replacing += 1;
        state.granules.use_up(fresh);
        state.granules.reference(Run { start: granule, len: 1 }, Direction::Out);
        Ok(Some((granule, fresh)))
    }

    fn enter_replacement(&self, state: &mut State, slot: u32, granule: u32, fresh: u32) {
        state.slots.show(slot, fresh);
        let region = state.slots.get(slot).region;
        state.granules.put(fresh, Place::Region { slot });
        state.release(self, [granule]);
        state.statistics.replacements += 1;
        if let Some(region) = region.and_then(|region| state.regions.at(region)) {
            region.credit.spend(self.replacement_cost.load(Relaxed));
        }
    }

    /// Leaves the storing thread waiting until the outputs of its granule have completed.
    fn wait_for_output(&self, slot: u32) {
        let mut guard = self.lock();
        let state = &mut *guard;
        state.statistics.waits += 1;
        state.waiting.push(slot);
        // The output may have completed between the failure and now.
        state.let_waiters_store(self);
    }

    /// Whether a store waits for an output.
    pub(crate) fn has_waiters(&self) -> bool {
        !self.lock().waiting.is_empty()
    }

    /// Tries again to replace the granules that stores wait for.
    pub(crate) fn retry_waiters(&self) {
        let waiting = std::mem::take(&mut self.lock().waiting);
        for slot in waiting {
            if self.replace(slot).is_err() {
                self.lock().waiting.push(slot);
            }
        }
        // An output may have completed between a failure and now.
        self.lock().let_waiters_store(self);
    }
}

/// Wakes the threads that wait for a slot; they try their stores again.
pub(crate) fn wake(core: &Core, slot: u32) {
    if let Some(userfault) = &core.userfault {
        // Waking fails for unmapped addresses only, where nobody can wait.
        let _ = userfault.wake(core.slot_addr(slot), core.granule());
    }
}
