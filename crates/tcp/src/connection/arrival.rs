//! What a segment does that has arrived.
//!
//! How: in the order of RFC 9293 §3.10.7: sequence number, RST, SYN, ACK, data, FIN; before the first, timestamps (RFC 7323 §5.3). What is
//! answered is noted, and sent by [`poll_transmit`](Connection::poll_transmit): so many segments that come at once are answered by one
//! acknowledgment (MUST-58, MUST-59).
//! Trust: a segment that is not acceptable changes nothing but counters, and is answered at most twice a second if it has no data.

use std::time::Duration;

use super::{Connection, State};
use crate::event::{Ended, Event};
use crate::payload::Payload;
use crate::receive::Arrival;
use crate::segment::{Header, Segment, reset_for};
use crate::timers::{Time, Timer};

/// How long an acknowledgment may be delayed (RFC 9293 §3.8.6.3).
const ACK_DELAY_MOST: Duration = Duration::from_millis(499);

impl<P: Payload> Connection<P> {
    /// Takes a segment whose checksum is right.
    ///
    /// Shape: references to data that is kept are clones of the segment's, or parts of them.
    pub fn on_segment(&mut self, segment: &Segment<P>, now: Time) {
        self.counters.segments_in += 1;
        match self.state {
            State::Closed => (),
            State::SynSent => self.on_segment_syn_sent(segment, now),
            _ => self.on_segment_otherwise(segment, now),
        }
    }

    /// RFC 9293 §3.10.7.3.
    fn on_segment_syn_sent(&mut self, segment: &Segment<P>, now: Time) {
        let Header { ack, flags, window, .. } = segment.header;
        let acknowledges = flags.ack && ack.after(self.send.una) && !ack.after(self.send.nxt);
        if flags.ack && !acknowledges {
            self.drop_segment();
            self.due.reset = reset_for(segment);
        } else if flags.rst {
            // No sequence number is known yet that RFC 5961 could compare.
            if acknowledges {
                self.end(Ended::Refused);
            }
        } else if flags.syn {
            self.take_syn(&segment.header, now);
            if acknowledges {
                self.receive.ack_now = true;
                self.take_first_data(segment);
                self.establish(&segment.header, u32::from(window), now);
            } else {
                // A simultaneous open (MUST-10).
                self.state = State::SynReceived;
                self.due.syn = true;
                self.take_first_data(segment);
            }
        } else {
            self.drop_segment();
        }
    }

    /// RFC 9293 §3.10.7.4.
    fn on_segment_otherwise(&mut self, segment: &Segment<P>, now: Time) {
        let mut header = segment.header;
        if self.state == State::SynReceived && header.flags.syn && header.seq + 1 == self.receive.first {
            if !header.flags.ack {
                // The peer has not had this side's SYN.
                self.due.syn |= self.may_challenge(now);
                return;
            }
            // The other half of a simultaneous open.
            header.seq = header.seq + 1;
            header.flags.syn = false;
        }
        if !self.accepts(&header, segment, now) {
            return self.drop_segment();
        }
        if let (Some(clock), Some(stamps)) = (&mut self.clock, header.options.timestamps) {
            clock.note(stamps.value, header.seq, self.receive.acknowledged, now);
        }
        if header.flags.rst {
            return self.on_reset(&header, now);
        }
        if !header.flags.ack || !self.accepts_acknowledgment(segment, now) {
            return self.drop_segment();
        }
        if self.state == State::SynReceived {
            self.establish(&header, self.scaled_window(&header), now);
        }
        self.heard(now);
        self.on_acknowledgment(&header, !segment.payload.is_empty(), now);
        self.acknowledge_fin(now);
        if self.state != State::Closed {
            self.on_data(&header, segment, now);
        }
    }

    /// Whether a segment is to be looked at: by its timestamps, its SYN and its sequence number. If not, it was answered.
    fn accepts(&mut self, header: &Header, segment: &Segment<P>, now: Time) -> bool {
        let Header { seq, flags, .. } = *header;
        let len = segment.data_len().min(1 << 30) as u32 + u32::from(flags.fin) + u32::from(flags.syn);
        let stray = len == 0 || flags.syn;
        if let (Some(clock), false) = (&self.clock, flags.rst) {
            match header.options.timestamps {
                // RFC 7323 §3.2: they are in each segment, or in none.
                None => return false,
                Some(stamps) if clock.is_old(stamps.value, now) => {
                    self.answer_unacceptable(stray, now);
                    return false;
                }
                Some(_) => (),
            }
        }
        if flags.syn && !flags.rst {
            // RFC 5961 §4.2, whatever the sequence number. To a listener's connection that is not yet established, an acceptable SYN says
            // that its peer has begun anew (RFC 9293 §3.10.7.4, fourth).
            if self.state == State::SynReceived && self.passive && self.receive.accepts(seq, len) {
                self.end(Ended::Reset);
            } else {
                self.challenge(now);
            }
            return false;
        }
        if self.receive.accepts(seq, len) {
            return true;
        }
        if self.receive.is_full() && seq == self.receive.next() {
            // A probe of a window that is shut: its data is not taken, and its acknowledgment is.
            self.receive.ack_now = true;
            return true;
        }
        if flags.rst {
            return false;
        }
        if self.state == State::TimeWait && flags.fin {
            self.linger(now);
        }
        self.answer_unacceptable(stray, now);
        false
    }

