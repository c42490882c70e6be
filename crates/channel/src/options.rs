//! How a server serves clients in other processes.

use std::time::Duration;

use genie_io::Error;
use genie_memory::Mapping;
use genie_ring::Layout;
use genie_sys::machine;

/// How many clients one thread attends to: the kernel lets a thread sleep on 128 words, and one of them is the worker's own.
pub(super) const WORKER_CLIENTS: usize = 127;

/// Addresses that a client may always take, in bytes: 1 TiB. With as many clients as one thread attends to, that makes all
/// the addresses of a process.
const ADDRESSES: usize = 1 << 40;

/// How a server serves clients in other processes. Defaults are in parentheses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServeOptions {
    /// Bytes lent to each client (16 MiB), at most as many as the machine has; fewer where that would be more than an eighth of
    /// what the process's memory cgroup leaves beyond a quarter of its limit, or beyond 128 MiB if that is less. Data that is not passed in place is put
    /// there. Each client is lent memory of its own. Clients refuse a server whose pool and rings are longer than their
    /// [`ConnectOptions::lent`](super::ConnectOptions::lent).
    pub pool: usize,
    /// Bytes that each client may be lent in all (256 MiB): a client whose pool is exhausted asks for more. Beyond that, and
    /// where there is no memory (huge pages), the client adds memory of its own, which only this server is shown. On an untrusted channel nothing
    /// is lent, and the server uses at most this many bytes of its own for the client, and `kept` besides.
    pub hard_pool: usize,
    /// Bytes of each client's outputs that the server's code may keep at a time (256 MiB), by
    /// [`Incoming::keep`](genie_io::Incoming::keep).
    pub kept: usize,
    /// Bytes that all clients together may be lent, and that may be kept of their outputs (half of the machine's memory). A client for
    /// which too little is left adds memory of its own, as one does that has been lent `hard_pool`. What a client was lent counts
    /// until it leaves; what is kept, until the server drops it.
    pub pools: usize,
    /// Bytes of the server's own (64 MiB), for buffers that it fills before it is asked
    /// ([`Listener::private_pool`](super::Listener::private_pool)).
    pub private_pool: usize,
    /// Bytes that each client may have pending (1 GiB); on an untrusted channel no more than `hard_pool`.
    pub pending_bytes: usize,
    /// Requests that each client may have pending (256); never more than 65,536.
    pub pending_requests: u32,
    /// The most that a client's limit on bytes is raised to if the client asks (4 GiB).
    pub hard_bytes: usize,
    /// The most that a client's limit on requests is raised to if the client asks (4,096); never more than 65,536.
    pub hard_requests: u32,
    /// Bytes of addresses that each client's memory may take here, with the memory of other clients that it forwards (1 TiB, or
    /// eight times the machine's memory if that is more).
    pub addresses: usize,
    /// Bytes of each client's memory that may be mapped here at once (half of the machine's memory, as much as an interface
    /// takes by default). A request for which too little is left is refused; if nothing else is pending, memory
    /// that is kept mapped is unmapped first to make room.
    pub mapped: usize,
    /// How many clients there may be (127). One user's clients may be at most three quarters of the number that other users
    /// leave, unless the server acts as that user. Clients for whose rings the process's memory cgroup has no room are refused, too.
    pub clients: usize,
    /// How many of one client's requests [`Server::request`](genie_io::Server::request) is called with at the same time (1), and
    /// how many threads wait for requests. With 1, each client's requests are served one after the other, in their order; with
    /// more, they may overtake each other, and a client's requests are served at the same time if they take 0.1 ms or more.
    /// Never more than 64. Where the program [drives](super::Serving::drive) the server, its thread takes all requests, in their order.
    pub threads: usize,
    /// How many threads may be in [`Server::request`](genie_io::Server::request) at the same time (16), for all clients together.
    /// When a call takes longer than a few milliseconds, the thread's other clients are given to another thread, which is started
    /// if need be: so one client's long requests do not keep other clients waiting. Before a client gets another thread, each
    /// other client that has asked lately can have one. At least `threads`, and never more than 64; with 1, or where the program
    /// [drives](super::Serving::drive) the server, clients are served in turn, and wait for each other.
    pub most_threads: usize,
    /// When clients' memory is mapped ([`Mapping::Cached`]).
    pub mapping: Mapping,
    /// Maps no memory of its clients (false): once the server's code sees a client's output, nobody can change it any more.
    pub untrusted: bool,
    /// When a client gives a request up, or is gone: how long the servers that this one has asked with parts of the request may take to let
    /// these go (100 ms), before this server is asked. [`Duration::MAX`] is for ever. How long the client waits is its own
    /// [`Limits::abort_timeout`](genie_io::Limits::abort_timeout), which had better be longer.
    pub abort_timeout: Duration,
    /// How long a thread looks for requests before it sleeps (50 µs).
    pub spin: Duration,
    /// How large the rings are (1,024 lines and areas of 256 KiB): as [`Layout`] allows, and at most 64 MiB for each client,
    /// since other clients wait while they are made. A request, and a reply, takes half an area at most.
    pub rings: Layout,
}

/// The most threads that take requests.
pub(super) const MOST_THREADS: usize = 64;

/// The most bytes that the rings of a client may take.
const RINGS_MAX: usize = 64 << 20;

impl ServeOptions {
    /// How many threads wait for requests.
    pub(super) fn attending(&self) -> usize {
        self.threads.clamp(1, MOST_THREADS)
    }

    /// Makes sure that clients can be served with these options.
    pub(super) fn check(&self) -> Result<(), Error> {
        let refused = |option, why| Err(Error::Unservable { part: format!("ServeOptions::{option}"), why });
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
            kept: 256 << 20,
            pools: memory / 2,
            private_pool: 64 << 20,
            pending_bytes: 1 << 30,
            pending_requests: 256,
            hard_bytes: 4 << 30,
            hard_requests: 4096,
            addresses: ADDRESSES.max(memory.saturating_mul(8)),
            mapped: memory / 2,
            clients: WORKER_CLIENTS,
            threads: 1,
            most_threads: 16,
            mapping: Mapping::Cached,
            untrusted: false,
            abort_timeout: Duration::from_millis(100),
            spin: Duration::from_micros(50),
            rings: Layout { lines: 1024, area: 256 << 10 },
        }
    }
}
