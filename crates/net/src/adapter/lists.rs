//! Scatter lists of ports: whose segments are filled next.
//!
//! How: where a packet's bytes go is planned first, then stored, then committed, so a frame that is dropped half way changes no list.
//! Invariants: a posting is in one list, waiting or used, until it is taken out.

use std::collections::{BTreeMap, VecDeque};

use smallvec::SmallVec;

use super::device::{Amended, NotPosted};
use super::received::Piece;
use super::segment::{Port, Posting, PostingId, Segment};
use crate::Frame;

/// The lists of all ports that have postings.
#[derive(Debug, Default)]
pub(super) struct Lists(BTreeMap<Port, List>);

/// The list of one port.
#[derive(Debug, Default)]
pub(super) struct List {
    /// What is to be filled, with where the next byte goes in the first one.
    waiting: VecDeque<Posting>,
    next: Place,
    /// What was filled, or passed over.
    used: Vec<Posting>,
}

/// A byte of the first posting: of which segment, and where in it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Place {
    segment: usize,
    at: usize,
}

/// Where a packet's bytes go: for each part, which of the waiting postings, which segment, where in it, and how many bytes.
pub(super) type Plan = SmallVec<[Planned; 4]>;

#[derive(Debug, Clone, Copy)]
pub(super) struct Planned {
    posting: usize,
    place: Place,
    len: usize,
}

/// How far a packet may go, and what is left of its last segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// It goes on in the next posting; the remainder of its last segment is dropped.
    DropsSegment,
    /// It stays in one posting, of which the remainder is dropped.
    DropsPosting,
    /// It goes on in the next posting; the remainder is for the next packet.
    SnapsOff,
}

impl Lists {
    /// The list of a port that has segments to be filled.
    pub(super) fn waiting(&mut self, port: Port) -> Option<&mut List> {
        self.0.get_mut(&port).filter(|list| !list.waiting.is_empty())
    }

    /// The list of a port, if it has one.
    pub(super) fn known(&mut self, port: Port) -> Option<&mut List> {
        self.0.get_mut(&port)
    }

    pub(super) fn of(&mut self, port: Port) -> &mut List {
        self.0.entry(port).or_default()
    }

    /// Takes a posting out.
    pub(super) fn take(&mut self, port: Port, id: PostingId) -> Option<Posting> {
        let list = self.0.get_mut(&port)?;
        let taken = list.take(id);
        self.forget_if_empty(port);
        taken
    }

    /// A segment of a posting.
    pub(super) fn segment(&self, port: Port, id: PostingId, segment: usize) -> Option<&Segment> {
        let List { waiting, used, .. } = self.0.get(&port)?;
        used.iter().chain(waiting).find(|posting| posting.id == id)?.segments.get(segment)
    }

    /// Puts a posting in place of all that wait, and leaves as many bytes at its beginning out as the first of these has already.
    pub(super) fn amend(&mut self, port: Port, posting: Posting) -> Result<Amended, NotPosted> {
        let list = self.of(port);
        let received = list.filled();
        if posting.segments.iter().map(Segment::len).sum::<usize>() < received {
            return Err(NotPosted(posting));
        }
        let before = list.waiting.drain(..).collect();
        (list.next, list.waiting) = (Place::default(), VecDeque::from([posting]));
        let plan = list.plan(received, End::SnapsOff);
        list.commit(&plan, End::SnapsOff);
        Ok(Amended { received, before })
    }

    fn forget_if_empty(&mut self, port: Port) {
        if self.0.get(&port).is_some_and(|list| list.waiting.is_empty() && list.used.is_empty()) {
            self.0.remove(&port);
        }
    }
}

impl Planned {
    /// How many bytes.
    pub(super) fn len(&self) -> usize {
        self.len
    }
}

impl List {
    /// Adds a posting; at the head only where nothing of the first one was filled.
    pub(super) fn add(&mut self, posting: Posting, at_head: bool) -> Result<(), Posting> {
        if at_head && self.next != Place::default() {
            return Err(posting);
        }
        if at_head {
            self.waiting.push_front(posting)
        } else {
            self.waiting.push_back(posting)
        }
        Ok(())
    }

