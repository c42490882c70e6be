//! Assembly: from the pieces of packets to one client's input.
//!
//! How: an input is *posted* where the adapter keeps lists for ports: its memory is made ready and pinned, and what the adapter stores at
//! its place in there is in place. Whatever lies elsewhere is moved there once the adapter stores nothing into the input any more, since
//! each segment is filled once, so what was stored stays where it is until then. An input that is not posted gets the adapter's own
//! buffers overlaid, or linked to it.
//! Invariants: until [`Assembly::finish`], nothing of what was received is in the input's own memory but what the adapter has stored there,
//! and what was copied there before the input was posted, in front of that.
//! Source: thesis §6.4, §6.5, §7.4.3, §7.4.4.

mod source;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use genie_io::{Error, Incoming, InputPin};
use genie_memory::DataMut;
use genie_passing::Chain;
use smallvec::SmallVec;

use crate::Frame;
use crate::adapter::{Adapter, Gathered, Piece, Port, Posting, PostingId, Segment};
use crate::checksum::{Checksum, Sum};

pub(crate) use source::{Source, Sources, with_bytes, within};

/// Input buffer 0 of a request, as far as it has come.
#[derive(Debug)]
pub(crate) struct Assembly {
    request: Incoming,
    room: usize,
    posted: Option<Posted>,
    /// Whether its memory is there, though it is not posted: no buffer takes its place any more.
    is_ready: bool,
    /// What has come, in order, without gaps.
    parts: SmallVec<[Part; 4]>,
    received: usize,
    /// How many of them the client was told of: these are the client's, whatever becomes of the request.
    told: usize,
    /// How many bytes were copied to their place before the input was posted.
    copied: usize,
}

/// What the adapter stores into an input.
#[derive(Debug)]
struct Posted {
    id: PostingId,
    /// None where that is buffers of the server's own, which will take the place of the input's.
    pin: Option<Arc<InputPin>>,
    /// Where the segments begin in the input; none for those that are for headers and trailers.
    starts: SmallVec<[Option<usize>; 4]>,
}

/// Some of the bytes that have come.
#[derive(Debug)]
struct Part {
    /// Where in the input they are to be.
    to: usize,
    from: Source,
}

/// An input that is filled.
pub(crate) struct Finished {
    /// To be replied to, with no lock held.
    pub(crate) request: Incoming,
    /// Why not with success.
    pub(crate) result: Result<(), Error>,
    /// How many bytes the host has copied.
    pub(crate) copied: usize,
}

/// What has come of an input, summed as it is moved.
#[derive(Debug)]
pub(crate) struct Summed {
    pub(crate) sum: Sum,
    /// How many bytes of it were read, since they were in place.
    pub(crate) read: usize,
}

/// A segment as a driver lays it out: so many bytes of the input, or of headers or trailers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Laid {
    Data(usize),
    Apart(usize),
}

impl Assembly {
    pub(crate) fn new(request: Incoming) -> Self {
        let room = request.len(0);
        Self {
            request,
            room,
            posted: None,
            is_ready: false,
            parts: SmallVec::new(),
            received: 0,
            told: 0,
            copied: 0,
        }
    }

    pub(crate) fn request(&self) -> &Incoming {
        &self.request
    }

    /// How many bytes have come.
    pub(crate) fn received(&self) -> usize {
        self.received
    }

    /// How many more there is room for.
    pub(crate) fn left(&self) -> usize {
        self.room - self.received
    }

    /// How many bytes the client was told of.
    pub(crate) fn told(&self) -> usize {
        self.told
    }

    pub(crate) fn posting(&self) -> Option<PostingId> {
        self.posted.as_ref().map(|posted| posted.id)
    }

    /// Has the adapter store into the input, from what has come on, in segments of these lengths. What has come is copied to its place
    /// first: an input of which some has come is the port's first one, and nothing is stored into it now. It stays as it was where the
    /// adapter cannot.
    pub(crate) fn post(
        &mut self,
        adapter: &mut dyn Adapter,
        port: Port,
        id: PostingId,
        layout: impl IntoIterator<Item = Laid>,
    ) -> Result<(), Error> {
        let pin = self.settle(adapter, port)?;
        let (mut starts, mut segments, mut at) = (SmallVec::new(), Vec::new(), self.received);
        for laid in layout {
            match laid {
                Laid::Data(len) => {
                    let len = len.min(self.room - at);
                    starts.push(Some(at));
                    segments.push(Segment::Pinned(Arc::clone(&pin), at..at + len));
                    at += len;
                }
                Laid::Apart(len) => {
                    starts.push(None);
                    segments.push(Segment::Own(vec![0; len].into()));
                }
            }
        }
        self.posted = Some(Posted { id, pin: Some(pin), starts });
        drop(adapter.post(port, Posting { id, segments }, self.received > 0));
        Ok(())
    }

