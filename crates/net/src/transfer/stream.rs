//! The stream of one port: what waits for it, and what has come of it.

use std::collections::{BTreeMap, VecDeque};

use genie_io::{Error, Incoming, ServerError};
use genie_passing::Overlays;
use smallvec::{SmallVec, smallvec};

use super::header::HEADER;
use super::sending::{Packet, packets};
use super::speculation::Speculation;
use super::{Limits, Receiving, Shape, is_in_parts};
use crate::adapter::Tracking;
use crate::adapter::{Adapter, Mode, Piece, Port, PostingId, Support};
use crate::assembly::{Assembly, Finished, Laid, Source};

/// Names for postings.
#[derive(Debug, Default)]
pub(super) struct Postings(u64);

impl Postings {
    fn next(&mut self) -> PostingId {
        self.0 += 1;
        PostingId(self.0)
    }
}

/// Packets with less data are not expected: each would need segments of its own, for data that is copied anyway.
const SHORTEST: usize = 512;

#[derive(Debug)]
pub(super) struct Stream {
    port: Port,
    waiting: VecDeque<Assembly>,
    /// Requests that are filled; what other packets have in their memory was not looked at yet.
    filled: VecDeque<Assembly>,
    /// What came before it was asked for.
    queued: VecDeque<Source>,
    /// Where the adapter stores that: only where no request waits.
    speculation: Option<Speculation>,
    /// Where in the stream the next byte is that is not there yet.
    expected: u32,
    /// Packets that came before those in front of them.
    early: BTreeMap<u32, VecDeque<Source>>,
    /// Whether bytes were dropped that a client expects.
    has_lost: bool,
    /// Whether what is missing in front of the next packet is passed over.
    skips: bool,
    tracking: Tracking,
    /// Whether what is expected has changed.
    pub(super) changes: bool,
}

type Pieces = SmallVec<[Piece; 2]>;

/// What comes of taking requests out.
#[derive(Default)]
pub(super) struct Removed {
    /// The requests, to be dropped with no lock held.
    pub(super) gone: Vec<Incoming>,
    /// Others, which are filled by what these had received.
    pub(super) finished: Vec<Finished>,
    /// How many bytes were copied.
    pub(super) copied: usize,
}

impl Stream {
    pub(super) fn open(port: u16, adapter: &mut dyn Adapter) -> Self {
        let port = Port(u64::from(port));
        adapter.set_mode(port, Mode::MultiplePacket);
        Self {
            port,
            waiting: VecDeque::new(),
            filled: VecDeque::new(),
            queued: VecDeque::new(),
            speculation: None,
            expected: 0,
            early: BTreeMap::new(),
            has_lost: false,
            skips: true,
            tracking: Tracking::default(),
            changes: false,
        }
    }

    /// How many requests wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Whether the adapter stores into buffering of the server's own.
    pub(super) fn speculates(&self) -> bool {
        self.speculation.is_some()
    }

    /// Notes a packet's length; returns whether that changes what is expected.
    pub(super) fn track(&mut self, len: usize) -> bool {
        self.tracking.note(len)
    }

