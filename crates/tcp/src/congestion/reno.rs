//! Congestion avoidance of the standard: a segment more for each window that is acknowledged, and half a window after a loss.
//!
//! Source: RFC 5681 §3.1, with the counting of bytes that it recommends.

use super::Acked;

#[derive(Debug, Default)]
pub(super) struct Reno {
    /// How much was acknowledged since the window last grew.
    acked: u32,
}

impl Reno {
    pub(super) fn grow(&mut self, window: u32, mss: u32, acked: Acked) -> u32 {
        self.acked = self.acked.saturating_add(acked.bytes);
        if self.acked < window {
            return window;
        }
        self.acked -= window;
        window + mss
    }

    pub(super) fn on_loss(&mut self, flight: u32) -> u32 {
        self.acked = 0;
        flight / 2
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_window_grows_by_a_segment_for_each_window_acknowledged() {
        let mut reno = Reno::default();
        let acked =
            Acked { bytes: 1000, window_was_full: true, rtt: Duration::from_millis(1), now: Duration::ZERO };
        let mut window = 10_000;
        (0..10).for_each(|_| window = reno.grow(window, 1000, acked));
        assert_eq!(window, 11_000);
        (0..10).for_each(|_| window = reno.grow(window, 1000, acked));
        assert_eq!(window, 11_000);
        window = reno.grow(window, 1000, acked);
        assert_eq!(window, 12_000);
        assert_eq!(reno.on_loss(window), 6000);
    }
}
