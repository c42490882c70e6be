//! Costs of the primitive operations: the lengths measured, and the straight line through them.
//!
//! Source: thesis table 8.2, whose lines are also a*B + b, by least squares. Differs: the squares are of relative
//! errors, since lengths here span five orders of magnitude; and predictions interpolate between the measured lengths,
//! since copying costs several times more a byte where the data leaves the cache, which no line shows.

use std::time::Duration;

use genie_memory::Recycling;
use serde::{Deserialize, Serialize};

/// A cost of `per_byte * B + fixed` nanoseconds for B bytes.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Line {
    /// Nanoseconds a byte.
    pub per_byte: f64,
    /// Nanoseconds an operation.
    pub fixed: f64,
}

impl Line {
    /// The cost of `bytes` bytes, in nanoseconds; never negative.
    pub fn at(self, bytes: usize) -> f64 {
        self.per_byte.mul_add(bytes as f64, self.fixed).max(0.0)
    }

    /// Fits a line to (bytes, nanoseconds) by least squares of the relative errors. Neither term is negative: where the
    /// best line has a negative term, the best line without that term is taken.
    pub fn fit(samples: &[(usize, f64)]) -> Self {
        let mut sums = Sums::default();
        for (bytes, cost) in samples {
            sums.add(*bytes as f64, *cost, 1.0 / (cost * cost).max(1e-6));
        }
        let line = sums.solve();
        if line.per_byte < 0.0 {
            return Self { per_byte: 0.0, fixed: sums.y / sums.w.max(f64::MIN_POSITIVE) };
        }
        if line.fixed < 0.0 {
            return Self { per_byte: sums.xy / sums.xx.max(f64::MIN_POSITIVE), fixed: 0.0 };
        }
        line
    }
}

impl std::fmt::Display for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.6} B + {:.3} us", self.per_byte / 1e3, self.fixed / 1e3)
    }
}

/// The cost of one primitive operation.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Cost {
    /// The line fitted to the points.
    pub line: Line,
    /// Medians measured: (bytes, nanoseconds), ascending.
    pub points: Vec<(usize, f64)>,
}

impl Cost {
    /// The cost that samples show, (bytes, nanoseconds): the median of each length.
    pub fn measured(mut samples: Vec<(usize, f64)>) -> Self {
        samples.sort_by_key(|(bytes, _)| *bytes);
        let of_one_length = samples.chunk_by(|one, next| one.0 == next.0);
        let points: Vec<_> = of_one_length
            .map(|samples| (samples[0].0, median(samples.iter().map(|(_, nanoseconds)| *nanoseconds))))
            .collect();
        Self { line: Line::fit(&points), points }
    }

    /// The cost of `bytes` bytes in nanoseconds: between two measured lengths, on the line that joins them; below the
    /// first measured length, its cost; above the last, in proportion to the length.
    pub fn at(&self, bytes: usize) -> f64 {
        let after = self.points.partition_point(|(at, _)| *at < bytes);
        match (after.checked_sub(1).map(|before| self.points[before]), self.points.get(after)) {
            (None, None) => 0.0,
            (None, Some((_, cost))) => *cost,
            (Some((from, low)), Some((to, high))) => {
                low + (high - low) * (bytes - from) as f64 / (to - from) as f64
            }
            (Some((last, cost)), None) => {
                (cost - self.line.fixed).max(0.0) * bytes as f64 / last as f64 + self.line.fixed.min(cost)
            }
        }
    }
}

impl std::fmt::Display for Cost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.line.fmt(f)
    }
}

/// The value in the middle; zero when there is none.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

/// Weighted sums for a straight line.
#[derive(Default)]
struct Sums {
    w: f64,
    x: f64,
    y: f64,
    xx: f64,
    xy: f64,
}

impl Sums {
    fn add(&mut self, x: f64, y: f64, w: f64) {
        self.w += w;
        self.x += w * x;
        self.y += w * y;
        self.xx += w * x * x;
        self.xy += w * x * y;
    }

