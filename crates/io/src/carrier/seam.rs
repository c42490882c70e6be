//! The seam between requests and what carries them: what a carrier does for this crate, at either end.

use std::fmt::Debug;
use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

use genie_memory::{Extent, Extents, Mirror, Space};
use genie_passing::{Parties, Passing, Preferred};
use genie_sys::poll::Poller;
use smallvec::SmallVec;

use crate::carrier::outgoing::Outgoing;
use crate::contract::Contract;
use crate::deadline::Patience;
use crate::exchange::Awaited;
use crate::kept::allowance::Allowance;
use crate::request::id::Slot;
use crate::work::Work;
use crate::{Client, Error, RequestId, Service, ServiceId};

/// What takes requests to one server elsewhere.
///
/// Any thread may call any method at any time, also when the server is gone, and in a child made by fork, where methods do nothing
/// ([`Carrier::is_inherited`] says so). Dropping the carrier lets the server go: no handle of it is left, but requests may be pending
/// whose clients want no reply.
pub trait Carrier: Debug + Send + Sync {
    /// The server's name.
    fn name(&self) -> &str;

    /// The server's services, numbered by their place.
    fn services(&self) -> &[Service];

    /// Asks how this client should lay out input buffers for a service; returns that, and how often the server had said that it
    /// prefers something else when it answered.
    fn preferred(&self, service: ServiceId, argument: &[u8]) -> Result<(Option<Preferred>, u64), Error>;

    /// How often the server has said that it prefers other layouts.
    fn changes(&self) -> u64;

    /// Whether the server shares no memory with this client: it is named places ([`Shown`](crate::carrier::Shown)), and shown nothing.
    fn is_untrusted(&self) -> bool;

    /// Whether the server has gone, as far as is known: requests fail from now on with [`Error::Gone`].
    fn is_gone(&self) -> bool;

    /// Whether the server is gone, and with it whatever was pending.
    fn is_over(&self) -> bool;

    /// Whether this process is a child, made by fork, of the one that has connected.
    fn is_inherited(&self) -> bool;

    /// The client's space, which holds the memory of the requests.
    fn space(&self) -> &Space;

    /// From whose pool the server's system buffers come, and what the server is shown.
    fn parties(&self) -> Parties;

    /// Which short elements the records of a request with so many `buffers`, and of a reply with an argument of up to `room` bytes,
    /// carry.
    fn carries(&self, room: usize, buffers: usize) -> Carries;

    /// Asks the server to let more, or less, be pending; returns the (bytes, requests) that it grants.
    fn adjust(&self, bytes: usize, requests: u32) -> Result<(usize, u32), Error>;

    /// Whether there is room for a request of this many bytes, whose record is at most so long, or none ever, or the server has gone;
    /// takes replies to make room.
    fn has_room(&self, bytes: usize, record: usize) -> bool;

    /// The same; if there is no room, the task is woken when there may be.
    fn poll_room(&self, bytes: usize, record: usize, task: &Waker) -> bool;

    /// Takes a request there. If the server's limits leave no room now, it waits as long as `patience` allows. Returns whether the
    /// request was sent; if not, the request has failed.
    fn request(&self, request: Outgoing, passing: &Passing, patience: Patience) -> bool;

    /// Wakes the server if it sleeps, and was not woken for a request that [is told later](Outgoing::is_told_later). The carrier does so
    /// itself before a thread waits for replies, takes some, or arms a descriptor. A carrier that tells its server of each request at
    /// once has nothing to do here.
    fn tell(&self) {}

    /// Asks the server to let a request go.
    fn abort(&self, request: RequestId);

    /// Waits until the awaited request has its reply, or has been given up; returns false if the deadline came first. Where replies are
    /// taken by threads that wait, this takes them; where a thread of the carrier's ends requests, [`Awaited::sleep`] is all.
    fn wait(&self, awaited: &mut Awaited<'_>, deadline: Option<Instant>) -> bool;

    /// Waits until the server has completed all requests older than `before`; returns false if the deadline came first.
    fn flush(&self, before: RequestId, deadline: Option<Instant>) -> bool;

    /// Takes the replies that are there; returns how many it took.
    fn collect(&self) -> usize;

    /// As [`Carrier::collect`], for a loop that waits for the descriptor, which is not readable afterwards.
    fn collect_watched(&self) -> usize;

    /// Has a thread take the replies for which no other thread waits: a request was abandoned, or anticipated.
    fn tend(self: Arc<Self>);

    /// Wakes threads that wait, so that each looks whether its reply has come; an event loop, too, if `is_over`: if a request was given
    /// up.
    fn wake(&self, is_over: bool);

    /// Makes the descriptors become readable when the next reply comes, or when another thread takes one. Returns false when a reply is
    /// there already, or other threads have taken some since the loop collected.
    fn arm(&self) -> bool;

    /// Adds the descriptors that become readable as [`Carrier::arm`] says.
    fn watch_by(&self, poller: &Poller, token: u64) -> Result<(), Error>;

    /// Takes those descriptors out again.
    fn unwatch_by(&self, poller: &Poller);

    /// Takes out those that would stay readable, once the server is gone.
    fn silence_bell(&self, poller: &Poller);
}

/// What records carry of a request's short elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Carries {
    /// The request's record carries the outputs.
    pub outputs: bool,
    /// The reply's record has room for so many bytes of inputs, each counted as [`carried_room`](crate::carrier::carried_room) says.
    pub inputs: usize,
}

impl Carries {
    /// Neither.
    pub const NOTHING: Self = Self { outputs: false, inputs: 0 };
}

/// A client elsewhere, as the carrier knows it that brings its requests. The client is there as long as this is.
pub trait Caller: Debug + Send + Sync {
    /// The client.
    fn client(&self) -> &Client;

    /// What the server may keep of the client's outputs: the same one each time.
    fn allowance(&self) -> &Arc<Allowance>;

    /// Whether the client no longer waits for the reply.
    fn is_aborted(&self, request: Slot) -> bool;

    /// Sends the reply: called once for each request, in whatever thread the server replies or drops it.
    fn reply(&self, request: Slot, work: Box<Work>, error: Option<Error>);

    /// Sends a reply while the server goes on with the outputs; [`Caller::reply`] follows.
    fn anticipate(&self, request: Slot, work: &Work);

    /// Tells the client that the first `len` bytes of a buffer are final; more each time.
    fn progress(&self, request: Slot, buffer: usize, len: usize);

    /// The memory in which the data is that the client has named ([`Located::name`](crate::carrier::Located::name)): the server forwards it.
    fn locations(&self, named: &[(u16, Extent)]) -> Mirrored;

    /// Notes that the request may originate others; returns whether it is being aborted already.
    fn contracted(&self, request: Slot, contract: &Arc<Contract>) -> bool;
}

/// Memory of a client elsewhere, as the carrier mirrors it, and the data's places there.
pub type Mirrored = SmallVec<[(Mirror, Extents); 1]>;
