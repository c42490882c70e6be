//! Migrant buffers: regions that change hands whole, by region caching or region hiding.
//!
//! How: an output takes the client's region: it is *emigrating* while the request is pending. The reply removes it
//! (move), hides it (emulated move: inaccessible, *emigrant*) or keeps it as it is (weak move: *weak emigrant*); the
//! latter two wait in a queue for the next input of their length, which makes one *immigrating* and, with its reply,
//! *immigrant* again. Nothing is mapped or unmapped on the way.
//! Invariants: a region in a queue belongs to nobody; a hidden one cannot be touched, and keeps its bytes.
//! Limits: a queue keeps `Config::pool` bytes; beyond that the region that has waited longest is removed.
//! Source: thesis §3.3, §7.4.

use std::ops::{Deref, DerefMut};

use genie_sys::Access;

use crate::granule::{GranuleRuns, push};
use crate::region::Owned;
use crate::space::{Core, Space};
use crate::{Direction, Error, Mark, Reference, RegionId, Result, SystemBuffer, Wired};

/// A migrant buffer in the client's hands: an immigrant region, or what part of it holds data.
///
/// Shape: placed and laid out by the interface. Passing it on gives it up; dropping it deallocates it.
pub struct Migrant {
    owned: Option<Owned>,
    /// What it becomes when it is passed on or deallocated: emigrant or weak emigrant.
    queue: Mark,
}

/// A migrant buffer that an output is taking away.
pub struct Emigrating {
    owned: Option<Owned>,
    queue: Mark,
    hidden: bool,
}

/// A cached or hidden region, or a new one, in which an input is pending.
pub struct Immigrating {
    owned: Option<Owned>,
    queue: Mark,
    len: usize,
}

impl Space {
    /// Allocates a migrant buffer of `len` bytes for strong (move) or weak (weak move) integrity: a cached region if one
    /// fits, else a new one. Bytes of a cached region are whatever they were.
    ///
    /// # Errors
    /// As [`Space::allocate`].
    pub fn allocate_migrant(&self, len: usize, strong: bool) -> Result<Migrant> {
        let immigrating = self.dequeue(len, strong)?;
        immigrating.reinstate()?;
        Ok(immigrating.arrive(len))
    }

    /// Dequeues an emigrant (`strong`) or weak emigrant region that holds `len` bytes, or allocates one, and marks it
    /// immigrating.
    ///
    /// # Errors
    /// As [`Space::allocate`].
    pub fn dequeue(&self, len: usize, strong: bool) -> Result<Immigrating> {
        let core = self.core();
        let queue = if strong { Mark::Emigrant } else { Mark::WeakEmigrant };
        if let Some(owned) = self.dequeue_cached(core, len, queue)? {
            return Ok(Immigrating { owned: Some(owned), queue, len });
        }
        let owned = self.allocate_owned(0, len, Mark::Immigrating)?;
        Ok(Immigrating { owned: Some(owned), queue, len })
    }

    fn dequeue_cached(&self, core: &Core, len: usize, queue: Mark) -> Result<Option<Owned>> {
        let slots = core.granules(0, len);
        let mut guard = core.lock();
        let state = &mut *guard;
        let Some(region) = state.queues.of(queue).take(slots) else { return Ok(None) };
        state.mark(region, Mark::Immigrating)?;
        let start = state.regions.get(region).map_or(0, |region| region.slots.start);
        let addr = core.slot_addr(start);
        drop(guard);
        Ok(Some(Owned { space: self.clone(), region, addr, len: core.bytes(slots) }))
    }

    /// Makes an immigrant region of a system buffer's granules (move): zero-completes them, fills a new region with
    /// them and maps it. Returns the migrant buffer and the number of bytes zeroed. The system buffer keeps the
    /// granules that hold none of the data, and has no data until it is refilled. A lender's pool loses the granules for
    /// good (thesis §5.2, footnote 1): better to fill regions from the space's own.
    ///
    /// # Errors
    /// No addresses or mappings: the granules go back to the free list. [`Error::NoLender`] while the lender is in
    /// quarantine: the system buffer is as it was, but for the zeroing.
    ///
    /// # Panics
    /// When the system buffer holds fewer bytes, or is no [`Space::aligned_buffer`].
    pub fn region_from(&self, system: &mut SystemBuffer, len: usize) -> Result<(Migrant, usize)> {
        let core = self.core();
        system.assert_of(self);
        let offset = system.alignment().expect("move allocates whole granules");
        assert!(len <= system.len(), "{len} bytes of a system buffer of {}", system.len());
        let count = core.granules(offset, len).max(1);
        let zeroed = system.zero_granules_around(0..len, count);
        let mut guard = core.lock();
        let state = &mut *guard;
        if state.granules.stocks.is_quarantined(system.lender()) {
            return Err(Error::NoLender { lender: system.lender() });
        }
        let (granules, window) = system.surrender(core, state, count);
        let region = match window {
            Some(window) => {
                // A swap may have exchanged its page tables, which ends their registration.
                state.register(core, window.start, window.len);
                state.enter_region(window, granules.iter().copied(), Mark::Immigrant)
            }
            None => {
                let mut runs = GranuleRuns::new();
                granules.iter().for_each(|id| push(&mut runs, *id));
                state
                    .region_of(core, &runs, Mark::Immigrant)
                    .inspect_err(|_| state.release(core, granules.iter().copied()))?
            }
        };
        let start = state.regions.get(region).map_or(0, |region| region.slots.start);
        drop(guard);
        let owned = Owned { space: self.clone(), region, addr: core.slot_addr(start) + offset, len };
        Ok((Migrant { owned: Some(owned), queue: Mark::Emigrant }, zeroed))
    }
}

