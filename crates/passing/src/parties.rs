//! Parties: whose memory a transfer's system buffers are made of, and which server sees them.
//!
//! Why: memory that a server lent holds nothing that the server may not see. Other memory may hold such data. Before a
//! server in another process is shown a system buffer in other memory, everything beside the data in the buffer's granules
//! has to be zeroed, which can cost more than copying the data.
//! How: a buffer comes from its lender's pool. Where that is exhausted, the space adds memory to it that only this lender is
//! shown (`genie_memory::Space::with_stand_ins`). Data shorter than t_m that would need zero completion is put into the pool of
//! the server that is to see it. A buffer for a server that did not lend it has granules to itself, or a part of a granule that
//! only this server is shown, and is zero-completed. That protects data from a server in this process's mapping alone: a
//! server in another process is shown whole objects, so the crate above lets no other party lend to it.
//! Limits: short data may share a granule with other data of the same client to the same server; zero completion for a
//! subcontractor leaves that other data as it is.
//! Source: thesis §5.1, §5.2. Differs: the server is known when the buffer is allocated, so short data is put into the
//! server's pool at once, where the thesis copies it there from other memory when the request is delivered.

use genie_memory::{Error as MemoryError, LenderId, Result, Space, SystemBuffer};

use crate::Passing;
use crate::engine::Rules;

/// The party that lends a transfer's system buffers, and the server that sees them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Parties {
    /// The lender from whose pool they come.
    pub lender: LenderId,
    /// The server that works on them, by the pool that it lends; [`LenderId::OWN`] for a server in this process, which
    /// could see all of the space anyway.
    pub server: LenderId,
    /// From which length on emulated copy may show the client's own memory to the server.
    pub shown_from: usize,
}

impl Parties {
    /// The space's own memory, for a server in this process.
    pub const OWN: Self = Self::by(LenderId::OWN);

    /// The memory of the server itself, which is the usual case.
    pub const fn by(server: LenderId) -> Self {
        Self { lender: server, server, shown_from: 0 }
    }

    /// Whether the server is in another process.
    pub(crate) fn shows_elsewhere(self) -> bool {
        self.server != LenderId::OWN
    }

    /// Whether memory of `lender` is shown to a server that did not lend it.
    fn shows(self, lender: LenderId) -> bool {
        self.shows_elsewhere() && self.server != lender
    }
}

impl From<LenderId> for Parties {
    fn from(server: LenderId) -> Self {
        Self::by(server)
    }
}

/// Whether the server that lends as `server` must not see what is in `buffer`'s granules beside the data.
pub(crate) fn needs_completion(buffer: &SystemBuffer, server: LenderId) -> bool {
    Parties::by(server).shows(buffer.lender())
}

impl Passing {
    /// A system buffer for data that will be copied.
    pub(crate) fn copy_buffer(&self, parties: Parties, len: usize) -> Result<SystemBuffer> {
        let space = self.space();
        self.lent(self.rules(space), space.for_len(len), parties, len, |lender| {
            // Data that the server is shown must not share a granule with data that the server may not see.
            let server = if parties.shows(lender) { parties.server } else { lender };
            space.system_buffer_shown(lender, server, len)
        })
    }

    /// A system buffer whose data starts where the client's does, `addr`, in its granule.
    pub(crate) fn aligned_buffer(&self, parties: Parties, addr: usize, len: usize) -> Result<SystemBuffer> {
        let (space, rules) = self.at(addr);
        self.lent(rules, space, parties, len, |lender| space.aligned_buffer_from(lender, addr, len))
    }

    /// Allocates from the pool that `parties` and the length name, to which `space` adds memory if the pool is exhausted. If
    /// the lender is gone, nobody is shown the buffer, and it comes from the space's own pool.
    fn lent(
        &self,
        rules: &Rules,
        space: &Space,
        parties: Parties,
        len: usize,
        allocate: impl Fn(LenderId) -> Result<SystemBuffer>,
    ) -> Result<SystemBuffer> {
        let thresholds = rules.thresholds(parties.server);
        let is_short = parties.shows(parties.lender) && len < thresholds.mapping;
        let lender = if is_short { parties.server } else { parties.lender };
        match space.with_stand_ins(lender, || allocate(lender)) {
            Err(MemoryError::NoLender { .. }) => allocate(LenderId::OWN),
            result => result,
        }
    }
}
