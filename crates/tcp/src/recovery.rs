//! What to send again, and how much is under way meanwhile.
//!
//! How: a connection is in one of three modes. *Open*: nothing is known to be lost. *Fast*: a loss was found by acknowledgments, and is being
//! repaired, by the scoreboard (RFC 6675) or, without SACK, a segment for each partial acknowledgment (RFC 6582). *Timeout*: nothing was
//! acknowledged for a retransmission timeout; everything that was under way, and not selectively acknowledged, is sent again as the congestion
//! window grows (RFC 5681 §3.1, RFC 6675 §5.1). Both repairs end when what was sent before them is acknowledged: at the *point*.
//! Source: RFC 6675, RFC 6582, RFC 3042 (limited transmit).

use crate::options::Block;
use crate::scoreboard::{DUPLICATES, Scoreboard};
use crate::sequence::Seq;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Open,
    Fast,
    Timeout,
}

/// What an acknowledgment of new data means to the repair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The congestion window may grow.
    Open,
    /// A repair goes on.
    Partial,
    /// Fast recovery is over.
    Repaired,
}

/// The sender's half of loss recovery. `una` and `nxt` are RFC 9293's SND.UNA and SND.NXT.
#[derive(Debug)]
pub(crate) struct Recovery {
    mode: Mode,
    sack: bool,
    board: Scoreboard,
    /// Where the last repair ends: RecoveryPoint, `recover`.
    point: Seq,
    /// Behind what was sent again last: HighRxt.
    high_rxt: Seq,
    /// Whether the first segment is to be sent again, whatever the window says.
    first: bool,
    /// Whether the last segment was sent again in case it is lost (RFC 6675 §4, NextSeg, rule 4).
    rescued: bool,
    /// Duplicate acknowledgments in a row.
    duplicates: u32,
    /// How much these have shown to have left the network, without SACK.
    inflation: u32,
}

impl Recovery {
    pub(crate) fn new(iss: Seq) -> Self {
        Self {
            mode: Mode::Open,
            sack: false,
            board: Scoreboard::default(),
            point: iss,
            high_rxt: iss,
            first: false,
            rescued: false,
            duplicates: 0,
            inflation: 0,
        }
    }

    pub(crate) fn use_sack(&mut self, sack: bool) {
        self.sack = sack;
    }

    pub(crate) fn uses_sack(&self) -> bool {
        self.sack
    }

    pub(crate) fn mode(&self) -> Mode {
        self.mode
    }

    /// Notes the blocks of an acknowledgment; whether they have told anything new.
    pub(crate) fn note(&mut self, blocks: impl Iterator<Item = Block>, una: Seq, nxt: Seq) -> bool {
        self.sack && blocks.filter(|block| self.board.add(*block, una, nxt)).count() > 0
    }

    /// Everything before `una` was acknowledged, `acked` bytes of it just now.
    pub(crate) fn on_advance(&mut self, una: Seq, acked: u32, mss: u32) -> Progress {
        self.board.advance(una);
        self.high_rxt = self.high_rxt.latest(una);
        self.duplicates = 0;
        let over = !una.before(self.point);
        match self.mode {
            Mode::Open => {
                if una.after(self.point) {
                    self.point = una - 1; // It stays near enough to be compared.
                }
                self.inflation = 0;
                Progress::Open
            }
            Mode::Timeout => {
                if over {
                    self.mode = Mode::Open;
                }
                Progress::Open
            }
            Mode::Fast if over => {
                self.mode = Mode::Open;
                self.inflation = 0;
                self.first = false;
                Progress::Repaired
            }
            Mode::Fast => {
                if !self.sack {
                    // RFC 6582 §3.2, step 3: the next one is lost, too; what was acknowledged is no longer under way.
                    self.first = true;
                    let again = if acked >= mss { mss } else { 0 };
                    self.inflation = self.inflation.saturating_sub(acked) + again;
                }
                Progress::Partial
            }
        }
    }

