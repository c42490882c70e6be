//! Borrowed memory under I/O: as long as a client has its bytes borrowed, nobody else stores into them, and a pending output
//! needs no protection; as long as it has them borrowed mutably, nobody loads from them, and a server may store into them in
//! place. The space must act when the borrow ends before the request does.
//!
//! How: when the borrow of an output ends, granules from which the output is still pending are write-protected, as by
//! [`Space::read_only`]; those that cannot be protected are replaced in the client's window by copies of theirs, while nobody
//! can store into them. When the borrow of an input in place ends, its granules are replaced by fresh ones: the server goes
//! on with granules that are no longer the client's.
//! Limits: a granule that also holds bytes beside the data cannot be replaced so, since another thread may be storing into
//! those. Where stores cannot be caught, such granules must be copied before ([`Space::borrowable`]); where protection fails all
//! the same, the borrow cannot end before the output does ([`Error::Unprotectable`]). An input in place needs granules without
//! such bytes ([`Space::is_alone`]).
//! Differs from thesis §4.2, where an output's memory may be stored into from the request on, and §2.1.2, where a client can
//! see a shared input half done: a kernel cannot know that a client won't.

use std::ops::Range;

use crate::space::{Core, Space, State};
use crate::tables::granule::{Place, runs_of};
use crate::tables::runs::Run;
use crate::{Error, LenderId, Protection, Result, aliases, replacement};

/// How pending output was kept when a borrow ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Kept {
    /// Granules whose write permission was removed.
    pub protected: u32,
    /// Granules that were replaced by copies in the client's window.
    pub replaced: u32,
}

impl Space {
    /// The part of the `len` bytes at `addr` whose granules can be kept from stores when a borrow of the bytes ends: all of them,
    /// or where stores cannot be caught, those on granules without other bytes of the program. Offsets into the bytes.
    ///
    /// Cost: the space's lock where stores cannot be caught and the bytes begin or end within a granule.
    pub fn borrowable(&self, addr: usize, len: usize) -> Range<usize> {
        let core = self.at(addr).core();
        let end = addr.saturating_add(len);
        let is_whole = core.misalignment(addr) == 0 && core.misalignment(end) == 0;
        if is_whole || !core.is_own() || !matches!(core.protection, Protection::None(_)) {
            return 0..len;
        }
        let used = core.lock().used_around(core, addr);
        let head = if used.start < addr { core.misalignment(addr.wrapping_neg()) } else { 0 };
        let tail = if used.end > end { core.misalignment(end) } else { 0 };
        match head + tail >= len {
            true => 0..0,
            false => head..len - tail,
        }
    }

    /// Ends a borrow of the `len` bytes at `addr`: if this succeeds, the client may store there from now on, and outputs that
    /// are still pending keep the data that they have. Nothing is done when there are none.
    ///
    /// # Errors
    /// [`Error::Unprotectable`]: a granule that also holds other data cannot be protected. [`Error::Limit`] and others: there is
    /// no memory or mapping for a copy. Some granules may have been kept. Call this again later, or wait until the outputs
    /// have ended; the client must not store until then.
    ///
    /// # Cost
    /// A look at each granule's count, and, where an output is pending, protection, or a copy of each granule and a mapping for
    /// each 256 KiB of small ones.
    pub fn end_borrow(&self, addr: usize, len: usize) -> Result<Kept> {
        let core = self.at(addr).core();
        core.ensure_own()?;
        let Some(slots) = core.slots_of(addr, len) else { return Ok(Kept::default()) };
        let refused = match core.lock().protect_open_outputs(core, slots) {
            Ok(protected) => return Ok(Kept { protected, replaced: 0 }),
            Err(error) => error,
        };
        let used = core.lock().used_around(core, addr);
        let mut replaced = 0;
        loop {
            let Some(open) = core.lock().open_outputs(core, slots) else {
                return Ok(Kept { protected: 0, replaced });
            };
            if core.has_neighbours(&used, open, addr..addr + len) {
                return Err(refused);
            }
            core.replace_while(open, State::open_output)?;
            let state = core.lock();
            replaced += open.numbers().filter(|slot| state.open_output(*slot).is_none()).count() as u32;
        }
    }
}

