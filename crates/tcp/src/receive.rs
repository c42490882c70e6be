//! The receiving half: references to what has arrived and was not taken, and when to acknowledge what.
//!
//! ```text
//! taken, or confirmed        next                                edge
//!      |-- in order, ready -->|-- to come; some has, out of order -->|
//!      |<------------------------ capacity ------------------------->|
//! ```
//!
//! How: what is offered is the capacity less what was not taken. The right edge moves only by as much as is worth telling (RFC 9293
//! §3.8.6.2.2). With acknowledgment on confirmation, what is acknowledged, and what is offered, follows what the client has confirmed.
//! Invariants: confirmed <= taken <= next, each of which is before the edge or at it; the edge never moves left. (The field of the header
//! may say less than the edge by what scaling rounds off; what it said before is still accepted: RFC 7323 §2.4.)
//! Source: RFC 9293 §3.8.6, RFC 5681 §4.2 (acknowledgments).

use std::collections::VecDeque;

use crate::config::Config;
use crate::payload::Payload;
use crate::reassembly::Reassembly;
use crate::sequence::Seq;

/// What became of a segment's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// It was the next, with nothing out of order behind it.
    InOrder,
    /// It was the next, and has filled a gap.
    Filled,
    /// It was not the next.
    OutOfOrder,
    /// Nothing of it was new, or there was no room for it.
    Nothing,
}

/// The variables and the queues of the receiving half.
#[derive(Debug)]
pub(crate) struct Receiving<P> {
    /// The first byte of the peer's stream.
    pub(crate) first: Seq,
    /// Behind what has arrived in order.
    next: Seq,
    taken: Seq,
    confirmed: Seq,
    edge: Seq,
    /// Where the peer's stream ends.
    fin: Option<Seq>,
    ready: VecDeque<P>,
    assembly: Reassembly<P>,
    capacity: u32,
    pieces: usize,
    confirming: bool,
    /// By how many bits the windows that are offered are shifted.
    pub(crate) shift: u8,
    /// What was acknowledged last: Last.ACK.sent.
    pub(crate) acknowledged: Seq,
    /// The longest data that has come in a segment.
    longest: u32,
    /// Whether an acknowledgment is due at once.
    pub(crate) ack_now: bool,
    /// How many more like it are due: without SACK, a peer counts duplicates.
    duplicates: u8,
}