    /// A duplicate acknowledgment. Returns whether it shows a loss, with which a repair has begun (RFC 6675 §5, RFC 5681 §3.2).
    pub(crate) fn on_duplicate(&mut self, una: Seq, nxt: Seq, mss: u32) -> bool {
        self.duplicates += 1;
        if self.mode == Mode::Fast && !self.sack {
            self.inflation = self.inflation.saturating_add(mss);
        }
        if self.mode != Mode::Open {
            return false;
        }
        let lost = self.sack && self.board.lost_edge(mss).is_some_and(|edge| edge.after(una));
        // RFC 6582 §3.2, step 1: what was sent twice after a timeout is acknowledged twice.
        let again = !self.sack && !una.after(self.point);
        if again || !(lost || self.duplicates >= DUPLICATES) {
            // RFC 3042: one new segment for each of the first two.
            self.inflation = if self.sack || again { 0 } else { self.duplicates.min(DUPLICATES - 1) * mss };
            return false;
        }
        self.begin(Mode::Fast, una, nxt);
        self.inflation = if self.sack { 0 } else { DUPLICATES * mss };
        true
    }

    /// Nothing was acknowledged for a retransmission timeout. After a second one in a row the peer is not believed to have what it has
    /// said (RFC 2018 §8), nor if it has said so of the very byte that it waits for.
    pub(crate) fn on_timeout(&mut self, una: Seq, nxt: Seq, again: bool) {
        if again || self.board.has(una) {
            self.board.clear();
        }
        self.begin(Mode::Timeout, una, nxt);
        self.inflation = 0;
        self.duplicates = 0;
    }

    /// What is under way is sent again without being taken for a loss: the peer's window was closed for it.
    pub(crate) fn send_again(&mut self, una: Seq, nxt: Seq) {
        self.begin(Mode::Timeout, una, nxt);
    }

    fn begin(&mut self, mode: Mode, una: Seq, nxt: Seq) {
        self.mode = mode;
        self.point = nxt;
        self.high_rxt = una;
        self.first = true;
        self.rescued = false;
    }

    /// How many more bytes may be sent now, with a congestion window of `window`.
    pub(crate) fn room(&self, window: u32, una: Seq, nxt: Seq, mss: u32) -> u32 {
        if self.sack || self.mode == Mode::Timeout {
            window.saturating_sub(self.pipe(una, nxt, mss))
        } else {
            window.saturating_add(self.inflation).saturating_sub(nxt.since(una))
        }
    }

    /// How many bytes are under way (RFC 6675 §4, SetPipe): those that are neither acknowledged nor lost, and those that were sent again.
    pub(crate) fn pipe(&self, una: Seq, nxt: Seq, mss: u32) -> u32 {
        let lost = self.lost_edge(mss).map_or(una, |edge| edge.latest(una));
        let again = if self.mode == Mode::Open { 0 } else { self.board.missing(una, self.high_rxt) };
        self.board.missing(lost, nxt) + again
    }

    fn lost_edge(&self, mss: u32) -> Option<Seq> {
        match self.mode {
            Mode::Open => None,
            Mode::Fast => self.board.lost_edge(mss).map(|edge| edge.earliest(self.point)),
            Mode::Timeout => Some(self.point),
        }
    }

    /// What is to be sent again before anything new is sent: of at most `mss` bytes (NextSeg, rule 1). The first segment goes whatever
    /// the window says, others if there is `room` for them.
    pub(crate) fn lost(&self, una: Seq, nxt: Seq, mss: u32, room: u32) -> Option<Block> {
        if self.first {
            return self.board.hole(una, nxt).map(|hole| at_most(hole, mss));
        }
        let edge = self.lost_edge(mss)?;
        let hole = at_most(self.board.hole(self.high_rxt.latest(una), edge)?, mss);
        (hole.len() <= room).then_some(hole)
    }

