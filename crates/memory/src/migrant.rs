//! Migrant buffers: regions that change hands whole, by region caching or region hiding.
//!
//! How: an output takes the client's region: it is *emigrating* while the request is pending. The reply removes it
//! (move), hides it (emulated move: inaccessible, *emigrant*) or keeps it as it is (weak move: *weak emigrant*); a
//! region that was hidden or kept waits in a queue for the next input of its length. That input makes the region
//! *immigrating*, and the reply makes it *immigrant* again. Nothing is mapped or unmapped on the way.
//! Invariants: a region in a queue belongs to nobody; a hidden one cannot be touched, and keeps its bytes.
//! Limits: queues keep as many bytes as `Config::pool` says; beyond that the region that has waited longest is removed.
//! Source: thesis §3.3, §7.4.

use std::ops::{Deref, DerefMut, Range};
use std::sync::atomic::Ordering::Relaxed;

use genie_sys::Access;

use crate::space::{Core, Space, State};
use crate::tables::granule::runs_of;
use crate::views::Owned;
use crate::{Direction, Immigrating, Mark, Reference, RegionId, Released, Result, SystemBuffer, Wired};

/// A migrant buffer in the client's hands: an immigrant region, or the part of it that holds data.
///
/// Shape: placed and laid out by the interface. Passing it on gives it up; dropping it deallocates it.
#[derive(Debug)]
pub struct Migrant(pub(crate) Migrating);

/// A migrant buffer that an output is taking away. Dropping this ends the output: the region is kept for reuse, marked
/// emigrant if it is hidden, and weak emigrant if not.
#[derive(Debug)]
pub struct Emigrating(Migrating);

/// A region that changes hands. Dropping this keeps it for reuse.
#[derive(Debug)]
pub(crate) struct Migrating {
    owned: Option<Owned>,
    /// What it becomes when it is passed on or deallocated: emigrant or weak emigrant.
    pub(crate) queue: Mark,
    /// Whether it is inaccessible.
    pub(crate) hidden: bool,
}

impl Migrating {
    fn new(owned: Owned, queue: Mark, hidden: bool) -> Self {
        Self { owned: Some(owned), queue, hidden }
    }

    pub(crate) fn owned(&self) -> &Owned {
        self.owned.as_ref().expect("taken only by value")
    }

    pub(crate) fn owned_mut(&mut self) -> &mut Owned {
        self.owned.as_mut().expect("taken only by value")
    }

    /// Makes the region accessible again, if it was hidden; returns how many granules changed.
    pub(crate) fn reinstate(&mut self) -> Result<u32> {
        if !self.hidden {
            return Ok(0);
        }
        let reinstated = access(self.owned(), Access::ReadWrite)?;
        self.hidden = false;
        Ok(reinstated)
    }
}

impl Drop for Migrating {
    fn drop(&mut self) {
        if let Some(owned) = self.owned.take() {
            enqueue(&owned, self.queue, self.hidden, |_| {});
        }
    }
}

impl Space {
    /// Allocates a migrant buffer of `len` bytes for strong (move) or weak (weak move) integrity: a cached region if one
    /// fits, else a new one. Bytes of a cached region are whatever they were.
    ///
    /// # Errors
    /// As [`Space::allocate`].
    pub fn allocate_migrant(&self, len: usize, strong: bool) -> Result<Migrant> {
        if !strong
            && let Some(owned) = self.for_len(len).dequeue_cached(len, Mark::WeakEmigrant, Mark::Immigrant)?
        {
            return Ok(Migrant(Migrating::new(Owned { len, ..owned }, Mark::WeakEmigrant, false)));
        }
        let mut immigrating = self.dequeue(len, strong)?;
        immigrating.reinstate()?;
        Ok(immigrating.arrive(len))
    }

    /// Dequeues an emigrant (`strong`) or weak emigrant region that holds `len` bytes, or allocates one, and marks it
    /// immigrating. A region for no bytes has a granule all the same.
    ///
    /// # Errors
    /// As [`Space::allocate`].
    pub fn dequeue(&self, len: usize, strong: bool) -> Result<Immigrating> {
        let queue = if strong { Mark::Emigrant } else { Mark::WeakEmigrant };
        let region = match self.for_len(len).dequeue_migrating(len, queue)? {
            Some(region) => region,
            None => Migrating::new(self.allocate_owned(0, len.max(1), Mark::Immigrating)?, queue, false),
        };
        Ok(Immigrating { region, len })
    }