    /// Takes a request; returns it if it is filled.
    pub(super) fn ask(
        &mut self,
        request: Incoming,
        adapter: &mut dyn Adapter,
        postings: &mut Postings,
        receiving: &Receiving,
    ) -> Vec<Finished> {
        if self.has_lost {
            return vec![self.lose(request, adapter)];
        }
        let mut asked = Assembly::new(request);
        if !self.queued.is_empty()
            && !is_in_parts(asked.request().argument())
            && let Some(rest) = self.speculation.take_if(|rest| rest.len == asked.left())
        {
            asked.adopt(rest.id, rest.starts);
        }
        while asked.left() > 0
            && let Some(source) = self.queued.pop_front()
        {
            if let Some(rest) = asked.take(source) {
                self.queued.push_front(rest);
            }
        }
        if asked.left() == 0 {
            if let Some(rest) = &mut self.speculation {
                rest.len = 0;
            }
            // What came behind it out of order may lie in its buffers.
            let copied = asked.posting().map_or(0, |id| self.leave(adapter, id));
            let done = asked.finish(adapter, self.port);
            return vec![Finished { copied: done.copied + copied, ..done }];
        }
        if let Some(rest) = self.speculation.take() {
            self.leave(adapter, rest.id);
            // Without memory for that, what comes is stored in pooled buffers.
            if asked.amend(adapter, self.port, postings.next()).is_err() {
                asked.leave(adapter, self.port, rest.id);
            }
            drop(adapter.reclaim(self.port, rest.id));
        }
        // With snap-off, a request that has got something already has the rest stored behind that; elsewhere it goes on as it began.
        // And what comes goes to the requests in their order.
        let is_next = self.waiting.iter().all(|waiting| waiting.posting().is_some());
        let is_posted = asked.posting().is_none()
            && match adapter.support() {
                Support::SnapOff => is_next,
                Support::EarlyDemultiplexing => is_next && asked.received() == 0,
                _ => false,
            };
        if is_posted {
            let layout = self.layout(asked.left(), adapter, receiving);
            // Without memory for that, what comes is stored in pooled buffers.
            let _ = asked.post(adapter, self.port, postings.next(), layout);
        }
        self.waiting.push_back(asked);
        self.tell();
        Vec::new()
    }

    /// Tells a client that bytes were lost; the stream goes on with the next packet.
    fn lose(&mut self, request: Incoming, adapter: &mut dyn Adapter) -> Finished {
        self.has_lost = false;
        self.queued.clear();
        if let Some(speculation) = self.speculation.take() {
            drop(adapter.reclaim(self.port, speculation.id));
        }
        self.skips = true;
        let result = Err(Error::Server(ServerError::new("bytes of the stream were lost")));
        Finished { request, result, copied: 0 }
    }

    /// How many parts of packets are held that nobody has asked for, or that are too early.
    pub(super) fn held(&self) -> usize {
        self.queued.len() + self.early.values().map(VecDeque::len).sum::<usize>()
    }

    /// How what comes is expected to be cut.
    pub(super) fn expected(&self, receiving: &Receiving) -> Shape {
        match self.tracking.longest().checked_sub(HEADER) {
            Some(data) if receiving.tracks && data >= SHORTEST => Shape::of(data),
            _ => receiving.expected.clone(),
        }
    }

    /// How the next `len` bytes are expected to come.
    fn layout(&self, len: usize, adapter: &dyn Adapter, receiving: &Receiving) -> SmallVec<[Laid; 8]> {
        if adapter.support() == Support::SnapOff {
            return smallvec![Laid::Data(len)];
        }
        let header = |len: usize| if adapter.takes_headers() { 0 } else { len };
        let packets = packets(&self.expected(receiving), len).unwrap_or_default();
        let of = |packet: Packet| {
            [Laid::Apart(header(packet.header)), Laid::Data(packet.data.len()), Laid::Apart(packet.trailer)]
        };
        let has_bytes = |laid: &Laid| !matches!(laid, Laid::Apart(0));
        packets.into_iter().flat_map(of).filter(has_bytes).collect()
    }

    /// Lays out anew what nothing has come of yet.
    pub(super) fn post_anew(
        &mut self,
        adapter: &mut dyn Adapter,
        postings: &mut Postings,
        receiving: &Receiving,
    ) {
        for index in 0..self.waiting.len() {
            let Some(id) = self.waiting[index].posting().filter(|_| self.waiting[index].received() == 0)
            else {
                continue;
            };
            self.leave(adapter, id);
            let layout = self.layout(self.waiting[index].left(), adapter, receiving);
            drop(adapter.reclaim(self.port, id));
            let _ = self.waiting[index].post(adapter, self.port, postings.next(), layout);
        }
    }