    /// Has the adapter store into the input in place of what waits at the port, behind what has come of it.
    pub(crate) fn amend(
        &mut self,
        adapter: &mut dyn Adapter,
        port: Port,
        id: PostingId,
    ) -> Result<(), Error> {
        let pin = self.settle(adapter, port)?;
        let segments = vec![Segment::Pinned(Arc::clone(&pin), 0..self.room)];
        self.posted = Some(Posted { id, pin: Some(pin), starts: SmallVec::from_iter([Some(0)]) });
        let amended = adapter.amend(port, Posting { id, segments });
        if !amended.is_ok_and(|amended| amended.received == self.received) {
            // Other packets were stored there, too, or none any more.
            drop(adapter.reclaim(port, id));
            self.post(adapter, port, id, [Laid::Data(self.left())])?;
        }
        Ok(())
    }

    /// Has buffers of the server's own, which are posted, take the place of the input's memory.
    pub(crate) fn adopt(&mut self, id: PostingId, starts: SmallVec<[Option<usize>; 4]>) {
        self.posted = Some(Posted { id, pin: None, starts });
    }

    /// Copies what has come to its place, into which nothing is stored now.
    fn settle(&mut self, adapter: &dyn Adapter, port: Port) -> Result<Arc<InputPin>, Error> {
        let pin = match self.posted.as_ref().and_then(|posted| posted.pin.as_ref()) {
            Some(pin) => Arc::clone(pin),
            None => Arc::new(self.request.pin_input(0, 0..self.room)?),
        };
        self.copied += store(&self.parts, &pin.data(), adapter, port, None)?;
        self.parts.iter_mut().for_each(|part| part.from = Source::InPlace(part.from.len()));
        Ok(pin)
    }

    /// Takes as much as there is room for, and returns the rest.
    pub(crate) fn take(&mut self, source: Source) -> Option<Source> {
        let (here, rest) = source.cut(self.left());
        let len = here.len();
        if len > 0 {
            let from = if self.is_in_place(&here) { Source::InPlace(len) } else { here };
            self.parts.push(Part { to: self.received, from });
            self.received += len;
        }
        (rest.len() > 0).then_some(rest)
    }

    /// Tells the client of what is final: what lies in place, up to the first byte that does not.
    pub(crate) fn tell(&mut self) {
        let lie_there = self.parts.iter().take_while(|part| matches!(part.from, Source::InPlace(_)));
        let come = lie_there.map(|part| part.from.len()).sum();
        let is_posted = self.posted.as_ref().is_some_and(|posted| posted.pin.is_some());
        if is_posted && come > self.told && self.request.progress(0, come).is_ok() {
            self.told = come;
        }
    }

    /// Takes back what has come, and the client was not told of, out of the request's memory; and says how many bytes were copied.
    pub(crate) fn take_back(&mut self, adapter: &dyn Adapter, port: Port) -> (VecDeque<Source>, usize) {
        let (told, own) = (self.told, self.posting());
        let (mut back, mut copied) = (VecDeque::new(), 0);
        for Part { to, mut from } in
            std::mem::take(&mut self.parts).into_iter().filter(|part| part.to >= told)
        {
            copied += own.map_or(0, |id| from.leave(adapter, port, id));
            if let (Source::InPlace(len), Some(posted)) = (&from, &self.posted) {
                copied += len;
                from = Source::Copied(match &posted.pin {
                    Some(pin) => pin.data().part(to..to + len).into_data().to_vec(),
                    None => posted.bytes(adapter, port, to..to + len),
                });
            }
            back.push_back(from);
        }
        self.received = told;
        (back, copied)
    }

    fn is_in_place(&self, source: &Source) -> bool {
        let Source::Piece(piece @ Piece::Posted { at, .. }) = source else { return false };
        self.start_of(piece).is_some_and(|start| start + at == self.received)
    }

    /// Where the segment begins in this input that a piece lies in.
    fn start_of(&self, piece: &Piece) -> Option<usize> {
        let (Piece::Posted { posting, segment, .. }, Some(posted)) = (piece, &self.posted) else {
            return None;
        };
        if posted.id == *posting { posted.starts.get(*segment).copied().flatten() } else { None }
    }

    /// Copies what lies in memory of a request that is about to be over; returns how many bytes.
    pub(crate) fn leave(&mut self, adapter: &dyn Adapter, port: Port, id: PostingId) -> usize {
        self.parts.iter_mut().map(|part| part.from.leave(adapter, port, id)).sum()
    }

