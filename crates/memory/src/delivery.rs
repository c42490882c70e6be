//! Delivery: an input's data gets from system buffers into a client's buffer, by swapping or by copying (input alignment).
//!
//! How: granules that the caller names change places between the two buffers (`swap`); before that, the client's
//! bytes beside the data on the first and last of these granules are copied into the system buffer's granules (reverse copyout).
//! The client's granules are write-protected meanwhile, so that no other thread's store next to the data is lost. Where the client's
//! buffer begins or ends within a granule, nobody's bytes lie beyond it: none are copied there, and a granule with no other bytes
//! beside the data is not protected either; nor are there any in an immigrating region. All other data is copied out through the
//! client's window, like a store by the client: if an output is pending there, the store faults and TCOW saves the output.
//!
//! ```text
//!               |<-- granule -->|<-- granule -->|<-- granule -->|
//!   client      | kept |       to be replaced           | kept  |
//!   system      | ^^^^ |            data                | ^^^^  |      ^ reverse copyout, then swap all three
//! ```
//!
//! The data may lie in several system buffers (a *chain*, of packets say). First each of them swaps its granules, a granule of the
//! client's with one of them at most; then all other data is copied out, also to granules that another part of the data has just
//! brought. So no data is saved that was delivered before. Where the owner of the system buffers asks for it, what else is in
//! granules that are swapped is zeroed, as far as the client's bytes do not take its place.
//! Source: thesis §4.1, figure 4.1; §4.3 for buffers with output pending; §6.1, figure 6.1 for chains.

use std::marker::PhantomData;
use std::ops::Range;

use smallvec::SmallVec;

use crate::space::{Core, Space, State};
use crate::system::SystemBuffer;
use crate::tables::runs::Run;
use crate::{Data, Error, Mark, Result, aliases};

/// What a delivery did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Passed {
    /// Bytes of the data that were copied out.
    pub copied: usize,
    /// Bytes of the client's beside the data, on granules to be swapped, that were copied to keep them (reverse copyout).
    pub kept: usize,
    /// Bytes of the system buffers' beside the data, on granules to be swapped, that were zeroed to hide them.
    pub zeroed: usize,
    /// Granules swapped.
    pub swapped: u32,
}

/// The part of an input's data that one system buffer holds: `len` bytes of that buffer's, from `from` on, which are the
/// input's bytes from `at` on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// Where it begins in the system buffer's data.
    pub from: usize,
    /// Where it begins in the input's data.
    pub at: usize,
    /// Its length.
    pub len: usize,
}

/// Which slots a part's data was swapped into.
#[derive(Debug, Clone, Copy, Default)]
#[must_use = "the rest of the part is to be copied out"]
pub struct Swapped(Run);

/// The delivery of an input's data, in one part or in several, to bytes of the client's: [`Space::delivery`].
///
/// Shape: each part is swapped once, in the order of the data, and then each is copied out once. Until then the bytes of the
/// other parts are whatever they are.
#[derive(Debug)]
pub struct Delivery<'b> {
    space: &'b Space,
    addr: usize,
    len: usize,
    /// The first slot that no part has been swapped into.
    next: u32,
    /// Whether other bytes of system buffers are zeroed before the client gets their granules.
    completes: bool,
    passed: Passed,
    bytes: PhantomData<&'b mut [u8]>,
}

impl Part {
    /// All of an input's data, from the beginning of a system buffer on.
    pub const fn all(len: usize) -> Self {
        Self { from: 0, at: 0, len }
    }

    /// How far into a granule the input's data has to begin so that this part, which is in `system`, can be swapped; `None` for
    /// memory that cannot be swapped.
    pub fn offset_in(self, system: &SystemBuffer) -> Option<usize> {
        let offset = system.alignment()?.wrapping_add(self.from).wrapping_sub(self.at);
        Some(system.space().core().misalignment(offset))
    }
}

impl<'b> Delivery<'b> {
    fn new(space: &'b Space, addr: usize, len: usize, first: u32) -> Self {
        let passed = Passed::default();
        Self { space, addr, len, next: first, completes: false, passed, bytes: PhantomData }
    }

    /// Has the bytes of system buffers that lie beside the data zeroed where the client gets their granules.
    #[must_use]
    pub fn completing(self) -> Self {
        Self { completes: true, ..self }
    }

    /// Delivers all of the data from one system buffer, from its beginning on: swaps the granules `swaps`, counted from the one that
    /// holds the first byte, and copies the rest out.
    ///
    /// # Errors
    /// As [`Delivery::swap`].
    ///
    /// # Panics
    /// As [`Delivery::swap`].
    pub fn from_one(mut self, system: &mut SystemBuffer, swaps: &Range<u32>) -> Result<Passed> {
        let all = Part::all(self.len);
        let swapped = self.swap(system, all, swaps)?;
        self.copy_out(&system.data().part(0..self.len), 0, swapped);
        Ok(self.passed)
    }

    /// Whether a part's granules can be swapped: it lies in whole granules of the client's size, as far into the first one as it
    /// is to lie in the client's.
    pub fn is_aligned(&self, system: &SystemBuffer, part: Part) -> bool {
        let offset = self.space.core().misalignment(self.addr);
        system.space().has_tables_of(self.space) && part.offset_in(system) == Some(offset)
    }

