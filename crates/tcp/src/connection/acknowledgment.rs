//! What the acknowledgment does that a segment carries: what was sent is released, the window moves, losses are found.
//!
//! Source: RFC 9293 §3.10.7.4, fifth; RFC 5681 §2 (what is a duplicate) and §3; RFC 6675 §5; RFC 6298 §3 and §5; RFC 7323 §4.

use super::{Connection, State};
use crate::congestion::Acked;
use crate::event::Ended;
use crate::payload::Payload;
use crate::recovery::Progress;
use crate::segment::Header;
use crate::timers::{Time, Timer};

impl<P: Payload> Connection<P> {
    /// Takes the acknowledgment of an acceptable segment, with data or without.
    pub(super) fn on_acknowledgment(&mut self, header: &Header, data: bool, now: Time) {
        let Header { seq, ack, .. } = *header;
        let una = self.send.una;
        if ack.before(una) {
            return; // An old one; its window is older still.
        }
        let window = self.scaled_window(header);
        let same_window = window == self.send.window;
        let flight = self.send.flight();
        let acked = ack.since(una);
        if acked > 0 {
            self.on_advance(header, acked, flight, now);
        }
        let told = self.recovery.note(header.options.sack.into_iter().flatten(), ack, self.send.nxt);
        // With SACK, a duplicate is what tells of a byte that has newly arrived (RFC 6675 §2). What a shut window says answers probes.
        let plain = !data && same_window && window > 0 && !header.flags.fin && flight > 0;
        let duplicate = acked == 0 && if self.recovery.uses_sack() { told } else { plain };
        if duplicate && self.recovery.on_duplicate(ack, self.send.nxt, self.smss()) {
            self.counters.losses += 1;
            self.congestion.on_loss(flight);
        }
        let was_shut = self.send.window == 0;
        if self.send.update_window(seq, ack, window) {
            self.on_window(was_shut);
        }
        if self.send.flight() > self.send.window {
            // The peer is alive, and has no room for what was sent, or for a probe: that does not time out (SHLD-17, MUST-37).
            self.postpone_giving_up(now);
        }
    }

    fn on_advance(&mut self, header: &Header, acked: u32, flight: u32, now: Time) {
        let ack = header.ack;
        self.measure(header, now);
        let data = ack.earliest(self.send.end()).saturating_since(self.send.una);
        self.counters.acknowledged += u64::from(data);
        self.send.advance(ack);
        self.unanswered = 0;
        self.postpone_giving_up(now);
        self.timers.stop(Timer::Retransmit);
        if self.send.flight() > 0 {
            self.timers.set(Timer::Retransmit, now + self.rtt.timeout());
        } else {
            self.timers.stop(Timer::GiveUp);
        }
        let smss = self.smss();
        match self.recovery.on_advance(ack, acked, smss) {
            Progress::Open => {
                let rtt = self.rtt.smoothed().unwrap_or_default();
                // In slow start a window counts as full when half of it is used, since it doubles in a round trip.
                let slow_start = self.congestion.window() < self.congestion.threshold();
                let used = if slow_start { flight.saturating_mul(2) } else { flight.saturating_add(smss) };
                let window_was_full = self.window_was_full || used >= self.congestion.window();
                self.congestion.on_ack(Acked { bytes: acked, window_was_full, rtt, now });
            }
            Progress::Partial => (),
            Progress::Repaired if self.recovery.uses_sack() => (),
            Progress::Repaired => self.congestion.deflate(self.send.flight()),
        }
        self.window_was_full = false;
    }

    /// Takes a round-trip time: that of what is timed; of what was sent twice only by its timestamp (RFC 6298 §3, MUST-18).
    pub(super) fn measure(&mut self, header: &Header, now: Time) {
        if let Some((until, since)) = self.timed {
            if !header.ack.before(until) {
                self.timed = None;
                self.rtt.sample(now.saturating_sub(since));
            }
        } else if let (Some(clock), Some(stamps)) = (&self.clock, header.options.timestamps)
            && let Some(rtt) = clock.since(stamps.echo, now)
        {
            self.rtt.sample(rtt);
        }
    }

    fn on_window(&mut self, was_shut: bool) {
        if self.send.window == 0 {
            self.unanswered = 0; // The peer answers probes.
            return;
        }
        self.timers.stop(Timer::Persist);
        self.due.probe = false;
        self.probes = 0;
        if was_shut && self.send.flight() > 0 {
            // What was sent as a probe was not taken.
            self.timed = None;
            self.recovery.send_again(self.send.una, self.send.nxt);
        }
    }

    pub(super) fn postpone_giving_up(&mut self, now: Time) {
        if self.timers.is_set(Timer::GiveUp) {
            self.timers.set(Timer::GiveUp, now + self.config.user_timeout);
        }
    }

    /// This side's FIN may have been acknowledged.
    pub(super) fn acknowledge_fin(&mut self, now: Time) {
        if !self.send.fin_acknowledged() {
            return;
        }
        match self.state {
            State::FinWait1 => {
                self.state = State::FinWait2;
                if self.deaf {
                    self.timers.set(Timer::Linger, now + 2 * self.config.msl);
                }
            }
            State::Closing => self.time_wait(now),
            State::LastAck => self.end(Ended::Closed),
            _ => (),
        }
    }
}
