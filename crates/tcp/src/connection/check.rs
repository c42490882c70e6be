//! What holds of a connection at any time, whatever has arrived: for fuzzers and random tests.

use super::{Connection, State};
use crate::payload::Payload;
use crate::sequence::Seq;

impl<P: Payload> Connection<P> {
    /// Panics if something that holds at any time does not.
    pub fn check(&self) {
        self.receive.check();
        if self.state == State::Closed {
            assert!(self.ended.is_some(), "a connection that is over says how it ended");
            assert_eq!(self.timers.next(), None, "nothing more happens to a connection that is over");
            return;
        }
        self.send.check();
        self.recovery.check(self.send.una, self.send.nxt);
        assert!(self.congestion.window() >= self.smss().min(self.send.mss) / 2, "no segment may be sent");
        let waits = self.state.is_synchronized() && self.send.flight() > 0;
        assert!(!waits || self.timers.next().is_some(), "something is under way, and no timer runs");
        assert_eq!(self.peer_finished, self.receive.finished() && self.state.is_synchronized());
    }

    /// The sequence number of the peer's first byte.
    pub(crate) fn peers_first(&self) -> Seq {
        self.receive.first
    }
}
