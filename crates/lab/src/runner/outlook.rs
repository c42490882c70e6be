//! The time that a run still takes.
//!
//! How: each step declares about how long it takes; as steps are made, their times show how far the declarations are off on
//! this machine.

use std::time::Duration;

/// While less time than this has passed, the time of past steps says little about the rest.
const TELLING_SECONDS: f64 = 2.0;

/// The time of the steps still to be made, and of those that were made.
#[derive(Debug, Clone, Default)]
pub struct Outlook {
    /// Seconds to go, as declared.
    to_go: f64,
    /// Seconds of the steps that are over, as declared.
    declared: f64,
    /// Seconds of the steps that are over, as measured.
    taken: f64,
}

impl Outlook {
    /// Adds a step that declares this many seconds.
    pub fn expect(&mut self, seconds: f64) {
        self.to_go += seconds;
    }

    /// Counts a step that is over, which declared `seconds` and took `time`.
    pub fn spent(&mut self, seconds: f64, time: Duration) {
        self.to_go = (self.to_go - seconds).max(0.0);
        self.declared += seconds;
        self.taken += time.as_secs_f64();
    }

    /// The time left.
    pub fn left(&self) -> Duration {
        // This counts as if a first step had taken as long as it declared.
        let off = (self.taken + TELLING_SECONDS) / (self.declared + TELLING_SECONDS);
        Duration::try_from_secs_f64(self.to_go * off).unwrap_or(Duration::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_is_judged_by_what_the_steps_took() {
        let mut outlook = Outlook::default();
        (0..20).for_each(|_| outlook.expect(2.0));
        assert_eq!(outlook.left(), Duration::from_secs(40));
        (0..10).for_each(|_| outlook.spent(2.0, Duration::from_secs(4)));
        let left = outlook.left().as_secs_f64();
        assert!((36.0..40.0).contains(&left), "{left}");
        (0..10).for_each(|_| outlook.spent(2.0, Duration::from_secs(4)));
        assert_eq!(outlook.left(), Duration::ZERO);
    }
}