    /// As [`Space::dequeue`], of this space's granules, whatever the length.
    pub(crate) fn dequeue_here(&self, len: usize, queue: Mark) -> Result<Migrating> {
        match self.dequeue_migrating(len, queue)? {
            Some(region) => Ok(region),
            None => Ok(Migrating::new(self.allocate_here(0, len.max(1), Mark::Immigrating)?, queue, false)),
        }
    }

    fn dequeue_migrating(&self, len: usize, queue: Mark) -> Result<Option<Migrating>> {
        let found = self.dequeue_cached(len, queue, Mark::Immigrating)?;
        Ok(found.map(|owned| Migrating::new(owned, queue, queue == Mark::Emigrant)))
    }

    /// As [`Space::dequeue`], and also references the granules, for a server to fill.
    ///
    /// # Errors
    /// As [`Space::allocate`] and [`Space::reference`].
    ///
    /// # Cost
    /// Takes the space's lock once, where a cached region fits and nothing in the space is protected.
    pub fn dequeue_referenced(&self, len: usize, strong: bool) -> Result<(Immigrating, Reference)> {
        let space = self.for_len(len);
        let core = space.core();
        core.ensure_own()?;
        let queue = if strong { Mark::Emigrant } else { Mark::WeakEmigrant };
        let mut state = core.lock();
        // Protected granules may have to be replaced first, for which the lock must be free.
        if core.protected.load(Relaxed) == 0
            && let Some((region, addr)) = state.dequeue(core, len, queue, Mark::Immigrating)?
        {
            let reference = space.reference_in(&mut state, region, (addr, len), Direction::In);
            drop(state);
            let owned = Owned { space: space.clone(), region, addr, len };
            return Ok((Immigrating { region: Migrating::new(owned, queue, strong), len }, reference?));
        }
        drop(state);
        let immigrating = self.dequeue(len, strong)?;
        let reference = immigrating.reference()?;
        Ok((immigrating, reference))
    }

    fn dequeue_cached(&self, len: usize, queue: Mark, next: Mark) -> Result<Option<Owned>> {
        self.core().ensure_own()?;
        let found = self.core().lock().dequeue(self.core(), len, queue, next)?;
        Ok(found.map(|(region, addr)| Owned { space: self.clone(), region, addr, len }))
    }

    /// Makes an immigrant region of a system buffer's granules (move): zero-completes them, fills a new region with
    /// them and maps it. Returns the migrant buffer and the number of bytes zeroed. The system buffer keeps the
    /// granules that hold none of the data, and has no data until it is refilled. A lender's pool loses the granules for
    /// good (thesis §5.2, footnote 1): regions are better filled from the space's own pool.
    ///
    /// # Errors
    /// No addresses or mappings: the granules go back to the free list.
    ///
    /// # Panics
    /// When the system buffer holds fewer bytes, or is no [`Space::aligned_buffer`].
    pub fn region_from(&self, system: &mut SystemBuffer, len: usize) -> Result<(Migrant, usize)> {
        let (region, zeroed) = self.migrating_from(system, len, Mark::Immigrant)?;
        Ok((Migrant(region), zeroed))
    }

    /// As [`Space::region_from`], but the region's data is yet to be delivered: all of the `len` bytes.
    ///
    /// # Errors
    /// As [`Space::region_from`].
    ///
    /// # Panics
    /// As [`Space::region_from`].
    pub fn immigrating_from(&self, system: &mut SystemBuffer, len: usize) -> Result<(Immigrating, usize)> {
        let (region, zeroed) = self.migrating_from(system, len, Mark::Immigrating)?;
        Ok((Immigrating { region, len }, zeroed))
    }

