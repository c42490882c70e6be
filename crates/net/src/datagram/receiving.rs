//! Receiving: from a frame to the request of the client whose datagram it is.

use std::net::SocketAddr;

use genie_io::{Incoming, ServerError};
use genie_sys::Errno;
use smallvec::{SmallVec, smallvec};

use super::argument::{APART, ARRIVED, Arrived, refusal};
use super::counters::Counters;
use super::ports::{Datagram, State};
use crate::adapter::{Parsed, Piece, Port, PostingId, Program, Received, Support};
use crate::assembly::{Assembly, Laid, Source, Sources, with_bytes, within};
use crate::checksum::{Checksum, Sum};
use crate::packet::{HEADERS_MOST, Header, Hosts};
use crate::{Adapter, Frame};

/// How many bytes an Ethernet adds at most to a short datagram.
const PADDING: usize = 18;

/// A request that is over, to be replied to without the lock.
pub(super) struct Over {
    request: Incoming,
    /// None if it was aborted, and is to be let go.
    result: Option<Result<(), ServerError>>,
}

/// The requests that a frame ends: one, and those before it that were aborted just now.
pub(super) type Overs = SmallVec<[Over; 1]>;

/// A datagram without the application's header and trailer, and these.
struct Apart {
    header: SmallVec<[u8; 64]>,
    sources: Sources,
    trailer: SmallVec<[u8; 16]>,
}

/// A packet that is dropped: whose, or 0 if it is no port's, and as what it counts.
type Dropped = (u16, fn(&mut Counters));

const UNCLAIMED: Dropped = (0, |counters| counters.unclaimed += 1);

/// Names of requests' buffering.
type Postings = SmallVec<[PostingId; 4]>;

impl Over {
    pub(super) fn reply(self) {
        if let Some(result) = self.result {
            self.request.reply(result);
        }
    }

    fn refused(request: Incoming, error: impl Into<ServerError>) -> Option<Self> {
        Some(Self { request, result: Some(Err(error.into())) })
    }
}

impl State {
    /// Has a request receive the next datagram of a port; none if it waits.
    pub(super) fn receive(&mut self, mut request: Incoming, number: u16) -> Option<Over> {
        let client = request.client().id;
        // A datagram whose sender and header do not reach the client would be lost.
        let checked = self
            .own(client, number)
            .and_then(|bound| Ok(request.set_argument(&[0; ARRIVED + APART][..bound.room])?));
        if let Err(error) = checked {
            return Over::refused(request, error);
        }
        match self.dequeue(number) {
            Some(datagram) => Some(self.pass(Assembly::new(request), number, datagram)),
            None => self.wait(request, number),
        }
    }

    /// Has a request wait for a datagram, where the adapter can store it if it keeps lists for ports.
    fn wait(&mut self, request: Incoming, number: u16) -> Option<Over> {
        let most = self.options.limits.waiting;
        let (bound, support) = (self.ports.get_mut(&number)?, self.adapter.support());
        let usage = self.clients.get_mut(&bound.client)?;
        if usage.waiting >= most {
            let error =
                refusal(Errno::NOBUFS, format!("a client may have {most} requests wait for datagrams"));
            return Over::refused(request, error);
        }
        let mut assembly = Assembly::new(request);
        if matches!(support, Support::EarlyDemultiplexing | Support::SnapOff) {
            self.postings += 1;
            let (id, room) = (PostingId(self.postings), Laid::Data(assembly.left()));
            let layout = [Laid::Apart(bound.headers), room, Laid::Apart(PADDING)];
            // Where headers are taken off, the buffering is for data alone.
            let layout = layout.into_iter().filter(|laid| bound.headers > 0 || *laid == room);
            if let Err(error) = assembly.post(&mut *self.adapter, Port(number.into()), id, layout) {
                return Over::refused(assembly.into_request(), error);
            }
        }
        usage.waiting += 1;
        bound.waiting.push_back(assembly);
        None
    }

    /// A frame arrives: perhaps it ends a request.
    pub(super) fn arrive(&mut self, frame: &Frame<'_>) -> Overs {
        let Ok(received) = self.adapter.arrive(frame) else { return Overs::new() };
        self.adapter.processed(&received);
        let (port, used) = (received.port.unwrap_or(Port(0)), used(&received));
        let over = match self.examine(received) {
            Ok((number, datagram)) => self.deliver(number, datagram),
            Err((number, counted)) => {
                self.count(number, counted);
                Overs::new()
            }
        };
        // What was stored for nobody, or for another request, may be overwritten: the next packets go there.
        for id in used.into_iter().rev() {
            if let Some(posting) = self.adapter.reclaim(port, id) {
                // Where it cannot be first in the list, its request gets a copy.
                drop(self.adapter.post(port, posting, true));
            }
        }
        over
    }

