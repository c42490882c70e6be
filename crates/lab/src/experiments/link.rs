//! A link: in one process, a sender and a receiver of transfers, and a wire that leads from the one to the other.
//!
//! Why: servers have pooled buffers change places with those of clients in their own process alone, as a kernel does; so the receiver's
//! adapter, its host software and its client are in one process. The sender is there, too: what it does before its frames arrive is
//! then in the same thread, which nobody has to wake.

use genie::mechanism::Preferred;
use genie::{In, Interface, Out, Pending, ServerHandle};
use genie_net::adapter::{Adapter, EarlyDemultiplexing, Outboard, Pool, Pooled, SnapOff, Support};
use genie_net::transfer::{HEADER, RECEIVE, Receiving, SEND, Shape, Totals, Transfers, layout, port};
use genie_net::wire::{Clock, Options};
use genie_net::{Rate, Wire};

use crate::error::{Error, Result};

/// How long pooled segments are: a granule of 4 KiB.
pub(super) const GRANULE: usize = 4096;
/// How many there are, and so at least as many bytes may wait for a client.
const SEGMENTS: usize = 256;
/// How many bytes outboard memory has.
const OUTBOARD: usize = SEGMENTS * GRANULE;
/// A link, and the interface of its clients.
pub(super) struct Link {
    // The servers go before the interface.
    sender: ServerHandle,
    receiver: ServerHandle,
    receiving: Transfers,
    /// Takes the buffers that are given away.
    pub(super) sink: ServerHandle,
    /// The port of the next transfers.
    pub(super) port: u16,
    pub(super) genie: Interface,
}

/// How a level of support is called in figures and tables.
pub(super) fn name(support: Support) -> &'static str {
    match support {
        Support::Pooled => "pooled",
        Support::Splitting => "header/data splitting",
        Support::EarlyDemultiplexing => "early demultiplexing",
        Support::SnapOff => "buffer snap-off",
        Support::Outboard => "outboard",
    }
}

fn adapter(support: Support, genie: &Interface) -> Result<Box<dyn Adapter>> {
    let pool = || Pool::reserve(genie.space(), GRANULE, SEGMENTS).map_err(genie::Error::from);
    Ok(match support {
        Support::Pooled => Box::new(Pooled::new(pool()?)),
        Support::Splitting => Box::new(Pooled::splitting(pool()?, HEADER)),
        Support::EarlyDemultiplexing => Box::new(EarlyDemultiplexing::new(layout(), pool()?)),
        Support::SnapOff => Box::new(SnapOff::new(layout(), pool()?)),
        Support::Outboard => Box::new(Outboard::new(OUTBOARD)),
    })
}

impl Link {
    /// Opens a link whose sender cuts data as `shape` says.
    ///
    /// # Errors
    /// No memory.
    pub(super) fn open(
        genie: Interface,
        support: Support,
        rate: Rate,
        shape: Shape,
        receiving: Receiving,
    ) -> Result<Self> {
        let sink = ServerHandle::new(genie::memory::Memory::customized());
        let receiving = Transfers::new(genie.clone(), adapter(support, &genie)?, receiving);
        let options = Options { rate, ..Options::default() };
        let wire = Wire::new(options, Clock::default(), receiving.clone())
            .map_err(|error| Error::Peer(error.to_string()))?;
        let none = Box::new(Outboard::new(0));
        let sending = Transfers::new(genie.clone(), none, Receiving::of(Shape::of(1)));
        sending.attach(ServerHandle::new(wire))?;
        sending.set_shape(shape);
        let (sender, receiver) = (ServerHandle::new(sending), ServerHandle::new(receiving.clone()));
        Ok(Self { sender, receiver, receiving, sink, port: 0, genie })
    }

    /// Requests the output of some data.
    ///
    /// # Errors
    /// The request failed.
    pub(super) fn send<'o>(&self, output: Out<'o>) -> Result<Pending<'static>> {
        let argument = port(self.port);
        let sent = self.genie.request(&self.sender, SEND).argument(&argument).out(output).submit();
        Ok(sent.map_err(|failed| failed.error)?)
    }

    /// Requests an input.
    ///
    /// # Errors
    /// The request failed.
    pub(super) fn ask<'i>(&self, input: In<'i>) -> Result<Pending<'i>> {
        let argument = port(self.port);
        let asked = self.genie.request(&self.receiver, RECEIVE).argument(&argument).input(input).submit();
        Ok(asked.map_err(|failed| failed.error)?)
    }

    /// How the server would like client buffers to be laid out.
    ///
    /// # Errors
    /// The server cannot be asked.
    pub(super) fn preferred(&self) -> Result<Preferred> {
        let preference = self.genie.preferred(&self.receiver, RECEIVE, &port(self.port))?;
        Ok(preference.preferred().unwrap_or_default())
    }

    /// What the receiver's server has done so far.
    pub(super) fn totals(&self) -> Totals {
        self.receiving.totals()
    }
}
