//! Delivery: how an input's data gets into the client's memory.
//!
//! How: by copying it out, by swapping the granules for which that pays, by making a region of it, or by having a
//! device transfer it.
//! Source: thesis §4.1, §7.4.2 to §7.4.4.

use std::ops::Range;

use genie_memory::{Direction, LenderId, Part, Swapped, SystemBuffer};
use smallvec::SmallVec;

use super::{Buffering, Input, Target};
use crate::in_place::host;
use crate::{Chain, Overlay, Reason, Result, Scheme};

/// A part of the data that one system buffer holds.
struct Piece<'s> {
    holder: Holder<'s>,
    part: Part,
    /// Which of its granules are to be swapped.
    swaps: Range<u32>,
    /// Which were.
    swapped: Swapped,
}

/// What holds it.
enum Holder<'s> {
    System(&'s mut SystemBuffer),
    Overlay(&'s Overlay),
}

impl Holder<'_> {
    fn with<R>(&mut self, act: impl FnOnce(&mut SystemBuffer) -> R) -> R {
        match self {
            Self::System(system) => act(system),
            Self::Overlay(overlay) => overlay.with(act),
        }
    }
}

impl Input {
    /// Copies the first data bytes elsewhere without completing the input; returns how many. Data that is still in a
    /// device's own memory, and cannot be read there, is transferred to a host buffer for this, and once more when it is delivered.
    ///
    /// # Errors
    /// No memory for a host buffer, or [`Error::Outboard`](crate::Error::Outboard).
    pub fn peek(&mut self, actual: usize, bytes: &mut [u8]) -> Result<usize> {
        let wanted = actual.min(bytes.len());
        if let (Buffering::Outboard(outboard), None, None) =
            (&mut self.buffering, &self.system, &self.reference)
        {
            if let Some(data) = outboard.data() {
                return Ok(data.copy_to(&mut bytes[..wanted]));
            }
            let passing = self.passing.as_ref().expect("an input has its engine until it ends");
            let host = passing.space().system_buffer(wanted)?;
            outboard.fill(&host.data())?;
            return Ok(host.data().copy_to(&mut bytes[..wanted]));
        }
        Ok(self.data().copy_to(&mut bytes[..wanted]))
    }

    /// References the client's granules, into which outboard data is about to be transferred, unless it is staged.
    pub(super) fn reference_delivered(&mut self, bytes: Option<&[u8]>) -> Result<()> {
        match bytes.filter(|bytes| !bytes.is_empty()) {
            Some(bytes) => self.take_delivered(bytes)?,
            None => self.reference = None,
        }
        if let Some(reference) = &self.reference {
            self.receipt.referenced += reference.granules();
        }
        Ok(())
    }

    /// Takes that reference, or stages the data: has the device transfer it to a system buffer, from which it will be
    /// delivered to `bytes`. Data is staged if the transfer can fail, so that it fails before anything of the client's
    /// changes. Data is also staged if the client has redirected it to memory outside the space. A reference to the same
    /// bytes that was taken before is kept, and so is data that was staged before.
    pub(super) fn take_delivered(&mut self, bytes: &[u8]) -> Result<()> {
        let (addr, len) = (bytes.as_ptr().addr(), bytes.len());
        let is_taken = self.reference.as_ref().is_some_and(|reference| reference.is_to(addr, len));
        if is_taken || self.system.is_some() {
            return Ok(());
        }
        self.reference = None;
        if !matches!(&self.buffering, Buffering::Outboard(outboard) if outboard.may_fail()) {
            match self.space().reference(addr, len, Direction::In) {
                Err(genie_memory::Error::Foreign { .. }) => {}
                reference => {
                    self.reference = Some(reference?);
                    return Ok(());
                }
            }
        }
        self.stage(addr, len)
    }

    fn stage(&mut self, addr: usize, len: usize) -> Result<()> {
        let Buffering::Outboard(outboard) = &mut self.buffering else { return Ok(()) };
        let passing = self.passing.as_ref().expect("an input has its engine until it ends");
        let system = match passing.swaps(addr, len, self.parties.server).is_empty() {
            true => passing.copy_buffer(self.parties, len)?,
            false => passing.aligned_buffer(self.parties, addr, len)?,
        };
        outboard.fill(&system.data())?;
        self.system = Some(system);
        Ok(())
    }

    pub(super) fn copyout(&mut self, bytes: &mut Option<&mut [u8]>) {
        if let Some(bytes) = bytes.take() {
            self.receipt.copied += self.data().copy_to(bytes);
        }
    }

    /// Copies data that was shared to a buffer other than the shared one, since no operation of the share schemes moves it.
    pub(super) fn redeliver_shared(&mut self, bytes: &mut Option<&mut [u8]>) {
        let Target::Native { addr: asked, .. } = self.target else { return };
        let is_shared = matches!(self.receipt.effective, Scheme::Share | Scheme::EmulatedShare);
        if is_shared && bytes.as_ref().is_some_and(|bytes| bytes.as_ptr().addr() != asked) {
            self.receipt.reason = Some(Reason::Redelivered);
            self.copyout(bytes);
        }
    }

