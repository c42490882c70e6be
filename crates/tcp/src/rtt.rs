//! The retransmission timeout, from round-trip times.
//!
//! Source: RFC 6298; samples by timestamps: RFC 7323 §4.

use std::time::Duration;

use crate::config::Config;

/// The clock's granularity, G of RFC 6298: that of timestamps.
const GRANULARITY: Duration = Duration::from_millis(1);
/// The timeout before there is a sample (§2.1).
const INITIAL: Duration = Duration::from_secs(1);
/// The timeout of a connection whose SYN was sent again, before there is a sample (§5.7).
const INITIAL_AFTER_LOSS: Duration = Duration::from_secs(3);

/// Round-trip times, and the timeout that they make.
#[derive(Debug)]
pub(crate) struct RoundTrip {
    smoothed: Option<Duration>,
    variation: Duration,
    /// The timeout without what was doubled.
    base: Duration,
    /// How often it was doubled (§5.5).
    backoff: u32,
    least: Duration,
    most: Duration,
}

impl RoundTrip {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            smoothed: None,
            variation: Duration::ZERO,
            base: INITIAL,
            backoff: 0,
            least: config.rto_min,
            most: config.rto_max,
        }
    }

    /// Takes a sample (§2.2, §2.3). Karn's algorithm is the caller's: it takes none of what was sent twice (§3).
    pub(crate) fn sample(&mut self, rtt: Duration) {
        match self.smoothed {
            None => {
                self.smoothed = Some(rtt);
                self.variation = rtt / 2;
            }
            Some(smoothed) => {
                self.variation = self.variation * 3 / 4 + smoothed.abs_diff(rtt) / 4;
                self.smoothed = Some(smoothed * 7 / 8 + rtt / 8);
            }
        }
        self.base = self.smoothed.unwrap_or(INITIAL) + (self.variation * 4).max(GRANULARITY);
        self.backoff = 0;
    }

    /// Doubles the timeout, until there is a new sample (§5.5, §5.7).
    pub(crate) fn back_off(&mut self) {
        self.backoff = (self.backoff + 1).min(16);
    }

    /// The handshake was done, but not at the first try (§5.7).
    pub(crate) fn begin_after_loss(&mut self) {
        if self.smoothed.is_none() {
            self.base = INITIAL_AFTER_LOSS;
            self.backoff = 0;
        }
    }

    /// How long to wait for an acknowledgment now.
    pub(crate) fn timeout(&self) -> Duration {
        (self.base.max(self.least) * (1 << self.backoff)).min(self.most)
    }

    /// The smoothed round-trip time, if there was a sample.
    pub(crate) fn smoothed(&self) -> Option<Duration> {
        self.smoothed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fresh() -> RoundTrip {
        RoundTrip::new(&Config::default())
    }

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn the_timeout_follows_rfc_6298() {
        let mut rtt = fresh();
        assert_eq!(rtt.timeout(), ms(1000));
        rtt.sample(ms(100));
        assert_eq!(rtt.timeout(), ms(100 + 4 * 50));
        rtt.sample(ms(180));
        // RTTVAR = 3/4 * 50 + 1/4 * 80, SRTT = 7/8 * 100 + 1/8 * 180.
        assert_eq!(rtt.timeout(), ms(110) + 4 * Duration::from_micros(57_500));
        assert_eq!(rtt.smoothed(), Some(ms(110)));
    }

    #[test]
    fn it_doubles_until_there_is_a_sample_and_has_bounds() {
        let mut rtt = fresh();
        rtt.back_off();
        rtt.back_off();
        assert_eq!(rtt.timeout(), ms(4000));
        (0..40).for_each(|_| rtt.back_off());
        assert_eq!(rtt.timeout(), ms(60_000));
        rtt.sample(ms(1));
        assert_eq!(rtt.timeout(), ms(200));
    }

    #[test]
    fn after_a_lost_syn_it_begins_with_three_seconds() {
        let mut rtt = fresh();
        rtt.back_off();
        rtt.begin_after_loss();
        assert_eq!(rtt.timeout(), ms(3000));
        rtt.sample(ms(300));
        rtt.begin_after_loss();
        assert_eq!(rtt.timeout(), ms(900));
    }
}