    /// Swaps the granules `swaps` of a part, counted from the one that holds the part's first byte, unless a part
    /// before was swapped into them, or this one is not aligned. The system buffer gets the client's granules in their places, and
    /// fresh ones for those that a pending request uses; if there are too few fresh ones, nothing is swapped.
    ///
    /// # Errors
    /// [`Error::Foreign`] when no part was swapped yet, and the client's granules are not of one region: nothing has changed.
    ///
    /// # Panics
    /// When the system buffer or the delivery has fewer bytes, or the system buffer is of another space.
    pub fn swap(&mut self, system: &mut SystemBuffer, part: Part, swaps: &Range<u32>) -> Result<Swapped> {
        let core = self.space.core();
        system.assert_of(self.space);
        let Part { from, at, len } = part;
        assert_within(from, len, system.len(), "a system buffer");
        assert_within(at, len, self.len, "a delivery");
        let slots = core.slots_of(self.addr + at, len).ok_or_else(|| self.foreign())?;
        let first = (slots.start + swaps.start).max(self.next);
        let end = slots.start + swaps.end.min(slots.len);
        if len == 0 || first >= end || !self.is_aligned(system, part) {
            return Ok(Swapped::default());
        }
        let granule = (system.alignment().unwrap_or_default() + from) / core.granule();
        let before = granule + (first - slots.start) as usize;
        let slots = Run { start: first, len: end - first };
        let swapped = self.swap_slots(core, system, before, slots)?;
        self.next = self.next.max(swapped.0.end());
        Ok(swapped)
    }

    /// Swaps granules of the system buffer, from number `before` on, with those of the client's slots.
    fn swap_slots(
        &mut self,
        core: &Core,
        system: &mut SystemBuffer,
        before: usize,
        slots: Run,
    ) -> Result<Swapped> {
        let lender = system.lender();
        let Some((granules, window)) = system.granules_mut() else { return Ok(Swapped::default()) };
        let granules = &mut granules[before..before + slots.len as usize];
        let mut guard = core.lock();
        let state = &mut *guard;
        let region = state.slots.get(slots.start).region;
        if region.is_none() || state.slots.run(slots).any(|slot| slot.region != region) {
            // After a part was swapped, the delivery has to go on.
            return if self.passed.swapped == 0 { Err(self.foreign()) } else { Ok(Swapped::default()) };
        }
        if !state.can_renew(core, lender, slots) {
            return Ok(Swapped::default());
        }
        let (guarded, completed) = state.reverse_copyout(core, granules, slots, self);
        let swapped = match completed {
            true => state.exchange(core, slots, &guarded, window, granules),
            false => 0,
        };
        state.renew(core, lender, window, &mut granules[..swapped as usize]);
        state.end_guard(core, &guarded);
        state.statistics.swapped += u64::from(swapped);
        self.passed.swapped += swapped;
        Ok(Swapped(Run { len: swapped, ..slots }))
    }

    /// Copies out what was not swapped of the part that begins `at` bytes into the input's data. `data` is all of the part, as its
    /// system buffer holds it now: where it was swapped, it has the client's former granules, or fresh ones.
    ///
    /// A store into granules under output may wait for that output to end ([`Space::read_only`]).
    ///
    /// # Panics
    /// When the delivery has fewer bytes.
    pub fn copy_out(&mut self, data: &Data<'_>, at: usize, Swapped(slots): Swapped) {
        let (core, len) = (self.space.core(), data.len());
        assert_within(at, len, self.len, "a delivery");
        let addr = self.addr + at;
        // The part's bytes that were swapped.
        let within = |slot: u32| core.slot_addr(slot).saturating_sub(addr).min(len);
        let (from, to) = if slots.len == 0 { (len, len) } else { (within(slots.start), within(slots.end())) };
        for range in [0..from, to..len] {
            if !range.is_empty() {
                let window = aliases::window(core, addr + range.start, range.len());
                self.passed.copied += window.copy_data(&data.part(range));
            }
        }
    }

    /// What was done.
    pub fn passed(&self) -> Passed {
        self.passed
    }

    fn foreign(&self) -> Error {
        Error::Foreign { addr: self.addr, len: self.len }
    }

    /// The bytes of a slot's granule that are the client's, those of the data included, as offsets in the granule. In a region
    /// that is not the client's yet, that is the data alone.
    fn used(&self, core: &Core, state: &State, slot: u32) -> Range<usize> {
        let region = state.slots.get(slot).region.and_then(|index| state.regions.id(index));
        let within = |addr: usize| addr.saturating_sub(core.slot_addr(slot)).min(core.granule());
        match region.and_then(|region| state.regions.get(region)) {
            None => 0..core.granule(),
            Some(region) if region.mark == Mark::Immigrating => {
                within(self.addr)..within(self.addr + self.len)
            }
            Some(region) => within(region.used.start)..within(region.used.end),
        }
    }

