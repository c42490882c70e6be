//! Memory servers, to which data is passed and from which it comes back: in this process, or in a process of their own.

use std::time::Duration;

use genie::channel::{ConnectOptions, Directory, Listener, Running, ServeOptions, Serving};
use genie::mechanism::GranuleKind;
use genie::{Connect, Interface, ServerHandle, memory};
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::parties::{Order, ROLE};
use crate::peer::{self, Peer};

/// Requests are served one at a time, so one buffer is in use; a second is to spare.
const POOLED_BUFFERS: usize = 2;
/// How many of the longest buffers the pool that is lent to the client holds.
const LENT_BUFFERS: usize = 3;
/// The least size of that pool in bytes: measurements should find the pool as it is in the long run, when it has grown.
const LENT_BYTES: usize = 64 << 20;
/// The name under which a server in another process is found.
const NAME: &str = "memory";

/// The server's buffers for input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
pub enum Buffers {
    /// Made by the interface for each request.
    Customized,
    /// The server's own, as long as the greatest length, each starting where a granule does.
    Pooled,
}

impl Buffers {
    /// Opens a memory server in this process whose own buffers, if it has any, are `longest` bytes long.
    ///
    /// # Errors
    /// No memory.
    pub fn open(self, genie: &Interface, longest: usize) -> Result<ServerHandle> {
        let server = match self {
            Self::Customized => memory::Memory::customized(),
            Self::Pooled => memory::Memory::pooled(genie.space(), 0, longest, POOLED_BUFFERS)?,
        };
        Ok(ServerHandle::new(server))
    }
}

/// Starts a memory server in a process of its own, on `cpu` if one is named, and connects to it; the server ends with its
/// process. Both sides spin for `spin` before they sleep, or for the default time if none is given.
///
/// # Errors
/// The process does not start, or there is no memory.
pub fn connect(
    genie: &Interface,
    buffers: Buffers,
    longest: usize,
    cpu: Option<usize>,
    spin: Option<Duration>,
) -> Result<(ServerHandle, Peer)> {
    // The folder may go as soon as client and server are connected.
    let folder = peer::folder()?;
    let peer = Peer::start(ROLE, cpu)?;
    let hosting = Hosting { folder: folder.path().to_string_lossy().into_owned(), buffers, longest, spin };
    peer.order(&Order::HostMemory(hosting), &[], "it opened a server")?;
    // The server is ours, and slow only where the machine is busy.
    let timeout = Duration::from_secs(60);
    let options = ConnectOptions { spin, timeout, ..ConnectOptions::default() };
    Ok((genie.connect_with(&Directory::at(folder.path())?, NAME, &options)?, peer))
}

/// Which memory server to host, and where.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Hosting {
    /// The folder that holds its name.
    folder: String,
    buffers: Buffers,
    /// The longest data.
    longest: usize,
    /// How long the server spins before it sleeps; none for the default time.
    spin: Option<Duration>,
}

impl Hosting {
    /// Hosts the server in threads of its own, until the returned value is dropped.
    pub(crate) fn start(&self) -> Result<Running> {
        let default = ServeOptions::default();
        let options = ServeOptions {
            pool: LENT_BYTES.max(LENT_BUFFERS * self.longest),
            private_pool: (2 * POOLED_BUFFERS * self.longest).next_multiple_of(GranuleKind::Huge.size()),
            pending_bytes: usize::MAX,
            pending_requests: u32::from(u16::MAX),
            clients: 1,
            spin: self.spin.unwrap_or(default.spin),
            ..default
        };
        let listener = Listener::claim_in(&Directory::at(&self.folder)?, NAME, options)?;
        let memory = match self.buffers {
            Buffers::Customized => memory::Memory::customized(),
            Buffers::Pooled => {
                memory::Memory::pooled(listener.private_pool()?, 0, self.longest, POOLED_BUFFERS)?
            }
        };
        Ok(listener.serve(memory).and_then(Serving::start)?)
    }
}
