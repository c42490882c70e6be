//! Regions: ranges of a client's addresses whose granules are (object, index) pairs.
//!
//! Source: thesis §1.1.1 (regions), §3.3 (marks), §3.2.2 (deallocation while I/O is pending).

use std::ops::{Deref, DerefMut, Range};

use crate::space::{Core, Space, State};
use crate::tables::granule::{GranuleRuns, Place};
use crate::tables::queues::Queues;
use crate::tables::runs::Run;
use crate::tables::slots::Slot;
use crate::views::Owned;
use crate::{Error, LenderId, Mark, RegionId, Result, aliases};

impl State {
    /// Makes a region of `granules` fresh granules, zeroed where they held data.
    pub(crate) fn allocate_region(&mut self, core: &Core, granules: u32, mark: Mark) -> Result<RegionId> {
        let runs = self.take_granules(core, LenderId::OWN, granules)?;
        for id in runs.iter().flat_map(|run| run.numbers()) {
            if !self.granules.use_up(id) {
                aliases::granule(core, id).fill(0);
            }
        }
        self.region_of(core, &runs, mark).inspect_err(|_| {
            self.release(core, runs.iter().flat_map(|run| run.numbers()));
        })
    }

    /// Makes a region of granules that nobody holds: creates it, fills it and maps it.
    pub(crate) fn region_of(&mut self, core: &Core, runs: &GranuleRuns, mark: Mark) -> Result<RegionId> {
        let count = runs.iter().map(|run| run.len).sum();
        self.regions.reserve()?;
        let window = self.take_slots(core, count)?;
        if let Err(error) = self.map(core, window.start, runs) {
            self.give_window(core, window)?;
            return Err(error);
        }
        Ok(self.enter_region(core, window, runs.iter().flat_map(|run| run.numbers()), mark))
    }

    /// Enters the region of a window that maps `granules` in this order. They are the space's own from
    /// now on. All bytes of the region are the client's.
    pub(crate) fn enter_region(
        &mut self,
        core: &Core,
        window: Run,
        granules: impl Iterator<Item = u32>,
        mark: Mark,
    ) -> RegionId {
        let id = self.regions.add(window, core.slot_addr(window.start)..core.slot_addr(window.end()), mark);
        for (slot, granule) in window.numbers().zip(granules) {
            self.slots.set(slot, Slot { granule: Some(granule), region: Some(id.index), protected: false });
            self.granules.put(granule, Place::Region { slot });
            self.granules.set_pool(granule, LenderId::OWN);
        }
        id
    }

    /// Removes a region; its granules are freed now or when their last reference goes.
    pub(crate) fn remove_region(&mut self, core: &Core, id: RegionId) -> Result<()> {
        let Some(region) = self.regions.remove(id) else { return Ok(()) };
        let granules: Vec<u32> = self.slots.granules(region.slots).collect();
        self.slots.clear(region.slots);
        let unmapped = self.give_window(core, region.slots);
        self.release(core, granules);
        unmapped
    }

    /// Whether a region holds granules of a lender that is gone, or of a fixed pool, and so should not last.
    pub(crate) fn holds_leftovers(&self, region: RegionId) -> bool {
        if self.granules.all_stay() {
            return false;
        }
        let Some(region) = self.regions.get(region) else { return false };
        let mut granules = self.slots.granules(region.slots);
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
        queued.flat_map(|region| self.slots.granules(region.slots)).any(of)
    }

    /// Changes a region's mark.
    ///
    /// # Panics
    /// When the thesis has no such transition, which is a program error.
    pub(crate) fn mark(&mut self, id: RegionId, next: Mark) -> Result<()> {
        let Some(region) = self.regions.get_mut(id) else { return Ok(()) };
        assert!(region.mark.may_become(next), "a region marked {} cannot become {next}", region.mark);
        region.mark = next;
        Ok(())
    }
}

/// A native buffer: memory that the program allocates from a space, keeps, and frees by dropping.
///
/// Shape: starts on a granule boundary unless made by [`Space::allocate_at`]; bytes are zero at first. Only the program
/// stores into it, or others with the program's permission: an input delivers into the buffer while the buffer is
/// borrowed mutably, and share takes the buffer by value for as long as a server may work in it. Dropping it while
/// output is pending is safe: the granules are freed when the last request lets them go.
#[derive(Debug)]
pub struct Buffer(pub(crate) Owned);

