//! Page swapping and input alignment: delivering a system buffer's data into a client's buffer.
//!
//! How: granules that the plan names change places between the two buffers; before that, the client's bytes beside the
//! data on the first and last of these granules are copied into the system buffer's granules (reverse copyout). The
//! client's granules are write-protected meanwhile, so that no other thread's store next to the data is lost. Where the
//! client's buffer begins or ends within a granule, nobody's bytes lie beyond it: none are copied there, and a granule with
//! no other bytes beside the data is not protected either; nor are there any in an immigrating region. All other data is copied out through the client's window, like a
//! store by the client: if an output is pending there, the store faults and TCOW saves the output.
//!
//! ```text
//!               |<-- granule -->|<-- granule -->|<-- granule -->|
//!   client      | kept |       to be replaced           | kept  |
//!   system      | ^^^^ |            data                | ^^^^  |      ^ reverse copyout, then swap all three
//! ```
//!
//! With granules of 2 MiB a swap maps the system buffer's granules over the client's, page tables filled; with 4 KiB
//! pages it swaps the two windows' page tables, but for granules with bytes to keep, which it maps. Either way the client's addresses
//! are mapped at every moment, unless the kernel refuses (see [`Arena`](genie_sys::Arena)); the bytes beside the data are, even then.
//! Source: thesis §4.1, figure 4.1; §4.3 for buffers with output pending.

use std::ops::Range;

use genie_sys::GranuleKind;
use genie_sys::arena::Swapped;
use smallvec::SmallVec;

use crate::space::{Core, Space, State};
use crate::system::SystemBuffer;
use crate::tables::granule::{GranuleRuns, Place, runs_of};
use crate::tables::runs::Run;
use crate::tables::slots::Slot;
use crate::{Error, Mark, Result, aliases};

/// From this many granules on, swapping the page tables between edges that are mapped beats mapping all: an edge costs two
/// mappings. Measured with one edge and with two (Linux 6.18, EPYC), 64 granules: 30 and 47 us against 29 and 30; 128: 33 and 49
/// against 50 and 52; 1024: 64 and 88 against 350.
const BETWEEN_EDGES_MIN: u32 = 128;

/// Which granules of an input to swap; the rest is copied out.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct InputPlan {
    /// Granules, counted from the one that holds the first data byte.
    pub swap: Range<u32>,
}

/// What a delivery did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Passed {
    /// Bytes of the data that were copied out.
    pub copied: usize,
    /// Bytes of the client's beside the data, on granules to be swapped, that were copied to keep them (reverse copyout).
    pub kept: usize,
    /// Granules swapped.
    pub swapped: u32,
}

/// One delivery's geometry.
struct Delivery {
    addr: usize,
    len: usize,
    /// The first slot of the data, and the slots to swap.
    first: u32,
    swap: Run,
}

impl Delivery {
    /// The data's part of a slot's granule: (offset in the granule, length).
    fn data_in(&self, core: &Core, slot: u32) -> (usize, usize) {
        let start = core.slot_addr(slot).max(self.addr);
        let end = (core.slot_addr(slot) + core.granule()).min(self.addr + self.len);
        (start - core.slot_addr(slot), end - start)
    }

    /// The client's bytes before and after the data in a slot's granule, as offsets in the granule. A region that is not the
    /// client's yet has none.
    fn beside(&self, core: &Core, state: &State, slot: u32) -> [Range<usize>; 2] {
        let region = state.slots.get(slot).region.and_then(|index| state.regions.id(index));
        let within = |addr: usize| addr.saturating_sub(core.slot_addr(slot)).min(core.granule());
        let used = match region.and_then(|region| state.regions.get(region)) {
            None => 0..core.granule(),
            Some(region) if region.mark == Mark::Immigrating => return [0..0, 0..0],
            Some(region) => within(region.used.start)..within(region.used.end),
        };
        let (offset, len) = self.data_in(core, slot);
        [used.start..offset.clamp(used.start, used.end), (offset + len).clamp(used.start, used.end)..used.end]
    }
}

