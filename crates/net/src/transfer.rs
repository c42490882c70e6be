//! Transfers: inputs and outputs that are longer than packets, as the thesis's clients made them of a driver.
//!
//! Why: what an adapter can do for data that comes in several packets is best seen without a transport protocol in the way.
//! How: the bytes that are sent to a port are one stream, cut into packets of `L` bytes with short headers; a request for input is over
//! when it is filled. Nothing is sent again: a client whose input misses a packet gives it up by its timeout.
//!
//! A client that asks [in parts](in_parts) is told of what has come, where that was stored in its place, and gives the rest up when it
//! has enough: the request succeeds with that part, and the part is the client's then. Whatever else a request has received goes to the
//! next one when it is given up, though by copying where it lies in memory of that request. The next request has its own buffering posted
//! behind what came before it (snap-off), so as many bytes are copied, and the rest is not. In between, the server may
//! [speculate](Transfers::set_speculation).
//! Invariants: bytes of a stream go to its requests in the order in which they were sent, whatever the order of the packets.
//! A request that is given up while packets wait behind a gap takes what it has received with it: nobody is to have what follows a gap
//! for what follows the bytes in front of it.
//! Limits: [`Limits`] for each port.
//! Source: thesis §6.1 to §6.6, §8.5.

mod header;
mod sending;
mod speculation;
mod stream;

use std::collections::BTreeMap;
use std::sync::Arc;

use genie_io::{
    Client, ClientId, Completer, Error, Incoming, Interface, RequestId, Server, ServerError, ServerHandle,
    Service, ServiceId,
};
use genie_passing::{Overlays, Preferred};
use genie_sys::fork::Maker;
use genie_sys::lock::Mutex;
use smallvec::SmallVec;

use crate::Frame;
use crate::adapter::{Adapter, Counters, Received};
use crate::assembly::Finished;
use crate::wire::Station;

pub use header::{HEADER, layout};
use sending::Sending;
pub use sending::Shape;
use stream::{Postings, Stream};

/// Sends output buffer 0 to the port in the argument: see [`port`].
pub const SEND: ServiceId = ServiceId(0);
/// Fills input buffer 0 with what is sent to the port in the argument.
pub const RECEIVE: ServiceId = ServiceId(1);

static SERVICES: [Service; 2] = [Service::new("send", false, false), Service::new("receive", false, true)];

/// The argument that names a port.
pub fn port(port: u16) -> [u8; 2] {
    port.to_le_bytes()
}

/// The same to [`RECEIVE`] in parts: the client is told of what has come ([`Pending::progress`](genie_io::Pending::progress)), over adapters
/// that store it in its place. What it was told of does not go to another request: a client that waits with a timeout, and not for
/// progress, had better not ask so.
///
/// # Source
/// Thesis §6.5 (partial completion).
pub fn in_parts(port: u16) -> [u8; 3] {
    let [low, high] = port.to_le_bytes();
    [low, high, 1]
}

/// The port that an argument of [`RECEIVE`] names.
fn received_port(argument: &[u8]) -> Option<u16> {
    match *argument {
        [low, high] | [low, high, 1] => Some(u16::from_le_bytes([low, high])),
        _ => None,
    }
}

fn is_in_parts(argument: &[u8]) -> bool {
    argument.len() == 3
}

/// What a server of transfers keeps of its clients at most.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Requests that wait at a port.
    pub waiting: usize,
    /// Bytes that came to a port before they were asked for; what comes beyond that is dropped.
    pub queued: usize,
    /// Packets that came to a port before the ones in front of them.
    pub early: usize,
    /// Parts of packets that came to all ports before they were asked for, or before the ones in front of them. Choose fewer than the
    /// adapter has segments.
    pub held: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { waiting: 64, queued: 1 << 20, early: 64, held: 512 }
    }
}

/// How a server of transfers receives.
#[derive(Debug, Clone)]
pub struct Receiving {
    /// How what comes is expected to be cut into packets.
    pub expected: Shape,
    /// Whether it is expected to come in packets as long as the longest that came, once some came (MTU tracking).
    pub tracks: bool,
    /// How many packets the adapter stores before it tells the host.
    pub coalesced: usize,
    /// What is kept at most.
    pub limits: Limits,
}

/// A server of transfers over one adapter; it is the station of the wire that leads to it. Cloning makes another handle.
#[derive(Clone)]
pub struct Transfers(Arc<Inner>);

struct Inner {
    sending: Sending,
    state: Mutex<State>,
    receiving: Receiving,
    maker: Maker,
}