    /// Takes the input back from the adapter, and has what has come passed to the client.
    pub(crate) fn finish(mut self, adapter: &mut dyn Adapter, port: Port) -> Finished {
        let filled = self.fill(adapter, port, None);
        self.end(adapter, port, filled)
    }

    /// Whether what comes next will be moved by [`Assembly::fill`], into memory that is not the client's yet, or that it shares.
    pub(crate) fn moves(&self, sources: &[Source]) -> bool {
        let is_pooled = |source: &Source| matches!(source, Source::Piece(Piece::Pooled(_)));
        self.posted.is_some() || self.is_ready || !sources.iter().all(is_pooled)
    }

    /// Has what has come lie in the input, or in place of it; with `summed`, in memory in which more can come if the sum is wrong. Returns
    /// how many bytes the host has copied.
    pub(crate) fn fill(
        &mut self,
        adapter: &mut dyn Adapter,
        port: Port,
        summed: Option<&mut Summed>,
    ) -> Result<usize, Error> {
        self.own(adapter, port);
        let all = |is_such: fn(&Piece) -> bool| {
            self.parts.iter().all(|part| matches!(&part.from, Source::Piece(piece) if is_such(piece)))
        };
        let is_pooled = all(|piece| matches!(piece, Piece::Pooled(_)));
        let is_outboard = all(|piece| matches!(piece, Piece::Outboard(_)));
        let takes_place = summed.is_none() && !self.is_ready;
        if self.posted.is_some() {
            self.move_in(adapter, port, summed)
        } else if takes_place && is_pooled {
            self.overlay()
        } else if takes_place && is_outboard {
            self.link()
        } else {
            let copied = self.copy(adapter, port, summed)?;
            // The adapter transfers what is in its memory.
            Ok(if is_outboard { 0 } else { copied })
        }
    }

    /// Forgets what has come, for something else to come.
    pub(crate) fn forget(&mut self) {
        self.parts.clear();
        self.received = 0;
    }

    /// Takes the input, which was filled, back from the adapter, and has it passed to the client.
    pub(crate) fn end(
        mut self,
        adapter: &mut dyn Adapter,
        port: Port,
        filled: Result<usize, Error>,
    ) -> Finished {
        self.withdraw(adapter, port);
        let told = filled.and_then(|copied| self.request.set_actual(0, self.received).map(|()| copied));
        let (copied, result) = told.map_or_else(|error| (0, Err(error)), |copied| (copied, Ok(())));
        Finished { request: self.request, result, copied: self.copied + copied }
    }

    /// Takes the input back from the adapter: nothing is stored there from now on.
    pub(crate) fn withdraw(&mut self, adapter: &mut dyn Adapter, port: Port) {
        if let Some(posted) = self.posted.take() {
            drop(adapter.reclaim(port, posted.id));
        }
    }

    /// The request, without what has come of it.
    pub(crate) fn into_request(self) -> Incoming {
        self.request
    }

    /// The buffers of the server's own into which the adapter has stored, as pieces.
    fn own(&mut self, adapter: &mut dyn Adapter, port: Port) {
        let Some(Posted { id, pin: None, .. }) = self.posted else { return };
        let (received, mut at) = (self.received, 0);
        let is_whole = self.parts.iter().all(|part| matches!(part.from, Source::InPlace(_)));
        let copied = if is_whole { VecDeque::new() } else { self.take_back(adapter, port).0 };
        let segments = adapter.reclaim(port, id).map(|posting| posting.segments).unwrap_or_default();
        let overlays = segments.into_iter().filter_map(|segment| match segment {
            Segment::Overlay(overlay) if is_whole => Some(Source::Piece(Piece::Pooled(overlay))),
            _ => None,
        });
        let part = |source: Source| {
            let (from, _) = source.cut(received - at);
            let part = Part { to: at, from };
            at += part.from.len();
            part
        };
        self.parts = overlays.chain(copied).map(part).collect();
        (self.posted, self.received) = (None, received);
    }

    /// Where the memory is, and how long, that its client was not told of.
    pub(crate) fn rest(&self) -> Option<(usize, usize)> {
        let pin = self.posted.as_ref()?.pin.as_ref()?;
        let rest = pin.data().part(self.told..self.room);
        Some((rest.segments().first()?.addr(), rest.len()))
    }

