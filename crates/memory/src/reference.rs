//! Page referencing: counting, per granule, the inputs and outputs pending in it.
//!
//! How: referencing checks that the client may use the bytes, notes which granules hold them now, and counts. A counted
//! granule is never reused until it is unreferenced, whoever frees the region; and while an output counts on it, no
//! store reaches it through a window.
//! Source: thesis §3.2.1, §3.2.2.

use std::sync::atomic::Ordering::Relaxed;

use genie_sys::GranuleKind;

use crate::segments::Segments;
use crate::space::{Core, Space, State};
use crate::tables::granule::{GranuleRuns, runs_of};
use crate::tables::runs::Run;
use crate::{Direction, Error, Mark, RegionId, Result, Wired, aliases};

/// How many granules of 4 KiB a call must map on average for mapping them again to cost less than unprotecting them does, and a
/// fault for each. Measured for 16, 64 and 256 granules (Linux 6.18, Xeon): 14, 25 and 86 us against 20, 74 and 297 us.
const MAPPED_AGAIN_MIN: u32 = 32;

/// The granules of a client's buffer, referenced; dropping this unreferences them.
#[derive(Debug)]
pub struct Reference {
    space: Space,
    direction: Direction,
    pub(crate) region: RegionId,
    pub(crate) slots: Run,
    runs: GranuleRuns,
    /// Where the data starts in the first granule.
    offset: usize,
    len: usize,
    faults: u32,
    is_framed: bool,
    released: bool,
}

/// What unreferencing found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Released {
    /// Write faults that the region took while it was referenced.
    pub faults: u32,
}

impl Space {
    /// References the granules that hold `len` bytes at `addr`, after checking that they are the client's.
    ///
    /// # Errors
    /// [`Error::Foreign`] outside the space's regions, [`Error::Mark`] when the region has been passed on. For input: there is
    /// no memory or mapping for replacing granules from which an output is pending.
    pub fn reference(&self, addr: usize, len: usize, direction: Direction) -> Result<Reference> {
        self.reference_if(addr, len, direction, Mark::is_clients)
    }

    /// References the granules of a migrant region that is on its way.
    pub(crate) fn reference_if(
        &self,
        addr: usize,
        len: usize,
        direction: Direction,
        allowed: impl Fn(Mark) -> bool,
    ) -> Result<Reference> {
        let core = self.at(addr).core();
        core.ensure_own()?;
        let foreign = || Error::Foreign { addr, len };
        let slots = core.slots_of(addr, len).ok_or_else(foreign)?;
        if direction == Direction::In {
            core.verify_write_access(slots)?;
        }
        let mut state = core.lock();
        let index = state.slots.get(slots.start).region.ok_or_else(foreign)?;
        let region = state.regions.id(index).ok_or_else(foreign)?;
        let found = state.regions.get(region).ok_or_else(foreign)?;
        if slots.end() > found.slots.end() {
            return Err(foreign());
        }
        if !allowed(found.mark) {
            return Err(Error::Mark { addr, found: found.mark });
        }
        self.at(addr).reference_in(&mut state, region, (addr, len), direction)
    }

    /// References the granules that hold `len` bytes at `addr`, for a caller that has the lock, and holds the region.
    ///
    /// # Errors
    /// The region is gone.
    pub(crate) fn reference_in(
        &self,
        state: &mut State,
        region: RegionId,
        (addr, len): (usize, usize),
        direction: Direction,
    ) -> Result<Reference> {
        let core = self.core();
        let foreign = || Error::Foreign { addr, len };
        let found = state.regions.get_mut(region).ok_or_else(foreign)?;
        found.passed = true;
        let faults = found.faults;
        let slots = core.slots_of(addr, len).ok_or_else(foreign)?;
        let runs = state.reference(slots, direction);
        let is_framed = state.is_framed(&runs);
        let (space, offset) = (self.clone(), core.misalignment(addr));
        Ok(Reference {
            space,
            direction,
            region,
            slots,
            runs,
            offset,
            len,
            faults,
            is_framed,
            released: false,
        })
    }

