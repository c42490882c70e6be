//! Receiving: from a frame to the request of the client whose datagram it is.

use std::net::SocketAddr;
use std::ops::Range;

use genie_io::{Error, Incoming, ServerError};
use genie_memory::Data;
use genie_sys::Errno;
use smallvec::{SmallVec, smallvec};

use super::argument::{APART, ARRIVED, Arrived, Work, refusal};
use super::counters::Counters;
use super::options::Verifying;
use super::ports::{Datagram, State};
use crate::adapter::{Parsed, Piece, Port, PostingId, Program, Received, Support};
use crate::assembly::{Assembly, Laid, Source, Sources, Summed, with_bytes, within};
use crate::checksum::{Checksum, Sum, ones_complement, plus};
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
        let mut assembly = Assembly::new(request);
        while let Some(datagram) = self.dequeue(number) {
            let over = self.pass(assembly, number, datagram);
            if over.is_some() {
                return over;
            }
            assembly = self.next_waiting(number, |_| true)?;
        }
        self.wait(assembly, number)
    }

    /// Has a request wait for a datagram, where the adapter can store it if it keeps lists for ports.
    fn wait(&mut self, mut assembly: Assembly, number: u16) -> Option<Over> {
        let most = self.options.limits.waiting;
        let (bound, support) = (self.ports.get_mut(&number)?, self.adapter.support());
        let usage = self.clients.get_mut(&bound.client)?;
        if usage.waiting >= most {
            let error = refusal(
                Errno::NOBUFS,
                format!("a client may have {most} requests wait for datagrams (`Limits::waiting`)"),
            );
            return Over::refused(assembly.into_request(), error);
        }
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
        let stored = match self.options.verifying {
            Verifying::Adapter => self.adapter.arrive_summed(frame),
            Verifying::Separate | Verifying::Integrated => self.adapter.arrive(frame),
        };
        let Ok(received) = stored else { return Overs::new() };
        self.adapter.processed(&received);
        let (port, used) = (received.port.unwrap_or(Port(0)), used(&received));
        let over = match self.examine(received, frame.is_unsummed()) {
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
    fn examine(&mut self, received: Received, is_unsummed: bool) -> Result<(u16, Datagram), Dropped> {
        let head = self.bytes(&received, 0..HEADERS_MOST.min(received.len));
        let Ok((header, data)) = Header::parse(&head, received.len) else {
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
        let has_program = bound.apart.is_some();
        let by_adapter = received.sum.map(|sum| {
            let behind = self.bytes(&received, data.end..received.len);
            sum_between(sum, &head[..data.start], &behind, data.end)
        });
        let (start, taken) = (data.start, received.header.len());
        let sources = sources(received, data);
        let mut work = Work::default();
        // The kernel has summed the pseudo-header alone where the datagram never left its memory.
        let is_partial = is_unsummed && header.checksum == header.partial_sum();
        self.count(number, |counters| counters.unsummed += u64::from(is_partial));
        let mut unverified = Some(header).filter(|header| header.checksum != 0 && !is_partial);
        // What a program looks at is verified first.
        let is_moved = self.options.verifying == Verifying::Integrated && !has_program;
        if !is_moved && let Some(header) = unverified.take() {
            let is_intact = match by_adapter {
                Some(sum) => {
                    work.by_adapter = header.len.into();
                    self.count(number, |counters| counters.by_adapter += u64::from(header.len));
                    header.is_intact(sum)
                }
                None => self.reads_intact(number, &header, &sources, &mut work),
            };
            if !is_intact {
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
        Ok((number, Datagram { arrived: Arrived { from, len, work, header, trailer }, sources, unverified }))
    }

    /// Bytes of a packet, from where the adapter has stored them.
    fn bytes(&self, received: &Received, range: Range<usize>) -> SmallVec<[u8; HEADERS_MOST]> {
        let (mut bytes, mut at) = (smallvec![0; range.len()], 0);
        let mut see = |len: usize, data: Data<'_>| {
            let part = range.start.clamp(at, at + len)..range.end.clamp(at, at + len);
            // In a segment that the adapter has no more there are none.
            if !part.is_empty() && data.len() == len {
                let into = part.start - range.start..part.end - range.start;
                data.part(part.start - at..part.end - at).copy_to(&mut bytes[into]);
            }
            at += len;
        };
        see(received.header.len(), received.header[..].into());
        for piece in &received.pieces {
            let port = received.port.unwrap_or(Port(0));
            with_bytes(piece, &*self.adapter, port, |data| see(piece.len(), data));
        }
        see(received.trailer.len(), received.trailer[..].into());
        bytes
    }

    /// Reads a datagram to find out whether it is intact.
    fn reads_intact(&mut self, number: u16, header: &Header, sources: &[Source], work: &mut Work) -> bool {
        work.summed = header.len.into();
        let mut all = Sum::new(Checksum::Internet);
        for source in sources {
            source.with(&*self.adapter, Port(number.into()), |data| all.add_data(&data));
        }
        self.count(number, |counters| counters.summed += u64::from(header.len));
        header.is_intact(ones_complement(all.finish()))
    }

    /// Passes a datagram to the request that has waited longest at its port, or has it wait.
    fn deliver(&mut self, number: u16, mut datagram: Datagram) -> Overs {
        let (port, mut overs) = (Port(number.into()), Overs::new());
        let is_aborted = |assembly: &Assembly| assembly.request().is_aborted();
        let aborted: Vec<_> = std::iter::from_fn(|| self.next_waiting(number, is_aborted)).collect();
        match self.next_waiting(number, |_| true) {
            Some(assembly) => overs.extend(self.pass(assembly, number, datagram)),
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

    /// Passes a datagram to a request. If the datagram is damaged, the request is the first one at its port that waits.
    fn pass(&mut self, mut assembly: Assembly, number: u16, datagram: Datagram) -> Option<Over> {
        let Datagram { mut arrived, sources, unverified } = datagram;
        let Some(filled) = self.fill(&mut assembly, number, &mut arrived, (sources, unverified)) else {
            self.count(number, |counters| counters.damaged += 1);
            assembly.forget();
            let bound = self.ports.get_mut(&number)?;
            self.clients.get_mut(&bound.client)?.waiting += 1;
            bound.waiting.push_front(assembly);
            return None;
        };
        let finished = assembly.end(&mut *self.adapter, Port(number.into()), filled);
        let (mut request, copied) = (finished.request, finished.copied as u64);
        arrived.work.copied = finished.copied;
        let result = finished.result.and_then(|()| request.set_argument(&arrived.to_reply()));
        let is_given = result.is_ok();
        self.count(number, |counters: &mut Counters| {
            counters.received += u64::from(is_given);
            counters.full += u64::from(!is_given);
            counters.copied += copied;
        });
        Some(Over { request, result: Some(result.map_err(ServerError::from)) })
    }

    /// Fills a request's input with a datagram; none if the datagram is damaged.
    fn fill(
        &mut self,
        assembly: &mut Assembly,
        number: u16,
        arrived: &mut Arrived,
        (sources, unverified): (Sources, Option<Header>),
    ) -> Option<Result<usize, Error>> {
        // The sum of what is moved, if that is all, is had without reading it.
        let moves = arrived.len <= assembly.left() && assembly.moves(&sources);
        let mut summed = unverified.filter(|_| moves).map(|_| Summed::default());
        if let Some(header) = unverified.filter(|_| !moves)
            && !self.reads_intact(number, &header, &sources, &mut arrived.work)
        {
            return None;
        }
        // What there is no room for is dropped.
        let _ = sources.into_iter().find_map(|source| assembly.take(source));
        let filled = assembly.fill(&mut *self.adapter, Port(number.into()), summed.as_mut());
        if let (Some(header), Some(Summed { sum, read }), Ok(copied)) = (unverified, summed, &filled) {
            let is_intact = header.is_intact(ones_complement(sum.finish()));
            (arrived.work.summed, arrived.work.integrated) = (read, arrived.len - read);
            self.count(number, |counters| {
                counters.summed += read as u64;
                counters.integrated += (arrived.len - read) as u64;
                counters.copied += if is_intact { 0 } else { *copied as u64 };
            });
            return is_intact.then_some(filled);
        }
        Some(filled)
    }
}

/// The ones' complement sum of what lies between `head` and `behind`, which begins at byte `end`, where that of all is `sum`.
fn sum_between(sum: u16, head: &[u8], behind: &[u8], end: usize) -> u16 {
    let [head, behind] = [head, behind].map(|bytes| ones_complement(Checksum::Internet.of(bytes)));
    // Headers have an even length: the words of what is behind them are those of the whole.
    let behind = if end.is_multiple_of(2) { behind } else { behind.swap_bytes() };
    plus(plus(sum, !head), !behind)
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
fn sources(received: Received, data: Range<usize>) -> Sources {
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