impl Space {
    /// Allocates a native buffer of `len` zero bytes. Where there are granules of two sizes, a buffer shorter than a quarter of the
    /// larger granule is of the smaller ones, and any buffer is where no memory of its own size is left.
    ///
    /// # Errors
    /// [`Error::Limit`], [`Error::Empty`], or the kernel's reason (no free huge pages, where granules are of one size).
    ///
    /// # Cost
    /// Some system calls and the zeroing; not for the data path.
    pub fn allocate(&self, len: usize) -> Result<Buffer> {
        self.allocate_at(0, len)
    }

    /// Allocates a native buffer of `len` zero bytes that starts `offset` bytes into its first granule, so that it is
    /// aligned with a server's buffers (client-aligned buffering, thesis §4.1). Where the granule is 4 KiB long, only the
    /// place of `offset` in that counts.
    ///
    /// # Errors
    /// As [`Space::allocate`].
    ///
    /// # Panics
    /// When `offset` is not less than the granule size.
    pub fn allocate_at(&self, offset: usize, len: usize) -> Result<Buffer> {
        Ok(Buffer(self.allocate_owned(offset, len, Mark::Native)?))
    }

    pub(crate) fn allocate_owned(&self, offset: usize, len: usize, mark: Mark) -> Result<Owned> {
        assert!(offset < self.granule(), "offset {offset} is not within a granule");
        self.by_len(len, |space| space.allocate_here(offset, len, mark))
    }

    /// Allocates from this space's granules.
    pub(crate) fn allocate_here(&self, offset: usize, len: usize, mark: Mark) -> Result<Owned> {
        let core = self.core();
        let offset = core.misalignment(offset);
        core.ensure_own()?;
        if len == 0 {
            return Err(Error::Empty);
        }
        if len > core.windows.len() {
            return Err(Error::Limit { asked: len, used: 0, limit: self.limit() });
        }
        let mut state = core.lock();
        let region = state.allocate_region(core, core.granules(offset, len), mark)?;
        let slot = state.regions.get(region).map_or(0, |region| region.slots.start);
        let addr = core.slot_addr(slot) + offset;
        // A migrant region may be reused for a longer buffer; a native one ends with its buffer.
        if let (Mark::Native, Some(found)) = (mark, state.regions.get_mut(region)) {
            found.used = addr..addr + len;
        }
        drop(state);
        Ok(Owned { space: self.clone(), region, addr, len })
    }

    /// Whether an address is in the range that this space's regions are made from; if not, it is in no region.
    pub fn may_hold(&self, addr: usize) -> bool {
        self.at(addr).core().slot_at(addr).is_some()
    }

    /// Which region holds all of the `len` bytes at `addr`, and its mark.
    pub fn region_at(&self, addr: usize, len: usize) -> Option<(RegionId, Mark)> {
        let core = self.at(addr).core();
        let slots = core.slots_of(addr, len)?;
        core.ensure_own().ok()?;
        let state = core.lock();
        let index = state.slots.get(slots.start).region?;
        let region = state.regions.id(index)?;
        let found = state.regions.get(region)?;
        (slots.end() <= found.slots.end()).then_some((region, found.mark))
    }
}

impl Buffer {
    /// The region that holds the buffer.
    pub fn region(&self) -> RegionId {
        self.0.region
    }

    /// The space that the buffer is from.
    pub fn space(&self) -> &Space {
        &self.0.space
    }

    /// The buffer's addresses.
    pub fn addresses(&self) -> Range<usize> {
        self.0.addr..self.0.addr + self.0.len
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.bytes()
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl AsMut<[u8]> for Buffer {
    fn as_mut(&mut self) -> &mut [u8] {
        self
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.0.bytes_mut()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let core = self.0.space.core();
        if !core.is_own() {
            return;
        }
        // When the kernel cannot unmap (too many mappings), the addresses stay reserved; the granules are free.
        let _ = core.lock().remove_region(core, self.0.region);
    }
}