    /// Whether a store to any of the `len` bytes at `addr` would replace its granule, because an output by copy-on-write
    /// is pending from it.
    ///
    /// Cost: a load where no granule of the space is protected; else the space's lock.
    pub fn has_protected_output(&self, addr: usize, len: usize) -> bool {
        let core = self.at(addr).core();
        if core.protected.load(Relaxed) == 0 || !core.is_own() {
            return false;
        }
        let Some(slots) = core.slots_of(addr, len) else { return false };
        let state = core.lock();
        slots.numbers().any(|slot| state.pending_output(slot).is_some())
    }
}

impl Reference {
    /// How many granules are referenced.
    pub fn granules(&self) -> u32 {
        self.slots.len
    }

    /// Whether the reference is to the `len` bytes at `addr`.
    pub fn is_to(&self, addr: usize, len: usize) -> bool {
        (self.space.core().slot_addr(self.slots.start) + self.offset, self.len) == (addr, len)
    }

    /// The region that holds the data.
    pub fn region(&self) -> RegionId {
        self.region
    }

    /// Wires the whole region that holds the data.
    ///
    /// # Errors
    /// As [`Space::wire_region`].
    pub fn wire(&self) -> Result<Wired> {
        self.space.wire_region(self.region)
    }

    /// The space that the data is of.
    pub fn space(&self) -> &Space {
        &self.space
    }

    /// Where the data is, in the server's own mapping.
    pub fn segments(&self) -> Segments {
        aliases::segments(self.space.core(), self.runs.iter().copied(), self.offset, self.len)
    }

    /// Whether some of the data lies in an object of [`Frames`](crate::Frames), which no server in another process is to be shown:
    /// others' data lies there, too.
    pub fn is_framed(&self) -> bool {
        self.is_framed
    }

    /// Whether none of the granules was lost, as far as is known.
    ///
    /// # Errors
    /// [`Error::Lost`].
    ///
    /// # Cost
    /// As [`Space::ensure_kept`].
    pub fn ensure_kept(&self) -> Result<()> {
        self.space.core().ensure_granules(self.granule_numbers())
    }

    pub(crate) fn runs(&self) -> &GranuleRuns {
        &self.runs
    }

    pub(crate) fn granule_numbers(&self) -> impl Iterator<Item = u32> {
        self.runs.iter().flat_map(|run| run.numbers())
    }

    /// Unreferences, and says what happened meanwhile.
    pub fn release(mut self) -> Released {
        self.unreference()
    }

    /// The granules of one space mean nothing in the tables of another.
    ///
    /// # Panics
    /// When the reference is of another space.
    #[track_caller]
    pub(crate) fn assert_of(&self, space: &Space) {
        assert!(self.space.has_tables_of(space), "a reference of another space was to be used");
    }

    fn unreference(&mut self) -> Released {
        if std::mem::replace(&mut self.released, true) || self.space.is_inherited() {
            return Released::default();
        }
        let mut state = self.space.core().lock();
        self.uncount(&mut state)
    }

    /// Unreferences for a caller that has the lock of its space; the reference itself may be dropped when the lock is
    /// free again.
    pub(crate) fn release_in(&mut self, state: &mut State) -> Released {
        match std::mem::replace(&mut self.released, true) {
            true => Released::default(),
            false => self.uncount(state),
        }
    }

    fn uncount(&self, state: &mut State) -> Released {
        let core = self.space.core();
        let mut none_left = true;
        for run in &self.runs {
            none_left &= state.granules.unreference(*run, self.direction);
        }
        state.unmap_retired(core);
        let faults = state.regions.get(self.region).map_or(0, |region| region.faults - self.faults);
        if self.direction == Direction::Out {
            state.let_waiters_store(core);
            if none_left {
                state.output_completed(core, self.region, self.slots);
            }
        }
        Released { faults }
    }
}

