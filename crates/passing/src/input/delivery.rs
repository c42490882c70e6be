//! Delivery: how an input's data gets into the client's memory.
//!
//! How: by copying it out, by swapping the granules for which that pays, by making a region of it, or by having a
//! device transfer it.
//! Source: thesis §4.1, §7.4.2 to §7.4.4.

use genie_memory::{Direction, InputPlan, SystemBuffer};

use super::{Buffering, Input, Target};
use crate::in_place::host;
use crate::{Reason, Result, Scheme};

impl Input {
    /// Copies the first data bytes elsewhere without completing the input; returns how many. Data that is still in a
    /// device's own memory is transferred to a host buffer for this, and transferred once more when it is delivered.
    ///
    /// # Errors
    /// No memory for a host buffer, or [`Error::Outboard`](crate::Error::Outboard).
    pub fn peek(&mut self, actual: usize, bytes: &mut [u8]) -> Result<usize> {
        let wanted = actual.min(bytes.len());
        if let (Buffering::Outboard(outboard), None, None) =
            (&mut self.buffering, &self.system, &self.reference)
        {
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
        let system = match passing.plan(addr, len, self.parties.server).swap.is_empty() {
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
        if let (Some(immigrating), Buffering::Overlaid(overlay)) =
            (&mut self.immigrating, &mut self.buffering)
            && let Some(system) = overlay.buffer_mut()
        {
            immigrating.align(system, actual)?;
        }
        self.reinstate()?;
        if actual == 0 {
            return Ok(());
        }
        let (addr, plan) = match (&self.immigrating, bytes.as_ref()) {
            (Some(immigrating), _) => {
                let addr = immigrating.addr();
                let granule = self.space().at(addr).granule();
                (addr, InputPlan { swap: 0..((addr & (granule - 1)) + actual).div_ceil(granule) as u32 })
            }
            (None, Some(bytes)) => {
                let addr = bytes.as_ptr().addr();
                (addr, self.passing().plan(addr, actual, self.parties.server))
            }
            (None, None) => return Ok(()),
        };
        let space = self.passing().space().clone();
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
        let system = match &mut self.buffering {
            Buffering::Overlaid(overlay) => overlay.buffer_mut(),
            Buffering::Customized | Buffering::Outboard(_) => self.system.as_mut(),
        };
        let Some(system) = system else { return Ok(()) };
        let granule = space.at(addr).granule();
        let is_alike = system.space().granule() == granule;
        let aligned = is_alike && system.alignment() == Some(addr & (granule - 1));
        let passed = match (&mut self.immigrating, bytes) {
            (Some(immigrating), _) => immigrating.deliver(system, actual, &plan)?,
            (None, Some(bytes)) => space.deliver(system, bytes, &plan)?,
            (None, None) => return Ok(()),
        };
        self.receipt.copied += passed.copied + passed.kept;
        self.receipt.swapped += passed.swapped;
        if passed.copied > 0 {
            let planned = plan.swap.len() as u32;
            self.receipt.copied_because(match passed.swapped {
                0 if planned == 0 => Reason::Short,
                0 if redelivered => Reason::Redelivered,
                0 if !aligned => Reason::Unaligned,
                swapped if swapped < planned => Reason::Kernel,
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

    /// The system buffer that holds the data.
    fn source(&mut self) -> Option<&mut SystemBuffer> {
        match &mut self.buffering {
            Buffering::Overlaid(overlay) => overlay.buffer_mut(),
            Buffering::Customized | Buffering::Outboard(_) => self.system.as_mut(),
        }
    }

    pub(super) fn fill_region(&mut self, actual: usize) -> Result<()> {
        // A server without data need not have asked for memory; the client gets a region all the same.
        self.run_ready()?;
        let space = self.space().clone();
        let Some(system) = self.source() else { return Ok(()) };
        let (granule, offset) = (system.space().granule(), system.alignment().unwrap_or_default());
        let (migrant, zeroed) = space.region_from(system, actual)?;
        self.receipt.mapped += (offset + actual).div_ceil(granule) as u32;
        self.receipt.zeroed += zeroed;
        self.migrant = Some(migrant);
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
