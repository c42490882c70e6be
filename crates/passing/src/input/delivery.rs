//! Delivery: how an input's data gets into the client's memory.
//!
//! How: by copying it out, by swapping what is worth it, by making a region of it, or by having a device transfer it.
//! Source: thesis §4.1, §7.4.2 to §7.4.4.

use genie_memory::{Direction, InputPlan, Segments, SystemBuffer, gather};

use super::{Buffering, Input, Target};
use crate::{Reason, Result, Scheme};

impl Input {
    /// Copies the first data bytes elsewhere without completing the input; returns how many. Data that is still in a
    /// device's own memory is transferred to a host buffer for it, and once more when it is delivered.
    ///
    /// # Errors
    /// No memory for a host buffer.
    pub fn peek(&mut self, actual: usize, bytes: &mut [u8]) -> Result<usize> {
        let wanted = actual.min(bytes.len());
        let host = match (&self.buffering, &self.system, &self.reference) {
            (Buffering::Outboard(_), None, None) => Some(self.space().system_buffer(wanted)?),
            _ => None,
        };
        let segments = host.as_ref().map_or_else(|| self.segments(), SystemBuffer::segments);
        if host.is_some() {
            self.transfer(&segments);
        }
        Ok(gather(&segments, &mut bytes[..wanted]))
    }

    /// References the client's granules, into which outboard data is about to be transferred. Other memory, to which the
    /// client had it redirected, gets a system buffer instead.
    pub(super) fn reference_delivered(&mut self, bytes: Option<&[u8]>) -> Result<()> {
        self.take_delivered(bytes)?;
        if let Some(reference) = &self.reference {
            self.receipt.referenced += reference.granules();
        }
        if self.system.is_some() {
            self.receipt.effective = Scheme::Copy;
            self.receipt.reason = Some(Reason::Redelivered);
        }
        Ok(())
    }

    /// Takes that reference or that system buffer, unless it was taken before.
    pub(super) fn take_delivered(&mut self, bytes: Option<&[u8]>) -> Result<()> {
        let Some(bytes) = bytes.filter(|bytes| !bytes.is_empty()) else { return Ok(()) };
        if self.reference.is_some() || self.system.is_some() {
            return Ok(());
        }
        match self.space().reference(bytes.as_ptr().addr(), bytes.len(), Direction::In) {
            Ok(reference) => self.reference = Some(reference),
            Err(genie_memory::Error::Foreign { .. }) => {
                self.system = Some(self.space().system_buffer(bytes.len())?);
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    pub(super) fn copyout(&mut self, bytes: &mut Option<&mut [u8]>) {
        if let Some(bytes) = bytes.take() {
            self.receipt.copied += gather(&self.segments(), bytes);
        }
    }

    /// Passes data by swapping what is worth it: into native memory at `bytes`, or into an immigrating region.
    pub(super) fn swap(&mut self, actual: usize, bytes: &mut Option<&mut [u8]>) -> Result<()> {
        self.reinstate()?;
        if actual == 0 {
            return Ok(());
        }
        let granule = self.space().granule();
        let (addr, plan) = match (&self.immigrating, bytes.as_ref()) {
            (Some(immigrating), _) => {
                (immigrating.addr(), InputPlan { swap: 0..actual.div_ceil(granule) as u32 })
            }
            (None, Some(bytes)) => {
                let addr = bytes.as_ptr().addr();
                (addr, self.passing().plan(addr, actual))
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
            self.copyout(bytes);
            return Ok(());
        }
        let Some(system) = self.source() else { return Ok(()) };
        let aligned = system.alignment() == Some(addr & (granule - 1));
        let passed = space.deliver(system, addr, actual, &plan)?;
        self.receipt.copied += passed.copied;
        self.receipt.swapped += passed.swapped;
        if passed.copied > 0 {
            let planned = plan.swap.len() as u32;
            self.receipt.reason = Some(match passed.swapped {
                0 if planned == 0 => Reason::Short,
                0 if redelivered => Reason::Redelivered,
                0 if !aligned => Reason::Unaligned,
                swapped if swapped < planned => Reason::Kernel,
                _ => Reason::Edges,
            });
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
        let granule = space.granule();
        let Some(system) = self.source() else { return Ok(()) };
        let (migrant, zeroed) = space.region_from(system, actual)?;
        self.receipt.mapped += actual.div_ceil(granule) as u32;
        self.receipt.zeroed += zeroed;
        self.migrant = Some(migrant);
        Ok(())
    }

    pub(super) fn transfer(&mut self, segments: &Segments) {
        if let Buffering::Outboard(outboard) = &mut self.buffering {
            let mut at = 0;
            for segment in segments {
                let here = segment.len().min(outboard.len().saturating_sub(at));
                outboard.transfer(at, segment.part(0, here));
                at += here;
            }
        }
    }
}