impl Drop for Reference {
    fn drop(&mut self) {
        self.unreference();
    }
}

impl Core {
    /// Replaces granules from which an output by copy-on-write is pending, as a store through a window would: a server
    /// that works in them stores through aliases, which never fault.
    fn verify_write_access(&self, slots: Run) -> Result<()> {
        if self.protected.load(Relaxed) == 0 {
            return Ok(());
        }
        for slot in slots.numbers() {
            while self.lock().pending_output(slot).is_some() {
                self.replace(Run { start: slot, len: 1 })?;
            }
        }
        Ok(())
    }
}

impl State {
    /// Counts an input or output in the granules that slots show.
    fn reference(&mut self, slots: Run, direction: Direction) -> GranuleRuns {
        let runs = runs_of(self.slots.granules(slots));
        runs.iter().for_each(|run| self.granules.reference(*run, direction));
        runs
    }

    fn is_framed(&self, runs: &GranuleRuns) -> bool {
        runs.iter().any(|run| self.granules.lent_objects.any_framed(*run))
    }

    /// The first run of slots among `slots` that are protected although no output needs that. It ends before a slot
    /// that is unprotected or still needs protection. All `slots` are of one region.
    pub(crate) fn idle_protected(&self, slots: Run) -> Option<Run> {
        let idle = |slot: u32| {
            let slot = self.slots.get(slot);
            slot.protected && slot.granule.is_some_and(|granule| self.granules.get(granule).outputs == 0)
        };
        let start = slots.numbers().find(|slot| idle(*slot))?;
        let end = (start..slots.end()).find(|slot| !idle(*slot)).unwrap_or(slots.end());
        Some(Run { start, len: end - start })
    }

    /// Gives back write permission to a run of slots. When the kernel refuses, some may still be protected; the table
    /// calls all of them unprotected, so that a later output protects them anew, and a store until then faults and tries
    /// again.
    ///
    /// Unprotecting leaves a fault in the kernel for the next store into each page of 4 KiB, since the page table is filled
    /// by then, and not writable. Of a collapsed page, protection has made such pages. Mapping the granules again costs less
    /// than these faults where many granules are mapped by one call, and it shows huge pages again.
    pub(crate) fn unprotect(&mut self, core: &Core, run: Run) -> Result<()> {
        self.statistics.reinstated += u64::from(self.slots.set_protected(run, false));
        let Some(userfault) = &core.userfault else { return Ok(()) };
        let (addr, len) = (core.slot_addr(run.start), core.bytes(run.len));
        if let Some(granules) = self.runs_to_map_again(core, run) {
            if self.map(core, run.start, &granules).is_ok() {
                return Ok(userfault.wake(addr, len)?);
            }
            // A first part may be mapped anew, and not registered.
            self.register(core, run.start, run.len);
        }
        Ok(userfault.unprotect(addr, len)?)
    }

    /// The granules at slots of one region, if mapping them again is worth it, and changes nothing but page tables: the
    /// region is neither hidden, nor wired.
    fn runs_to_map_again(&mut self, core: &Core, run: Run) -> Option<GranuleRuns> {
        let is_base = core.kind == GranuleKind::Base;
        if is_base && run.len < MAPPED_AGAIN_MIN {
            return None;
        }
        let region = self.slots.get(run.start).region.and_then(|region| self.regions.at(region))?;
        if region.wirings > 0 || !matches!(region.mark, Mark::Native | Mark::Immigrant) {
            return None;
        }
        let runs = runs_of(self.slots.granules(run));
        let is_worth_it = match is_base {
            true => runs.len() as u32 <= run.len / MAPPED_AGAIN_MIN,
            false => !self.objects.are_reserved(runs.iter().flat_map(|run| run.numbers())),
        };
        is_worth_it.then_some(runs)
    }
}
