//! Immigrating regions: migrant buffers on their way to the client.
//!
//! How: an input dequeues a cached or hidden region and references it, the server fills it, and the reply makes it the
//! client's. Where nothing but the tables has to change, the beginning and the end of the input each take the space's
//! lock once.
//! Source: thesis §3.3, §7.4.2.

use crate::migrant::Migrating;
use crate::views::Owned;
use crate::{Delivery, Direction, Mark, Migrant, Part, Reference, Released, Result, SystemBuffer, Wired};

/// A cached or hidden region, or a new one, in which an input is pending.
#[derive(Debug)]
pub struct Immigrating {
    pub(crate) region: Migrating,
    /// How many bytes the region has room for, from its address on.
    pub(crate) len: usize,
}

impl Immigrating {
    /// References the granules, for a server to fill.
    ///
    /// # Errors
    /// As [`Space::reference`](crate::Space::reference).
    pub fn reference(&self) -> Result<Reference> {
        let (addr, is_ours) = (self.addr(), |mark| mark == Mark::Immigrating);
        self.inner().space.reference_if(addr, self.len, Direction::In, is_ours)
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
    ///
    /// # Panics
    /// When the reference is of another space, or the region was removed and the reference is to another region.
    pub fn check(&mut self, reference: &Reference) -> Result<()> {
        reference.assert_of(&self.inner().space);
        let owned = self.region.owned_mut();
        let core = owned.space.core();
        core.ensure_own()?;
        let mut guard = core.lock();
        let state = &mut *guard;
        if state.regions.get(owned.region).is_some() {
            return Ok(());
        }
        assert_eq!(reference.region, owned.region, "a reference to another region was to be mapped");
        let runs = reference.runs();
        reference.granule_numbers().for_each(|id| state.granules.adopt_deferred(id));
        let region = state
            .region_of(core, runs, Mark::Immigrating)
            .inspect_err(|_| state.release(core, reference.granule_numbers()))?;
        let start = state.regions.get(region).map_or(0, |region| region.slots.start);
        drop(guard);
        owned.addr = core.slot_addr(start);
        owned.region = region;
        self.region.hidden = false;
        Ok(())
    }

    /// Makes the region accessible again, if it was hidden; returns how many granules changed.
    ///
    /// # Errors
    /// The kernel's.
    pub fn reinstate(&mut self) -> Result<u32> {
        self.region.reinstate()
    }

    /// Has the data lie in the region so that `part` of its `len` bytes, which is in `system`, can be swapped in, whatever its
    /// offset there; other parts can if they follow on from it. A region of other granules, or too short for data there, goes back into its
    /// queue, and another one takes its place. From then on there is room for `len` bytes, and no more than before. Where there is
    /// no such region, or the data is in no whole granules, the region stays as it is, and the data will be copied.
    ///
    /// # Errors
    /// [`Error::Inherited`](crate::Error::Inherited).
    ///
    /// # Cost
    /// Where the region fits, as if it was filled in place, the space's lock.
    pub fn align(&mut self, system: &SystemBuffer, part: Part, len: usize) -> Result<()> {
        let Some(offset) = part.offset_in(system) else { return Ok(()) };
        let (space, owned) = (system.space(), self.inner());
        let core = owned.space.core();
        core.ensure_own()?;
        let granules = core.lock().regions.get(owned.region).map_or(0, |region| region.slots.len);
        let fits = owned.space.has_tables_of(space) && granules >= core.granules(offset, len);
        if !fits {
            let Ok(region) = space.dequeue_here(offset + len, self.region.queue) else { return Ok(()) };
            self.region = region;
        }
        let owned = self.region.owned_mut();
        owned.addr = owned.addr - owned.space.core().misalignment(owned.addr) + offset;
        self.len = self.len.min(len);
        Ok(())
    }

    /// Where the region's data will be.
    pub fn addr(&self) -> usize {
        self.inner().addr
    }

    /// Begins to fill the first `len` bytes of the region, as [`Space::delivery`](crate::Space::delivery) does a client's.
    ///
    /// # Errors
    /// As [`Space::delivery`](crate::Space::delivery).
    ///
    /// # Panics
    /// When the region is shorter, or hidden.
    pub fn delivery(&mut self, len: usize) -> Result<Delivery<'_>> {
        assert!(len <= self.len, "{len} bytes are delivered to a region for {}", self.len);
        self.assert_accessible();
        let owned = self.inner();
        owned.space.delivery_at(owned.addr, len)
    }

    /// Ends the input by marking the region immigrant: `len` bytes of it are the client's.
    ///
    /// # Panics
    /// When the region is shorter, or is hidden and was not reinstated.
    pub fn arrive(mut self, len: usize) -> Migrant {
        self.assert_accessible();
        assert!(len <= self.len, "{len} bytes arrived in a region for {}", self.len);
        let owned = self.region.owned_mut();
        owned.len = len;
        // The transition is always allowed; a region removed meanwhile was replaced by `check`.
        let _ = owned.space.core().lock().mark(owned.region, Mark::Immigrant);
        Migrant(self.region)
    }

    /// Ends the input as [`Immigrating::check`], the release of `reference` and [`Immigrating::arrive`] do, but takes the
    /// space's lock once.
    ///
    /// # Errors
    /// As [`Immigrating::check`].
    ///
    /// # Panics
    /// As [`Immigrating::check`] and [`Immigrating::arrive`].
    pub fn arrive_released(mut self, mut reference: Reference, len: usize) -> Result<(Migrant, Released)> {
        reference.assert_of(&self.inner().space);
        self.assert_accessible();
        assert!(len <= self.len, "{len} bytes arrived in a region for {}", self.len);
        let owned = self.region.owned_mut();
        owned.len = len;
        let mut state = owned.space.inner.core.lock();
        if state.regions.get(owned.region).is_none() {
            drop(state);
            self.check(&reference)?;
            let released = reference.release();
            return Ok((self.arrive(len), released));
        }
        let released = reference.release_in(&mut state);
        // The transition is always allowed.
        let _ = state.mark(owned.region, Mark::Immigrant);
        drop(state);
        Ok((Migrant(self.region), released))
    }

    /// A touch of a hidden region is a fatal fault.
    #[track_caller]
    fn assert_accessible(&self) {
        assert!(!self.region.hidden, "a hidden region was to be used before it was reinstated");
    }

    fn inner(&self) -> &Owned {
        self.region.owned()
    }
}
