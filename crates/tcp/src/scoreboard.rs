//! What the peer has said by selective acknowledgments that it has: the sender's scoreboard.
//!
//! How: ranges of sequence numbers, sorted, apart from each other. Of what is not in them, all below the *lost edge* is taken for lost.
//! Limits: [`RANGES_MOST`] ranges; blocks that would make more are forgotten, which costs no more than sending their data again.
//! Source: RFC 6675 §3 and §4, RFC 2018.

use crate::options::Block;
use crate::sequence::Seq;

/// Ranges that are remembered.
const RANGES_MOST: usize = 256;
/// After how many segments behind it one is taken for lost: DupThresh.
pub(crate) const DUPLICATES: u32 = 3;

/// The ranges that were selectively acknowledged.
#[derive(Debug, Default)]
pub(crate) struct Scoreboard {
    ranges: Vec<Block>,
}

impl Scoreboard {
    /// Forgets everything (RFC 2018 §8: after a timeout, since the peer may have thrown away what it had).
    pub(crate) fn clear(&mut self) {
        self.ranges = Vec::new();
    }

    /// Everything before `una` was acknowledged.
    pub(crate) fn advance(&mut self, una: Seq) {
        let gone = self.ranges.partition_point(|range| !range.end.after(una));
        self.ranges.drain(..gone);
        if let Some(first) = self.ranges.first_mut() {
            first.start = first.start.latest(una);
        }
        if self.ranges.is_empty() {
            self.ranges = Vec::new(); // An idle connection keeps no memory.
        }
    }

    /// Notes a block that lies between `una` and `nxt`. Returns whether it has told anything new. A block that says what was received twice
    /// (D-SACK, RFC 2883) tells nothing new, since it lies below `una` or in another block.
    pub(crate) fn add(&mut self, block: Block, una: Seq, nxt: Seq) -> bool {
        if !block.start.before(block.end) || block.start.before(una) || block.end.after(nxt) {
            return false;
        }
        // Those that touch the block become one with it.
        let from = self.ranges.partition_point(|range| range.end.before(block.start));
        let to = self.ranges.partition_point(|range| !range.start.after(block.end));
        let (mut merged, mut known) = (block, 0);
        for range in &self.ranges[from..to] {
            let (start, end) = (range.start.latest(block.start), range.end.earliest(block.end));
            known += end.saturating_since(start);
            merged = Block { start: merged.start.earliest(range.start), end: merged.end.latest(range.end) };
        }
        if known == block.len() || (from == to && self.ranges.len() == RANGES_MOST) {
            return false;
        }
        self.ranges.splice(from..to, [merged]);
        true
    }

    /// Behind the highest byte that was selectively acknowledged.
    pub(crate) fn highest(&self) -> Option<Seq> {
        self.ranges.last().map(|range| range.end)
    }

    /// Whether the byte was selectively acknowledged.
    pub(crate) fn has(&self, seq: Seq) -> bool {
        self.ranges.iter().any(|range| range.contains(seq))
    }

    /// The first run of bytes at or behind `from` that was not selectively acknowledged, up to the next that was, or to `end`.
    pub(crate) fn hole(&self, from: Seq, end: Seq) -> Option<Block> {
        let mut hole = Block { start: from, end };
        for range in &self.ranges {
            if range.contains(hole.start) {
                hole.start = range.end;
            } else if range.start.after(hole.start) {
                hole.end = range.start.earliest(end);
                break;
            }
        }
        hole.start.before(hole.end).then_some(hole)
    }

    /// How many of the bytes from `from` to before `to` were not selectively acknowledged.
    pub(crate) fn missing(&self, from: Seq, to: Seq) -> u32 {
        let has = |range: &Block| range.end.earliest(to).saturating_since(range.start.latest(from));
        to.saturating_since(from) - self.ranges.iter().map(has).sum::<u32>()
    }

