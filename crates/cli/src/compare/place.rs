//! Where the server of a comparison is: in this process, or in a process of its own.
//!
//! How: to a client, the only difference is the handle that its requests go to. [`Place::open`] makes the handles.

use std::time::Duration;

use genie::{Interface, ServerHandle};
use genie_lab::error::Result;
use genie_lab::memory_server::{self, Buffers};
use genie_lab::peer::Peer;

/// How long both sides spin where each has a CPU of its own: longer than requests take. The baselines with names that
/// end in -polled do the same.
pub(super) const POLLED: Duration = Duration::from_millis(3);

/// Where a server is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// In the client's process and thread, as a kernel-level server.
    InProcess,
    /// In another process, on another CPU where there is one.
    Process,
}

/// A server that was opened, and its process, if that is not this process.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) place: Place,
    // Declared in the order in which they are to go.
    pub(super) handle: ServerHandle,
    _peer: Option<Peer>,
}

impl Place {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::InProcess => "in-process",
            Self::Process => "process",
        }
    }

    /// Opens a memory server in this place, whose own buffers, if it has any, are `longest` bytes long. A server in another
    /// process runs on `cpu`. Both sides spin for `spin` before they sleep, or for the default time if none is given.
    pub(super) fn open(
        self,
        genie: &Interface,
        buffers: Buffers,
        longest: usize,
        cpu: Option<usize>,
        spin: Option<Duration>,
    ) -> Result<Opened> {
        let (handle, peer) = match self {
            Self::InProcess => (buffers.open(genie, longest)?, None),
            Self::Process => {
                let (handle, peer) = memory_server::connect(genie, buffers, longest, cpu, spin)?;
                (handle, Some(peer))
            }
        };
        Ok(Opened { place: self, handle, _peer: peer })
    }
}
