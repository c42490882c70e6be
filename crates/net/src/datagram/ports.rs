//! The table of ports: whose they are, what waits there, and what its clients have.
//!
//! Invariants: an input is with the adapter only while its request is in [`Bound::waiting`]; there is nothing in [`Bound::queue`] then.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use genie_io::{ClientId, Incoming, RequestId, ServerError};
use genie_passing::Preferred;
use genie_sys::Errno;

use super::argument::{APART, Arrived, Open, refusal};
use super::counters::Counters;
use super::options::Options;
use crate::Adapter;
use crate::adapter::{Port, Program, Support};
use crate::assembly::{Assembly, Sources};
use crate::packet::Header;

/// The ports that are given to those who want any.
const EPHEMERAL: std::ops::RangeInclusive<u16> = 49_152..=u16::MAX;

/// What the server's lock guards.
pub(super) struct State {
    pub(super) adapter: Box<dyn Adapter>,
    pub(super) options: Options,
    pub(super) ports: BTreeMap<u16, Bound>,
    pub(super) clients: BTreeMap<ClientId, Usage>,
    /// What the datagrams in all queues occupy.
    pub(super) held: Held,
    pub(super) counters: Counters,
    /// How many postings there were.
    pub(super) postings: u64,
    /// Which port was given last to one who wanted any.
    ephemeral: u16,
}

/// A port that is open.
pub(super) struct Bound {
    pub(super) client: ClientId,
    pub(super) peer: Option<SocketAddr>,
    /// Requests that wait for datagrams.
    pub(super) waiting: VecDeque<Assembly>,
    /// Datagrams that wait for requests.
    pub(super) queue: VecDeque<Datagram>,
    queued_bytes: usize,
    most: usize,
    most_bytes: usize,
    /// How many bytes of headers the adapter is expected to store in front of the data.
    pub(super) headers: usize,
    /// What takes the application's header and trailer off.
    pub(super) apart: Option<Program>,
    /// How much room the argument of a reply needs that has a datagram.
    pub(super) room: usize,
    pub(super) counters: Counters,
}

/// A datagram that has arrived.
pub(super) struct Datagram {
    pub(super) arrived: Arrived,
    pub(super) sources: Sources,
    /// What its headers say, if its checksum is still to be verified.
    pub(super) unverified: Option<Header>,
}

/// What a client has.
#[derive(Default)]
pub(super) struct Usage {
    ports: usize,
    pub(super) waiting: usize,
    pub(super) sending: usize,
    held: Held,
}

/// What datagrams in queues occupy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Held {
    buffers: usize,
    bytes: usize,
}

impl State {
    pub(super) fn new(adapter: Box<dyn Adapter>, mut options: Options) -> Self {
        let (free, limits) = (adapter.free(), &mut options.limits);
        limits.held = limits.held.min(free.segments.saturating_sub(1));
        limits.held_bytes = limits.held_bytes.min(free.bytes.saturating_sub(1));
        Self {
            adapter,
            options,
            ports: BTreeMap::new(),
            clients: BTreeMap::new(),
            held: Held::default(),
            counters: Counters::default(),
            postings: 0,
            ephemeral: u16::MAX,
        }
    }

    /// Opens a port; returns its number.
    pub(super) fn open(&mut self, client: ClientId, open: &Open) -> Result<u16, ServerError> {
        let (limits, usage) = (self.options.limits, self.clients.entry(client).or_default());
        if usage.ports >= limits.ports {
            return Err(refusal(
                Errno::MFILE,
                format!("a client may have {} ports (`Limits::ports`)", limits.ports),
            ));
        }
        let number = match open.port {
            0 => self.any(),
            number => Some(number).filter(|number| !self.ports.contains_key(number)),
        };
        let taken = || refusal(Errno::ADDRINUSE, format!("port {} is taken (0 is any port)", open.port));
        let number = number.ok_or_else(taken)?;
        let bound = Bound {
            client,
            peer: open.peer,
            waiting: VecDeque::new(),
            queue: VecDeque::new(),
            queued_bytes: 0,
            most: limits.queued.min(open.queued as usize),
            most_bytes: limits.queued_bytes.min(open.queued_bytes as usize),
            headers: self.expected(open),
            apart: open.apart.clone(),
            room: open.room(),
            counters: Counters::default(),
        };
        self.adapter.set_program(Port(number.into()), open.apart.clone());
        self.ports.insert(number, bound);
        self.clients.entry(client).or_default().ports += 1;
        Ok(number)
    }

