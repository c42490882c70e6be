//! Transient output copy-on-write: output in place, with copy's meaning.
//!
//! How: an output references its granules and makes them read-only in their window. A store then faults; the handler
//! 1. copies the granule, still protected, into a free one,
//! 2. maps that one in its place and registers the place for faults again,
//! 3. and only then wakes the storing thread, whose store goes to the new granule (`replacement`).
//!
//! The server keeps reading the old granule through its alias. Any other order loses updates. When no output is pending
//! any more, the handler only gives the permission back.
//! So that no store ever waits for memory, each granule is promised a free one before it is protected; an output for
//! which there are too few free granules is not protected, but copied.
//! Invariants: a slot whose granule has a pending output made by [`Space::read_only`] is protected, or shows another
//! granule by now.
//! Limits: no mapping can be promised, since the rest of the process makes mappings, too. At the limit of mappings
//! (vm.max_map_count) the storing thread waits until the output has completed, or until the handler, which tries again every
//! 10 ms, gets a mapping. A storing thread waits in the same way if a lender has left and taken the promised granule
//! along, and the space cannot grow to replace it.
//! If the program's only thread stores so, and the output ends only when that thread takes a reply off its channel, the thread
//! waits for ever, unless mappings become free.
//! Source: thesis §4.2, §4.3; §3.2.4 for inputs pending in place. Differs: `reinstatement` says when write permission comes
//! back.

use std::sync::atomic::Ordering::Relaxed;

use crate::space::{Core, Space, State};
use crate::tables::runs::Run;
use crate::tables::slots::Slot;
use crate::{Error, LenderId, Protection, Reference, RegionId, Result};

/// What is at stake when an output is protected, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stakes {
    /// What passing it by copy costs.
    pub copying: u64,
    /// What referencing, protecting and reinstating its granules cost, with what the client's next stores pay for it.
    pub protecting: u64,
}

impl Stakes {
    /// What an output saves that is not copied. Granules that an earlier output has left protected need not be protected.
    fn saving(self, protects: bool) -> u64 {
        self.copying.saturating_sub(if protects { self.protecting } else { 0 })
    }
}

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
    /// is done, and the output is better copied.
    ///
    /// # Errors
    /// As [`Space::read_only`].
    ///
    /// # Panics
    /// As [`Space::read_only`].
    pub fn read_only_if_it_pays(&self, reference: &Reference, stakes: Stakes) -> Result<Option<u32>> {
        self.protect_output(reference, Some(stakes))
    }

    /// Whether an output of the `len` bytes at `addr` should be protected although protecting and reinstating cost more than
    /// copying: its granules are still protected from an earlier output, so that referencing them is enough; or it is time to
    /// find out whether the client stores between outputs (see `reinstatement`). Ask once for each output.
    ///
    /// # Cost
    /// The space's lock, and a look at each granule.
    pub fn spares_copy(&self, addr: usize, len: usize, stakes: Stakes) -> bool {
        let core = self.at(addr).core();
        let Some(slots) = core.slots_of(addr, len).filter(|_| core.is_own()) else { return false };
        let mut guard = core.lock();
        let state = &mut *guard;
        let unchanged = slots.numbers().all(|slot| state.slots.get(slot).protected);
        let region = state.slots.get(slots.start).region.and_then(|region| state.regions.at(region));
        let failed = stakes.protecting.saturating_add(core.replacement_cost.load(Relaxed));
        let copying = stakes.copying.max(1);
        region.is_some_and(|region| region.reinstatement.spares_copy(unchanged, copying, failed))
    }

    fn protect_output(&self, reference: &Reference, stakes: Option<Stakes>) -> Result<Option<u32>> {
        assert!(self.is(reference.space()), "a reference of another space was to be used");
        let core = reference.space().core();
        core.ensure_own()?;
        if let Protection::None(reason) = core.protection {
            return Err(Error::Unprotectable { reason });
        }
        let mut guard = core.lock();
        let state = &mut *guard;
        // The granules of a region that is gone are shown by no window.
        let Some(region) = state.regions.get_mut(reference.region) else { return Ok(Some(0)) };
        if stakes.is_some() && !region.credit.allows() {
            return Ok(None);
        }
        state.promise(core, reference.runs())?;
        let protected = state.protect(core, reference.slots)?;
        if let Some(region) = state.regions.get_mut(reference.region) {
            region.credit.earn(stakes.map_or(0, |stakes| stakes.saving(protected > 0)));
            region.reinstatement.output(protected == 0);
        }
        Ok(Some(protected))
    }
}

impl State {
    /// Promises replacements to those granules of an output that have no promise yet. Granules that cannot be protected
    /// after all keep their promises until the output ends.
    pub(crate) fn promise(&mut self, core: &Core, output: &[Run]) -> Result<()> {
        let mut count = 0;
        for run in output {
            let reason = "an input is pending in place on the same granules";
            count += self.granules.lacking(*run).ok_or(Error::Unprotectable { reason })?;
        }
        if count == 0 {
            return Ok(());
        }
        self.make_available(core, count).map_err(|_| {
            let free = core.bytes(self.granules.available(LenderId::OWN));
            Error::Irreplaceable { asked: core.bytes(count), free }
        })?;
        output.iter().for_each(|run| self.granules.promise(*run));
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
        if core.protected.load(Relaxed) == 0 {
            return;
        }
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
        let here = Run { start: slot, len: 1 };
        let slots = state.regions.at(region).map_or(here, |region| {
            region.faults += 1;
            region.reinstatement.faulted();
            region.slots
        });
        if state.pending_output(slot).is_some() {
            let overwritten = state.overwritten(self, slot, slots);
            drop(guard);
            if self.replace(overwritten).is_err() {
                self.wait_for_output(slot);
            }
            return;
        }
        let run = state.idle_around(here, slots);
        if state.unprotect(self, run).is_err() {
            wake(self, slot);
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
            if self.replace(Run { start: slot, len: 1 }).is_err() {
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