impl Space {
    /// Fills the client's `bytes` with the first bytes of `system`.
    ///
    /// Granules that cannot be swapped after all (another alignment or size, too many mappings) are copied.
    /// Afterwards the system buffer holds the client's former granules instead, except those from which an output is
    /// pending: fresh granules take their places, and where there are none, the system buffer is left without memory
    /// ([`SystemBuffer::refill`]). The lender's pool adopts the client's former granules, and the space adopts the
    /// lender's (thesis §5.2).
    ///
    /// ```compile_fail,E0308
    /// # use genie_memory::{Buffer, InputPlan, Space, SystemBuffer};
    /// fn deliver(space: &Space, system: &mut SystemBuffer, buffer: &Buffer) {
    ///     // A caller must have borrowed mutably what is stored into; an address does not do.
    ///     space.deliver(system, buffer.addresses().start, &InputPlan::default()).unwrap();
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Error::Foreign`] when the bytes are not in a region: nothing has changed.
    ///
    /// # Panics
    /// When the system buffer holds fewer bytes, or is of another space.
    pub fn deliver(&self, system: &mut SystemBuffer, bytes: &mut [u8], plan: &InputPlan) -> Result<Passed> {
        let addr = bytes.as_mut_ptr().expose_provenance();
        self.deliver_at(system, addr, bytes.len(), plan)
    }

    /// As [`Space::deliver`], to the `len` bytes at `addr`, which the caller has borrowed mutably, or owns.
    pub(crate) fn deliver_at(
        &self,
        system: &mut SystemBuffer,
        addr: usize,
        len: usize,
        plan: &InputPlan,
    ) -> Result<Passed> {
        let space = self.at(addr);
        let core = space.core();
        system.assert_of(self);
        assert!(len <= system.len(), "{len} bytes of a system buffer of {}", system.len());
        let slots = core.slots_of(addr, len).ok_or(Error::Foreign { addr, len })?;
        let is_alike = system.space().has_tables_of(space);
        let aligned = is_alike && system.alignment() == Some(core.misalignment(addr));
        let swap = if aligned && len > 0 { plan.swap.start..plan.swap.end.min(slots.len) } else { 0..0 };
        let delivery = Delivery {
            addr,
            len,
            first: slots.start,
            swap: Run { start: slots.start + swap.start, len: swap.end.saturating_sub(swap.start) },
        };
        let (mut passed, mut pending) = (Passed::default(), false);
        if delivery.swap.len > 0 {
            (passed, pending) = swap_pages(core, system, &delivery)?;
        }
        let swapped = Run { len: passed.swapped, ..delivery.swap };
        passed.copied += copy_out(core, system, &delivery, swapped);
        if pending {
            system.renew_referenced();
        }
        Ok(passed)
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
        let core = self.at(addr).core();
        let Some(first) = core.slot_at(addr).filter(|_| core.is_own()) else { return core.granule() };
        let delivery = Delivery { addr, len, first, swap: Run { start: first, len: 0 } };
        delivery.beside(core, &core.lock(), first + index).map(|range| range.len()).iter().sum()
    }
}

/// Copies out the data that was not swapped; returns the number of bytes.
fn copy_out(core: &Core, system: &SystemBuffer, delivery: &Delivery, swapped: Run) -> usize {
    // The data's bytes that were swapped, as a range of the data.
    let (from, to) = if swapped.len == 0 {
        (delivery.len, delivery.len)
    } else {
        let start = core.slot_addr(swapped.start).saturating_sub(delivery.addr);
        (start, (core.slot_addr(swapped.end()) - delivery.addr).min(delivery.len))
    };
    let (data, mut copied) = (system.data(), 0);
    for range in [0..from.min(delivery.len), to..delivery.len] {
        if !range.is_empty() {
            let window = aliases::window(core, delivery.addr + range.start, range.len());
            copied += window.copy_data(&data.part(range));
        }
    }
    copied
}

/// Swaps the slots of the plan; also says whether a pending request uses a granule that went to the system buffer.
fn swap_pages(core: &Core, system: &mut SystemBuffer, delivery: &Delivery) -> Result<(Passed, bool)> {
    let foreign = || Error::Foreign { addr: delivery.addr, len: delivery.len };
    let Some((granules, window)) = system.granules_mut() else { return Ok(Default::default()) };
    let index = (delivery.swap.start - delivery.first) as usize;
    let granules = &mut granules[index..index + delivery.swap.len as usize];

    let mut guard = core.lock();
    let state = &mut *guard;
    let region = state.slots.get(delivery.swap.start).region.ok_or_else(foreign)?;
    if state.slots.run(delivery.swap).any(|slot| slot.region != Some(region)) {
        return Err(foreign());
    }
    let (guarded, kept) = state.reverse_copyout(core, granules, delivery);
    let swapped = kept.map_or(0, |_| state.exchange(core, delivery.swap, &guarded, window, granules));
    state.end_guard(core, &guarded);
    state.statistics.swapped += u64::from(swapped);
    let pending = granules[..swapped as usize].iter().any(|id| state.granules.get(*id).is_referenced());
    Ok((Passed { copied: 0, kept: kept.unwrap_or(0), swapped }, pending))
}

impl State {
    /// Completes the first and the last granule with the client's bytes beside the data, if there are any; returns the slots
    /// that were write-protected for this and the number of bytes copied, or none if a slot could not be protected.
    fn reverse_copyout(
        &mut self,
        core: &Core,
        granules: &[u32],
        delivery: &Delivery,
    ) -> (SmallVec<[u32; 2]>, Option<usize>) {
        let (mut guarded, mut copied) = (SmallVec::new(), 0);
        for (index, slot) in delivery.swap.numbers().enumerate() {
            if index > 0 && index + 1 < granules.len() {
                continue;
            }
            let beside = delivery.beside(core, self, slot);
            if beside.iter().all(Range::is_empty) {
                continue;
            }
            let Some(client) = self.slots.get(slot).granule else { continue };
            if core.userfault.is_none() || self.protect(core, Run { start: slot, len: 1 }).is_err() {
                return (guarded, None);
            }
            guarded.push(slot);
            let (mine, theirs) = (aliases::granule(core, granules[index]), aliases::granule(core, client));
            for range in beside {
                copied += mine.part(range.clone()).copy_data(&theirs.part(range));
            }
        }
        (guarded, Some(copied))
    }

    /// Has slots and system buffer change granules, by swapping page tables where that can be done; returns for how many of the
    /// slots, from the first on.
    ///
    /// Guarded slots are mapped over all the same: while page tables are moved, a store beside the data would find the old
    /// granule again, of which those bytes have been copied already.
    fn exchange(
        &mut self,
        core: &Core,
        slots: Run,
        guarded: &[u32],
        window: &mut Option<Run>,
        granules: &mut [u32],
    ) -> u32 {
        let edge = |slot: u32| u32::from(guarded.contains(&slot));
        let (head, last) = (edge(slots.start), slots.len - 1);
        let tail = if last > 0 { edge(slots.start + last) } else { 0 };
        let inner = Run { start: slots.start + head, len: slots.len - head - tail };
        let is_short = head + tail > 0 && inner.len < BETWEEN_EDGES_MIN;
        let is_protected = self.slots.run(inner).any(|slot| slot.protected);
        if window.is_none_or(|own| own.len != slots.len) || is_short || is_protected {
            // Protection would travel with the page tables.
            self.give_up_window(core, window);
            return self.map_over(core, slots, granules);
        }
        let (before, rest) = granules.split_at_mut(head as usize);
        if self.map_over(core, Run { len: head, ..slots }, before) < head {
            return 0;
        }
        if !self.swap_tables(core, inner, window, head, &mut rest[..inner.len as usize]) {
            self.give_up_window(core, window);
            return head + self.map_over(core, Run { len: inner.len + tail, ..inner }, rest);
        }
        let after = Run { start: inner.end(), len: tail };
        let done = head + inner.len + self.map_over(core, after, &mut rest[inner.len as usize..]);
        for (swapped, at) in [(head, 0), (done - head - inner.len, last)] {
            if let (1, Some(own)) = (swapped, *window)
                && self
                    .map_unregistered(core, own.start + at, &[Run { start: granules[at as usize], len: 1 }])
                    .is_err()
            {
                self.give_up_window(core, window);
            }
        }
        done
    }

    /// Swaps the page tables of the client's slots and of as many of the system buffer's window, from `from` on, if the
    /// kernel can.
    fn swap_tables(
        &mut self,
        core: &Core,
        slots: Run,
        window: &mut Option<Run>,
        from: u32,
        granules: &mut [u32],
    ) -> bool {
        let Some(own) = *window else { return false };
        debug_assert_eq!(core.kind, GranuleKind::Base, "larger granules are mapped, not swapped");
        let Ok(scratch) = self.take_slots(core, slots.len) else { return false };
        if self.would_join(slots, scratch) {
            self.slots.give(scratch);
            return false;
        }
        let bytes = |slot: u32| core.bytes(slot);
        let (here, there, by) = (bytes(slots.start), bytes(own.start + from), bytes(scratch.start));
        let result = core.windows.swap(here, there, by, core.bytes(slots.len));
        self.give_scratch(core, slots, scratch);
        // Page tables that were moved are no longer registered, even if they were moved back.
        self.register(core, slots.start, slots.len);
        match result {
            Ok(Swapped::Both) => {}
            Ok(Swapped::FirstOnly) => self.give_up_window(core, window),
            Err(_) => return false,
        }
        self.enter_swap(slots, granules);
        true
    }

    /// Whether slots show the granules next to those that a neighbour of `to` shows. If page tables that are registered with the
    /// userfaultfd are moved there, Linux joins their mapping with the neighbour's, and then drops the registration of both:
    /// what was protected in the neighbour is not any more. (A system buffer's window is never registered, nor is what it
    /// becomes here before it is in its place.)
    pub(crate) fn would_join(&self, slots: Run, to: Run) -> bool {
        let granule = |slot: u32| self.slots.get(slot).granule;
        let [first, last] = [slots.start, slots.end() - 1].map(granule);
        let before = to.start.checked_sub(1).and_then(granule);
        before.is_some_and(|id| first == Some(id + 1))
            || granule(to.end()).is_some_and(|id| last == Some(id.wrapping_sub(1)))
    }

    /// Gives back the addresses through which page tables were swapped. These still map objects that the client's slots
    /// have shown; nobody touches them, and the next use maps over them. But no object that was lent may stay mapped
    /// here after its lender has gone.
    fn give_scratch(&mut self, core: &Core, slots: Run, scratch: Run) {
        let bound = self.granules.lent_objects.bound();
        if self.slots.run(slots).any(|slot| slot.granule.is_some_and(|id| id >= bound)) {
            // When the kernel cannot unmap, the addresses stay reserved and unused.
            let _ = self.give_window(core, scratch);
        } else {
            self.slots.give(scratch);
        }
    }

    /// Gives up a system buffer's window, which is about to show other granules than the buffer holds.
    pub(crate) fn give_up_window(&mut self, core: &Core, window: &mut Option<Run>) {
        if let Some(window) = window.take() {
            // When the kernel cannot unmap, the addresses stay reserved and unused.
            let _ = self.give_window(core, window);
        }
    }

    /// Maps a system buffer's granules over the client's; returns how many were mapped.
    fn map_over(&mut self, core: &Core, slots: Run, granules: &mut [u32]) -> u32 {
        // Each of these parts is one mapping, so that it is mapped wholly or not at all.
        let mut parts = GranuleRuns::new();
        for run in runs_of(granules.iter().copied()) {
            parts.extend(self.objects.parts(run));
        }
        let mut done = 0;
        for part in parts {
            let at = Run { start: slots.start + done, len: part.len };
            if self.map(core, at.start, &[part]).is_err() {
                self.show_again(core, at);
                break;
            }
            let range = done as usize..(done + part.len) as usize;
            self.enter_swap(at, &mut granules[range]);
            done += part.len;
        }
        done
    }

    /// Maps at each slot the granule that the table has for it, since a mapping over these slots has failed and may have
    /// left nothing there. A slot at which no granule can be mapped stays as it is.
    fn show_again(&mut self, core: &Core, slots: Run) {
        for slot in slots.numbers() {
            let Slot { granule: Some(granule), protected, .. } = self.slots.get(slot) else { continue };
            let mapped = self.map(core, slot, &[Run { start: granule, len: 1 }]);
            if let (Ok(()), true, Some(userfault)) = (mapped, protected, &core.userfault) {
                // The slot was registered just now. Only the caller may store into these bytes, so nobody stores there
                // meanwhile.
                let _ = userfault.protect(core.slot_addr(slot), core.granule());
            }
        }
    }

    fn enter_swap(&mut self, slots: Run, granules: &mut [u32]) {
        let region = self.slots.get(slots.start).region;
        if let Some(region) = region.and_then(|region| self.regions.at(region)) {
            region.passed = true;
        }
        for (slot, granule) in slots.numbers().zip(granules) {
            let Some(old) = self.slots.show(slot, *granule) else { continue };
            self.granules.put(*granule, Place::Region { slot });
            self.granules.put(old, Place::System);
            self.granules.swap_pools(*granule, old);
            *granule = old;
        }
    }

    /// Lets threads go on that stored beside the buffer during the swap.
    fn end_guard(&mut self, core: &Core, guarded: &[u32]) {
        guarded.iter().for_each(|slot| self.let_store(core, *slot));
    }
}
