//! CUBIC: a window that grows as a cubic function of the time since the last loss, whatever the round-trip time.
//!
//! How: windows are in segments, as in the RFC. An *epoch* is a time of congestion avoidance; it begins with the first acknowledgment after a
//! loss, and anew after a time in which the window was not full, so that such a time does not count (§4.2, last paragraphs; §5.8).
//! Source: RFC 9438; the section is named where each rule is.

use super::Acked;
use crate::timers::Time;

/// How quickly the window grows (§5.1).
const C: f64 = 0.4;
/// What part of the window is left after a loss (§4.6).
const BETA: f64 = 0.7;
/// Reno's increase with this decrease, so that the average rate is Reno's (§4.3).
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);

#[derive(Debug, Default)]
pub(super) struct Cubic {
    /// The window at the last loss, or below it where it has shrunk since the one before (§4.7).
    most: f64,
    /// The window just before the last loss, up to which Reno's estimate grows by ALPHA.
    prior: f64,
    epoch: Option<Epoch>,
}

#[derive(Debug)]
struct Epoch {
    began: Time,
    /// How long the window takes to come back to `most`, in seconds: K.
    plateau: f64,
    /// The window that Reno would have by now.
    reno: f64,
}

impl Cubic {
    pub(super) fn grow(&mut self, window: u32, mss: u32, acked: Acked) -> u32 {
        let segments = f64::from(window) / f64::from(mss);
        let acked_segments = f64::from(acked.bytes) / f64::from(mss);
        let most = &mut self.most;
        let epoch = self.epoch.get_or_insert_with(|| {
            // After slow start, and after a timeout, the window is its own plateau (§4.8, §4.10).
            *most = most.max(segments);
            Epoch { began: acked.now, plateau: ((*most - segments) / C).cbrt(), reno: segments }
        });
        let alpha = if epoch.reno < self.prior { ALPHA } else { 1.0 };
        epoch.reno += alpha * acked_segments / segments; // §4.3, figure 4
        let since = acked.now.saturating_sub(epoch.began).as_secs_f64();
        let cubic = |seconds: f64| C * (seconds - epoch.plateau).powi(3) + self.most; // §4.2, figure 1
        let grown = if cubic(since) < epoch.reno {
            epoch.reno.max(segments)
        } else {
            // §4.4, §4.5: towards what it would be a round trip later, by no more than half.
            let target = cubic(since + acked.rtt.as_secs_f64()).clamp(segments, 1.5 * segments);
            segments + (target - segments) / segments * acked_segments
        };
        // Never by more than half at once, whatever was acknowledged.
        (grown.min(1.5 * segments) * f64::from(mss)) as u32
    }

    pub(super) fn on_loss(&mut self, window: u32, mss: u32, flight: u32) -> u32 {
        let segments = f64::from(window) / f64::from(mss);
        // Fast convergence (§4.7): a flow that has less than before leaves room to others.
        self.most = if segments < self.most { segments * (1.0 + BETA) / 2.0 } else { segments };
        self.prior = segments;
        self.epoch = None;
        (f64::from(flight) * BETA) as u32
    }

    /// After a timeout the plateau is where congestion avoidance begins (§4.8).
    pub(super) fn on_timeout(&mut self) {
        self.most = 0.0;
    }

    /// The window was not full.
    pub(super) fn pause(&mut self) {
        self.epoch = None;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const MSS: u32 = 1000;

    /// The window after some seconds of round trips, in each of which it is acknowledged once.
    fn after(cubic: &mut Cubic, mut window: u32, from: f64, until: f64, rtt: f64) -> u32 {
        let mut now = from;
        while now < until {
            for _ in 0..window / MSS {
                let acked = Acked {
                    bytes: MSS,
                    window_was_full: true,
                    rtt: Duration::from_secs_f64(rtt),
                    now: Duration::from_secs_f64(now),
                };
                window = cubic.grow(window, MSS, acked);
            }
            now += rtt;
        }
        window
    }

    #[test]
    fn the_window_comes_back_to_its_plateau_when_the_function_says_and_goes_beyond() {
        let mut cubic = Cubic::default();
        let window = cubic.on_loss(1_000_000, MSS, 1_000_000);
        assert_eq!(window, 700_000);
        // K = cbrt(1000 * 0.3 / 0.4) = 9.09 seconds.
        let early = after(&mut cubic, window, 0.0, 4.5, 0.1);
        assert!((900_000..970_000).contains(&early), "{early}");
        let plateau = after(&mut cubic, early, 4.5, 9.1, 0.1);
        assert!((990_000..1_010_000).contains(&plateau), "{plateau}");
        let beyond = after(&mut cubic, plateau, 9.1, 18.0, 0.1);
        assert!(beyond > 1_200_000, "{beyond}");
    }

    #[test]
    fn where_reno_is_quicker_the_window_is_renos() {
        let mut cubic = Cubic::default();
        let window = cubic.on_loss(20_000, MSS, 20_000);
        // 14 segments at 10 ms: K is 2.5 s, but Reno regains six segments in 0.11 s.
        let found = after(&mut cubic, window, 0.0, 0.2, 0.01);
        assert!(found > 20_000, "{found}");
    }

    #[test]
    fn a_flow_that_shrinks_leaves_room() {
        let mut cubic = Cubic::default();
        cubic.on_loss(1_000_000, MSS, 1_000_000);
        cubic.on_loss(700_000, MSS, 700_000);
        assert!((cubic.most - 595.0).abs() < 0.01);
    }
}
