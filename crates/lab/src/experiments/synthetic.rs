//! Measurements that are made up, for tests of conclusions.

use crate::findings::{Conclusion, Verdict};
use crate::measurement::{Measured, Measurements, Quantity, StepResult};
use crate::model::measured;

/// One point: a setting, a series, x, and a median: a time in microseconds, another quantity in its own unit.
#[derive(Clone, Copy)]
pub(crate) struct Made<'t> {
    pub(crate) setting: &'t str,
    pub(crate) series: &'t str,
    pub(crate) x: u64,
    pub(crate) quantity: Quantity,
    pub(crate) us: f64,
}

impl Made<'_> {
    fn measured(&self) -> Measured {
        let amount = self.us * self.quantity.per_unit();
        let samples = [0.98, 1.0, 1.02].map(|factor| (amount * factor).round() as u64);
        Measured::new(self.setting, self.series, self.x as usize, self.quantity, samples.to_vec())
    }
}

/// A point of these.
pub(crate) fn made<'t>(
    setting: &'t str,
    series: &'t str,
    quantity: Quantity,
    (x, us): (u64, f64),
) -> Made<'t> {
    Made { setting, series, x, quantity, us }
}

/// A run of one experiment with these points.
pub(crate) fn run<'t>(experiment: &str, points: impl IntoIterator<Item = Made<'t>>) -> Measurements {
    let measured = points.into_iter().map(|made| made.measured()).collect();
    Measurements { steps: vec![step(experiment, measured)], ..Measurements::default() }
}

/// The only step of an experiment's first sitting.
pub(crate) fn step(experiment: &str, measured: Vec<Measured>) -> StepResult {
    StepResult {
        experiment: experiment.to_owned(),
        step: "all".to_owned(),
        sitting: 0,
        placement: None,
        steal: None,
        measured,
    }
}

/// The length of granules in bytes, as `primitives` stores it.
pub(crate) fn granule(bytes: u64) -> Measured {
    Measured::new("", measured::GRANULE, 64, Quantity::Bytes, vec![bytes])
}

impl Conclusion {
    /// The verdicts, in the order of the claims.
    pub(crate) fn judged(&self) -> Vec<Verdict> {
        self.verdicts.iter().map(|finding| finding.verdict).collect()
    }

    /// Checks that each row of each table has a cell for each column.
    pub(crate) fn check_tables(&self) {
        for table in &self.tables {
            assert!(table.rows.iter().all(|row| row.len() == table.columns.len()), "{}", table.title);
        }
    }
}

impl Measurements {
    /// These measurements and those of another experiment.
    pub(crate) fn and(mut self, other: Self) -> Self {
        self.steps.extend(other.steps);
        self
    }
}
