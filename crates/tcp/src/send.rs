//! The sending half: references to what was sent and is not acknowledged, and to what is yet to be sent.
//!
//! How: the references lie in a queue in the order in which they were given; a segment is a part of it. What is acknowledged leaves it at the
//! front, whole references at a time, which go back to the client.
//! Invariants: una <= nxt <= end (+ 1 for FIN); the queue holds the bytes from una, or from up to a reference before it, to `end`.
//! Source: RFC 9293 §3.3.1, §3.8.6.2.1.

use std::collections::VecDeque;

use crate::payload::{Payload, Pieces};
use crate::sequence::Seq;

/// How much may be queued: what sequence numbers allow.
pub(crate) const QUEUE_MOST: u32 = 1 << 30;

/// The variables and the queue of the sending half, by their names in RFC 9293.
#[derive(Debug)]
pub(crate) struct Sending<P> {
    pub(crate) iss: Seq,
    pub(crate) una: Seq,
    pub(crate) nxt: Seq,
    /// SND.WND, scaled.
    pub(crate) window: u32,
    wl1: Seq,
    wl2: Seq,
    /// MAX.SND.WND.
    pub(crate) window_most: u32,
    /// By how many bits the peer's windows are shifted.
    pub(crate) shift: u8,
    /// The longest data of a segment without options.
    pub(crate) mss: u32,
    /// Whether FIN comes after the queue.
    pub(crate) fin: bool,
    queue: VecDeque<(Seq, P)>,
    /// Behind the last byte that was queued.
    end: Seq,
    released: VecDeque<P>,
}

impl<P: Payload> Sending<P> {
    pub(crate) fn new(iss: Seq, mss: u32) -> Self {
        Self {
            iss,
            una: iss,
            nxt: iss,
            window: 0,
            wl1: Seq(0),
            wl2: Seq(0),
            window_most: 0,
            shift: 0,
            mss,
            fin: false,
            queue: VecDeque::new(),
            end: iss + 1,
            released: VecDeque::new(),
        }
    }

    /// Behind the last byte that was queued; FIN's number, if it was.
    pub(crate) fn end(&self) -> Seq {
        self.end
    }

    /// How many sequence numbers are under way.
    pub(crate) fn flight(&self) -> u32 {
        self.nxt.since(self.una)
    }

    /// How many bytes are yet to be sent for the first time.
    pub(crate) fn unsent(&self) -> u32 {
        self.end.saturating_since(self.nxt)
    }

    /// Whether FIN is yet to be sent for the first time.
    pub(crate) fn fin_unsent(&self) -> bool {
        self.fin && !self.nxt.after(self.end)
    }

    /// Whether FIN was acknowledged.
    pub(crate) fn fin_acknowledged(&self) -> bool {
        self.fin && self.una.after(self.end)
    }

    /// How many bytes are queued, sent or not.
    pub(crate) fn queued(&self) -> u32 {
        self.end.saturating_since(self.una)
    }

    /// How much more the peer takes: the usable window, nothing where it has shrunk below what is under way (MUST-34).
    pub(crate) fn usable(&self) -> u32 {
        (self.una + self.window).saturating_since(self.nxt)
    }

    /// Queues a reference. One to nothing is released at once.
    pub(crate) fn push(&mut self, payload: P) {
        if payload.is_empty() {
            self.released.push_back(payload);
            return;
        }
        let start = self.end;
        self.end = start + payload.len() as u32;
        self.queue.push_back((start, payload));
    }

    /// Everything before `una` is acknowledged.
    pub(crate) fn advance(&mut self, una: Seq) {
        self.una = una;
        while let Some((start, payload)) = self.queue.pop_front() {
            if (start + payload.len() as u32).after(una) {
                self.queue.push_front((start, payload));
                return;
            }
            self.released.push_back(payload);
        }
        self.queue = VecDeque::new(); // An idle connection keeps no memory.
    }

    /// The connection is over: every reference goes back.
    pub(crate) fn release_all(&mut self) {
        self.released.extend(self.queue.drain(..).map(|(_, payload)| payload));
        if self.end.after(self.nxt) {
            (self.end, self.fin) = (self.nxt, false);
        }
    }

    pub(crate) fn pop_released(&mut self) -> Option<P> {
        self.released.pop_front()
    }