    fn migrating_from(
        &self,
        system: &mut SystemBuffer,
        len: usize,
        mark: Mark,
    ) -> Result<(Migrating, usize)> {
        system.assert_of(self);
        let space = system.space().clone();
        let core = space.core();
        let offset = system.alignment().expect("move allocates whole granules");
        assert!(len <= system.len(), "{len} bytes of a system buffer of {}", system.len());
        let count = core.granules(offset, len).max(1);
        let zeroed = system.zero_granules_around(0..len, count);
        let mut guard = core.lock();
        let state = &mut *guard;
        state.regions.reserve()?;
        let (granules, window) = system.surrender(core, state, count);
        let region = match window {
            Some(window) => {
                // A delivery may have swapped its page tables, which ends their registration.
                state.register(core, window.start, window.len);
                state.enter_region(core, window, granules.iter().copied(), mark)
            }
            None => {
                let filled = state.region_of(core, &runs_of(granules.iter().copied()), mark);
                filled.inspect_err(|_| state.release(core, granules.iter().copied()))?
            }
        };
        let start = state.regions.get(region).map_or(0, |region| region.slots.start);
        drop(guard);
        let owned = Owned { space: space.clone(), region, addr: core.slot_addr(start) + offset, len };
        Ok((Migrating::new(owned, Mark::Emigrant, false), zeroed))
    }
}

impl Migrant {
    /// Begins to pass the buffer on: marks its region emigrating.
    ///
    /// # Errors
    /// [`Error::Inherited`](crate::Error::Inherited).
    pub fn emigrate(self) -> Result<Emigrating> {
        let (core, region) = (self.inner().space.core(), self.region());
        core.ensure_own()?;
        core.lock().mark(region, Mark::Emigrating)?;
        Ok(Emigrating(self.0))
    }

    /// As [`Migrant::emigrate`], and also references the granules that hold the data. Takes the space's lock once.
    ///
    /// # Errors
    /// As [`Space::reference`].
    pub fn emigrate_referenced(self) -> Result<(Emigrating, Reference)> {
        let owned = self.inner();
        let core = owned.space.core();
        core.ensure_own()?;
        let mut state = core.lock();
        state.mark(owned.region, Mark::Emigrating)?;
        let place = (owned.addr, owned.len);
        let reference = owned.space.reference_in(&mut state, owned.region, place, Direction::Out);
        drop(state);
        Ok((Emigrating(self.0), reference?))
    }

    /// Narrows the buffer to its first `len` bytes.
    ///
    /// # Panics
    /// When it is shorter.
    #[must_use]
    pub fn truncated(self, len: usize) -> Self {
        self.part(0..len)
    }

    /// Narrows the buffer to a part of it: that is what is passed on. Its region is passed on whole.
    ///
    /// # Panics
    /// When the part leaves the buffer.
    #[must_use]
    pub fn part(mut self, part: Range<usize>) -> Self {
        let owned = self.0.owned_mut();
        assert!(
            part.start <= part.end && part.end <= owned.len,
            "bytes {part:?} of a migrant buffer of {}",
            owned.len
        );
        (owned.addr, owned.len) = (owned.addr + part.start, part.len());
        self
    }

    /// Widens the buffer again that [`Migrant::part`] has narrowed: it has `len` bytes then, `before` of them in front of what it
    /// has now.
    ///
    /// # Panics
    /// When these are not all in its region.
    #[must_use]
    pub fn widened(mut self, before: usize, len: usize) -> Self {
        let owned = self.0.owned_mut();
        let addr = owned.addr.saturating_sub(before);
        let region = owned.space.region_at(addr, len).map(|(region, _)| region);
        assert_eq!(region, Some(owned.region), "{before} bytes in front, {len} in all, of a migrant buffer");
        (owned.addr, owned.len) = (addr, len);
        self
    }

    /// The region that holds the buffer.
    pub fn region(&self) -> RegionId {
        self.inner().region
    }

    /// Whether its region is hidden (strong) or merely cached (weak) once passed on.
    pub fn is_strong(&self) -> bool {
        self.0.queue == Mark::Emigrant
    }

    fn inner(&self) -> &Owned {
        self.0.owned()
    }
}

impl Deref for Migrant {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.inner().bytes()
    }
}

impl DerefMut for Migrant {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.0.owned_mut().bytes_mut()
    }
}

impl Emigrating {
    /// Wires the region.
    ///
    /// # Errors
    /// The memory-lock limit is too low.
    pub fn wire(&self) -> Result<Wired> {
        self.0.owned().space.wire_region(self.0.owned().region)
    }

