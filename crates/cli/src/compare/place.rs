//! Where the server of a comparison is: in this process, or in one of its own.
//!
//! How: the only difference to whoever makes requests is which handle they go to; [`Place::open`] is where handles come
//! from.

use std::time::Duration;

use genie::{Interface, ServerHandle};
use genie_io::channel::ConnectOptions;
use genie_io::channel::directory::Directory;
use genie_lab::peer::{Folder, Peer};

use super::peer::{COMMAND, Hosting, Order, POLLED};
use crate::failure::Failure;
use crate::server::Buffers;

/// Where a server is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// In the client's process and thread, as a kernel-level server.
    InProcess,
    /// In another process, on another CPU where there is one.
    Process,
}

/// A server that was opened, and the process that it is in, if that is not this one.
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

    /// Opens a memory server in this place, whose own buffers, if it has any, are `longest` bytes long. One in another
    /// process runs on `cpu`.
    pub(super) fn open(
        self,
        genie: &Interface,
        buffers: Buffers,
        longest: usize,
        cpu: Option<usize>,
    ) -> Result<Opened, Failure> {
        let (handle, peer) = match self {
            Self::InProcess => (buffers.open(genie, longest)?, None),
            Self::Process => {
                let (handle, peer) = connect(genie, buffers, longest, cpu, cpu.map(|_| POLLED))?;
                (handle, Some(peer))
            }
        };
        Ok(Opened { place: self, handle, _peer: peer })
    }
}

/// Opens a server in a process of its own for requests without data, at which both sides sleep until they are woken.
pub(super) fn open_asleep(genie: &Interface, cpu: Option<usize>) -> Result<Opened, Failure> {
    let (handle, peer) = connect(genie, Buffers::Customized, 0, cpu, Some(Duration::ZERO))?;
    Ok(Opened { place: Place::Process, handle, _peer: Some(peer) })
}

/// Starts a process that serves, and connects to it; both sides spin so long before they sleep.
fn connect(
    genie: &Interface,
    buffers: Buffers,
    longest: usize,
    cpu: Option<usize>,
    spin: Option<Duration>,
) -> Result<(ServerHandle, Peer), Failure> {
    // The folder may go as soon as the two are connected.
    let folder = Folder::create().map_err(Failure::could_not)?;
    let peer = Peer::start(COMMAND, cpu)?;
    let hosting = Hosting::new(&folder.path().to_string_lossy(), buffers, longest, spin);
    peer.order(&Order::Host(hosting.clone()), &[], "it opened a server")?;
    let directory = Directory::at(folder.path()).map_err(Failure::could_not)?;
    let options = ConnectOptions { spin, ..ConnectOptions::default() };
    let handle = genie.connect_with(&directory, &hosting.name, &options);
    Ok((handle.map_err(Failure::could_not)?, peer))
}