    /// Takes a packet's data, which begins `at` bytes into the stream; returns whether it was taken.
    pub(super) fn come(&mut self, at: u32, pieces: Pieces, limits: &Limits, room: usize) -> bool {
        let mut ahead = at.wrapping_sub(self.expected);
        if self.has_lost || ahead > u32::MAX / 2 {
            return false;
        }
        if std::mem::take(&mut self.skips) {
            (self.expected, ahead) = (at, 0);
        }
        if ahead > 0 {
            let is_kept =
                self.early.len() < limits.early && pieces.len() <= room && !self.early.contains_key(&at);
            if is_kept {
                self.early.insert(at, pieces.into_iter().map(Source::Piece).collect());
            }
            return is_kept;
        }
        if self.waiting.is_empty() && pieces.len() > room {
            self.has_lost = true;
            self.early.clear();
            return false;
        }
        self.go_on(Some(pieces.into_iter().map(Source::Piece).collect()), limits)
    }

    /// Takes what is next in the stream, and what has come before it and follows it; returns whether there was room.
    fn go_on(&mut self, mut next: Option<VecDeque<Source>>, limits: &Limits) -> bool {
        while let Some(sources) = next {
            if self.overflows(&sources, limits) {
                self.has_lost = true;
                self.early.clear();
                return false;
            }
            self.append(sources);
            next = self.early.remove(&self.expected);
        }
        // Those that were overtaken would be taken for the stream when its count comes round.
        self.early.retain(|at, _| at.wrapping_sub(self.expected) <= u32::MAX / 2);
        true
    }

    /// Goes on behind what is missing: at the packet that is next among those that have come, or that comes next.
    fn pass_over(&mut self, limits: &Limits) {
        let next = self.early.keys().copied().min_by_key(|at| at.wrapping_sub(self.expected));
        self.skips = next.is_none();
        if let Some(at) = next {
            self.expected = at;
            let sources = self.early.remove(&at);
            self.go_on(sources, limits);
        }
    }

    /// Tells the client whose request is filled in part, if it asks for parts.
    pub(super) fn tell(&mut self) {
        if let Some(first) = self.waiting.front_mut().filter(|first| is_in_parts(first.request().argument()))
        {
            first.tell();
        }
    }

    /// Whether more would be queued than may be.
    fn overflows(&self, sources: &VecDeque<Source>, limits: &Limits) -> bool {
        let of = |sources: &VecDeque<Source>| sources.iter().map(Source::len).sum::<usize>();
        let room: usize = self.waiting.iter().map(Assembly::left).sum();
        (of(sources) + of(&self.queued)).saturating_sub(room) > limits.queued
    }

    /// Gives the next bytes of the stream to the requests that wait.
    fn append(&mut self, mut sources: VecDeque<Source>) {
        while let Some(source) = sources.pop_front() {
            let Some(first) = self.waiting.front_mut() else {
                self.expected = self.expected.wrapping_add(source.len() as u32);
                self.queued.push_back(source);
                continue;
            };
            let before = first.left();
            if let Some(rest) = first.take(source) {
                sources.push_front(rest);
            }
            self.expected = self.expected.wrapping_add((before - first.left()) as u32);
            if first.left() == 0 {
                self.filled.extend(self.waiting.pop_front());
            }
        }
    }

    /// Has the requests passed that are filled.
    pub(super) fn finish(&mut self, adapter: &mut dyn Adapter) -> Vec<Finished> {
        let mut finished = Vec::new();
        while let Some(filled) = self.filled.pop_front() {
            let left = filled.posting().map_or(0, |id| self.leave(adapter, id));
            let done = filled.finish(adapter, self.port);
            finished.push(Finished { copied: done.copied + left, ..done });
        }
        if self.has_lost
            && let Some(mut first) = self.waiting.pop_front()
        {
            if let Some(id) = first.posting() {
                self.leave(adapter, id);
            }
            first.withdraw(adapter, self.port);
            finished.push(self.lose(first.into_request(), adapter));
        }
        finished
    }