    /// What may be sent again where there is nothing new to send: what may be lost, and at last, once, the end (NextSeg, rules 3 and 4).
    pub(crate) fn perhaps_lost(&self, una: Seq, nxt: Seq, mss: u32, room: u32) -> Option<Block> {
        if self.mode != Mode::Fast || !self.sack || room < mss {
            return None;
        }
        let below = self.board.highest().map(|highest| highest.earliest(self.point));
        let maybe = below.and_then(|end| self.board.hole(self.high_rxt.latest(una), end));
        maybe.map(|hole| at_most(hole, mss)).or_else(|| self.rescue(una, nxt, mss))
    }

    fn rescue(&self, una: Seq, nxt: Seq, mss: u32) -> Option<Block> {
        let from = self.board.highest().unwrap_or(una).latest(una);
        if self.rescued || !from.before(nxt) {
            return None;
        }
        let len = nxt.since(from).min(mss);
        Some(Block { start: nxt - len, end: nxt })
    }

    /// A block was sent again.
    pub(crate) fn on_sent_again(&mut self, block: Block) {
        let rescue = self.mode == Mode::Fast
            && !self.first
            && self.board.highest().is_none_or(|it| !block.start.before(it));
        self.first = false;
        if rescue && self.sack {
            self.rescued = true;
        } else {
            self.high_rxt = self.high_rxt.latest(block.end);
        }
    }

    /// All is acknowledged, and the connection ends: nothing is kept.
    pub(crate) fn end(&mut self) {
        self.board.clear();
        self.mode = Mode::Open;
        self.first = false;
    }

    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn check(&self, una: Seq, nxt: Seq) {
        self.board.check(una, nxt);
        assert!(!self.high_rxt.after(nxt) || self.mode == Mode::Open, "more was sent again than was sent");
    }
}

