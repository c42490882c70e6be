//! The timestamps option: what is sent, what is echoed, and which segments are too old (PAWS).
//!
//! How: the clock is in milliseconds, and begins elsewhere for each connection.
//! Source: RFC 7323 §3 to §5.

use std::time::Duration;

use crate::options::Timestamps;
use crate::sequence::Seq;
use crate::timers::Time;

/// After how long without a segment the peer's clock may have wrapped (§5.5).
const OUTDATED: Duration = Duration::from_secs(24 * 86_400);

/// The timestamps of a connection that uses them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    /// By how much this side's timestamps are ahead of the time.
    offset: u32,
    /// The peer's, to be echoed: TS.Recent.
    recent: u32,
    /// When that was taken.
    taken: Time,
}

impl Clock {
    pub(crate) fn new(offset: u32, recent: u32, now: Time) -> Self {
        Self { offset, recent, taken: now }
    }

    /// The option of a segment that is sent now.
    pub(crate) fn option(&self, now: Time) -> Timestamps {
        Timestamps { value: value(self.offset, now), echo: self.recent }
    }

    /// Whether a segment with this timestamp is an old duplicate (§5.3, R1).
    pub(crate) fn is_old(&self, value: u32, now: Time) -> bool {
        Seq(value).before(Seq(self.recent)) && now.saturating_sub(self.taken) < OUTDATED
    }

    /// Whether a SYN with this timestamp begins a new connection where this one lingers (RFC 6191 §2).
    pub(crate) fn is_newer(&self, value: u32) -> bool {
        Seq(value).after(Seq(self.recent))
    }

    /// Whether a timestamp is the one that was taken last.
    pub(crate) fn repeats(&self, value: u32) -> bool {
        value == self.recent
    }

    /// Takes the timestamp of an accepted segment that begins before, or at, what was acknowledged last (§4.3).
    pub(crate) fn note(&mut self, value: u32, seq: Seq, acknowledged: Seq, now: Time) {
        if !seq.after(acknowledged) && !self.is_old(value, now) {
            (self.recent, self.taken) = (value, now);
        }
    }

    /// How long ago the timestamp that is echoed was sent; nothing if it was never sent.
    pub(crate) fn since(&self, echo: u32, now: Time) -> Option<Duration> {
        let millis = value(self.offset, now).wrapping_sub(echo);
        (echo != 0 && millis < 1 << 30).then(|| Duration::from_millis(millis.into()))
    }
}

/// What stands in a segment that is sent now.
pub(crate) fn value(offset: u32, now: Time) -> u32 {
    (now.as_millis() as u32).wrapping_add(offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Duration::from_secs(5000);

    #[test]
    fn older_timestamps_are_refused_until_the_clock_may_have_wrapped() {
        let mut clock = Clock::new(u32::MAX - 10, 100, NOW);
        assert!(clock.is_old(99, NOW) && !clock.is_old(100, NOW) && !clock.is_old(101, NOW));
        assert!(clock.is_old(100u32.wrapping_sub(1 << 30), NOW));
        let later = NOW + OUTDATED;
        assert!(!clock.is_old(99, later));
        clock.note(50, Seq(7), Seq(7), later);
        assert_eq!(clock.option(later).echo, 50);
        assert!(clock.is_newer(51) && !clock.is_newer(50));
    }

    #[test]
    fn what_comes_ahead_of_the_acknowledged_is_not_echoed() {
        let mut clock = Clock::new(0, 100, NOW);
        clock.note(200, Seq(8), Seq(7), NOW);
        assert_eq!(clock.option(NOW).echo, 100);
        clock.note(150, Seq(7), Seq(7), NOW);
        assert_eq!(clock.option(NOW).echo, 150);
    }

    #[test]
    fn an_echo_tells_the_round_trip_time_unless_it_was_never_sent() {
        let clock = Clock::new(u32::MAX - 10, 100, NOW);
        let sent = clock.option(NOW).value;
        assert_eq!(clock.since(sent, NOW + Duration::from_millis(30)), Some(Duration::from_millis(30)));
        assert_eq!(clock.since(sent.wrapping_add(5), NOW), None);
        assert_eq!(clock.since(0, NOW), None);
    }
}
