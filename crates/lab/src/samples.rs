//! Samples and their summary: the median, and the percentiles 5 and 95 as spread.
//!
//! Limits: values are kept to three significant digits.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

/// Significant digits that are kept.
const DIGITS: u8 = 3;

/// Non-negative whole numbers: nanoseconds, mostly.
#[derive(Debug, Clone)]
pub struct Samples(Histogram<u64>);

/// The median and the spread, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The 5th percentile: a twentieth of the samples are below it.
    pub p5: f64,
    /// The 95th percentile: a twentieth of the samples are above it.
    pub p95: f64,
}

impl Default for Samples {
    /// No samples.
    fn default() -> Self {
        Self(Histogram::new(DIGITS).expect("three digits are allowed"))
    }
}

impl<'n> FromIterator<&'n u64> for Samples {
    fn from_iter<I: IntoIterator<Item = &'n u64>>(numbers: I) -> Self {
        let mut samples = Self::default();
        numbers.into_iter().for_each(|number| samples.add_number(*number));
        samples
    }
}

impl Samples {
    /// Adds a time, in nanoseconds.
    pub fn add(&mut self, time: Duration) {
        self.add_number(nanoseconds(time));
    }

    /// Adds a number.
    pub fn add_number(&mut self, number: u64) {
        // Only a histogram of fixed bounds refuses a number; this one grows.
        let _ = self.0.record(number);
    }

    /// Adds the samples of another set.
    pub fn merge(&mut self, other: &Self) {
        self.0 += &other.0;
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The middle sample; of an even number of samples, the lower of the two in the middle.
    pub fn median(&self) -> u64 {
        self.quantile(0.5)
    }

    /// The sample below which this share of the samples lies, from 0 to 1.
    pub fn quantile(&self, share: f64) -> u64 {
        self.0.value_at_quantile(share)
    }

    /// The middle sample, in microseconds, of samples in nanoseconds.
    pub fn median_us(&self) -> f64 {
        microseconds(self.median())
    }

    /// The median and the spread of samples in nanoseconds.
    pub fn spread(&self) -> Spread {
        let at = |quantile| microseconds(self.quantile(quantile));
        Spread { median: at(0.5), p5: at(0.05), p95: at(0.95) }
    }
}

/// A time in nanoseconds, as samples have it; times longer than five hundred years count as that long.
pub fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Nanoseconds as microseconds.
fn microseconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e3
}

/// A number as documents show it: with three decimals.
pub fn rounded(number: f64) -> f64 {
    (number * 1e3).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spread_is_that_of_the_samples() {
        let mut samples = Samples::default();
        (1..=100).for_each(|us| samples.add(Duration::from_micros(us)));
        let spread = samples.spread();
        for (found, expected) in [(spread.median, 50.0), (spread.p5, 5.0), (spread.p95, 95.0)] {
            assert!((found - expected).abs() <= expected * 1e-3, "{spread:?}");
        }
    }

    #[test]
    fn merged_samples_count_together() {
        let (mut one, mut two) = (Samples::default(), Samples::default());
        one.add_number(1);
        two.add_number(3_600_000_000_000);
        two.add_number(2);
        one.merge(&two);
        assert_eq!((one.count(), one.median()), (3, 2));
    }

    #[test]
    fn numbers_keep_three_decimals() {
        assert_eq!(rounded(1.234_56), 1.235);
        assert_eq!(rounded(0.0004), 0.0);
    }
}
