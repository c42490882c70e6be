//! Blocks: the regions of large allocations, each in memory objects of its own.
//!
//! How: an object is made for each block, and mapped with empty page tables in the aliases and at the block's window, so that
//! a block takes memory where it is touched, as the system's large allocations do. The object is numbered like one that was
//! lent, by nobody: its granules retire when they are freed, one by one if requests still reference them, and with the last
//! one the object goes. A block that grows gets another object for the new part; its window is extended, or its page tables
//! are moved to a longer window. A freed block that no server was shown is kept, mapped, for the next block of as many granules.
//! Invariants: granules of a block's objects are in that block, in system buffers with which an input has swapped them, or in
//! deferral; never on the free list of the space's own pool.
//! Source: thesis §3.2.2 (deferred deallocation), §3.3.1 (region caching).

use genie_sys::Object;

use crate::registrars::quiet;
use crate::space::{Core, Space, State};
use crate::tables::granule::{GranuleRuns, Place, runs_of};
use crate::tables::objects::Objects;
use crate::tables::runs::Run;
use crate::tables::slots::Slot;
use crate::{Error, LenderId, Mark, RegionId, Result};

/// Blocks have lengths in steps of a sixteenth of a power of two, so that freed ones fit others of about their length.
const STEPS: u32 = 16;

/// What blocks may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// The most objects in the space, of which each has a descriptor.
    pub(super) objects: usize,
    /// Granules of lent objects that are left to lenders.
    pub(super) left: u32,
    /// The most granules of freed blocks that are kept.
    pub(super) kept: u32,
    /// Whether freed blocks are kept although servers in other processes were shown them.
    pub(super) keeps_shown: bool,
}

/// A block that was allocated.
pub(super) struct Taken {
    pub(super) addr: usize,
    /// Whether all of its bytes are zeros.
    pub(super) is_zero: bool,
}

impl Space {
    /// Allocates a block of at least `len` bytes whose address is a multiple of `align`. None where memory, addresses,
    /// descriptors or mappings run short.
    pub(super) fn take_block(&self, bounds: &Bounds, len: usize, align: usize) -> Option<Taken> {
        let _quiet = quiet();
        let core = self.core();
        let count = class(core.granules(0, len))?;
        let mut guard = core.lock();
        let state = &mut *guard;
        let kept = if align <= core.granule() {
            state.queues.of(Mark::Native).take(count, Mark::Native)
        } else {
            None
        };
        if let Some(region) = kept.and_then(|region| state.regions.get_mut(region)) {
            let addr = core.slot_addr(region.slots.start);
            region.used = addr..addr + len;
            return Some(Taken { addr, is_zero: false });
        }
        if !state.has_room(bounds, count) {
            state.flush_queues(core);
        }
        let has_room = state.has_room(bounds, count);
        drop(guard);
        let object = if has_room { object(core, count)? } else { return None };
        let mut guard = core.lock();
        let state = &mut *guard;
        let granules = state.add_separate_object(core, object).ok()?;
        let align = core.slot_alignment(count).max((align / core.granule()) as u32);
        match state.new_block(core, granules, len, align) {
            Ok(addr) => Some(Taken { addr, is_zero: true }),
            Err(_) => {
                state.release(core, granules.numbers());
                None
            }
        }
    }

    /// Frees the block at `addr`: keeps it, or gives its granules up, now or when the last request lets go of them.
    pub(super) fn give_block(&self, bounds: &Bounds, addr: usize) {
        let _quiet = quiet();
        let core = self.core();
        let mut guard = core.lock();
        let state = &mut *guard;
        let Some((region, slots)) = state.block_at(core, addr) else { return };
        if slots.len > bounds.kept || !state.may_be_kept(region, slots, bounds.keeps_shown) {
            // As for a buffer that is dropped.
            let _ = state.remove_region(core, region);
            return;
        }
        state.queues.of(Mark::Native).push(region, slots.len, Mark::Native);
        while let Some(excess) = state.queues.of(Mark::Native).take_excess(bounds.kept) {
            let _ = state.remove_region(core, excess);
        }
    }