    /// Finds out whether a packet is a datagram of an open port, and intact.
    fn examine(&mut self, received: Received) -> Result<(u16, Datagram), Dropped> {
        let Ok((header, data)) = Header::parse(&self.head(&received), received.len) else {
            return Err((0, |counters| counters.malformed += 1));
        };
        if !self.options.is_for_us(&header.stations, &header.hosts) {
            return Err((0, |counters| counters.misled += 1));
        }
        let (number, from) = (header.ports.to, sender(&header));
        let bound = self.ports.get_mut(&number).ok_or(UNCLAIMED)?;
        // The sender may have changed the frame between the adapter's look and its copy.
        let port = Port(number.into());
        // No Ethernet fills a frame up further; memory would be held that counts nowhere.
        if received.len > data.end + PADDING {
            return Err((0, |counters| counters.malformed += 1));
        }
        if received.port.is_some_and(|looked| looked != port) && !used(&received).is_empty() {
            return Err((0, |counters| counters.malformed += 1));
        }
        if bound.peer.is_some_and(|peer| peer != from) {
            return Err((number, |counters| counters.strange += 1));
        }
        let (start, taken) = (data.start, received.header.len());
        let sources = sources(received, data);
        if header.checksum != 0 {
            let sum = self.sum(port, &sources);
            self.count(number, |counters| counters.summed += u64::from(header.len));
            if !header.is_intact(sum) {
                return Err((number, |counters| counters.damaged += 1));
            }
        }
        let bound = self.ports.get_mut(&number).ok_or(UNCLAIMED)?;
        let apart = take_off(bound.apart.as_ref(), &*self.adapter, port, sources, header.len.into());
        let Some(Apart { header, sources, trailer }) = apart else {
            return Err((number, |counters| counters.rejected += 1));
        };
        bound.headers = (start + header.len()).saturating_sub(taken);
        let len = sources.iter().map(Source::len).sum();
        Ok((number, Datagram { arrived: Arrived { from, len, header, trailer }, sources }))
    }

    /// The first bytes of a packet, from where the adapter has stored them.
    fn head(&self, received: &Received) -> SmallVec<[u8; HEADERS_MOST]> {
        let mut head = SmallVec::from_slice(&received.header[..received.header.len().min(HEADERS_MOST)]);
        for piece in &received.pieces {
            let at = head.len();
            head.resize(HEADERS_MOST.min(at + piece.len()), 0);
            let port = received.port.unwrap_or(Port(0));
            with_bytes(piece, &*self.adapter, port, |data| data.copy_to(&mut head[at..]));
        }
        let left = HEADERS_MOST - head.len();
        head.extend_from_slice(&received.trailer[..received.trailer.len().min(left)]);
        head
    }

    /// The ones' complement sum of data.
    fn sum(&self, port: Port, sources: &[Source]) -> u16 {
        let mut all = Sum::new(Checksum::Internet);
        for source in sources {
            source.with(&*self.adapter, port, |data| all.add_data(&data));
        }
        sum(all.finish())
    }

    /// Passes a datagram to the request that has waited longest at its port, or has it wait.
    fn deliver(&mut self, number: u16, mut datagram: Datagram) -> Overs {
        let (port, mut overs) = (Port(number.into()), Overs::new());
        let is_aborted = |assembly: &Assembly| assembly.request().is_aborted();
        let aborted: Vec<_> = std::iter::from_fn(|| self.next_waiting(number, is_aborted)).collect();
        match self.next_waiting(number, |_| true) {
            Some(assembly) => overs.push(self.pass(assembly, number, datagram)),
            None => {
                // What was stored for a request that was aborted just now is to stay when the request goes.
                for id in aborted.iter().filter_map(Assembly::posting) {
                    for source in &mut datagram.sources {
                        source.leave(&*self.adapter, port, id);
                    }
                }
                if !self.enqueue(number, datagram) {
                    self.count(number, |counters| counters.full += 1);
                }
            }
        }
        overs.extend(aborted.into_iter().map(|mut assembly| {
            assembly.withdraw(&mut *self.adapter, port);
            Over { request: assembly.into_request(), result: None }
        }));
        overs
    }

