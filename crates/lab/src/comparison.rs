//! Two runs side by side: their medians, and the points where these differ by more than noise explains.
//!
//! How: a point differs where the medians of the sittings of one run all lie beyond those of the other, and the medians of
//! all samples are more than 10 % apart. Points that only one run has are left out.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::measurement::{Measurements, Point, Quantity};
use crate::runner::noise::TOLERATED;

/// One point of both runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// The experiment.
    pub experiment: String,
    /// The figure.
    pub setting: String,
    /// What was measured.
    pub quantity: Quantity,
    /// The curve.
    pub series: String,
    /// The point on the axis.
    pub x: u64,
    /// The medians of the first and the second run, in the quantity's unit.
    pub medians: [u64; 2],
    /// The second run's median over the first's.
    pub ratio: f64,
    /// How far the sittings of each run were apart: the greatest median over the least.
    pub disagreements: [f64; 2],
    /// Whether the medians differ by more than noise explains.
    pub differs: bool,
}

impl Row {
    /// Whether the medians are within 10 % of each other.
    pub fn agrees(&self) -> bool {
        self.ratio <= TOLERATED && self.ratio >= TOLERATED.recip()
    }
}

/// The points that both runs have, in the order of the first, those of one quantity in one figure together.
pub fn compare(runs: [&Measurements; 2]) -> Vec<Row> {
    let mut curves: Vec<(&str, &str, Quantity, &str)> = Vec::new();
    for step in &runs[0].steps {
        for one in &step.measured {
            let curve = (step.experiment.as_str(), one.setting.as_str(), one.quantity, one.series.as_str());
            if !curves.contains(&curve) {
                curves.push(curve);
            }
        }
    }
    // Curves of one quantity in one figure stand together.
    let figure = |(experiment, setting, quantity, _): &(&str, &str, Quantity, &str)| {
        curves.iter().position(|other| (other.0, other.1, other.2) == (*experiment, *setting, *quantity))
    };
    let mut together = curves.clone();
    together.sort_by_key(figure);
    let mut rows = Vec::new();
    for (experiment, setting, quantity, series) in together {
        let [first, second] = runs.map(|run| run.points(experiment, setting, series, quantity));
        for one in &first {
            let Some(other) = second.iter().find(|other| other.x == one.x) else { continue };
            let medians = [one.median(), other.median()];
            let ratio = medians[1].max(1) as f64 / medians[0].max(1) as f64;
            let mut row = Row {
                experiment: experiment.to_owned(),
                setting: setting.to_owned(),
                quantity,
                series: series.to_owned(),
                x: one.x,
                medians,
                ratio,
                disagreements: [one.disagreement(), other.disagreement()],
                differs: false,
            };
            row.differs = !row.agrees() && apart(one, other);
            rows.push(row);
        }
    }
    rows
}

/// Whether all sittings of one run lie beyond all of the other.
fn apart(one: &Point, other: &Point) -> bool {
    let (one, other) = (one.ends(), other.ends());
    one.0 > other.1 || other.0 > one.1
}

/// Experiments that must not be compared, since their CPUs were placed differently in the two runs.
pub fn placed_otherwise(runs: [&Measurements; 2]) -> Vec<String> {
    let ids: BTreeSet<_> = runs[0].steps.iter().map(|step| step.experiment.as_str()).collect();
    let both = |id: &str| runs.iter().all(|run| run.of(id).next().is_some());
    let differ = |id: &&str| both(id) && runs[0].placement(id) != runs[1].placement(id);
    ids.into_iter().filter(differ).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::synthetic;
    use crate::measurement::{Measured, StepResult};
    use crate::placement::Placement;

    fn run(placement: Placement, sittings: &[u64]) -> Measurements {
        let step = |(sitting, median): (usize, &u64)| {
            let measured = Measured::new("", "copy", 64, Quantity::Latency, vec![*median; 9]);
            let placement = Some(placement);
            StepResult { sitting, placement, ..synthetic::step("latency", vec![measured]) }
        };
        Measurements { steps: sittings.iter().enumerate().map(step).collect(), ..Measurements::default() }
    }

    fn differs(one: &[u64], other: &[u64]) -> bool {
        let runs = [one, other].map(|sittings| run(Placement::Near, sittings));
        let rows = compare(runs.each_ref());
        assert_eq!(rows.len(), 1);
        rows[0].differs
    }

    #[test]
    fn what_noise_explains_is_no_difference() {
        assert!(differs(&[1000, 1010, 1020], &[1200, 1210, 1220]));
        assert!(!differs(&[1000, 1010, 1020], &[1060, 1070, 1080]), "6 % is tolerated");
        assert!(
            !differs(&[1000, 1010, 1500], &[1200, 1210, 1220]),
            "a sitting of the one was slower than the other"
        );
    }

    #[test]
    fn curves_of_one_quantity_stand_together() {
        let of = |series, quantity| Measured::new("", series, 64, quantity, vec![1000; 9]);
        let both = |series| [of(series, Quantity::Latency), of(series, Quantity::CpuTime)];
        let step = synthetic::step("latency", ["copy", "share"].map(both).concat());
        let run = Measurements { steps: vec![step], ..Measurements::default() };
        let rows = compare([&run, &run]);
        let quantities: Vec<_> = rows.iter().map(|row| row.quantity).collect();
        let [latency, cpu_time] = [Quantity::Latency, Quantity::CpuTime];
        assert_eq!(quantities, [latency, latency, cpu_time, cpu_time]);
    }

    #[test]
    fn runs_of_unlike_placement_are_named() {
        let runs = [run(Placement::Near, &[1000]), run(Placement::Far, &[1000])];
        assert_eq!(placed_otherwise(runs.each_ref()), ["latency"]);
        assert_eq!(placed_otherwise([&runs[0], &runs[0]]), [] as [&str; 0]);
    }
}