    fn solve(&self) -> Line {
        let determinant = self.w * self.xx - self.x * self.x;
        if determinant.abs() <= f64::EPSILON * self.w * self.xx {
            return Line { per_byte: 0.0, fixed: self.y / self.w.max(f64::MIN_POSITIVE) };
        }
        let per_byte = (self.w * self.xy - self.x * self.y) / determinant;
        Line { per_byte, fixed: (self.y - per_byte * self.x) / self.w }
    }
}

/// Makes the type of costs from one line for each cost: its field, and the name of its row, which is that of table 8.2
/// where the table has the row.
macro_rules! costs {
    ($($(#[$doc:meta])+ $field:ident: $name:literal,)+) => {
        /// The costs that thresholds and predictions are made from, for one granule kind on one machine.
        ///
        /// Named after the rows of table 8.2; rows of one fixed cost there may depend on the length here.
        #[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
        pub struct Costs {
            $($(#[$doc])+ pub $field: Cost,)+
            /// For each class of [`Recycling`], over how many system buffers it is best to rotate; 0 where it was not measured.
            pub rotation: [u16; Recycling::CLASSES],
        }

        impl Costs {
            /// The rows by their names.
            pub fn rows(&self) -> [(&'static str, &Cost); [$($name),+].len()] {
                [$(($name, &self.$field)),+]
            }

            /// Makes costs of samples. In `samples`, the points of an operation are its samples, in any order, many for
            /// a length.
            pub(crate) fn of_samples(samples: Self) -> Self {
                Self { $($field: Cost::measured(samples.$field.points),)+ rotation: samples.rotation }
            }
        }
    };
}

costs! {
    /// Copying from client to system buffer.
    copyin: "Copyin",
    /// Referencing.
    reference: "Reference",
    /// Wiring a region.
    wire: "Wire",
    /// Removing write permission.
    read_only: "Read only",
    /// Giving write permission back, with what the client's next stores pay for it.
    reinstate: "Reinstate",
    /// Removing all access.
    invalidate: "Invalidate",
    /// Giving all access back.
    restore: "Restore access",
    /// Copying from system buffer to client.
    copyout: "Copyout",
    /// Unreferencing.
    unreference: "Unreference",
    /// Unwiring a region.
    unwire: "Unwire",
    /// Swapping whole granules, with what the client's next loads pay for it.
    swap: "Swap",
    /// Guarding one partial granule during its swap.
    guard: "Guard a partial granule",
    /// Creating, filling and mapping a region from a system buffer.
    region_create: "Region create, fill, map",
    /// Removing a region.
    region_remove: "Region remove",
    /// Taking a cached region from its queue, and putting it back.
    region_queue: "Region dequeue, enqueue",
    /// Allocating and deallocating a system buffer for copying.
    system_buffer: "System buffer",
    /// Allocating and deallocating an aligned buffer of whole granules.
    aligned_buffer: "Aligned buffer",
    /// A write fault that replaces one granule.
    replacement: "Replacement by a fault",
    /// Storing zeros.
    zero: "Zero",
    /// What copying adds to an output that goes to another CPU, where both sides touch all of the data; not measured where there
    /// is one CPU.
    copyin_between: "Copyin, to another CPU",
    /// What copying adds to an input that comes from another CPU, likewise.
    copyout_between: "Copyout, from another CPU",
    /// Waking a thread that sleeps on another CPU, whatever the length; not measured where there is one CPU.
    wake: "Wake a sleeper",
}

/// How long a waiter spins at least, and at most, before it sleeps.
const SPIN: [Duration; 2] = [Duration::from_micros(5), Duration::from_micros(100)];

impl Costs {
    /// The costs where the server works on another CPU, as far as they were measured.
    #[must_use]
    pub fn between(&self) -> Self {
        let mut between = self.clone();
        for (near, far) in
            [(&mut between.copyin, &self.copyin_between), (&mut between.copyout, &self.copyout_between)]
        {
            // A busy machine can make the difference of two times nothing; a copy never costs nothing.
            let plausible = |(len, cost): &(usize, f64)| (*len, cost.max(near.at(*len) / 4.0));
            let mut points: Vec<_> = far.points.iter().map(plausible).collect();
            let Some((last, cost)) = points.last().copied() else { continue };
            // Longer data leaves the caches, here as there.
            let ratio = cost / near.at(last).max(1.0);
            let longer = near.points.iter().filter(|(len, _)| *len > last);
            points.extend(longer.map(|(len, cost)| (*len, cost * ratio)));
            *near = Cost::measured(points);
        }
        between
    }

    /// How the space should reuse system buffers.
    pub fn recycling(&self) -> Recycling {
        Recycling { rotation: self.rotation.map(|count| count.max(1)) }
    }

    /// How long a waiter should spin before it sleeps: as long as waking it would take, so that waiting costs at most
    /// twice as much as for a waiter that knows beforehand how long it has to wait. At least 5 and at most 100
    /// microseconds.
    pub fn spin(&self) -> Duration {
        let [shortest, longest] = SPIN;
        Duration::from_nanos(self.wake.at(1) as u64).clamp(shortest, longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exact_line_is_found() {
        let line = Line { per_byte: 0.07, fixed: 900.0 };
        let samples: Vec<_> = [4096, 65536, 1 << 20, 16 << 20].map(|b| (b, line.at(b))).into();
        let fit = Line::fit(&samples);
        assert!((fit.per_byte - 0.07).abs() < 1e-9 && (fit.fixed - 900.0).abs() < 1e-3, "{fit:?}");
    }

    #[test]
    fn no_term_is_negative() {
        let fit = Line::fit(&[(4096, 10.0), (1 << 20, 9000.0)]);
        assert!(fit.per_byte > 0.0 && fit.fixed >= 0.0, "{fit:?}");
        let fit = Line::fit(&[(4096, 1000.0), (1 << 20, 10.0)]);
        assert!(fit.per_byte >= 0.0 && fit.fixed > 0.0, "{fit:?}");
    }

    #[test]
    fn predictions_pass_through_the_points_measured() {
        let cost = Cost::measured(vec![(4096, 100.0), (64, 10.0), (65536, 4000.0)]);
        for (bytes, expected) in [(1, 10.0), (64, 10.0), (4096, 100.0), (65536, 4000.0)] {
            assert!((cost.at(bytes) - expected).abs() < 1e-9, "{bytes}: {}", cost.at(bytes));
        }
        assert!((100.0..4000.0).contains(&cost.at(20_000)));
        assert!((7000.0..8100.0).contains(&cost.at(131_072)), "{}", cost.at(131_072));
    }

    #[test]
    fn between_cpus_longer_data_than_was_measured_leaves_the_caches_too() {
        let copyin = Cost::measured(vec![(1000, 100.0), (4000, 400.0), (16_000, 8000.0)]);
        let copyin_between = Cost::measured(vec![(1000, 0.0), (4000, 1200.0)]);
        let between = Costs { copyin, copyin_between, ..Costs::default() }.between().copyin;
        assert_eq!(between.points, [(1000, 25.0), (4000, 1200.0), (16_000, 24_000.0)]);
    }

    #[test]
    fn what_was_not_measured_costs_nothing_and_can_be_stored() {
        // Its line was once not a number, which JSON cannot express, so that the costs were measured at every start.
        let cost = Cost::measured(Vec::new());
        assert_eq!((cost.line, cost.at(4096)), (Line::default(), 0.0));
        assert_eq!(serde_json::from_str::<Cost>(&serde_json::to_string(&cost).unwrap()).unwrap(), cost);
    }

    #[test]
    fn a_waiter_spins_for_as_long_as_a_wake_up_takes_within_limits() {
        let spin = |wake| Costs { wake: Cost::measured(vec![(1, wake)]), ..Costs::default() }.spin();
        assert_eq!(spin(42_000.0), Duration::from_micros(42));
        assert_eq!(spin(10.0), Duration::from_micros(5));
        assert_eq!(spin(1e9), Duration::from_micros(100));
        assert_eq!(Costs::default().spin(), Duration::from_micros(5), "where nothing was measured");
    }

    #[test]
    fn one_length_gives_a_constant() {
        assert_eq!(Line::fit(&[(4096, 10.0), (4096, 10.0)]), Line { per_byte: 0.0, fixed: 10.0 });
    }
}