struct State {
    adapter: Box<dyn Adapter>,
    streams: BTreeMap<u16, Stream>,
    postings: Postings,
    speculates: Option<Overlays>,
    /// What the adapter has stored, and the host has not processed.
    unprocessed: Vec<Received>,
    /// How many parts of packets all streams hold.
    held: usize,
    totals: Totals,
}

/// What a server of transfers has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// What the adapter has done.
    pub adapter: Counters,
    /// Bytes that the server has copied to where they belong.
    pub copied: u64,
    /// Packets that were dropped by the server: for a limit, or since they made no sense or came twice.
    pub dropped: u64,
}

impl Receiving {
    /// Of packets that are expected to come so, each of which the adapter tells the host of.
    pub fn of(expected: Shape) -> Self {
        Self { expected, tracks: false, coalesced: 1, limits: Limits::default() }
    }
}

impl Transfers {
    /// A server that receives by `adapter`, and makes requests to the wire by `genie`. [`Transfers::attach`] says to which.
    pub fn new(genie: Interface, adapter: Box<dyn Adapter>, receiving: Receiving) -> Self {
        let state = State {
            adapter,
            streams: BTreeMap::new(),
            postings: Postings::default(),
            speculates: None,
            unprocessed: Vec::new(),
            held: 0,
            totals: Totals::default(),
        };
        let (sending, state) = (Sending::new(genie), Mutex::new(state));
        Self(Arc::new(Inner { sending, state, receiving, maker: Maker::this_process() }))
    }

    /// Says by which wire it sends from now on. One that leads back to the server keeps it for ever.
    ///
    /// # Errors
    /// The handle is no wire's; or the wire is in another process, and this server was given to clients ([`ServerHandle::new`], a
    /// listener) when it had none there: they would not wait for the wire's replies.
    pub fn attach(&self, wire: ServerHandle) -> Result<(), Error> {
        self.0.sending.uplink.attach(wire)
    }

    /// Cuts what is sent from now on so.
    pub fn set_shape(&self, shape: Shape) {
        self.0.sending.set_shape(shape);
    }

    /// With snap-off, goes on with buffering of its own, of buffers of this pool that begin at a granule, where a client has taken a part and
    /// no request waits; none disables that, which is so at first.
    ///
    /// A request for all of the rest that comes when some of it is there gets these buffers, with nothing copied, if its buffer goes on where
    /// the part ends.
    ///
    /// # Source
    /// Thesis §6.5 (speculation).
    pub fn set_speculation(&self, pool: Option<Overlays>) {
        self.0.state.lock().speculates = pool;
    }

    /// What it has done so far.
    ///
    /// In a child made by fork, it is what it was then; nothing while a thread was inside.
    pub fn totals(&self) -> Totals {
        let state = self.0.state.lock_made_by(self.0.maker);
        state.map_or_else(Totals::default, |state| Totals {
            adapter: state.adapter.counters(),
            ..state.totals
        })
    }

    /// Has the host process what the adapter has stored.
    pub fn interrupt(&self) {
        let mut state = self.0.state.lock();
        let finished = state.process(&self.0.receiving);
        drop(state);
        reply(finished);
    }

    fn receive(&self, request: Incoming) {
        let Some(port) = received_port(request.argument()) else {
            return request.reply(Err(ServerError::new("a port is named by 2 bytes, or by these and 1")));
        };
        let finished = self.0.state.lock().ask(port, request, &self.0.receiving);
        reply(finished);
    }

    fn remove(&self, is_departure: bool, is_it: impl Fn(&Incoming) -> bool) {
        let (mut gone, receiving) = (Vec::new(), &self.0.receiving);
        let mut state = self.0.state.lock();
        // What is stored in the memory of the requests that go may be others'.
        let mut finished = state.process(receiving);
        let State { adapter, streams, postings, totals, speculates, held, .. } = &mut *state;
        let speculates = speculates.as_ref().filter(|_| !is_departure);
        let mut filled = Vec::new();
        for stream in streams.values_mut() {
            let before = stream.held();
            let removed = stream.remove(&mut **adapter, postings, receiving, speculates, &is_it);
            *held = *held + stream.held() - before;
            gone.extend(removed.gone);
            filled.extend(removed.finished);
            totals.copied += removed.copied as u64;
        }
        finished.extend(state.count(filled));
        drop(state);
        drop(gone);
        reply(finished);
    }
}

/// Replies, with no lock held.
fn reply(finished: Vec<Finished>) {
    for Finished { request, result, .. } in finished {
        request.reply(result.map_err(ServerError::from));
    }
}

