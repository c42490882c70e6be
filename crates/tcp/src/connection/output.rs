//! What is sent next.
//!
//! How: one segment a call: a reset, a SYN, what was lost, what is new, a probe, or else an acknowledgment alone. Each carries the
//! acknowledgment, the window and the options of the moment.
//! Source: RFC 9293 §3.8.6.2.1 (when to send: Nagle, silly windows) and §3.8.6.3; RFC 6675 §5; RFC 9293 §3.8.4 and §3.8.6.1 (probes).

use super::{Connection, State};
use crate::options::{Block, Options};
use crate::payload::{Payload, Pieces, len_of};
use crate::recovery::Mode;
use crate::segment::{Flags, Header, Segment};
use crate::sequence::Seq;
use crate::timers::{Time, Timer};

impl<P: Payload> Connection<P> {
    /// The next segment to be sent, if there is one.
    ///
    /// Shape: its references are clones of those that were given to [`send`](Self::send), or parts of them. Whoever sends it makes its
    /// checksum. A segment that cannot be sent may be dropped, as on any network.
    pub fn poll_transmit(&mut self, now: Time) -> Option<Segment<P>> {
        let segment = match self.state {
            _ if self.due.reset.is_some() => self.due.reset.take().map(Segment::bare),
            State::Closed => None,
            State::SynSent | State::SynReceived => {
                self.next_syn(now).or_else(|| self.next_acknowledgment(now))
            }
            _ => self
                .next_lost(now)
                .or_else(|| self.next_new(now))
                .or_else(|| self.next_perhaps_lost(now))
                .or_else(|| self.next_probe(now))
                .or_else(|| self.next_acknowledgment(now)),
        }?;
        self.counters.segments_out += 1;
        Some(segment)
    }

    fn next_syn(&mut self, now: Time) -> Option<Segment<P>> {
        if !std::mem::take(&mut self.due.syn) {
            return None;
        }
        let again = self.send.nxt.after(self.send.iss);
        self.counters.retransmitted += u64::from(again);
        self.timed = (!again).then_some((self.send.iss + 1, now));
        self.send.nxt = self.send.iss + 1;
        self.await_acknowledgment(now);
        let answer = self.state == State::SynReceived;
        let options = self.syn_options(now);
        let flags = Flags { syn: true, ack: answer, ..Flags::default() };
        let ack = if answer { self.receive.acknowledgment() } else { Seq(0) };
        let window = if answer { self.receive.offer(self.send.mss, true) } else { self.first_window() };
        Some(Segment::bare(Header { seq: self.send.iss, ack, flags, window, options }))
    }

    /// What is offered before the peer's stream has begun.
    fn first_window(&self) -> u16 {
        self.config.receive_capacity.min(u32::from(u16::MAX)) as u16
    }

    fn next_lost(&mut self, now: Time) -> Option<Segment<P>> {
        if self.recovery.mode() == Mode::Open {
            return None;
        }
        let room = self.congestion_room();
        let mss = self.segment_room(self.options(now, true).len());
        let lost = self.recovery.lost(self.send.una, self.send.nxt, mss, room)?;
        Some(self.send_again(lost, mss, now))
    }

    fn next_perhaps_lost(&mut self, now: Time) -> Option<Segment<P>> {
        if self.recovery.mode() != Mode::Fast {
            return None;
        }
        let mss = self.segment_room(self.options(now, true).len());
        let block = self.recovery.perhaps_lost(self.send.una, self.send.nxt, mss, self.congestion_room())?;
        Some(self.send_again(block, mss, now))
    }

    /// Sends a block again. If it is the last that was sent, and shorter than a segment, new data may go along (RFC 9293 §3.8.6).
    fn send_again(&mut self, block: Block, mss: u32, now: Time) -> Segment<P> {
        let last = block.end == self.send.nxt && self.send.window > 0;
        let more = if last { self.send.unsent().min(self.send.usable()) } else { 0 };
        let len = (block.end.earliest(self.send.end()).saturating_since(block.start) + more).min(mss);
        let pieces = self.send.gather(block.start, len, self.config.gather);
        let data_end = block.start + len_of(&pieces) as u32;
        let fin = self.send.fin && data_end == self.send.end() && block.end.after(self.send.end());
        let end = data_end + u32::from(fin);
        self.recovery.on_sent_again(Block { start: block.start, end: end.latest(block.start + 1) });
        self.timed = None; // Karn's algorithm.
        self.counters.retransmitted += 1;
        self.send.nxt = self.send.nxt.latest(end);
        self.await_acknowledgment(now);
        self.segment(block.start, pieces, fin, now)
    }

    fn congestion_room(&self) -> u32 {
        let (una, nxt) = (self.send.una, self.send.nxt);
        self.recovery.room(self.congestion.window(), una, nxt, self.smss())
    }