    /// An acknowledgment says what would be acceptable. What has no data is answered rarely, so that two ends that believe different things
    /// do not answer each other forever.
    fn answer_unacceptable(&mut self, stray: bool, now: Time) {
        if stray { self.challenge(now) } else { self.receive.ack_now = true }
    }

    /// RFC 9293 §3.10.7.4, second, with RFC 5961 §3.2.
    fn on_reset(&mut self, header: &Header, now: Time) {
        if self.state == State::TimeWait {
            return self.drop_segment(); // RFC 1337 §3: (F1)
        }
        if header.seq != self.receive.acknowledgment() && header.seq != self.receive.next() {
            self.drop_segment();
            return self.challenge(now);
        }
        self.end(match self.state {
            State::SynReceived if !self.passive => Ended::Refused,
            State::Closing | State::LastAck => Ended::Closed,
            _ => Ended::Reset,
        });
    }

    /// RFC 9293 §3.10.7.4, fifth, with RFC 5961 §5.2. If it is not acceptable, it was answered.
    pub(super) fn accepts_acknowledgment(&mut self, segment: &Segment<P>, now: Time) -> bool {
        let ack = segment.header.ack;
        let (una, nxt) = (self.send.una, self.send.nxt);
        if self.state == State::SynReceived {
            let acceptable = ack.after(una) && !ack.after(nxt);
            if !acceptable {
                self.due.reset = reset_for(segment);
            }
            return acceptable;
        }
        let acceptable = !ack.after(nxt) && !ack.before(una - self.send.window_most);
        if !acceptable {
            self.challenge(now);
        }
        acceptable
    }

    /// RFC 9293 §3.10.7.4, seventh and eighth.
    fn on_data(&mut self, header: &Header, segment: &Segment<P>, now: Time) {
        if !self.state.receives() || (segment.payload.is_empty() && !header.flags.fin) {
            return;
        }
        let behind = header.seq + segment.data_len() as u32;
        if self.deaf && behind.after(self.receive.next()) {
            // The client has closed, and takes no more: the peer is told that data was lost (SHLD-3).
            return self.abort(now);
        }
        let before = self.receive.readable();
        let arrival = self.receive.take(header.seq, &segment.payload, header.flags.fin);
        if self.receive.readable() > before {
            self.tell(Event::Readable);
        }
        match arrival {
            // RFC 5681 §4.2: what is out of order, fills a gap, or was not new, is answered at once.
            Arrival::OutOfOrder => self.receive.answer_out_of_order(self.recovery.uses_sack()),
            Arrival::Filled | Arrival::Nothing => self.receive.ack_now = true,
            Arrival::InOrder => self.acknowledge_soon(now),
        }
        self.take_fin(now);
    }

    /// Acknowledges what has come in order: at once, if it is two segments, and else in a while (MUST-40, SHLD-18, SHLD-19).
    pub(super) fn acknowledge_soon(&mut self, now: Time) {
        let delay = self.config.ack_delay.min(ACK_DELAY_MOST);
        if delay.is_zero() || self.receive.two_segments_wait() {
            self.receive.ack_now = true;
        } else if self.receive.unacknowledged() > 0 {
            self.timers.arm(Timer::Acknowledge, now + delay);
        }
    }

    /// The peer's FIN, and everything before it, has come: RFC 9293 §3.10.7.4, eighth.
    pub(super) fn take_fin(&mut self, now: Time) {
        if self.peer_finished || !self.receive.finished() || !self.state.is_synchronized() {
            return;
        }
        self.peer_finished = true;
        self.receive.ack_now = true;
        self.tell(Event::Readable);
        self.tell(Event::PeerFinished);
        match self.state {
            State::Established => self.state = State::CloseWait,
            State::FinWait1 => self.state = State::Closing,
            State::FinWait2 => self.time_wait(now),
            _ => (),
        }
    }

    /// Something has come from the peer.
    pub(super) fn heard(&mut self, now: Time) {
        if let (Some(keep_alive), true) = (self.config.keep_alive, self.state.is_synchronized()) {
            self.timers.set(Timer::Idle, now + keep_alive.idle);
            self.due.keep_alive = false;
            if self.send.flight() == 0 {
                self.unanswered = 0;
            }
        }
    }

    pub(super) fn scaled_window(&self, header: &Header) -> u32 {
        u32::from(header.window) << self.send.shift
    }

    pub(super) fn drop_segment(&mut self) {
        self.counters.dropped += 1;
    }
}
