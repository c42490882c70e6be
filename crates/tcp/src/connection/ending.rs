//! How a connection ends.
//!
//! Source: RFC 9293 §3.6, §3.10.4, §3.10.5; RFC 1337; messages of ICMP: RFC 9293 §3.9.2.2, RFC 5927.

use super::{Connection, State};
use crate::config::Config;
use crate::event::{Ended, Event, Unreachable};
use crate::payload::Payload;
use crate::segment::{Flags, Header};
use crate::sequence::Seq;
use crate::timers::{Time, Timer};

impl<P: Payload> Connection<P> {
    /// Sends no more: FIN follows what is queued. What the peer sends is still received (RFC 9293 §3.6.1).
    pub fn finish(&mut self) {
        if !self.state.sends() || self.send.fin {
            return;
        }
        self.send.fin = true;
        match self.state {
            State::Established => self.state = State::FinWait1,
            State::CloseWait => self.state = State::LastAck,
            _ => (), // FIN follows the handshake.
        }
    }

    /// Sends no more, and receives no more. What is queued is sent. If something was not received, or comes later, the peer is told by a
    /// reset that it was lost (SHLD-3).
    pub fn close(&mut self, now: Time) {
        if self.state == State::SynSent {
            return self.end(Ended::Aborted);
        }
        self.deaf = true;
        if self.state == State::TimeWait {
            return self.receive.drop_all(); // The peer has its answer, and is gone.
        } else if self.receive.readable() > 0 {
            return self.abort(now);
        }
        self.finish();
        if self.state == State::FinWait2 {
            self.timers.set(Timer::Linger, now + 2 * self.config.msl);
        }
    }

    /// Gives the connection up: the peer is sent a reset, and everything queued is released.
    pub fn abort(&mut self, now: Time) {
        self.abort_as(Ended::Aborted, now);
    }

    pub(super) fn abort_as(&mut self, how: Ended, now: Time) {
        if self.state.is_synchronized() && self.state != State::TimeWait || self.state == State::SynReceived {
            let flags = Flags { rst: true, ack: true, ..Flags::default() };
            let ack = self.receive.acknowledgment();
            let options = self.options(now, false);
            self.due.reset = Some(Header { seq: self.send.nxt, ack, flags, window: 0, options });
        }
        self.end(how);
    }

    /// The connection is over. A reset that is due is still sent.
    pub(super) fn end(&mut self, how: Ended) {
        if self.state == State::Closed {
            return;
        }
        self.state = State::Closed;
        self.finished_with(how);
        self.timers.stop_all();
    }

    /// Both sides have sent all (RFC 9293 §3.6): old segments are waited for (MUST-13).
    pub(super) fn time_wait(&mut self, now: Time) {
        self.state = State::TimeWait;
        self.finished_with(Ended::Closed);
        self.timers.stop_all();
        self.linger(now);
    }

    pub(super) fn linger(&mut self, now: Time) {
        self.timers.set(Timer::Linger, now + 2 * self.config.msl);
    }

    /// Whether this connection lingers, and a SYN begins the next one on its path: it is newer by its timestamp, or by its sequence number
    /// (MAY-2, RFC 6191 §2).
    pub(crate) fn yields_to(&self, header: &Header) -> bool {
        let Flags { syn, ack, rst, .. } = header.flags;
        let newer = match (&self.clock, header.options.timestamps) {
            (Some(clock), Some(stamps)) if !clock.repeats(stamps.value) => clock.is_newer(stamps.value),
            _ => header.seq.after(self.receive.acknowledgment()),
        };
        self.state == State::TimeWait && syn && !ack && !rst && newer
    }

    /// The next connection on its path has come. Returns from where on that one may number its bytes.
    pub(crate) fn yield_now(&mut self) -> Seq {
        self.end(Ended::Closed);
        self.send.nxt + (1 << 16)
    }

    fn finished_with(&mut self, how: Ended) {
        if self.ended.is_none() {
            self.ended = Some(how);
            self.tell(Event::Ended(how));
        }
        self.send.release_all();
        self.recovery.end();
        self.due.syn = false;
        self.due.probe = false;
        self.due.keep_alive = false;
        self.timed = None;
        self.unverified.clear();
        if self.deaf {
            self.receive.drop_all();
        }
    }

    /// A message of ICMP says that a segment with sequence number `seq` did not arrive. If nothing like it is under way, the message is made
    /// up (RFC 5927 §4.1), and ignored. Messages of other kinds, source quench among them, are not for TCP (MUST-55).
    pub fn on_unreachable(&mut self, what: Unreachable, seq: Seq) {
        let under_way = !seq.before(self.send.una) && seq.before(self.send.nxt);
        if !under_way || self.state == State::Closed {
            return self.drop_segment();
        }
        match what {
            Unreachable::Hard if !self.state.is_synchronized() => self.end(Ended::NoRoute),
            _ => self.tell(Event::Unreachable(what)),
        }
    }

    /// A router says that a segment with sequence number `seq` was longer than the packets of `mtu` bytes that it can pass on: segments are
    /// shorter from now on, and what is under way is sent again (RFC 1191, RFC 8201).
    pub fn on_packet_too_big(&mut self, mtu: u16, seq: Seq) {
        let under_way = !seq.before(self.send.una) && seq.before(self.send.nxt);
        let mss = u32::from(Config::path_mss(self.v6, mtu));
        if !under_way || mss >= self.send.mss || !self.state.is_synchronized() {
            return self.drop_segment();
        }
        self.send.mss = mss;
        self.congestion.shorten_segments(self.smss());
        self.timed = None;
        self.recovery.send_again(self.send.una, self.send.nxt);
    }
}