    /// Passes data by swapping the granules for which that pays: into native memory at `bytes`, or into an immigrating
    /// region.
    pub(super) fn swap(&mut self, actual: usize, bytes: &mut Option<&mut [u8]>) -> Result<()> {
        self.align(actual)?;
        self.reinstate()?;
        if actual == 0 {
            return Ok(());
        }
        let addr = match (&self.immigrating, bytes.as_ref()) {
            (Some(immigrating), _) => immigrating.addr(),
            (None, Some(bytes)) => bytes.as_ptr().addr(),
            (None, None) => return Ok(()),
        };
        let passing = self.passing().clone();
        let space = passing.space();
        let redelivered = match self.target {
            Target::Native { addr: asked, .. } => asked != addr,
            Target::Migrant { .. } => false,
        };
        if redelivered && space.region_at(addr, actual).is_none() {
            self.receipt.reason = Some(Reason::Redelivered);
            if matches!(self.buffering, Buffering::Outboard(_)) {
                self.receipt.effective = Scheme::Copy;
            }
            self.copyout(bytes);
            return Ok(());
        }
        let (server, granule) = (self.parties.server, space.at(addr).granule());
        let is_overlaid = matches!(self.buffering, Buffering::Overlaid(_));
        let is_region = self.immigrating.is_some();
        let mut pieces = pieces(&self.buffering, &mut self.system, actual);
        if pieces.is_empty() {
            return Ok(());
        }
        let delivery = match (&mut self.immigrating, bytes) {
            (Some(immigrating), _) => immigrating.delivery(actual)?,
            (None, Some(bytes)) => space.delivery(bytes)?,
            (None, None) => return Ok(()),
        };
        let mut delivery = if is_overlaid { delivery.completing() } else { delivery };
        let swaps_of = |part: Part, can_keep: bool| match is_region {
            true => passing.swaps_into_region(space.at(addr), addr + part.at, part.len, server),
            false => passing.swaps_of_part(addr..addr + actual, part, server, (is_overlaid, can_keep)),
        };
        let can_keep = space.at(addr).can_swap_partial_granules();
        for Piece { part, swaps, .. } in &mut pieces {
            *swaps = swaps_of(*part, can_keep);
        }
        let wanted = to_swap(&pieces);
        for Piece { holder, part, swaps, .. } in &mut pieces {
            if !holder.with(|system| delivery.is_aligned(system, *part)) {
                *swaps = 0..0;
            }
        }
        let aligned = to_swap(&pieces);
        for Piece { holder, part, swaps, .. } in &mut pieces {
            if let Holder::Overlay(overlay) = holder {
                overlay.leave_shared(swaps, *part);
            }
        }
        let unshared = to_swap(&pieces);
        for Piece { holder, swaps, .. } in &mut pieces {
            if let Holder::Overlay(overlay) = holder
                && swaps.start < swaps.end
                && !overlay.may_leave()
            {
                *swaps = 0..0;
            }
        }
        let leaving = to_swap(&pieces);
        settle(&mut pieces, addr, granule);
        for Piece { holder, part, swaps, swapped } in &mut pieces {
            *swapped = holder.with(|system| delivery.swap(system, *part, swaps))?;
        }
        // Without the overlay buffers' locks, since a store may wait for an output to end.
        for Piece { holder, part, swapped, .. } in &pieces {
            let data = match holder {
                Holder::System(system) => system.data(),
                Holder::Overlay(overlay) => overlay.data(),
            };
            delivery.copy_out(&data.part(0..part.len), part.at, *swapped);
        }
        let passed = delivery.passed();
        self.receipt.copied += passed.copied + passed.kept;
        self.receipt.zeroed += passed.zeroed;
        self.receipt.swapped += passed.swapped;
        if passed.copied > 0 {
            let would_keep =
                || pieces.iter().map(|piece| swaps_of(piece.part, true).len() as u32).sum::<u32>();
            self.receipt.copied_because(match passed.swapped {
                _ if !can_keep && passed.swapped == wanted && wanted < would_keep() => Reason::Neighbours,
                0 if wanted == 0 => Reason::Short,
                0 if redelivered => Reason::Redelivered,
                _ if aligned < wanted => Reason::Unaligned,
                _ if unshared < aligned => Reason::Overlaid,
                _ if leaving < unshared => Reason::Irreplaceable,
                swapped if swapped < to_swap(&pieces) => Reason::Kernel,
                _ => Reason::Edges,
            });
        } else if passed.kept > 0 {
            self.receipt.copied_because(Reason::Beside);
        }
        if passed.swapped == 0 {
            self.receipt.effective = Scheme::Copy;
        }
        Ok(())
    }

    /// Has overlaid data lie in an immigrating region so that the longest of its parts can be swapped in.
    fn align(&mut self, actual: usize) -> Result<()> {
        if let (Some(immigrating), Buffering::Overlaid(chain)) = (&mut self.immigrating, &self.buffering)
            && let Some((part, overlay)) = longest(chain, actual)
        {
            overlay.with(|system| immigrating.align(system, part, actual))?;
        }
        Ok(())
    }