impl Migrant {
    /// Begins to pass the buffer on: marks its region emigrating.
    ///
    /// # Errors
    /// None at present; the signature leaves room for regions removed by C programs.
    pub fn emigrate(mut self) -> Result<Emigrating> {
        let owned = self.owned.take().expect("a migrant buffer owns its region");
        let core = owned.space.core();
        core.lock().mark(owned.region, Mark::Emigrating)?;
        let queue = self.queue;
        Ok(Emigrating { owned: Some(owned), queue, hidden: false })
    }

    /// Narrows the buffer to its first `len` bytes.
    ///
    /// # Panics
    /// When it is shorter.
    #[must_use]
    pub fn truncated(mut self, len: usize) -> Self {
        let owned = self.owned.as_mut().expect("a migrant buffer owns its region");
        assert!(len <= owned.len, "{len} bytes of a migrant buffer of {}", owned.len);
        owned.len = len;
        self
    }

    /// The region that holds the buffer.
    pub fn region(&self) -> RegionId {
        self.inner().region
    }

    /// Whether its region is hidden (strong) or merely cached (weak) once passed on.
    pub fn is_strong(&self) -> bool {
        self.queue == Mark::Emigrant
    }

    fn inner(&self) -> &Owned {
        self.owned.as_ref().expect("a migrant buffer owns its region")
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
        self.owned.as_mut().expect("a migrant buffer owns its region").bytes_mut()
    }
}

impl std::fmt::Debug for Migrant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Migrant({} bytes at {:#x})", self.inner().len, self.inner().addr)
    }
}

impl Drop for Migrant {
    fn drop(&mut self) {
        if let Some(owned) = self.owned.take() {
            enqueue(&owned, self.queue, false);
        }
    }
}

impl Emigrating {
    /// References the granules that hold the data.
    ///
    /// # Errors
    /// As [`Space::reference`].
    pub fn reference(&self) -> Result<Reference> {
        reference(self.inner(), self.inner().len, Mark::Emigrating, Direction::Out)
    }

    /// Wires the region.
    ///
    /// # Errors
    /// The memory-lock limit is too low.
    pub fn wire(&self) -> Result<Wired> {
        self.inner().space.wire_region(self.inner().region)
    }

    /// Removes all access to the region: a touch is a fatal fault from now on, by design.
    ///
    /// # Errors
    /// Too many mappings; the region is accessible.
    pub fn hide(&mut self) -> Result<u32> {
        let owned = self.inner();
        let hidden = access(owned, Access::None).inspect_err(|_| {
            // A first part of the region may have been hidden. Giving its access back joins mappings, and takes none.
            let _ = access(owned, Access::ReadWrite);
        })?;
        self.hidden = true;
        Ok(hidden)
    }

    /// Ends the output by removing the region (move).
    ///
    /// # Errors
    /// Too many mappings: the addresses stay reserved, the memory is free.
    pub fn remove(mut self) -> Result<()> {
        let owned = self.owned.take().expect("taken only by value");
        let core = owned.space.core();
        core.lock().remove_region(core, owned.region)
    }

    /// Ends the output by marking the region emigrant, if it is hidden, or weak emigrant, and keeping it for reuse.
    pub fn enqueue(mut self) {
        let owned = self.owned.take().expect("taken only by value");
        enqueue(&owned, self.queue, self.hidden);
    }

    /// Gives the buffer back to the client, because the output failed.
    ///
    /// # Errors
    /// The kernel's, when a hidden region cannot be made accessible; it is kept for reuse then.
    pub fn give_back(mut self) -> Result<Migrant> {
        if self.hidden {
            access(self.inner(), Access::ReadWrite)?;
        }
        let owned = self.owned.take().expect("taken only by value");
        owned.space.core().lock().mark(owned.region, Mark::Immigrant)?;
        Ok(Migrant { owned: Some(owned), queue: self.queue })
    }

    fn inner(&self) -> &Owned {
        self.owned.as_ref().expect("taken only by value")
    }
}

