//! What happens as time passes.
//!
//! Source: RFC 9293 §3.8.3, §3.8.4, §3.8.6.1 and §3.10.8; RFC 6298 §5; RFC 5681 §3.1.

use super::{Connection, State};
use crate::event::{Ended, Event};
use crate::payload::Payload;
use crate::timers::{Time, Timer};

impl<P: Payload> Connection<P> {
    /// Does what is due by now. May be called at any time.
    pub fn on_timeout(&mut self, now: Time) {
        while let Some(timer) = self.timers.due(now) {
            match timer {
                Timer::Retransmit => self.on_retransmission_timeout(now),
                Timer::Persist => self.probe(now),
                Timer::GiveUp => self.give_up(now),
                Timer::Acknowledge => self.receive.ack_now = true,
                Timer::Idle => self.on_idle(now),
                Timer::Linger => self.end(Ended::Closed),
            }
        }
    }

    fn on_retransmission_timeout(&mut self, now: Time) {
        self.timed = None;
        if matches!(self.state, State::SynSent | State::SynReceived) {
            self.due.syn = true;
            self.syn_sent_again = true;
        } else if self.send.flight() == 0 {
            return;
        } else if self.send.window == 0 && self.send.queued() > 0 {
            return self.probe(now);
        } else {
            self.counters.timeouts += 1;
            let (una, nxt) = (self.send.una, self.send.nxt);
            self.congestion.on_timeout(self.send.flight(), self.unanswered == 0);
            self.recovery.on_timeout(una, nxt, self.unanswered > 0);
        }
        self.rtt.back_off();
        self.timers.set(Timer::Retransmit, now + self.rtt.timeout());
        self.count_unanswered();
    }

    /// Asks the peer whether its window is still shut; the next time in twice as long (SHLD-29, SHLD-30).
    fn probe(&mut self, now: Time) {
        if self.send.queued() == 0 || (self.send.window > 0 && self.send.flight() > 0) {
            return;
        }
        self.due.probe = true;
        self.probes = (self.probes + 1).min(16);
        self.count_unanswered();
        let interval = (self.rtt.timeout() * (1 << self.probes)).min(self.config.rto_max);
        self.timers.set(Timer::Persist, now + interval);
    }

    /// R1 of RFC 9293 §3.8.3 (SHLD-9).
    fn count_unanswered(&mut self) {
        self.unanswered += 1;
        if self.unanswered == self.config.retransmissions_told {
            self.tell(Event::Unresponsive);
        }
    }

    /// R2 of RFC 9293 §3.8.3 (MUST-20), or the user timeout. The peer is told, in case it hears.
    fn give_up(&mut self, now: Time) {
        if self.state.is_synchronized() {
            self.abort_as(Ended::TimedOut, now)
        } else {
            self.end(Ended::TimedOut)
        }
    }

    /// RFC 9293 §3.8.4: only if nothing is under way (MUST-26); what is under way is asked for anyway.
    fn on_idle(&mut self, now: Time) {
        let Some(keep_alive) = self.config.keep_alive else { return };
        if self.send.flight() > 0 || self.state == State::TimeWait {
            self.timers.set(Timer::Idle, now + keep_alive.idle);
        } else if self.unanswered >= keep_alive.probes {
            self.abort_as(Ended::TimedOut, now);
        } else {
            self.count_unanswered();
            self.due.keep_alive = true;
            self.timers.set(Timer::Idle, now + keep_alive.interval);
        }
    }
}