impl State {
    fn ask(&mut self, port: u16, request: Incoming, receiving: &Receiving) -> Vec<Finished> {
        // What is stored in buffering of the server's own is to be known before that is given to the request.
        let speculates = self.streams.get(&port).is_some_and(Stream::speculates);
        let mut finished = if speculates { self.process(receiving) } else { Vec::new() };
        let stream = self.streams.entry(port).or_insert_with(|| Stream::open(port, &mut *self.adapter));
        if stream.waiting() >= receiving.limits.waiting {
            let result = Err(Error::Server(ServerError::new(format!(
                "{} requests wait at port {port} already",
                stream.waiting()
            ))));
            finished.push(Finished { request, result, copied: 0 });
            return finished;
        }
        let before = stream.held();
        let filled = stream.ask(request, &mut *self.adapter, &mut self.postings, receiving);
        self.held = self.held + stream.held() - before;
        finished.extend(self.count(filled));
        finished
    }

    fn process(&mut self, receiving: &Receiving) -> Vec<Finished> {
        let (mut ports, mut finished) = (SmallVec::<[u16; 4]>::new(), Vec::new());
        for received in std::mem::take(&mut self.unprocessed) {
            self.adapter.processed(&received);
            let Some(packet) = header::read(&received, &*self.adapter) else {
                self.totals.dropped += 1;
                continue;
            };
            let (port, len) = (packet.port, received.len);
            let stream = self.streams.entry(port).or_insert_with(|| Stream::open(port, &mut *self.adapter));
            let (before, room) = (stream.held(), receiving.limits.held.saturating_sub(self.held));
            let is_taken = stream.come(packet.at, packet.data(received), &receiving.limits, room);
            self.held = self.held + stream.held() - before;
            self.totals.dropped += u64::from(!is_taken);
            stream.changes |= stream.track(len);
            if !ports.contains(&port) {
                ports.push(port);
            }
        }
        for port in ports {
            let Some(stream) = self.streams.get_mut(&port) else { continue };
            let before = stream.held();
            let filled = stream.finish(&mut *self.adapter);
            self.held = self.held + stream.held() - before;
            if std::mem::take(&mut stream.changes) && receiving.tracks {
                stream.post_anew(&mut *self.adapter, &mut self.postings, receiving);
            }
            stream.tell();
            finished.extend(filled);
        }
        self.count(finished)
    }

    fn count(&mut self, finished: Vec<Finished>) -> Vec<Finished> {
        self.totals.copied += finished.iter().map(|finished| finished.copied as u64).sum::<u64>();
        finished
    }
}

impl Station for Transfers {
    fn arrive(&self, frame: &Frame<'_>) {
        // In a child made by fork, a thread that is not there may have the lock.
        if !self.0.maker.is_this_process() {
            return;
        }
        let mut state = self.0.state.lock();
        // A frame that is dropped is counted by the adapter.
        let Ok(received) = state.adapter.arrive(frame) else { return };
        state.unprocessed.push(received);
        if state.unprocessed.len() < self.0.receiving.coalesced.max(1) {
            return;
        }
        let finished = state.process(&self.0.receiving);
        drop(state);
        reply(finished);
    }
}

impl Server for Transfers {
    fn name(&self) -> &str {
        "transfers"
    }

    fn services(&self) -> &[Service] {
        &SERVICES
    }

    fn request(&self, request: Incoming) {
        match request.service() {
            SEND => self.0.sending.send(request),
            RECEIVE => self.receive(request),
            ServiceId(other) => {
                request
                    .reply(Err(ServerError::new(format!("the server of transfers has no service {other}"))));
            }
        }
    }

    fn completer(&self) -> Option<&dyn Completer> {
        self.0.sending.uplink.completer()
    }

    fn abort(&self, request: RequestId) {
        self.remove(false, |waiting| waiting.id() == request);
    }

    fn departed(&self, client: ClientId) {
        self.remove(true, |waiting| waiting.client().id == client);
    }

    fn preferred(&self, _client: &Client, service: ServiceId, argument: &[u8]) -> Option<Preferred> {
        let port = received_port(argument).filter(|_| service == RECEIVE)?;
        let state = self.0.state.lock();
        let expected = state
            .streams
            .get(&port)
            .map_or_else(|| self.0.receiving.expected.clone(), |stream| stream.expected(&self.0.receiving));
        let of = |list: &[usize]| list.first().copied().unwrap_or_default();
        Some(state.adapter.preferred(of(&expected.headers), of(&expected.data)))
    }
}