    /// Everything before it that is missing is taken for lost: three ranges, or more than two segments' bytes, were acknowledged behind it
    /// (RFC 6675 §4, IsLost).
    pub(crate) fn lost_edge(&self, mss: u32) -> Option<Seq> {
        let (mut ranges, mut bytes) = (0, 0u32);
        self.ranges.iter().rev().find_map(|range| {
            ranges += 1;
            bytes = bytes.saturating_add(range.len());
            (ranges >= DUPLICATES || bytes > (DUPLICATES - 1) * mss).then_some(range.start)
        })
    }

    /// Ranges are in order, and apart.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn check(&self, una: Seq, nxt: Seq) {
        let mut last = una;
        for (at, range) in self.ranges.iter().enumerate() {
            assert!(range.start.before(range.end), "an empty range");
            assert!(range.start.after(last) || at == 0 && range.start == last, "ranges that touch");
            last = range.end;
        }
        assert!(!last.after(nxt), "a range of what was not sent");
        assert!(self.ranges.len() <= RANGES_MOST, "more ranges than are remembered");
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const MSS: u32 = 10;
    /// Sequence numbers wrap in the middle of what is tried.
    const UNA: Seq = Seq(u32::MAX - 100);

    fn block(start: u32, end: u32) -> Block {
        Block { start: UNA + start, end: UNA + end }
    }

    #[test]
    fn blocks_of_what_was_never_sent_or_is_acknowledged_already_tell_nothing() {
        let mut board = Scoreboard::default();
        for wrong in [block(5, 5), block(9, 5), block(190, 201), Block { start: UNA - 10, end: UNA + 10 }] {
            assert!(!board.add(wrong, UNA, UNA + 200));
        }
        assert_eq!(board.highest(), None);
        assert!(board.add(block(50, 60), UNA, UNA + 200));
        assert!(!board.add(block(52, 58), UNA, UNA + 200)); // D-SACK within a block
    }

    #[test]
    fn what_has_three_segments_behind_it_is_lost() {
        let mut board = Scoreboard::default();
        board.add(block(10, 20), UNA, UNA + 200);
        board.add(block(30, 40), UNA, UNA + 200);
        assert_eq!(board.lost_edge(MSS), None);
        board.add(block(50, 51), UNA, UNA + 200); // three ranges
        assert_eq!(board.lost_edge(MSS), Some(UNA + 10));
        let mut board = Scoreboard::default();
        board.add(block(10, 30), UNA, UNA + 200);
        assert_eq!(board.lost_edge(MSS), None);
        board.add(block(30, 31), UNA, UNA + 200); // more than two segments' bytes
        assert_eq!(board.lost_edge(MSS), Some(UNA + 10));
    }

    proptest! {
        /// Against a set of numbers.
        #[test]
        fn a_scoreboard_is_a_set_of_what_was_acknowledged(
            steps in proptest::collection::vec((0u32..200, 0u32..40, 0u32..8), 1..60),
        ) {
            let (mut board, mut una, nxt) = (Scoreboard::default(), 0, 200);
            let mut set = BTreeSet::new();
            for (start, len, advance) in steps {
                let before = set.len();
                let told = board.add(block(start, start + len), UNA + una, UNA + nxt);
                if start >= una && start + len <= nxt {
                    set.extend(start..start + len);
                }
                prop_assert_eq!(told, set.len() > before);
                una = (una + advance).min(nxt);
                set = set.split_off(&una);
                board.advance(UNA + una);
                board.check(UNA + una, UNA + nxt);
                for seq in una..nxt {
                    prop_assert_eq!(board.has(UNA + seq), set.contains(&seq));
                }
                prop_assert_eq!(board.missing(UNA + una, UNA + nxt), nxt - una - set.len() as u32);
                let hole = (una..nxt).find(|seq| !set.contains(seq));
                prop_assert_eq!(board.hole(UNA + una, UNA + nxt).map(|it| it.start), hole.map(|it| UNA + it));
                prop_assert_eq!(board.highest(), set.last().map(|&it| UNA + it + 1));
            }
        }
    }
}
