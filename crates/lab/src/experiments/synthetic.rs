//! Measurements that are made up, for the tests of what is concluded.

use crate::measurement::{Measured, Measurements, Quantity, StepResult};

/// One point: a setting, a series, x, and a median, in microseconds or, of what is no time, in its own unit.
pub(super) struct Made<'t> {
    pub(super) setting: &'t str,
    pub(super) series: &'t str,
    pub(super) x: u64,
    pub(super) quantity: Quantity,
    pub(super) us: f64,
}

/// A run of one experiment with these points.
pub(super) fn run<'t>(experiment: &str, points: impl IntoIterator<Item = Made<'t>>) -> Measurements {
    let measured = |made: Made<'_>| Measured {
        series: made.series.to_owned(),
        setting: made.setting.to_owned(),
        x: made.x,
        quantity: made.quantity,
        samples: [0.98, 1.0, 1.02]
            .map(|factor| (made.us * made.quantity.per_unit() * factor) as u64)
            .to_vec(),
    };
    let step = StepResult {
        experiment: experiment.to_owned(),
        step: "all".to_owned(),
        sitting: 0,
        placement: None,
        steal: None,
        measured: points.into_iter().map(measured).collect(),
    };
    Measurements { steps: vec![step], ..Measurements::default() }
}
