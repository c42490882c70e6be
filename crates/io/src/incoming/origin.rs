//! Origins: the client that made a request, which gets the reply.

use std::sync::Arc;

use genie_memory::Extent;

use crate::carrier::Caller;
use crate::contract::Contract;
use crate::exchange::Exchange;
use crate::kept::allowance::Allowance;
use crate::request::id::Slot;
use crate::work::Work;
use crate::work::location::{Location, Locations};
use crate::{Client, Error, RequestId, sequel};

/// The client that gets the reply.
#[derive(Debug)]
pub(crate) enum Origin {
    /// A client in this process.
    Here(Arc<Exchange>),
    /// A client in another one.
    There(Arc<dyn Caller>, Slot, RequestId),
}

impl Origin {
    pub(crate) fn id(&self) -> RequestId {
        match self {
            Self::Here(exchange) => exchange.id(),
            Self::There(_, _, id) => *id,
        }
    }

    /// Whether the client no longer waits for the reply.
    pub(super) fn is_aborted(&self) -> bool {
        match self {
            Self::Here(exchange) => exchange.is_aborting(),
            Self::There(caller, slot, _) => caller.is_aborted(*slot),
        }
    }

    /// A client in another process.
    pub(super) fn client(&self) -> Option<&Client> {
        match self {
            Self::Here(_) => None,
            Self::There(caller, ..) => Some(caller.client()),
        }
    }

    /// What servers may keep of the outputs of a client in another process.
    pub(super) fn allowance(&self) -> Option<&Arc<Allowance>> {
        match self {
            Self::Here(_) => None,
            Self::There(caller, ..) => Some(caller.allowance()),
        }
    }

    pub(crate) fn reply(&self, work: Box<Work>, error: Option<Error>) {
        match self {
            Self::Here(exchange) => exchange.reply(work, error),
            Self::There(caller, slot, _) => caller.reply(*slot, work, error),
        }
    }

    pub(super) fn anticipate(&self, work: &Work) {
        match self {
            Self::Here(exchange) => exchange.anticipate(work.interim()),
            Self::There(caller, slot, _) => caller.anticipate(*slot, work),
        }
    }

    /// Tells the client that the first `len` bytes of a buffer are final.
    pub(super) fn progress(&self, index: usize, len: usize) {
        match self {
            Self::Here(exchange) => exchange.come_to(index, len).into_iter().for_each(sequel::wake),
            Self::There(caller, slot, _) => caller.progress(*slot, index, len),
        }
    }

    /// The locations of data that a client in another process has named.
    pub(crate) fn locations(&self, named: &[(u16, Extent)]) -> Locations {
        match self {
            Self::Here(_) => Locations::new(),
            Self::There(caller, ..) => {
                let mirrored = caller.locations(named).into_iter();
                mirrored.map(|(mirror, extents)| Location::There(mirror, extents)).collect()
            }
        }
    }

    /// Notes that the request may originate others; returns whether it is being aborted already.
    pub(crate) fn contracted(&self, contract: &Arc<Contract>) -> bool {
        match self {
            Self::Here(exchange) => exchange.contracted(contract),
            Self::There(caller, slot, _) => caller.contracted(*slot, contract),
        }
    }
}
