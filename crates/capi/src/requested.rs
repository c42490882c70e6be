//! What the library keeps of a request until it is over.
//!
//! How: threads that wait for a request hold its lock for reading; the one that takes the reply holds it for writing.

use genie_io::Pending;
use genie_sys::lock::RwLock;
use smallvec::SmallVec;

use crate::failure::Failure;
use crate::headers::Kept;
use crate::regions::Users;
use crate::types::Segment;

/// What a request holds until it is over.
#[derive(Debug, Default)]
pub(crate) struct Begun {
    pub(crate) users: Users,
    pub(crate) inputs: Inputs,
    /// How many headers have elements.
    pub(crate) buffers: usize,
    /// Whether headers or elements say where something of the outcome is to be written.
    pub(crate) is_reported: bool,
}

/// Native inputs, in order, and whether the server works in them.
type Inputs = SmallVec<[(Segment, bool); 1]>;

// SAFETY: the pointers are to what the table of buffers keeps as long as a use is counted there, of which any thread may do the
// counting; and to memory of the program's, which nobody touches by them.
unsafe impl Send for Begun {}
// SAFETY: as above.
unsafe impl Sync for Begun {}

/// A request that is pending, or replied to and not synchronized.
#[derive(Debug)]
pub(crate) struct Requested {
    /// None once it is over.
    pending: RwLock<Option<Pending<'static>>>,
    pub(crate) headers: Kept,
    pub(crate) begun: Begun,
}

impl Requested {
    pub(crate) fn new(pending: Pending<'static>, headers: Kept, begun: Begun) -> Self {
        Self { pending: RwLock::new(Some(pending)), headers, begun }
    }

    /// Does something with the request while it is pending.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&Pending<'static>) -> T) -> Result<T, Failure> {
        self.pending.read().as_ref().map(act).ok_or_else(over)
    }

    /// Takes what is pending, so that no other thread has its reply.
    pub(crate) fn take(&self) -> Result<Pending<'static>, Failure> {
        self.pending.write().take().ok_or_else(over)
    }
}

fn over() -> Failure {
    Failure::new(libc::EBADF, "another thread has synchronized with the request")
}