    fn next_new(&mut self, now: Time) -> Option<Segment<P>> {
        let (unsent, usable) = (self.send.unsent(), self.send.usable());
        if unsent == 0 {
            return if self.send.fin_unsent() { Some(self.send_new(0, now)) } else { None };
        }
        let idle = self.send.flight() == 0;
        if idle && now.saturating_sub(self.sent_at) > self.rtt.timeout() {
            self.congestion.after_idle();
        }
        let mss = self.segment_room(self.options(now, true).len());
        let len = unsent.min(usable).min(mss);
        if !self.is_worth_sending(len, mss) {
            if idle {
                self.timers.arm(Timer::Persist, now + self.rtt.timeout());
            }
            return None;
        }
        if self.congestion_room() < len {
            self.window_was_full = true;
            return None;
        }
        Some(self.send_new(len, now))
    }

    /// Whether so much is sent now, or waits for more (RFC 9293 §3.7.4 and §3.8.6.2.1: MUST-38, SHLD-7). All data is pushed (MUST-60).
    fn is_worth_sending(&self, len: u32, mss: u32) -> bool {
        let alone = self.send.flight() == 0 || !self.config.nagle;
        let all = len == self.send.unsent();
        len == mss
            || (len > 0 && all && (alone || self.send.fin))
            || (len > 0 && alone && len >= self.send.window_most / 2)
    }

    /// Sends the next `len` bytes, and FIN if nothing comes behind them.
    fn send_new(&mut self, len: u32, now: Time) -> Segment<P> {
        let start = self.send.nxt;
        let pieces = self.send.gather(start, len, self.config.gather);
        let data_end = start + len_of(&pieces) as u32;
        let fin = self.send.fin && data_end == self.send.end();
        self.send.nxt = data_end + u32::from(fin);
        if self.timed.is_none() {
            self.timed = Some((self.send.nxt, now));
        }
        self.timers.stop(Timer::Persist);
        self.await_acknowledgment(now);
        self.segment(start, pieces, fin, now)
    }

    fn next_probe(&mut self, now: Time) -> Option<Segment<P>> {
        if std::mem::take(&mut self.due.keep_alive) {
            // What was acknowledged long ago, so that the peer answers (SHLD-12).
            return Some(self.segment(self.send.una - 1, Pieces::new(), false, now));
        }
        if !std::mem::take(&mut self.due.probe) {
            return None;
        }
        self.timed = None;
        let (una, nxt) = (self.send.una, self.send.nxt);
        if nxt.after(una) {
            // The first byte that is not acknowledged, or FIN.
            let pieces = self.send.gather(una, self.send.queued().min(1), 1);
            let fin = pieces.is_empty();
            self.counters.retransmitted += 1;
            return Some(self.segment(una, pieces, fin, now));
        }
        let unsent = self.send.unsent();
        let mss = self.segment_room(self.options(now, true).len());
        let len = unsent.min(self.send.usable().max(1)).min(mss);
        if len == 0 {
            return None;
        }
        let pieces = self.send.gather(una, len, self.config.gather);
        self.send.nxt = una + len_of(&pieces) as u32;
        self.timers.arm(Timer::GiveUp, now + self.config.user_timeout);
        if self.send.window > 0 {
            self.await_acknowledgment(now);
        }
        Some(self.segment(una, pieces, false, now))
    }

    fn next_acknowledgment(&mut self, now: Time) -> Option<Segment<P>> {
        let update = self.state.is_synchronized() && !self.deaf && self.receive.update_due(self.send.mss);
        let due = self.receive.ack_now || update;
        (due && self.state != State::SynSent).then(|| self.segment(self.send.nxt, Pieces::new(), false, now))
    }

    /// The options of a segment that is not a SYN.
    pub(super) fn options(&self, now: Time, sack: bool) -> Options {
        let mut options =
            Options { timestamps: self.clock.map(|clock| clock.option(now)), ..Options::default() };
        if sack && self.recovery.uses_sack() && self.receive.has_gaps() {
            options.sack = self.receive.assembly().blocks();
            if options.timestamps.is_some() {
                options.sack[3] = None; // There is no room for it.
            }
        }
        options
    }

    /// A segment with everything that each one carries.
    fn segment(&mut self, seq: Seq, payload: Pieces<P>, fin: bool, now: Time) -> Segment<P> {
        self.sent_at = if payload.is_empty() { self.sent_at } else { now };
        let options = self.options(now, true);
        let ack = self.receive.acknowledgment();
        let window = self.receive.offer(self.send.mss, false);
        self.timers.stop(Timer::Acknowledge);
        // MUST-61: the last of what is queued is pushed.
        let psh = !payload.is_empty() && seq + len_of(&payload) as u32 == self.send.end();
        let flags = Flags { ack: true, psh, fin, ..Flags::default() };
        Segment { header: Header { seq, ack, flags, window, options }, payload }
    }
}