    /// A port that nobody has.
    fn any(&mut self) -> Option<u16> {
        let after = |port: u16| if port == *EPHEMERAL.end() { *EPHEMERAL.start() } else { port + 1 };
        for _ in EPHEMERAL {
            self.ephemeral = after(self.ephemeral);
            if !self.ports.contains_key(&self.ephemeral) {
                return Some(self.ephemeral);
            }
        }
        None
    }

    /// How many bytes of headers the adapter stores in front of a datagram's data, before one came.
    fn expected(&self, open: &Open) -> usize {
        let own = open.apart.as_ref().map_or(0, |program| program.longest().0);
        let own = usize::try_from(own).ok().filter(|own| *own <= APART).unwrap_or(0);
        match open.peer {
            _ if self.adapter.support() == Support::Splitting => own,
            _ if self.adapter.takes_headers() => 0,
            Some(SocketAddr::V6(_)) => 62 + own,
            _ => 42 + own,
        }
    }

    /// How a client is to lay out what receives the longest datagrams of a port.
    pub(super) fn preferred(&mut self, client: ClientId, number: u16) -> Option<Preferred> {
        let bound = self.own(client, number).ok()?;
        let (peer, offset) = (bound.peer, bound.headers);
        let headers = if peer.is_some_and(|peer| peer.is_ipv6()) { 48 } else { 28 };
        let len = self.options.mtu.saturating_sub(headers);
        let preferred = self.adapter.preferred(offset, len);
        // The application's header is data to an adapter that splits every frame at the same place.
        let is_split = self.adapter.support() == Support::Splitting;
        Some(if is_split { Preferred { offset, ..preferred } } else { preferred })
    }

    /// A port of this client's.
    pub(super) fn own(&mut self, client: ClientId, number: u16) -> Result<&mut Bound, ServerError> {
        let own = self.ports.get_mut(&number).filter(|bound| bound.client == client);
        own.ok_or_else(|| refusal(Errno::BADF, format!("port {number} was not opened by this client")))
    }

    /// Closes a port; returns the requests that waited there.
    pub(super) fn close(&mut self, client: ClientId, number: u16) -> Result<Vec<Incoming>, ServerError> {
        self.own(client, number)?;
        let requests = self.vacate(number);
        if let Some(usage) = self.clients.get_mut(&client) {
            usage.ports -= 1;
        }
        Ok(requests)
    }

    /// Takes a port away, and what waits there back.
    fn vacate(&mut self, number: u16) -> Vec<Incoming> {
        while let Some(datagram) = self.dequeue(number) {
            drop(datagram);
            self.counters.unclaimed += 1;
        }
        self.adapter.set_program(Port(number.into()), None);
        let Some(mut bound) = self.ports.remove(&number) else { return Vec::new() };
        if let Some(usage) = self.clients.get_mut(&bound.client) {
            usage.waiting -= bound.waiting.len();
        }
        let withdrawn = |mut assembly: Assembly| {
            assembly.withdraw(&mut *self.adapter, Port(number.into()));
            assembly.into_request()
        };
        bound.waiting.drain(..).map(withdrawn).collect()
    }

    /// Takes the request that has waited longest at a port, if it is such a one.
    pub(super) fn next_waiting(
        &mut self,
        number: u16,
        is_such: impl Fn(&Assembly) -> bool,
    ) -> Option<Assembly> {
        let bound = self.ports.get_mut(&number)?;
        let next = bound.waiting.front().is_some_and(is_such).then(|| bound.waiting.pop_front())??;
        if let Some(usage) = self.clients.get_mut(&bound.client) {
            usage.waiting -= 1;
        }
        Some(next)
    }