    /// References to `len` bytes from `from`, all of which are queued; to less where that would take more than `most` references.
    pub(crate) fn gather(&self, from: Seq, len: u32, most: usize) -> Pieces<P> {
        let mut pieces = Pieces::new();
        let first = self.queue.partition_point(|(start, _)| !start.after(from)).saturating_sub(1);
        let (mut at, mut left) = (from, len);
        for (start, payload) in self.queue.range(first..).take(most.max(1)) {
            if left == 0 {
                break;
            }
            let skip = at.since(*start);
            let take = left.min(payload.len() as u32 - skip);
            pieces.push(if take as usize == payload.len() {
                payload.clone()
            } else {
                payload.part(skip as usize..(skip + take) as usize)
            });
            at = at + take;
            left -= take;
        }
        pieces
    }

    /// Takes the window that a segment offers, unless an older one (RFC 9293 §3.10.7.4, fifth). Whether it was taken.
    pub(crate) fn update_window(&mut self, seq: Seq, ack: Seq, window: u32) -> bool {
        if self.wl1.before(seq) || (self.wl1 == seq && !self.wl2.after(ack)) {
            self.set_window(seq, ack, window);
            return true;
        }
        false
    }

    pub(crate) fn set_window(&mut self, seq: Seq, ack: Seq, window: u32) {
        (self.window, self.wl1, self.wl2) = (window, seq, ack);
        self.window_most = self.window_most.max(window);
    }

    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn check(&self) {
        assert!(!self.una.after(self.nxt), "more is acknowledged than was sent");
        assert!(!self.nxt.after(self.end + u32::from(self.fin)), "more was sent than is queued");
        let mut at = self.queue.front().map_or(self.end, |(start, _)| *start);
        let syn = u32::from(self.una == self.iss);
        assert!(!at.after(self.una + syn), "what is not acknowledged was released");
        for (start, payload) in &self.queue {
            assert_eq!(*start, at, "a gap in the queue");
            at = at + payload.len() as u32;
            assert!(at.after(self.una), "a reference was kept that is acknowledged");
        }
        assert_eq!(at, self.end, "the end of the queue");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::payload::Shared;

    fn sending(texts: &[&[u8]]) -> Sending<Shared> {
        let mut it = Sending::new(Seq(u32::MAX - 3), 100);
        texts.iter().for_each(|text| it.push(Shared::new(*text)));
        it
    }

    fn bytes(pieces: &[Shared]) -> Vec<u8> {
        pieces.concat_bytes()
    }

    trait Concat {
        fn concat_bytes(&self) -> Vec<u8>;
    }
    impl Concat for [Shared] {
        fn concat_bytes(&self) -> Vec<u8> {
            self.iter().flat_map(|piece| piece.bytes().to_vec()).collect()
        }
    }

    #[test]
    fn a_segment_is_a_part_of_the_queue_across_references() {
        let it = sending(&[b"abc", b"defg", b"hi"]);
        let from = it.iss + 1;
        assert_eq!(bytes(&it.gather(from, 9, 16)), b"abcdefghi");
        assert_eq!(bytes(&it.gather(from + 2, 3, 16)), b"cde");
        assert_eq!(bytes(&it.gather(from + 3, 4, 16)), b"defg");
        assert_eq!(bytes(&it.gather(from + 1, 8, 2)), b"bcdefg");
        assert!(it.gather(from + 9, 0, 16).is_empty());
    }

    #[test]
    fn references_come_back_whole_when_all_of_them_is_acknowledged() {
        let mut it = sending(&[b"abc", b"", b"defg"]);
        let from = it.iss + 1;
        assert_eq!(it.pop_released().map(|it| it.len()), Some(0));
        it.nxt = it.end();
        it.advance(from + 2);
        assert!(it.pop_released().is_none());
        it.advance(from + 5);
        assert_eq!(it.pop_released().expect("abc").bytes(), b"abc");
        assert!(it.pop_released().is_none());
        it.check();
        it.release_all();
        assert_eq!(it.pop_released().expect("the rest").bytes(), b"defg");
    }

    #[test]
    fn a_window_of_an_older_segment_is_not_taken_and_one_that_shrinks_leaves_nothing_usable() {
        let mut it = sending(&[b"0123456789"]);
        it.set_window(Seq(10), it.una, 8);
        it.nxt = it.una + 7;
        assert_eq!(it.usable(), 1);
        assert!(!it.update_window(Seq(9), it.una, 50));
        assert!(!it.update_window(Seq(10), it.una - 1, 50));
        assert!(it.update_window(Seq(10), it.una, 3));
        assert_eq!((it.usable(), it.window_most), (0, 8));
    }
}