fn at_most(block: Block, mss: u32) -> Block {
    Block { start: block.start, end: block.start + block.len().min(mss) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u32 = 100;
    const UNA: Seq = Seq(u32::MAX - 250);

    fn block(from: u32, to: u32) -> Block {
        Block { start: UNA + from * MSS, end: UNA + to * MSS }
    }

    fn with_sack() -> Recovery {
        let mut it = Recovery::new(UNA - 1);
        it.use_sack(true);
        it
    }

    #[test]
    fn holes_are_sent_again_in_order_as_the_pipe_empties() {
        let (mut it, nxt) = (with_sack(), UNA + 10 * MSS);
        // The segments 0 and 4 are lost.
        for (sacked, begins) in [(block(1, 2), false), (block(1, 3), false), (block(1, 4), true)] {
            assert!(it.note([sacked].into_iter(), UNA, nxt));
            assert_eq!(it.on_duplicate(UNA, nxt, MSS), begins);
        }
        assert_eq!(it.mode(), Mode::Fast);
        // 0 goes at once, though the window is full: ten segments, less three that have arrived and one that is lost.
        assert_eq!(it.pipe(UNA, nxt, MSS), 6 * MSS);
        assert_eq!(it.lost(UNA, nxt, MSS, 0), Some(block(0, 1)));
        it.on_sent_again(block(0, 1));
        assert_eq!(it.pipe(UNA, nxt, MSS), 7 * MSS);
        assert_eq!(it.lost(UNA, nxt, MSS, 1000), None); // 4 is not known to be lost.
        it.note([block(5, 8), block(1, 4)].into_iter(), UNA, nxt);
        assert_eq!(it.pipe(UNA, nxt, MSS), 3 * MSS); // 8, 9, and 0 again
        assert_eq!(it.lost(UNA, nxt, MSS, 99), None);
        assert_eq!(it.lost(UNA, nxt, MSS, 100), Some(block(4, 5)));
        it.on_sent_again(block(4, 5));
        // Nothing else is: the end goes again, once.
        assert_eq!(it.lost(UNA, nxt, MSS, 1000), None);
        assert_eq!(it.perhaps_lost(UNA, nxt, MSS, 1000), Some(block(9, 10)));
        it.on_sent_again(block(9, 10));
        assert_eq!(it.perhaps_lost(UNA, nxt, MSS, 1000), None);
        assert_eq!(it.on_advance(UNA + 4 * MSS, 4 * MSS, MSS), Progress::Partial);
        assert_eq!(it.on_advance(nxt, 6 * MSS, MSS), Progress::Repaired);
    }

    #[test]
    fn without_sack_each_partial_acknowledgment_repairs_a_segment() {
        let (mut it, nxt) = (Recovery::new(UNA - 1), UNA + 10 * MSS);
        assert!(!it.on_duplicate(UNA, nxt, MSS));
        assert_eq!(it.room(10 * MSS, UNA, nxt, MSS), MSS); // limited transmit
        assert!(!it.on_duplicate(UNA, nxt, MSS));
        assert_eq!(it.room(10 * MSS, UNA, nxt, MSS), 2 * MSS);
        assert!(it.on_duplicate(UNA, nxt, MSS));
        assert_eq!(it.lost(UNA, nxt, MSS, 0), Some(block(0, 1)));
        it.on_sent_again(block(0, 1));
        assert_eq!(it.lost(UNA, nxt, MSS, 1000), None);
        // Half a window, inflated by three, has no room; six duplicates more make some.
        assert_eq!(it.room(5 * MSS, UNA, nxt, MSS), 0);
        (0..6).for_each(|_| assert!(!it.on_duplicate(UNA, nxt, MSS)));
        assert_eq!(it.room(5 * MSS, UNA, nxt, MSS), 4 * MSS);
        let una = UNA + 4 * MSS;
        assert_eq!(it.on_advance(una, 4 * MSS, MSS), Progress::Partial);
        assert_eq!(it.lost(una, nxt, MSS, 0), Some(block(4, 5)));
        assert_eq!(it.on_advance(nxt, 6 * MSS, MSS), Progress::Repaired);
    }

    #[test]
    fn after_a_timeout_all_that_is_missing_goes_again_and_what_was_sacked_does_not() {
        let (mut it, nxt) = (with_sack(), UNA + 5 * MSS);
        it.note([block(1, 2)].into_iter(), UNA, nxt);
        it.on_timeout(UNA, nxt, false);
        assert_eq!(it.pipe(UNA, nxt, MSS), 0);
        for expected in [block(0, 1), block(2, 3), block(3, 4), block(4, 5)] {
            assert_eq!(it.lost(UNA, nxt, MSS, MSS), Some(expected));
            it.on_sent_again(expected);
        }
        assert_eq!(it.lost(UNA, nxt, MSS, MSS), None);
        assert_eq!(it.pipe(UNA, nxt, MSS), 4 * MSS);
        // A second one does not believe the peer any more.
        it.on_timeout(UNA, nxt, true);
        it.on_sent_again(block(0, 1));
        assert_eq!(it.lost(UNA, nxt, MSS, MSS), Some(block(1, 2)));
        assert_eq!(it.on_advance(nxt, 5 * MSS, MSS), Progress::Open);
        assert_eq!(it.mode(), Mode::Open);
    }

    #[test]
    fn duplicates_of_what_a_timeout_has_sent_twice_begin_no_repair_without_sack() {
        let (mut it, nxt) = (Recovery::new(UNA - 1), UNA + 5 * MSS);
        it.on_timeout(UNA, nxt, false);
        it.on_advance(nxt, 5 * MSS, MSS);
        let una = nxt;
        assert!((0..9).all(|_| !it.on_duplicate(una, una + MSS, MSS)));
        it.on_advance(una + MSS, MSS, MSS);
        let una = una + MSS;
        assert_eq!((0..3).filter(|_| it.on_duplicate(una, una + 5 * MSS, MSS)).count(), 1);
    }
}
