//! A sender and a receiver, with a wire between them.

use genie_conformance::{Buffering, Granules, Guard, Setup};
use genie_io::{Interface, Limits, ServerHandle, ServiceId};
use genie_net::Wire;
use genie_net::adapter::{Adapter, Approximation, EarlyDemultiplexing, Outboard, Pool, Pooled, SnapOff};
use genie_net::transfer::{HEADER, Receiving, Shape, Transfers, layout};
use genie_net::wire::{Clock, Options};
use genie_passing::Thresholds;

/// The port that tests send to.
pub(crate) const PORT: u16 = 7;
/// How many segments the pools have.
pub(crate) const SEGMENTS: usize = 1024;
pub(crate) const SEGMENT: usize = 4096;

/// The adapters, by how far they support copy avoidance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Pooled,
    Splitting,
    Early,
    EarlySplitting,
    Approximation,
    SnapOff,
    Outboard,
}

impl Kind {
    pub(crate) const ALL: [Self; 7] = [
        Self::Pooled,
        Self::Splitting,
        Self::Early,
        Self::EarlySplitting,
        Self::Approximation,
        Self::SnapOff,
        Self::Outboard,
    ];

    pub(crate) fn adapter(self, genie: &Interface) -> Box<dyn Adapter> {
        let pool = || Pool::reserve(genie.space(), SEGMENT, SEGMENTS).expect("memory");
        match self {
            Self::Pooled => Box::new(Pooled::new(pool())),
            Self::Splitting => Box::new(Pooled::splitting(pool(), HEADER)),
            Self::Early => Box::new(EarlyDemultiplexing::new(layout(), pool())),
            Self::EarlySplitting => Box::new(EarlyDemultiplexing::splitting(layout(), pool())),
            Self::Approximation => Box::new(Approximation::new(layout(), pool())),
            Self::SnapOff => Box::new(SnapOff::new(layout(), pool())),
            Self::Outboard => Box::new(Outboard::new(8 << 20)),
        }
    }
}

pub(crate) struct Link {
    pub(crate) genie: Interface,
    pub(crate) sender: ServerHandle,
    pub(crate) sending: Transfers,
    pub(crate) receiver: ServerHandle,
    pub(crate) receiving: Transfers,
}

pub(crate) fn receiving(data: usize) -> Receiving {
    Receiving::of(Shape::of(data))
}

impl Link {
    /// Data is passed by the mechanisms whatever it costs.
    pub(crate) fn open(kind: Kind, how: Receiving) -> Self {
        Self::over(Options::default(), kind, how)
    }

    pub(crate) fn over(wire: Options, kind: Kind, how: Receiving) -> Self {
        let setup = Setup::new(Granules::Base, Guard::Never, Buffering::Customized);
        let genie = setup
            .interface("a link", 64 << 20, Limits::default(), Thresholds::ALWAYS)
            .expect("4 KiB granules");
        let adapter = kind.adapter(&genie);
        Self::of(genie, adapter, wire, how)
    }

    pub(crate) fn with(genie: Interface, adapter: Box<dyn Adapter>, how: Receiving) -> Self {
        Self::of(genie, adapter, Options::default(), how)
    }

    fn of(genie: Interface, adapter: Box<dyn Adapter>, wire: Options, how: Receiving) -> Self {
        let receiving = Transfers::new(genie.clone(), adapter, how.clone());
        let receiver = ServerHandle::new(receiving.clone());
        let wire = ServerHandle::new(Wire::new(wire, Clock::default(), receiving.clone()).expect("options"));
        let sending = Transfers::new(genie.clone(), Box::new(Outboard::new(0)), how.clone());
        sending.attach(wire).expect("a wire");
        let sender = ServerHandle::new(sending.clone());
        sending.set_shape(how.expected);
        Self { genie, sender, sending, receiver, receiving }
    }
}

/// The number of a service.
pub(crate) const SEND: ServiceId = genie_net::transfer::SEND;
pub(crate) const RECEIVE: ServiceId = genie_net::transfer::RECEIVE;