    /// Removes all access to the region: a touch is a fatal fault from now on, by design.
    ///
    /// # Errors
    /// Too many mappings; the region stays accessible.
    pub fn hide(&mut self) -> Result<u32> {
        let owned = self.0.owned();
        let hidden = access(owned, Access::None).inspect_err(|_| {
            // A first part of the region may have been hidden. Giving its access back joins mappings, and takes none.
            let _ = access(owned, Access::ReadWrite);
        })?;
        self.0.hidden = true;
        Ok(hidden)
    }

    /// Ends the output by removing the region (move).
    ///
    /// # Errors
    /// Too many mappings: the addresses stay reserved, the memory is free.
    pub fn remove(mut self) -> Result<()> {
        let owned = self.0.owned.take().expect("taken only by value");
        let core = owned.space.core();
        core.lock().remove_region(core, owned.region)
    }

    /// Unreferences the granules, and then ends the output as dropping this does. Takes the space's lock once if the region
    /// is hidden already, or need not be hidden.
    ///
    /// # Panics
    /// When the reference is of another space.
    pub fn enqueue_released(mut self, mut reference: Reference) -> Released {
        reference.assert_of(&self.0.owned().space);
        let owned = self.0.owned.take().expect("taken only by value");
        let mut released = Released::default();
        enqueue(&owned, self.0.queue, self.0.hidden, |state| released = reference.release_in(state));
        released
    }

    /// Gives the buffer back to the client, because the output failed.
    ///
    /// # Errors
    /// The kernel's, when a hidden region cannot be made accessible; it is kept for reuse then.
    pub fn give_back(mut self) -> Result<Migrant> {
        if self.0.hidden {
            self.0.reinstate()?;
        }
        let owned = self.0.owned();
        owned.space.core().lock().mark(owned.region, Mark::Immigrant)?;
        Ok(Migrant(self.0))
    }
}

impl State {
    /// Takes a region that holds `len` bytes out of its queue and marks it; returns it and its address.
    fn dequeue(
        &mut self,
        core: &Core,
        len: usize,
        queue: Mark,
        next: Mark,
    ) -> Result<Option<(RegionId, usize)>> {
        let Some(region) = self.queues.of(queue).take(core.granules(0, len.max(1)), queue) else {
            return Ok(None);
        };
        self.mark(region, next)?;
        let start = self.regions.get(region).map_or(0, |region| region.slots.start);
        Ok(Some((region, core.slot_addr(start))))
    }
}

/// Marks a region and puts it into its queue. A region that is to be hidden and cannot be is removed instead, and so is
/// a region with granules whose lender is gone, or that are of a fixed pool. `first` is called before that, under the same lock.
fn enqueue(owned: &Owned, queue: Mark, hidden: bool, first: impl FnOnce(&mut State)) {
    let core = owned.space.core();
    if !core.is_own() {
        return;
    }
    // A weak migrant buffer that was hidden all the same goes into the queue for hidden regions, which get their access
    // back when they are dequeued.
    let queue = if hidden { Mark::Emigrant } else { queue };
    let unhidden = queue == Mark::Emigrant && !hidden && access(owned, Access::None).is_err();
    let mut guard = core.lock();
    let state = &mut *guard;
    first(state);
    if unhidden || state.holds_leftovers(owned.region) {
        let _ = state.remove_region(core, owned.region);
        return;
    }
    let Some(granules) = state.regions.get(owned.region).map(|region| region.slots.len) else { return };
    if state.mark(owned.region, queue).is_ok() {
        state.queues.of(queue).push(owned.region, granules, queue);
    }
    while let Some(oldest) = state.queues.of(queue).take_excess(core.migrants_limit) {
        // When the kernel cannot unmap, the addresses stay reserved; the granules are free.
        let _ = state.remove_region(core, oldest);
    }
}

/// Changes the access of a whole region; returns its granules.
fn access(owned: &Owned, access: Access) -> Result<u32> {
    let core = owned.space.core();
    core.ensure_own()?;
    let state = core.lock();
    let Some(region) = state.regions.get(owned.region) else { return Ok(0) };
    core.windows.protect(core.bytes(region.slots.start), core.bytes(region.slots.len), access)?;
    Ok(region.slots.len)
}