    /// Changes the length of the block at `addr` without copying; returns its new address. None where that is impossible, or
    /// where the block is longer than twice what is asked for: then the caller allocates another one.
    pub(super) fn resize_block(
        &self,
        bounds: &Bounds,
        addr: usize,
        len: usize,
        align: usize,
    ) -> Option<usize> {
        let _quiet = quiet();
        let core = self.core();
        let count = class(core.granules(0, len))?;
        let mut guard = core.lock();
        let (region, slots) = guard.block_at(core, addr)?;
        if count <= slots.len / 2 {
            return None;
        }
        if count <= slots.len {
            guard.regions.get_mut(region)?.used = addr..addr + len;
            return Some(addr);
        }
        let has_room = guard.has_room(bounds, count - slots.len);
        drop(guard);
        let object = if has_room { object(core, count - slots.len)? } else { return None };
        // The block is its caller's alone, so it is still the same.
        guard = core.lock();
        let state = &mut *guard;
        let granules = state.add_separate_object(core, object).ok()?;
        let align = core.slot_alignment(count).max((align / core.granule()) as u32);
        match state.extend(core, region, granules, len, align) {
            Ok(addr) => Some(addr),
            Err(_) => {
                state.release(core, granules.numbers());
                None
            }
        }
    }
}

/// The number of granules of a block that has at least `count`.
fn class(count: u32) -> Option<u32> {
    count.checked_next_multiple_of((count.checked_next_power_of_two()? / STEPS).max(1))
}

fn object(core: &Core, count: u32) -> Option<Object> {
    Object::create(core.kind, core.bytes(count)).ok()
}

impl Objects {
    /// Whether all granules of a run are of objects that were made for one region each; and, unless those count as well, of
    /// none that a peer was shown.
    fn are_separate(&self, run: Run, or_shown: bool) -> bool {
        self.entries(run).all(|(entry, _)| entry.is_separate && (or_shown || !entry.shown))
    }

    /// The bytes in a run of granules that somebody has touched, as (distance from the run's start, length).
    pub(super) fn touched(&self, core: &Core, run: Run) -> Vec<(usize, usize)> {
        let mut touched = Vec::new();
        for (entry, part) in self.entries(run) {
            let (start, len) = (core.bytes(part.start - entry.granules.start), core.bytes(part.len));
            let mut at = start;
            while let Some(found) = entry.object.touched(at, start + len) {
                touched.push((core.bytes(part.start - run.start) + found.start - start, found.len()));
                at = found.end;
            }
        }
        touched
    }
}

impl State {
    /// Maps the aliases of an object that was made for one region alone, page tables empty; its granules are the caller's.
    fn add_separate_object(&mut self, core: &Core, object: Object) -> Result<Run> {
        let (asked, count) = (object.len(), core.granules(0, object.len()));
        let granules =
            self.granules.lent_objects.take_numbers(count).ok_or_else(|| self.no_room(core, asked))?;
        let start = core.alias_offset(granules.start);
        let map = || Ok(core.aliases().map_unfilled(start, &object, 0, asked)?);
        if let Err(error) = self.granules.reserve(granules).and_then(|()| map()) {
            self.granules.lent_objects.give_numbers(granules);
            return Err(error);
        }
        self.granules.add_separate_object(granules);
        self.objects.add(granules, start, object, Some(LenderId::NOBODY));
        Ok(granules)
    }

    /// Maps granules of one object at consecutive slots from `slot` on, page tables empty, and registers them for faults.
    ///
    /// # Errors
    /// The kernel's; nothing was mapped.
    fn map_unfilled(&self, core: &Core, slot: u32, granules: Run) -> Result<()> {
        let entry = self.objects.get(granules.start).ok_or(Error::NoObject)?;
        let within = core.bytes(granules.start - entry.granules.start);
        core.windows.map_unfilled(core.bytes(slot), &entry.object, within, core.bytes(granules.len))?;
        self.register(core, slot, granules.len);
        Ok(())
    }

    fn has_room(&self, bounds: &Bounds, count: u32) -> bool {
        let left = self.granules.lent_objects.room().saturating_sub(count);
        self.objects.descriptors() < bounds.objects && left >= bounds.left
    }

    /// The block that begins at `addr`, and its slots.
    fn block_at(&self, core: &Core, addr: usize) -> Option<(RegionId, Run)> {
        let region = self.regions.id(self.slots.get(core.slot_at(addr)?).region?)?;
        Some((region, self.regions.get(region)?.slots))
    }

    /// Maps the granules of a new object at an aligned window; returns its address.
    fn new_block(&mut self, core: &Core, granules: Run, len: usize, align: u32) -> Result<usize> {
        let asked = core.bytes(granules.len);
        self.regions.reserve()?;
        let window = self.slots.take(granules.len, align)?.ok_or(Error::Addresses { asked })?;
        if let Err(error) = self.map_unfilled(core, window.start, granules) {
            self.slots.give(window);
            return Err(error);
        }
        let region = self.enter_region(core, window, granules.numbers(), Mark::Native);
        self.reshape(core, region, window, len)
    }

