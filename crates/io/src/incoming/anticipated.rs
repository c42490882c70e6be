//! Anticipated replies: what a server has left of a request whose client has its reply.

use genie_memory::Data;

use super::Incoming;
use crate::{Error, RequestId};

/// A request whose client has its reply already, while the server goes on with the outputs; dropping it completes them.
#[derive(Debug)]
pub struct Anticipated(pub(super) Incoming);

impl Anticipated {
    /// The request's name.
    pub fn id(&self) -> RequestId {
        self.0.id()
    }

    /// The data of output buffer `index`.
    ///
    /// # Errors
    /// As [`Incoming::output`].
    pub fn output(&self, index: usize) -> Result<Data<'_>, Error> {
        self.0.output(index)
    }
}

impl Drop for Anticipated {
    fn drop(&mut self) {
        self.0.finish(None);
    }
}
