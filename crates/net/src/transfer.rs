//! Transfers: inputs and outputs that are longer than packets, as the thesis's clients made them of a driver.
//!
//! Why: what an adapter can do for data that comes in several packets is best seen without a transport protocol in the way.
//! How: the bytes that are sent to a port are one stream, cut into packets of `L` bytes with short headers; a request for input is over
//! when it is filled. Nothing is sent again: a client whose input misses a packet gives it up by its timeout.
//! Invariants: bytes of a stream go to its requests in the order in which they were sent, whatever the order of the packets.
//! Limits: [`Limits`] for each port.
//! Source: thesis §6.1 to §6.6, §8.5.

mod header;
mod sending;
mod stream;

use std::collections::HashMap;
use std::sync::Arc;

use genie_io::{
    Client, ClientId, Error, Incoming, Interface, RequestId, Server, ServerError, ServerHandle, Service,
    ServiceId,
};
use genie_passing::Preferred;
use genie_sys::lock::Mutex;
use smallvec::SmallVec;

use crate::Frame;
use crate::adapter::{Adapter, Counters, Received};
use crate::assembly::Finished;
use crate::wire::Station;

pub use header::{HEADER, layout};
use sending::Sending;
pub use sending::Shape;
use stream::{Posting, Stream};

/// Sends output buffer 0 to the port in the argument: see [`port`].
pub const SEND: ServiceId = ServiceId(0);
/// Fills input buffer 0 with what is sent to the port in the argument.
pub const RECEIVE: ServiceId = ServiceId(1);

static SERVICES: [Service; 2] = [Service::new("send", false, false), Service::new("receive", false, true)];

/// The argument that names a port.
pub fn port(port: u16) -> [u8; 2] {
    port.to_le_bytes()
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
}

impl Default for Limits {
    fn default() -> Self {
        Self { waiting: 64, queued: 1 << 20, early: 64 }
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
}

struct State {
    adapter: Box<dyn Adapter>,
    streams: HashMap<u16, Stream>,
    postings: Posting,
    /// What the adapter has stored, and the host has not processed.
    unprocessed: Vec<Received>,
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

impl Transfers {
    /// A server that sends by requests of `genie` to `wire`, and receives by `adapter`.
    pub fn new(
        genie: Interface,
        wire: ServerHandle,
        adapter: Box<dyn Adapter>,
        receiving: Receiving,
    ) -> Self {
        let state = State {
            adapter,
            streams: HashMap::new(),
            postings: Posting::default(),
            unprocessed: Vec::new(),
            totals: Totals::default(),
        };
        Self(Arc::new(Inner { sending: Sending::new(genie, wire), state: Mutex::new(state), receiving }))
    }

    /// Cuts what is sent from now on so.
    pub fn set_shape(&self, shape: Shape) {
        self.0.sending.set_shape(shape);
    }

    /// What it has done so far.
    pub fn totals(&self) -> Totals {
        let state = self.0.state.lock();
        Totals { adapter: state.adapter.counters(), ..state.totals }
    }

    /// Has the host process what the adapter has stored.
    pub fn interrupt(&self) {
        let mut state = self.0.state.lock();
        let finished = state.process(&self.0.receiving);
        drop(state);
        reply(finished);
    }

    fn receive(&self, request: Incoming) {
        let Some(port) = request.argument().try_into().ok().map(u16::from_le_bytes) else {
            return request.reply(Err(ServerError::new("a port is named by 2 bytes")));
        };
        let finished = self.0.state.lock().ask(port, request, &self.0.receiving);
        reply(finished);
    }

    fn remove(&self, is_it: impl Fn(&Incoming) -> bool) {
        let mut gone = Vec::new();
        let mut state = self.0.state.lock();
        // What is stored in the memory of the requests that go may be others'.
        let finished = state.process(&self.0.receiving);
        let State { adapter, streams, .. } = &mut *state;
        for stream in streams.values_mut() {
            gone.extend(stream.remove(&mut **adapter, &is_it));
        }
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
        let stream = self.streams.entry(port).or_insert_with(|| Stream::open(port, &mut *self.adapter));
        if stream.waiting() >= receiving.limits.waiting {
            let result = Err(Error::Server(ServerError::new(format!(
                "{} requests wait at port {port} already",
                stream.waiting()
            ))));
            return vec![Finished { request, result, copied: 0 }];
        }
        let finished = stream.ask(request, &mut *self.adapter, &mut self.postings, receiving);
        self.count(finished)
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
            let is_taken = stream.come(packet.at, packet.data(received), &receiving.limits);
            self.totals.dropped += u64::from(!is_taken);
            stream.changes |= stream.track(len);
            if !ports.contains(&port) {
                ports.push(port);
            }
        }
        for port in ports {
            let Some(stream) = self.streams.get_mut(&port) else { continue };
            let filled = stream.finish(&mut *self.adapter);
            if std::mem::take(&mut stream.changes) && receiving.tracks {
                stream.post_anew(&mut *self.adapter, &mut self.postings, receiving);
            }
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

    fn abort(&self, request: RequestId) {
        self.remove(|waiting| waiting.id() == request);
    }

    fn departed(&self, client: ClientId) {
        self.remove(|waiting| waiting.client().id == client);
    }

    fn preferred(&self, _client: &Client, service: ServiceId, argument: &[u8]) -> Option<Preferred> {
        let port = argument.try_into().ok().map(u16::from_le_bytes).filter(|_| service == RECEIVE)?;
        let state = self.0.state.lock();
        let expected = state
            .streams
            .get(&port)
            .map_or_else(|| self.0.receiving.expected.clone(), |stream| stream.expected(&self.0.receiving));
        let of = |list: &[usize]| list.first().copied().unwrap_or_default();
        Some(state.adapter.preferred(of(&expected.headers), of(&expected.data)))
    }
}