    /// Puts on record which slots a block has, and how long it is; returns its address.
    fn reshape(&mut self, core: &Core, region: RegionId, slots: Run, len: usize) -> Result<usize> {
        let addr = core.slot_addr(slots.start);
        let found = self.regions.get_mut(region).ok_or(Error::Foreign { addr, len })?;
        (found.slots, found.used) = (slots, addr..addr + len);
        Ok(addr)
    }

    /// Adds granules of a new object to a block, which is to be `len` bytes long; returns its address from now on.
    ///
    /// # Errors
    /// The block is as it was.
    fn extend(
        &mut self,
        core: &Core,
        region: RegionId,
        granules: Run,
        len: usize,
        align: u32,
    ) -> Result<usize> {
        let asked = core.bytes(granules.len);
        let from = self.regions.get(region).ok_or(Error::Foreign { addr: 0, len })?.slots;
        let count = from.len + granules.len;
        if self.slots.take_at(Run { start: from.end(), len: granules.len })? {
            if let Err(error) = self.map_unfilled(core, from.end(), granules) {
                self.slots.give(Run { start: from.end(), len: granules.len });
                return Err(error);
            }
            self.show(region, from.end(), granules);
            return self.reshape(core, region, Run { len: count, ..from }, len);
        }
        let window = self.slots.take(count, align)?.ok_or(Error::Addresses { asked })?;
        let mapped = self.map_unfilled(core, window.start + from.len, granules);
        if let Err(error) = mapped.and_then(|()| self.relocate(core, region, from, window.start)) {
            // When the kernel cannot unmap, the addresses stay taken.
            let _ = self.give_window(core, window);
            return Err(error);
        }
        self.show(region, window.start + from.len, granules);
        self.reshape(core, region, window, len)
    }

    /// Enters granules that are mapped from `slot` on as a block's.
    fn show(&mut self, region: RegionId, slot: u32, granules: Run) {
        for (slot, granule) in (slot..).zip(granules.numbers()) {
            let entry = Slot { granule: Some(granule), region: Some(region.index), protected: false };
            self.slots.set(slot, entry);
            self.granules.put(granule, Place::Region { slot });
        }
    }

    /// Moves a block's page tables, and what the tables say of its slots, to the slots from `to` on.
    ///
    /// # Errors
    /// The block is as it was.
    fn relocate(&mut self, core: &Core, region: RegionId, from: Run, to: u32) -> Result<()> {
        if self.slots.run(from).any(|slot| slot.protected) {
            // Protection would be lost with the page tables' registration.
            return Err(Error::Unprotectable { reason: "an output is pending from a block that is to move" });
        }
        let mut parts = GranuleRuns::new();
        runs_of(self.slots.granules(from)).into_iter().for_each(|run| parts.extend(self.objects.parts(run)));
        let mut at = 0;
        for part in &parts {
            let [old, new] = [from.start, to].map(|start| Run { start: start + at, len: part.len });
            let [here, there, len] = [old.start, new.start, part.len].map(|slots| core.bytes(slots));
            let can_move = !self.would_join(old, new);
            let is_moved = can_move && core.windows.move_tables(here, there, len).is_ok();
            if !is_moved && let Err(error) = self.map(core, new.start, &[*part]) {
                // Where page tables have moved already, a touch fills those that were left.
                self.register(core, from.start, from.len);
                return Err(error);
            }
            at += part.len;
        }
        self.register(core, to, from.len);
        at = 0;
        for part in parts {
            self.show(region, to + at, part);
            at += part.len;
        }
        self.slots.clear(from);
        let _ = self.give_window(core, from);
        Ok(())
    }

    /// Whether a freed block is as good as a new one: its granules are those that it was made of, no request uses them, and
    /// no server in another process can see them.
    fn may_be_kept(&mut self, region: RegionId, slots: Run, keeps_shown: bool) -> bool {
        if self.regions.get_mut(region).is_none_or(|region| !std::mem::take(&mut region.passed)) {
            return true;
        }
        if self.slots.run(slots).any(|slot| slot.protected) {
            return false;
        }
        runs_of(self.slots.granules(slots)).iter().all(|run| {
            let is_own = self.objects.are_separate(*run, keeps_shown);
            is_own && !self.granules.any_referenced(*run)
        })
    }

    /// The slots of all native regions in use.
    pub(super) fn native_in_use(&self) -> impl Iterator<Item = Run> + '_ {
        let kept: Vec<u32> = self.queues.iter().map(|region| region.index).collect();
        let native = self.regions.iter().filter(|(_, region)| region.mark == Mark::Native);
        native.filter(move |(index, _)| !kept.contains(index)).map(|(_, region)| region.slots)
    }
}

#[cfg(test)]
mod tests;