    /// Plans where `len` bytes go; the plan is for fewer where the segments end.
    pub(super) fn plan(&self, len: usize, end: End) -> Plan {
        let (mut plan, mut left, mut next) = (Plan::new(), len, self.next);
        for (posting, Posting { segments, .. }) in self.waiting.iter().enumerate() {
            while left > 0 && next.segment < segments.len() {
                let here = left.min(segments[next.segment].len() - next.at);
                if here > 0 {
                    plan.push(Planned { posting, place: next, len: here });
                }
                left -= here;
                next = Place { segment: next.segment + 1, at: 0 };
            }
            if left == 0 || end == End::DropsPosting {
                break;
            }
            next = Place::default();
        }
        plan
    }

    /// Stores the bytes of a frame from `from` on as planned.
    pub(super) fn store(&mut self, plan: &Plan, frame: &Frame<'_>, mut from: usize) {
        for Planned { posting, place, len } in plan {
            self.waiting[*posting].segments[place.segment].store(frame, from..from + len, place.at);
            from += len;
        }
    }

    /// Goes on behind a packet that was stored as planned. Returns where its bytes are, and whose buffering is over.
    pub(super) fn commit(
        &mut self,
        plan: &Plan,
        end: End,
    ) -> (SmallVec<[Piece; 2]>, SmallVec<[PostingId; 1]>) {
        let piece = |Planned { posting, place, len }: &Planned| Piece::Posted {
            posting: self.waiting[*posting].id,
            segment: place.segment,
            at: place.at,
            len: *len,
        };
        let pieces = plan.iter().map(piece).collect();
        let last = plan.last().copied();
        let (mut over, mut next) = (last.map_or(0, |last| last.posting), self.next);
        if let Some(Planned { posting, place: Place { segment, at }, len }) = last {
            let segments = &self.waiting[posting].segments;
            let is_full = at + len == segments[segment].len();
            next = match end {
                End::SnapsOff if !is_full => Place { segment, at: at + len },
                _ => Place { segment: segment + 1, at: 0 },
            };
        }
        // An empty packet uses a posting up, too, where each packet does.
        let is_over =
            |list: &Self| list.waiting.get(over).is_some_and(|first| next.segment == first.segments.len());
        if end == End::DropsPosting || is_over(self) {
            (over, next) = (over + 1, Place::default());
        }
        self.next = next;
        let ended = self.waiting.drain(..over.min(self.waiting.len()));
        let before = self.used.len();
        self.used.extend(ended);
        (pieces, self.used[before..].iter().map(|posting| posting.id).collect())
    }

    /// Has the next packet begin behind the bytes up to `at` of a segment, where the device has dropped the remainder. False if it has
    /// stored another packet meanwhile.
    pub(super) fn put_back(&mut self, id: PostingId, segment: usize, at: usize) -> bool {
        let behind = Place { segment: segment + 1, at: 0 };
        if self.waiting.front().is_some_and(|first| first.id == id) && self.next == behind {
            self.next = Place { segment, at };
            return true;
        }
        let is_last =
            self.used.last().is_some_and(|last| last.id == id && last.segments.len() == behind.segment);
        if is_last && self.next == Place::default() {
            self.waiting.extend(self.used.pop());
            self.waiting.rotate_right(1);
            self.next = Place { segment, at };
        }
        is_last && self.next == Place { segment, at }
    }

    /// Passes over what is left of a posting, if that is the first one.
    pub(super) fn pass_over(&mut self, id: PostingId) {
        if self.waiting.front().is_some_and(|first| first.id == id) {
            self.used.extend(self.waiting.pop_front());
            self.next = Place::default();
        }
    }

    fn take(&mut self, id: PostingId) -> Option<Posting> {
        if let Some(index) = self.used.iter().position(|posting| posting.id == id) {
            return Some(self.used.swap_remove(index));
        }
        let index = self.waiting.iter().position(|posting| posting.id == id)?;
        if index == 0 {
            self.next = Place::default();
        }
        self.waiting.remove(index)
    }

    /// How many bytes of the first posting are filled.
    fn filled(&self) -> usize {
        let before = |posting: &Posting| -> usize {
            posting.segments[..self.next.segment].iter().map(Segment::len).sum()
        };
        self.waiting.front().map_or(0, before) + self.next.at
    }
}