impl<P: Payload> Receiving<P> {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            first: Seq(0),
            next: Seq(0),
            taken: Seq(0),
            confirmed: Seq(0),
            edge: Seq(0),
            fin: None,
            ready: VecDeque::new(),
            assembly: Reassembly::default(),
            capacity: config.receive_capacity.min(1 << 30),
            pieces: config.pieces.max(1),
            confirming: config.acknowledge_on_confirmation,
            shift: 0,
            acknowledged: Seq(0),
            longest: 0,
            ack_now: false,
            duplicates: 0,
        }
    }

    /// The peer's stream begins at `first`.
    pub(crate) fn begin(&mut self, first: Seq) {
        self.first = first;
        (self.next, self.taken, self.confirmed, self.acknowledged) = (first, first, first, first);
        self.edge = first + self.capacity.min(u32::from(u16::MAX));
    }

    /// Windows are shifted by so many bits: no more is offered than can be told.
    pub(crate) fn scale(&mut self, shift: u8) {
        self.shift = shift;
        self.capacity = self.capacity.min(u32::from(u16::MAX) << shift);
    }

    /// Up to where the peer's bytes are acknowledged, FIN included: RCV.NXT.
    pub(crate) fn acknowledgment(&self) -> Seq {
        self.safe() + u32::from(self.finished())
    }

    /// Whether everything that the peer sends was received, and confirmed where that is asked for.
    pub(crate) fn finished(&self) -> bool {
        self.fin == Some(self.safe())
    }

    /// Whether the client has taken everything that the peer sends.
    pub(crate) fn at_end(&self) -> bool {
        self.fin == Some(self.taken)
    }

    /// What the peer sends next, whether or not what came before it is confirmed.
    pub(crate) fn next(&self) -> Seq {
        self.next + u32::from(self.fin == Some(self.next))
    }

    fn safe(&self) -> Seq {
        if self.confirming { self.confirmed } else { self.next }
    }

    /// How many bytes the client can take.
    pub(crate) fn readable(&self) -> u32 {
        self.next.since(self.taken)
    }

    /// Whether anything has come out of order.
    pub(crate) fn has_gaps(&self) -> bool {
        !self.assembly.is_empty()
    }

    pub(crate) fn assembly(&self) -> &Reassembly<P> {
        &self.assembly
    }

    /// How much was received and not acknowledged.
    pub(crate) fn unacknowledged(&self) -> u32 {
        self.acknowledgment().saturating_since(self.acknowledged)
    }

    /// Whether as much was received as is acknowledged at once: two full segments, as long as the peer makes them (SHLD-19).
    pub(crate) fn two_segments_wait(&self) -> bool {
        self.unacknowledged() >= (2 * self.longest).max(1)
    }

    /// The window, as far as it was offered.
    pub(crate) fn window(&self) -> u32 {
        self.edge.saturating_since(self.acknowledgment())
    }

    /// Whether a segment is within the window (RFC 9293 §3.10.7.4, table 6).
    pub(crate) fn accepts(&self, seq: Seq, len: u32) -> bool {
        let (next, window) = (self.acknowledgment(), self.window());
        let within = |seq: Seq| !seq.before(next) && seq.before(next + window);
        match (len, window) {
            (0, 0) => seq == next,
            // Where the client has yet to confirm all that there was room for, the peer goes on behind that.
            (0, _) => within(seq) || seq == self.next(),
            (_, 0) => false,
            _ => within(seq) || within(seq + (len - 1)),
        }
    }

    /// Whether there is no room for what comes next.
    pub(crate) fn is_full(&self) -> bool {
        !self.next().before(self.edge)
    }

    /// Whether the peer may send beyond this: a FIN that changes its mind, or bytes behind it, are not taken.
    fn limit(&self) -> Seq {
        self.fin.map_or(self.edge, |fin| fin.earliest(self.edge))
    }

    /// Takes the data of an accepted segment, as far as it is new and within the window, and notes its FIN.
    pub(crate) fn take(&mut self, seq: Seq, payload: &[P], fin: bool) -> Arrival {
        let had_gaps = self.has_gaps();
        let before = self.next;
        let mut added = 0;
        let mut at = seq;
        for piece in payload {
            let (start, end) = (at, at + piece.len() as u32);
            at = end;
            let (from, to) = (start.latest(self.next), end.earliest(self.limit()));
            if from.before(to) {
                let part = || piece.part(from.since(start) as usize..to.since(start) as usize);
                let whole = from == start && to == end;
                added += self.add(from, if whole { piece.clone() } else { part() });
            }
        }
        self.longest = self.longest.max(at.since(seq).min(1 << 16));
        if fin && self.fin.is_none() && !at.before(self.next) && !at.after(self.edge) {
            self.fin = Some(at);
            added += 1;
        }
        match added {
            0 => Arrival::Nothing,
            _ if self.next == before && !self.finished() => Arrival::OutOfOrder,
            _ if had_gaps => Arrival::Filled,
            _ => Arrival::InOrder,
        }
    }

    fn add(&mut self, at: Seq, piece: P) -> u32 {
        if self.ready.len() >= self.pieces {
            return 0;
        }
        if at == self.next && self.assembly.is_empty() {
            let len = piece.len() as u32;
            self.next = at + len;
            self.ready.push_back(piece);
            return len;
        }
        // What comes next is always taken: what is out of order, and fills the room, waits for it.
        let next = if at == self.next { self.assembly.len() + 1 } else { 0 };
        let room = next.max(self.pieces - self.ready.len());
        let added = self.assembly.insert(at, &piece, room);
        while let Some(piece) = self.assembly.pop(self.next) {
            self.next = self.next + piece.len() as u32;
            self.ready.push_back(piece);
        }
        added
    }

    /// Gives the client a reference to the next bytes, at most `most` of them.
    pub(crate) fn receive(&mut self, most: usize) -> Option<P> {
        let front = self.ready.front_mut()?;
        let len = front.len();
        let given = if len <= most {
            self.ready.pop_front()?
        } else if most == 0 {
            return None;
        } else {
            let given = front.part(0..most);
            *front = front.part(most..len);
            given
        };
        if self.ready.is_empty() {
            self.ready = VecDeque::new(); // An idle connection keeps no memory.
        }
        self.taken = self.taken + given.len() as u32;
        Some(given)
    }

    /// How many bytes were taken and not confirmed.
    pub(crate) fn unconfirmed(&self) -> u32 {
        self.taken.since(self.confirmed)
    }

    /// The client has the next `bytes` safe; up to where.
    pub(crate) fn confirm(&mut self, bytes: u32) -> Seq {
        assert!(bytes <= self.unconfirmed(), "more is confirmed than was taken");
        self.confirmed = self.confirmed + bytes;
        self.confirmed
    }

    /// Forgets what was not confirmed: the peer sends it again.
    pub(crate) fn reject(&mut self) {
        (self.next, self.taken) = (self.confirmed, self.confirmed);
        self.ready = VecDeque::new();
    }

    /// The connection is over for the receiver: what is there is dropped.
    pub(crate) fn drop_all(&mut self) {
        self.ready = VecDeque::new();
        self.assembly.clear();
        (self.taken, self.confirmed) = (self.next, self.next);
    }

    /// A segment out of order is to be answered: together with others, if the peer learns from one answer what has come (MUST-58), and else
    /// by an answer for each (RFC 5681 §4.2), since three of them tell it of a loss.
    pub(crate) fn answer_out_of_order(&mut self, sack: bool) {
        if self.ack_now && !sack {
            self.duplicates = self.duplicates.saturating_add(1);
        }
        self.ack_now = true;
    }

    /// What the window would be if it were told now.
    fn target(&self) -> Seq {
        let consumed = if self.confirming { self.confirmed } else { self.taken };
        consumed + self.capacity
    }

    /// Whether the window has opened by so much that the peer is to be told without being asked: by half, or so that the peer can go on.
    pub(crate) fn update_due(&self, mss: u32) -> bool {
        let opened = self.target().saturating_since(self.edge);
        let step = mss.min(self.capacity / 2).max(1);
        let taken = self.taken != self.first; // What a SYN could not offer is no news before that.
        let much = opened >= (self.capacity / 2).max(1) && taken;
        self.fin.is_none() && (much || (self.window() < step && opened >= step))
    }

    /// The window's field of a segment that is about to be sent, which acknowledges all there is to be.
    pub(crate) fn offer(&mut self, mss: u32, syn: bool) -> u16 {
        let step = mss.min(self.capacity / 2).max(1);
        let target = self.target();
        let edge = if target.saturating_since(self.edge) >= step { target } else { self.edge };
        let shift = if syn { 0 } else { self.shift };
        let ack = self.acknowledgment();
        let field = (edge.saturating_since(ack) >> shift).min(u32::from(u16::MAX));
        self.edge = self.edge.latest(ack + (field << shift));
        self.acknowledged = ack;
        self.ack_now = self.duplicates > 0;
        self.duplicates = self.duplicates.saturating_sub(1);
        field as u16
    }

    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn check(&self) {
        assert!(!self.taken.after(self.next) && !self.confirmed.after(self.taken) || !self.confirming);
        let ready: usize = self.ready.iter().map(Payload::len).sum();
        assert_eq!(ready as u32, self.readable(), "what is ready");
        assert!(!self.next.after(self.edge), "more was taken than was offered");
        assert!(self.ready.len() + self.assembly.len() <= 2 * self.pieces, "more references than allowed");
        self.assembly.check(self.next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::payload::Shared;

    const FIRST: Seq = Seq(u32::MAX - 1);

    fn receiving(config: Config) -> Receiving<Shared> {
        let mut it = Receiving::new(&config);
        it.begin(FIRST);
        it
    }

    fn data(len: usize) -> [Shared; 1] {
        [Shared::new(vec![7; len])]
    }

    #[test]
    fn a_window_that_opens_by_little_is_not_told() {
        let mut it = receiving(Config { receive_capacity: 10_000, ..Config::default() });
        assert_eq!(it.offer(1000, false), 10_000);
        assert_eq!(it.take(FIRST, &data(10_000), false), Arrival::InOrder);
        assert_eq!(it.offer(1000, false), 0);
        it.receive(999);
        assert!(!it.update_due(1000));
        assert_eq!(it.offer(1000, false), 0);
        it.receive(1);
        assert!(it.update_due(1000));
        assert_eq!(it.offer(1000, false), 1000);
        it.receive(4999);
        assert!(!it.update_due(1000));
        it.receive(1);
        assert!(it.update_due(1000));
        it.check();
    }

    #[test]
    fn the_edge_that_was_offered_is_kept_whatever_scaling_rounds_off() {
        let mut it = receiving(Config { receive_capacity: 1 << 20, ..Config::default() });
        it.shift = 5;
        let field = it.offer(1460, false);
        let edge = it.acknowledgment() + (u32::from(field) << 5);
        let mut at = FIRST;
        for _ in 0..100 {
            it.take(at, &data(7), false);
            at = at + 7;
            let told = it.acknowledgment() + (u32::from(it.offer(1460, false)) << 5);
            assert!(!told.after(edge) && edge.since(told) < 32);
        }
        assert!(it.accepts(edge - 1, 1) && !it.accepts(edge, 1));
    }

    #[test]
    fn segments_are_accepted_by_the_four_rules() {
        let mut it = receiving(Config { receive_capacity: 100, ..Config::default() });
        for (seq, len, accepted) in
            [(FIRST, 0, true), (FIRST - 1, 0, false), (FIRST + 100, 0, false), (FIRST + 99, 0, true)]
        {
            assert_eq!(it.accepts(seq, len), accepted);
        }
        for (seq, len, accepted) in
            [(FIRST - 5, 5, false), (FIRST - 5, 6, true), (FIRST + 99, 50, true), (FIRST + 100, 1, false)]
        {
            assert_eq!(it.accepts(seq, len), accepted);
        }
        it.take(FIRST, &data(100), false);
        assert!(it.accepts(FIRST + 100, 0));
        assert!(!it.accepts(FIRST + 101, 0) && !it.accepts(FIRST + 100, 1));
    }

    #[test]
    fn nothing_is_taken_behind_a_fin_or_beyond_the_window() {
        let mut it = receiving(Config { receive_capacity: 100, ..Config::default() });
        assert_eq!(it.take(FIRST + 90, &data(20), false), Arrival::OutOfOrder);
        assert_eq!(it.assembly().blocks()[0].map(|it| it.end), Some(FIRST + 100));
        assert_eq!(it.take(FIRST + 50, &data(0), true), Arrival::OutOfOrder);
        assert_eq!(it.take(FIRST + 40, &data(20), true), Arrival::OutOfOrder);
        assert_eq!(it.take(FIRST, &data(40), false), Arrival::Filled);
        assert!(it.finished() && !it.at_end());
        assert_eq!(it.acknowledgment(), FIRST + 51);
        assert_eq!(it.readable(), 50);
    }

    #[test]
    fn what_comes_next_is_taken_though_what_is_out_of_order_fills_the_room() {
        let mut it = receiving(Config { pieces: 3, ..Config::default() });
        for at in [10, 20, 30, 40] {
            it.take(FIRST + at, &data(10), false);
        }
        assert_eq!(it.assembly().len(), 3);
        assert_eq!(it.take(FIRST, &data(10), false), Arrival::Filled);
        assert_eq!(it.readable(), 40);
        assert_eq!(it.take(FIRST + 40, &data(10), false), Arrival::Nothing); // until the client takes some
        it.check();
        it.receive(10);
        it.receive(10);
        assert_eq!(it.take(FIRST + 40, &data(10), false), Arrival::InOrder);
    }

    #[test]
    fn what_is_rejected_is_as_if_it_had_not_come() {
        let mut it = receiving(Config { acknowledge_on_confirmation: true, ..Config::default() });
        it.take(FIRST, &data(100), false);
        assert_eq!(it.acknowledgment(), FIRST);
        it.receive(60);
        it.confirm(60);
        assert_eq!(it.acknowledgment(), FIRST + 60);
        it.receive(40);
        it.reject();
        it.check();
        assert_eq!((it.acknowledgment(), it.readable()), (FIRST + 60, 0));
        assert_eq!(it.take(FIRST + 50, &data(50), true), Arrival::InOrder);
        it.receive(40);
        assert!(!it.finished());
        it.confirm(40);
        assert!(it.finished());
    }
}
