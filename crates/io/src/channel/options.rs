//! How a server serves clients in other processes.

use std::time::Duration;

use genie_memory::Mapping;
use genie_ring::Layout;
use genie_sys::machine;

use super::listener::WORKER_CLIENTS;
use crate::Error;

/// Addresses that a client may always take, in bytes: that many for each of as many clients as one thread attends to are
/// all that a process has.
const ADDRESSES: usize = 1 << 40;

/// How a server serves clients in other processes. Defaults are in parentheses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServeOptions {
    /// Bytes lent to each client (16 MiB), in which data that is not passed in place is put. Each client has memory of its own. At most
    /// as many as the machine has. Clients refuse a server whose pool and rings are longer than their
    /// [`ConnectOptions::lent`](super::ConnectOptions::lent).
    pub pool: usize,
    /// Bytes that each client may be lent in all (256 MiB): when its pool is exhausted it asks for more. Beyond that, and where there
    /// is no memory (huge pages), data goes by way of the client's own. For a client that is not trusted, or does not trust,
    /// as many bytes of the server's own.
    pub hard_pool: usize,
    /// Bytes of the server's own (64 MiB), for buffers that it fills before it is asked
    /// ([`Listener::private_pool`](super::Listener::private_pool)).
    pub private_pool: usize,
    /// Bytes that each client may have pending (1 GiB); of a client that is not trusted, no more than `hard_pool`.
    pub pending_bytes: usize,
    /// Requests that each client may have pending (256); never more than 65,536.
    pub pending_requests: u32,
    /// What a client may have the limit on bytes raised to, if it asks (4 GiB).
    pub hard_bytes: usize,
    /// What a client may have the limit on requests raised to (4,096); never more than 65,536.
    pub hard_requests: u32,
    /// Bytes of addresses that each client's memory may take here, with that of others which it forwards; by default
    /// 1 TiB, or eight times what the machine has of memory.
    pub addresses: usize,
    /// Bytes of each client's memory that may be mapped here at once; by default half of what the machine has, as much as
    /// an interface takes by default. A request that needs more is refused, unless nothing else is pending.
    pub mapped: usize,
    /// How many clients there may be (127). Those of one user have at most three quarters of what other users leave, unless it is the
    /// user that the server acts as.
    pub clients: usize,
    /// How many threads take requests (1). Each client belongs to one of them, and [`Server::request`](crate::Server::request) runs
    /// in that thread: while it runs, other clients of the thread wait. A server that takes long over a request keeps the
    /// [`Incoming`](crate::Incoming) and replies from a thread of its own.
    pub threads: usize,
    /// When clients' memory is mapped.
    pub mapping: Mapping,
    /// Maps no memory of its clients: what they output can't be changed any more once the server's code sees it.
    pub untrusted: bool,
    /// How long the server may take to let an aborted request go (100 ms), for ever with [`Duration::MAX`].
    pub abort_timeout: Duration,
    /// How long a thread looks for requests before it sleeps (50 µs).
    pub spin: Duration,
    /// How large the rings are: as [`Layout`] allows, and at most 64 MiB for each client, since they are made while others wait.
    pub rings: Layout,
}

/// The most bytes that the rings of a client may take.
const RINGS_MAX: usize = 64 << 20;

impl ServeOptions {
    /// Makes sure that clients can be served with these options.
    pub(super) fn check(&self) -> Result<(), Error> {
        let refused = |option, why| Err(Error::Unservable(format!("ServeOptions::{option}: {why}")));
        if let Err(error) = self.rings.check() {
            return refused("rings", error.to_string());
        }
        if self.rings.bytes() > RINGS_MAX {
            let (bytes, lines, area) = (self.rings.bytes(), self.rings.lines, self.rings.area);
            return refused(
                "rings",
                format!("{lines} lines and areas of {area} bytes take {bytes} bytes, more than {RINGS_MAX}"),
            );
        }
        for (option, value) in
            [("clients", self.clients), ("addresses", self.addresses), ("mapped", self.mapped)]
        {
            if value == 0 && !(self.untrusted && option == "mapped") {
                return refused(option, "with 0 no client is served".to_owned());
            }
        }
        if self.untrusted && self.hard_pool == 0 {
            return refused("hard_pool", "a server that maps nothing needs memory to copy to".to_owned());
        }
        let memory = machine::total_memory();
        if self.pool as u64 > memory {
            return refused(
                "pool",
                format!("{} bytes are more than the {memory} that this machine has", self.pool),
            );
        }
        Ok(())
    }
}

impl Default for ServeOptions {
    fn default() -> Self {
        let memory = machine::total_memory() as usize;
        Self {
            pool: 16 << 20,
            hard_pool: 256 << 20,
            private_pool: 64 << 20,
            pending_bytes: 1 << 30,
            pending_requests: 256,
            hard_bytes: 4 << 30,
            hard_requests: 4096,
            addresses: ADDRESSES.max(memory.saturating_mul(8)),
            mapped: memory / 2,
            clients: WORKER_CLIENTS,
            threads: 1,
            mapping: Mapping::Cached,
            untrusted: false,
            abort_timeout: Duration::from_millis(100),
            spin: Duration::from_micros(50),
            rings: Layout { lines: 1024, area: 256 << 10 },
        }
    }
}