impl Space {
    /// Whether the granules that hold the `len` bytes at `addr` hold no other bytes of the client's.
    ///
    /// Cost: the space's lock.
    pub fn is_alone(&self, addr: usize, len: usize) -> bool {
        let core = self.at(addr).core();
        let Some(slots) = core.slots_of(addr, len).filter(|_| core.is_own()) else { return true };
        let used = core.lock().used_around(core, addr);
        !core.has_neighbours(&used, slots, addr..addr + len)
    }

    /// Ends a mutable borrow of the `len` bytes at `addr`, which are alone on their granules: no input stores into them from now
    /// on. Granules in which an input is pending in place are replaced by granules of zeros. Returns how many.
    ///
    /// # Errors
    /// [`Error::Limit`] and others: there is no memory or mapping for a replacement. Call this again later, or wait until the
    /// input has ended; the client must not use the bytes until then.
    pub fn end_input_borrow(&self, addr: usize, len: usize) -> Result<u32> {
        let core = self.at(addr).core();
        core.ensure_own()?;
        let Some(slots) = core.slots_of(addr, len) else { return Ok(0) };
        let mut replaced = 0;
        for slot in slots.numbers() {
            replaced += core.lock().replace_input(core, slot)?;
        }
        Ok(replaced)
    }
}

impl Core {
    /// Whether granules at some slots of a region hold bytes of those that are `used`, but not of those at `data`.
    fn has_neighbours(&self, used: &Range<usize>, slots: Run, data: Range<usize>) -> bool {
        let [start, end] = [slots.start, slots.end()].map(|slot| self.slot_addr(slot));
        start.max(used.start) < data.start || end.min(used.end) > data.end
    }
}

impl State {
    /// Shows zeros at a slot if an input is pending in place in its granule; returns how many granules that replaced.
    fn replace_input(&mut self, core: &Core, slot: u32) -> Result<u32> {
        let pending = self.slots.get(slot).granule.filter(|granule| self.granules.get(*granule).inputs > 0);
        let Some(granule) = pending else { return Ok(0) };
        let fresh = self.take_granules(core, LenderId::OWN, 1)?[0].start;
        if !self.granules.use_up(fresh) {
            aliases::granule(core, fresh).fill(0);
        }
        if let Err(error) = self.map(core, slot, &[Run { start: fresh, len: 1 }]) {
            self.release(core, [fresh]);
            return Err(error);
        }
        self.slots.show(slot, fresh);
        self.granules.put(fresh, Place::Region { slot });
        self.release(core, [granule]);
        Ok(1)
    }

    /// The addresses that the client uses of the region that shows `addr`.
    fn used_around(&mut self, core: &Core, addr: usize) -> Range<usize> {
        let region = core.slot_at(addr).and_then(|slot| self.slots.get(slot).region);
        region.and_then(|region| self.regions.at(region)).map_or(0..usize::MAX, |region| region.used.clone())
    }

    /// Protects the slots among `slots` from which an output is pending; returns how many changed. On an error, none may have.
    fn protect_open_outputs(&mut self, core: &Core, slots: Run) -> Result<u32> {
        let is_open = |slot: &u32| self.open_output(*slot).is_some();
        let Some(first) = slots.numbers().find(is_open) else { return Ok(0) };
        let last = slots.numbers().rev().find(is_open).unwrap_or(first);
        if let Protection::None(reason) = core.protection {
            return Err(Error::Unprotectable { reason });
        }
        let slots = Run { start: first, len: last - first + 1 };
        let runs = runs_of(slots.numbers().filter_map(|slot| self.open_output(slot)));
        self.promise(core, &runs)?;
        self.protect(core, slots)
    }

    /// The first slots among `slots` that follow each other and have an open output, at most as many as are replaced at once.
    fn open_outputs(&self, core: &Core, slots: Run) -> Option<Run> {
        let is_open = |slot: &u32| self.open_output(*slot).is_some();
        let start = slots.numbers().find(is_open)?;
        let most = slots.end().min(start + replacement::most_at_once(core));
        let len = (start..most).take_while(is_open).count() as u32;
        Some(Run { start, len })
    }

    /// The granule at a slot, if an output is pending from it that a store would reach, or for which a store would have to wait
    /// until there is memory: granules at rest are protected, but no replacement is kept for them.
    fn open_output(&self, slot: u32) -> Option<u32> {
        let entry = self.slots.get(slot);
        entry.granule.filter(|id| {
            let granule = self.granules.get(*id);
            granule.outputs > 0 && !(entry.protected && granule.is_promised())
        })
    }
}