impl std::fmt::Debug for Emigrating {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Emigrating({:?}, hidden: {})", self.inner().region, self.hidden)
    }
}

impl Drop for Emigrating {
    fn drop(&mut self) {
        if let Some(owned) = self.owned.take() {
            enqueue(&owned, self.queue, self.hidden);
        }
    }
}

impl Immigrating {
    /// References the granules, for a server to fill.
    ///
    /// # Errors
    /// As [`Space::reference`].
    pub fn reference(&self) -> Result<Reference> {
        reference(self.inner(), self.len, Mark::Immigrating, Direction::In)
    }

    /// Wires the region.
    ///
    /// # Errors
    /// The memory-lock limit is too low.
    pub fn wire(&self) -> Result<Wired> {
        self.inner().space.wire_region(self.inner().region)
    }

    /// Checks that the client has not removed the region meanwhile; if it has, its granules, which `reference` kept,
    /// are mapped into a new region.
    ///
    /// # Errors
    /// No addresses or mappings for the new region.
    pub fn check(&mut self, reference: &Reference) -> Result<()> {
        let owned = self.owned.as_mut().expect("taken only by value");
        let core = owned.space.core();
        let mut guard = core.lock();
        let state = &mut *guard;
        if state.regions.get(owned.region).is_some() {
            return Ok(());
        }
        let runs = reference.runs();
        reference.granule_numbers().for_each(|id| state.granules.adopt_deferred(id));
        let region = state
            .region_of(core, runs, Mark::Immigrating)
            .inspect_err(|_| state.release(core, reference.granule_numbers()))?;
        let start = state.regions.get(region).map_or(0, |region| region.slots.start);
        drop(guard);
        owned.addr = core.slot_addr(start);
        owned.region = region;
        Ok(())
    }

    /// Makes the region accessible again, if it was hidden.
    ///
    /// # Errors
    /// The kernel's.
    pub fn reinstate(&self) -> Result<u32> {
        if self.queue == Mark::WeakEmigrant {
            return Ok(0);
        }
        access(self.inner(), Access::ReadWrite)
    }

    /// Where the region's data will be.
    pub fn addr(&self) -> usize {
        self.inner().addr
    }

    /// Ends the input by marking the region immigrant: `len` bytes of it are the client's.
    ///
    /// # Panics
    /// When the region is shorter.
    pub fn arrive(mut self, len: usize) -> Migrant {
        let mut owned = self.owned.take().expect("taken only by value");
        assert!(len <= self.len, "{len} bytes arrived in a region for {}", self.len);
        owned.len = len;
        // The transition is always allowed; a region removed meanwhile was replaced by `check`.
        let _ = owned.space.core().lock().mark(owned.region, Mark::Immigrant);
        Migrant { owned: Some(owned), queue: self.queue }
    }

    fn inner(&self) -> &Owned {
        self.owned.as_ref().expect("taken only by value")
    }
}

impl std::fmt::Debug for Immigrating {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Immigrating({:?}, {} bytes)", self.inner().region, self.len)
    }
}

impl Drop for Immigrating {
    fn drop(&mut self) {
        if let Some(owned) = self.owned.take() {
            enqueue(&owned, self.queue, false);
        }
    }
}

fn reference(owned: &Owned, len: usize, mark: Mark, direction: Direction) -> Result<Reference> {
    owned.space.reference_if(owned.addr, len, direction, |region| region.mark == mark)
}

/// Marks a region and puts it into its queue; one that is to be hidden and cannot be is removed instead, and so is one
/// with granules whose lender is gone.
fn enqueue(owned: &Owned, queue: Mark, hidden: bool) {
    let core = owned.space.core();
    // A weak migrant buffer that was hidden all the same is dequeued from where access is given back.
    let queue = if hidden { Mark::Emigrant } else { queue };
    let unhidden = queue == Mark::Emigrant && !hidden && access(owned, Access::None).is_err();
    let mut guard = core.lock();
    let state = &mut *guard;
    if unhidden || state.holds_leftovers(owned.region) {
        let _ = state.remove_region(core, owned.region);
        return;
    }
    let Some(granules) = state.regions.get(owned.region).map(|region| region.slots.len) else { return };
    if state.mark(owned.region, queue).is_ok() {
        state.queues.of(queue).push(owned.region, granules);
    }
    while let Some(oldest) = state.queues.of(queue).take_excess(core.pool_limit) {
        // When the kernel cannot unmap, the addresses stay reserved; the granules are free.
        let _ = state.remove_region(core, oldest);
    }
}

/// Changes the access of a whole region; returns its granules.
fn access(owned: &Owned, access: Access) -> Result<u32> {
    let core = owned.space.core();
    let state = core.lock();
    let Some(region) = state.regions.get(owned.region) else { return Ok(0) };
    core.windows.protect(core.bytes(region.slots.start), core.bytes(region.slots.len), access)?;
    Ok(region.slots.len)
}
