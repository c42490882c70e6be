//! Page swapping: granules of a system buffer and of a client change places.
//!
//! How: with granules of 2 MiB a swap maps the system buffer's granules over the client's, page tables filled; with 4 KiB
//! pages it swaps the two windows' page tables, but for granules with bytes to keep, which it maps. Either way the client's addresses
//! are mapped at every moment, unless the kernel refuses (see [`Arena`](genie_sys::Arena)); the bytes beside the data are, even then.
//! Source: thesis §4.1.

use genie_sys::GranuleKind;
use genie_sys::arena::Swapped;

use crate::space::{Core, State};
use crate::tables::granule::{GranuleRuns, Place, runs_of};
use crate::tables::runs::Run;
use crate::tables::slots::Slot;

/// From this many granules on, swapping the page tables between edges that are mapped beats mapping all: an edge costs two
/// mappings. Measured with one edge and with two (Linux 6.18, EPYC), 64 granules: 30 and 47 us against 29 and 30; 128: 33 and 49
/// against 50 and 52; 1024: 64 and 88 against 350.
const BETWEEN_EDGES_MIN: u32 = 128;

impl State {
    /// Has slots and system buffer change granules, by swapping page tables where that can be done; returns for how many of the
    /// slots, from the first on.
    ///
    /// Guarded slots are mapped over all the same: while page tables are moved, a store beside the data would find the old
    /// granule again, of which those bytes have been copied already.
    pub(crate) fn exchange(
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
    pub(crate) fn end_guard(&mut self, core: &Core, guarded: &[u32]) {
        guarded.iter().for_each(|slot| self.let_store(core, *slot));
    }
}