    /// Moves what has come to its place in the pinned memory.
    fn move_in(
        &mut self,
        adapter: &dyn Adapter,
        port: Port,
        summed: Option<&mut Summed>,
    ) -> Result<usize, Error> {
        let mut parts = std::mem::take(&mut self.parts);
        // The first one is moved first, each to where nothing lies that is still to be moved: if none moves up.
        let moves_up = |part: &Part| match &part.from {
            Source::Piece(piece @ Piece::Posted { at, .. }) => {
                self.start_of(piece).is_some_and(|start| start + at < part.to)
            }
            _ => false,
        };
        let mut copied = 0;
        if parts.iter().any(moves_up) {
            let own = self.posting();
            copied = parts.iter_mut().filter_map(|part| Some(part.from.leave(adapter, port, own?))).sum();
        }
        let Some(pin) = self.posted.as_ref().and_then(|posted| posted.pin.as_ref()) else {
            return Ok(copied);
        };
        Ok(copied + store(&parts, &pin.data(), adapter, port, summed)?)
    }

    /// Overlays pooled buffers on the input's elements.
    fn overlay(&mut self) -> Result<usize, Error> {
        let pieces = std::mem::take(&mut self.parts).into_iter().filter_map(|part| part.from.into_piece());
        for (element, pieces) in self.by_element(pieces) {
            let overlays = pieces.into_iter().filter_map(|piece| match piece {
                Piece::Pooled(overlay) => Some(overlay),
                _ => None,
            });
            self.request.overlay(0, element, overlays.collect::<Chain>())?;
        }
        Ok(0)
    }

    /// Links buffers in the adapter's memory to the input's elements.
    fn link(&mut self) -> Result<usize, Error> {
        let pieces = std::mem::take(&mut self.parts).into_iter().filter_map(|part| part.from.into_piece());
        for (element, pieces) in self.by_element(pieces) {
            let buffers = pieces.into_iter().filter_map(|piece| match piece {
                Piece::Outboard(buffer) => Some(buffer),
                _ => None,
            });
            self.request.outboard(0, element, Box::new(buffers.collect::<Gathered>()))?;
        }
        Ok(0)
    }

    /// The pieces that each element gets.
    fn by_element(&self, pieces: impl Iterator<Item = Piece>) -> Vec<(usize, SmallVec<[Piece; 2]>)> {
        let (mut elements, mut pieces, mut rest) = (Vec::new(), pieces, None);
        for element in 0..self.request.elements(0) {
            let (mut left, mut here) = (self.request.element_len(0, element), SmallVec::new());
            while left > 0
                && let Some(piece) = rest.take().or_else(|| pieces.next())
            {
                let (first, behind) = {
                    let len = piece.len().min(left);
                    piece.cut(len)
                };
                left -= first.len();
                here.push(first);
                rest = (!behind.is_empty()).then_some(behind);
            }
            if !here.is_empty() {
                elements.push((element, here));
            }
        }
        elements
    }

    /// Copies what has come into memory that is made for the request.
    fn copy(
        &mut self,
        adapter: &dyn Adapter,
        port: Port,
        summed: Option<&mut Summed>,
    ) -> Result<usize, Error> {
        let parts = std::mem::take(&mut self.parts);
        self.is_ready = true;
        store(&parts, &self.request.ready(0)?, adapter, port, summed)
    }
}

impl Posted {
    /// A copy of what the adapter has stored at bytes `range` of the input.
    fn bytes(&self, adapter: &dyn Adapter, port: Port, range: Range<usize>) -> Vec<u8> {
        let stored = self.starts.iter().enumerate().map(|(number, start)| {
            let (start, segment) = ((*start)?, adapter.segment(port, self.id, number)?);
            let clamp = |at: usize| at.clamp(start, start + segment.len()) - start;
            Some(segment.with(clamp(range.start)..clamp(range.end), |data| data.to_vec()))
        });
        stored.flatten().flatten().collect()
    }
}

impl Default for Summed {
    fn default() -> Self {
        Self { sum: Sum::new(Checksum::Internet), read: 0 }
    }
}

/// Copies parts to their places, the first one first, and sums all; returns how many bytes it has copied. It fails if some are gone: nobody
/// is to get what lies there.
fn store<'p>(
    parts: impl IntoIterator<Item = &'p Part>,
    into: &DataMut<'_>,
    adapter: &dyn Adapter,
    port: Port,
    mut summed: Option<&mut Summed>,
) -> Result<usize, Error> {
    let mut copied = 0;
    for Part { to, from } in parts {
        if let Source::InPlace(len) = from {
            if let Some(Summed { sum, read }) = &mut summed {
                sum.add_data(&into.part(*to..*to + len).into_data());
                *read += len;
            }
            continue;
        }
        let len = from.with(adapter, port, |data| {
            let (len, place) = (data.len(), into.part(*to..*to + data.len()));
            match &mut summed {
                Some(Summed { sum, .. }) => Frame::new(data).store_summed(0..len, &place, sum),
                None => {
                    place.copy_data(&data);
                }
            }
            len
        });
        if len < from.len() {
            return Err(Error::Dropped);
        }
        copied += len;
    }
    Ok(copied)
}