    fn pass(&mut self, mut assembly: Assembly, number: u16, datagram: Datagram) -> Over {
        let Datagram { arrived, sources } = datagram;
        // What there is no room for is dropped.
        let _ = sources.into_iter().find_map(|source| assembly.take(source));
        let finished = assembly.finish(&mut *self.adapter, Port(number.into()));
        let (mut request, copied) = (finished.request, finished.copied as u64);
        let result = finished.result.and_then(|()| request.set_argument(&arrived.to_reply()));
        self.count(number, |counters: &mut Counters| {
            counters.received += 1;
            counters.copied += copied;
        });
        Over { request, result: Some(result.map_err(ServerError::from)) }
    }
}

/// Takes the application's header and trailer off a datagram of `len` bytes, wherever the adapter has stored them; none if the program of its
/// port rejects it.
fn take_off(
    program: Option<&Program>,
    adapter: &dyn Adapter,
    port: Port,
    sources: Sources,
    len: usize,
) -> Option<Apart> {
    let Some(program) = program else {
        return Some(Apart { header: SmallVec::new(), sources, trailer: SmallVec::new() });
    };
    // The header that the client gets is what the program has seen: both are of this copy.
    let mut head = [0; APART];
    let there = read(&sources, adapter, port, &mut head);
    let Parsed { header, trailer, .. } = program.parse(&head[..there], len, port)?;
    if header + trailer > APART {
        return None;
    }
    let (_, rest) = split(sources, header);
    let (sources, last) = split(rest, len - header - trailer);
    let mut trailer = smallvec![0; trailer];
    read(&last, adapter, port, &mut trailer);
    Some(Apart { header: head[..header].into(), sources, trailer })
}

/// The first `middle` bytes, and the rest.
fn split(sources: Sources, middle: usize) -> (Sources, Sources) {
    let mut left = middle;
    let cut = |source: Source| {
        let (here, behind) = source.cut(left);
        left -= here.len();
        (here, behind)
    };
    let (mut first, mut rest): (Sources, Sources) = sources.into_iter().map(cut).unzip();
    [&mut first, &mut rest].into_iter().for_each(|part| part.retain(|source| source.len() > 0));
    (first, rest)
}

/// Copies the first bytes of what has come, as many as there is room for; returns how many.
fn read(sources: &[Source], adapter: &dyn Adapter, port: Port, into: &mut [u8]) -> usize {
    sources.iter().fold(0, |at, source| {
        let end = into.len().min(at + source.len());
        source.with(adapter, port, |data| data.copy_to(&mut into[at..end]));
        end
    })
}

/// The requests whose buffering a packet has used, in their order.
fn used(received: &Received) -> Postings {
    let mut used = Postings::new();
    let stored = received.pieces.iter().filter_map(|piece| match piece {
        Piece::Posted { posting, .. } => Some(*posting),
        _ => None,
    });
    for id in stored.chain(received.ended.iter().copied()) {
        if !used.contains(&id) {
            used.push(id);
        }
    }
    used
}

/// Where the bytes of a packet's data are.
fn sources(received: Received, data: std::ops::Range<usize>) -> Sources {
    let Received { header, pieces, trailer, .. } = received;
    let (front, middle) = (header.len(), pieces.iter().map(Piece::len).sum::<usize>());
    // An adapter that takes headers or trailers off may have taken too much.
    let apart = |bytes: &[u8], at: usize| {
        let end = bytes.len();
        let part =
            bytes[data.start.saturating_sub(at).min(end)..data.end.saturating_sub(at).min(end)].to_vec();
        (!part.is_empty()).then_some(Source::Copied(part))
    };
    let (before, behind) = (apart(&header, 0), apart(&trailer, front + middle));
    let pieces = within(pieces, data.start.saturating_sub(front)..data.end.saturating_sub(front));
    before.into_iter().chain(pieces.into_iter().map(Source::Piece)).chain(behind).collect()
}

fn sender(header: &Header) -> SocketAddr {
    let from = match header.hosts {
        Hosts::V4(hosts) => hosts.from.into(),
        Hosts::V6(hosts) => hosts.from.into(),
    };
    SocketAddr::new(from, header.ports.from)
}

/// The ones' complement sum of data that has this checksum, high byte first.
pub(super) fn sum(checksum: u32) -> u16 {
    (!(checksum as u16)).to_be()
}
