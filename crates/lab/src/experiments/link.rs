//! A link: in one process, a sender and a receiver of transfers, and a wire, or a link of the kernel's, that leads from the one to the other.
//!
//! Why: servers have pooled buffers change places with those of clients in their own process alone, as a kernel does; so the receiver's
//! adapter, its host software and its client are in one process. The sender is there, too: what it does before its frames arrive is
//! then in the same thread, which nobody has to wake.
//! How: over a link of the kernel's, pooled buffers are those in which the kernel stores frames; adapters of the other levels copy frames out of
//! these, as they do out of the sender's memory over a wire.

mod enveloped;

use std::rc::Rc;
use std::sync::Arc;

use genie::mechanism::Preferred;
use genie::{In, Interface, Out, Pending, ServerHandle};
use genie_io::Completer;
use genie_net::adapter::{Adapter, EarlyDemultiplexing, Outboard, Pool, Pooled, SnapOff, Support};
use genie_net::driver::{self, Native};
use genie_net::namespaces::{End, Pair};
use genie_net::transfer::{HEADER, RECEIVE, Receiving, SEND, Shape, Totals, Transfers, layout, port};
use genie_net::wire::{Clock, Options, Station};
use genie_net::{Frame, Rate, Wire};
use genie_sys::lock::Mutex;

use crate::error::{Error, Result};
use crate::medium::{self, Copied};
use enveloped::{Enveloped, HEADERS};

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
    kernels: Option<Kernels>,
    /// Whether the adapter takes the buffers in which the kernel has stored frames.
    is_native: bool,
    /// Takes the buffers that are given away.
    pub(super) sink: ServerHandle,
    /// The port of the next transfers.
    pub(super) port: u16,
    pub(super) genie: Interface,
}

/// A link of the kernel's in the place of several wires, which are used in turns.
#[derive(Clone)]
pub(super) struct Kernels {
    /// The sender's end, and the receiver's.
    ends: [driver::Link; 2],
    turn: Turn,
    /// The adapter that takes the buffers in which the kernel has stored frames.
    native: Native,
    _pair: Rc<Pair>,
}

/// What a link leads over.
#[derive(Clone, Copy)]
pub(super) enum Over<'k> {
    /// A wire of its own, of this rate.
    Wire(Rate),
    /// A link of the kernel's.
    Kernels(&'k Kernels),
}

impl<'k> Over<'k> {
    fn kernels(self) -> Option<&'k Kernels> {
        match self {
            Self::Wire(_) => None,
            Self::Kernels(kernels) => Some(kernels),
        }
    }
}

/// The server to which frames are shown: that of the link whose turn it is.
#[derive(Clone, Default)]
struct Turn(Arc<Mutex<Option<Transfers>>>);

impl Station for Turn {
    fn arrive(&self, frame: &Frame<'_>) {
        let receiving = self.0.lock().clone();
        if let Some(receiving) = receiving {
            receiving.arrive(frame);
        }
    }
}

impl Kernels {
    /// Opens one.
    ///
    /// # Errors
    /// A right is missing, or memory.
    pub(super) fn open(genie: &Interface) -> Result<Self> {
        let pair = Pair::new(medium::MTU).map_err(failed)?;
        let [near, far] = &pair.ends;
        let rings = |end: &End| medium::open(genie.space(), &end.namespace, &end.interface.name);
        let (ours, theirs) = (rings(near)?, rings(far)?);
        let native = theirs.adapter();
        let link = |rings, ends: [&End; 2]| {
            let rings = Enveloped::new(rings, ends).map_err(failed)?;
            driver::Link::new(&ends[0].interface.name, rings, driver::Options::default()).map_err(failed)
        };
        let ends = [link(ours, [near, far])?, link(theirs, [far, near])?];
        let turn = Turn::default();
        ends[1].lead_to(turn.clone());
        Ok(Self { ends, turn, native, _pair: Rc::new(pair) })
    }
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::Peer(error.to_string())
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
        over: Over<'_>,
        shape: Shape,
        receiving: Receiving,
    ) -> Result<Self> {
        let sink = ServerHandle::new(genie::memory::Memory::customized());
        let native = over.kernels().filter(|_| support == Support::Pooled).map(|kernels| &kernels.native);
        let adapter = match native {
            Some(native) => Box::new(native.clone()),
            None => adapter(support, &genie)?,
        };
        let is_native = native.is_some();
        let receiving = Transfers::new(genie.clone(), adapter, receiving);
        let way = match over {
            Over::Wire(rate) => {
                let options = Options { rate, ..Options::default() };
                ServerHandle::new(Wire::new(options, Clock::default(), receiving.clone()).map_err(failed)?)
            }
            Over::Kernels(kernels) => ServerHandle::new(kernels.ends[0].clone()),
        };
        let none = Box::new(Outboard::new(0));
        let sending = Transfers::new(genie.clone(), none, Receiving::of(Shape::of(1)));
        sending.attach(way)?;
        sending.set_shape(shape);
        let (sender, receiver) = (ServerHandle::new(sending), ServerHandle::new(receiving.clone()));
        let kernels = over.kernels().cloned();
        Ok(Self { sender, receiver, receiving, kernels, is_native, sink, port: 0, genie })
    }

    /// Has frames come to this link from now on, where others lead over the same.
    pub(super) fn take_turn(&self) {
        if let Some(kernels) = &self.kernels {
            *kernels.turn.0.lock() = Some(self.receiving.clone());
        }
    }

    /// Looks for frames, where nobody else does.
    pub(super) fn look(&self) {
        for end in self.kernels.iter().flat_map(|kernels| &kernels.ends) {
            end.collect();
        }
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

    /// Where in its granule the server would like a client's buffer to begin.
    ///
    /// # Errors
    /// The server cannot be asked.
    pub(super) fn preferred_offset(&self) -> Result<usize> {
        let preference = self.genie.preferred(&self.receiver, RECEIVE, &port(self.port))?;
        let Preferred { offset, .. } = preference.preferred().unwrap_or_default();
        Ok(if self.is_native { offset + HEADERS } else { offset })
    }

    /// What the receiver's server has done so far.
    pub(super) fn totals(&self) -> Totals {
        self.receiving.totals()
    }

    /// What was copied so far for bringing frames over.
    pub(super) fn brought(&self) -> Copied {
        let Some(Kernels { ends: [near, far], .. }) = &self.kernels else {
            return Copied::default();
        };
        Copied::at(near, false) + Copied::at(far, !self.is_native)
    }
}