    /// Takes a request back that waits.
    pub(super) fn abort(&mut self, request: RequestId) -> Option<Incoming> {
        let waits = |assembly: &Assembly| assembly.request().id() == request;
        for (number, bound) in &mut self.ports {
            if let Some(at) = bound.waiting.iter().position(waits) {
                let mut assembly = bound.waiting.remove(at)?;
                assembly.withdraw(&mut *self.adapter, Port((*number).into()));
                if let Some(usage) = self.clients.get_mut(&bound.client) {
                    usage.waiting -= 1;
                }
                return Some(assembly.into_request());
            }
        }
        None
    }

    /// Takes all back that a client has; returns which ports that were, and its requests.
    pub(super) fn depart(&mut self, client: ClientId) -> (Vec<u16>, Vec<Incoming>) {
        let own = self.ports.iter().filter(|(_, bound)| bound.client == client);
        let own: Vec<_> = own.map(|(number, _)| *number).collect();
        let requests = own.iter().flat_map(|number| self.vacate(*number)).collect();
        self.clients.remove(&client);
        (own, requests)
    }

    /// Takes all requests back that wait for datagrams.
    pub(super) fn end_waiting(&mut self) -> Vec<Incoming> {
        let ports: Vec<_> = self.ports.keys().copied().collect();
        let mut ended = Vec::new();
        for number in ports {
            while let Some(mut assembly) = self.next_waiting(number, |_| true) {
                assembly.withdraw(&mut *self.adapter, Port(number.into()));
                ended.push(assembly.into_request());
            }
        }
        ended
    }

    /// Adds a datagram to those that wait at a port, if there is room.
    pub(super) fn enqueue(&mut self, number: u16, datagram: Datagram) -> bool {
        let Some(bound) = self.ports.get_mut(&number) else { return false };
        let Some(usage) = self.clients.get_mut(&bound.client) else { return false };
        let (limits, added) = (&self.options.limits, datagram.held());
        let has_room = bound.queue.len() < bound.most
            && bound.queued_bytes + added.bytes <= bound.most_bytes
            && usage.held.buffers + added.buffers <= limits.held.saturating_sub(self.held.buffers)
            && usage.held.bytes + added.bytes <= limits.held_bytes.saturating_sub(self.held.bytes);
        if has_room {
            bound.queued_bytes += added.bytes;
            usage.held.add(added);
            self.held.add(added);
            bound.queue.push_back(datagram);
        }
        has_room
    }

    /// Takes the next datagram that waits at a port.
    pub(super) fn dequeue(&mut self, number: u16) -> Option<Datagram> {
        let bound = self.ports.get_mut(&number)?;
        let datagram = bound.queue.pop_front()?;
        let taken = datagram.held();
        bound.queued_bytes -= taken.bytes;
        self.held.subtract(taken);
        if let Some(usage) = self.clients.get_mut(&bound.client) {
            usage.held.subtract(taken);
        }
        Some(datagram)
    }

    /// Counts what has become of a datagram of a port.
    pub(super) fn count(&mut self, number: u16, count: impl Fn(&mut Counters)) {
        count(&mut self.counters);
        if let Some(bound) = self.ports.get_mut(&number) {
            count(&mut bound.counters);
        }
    }
}

impl Datagram {
    fn held(&self) -> Held {
        let Arrived { len, header, trailer, .. } = &self.arrived;
        Held { buffers: self.sources.len(), bytes: len + header.len() + trailer.len() }
    }
}

impl Held {
    fn add(&mut self, more: Self) {
        (self.buffers, self.bytes) = (self.buffers + more.buffers, self.bytes + more.bytes);
    }

    fn subtract(&mut self, less: Self) {
        (self.buffers, self.bytes) = (self.buffers - less.buffers, self.bytes - less.bytes);
    }
}