    /// The client's bytes before and after the data in a slot's granule, of which `used` are the client's.
    fn beside(&self, core: &Core, slot: u32, used: &Range<usize>) -> [Range<usize>; 2] {
        let start = core.slot_addr(slot);
        let within = |addr: usize| addr.saturating_sub(start).min(core.granule()).clamp(used.start, used.end);
        [used.start..within(self.addr), within(self.addr + self.len)..used.end]
    }
}

impl Space {
    /// Fills the client's `bytes` with the first bytes of `system`.
    ///
    /// Granules that cannot be swapped after all (another alignment or size, too many mappings) are copied.
    /// Afterwards the system buffer holds the client's former granules instead, except those that a pending request uses: fresh
    /// granules take their places, and if there are too few, all of the data is copied. The lender's pool adopts the client's
    /// former granules, and the space adopts the lender's (thesis §5.2).
    ///
    /// ```compile_fail,E0308
    /// # use genie_memory::{Buffer, Space, SystemBuffer};
    /// fn deliver(space: &Space, system: &mut SystemBuffer, buffer: &Buffer) {
    ///     // A caller must have borrowed mutably what is stored into; an address does not do.
    ///     space.deliver(system, buffer.addresses().start, &(0..0)).unwrap();
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Error::Foreign`] when the bytes are not in a region: nothing has changed.
    ///
    /// # Panics
    /// When the system buffer holds fewer bytes, or is of another space.
    pub fn deliver(&self, system: &mut SystemBuffer, bytes: &mut [u8], swaps: &Range<u32>) -> Result<Passed> {
        self.delivery(bytes)?.from_one(system, swaps)
    }

    /// Begins to fill the client's `bytes` from several system buffers, each of which is treated as by [`Space::deliver`].
    ///
    /// # Errors
    /// As [`Space::deliver`].
    pub fn delivery<'b>(&'b self, bytes: &'b mut [u8]) -> Result<Delivery<'b>> {
        let addr = bytes.as_mut_ptr().expose_provenance();
        self.delivery_at(addr, bytes.len())
    }

    /// As [`Space::delivery`], to the `len` bytes at `addr`, which the caller has borrowed mutably, or owns, until the delivery
    /// ends.
    pub(crate) fn delivery_at(&self, addr: usize, len: usize) -> Result<Delivery<'_>> {
        let space = self.at(addr);
        let slots = space.core().slots_of(addr, len).ok_or(Error::Foreign { addr, len })?;
        Ok(Delivery::new(space, addr, len, slots.start))
    }

    /// Whether granules can be swapped without loss of the client's bytes beside the data.
    pub fn can_swap_partial_granules(&self) -> bool {
        self.core().userfault.is_some()
    }

    /// How many bytes of the client's lie beside the `len` bytes at `addr` in one of their granules, the `index`th; a
    /// buffer's region has none before the buffer begins and after it ends. Outside the space, as many bytes as a granule
    /// has.
    ///
    /// Cost: the space's lock.
    pub fn bytes_beside(&self, addr: usize, len: usize, index: u32) -> usize {
        let space = self.at(addr);
        let core = space.core();
        let Some(slots) = core.slots_of(addr, len).filter(|_| core.is_own()) else { return core.granule() };
        let (delivery, slot) = (Delivery::new(space, addr, len, slots.start), slots.start + index);
        let used = delivery.used(core, &core.lock(), slot);
        delivery.beside(core, slot, &used).map(|range| range.len()).iter().sum()
    }
}

/// Refuses bytes that are not within the `room` bytes of `what`.
#[track_caller]
fn assert_within(start: usize, len: usize, room: usize, what: &str) {
    assert!(start <= room && len <= room - start, "{len} bytes from {start} on of {what} of {room}");
}

impl State {
    /// Completes the first and the last granule with the client's bytes beside the data, if there are any, and with zeros, if
    /// that is asked for; returns the slots that were write-protected for this, and false if a slot could not be protected.
    fn reverse_copyout(
        &mut self,
        core: &Core,
        granules: &[u32],
        slots: Run,
        delivery: &mut Delivery<'_>,
    ) -> (SmallVec<[u32; 2]>, bool) {
        let mut guarded = SmallVec::new();
        for (index, slot) in slots.numbers().enumerate() {
            if index > 0 && index + 1 < granules.len() {
                continue;
            }
            let used = delivery.used(core, self, slot);
            let beside = delivery.beside(core, slot, &used);
            let mine = aliases::granule(core, granules[index]);
            if delivery.completes {
                let others = [0..used.start, used.end..core.granule()];
                delivery.passed.zeroed += others.map(|range| mine.part(range).fill(0)).iter().sum::<usize>();
            }
            if beside.iter().all(Range::is_empty) {
                continue;
            }
            let Some(client) = self.slots.get(slot).granule else { continue };
            if core.userfault.is_none() || self.protect(core, Run { start: slot, len: 1 }).is_err() {
                return (guarded, false);
            }
            guarded.push(slot);
            let theirs = aliases::granule(core, client);
            for range in beside {
                delivery.passed.kept += mine.part(range.clone()).copy_data(&theirs.part(range));
            }
        }
        (guarded, true)
    }
}
