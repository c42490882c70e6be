//! What has arrived out of order: references, each with its sequence number, none of which overlap.
//!
//! How: a reference that arrives is trimmed by what is there already, which stays; where it spans several, it becomes several parts.
//! Limits: as many references as the caller allows.
//! Source: RFC 9293 §3.10.7.4 (SHLD-31), RFC 2018 §4 for the order in which blocks are told.

use std::collections::VecDeque;

use smallvec::SmallVec;

use crate::options::{Block, SACK_BLOCKS_MOST};
use crate::payload::Payload;
use crate::sequence::Seq;

/// References out of order.
#[derive(Debug)]
pub(crate) struct Reassembly<P> {
    pieces: VecDeque<(Seq, P)>,
    /// Where the latest arrivals began, the last one first.
    latest: SmallVec<[Seq; SACK_BLOCKS_MOST]>,
}

impl<P: Payload> Default for Reassembly<P> {
    fn default() -> Self {
        Self { pieces: VecDeque::new(), latest: SmallVec::new() }
    }
}

impl<P: Payload> Reassembly<P> {
    pub(crate) fn len(&self) -> usize {
        self.pieces.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Adds what of a reference is new, up to `most` references in all; how many bytes of it.
    pub(crate) fn insert(&mut self, start: Seq, payload: &P, most: usize) -> u32 {
        let end = start + payload.len() as u32;
        let part = |from: Seq, to: Seq| payload.part(from.since(start) as usize..to.since(start) as usize);
        let mut at = start;
        let mut index = self.pieces.partition_point(|piece| !end_of(piece).after(start));
        let mut added = 0;
        while at.before(end) && self.pieces.len() < most {
            let gap_end = self.pieces.get(index).map_or(end, |(start, _)| start.earliest(end));
            if at.before(gap_end) {
                self.pieces.insert(index, (at, part(at, gap_end)));
                added += gap_end.since(at);
                index += 1;
            }
            let Some(piece) = self.pieces.get(index) else { break };
            at = end_of(piece).latest(gap_end);
            index += 1;
        }
        if added > 0 {
            self.latest.retain(|it| *it != start);
            self.latest.truncate(SACK_BLOCKS_MOST - 1);
            self.latest.insert(0, start);
        }
        added
    }

    /// Takes the reference that begins at `next`, if it is there.
    pub(crate) fn pop(&mut self, next: Seq) -> Option<P> {
        self.pieces.front().filter(|(start, _)| *start == next)?;
        let (_, payload) = self.pieces.pop_front()?;
        if self.pieces.is_empty() {
            *self = Self::default(); // What is in order keeps no memory.
        }
        Some(payload)
    }

    /// The blocks for a SACK option: that of the latest arrival first, then those of the arrivals before it, and then others.
    pub(crate) fn blocks(&self) -> [Option<Block>; SACK_BLOCKS_MOST] {
        let mut blocks = [None; SACK_BLOCKS_MOST];
        let mut count = 0;
        let mut add = |block: Block| {
            if count < SACK_BLOCKS_MOST && !blocks[..count].contains(&Some(block)) {
                blocks[count] = Some(block);
                count += 1;
            }
        };
        let runs = self.runs();
        for latest in &self.latest {
            runs.iter().filter(|run| run.contains(*latest)).for_each(|run| add(*run));
        }
        runs.iter().for_each(|run| add(*run));
        blocks
    }

    /// Runs of bytes without a gap.
    fn runs(&self) -> SmallVec<[Block; 8]> {
        let mut runs = SmallVec::<[Block; 8]>::new();
        for piece in &self.pieces {
            match runs.last_mut() {
                Some(run) if run.end == piece.0 => run.end = end_of(piece),
                _ => runs.push(Block { start: piece.0, end: end_of(piece) }),
            }
        }
        runs
    }

    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn check(&self, next: Seq) {
        let mut at = next;
        for (index, piece) in self.pieces.iter().enumerate() {
            assert!(!piece.1.is_empty(), "an empty reference was kept");
            let apart = if index == 0 { piece.0.after(at) } else { !piece.0.before(at) };
            assert!(apart, "references overlap, or one is in order");
            at = end_of(piece);
        }
    }
}

fn end_of<P: Payload>((start, payload): &(Seq, P)) -> Seq {
    *start + payload.len() as u32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::payload::Shared;

    const NEXT: Seq = Seq(u32::MAX - 30);

    fn stream() -> Shared {
        Shared::new((0..=99u8).collect::<Vec<_>>())
    }

    fn block(start: u32, end: u32) -> Option<Block> {
        Some(Block { start: NEXT + start, end: NEXT + end })
    }

    #[test]
    fn blocks_are_told_with_the_latest_arrival_first() {
        let mut it = Reassembly::default();
        for at in [10, 30, 50, 70, 90] {
            it.insert(NEXT + at, &stream().part(at as usize..at as usize + 5), 100);
        }
        assert_eq!(it.blocks(), [block(90, 95), block(70, 75), block(50, 55), block(30, 35)]);
        it.insert(NEXT + 15, &stream().part(15..20), 100);
        assert_eq!(it.blocks(), [block(10, 20), block(90, 95), block(70, 75), block(50, 55)]);
        assert!(it.pop(NEXT).is_none());
        assert_eq!(it.pop(NEXT + 10).map(|it| it.bytes().to_vec()), Some(vec![10, 11, 12, 13, 14]));
        it.clear();
        assert_eq!(it.blocks(), [None; 4]);
    }

    #[test]
    fn no_more_references_are_kept_than_allowed() {
        let mut it = Reassembly::default();
        let kept = (1..50).filter(|at| it.insert(NEXT + 2 * at, &stream().part(0..1), 7) > 0).count();
        assert_eq!((kept, it.len()), (7, 7));
    }

    proptest! {
        /// Whatever overlaps, arrives twice or in any order: each byte comes out once, in order, and is the stream's.
        #[test]
        fn bytes_come_out_once_and_in_order(
            arrivals in proptest::collection::vec((0usize..100, 1usize..40), 1..40),
            most in prop_oneof![Just(usize::MAX), 1usize..20],
        ) {
            let (mut it, mut there) = (Reassembly::default(), [false; 100]);
            let (mut next, mut out) = (0usize, Vec::new());
            for (start, len) in arrivals {
                let (start, end) = (start.max(next), (start + len).min(100));
                if start >= end {
                    continue;
                }
                let new = there[start..end].iter().filter(|it| !**it).count();
                let added = it.insert(NEXT + start as u32, &stream().part(start..end), most) as usize;
                prop_assert!(added <= new && (most != usize::MAX || added == new));
                if added == new {
                    there[start..end].fill(true);
                } else {
                    break; // What fits is a matter of order; the rest was dropped.
                }
                while let Some(piece) = it.pop(NEXT + next as u32) {
                    out.extend_from_slice(piece.bytes());
                    next += piece.len();
                }
                it.check(NEXT + next as u32);
                let first_gap = there.iter().position(|it| !it).unwrap_or(100);
                prop_assert_eq!(next, first_gap);
                for run in it.blocks().into_iter().flatten() {
                    let range = run.start.since(NEXT) as usize..run.end.since(NEXT) as usize;
                    prop_assert!(there[range.clone()].iter().all(|it| *it));
                    prop_assert!(!there[range.start - 1] && there.get(range.end) != Some(&true));
                }
            }
            prop_assert_eq!(out, (0..next as u8).collect::<Vec<_>>());
        }
    }
}
