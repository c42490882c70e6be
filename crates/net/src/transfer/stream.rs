//! The stream of one port: what waits for it, and what has come of it.

use std::collections::{BTreeMap, VecDeque};

use genie_io::{Error, Incoming, ServerError};
use smallvec::{SmallVec, smallvec};

use super::header::HEADER;
use super::sending::{Packet, packets};
use super::{Limits, Receiving, Shape};
use crate::adapter::Tracking;
use crate::adapter::{Adapter, Mode, Piece, Port, PostingId, Support};
use crate::assembly::{Assembly, Finished, Laid, Source};

/// Names for postings.
#[derive(Debug, Default)]
pub(super) struct Posting(u64);

impl Posting {
    fn next(&mut self) -> PostingId {
        self.0 += 1;
        PostingId(self.0)
    }
}

#[derive(Debug)]
pub(super) struct Stream {
    port: Port,
    waiting: VecDeque<Assembly>,
    /// Requests that are filled; what other packets have in their memory was not looked at yet.
    filled: VecDeque<Assembly>,
    /// What came before it was asked for.
    queued: VecDeque<Source>,
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

type Pieces = SmallVec<[Piece; 4]>;

impl Stream {
    pub(super) fn open(port: u16, adapter: &mut dyn Adapter) -> Self {
        let port = Port(u64::from(port));
        adapter.set_mode(port, Mode::MultiplePacket);
        Self {
            port,
            waiting: VecDeque::new(),
            filled: VecDeque::new(),
            queued: VecDeque::new(),
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

    /// Notes a packet's length; returns whether that changes what is expected.
    pub(super) fn track(&mut self, len: usize) -> bool {
        self.tracking.note(len)
    }

    /// Takes a request; returns it if it is filled.
    pub(super) fn ask(
        &mut self,
        request: Incoming,
        adapter: &mut dyn Adapter,
        postings: &mut Posting,
        receiving: &Receiving,
    ) -> Vec<Finished> {
        if std::mem::take(&mut self.has_lost) {
            self.queued.clear();
            self.skips = true;
            let result = Err(Error::Server(ServerError::new("bytes of the stream were lost")));
            return vec![Finished { request, result, copied: 0 }];
        }
        let mut asked = Assembly::new(request);
        while asked.left() > 0
            && let Some(source) = self.queued.pop_front()
        {
            if let Some(rest) = asked.take(source) {
                self.queued.push_front(rest);
            }
        }
        if asked.left() == 0 {
            return vec![asked.finish(adapter, self.port)];
        }
        // A request that has got something already goes on as it began; and what comes goes to the requests in their order.
        let is_first =
            asked.received() == 0 && self.waiting.iter().all(|waiting| waiting.posting().is_some());
        if is_first && matches!(adapter.support(), Support::EarlyDemultiplexing | Support::SnapOff) {
            let len = asked.left();
            let layout = self.layout(len, adapter, receiving);
            // Without memory for that, what comes is stored in pooled buffers.
            let _ = asked.post(adapter, self.port, postings.next(), layout);
        }
        self.waiting.push_back(asked);
        Vec::new()
    }

    /// How what comes is expected to be cut.
    pub(super) fn expected(&self, receiving: &Receiving) -> Shape {
        match self.tracking.longest().checked_sub(HEADER) {
            Some(data) if receiving.tracks && data > 0 => Shape::of(data),
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
        postings: &mut Posting,
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
    pub(super) fn come(&mut self, at: u32, pieces: Pieces, limits: &Limits) -> bool {
        let mut ahead = at.wrapping_sub(self.expected);
        if self.has_lost || ahead > u32::MAX / 2 {
            return false;
        }
        if std::mem::take(&mut self.skips) {
            (self.expected, ahead) = (at, 0);
        }
        if ahead > 0 {
            let is_kept = self.early.len() < limits.early && !self.early.contains_key(&at);
            if is_kept {
                self.early.insert(at, pieces.into_iter().map(Source::Piece).collect());
            }
            return is_kept;
        }
        let mut next = Some(pieces.into_iter().map(Source::Piece).collect());
        while let Some(sources) = next {
            if self.overflows(&sources, limits) {
                self.has_lost = true;
                self.early.clear();
                return false;
            }
            self.append(sources);
            next = self.early.remove(&self.expected);
        }
        true
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

    /// Takes out the requests for which `is_it` is true.
    pub(super) fn remove(
        &mut self,
        adapter: &mut dyn Adapter,
        is_it: impl Fn(&Incoming) -> bool,
    ) -> Vec<Incoming> {
        let mut gone = Vec::new();
        for mut assembly in std::mem::take(&mut self.waiting) {
            if !is_it(assembly.request()) {
                self.waiting.push_back(assembly);
                continue;
            }
            // What is missing may be lost: the others go on behind it.
            self.skips |= gone.is_empty() && self.waiting.is_empty();
            if let Some(id) = assembly.posting() {
                self.leave(adapter, id);
            }
            assembly.withdraw(adapter, self.port);
            gone.push(assembly.into_request());
        }
        if self.skips {
            self.early.clear();
        }
        gone
    }
}
