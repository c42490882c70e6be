//! A server in the peer process, reached over a channel.

use std::time::Duration;

use genie::mechanism::GranuleKind;
use genie::memory;
use genie_io::channel::directory::Directory;
use genie_io::channel::{Listener, Running, ServeOptions, Serving};
use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::server::{Buffers, POOLED_BUFFERS};

/// How many of the longest buffers the pool that is lent to the client holds.
const LENT_BUFFERS: usize = 3;
/// How many bytes it has at least: what is measured is to find it as it is in the long run, when it has grown.
const LENT_BYTES: usize = 64 << 20;

/// What server to host, and where.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in crate::compare) struct Hosting {
    /// The folder that holds its name.
    pub(in crate::compare) folder: String,
    /// Its name.
    pub(in crate::compare) name: String,
    /// Whether it has buffers of its own for input.
    pub(in crate::compare) pooled: bool,
    /// The longest data.
    pub(in crate::compare) longest: usize,
    /// How long it spins before it sleeps; as by default, if not said.
    pub(in crate::compare) spin: Option<Duration>,
}

/// How long both sides spin where each has a CPU of its own: longer than requests take, as the baselines do whose names
/// end in -polled.
pub(in crate::compare) const POLLED: Duration = Duration::from_millis(3);

impl Hosting {
    pub(in crate::compare) fn new(
        folder: &str,
        buffers: Buffers,
        longest: usize,
        spin: Option<Duration>,
    ) -> Self {
        let pooled = buffers == Buffers::Pooled;
        Self { folder: folder.to_owned(), name: "memory".to_owned(), pooled, longest, spin }
    }

    /// Hosts a memory server in threads of its own, until what is returned is dropped.
    pub(super) fn start(&self) -> Result<Running, Failure> {
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
        let directory = Directory::at(&self.folder).map_err(Failure::could_not)?;
        let listener = Listener::claim_in(&directory, &self.name, options).map_err(Failure::could_not)?;
        let memory = self.memory(&listener).map_err(Failure::could_not)?;
        listener.serve(memory).and_then(Serving::start).map_err(Failure::could_not)
    }

    fn memory(&self, listener: &Listener) -> Result<memory::Memory, genie::Error> {
        if !self.pooled {
            return Ok(memory::Memory::customized());
        }
        memory::Memory::pooled(listener.private_pool()?, 0, self.longest, POOLED_BUFFERS)
    }
}
