//! Supplying: how a server has its own buffer, or a device's memory, in place of an input's.
//!
//! Source: thesis §7.4.3, table 7.3.

use genie_memory::Direction;
use genie_passing::{Chain, Outboard};

use super::Incoming;
use crate::Error;
use crate::work::Transfer;
use crate::work::forwarded::Supply;

impl Incoming {
    /// Overlays one or more buffers of the server's own on element `element` of input buffer `index`, instead of
    /// making that element ready: an [`Overlay`](genie_passing::Overlay), or a [`Chain`] of them. [`Incoming::set_actual`] still has
    /// to say how many bytes came.
    ///
    /// The data is there before, or a device may still store it until the server replies, drops the request, makes the element ready, or
    /// forwards it: by then, and before [`Incoming::progress`] calls them final, the bytes that are passed have to be in the buffers.
    ///
    /// # Errors
    /// There is no such input buffer or element ([`Error::NoSuchBuffer`], [`Error::NoSuchElement`]).
    /// [`Error::ReadyAlready`]: the element was made ready, overlaid, linked to outboard memory or forwarded before, and stays as it
    /// was; the overlay buffers go back to their pools.
    pub fn overlay(&mut self, index: usize, element: usize, overlays: impl Into<Chain>) -> Result<(), Error> {
        self.supply(index, element, Supply::Overlay(overlays.into()))
    }

    /// Links data in a device's own memory to element `element` of input buffer `index`, instead of making that element
    /// ready. [`Incoming::set_actual`] still has to say how many bytes came.
    ///
    /// # Errors
    /// As [`Incoming::overlay`]; no memory for a host buffer, or the device's transfer failed.
    pub fn outboard(
        &mut self,
        index: usize,
        element: usize,
        outboard: Box<dyn Outboard>,
    ) -> Result<(), Error> {
        self.supply(index, element, Supply::Outboard(outboard))
    }

    /// Fails as [`Incoming::overlay`] would, and changes nothing otherwise: for a server that has to keep what cannot be overlaid.
    ///
    /// # Errors
    /// As [`Incoming::overlay`].
    pub fn ensure_unready(&mut self, index: usize, element: usize) -> Result<(), Error> {
        self.buffer(index, Direction::In)?;
        let elements = &self.work_mut().whole_mut()[index].elements;
        let (buffer, count) = (index, elements.len());
        let supplied = elements.get(element).ok_or(Error::NoSuchElement { buffer, element, count })?;
        if supplied.is_ready() { Err(Error::ReadyAlready { buffer, element }) } else { Ok(()) }
    }

    fn supply(&mut self, index: usize, element: usize, supply: Supply) -> Result<(), Error> {
        self.ensure_unready(index, element)?;
        match self.work_mut().supplied(index, element) {
            Transfer::Located(located) => located.supply(supply),
            Transfer::In(input) => supply.put_in(input)?,
            Transfer::Out(_) | Transfer::Forwarded(_) | Transfer::Carried(_) | Transfer::None(_) => {}
        }
        self.work_mut().owe(index);
        Ok(())
    }
}