    /// Has nothing lie in memory of a request that is about to be over; returns how many bytes were copied for that.
    fn leave(&mut self, adapter: &dyn Adapter, id: PostingId) -> usize {
        let Self { port, waiting, filled, queued, early, .. } = self;
        let sources = queued.iter_mut().chain(early.values_mut().flatten());
        let left: usize = sources.map(|source| source.leave(adapter, *port, id)).sum();
        left + waiting
            .iter_mut()
            .chain(filled)
            .map(|waiting| waiting.leave(adapter, *port, id))
            .sum::<usize>()
    }

    /// Takes out the requests for which `is_it` is true. What they have received, and their clients were not told of, goes to the requests
    /// that are next, unless it lies in front of a gap.
    pub(super) fn remove(
        &mut self,
        adapter: &mut dyn Adapter,
        postings: &mut Postings,
        receiving: &Receiving,
        speculates: Option<&Overlays>,
        is_it: impl Fn(&Incoming) -> bool,
    ) -> Removed {
        let (mut rest, mut removed, mut back, mut misses) =
            (None, Removed::default(), VecDeque::new(), false);
        for mut assembly in std::mem::take(&mut self.waiting) {
            if !is_it(assembly.request()) {
                self.waiting.push_back(assembly);
                continue;
            }
            // The first one may be given up for what it misses.
            misses |= removed.gone.is_empty() && self.waiting.is_empty() && assembly.told() == 0;
            removed.copied += assembly.posting().map_or(0, |id| self.leave(adapter, id));
            let (sources, copied) = assembly.take_back(adapter, self.port);
            back.extend(sources);
            rest = rest.or_else(|| assembly.rest().filter(|_| assembly.told() > 0));
            removed.copied += copied;
            assembly.withdraw(adapter, self.port);
            removed.gone.push(assembly.into_request());
        }
        let len: usize = back.iter().map(Source::len).sum();
        if misses && (len == 0 || !self.early.is_empty()) {
            // Nobody is to take what follows a gap for what follows the bytes in front of it.
            self.pass_over(&receiving.limits);
        } else if len > 0 {
            self.expected = self.expected.wrapping_sub(len as u32);
            self.go_on(Some(back), &receiving.limits);
        }
        if len > 0 || misses {
            removed.copied += self.post_rest(adapter, postings);
        }
        removed.finished = self.finish(adapter);
        self.tell();
        if let (Some((addr, len)), Some(pool)) = (rest, speculates)
            && self.may_speculate(&*adapter)
            && len <= receiving.limits.queued
            && let Some((speculation, posting)) = Speculation::begin(pool, addr, len, postings.next())
        {
            drop(adapter.post(self.port, posting, false));
            self.speculation = Some(speculation);
        }
        removed
    }

    fn may_speculate(&self, adapter: &dyn Adapter) -> bool {
        let is_idle = self.waiting.is_empty() && self.queued.is_empty() && self.early.is_empty();
        is_idle && !self.has_lost && adapter.support() == Support::SnapOff
    }

    /// Has the adapter store the rest of the first request behind what it has got of others' that were given up. Returns how many bytes
    /// were copied for that.
    fn post_rest(&mut self, adapter: &mut dyn Adapter, postings: &mut Postings) -> usize {
        let first = self.waiting.front().filter(|first| first.received() > 0);
        let posted = first.and_then(Assembly::posting).filter(|_| adapter.support() == Support::SnapOff);
        let Some(id) = posted else { return 0 };
        let copied = self.leave(adapter, id);
        drop(adapter.reclaim(self.port, id));
        let first = &mut self.waiting[0];
        let _ = first.post(adapter, self.port, postings.next(), [Laid::Data(first.left())]);
        copied
    }
}
