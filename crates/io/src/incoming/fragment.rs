//! Fragments: parts of a request's buffers that its server forwards in requests of its own.
//!
//! Source: thesis §5.3, §7.5.

use std::sync::Arc;

use genie_memory::Direction;

use crate::RequestId;
use crate::contract::Contract;
use crate::work::location::Locations;

/// A part of a buffer of a request, for its server to forward in a request of its own: the location (request, buffer,
/// offset). It needs no data passing, and the server need not be able to touch the data.
///
/// The reply to the request that it is a part of waits as long as the fragment, or a request that carries it, exists.
#[derive(Debug)]
pub struct Fragment {
    pub(crate) contract: Arc<Contract>,
    pub(crate) contractor: RequestId,
    pub(crate) direction: Direction,
    pub(crate) locations: Locations,
    pub(crate) len: usize,
}

impl Fragment {
    /// The request whose part it is.
    pub fn request(&self) -> RequestId {
        self.contractor
    }

    /// The number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Which way its data goes.
    pub fn direction(&self) -> Direction {
        self.direction
    }
}