    pub(super) fn fill_region(&mut self, actual: usize) -> Result<()> {
        // A server without data need not have asked for memory; the client gets a region all the same.
        self.run_ready()?;
        let (passing, server) = (self.passing().clone(), self.parties.server);
        let space = passing.space();
        let is_worth_it = |system: &SystemBuffer| {
            let offset = system.alignment().unwrap_or_default();
            actual == 0 || !passing.swaps_into_region(system.space(), offset, actual, server).is_empty()
        };
        let source = match &mut self.buffering {
            Buffering::Overlaid(chain) => match chain.whole_mut() {
                Some(system) if is_worth_it(system) => Some(system),
                _ => return self.fill_region_from_parts(actual),
            },
            Buffering::Customized | Buffering::Outboard(_) => self.system.as_mut(),
        };
        let Some(system) = source else { return Ok(()) };
        let (granule, offset) = (system.space().granule(), system.alignment().unwrap_or_default());
        let (migrant, zeroed) = space.region_from(system, actual)?;
        self.receipt.mapped += (offset + actual).div_ceil(granule) as u32;
        self.receipt.zeroed += zeroed;
        self.migrant = Some(migrant);
        Ok(())
    }

    /// Fills a region with fresh granules, with which those of the overlay buffers then change places, so that each buffer is refilled,
    /// too; or into which short data is copied.
    fn fill_region_from_parts(&mut self, actual: usize) -> Result<()> {
        let Buffering::Overlaid(chain) = &self.buffering else { return Ok(()) };
        let place = |(part, overlay): (Part, &Overlay)| {
            overlay.with(|system| (system.space().clone(), part.offset_in(system).unwrap_or_default()))
        };
        let (space, offset) = longest(chain, actual).map_or_else(|| (self.space().clone(), 0), place);
        let mut fresh = space.aligned_buffer_from(LenderId::OWN, offset, actual)?;
        let (region, zeroed) = space.immigrating_from(&mut fresh, actual)?;
        self.receipt.mapped += (offset + actual).div_ceil(space.granule()) as u32;
        self.receipt.zeroed += zeroed;
        self.immigrating = Some(region);
        self.swap(actual, &mut None)?;
        self.migrant = self.immigrating.take().map(|immigrating| immigrating.arrive(actual));
        Ok(())
    }

    /// Has a device transfer its data to the host memory that there is.
    pub(super) fn transfer(&mut self) -> Result<()> {
        match &mut self.buffering {
            Buffering::Outboard(outboard) => outboard.fill(&host(&self.system, &self.reference)),
            Buffering::Customized | Buffering::Overlaid(_) => Ok(()),
        }
    }
}

/// The parts that the first `actual` bytes are in.
fn pieces<'s>(
    buffering: &'s Buffering,
    system: &'s mut Option<SystemBuffer>,
    actual: usize,
) -> SmallVec<[Piece<'s>; 1]> {
    let piece = |part, holder| {
        let (swaps, swapped) = (0..0, Swapped::default());
        Piece { holder, part, swaps, swapped }
    };
    match buffering {
        Buffering::Overlaid(chain) => {
            chain.parts(actual).map(|(part, overlay)| piece(part, Holder::Overlay(overlay))).collect()
        }
        Buffering::Customized | Buffering::Outboard(_) => {
            system.iter_mut().map(|system| piece(Part::all(actual), Holder::System(system))).collect()
        }
    }
}

/// The longest part of the first `actual` bytes.
fn longest(chain: &Chain, actual: usize) -> Option<(Part, &Overlay)> {
    chain.parts(actual).max_by_key(|(part, _)| part.len)
}

/// How many granules are to be swapped.
fn to_swap(pieces: &[Piece<'_>]) -> u32 {
    pieces.iter().map(|piece| piece.swaps.len() as u32).sum()
}

/// Has only one part swapped into each of the client's granules: of those that are to be, the one with the most data there.
fn settle(pieces: &mut [Piece<'_>], addr: usize, granule: usize) {
    // The part that is swapped last so far, the last granule that it is swapped into, and how many bytes it has there.
    let mut last: Option<(usize, usize, usize)> = None;
    for index in 0..pieces.len() {
        let Piece { part, swaps, .. } = &pieces[index];
        let (start, end) = (addr + part.at, addr + part.at + part.len);
        let first = start / granule;
        let in_granule = |number: usize| end.min((number + 1) * granule) - start.max(number * granule);
        let (from, to) = (first + swaps.start as usize, first + swaps.end as usize);
        if from >= to {
            continue;
        }
        let (here, at_end) = (in_granule(from), (index, to - 1, in_granule(to - 1)));
        if let Some((before, _, there)) = last.filter(|(_, shared, _)| *shared == from) {
            if there >= here {
                pieces[index].swaps.start += 1;
                if to - from == 1 {
                    continue;
                }
            } else {
                pieces[before].swaps.end -= 1;
            }
        }
        last = Some(at_end);
    }
}
