//! How much may be under way: the congestion window, and what moves it.
//!
//! How: this file has what all algorithms have in common: slow start, what a loss and a timeout do, and the window after an idle time. What
//! differs, congestion avoidance and how much a loss costs, is in a file for each algorithm.
//! Source: RFC 5681, RFC 6928 (initial window), RFC 9438.

mod cubic;
mod reno;

use std::time::Duration;

use self::cubic::Cubic;
use self::reno::Reno;
use crate::config::Algorithm;
use crate::timers::Time;

/// The largest window: what sequence numbers allow.
const MOST: u32 = 1 << 30;

/// What an acknowledgment of new data says.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Acked {
    /// How many bytes it acknowledges.
    pub(crate) bytes: u32,
    /// Whether the window, and not the client or the peer, was what kept more from being sent.
    pub(crate) window_was_full: bool,
    /// The smoothed round-trip time.
    pub(crate) rtt: Duration,
    /// When it came.
    pub(crate) now: Time,
}

#[derive(Debug)]
enum Avoidance {
    Reno(Reno),
    Cubic(Cubic),
}

/// A connection's congestion window. Lengths are bytes.
#[derive(Debug)]
pub(crate) struct Congestion {
    window: u32,
    threshold: u32,
    mss: u32,
    avoidance: Avoidance,
}

impl Congestion {
    pub(crate) fn new(algorithm: Algorithm, mss: u32) -> Self {
        let avoidance = match algorithm {
            Algorithm::Reno => Avoidance::Reno(Reno::default()),
            Algorithm::Cubic => Avoidance::Cubic(Cubic::default()),
        };
        Self { window: initial_window(mss), threshold: MOST, mss, avoidance }
    }

    /// cwnd.
    pub(crate) fn window(&self) -> u32 {
        self.window
    }

    /// ssthresh.
    pub(crate) fn threshold(&self) -> u32 {
        self.threshold
    }

    /// Begins anew with the MSS that the handshake has found. If the SYN was lost, with one segment (RFC 5681 §3.1).
    pub(crate) fn begin(&mut self, mss: u32, syn_was_lost: bool) {
        self.mss = mss;
        self.window = if syn_was_lost { mss } else { initial_window(mss) };
    }

    /// Goes on with shorter segments, of which as many as before may be under way.
    pub(crate) fn shorten_segments(&mut self, mss: u32) {
        self.window = (self.window / self.mss.max(1)).max(1) * mss;
        self.mss = mss;
    }

    /// New data was acknowledged, while no loss is being repaired by fast recovery.
    pub(crate) fn on_ack(&mut self, acked: Acked) {
        if !acked.window_was_full {
            if let Avoidance::Cubic(cubic) = &mut self.avoidance {
                cubic.pause();
            }
        } else if self.window < self.threshold {
            self.window += acked.bytes.min(self.mss); // §3.1, equation 2
        } else {
            self.window = match &mut self.avoidance {
                Avoidance::Reno(reno) => reno.grow(self.window, self.mss, acked),
                Avoidance::Cubic(cubic) => cubic.grow(self.window, self.mss, acked),
            };
        }
        self.window = self.window.min(MOST);
    }

    /// A loss was found by acknowledgments: `flight` bytes were under way.
    pub(crate) fn on_loss(&mut self, flight: u32) {
        self.threshold = self.threshold_after_loss(flight);
        self.window = self.threshold;
    }

    /// A loss was found by a timeout. If it is not the first of the same data, the threshold stays (RFC 5681 §3.1).
    pub(crate) fn on_timeout(&mut self, flight: u32, first: bool) {
        if first {
            self.threshold = self.threshold_after_loss(flight);
            if let Avoidance::Cubic(cubic) = &mut self.avoidance {
                cubic.on_timeout();
            }
        }
        self.window = self.mss;
    }

    fn threshold_after_loss(&mut self, flight: u32) -> u32 {
        let left = match &mut self.avoidance {
            Avoidance::Reno(reno) => reno.on_loss(flight),
            Avoidance::Cubic(cubic) => cubic.on_loss(self.window, self.mss, flight),
        };
        left.max(2 * self.mss)
    }

    /// Fast recovery without SACK is over: no burst follows (RFC 6582 §3.2, step 3).
    pub(crate) fn deflate(&mut self, flight: u32) {
        self.window = self.threshold.min(flight.max(self.mss) + self.mss);
    }

    /// Nothing was sent for longer than the retransmission timeout (RFC 5681 §4.1).
    pub(crate) fn after_idle(&mut self) {
        self.window = self.window.min(initial_window(self.mss));
    }
}

/// RFC 6928 §2.
fn initial_window(mss: u32) -> u32 {
    (10 * mss).min((2 * mss).max(14_600))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acked(bytes: u32) -> Acked {
        Acked { bytes, window_was_full: true, rtt: Duration::from_millis(50), now: Duration::ZERO }
    }

    #[test]
    fn slow_start_doubles_the_window_in_a_round_trip() {
        let mut it = Congestion::new(Algorithm::Reno, 1000);
        assert_eq!(it.window(), 10_000);
        (0..10).for_each(|_| it.on_ack(acked(1000)));
        assert_eq!(it.window(), 20_000);
        it.on_ack(acked(64_000)); // A stretch acknowledgment counts as one segment.
        assert_eq!(it.window(), 21_000);
    }

    #[test]
    fn a_window_that_was_not_full_does_not_grow() {
        for algorithm in [Algorithm::Reno, Algorithm::Cubic] {
            let mut it = Congestion::new(algorithm, 1000);
            it.on_ack(Acked { window_was_full: false, ..acked(1000) });
            assert_eq!(it.window(), 10_000);
        }
    }

    #[test]
    fn a_timeout_leaves_one_segment_and_repeated_ones_keep_the_threshold() {
        let mut it = Congestion::new(Algorithm::Reno, 1000);
        it.on_timeout(10_000, true);
        assert_eq!((it.window(), it.threshold()), (1000, 5000));
        it.on_timeout(1000, false);
        assert_eq!((it.window(), it.threshold()), (1000, 5000));
        it.on_timeout(1000, true);
        assert_eq!(it.threshold(), 2000); // Never below two segments.
    }

    #[test]
    fn the_initial_window_is_ten_segments_or_what_long_ones_allow() {
        assert_eq!(initial_window(536), 5360);
        assert_eq!(initial_window(1460), 14_600);
        assert_eq!(initial_window(8960), 17_920);
        let mut it = Congestion::new(Algorithm::Cubic, 1460);
        it.begin(1000, true);
        assert_eq!(it.window(), 1000);
        (0..50).for_each(|_| it.on_ack(acked(1000)));
        it.after_idle();
        assert_eq!(it.window(), 10_000);
    }
}
