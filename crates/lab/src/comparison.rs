//! Two runs side by side: their medians, and the points where these differ by more than noise explains.
//!
//! How: a point differs where the medians of the sittings of one run all lie beyond those of the other, the medians of
//! all samples are more than 10 % apart, and the sittings scatter so little that this is no chance even among all points
//! that are compared: of two runs of one program, one pair in a hundred has a point that differs (see `scatter`). Points that
//! only one run has are left out.
//! Limits: where both runs have one sitting, nothing shows how far sittings scatter, and no point differs.

mod scatter;

use std::collections::BTreeSet;

use serde::Serialize;

use crate::measurement::{Measurements, Quantity};
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
    let (mut rows, mut pairs) = (Vec::new(), Vec::new());
    for (experiment, setting, quantity, series) in together {
        let [first, second] = runs.map(|run| run.points(experiment, setting, series, quantity));
        for one in &first {
            let Some(other) = second.iter().find(|other| other.x == one.x) else { continue };
            let medians = [one.median(), other.median()];
            let ratio = medians[1].max(1) as f64 / medians[0].max(1) as f64;
            rows.push(Row {
                experiment: experiment.to_owned(),
                setting: setting.to_owned(),
                quantity,
                series: series.to_owned(),
                x: one.x,
                medians,
                ratio,
                disagreements: [one.disagreement(), other.disagreement()],
                differs: false,
            });
            pairs.push([one.clone(), other.clone()]);
        }
    }
    for (row, unlikely) in rows.iter_mut().zip(scatter::unlikely(&pairs)) {
        row.differs = !row.agrees() && unlikely;
    }
    rows
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
    use fastrand::Rng;

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

    /// Two runs of a program, or of two: 400 points in three sittings, of which each scatters by its own measure; at some points the
    /// second run takes longer.
    fn recorded(seed: u64, slower: &[usize]) -> Vec<Row> {
        let mut random = Rng::with_seed(seed);
        let mut scatter = || (0..12).map(|_| random.f64() - 0.5).sum::<f64>();
        let run = |run: usize, scatter: &mut dyn FnMut() -> f64| {
            let step = |sitting| {
                let measured = (0..400).map(|point| {
                    let factor = if run == 1 && slower.contains(&point) { 2.5 } else { 1.0 };
                    // From 2 to 15 %.
                    let wide = 0.02 + 0.13 * (point % 20) as f64 / 19.0;
                    let median = 1e6 * factor * (wide * scatter()).exp();
                    Measured::new("", "copy", point + 1, Quantity::Latency, vec![median as u64; 9])
                });
                StepResult { sitting, ..synthetic::step("latency", measured.collect()) }
            };
            Measurements { steps: (0..3).map(step).collect(), ..Measurements::default() }
        };
        let runs = [run(0, &mut scatter), run(1, &mut scatter)];
        compare(runs.each_ref())
    }

    /// Of hundreds of points, some have all sittings of one run beyond all of the other by chance: a tenth of those that scatter.
    #[test]
    fn two_runs_of_one_program_do_not_differ() {
        let ends = |row: &Row| !row.agrees();
        let (mut far, mut found) = (0, 0);
        for seed in 0..20 {
            let rows = recorded(seed, &[]);
            far += rows.iter().filter(|row| ends(row)).count();
            found += rows.iter().filter(|row| row.differs).count();
        }
        assert!(far > 500, "{far} medians are more than 10 % apart");
        assert!(found <= 1, "{found} points of 20 pairs of runs of one program differ");
    }

    #[test]
    fn a_program_that_is_slower_at_some_points_differs_at_these() {
        // These scatter little.
        let slower = [20, 101, 240, 380];
        for seed in 0..20 {
            let rows = recorded(seed, &slower);
            let differing: Vec<_> =
                rows.iter().filter(|row| row.differs).map(|row| row.x as usize - 1).collect();
            assert!(slower.iter().all(|point| differing.contains(point)), "seed {seed}: {differing:?}");
            assert!(differing.len() <= slower.len() + 1, "seed {seed}: {differing:?}");
        }
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
