//! Measurements as they are stored: raw samples of one quantity, of one series, at one point.
//!
//! Shape: a *series* is a curve of a figure (`emulated copy`), a *setting* the figure that it is in (`10 Gbit/s`), `x` the
//! point on the axis (a length in bytes), a *quantity* what was measured there (`latency`). Samples are whole numbers:
//! nanoseconds, unless the quantity says otherwise.

use serde::{Deserialize, Serialize};

use crate::circumstances::Circumstances;
use crate::counter::Modes;
use crate::length;
use crate::placement::Placement;
use crate::samples::Samples;

/// What a sample counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Quantity {
    /// Nanoseconds from request to reply, or from end to end.
    Latency,
    /// Nanoseconds of CPU time that passing the data took, without waiting.
    CpuTime,
    /// Instructions that passing the data took, in user mode and in the kernel, where the machine counts them.
    Instructions,
    /// The same in user mode alone, where the kernel's instructions may not be counted.
    UserInstructions,
    /// Nanoseconds that one primitive operation took.
    OperationTime,
    /// A number of bytes.
    Bytes,
}

impl Quantity {
    /// Its name in stored results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Latency => "latency",
            Self::CpuTime => "cpu-time",
            Self::Instructions => "instructions",
            Self::UserInstructions => "user-instructions",
            Self::OperationTime => "operation-time",
            Self::Bytes => "bytes",
        }
    }

    /// Instructions in these modes.
    pub fn instructions(modes: Modes) -> Self {
        match modes {
            Modes::UserAndKernel => Self::Instructions,
            Modes::User => Self::UserInstructions,
        }
    }

    /// How many samples' units make one unit of medians and curves: a thousand nanoseconds make a microsecond.
    pub fn per_unit(self) -> f64 {
        match self {
            Self::Latency | Self::CpuTime | Self::OperationTime => 1e3,
            Self::Instructions | Self::UserInstructions | Self::Bytes => 1.0,
        }
    }

    /// Writes an amount for people, with its unit: `12.30 µs`.
    pub fn amount(self, amount: u64) -> String {
        let time = amount as f64;
        match self {
            Self::Instructions | Self::UserInstructions => format!("{amount} instructions"),
            Self::Bytes => length::approximate(amount),
            _ if amount < 1_000 => format!("{amount} ns"),
            _ if amount < 1_000_000 => format!("{:.2} µs", time / 1e3),
            _ => format!("{:.2} ms", time / 1e6),
        }
    }
}

/// Samples of one quantity at one point, taken in one step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measured {
    /// The curve.
    pub series: String,
    /// The figure, where an experiment has several; else empty.
    pub setting: String,
    /// The point on the axis: mostly a length in bytes.
    pub x: u64,
    /// What was measured.
    pub quantity: Quantity,
    /// The samples, in the order in which they were taken.
    pub samples: Vec<u64>,
}

impl Measured {
    /// Samples at one point of a curve, in the figure of that setting.
    pub fn new(
        setting: impl Into<String>,
        series: impl Into<String>,
        x: usize,
        quantity: Quantity,
        samples: Vec<u64>,
    ) -> Self {
        Self { series: series.into(), setting: setting.into(), x: x as u64, quantity, samples }
    }
}

/// The measurements of one step of one sitting, and their circumstances.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepResult {
    /// The experiment.
    pub experiment: String,
    /// The step's name.
    pub step: String,
    /// Which sitting, from 0.
    pub sitting: usize,
    /// How near the CPUs were.
    pub placement: Option<Placement>,
    /// The share of CPU time that the host gave to others meanwhile, from 0 to 1, where the kernel says.
    pub steal: Option<f64>,
    /// What was measured.
    pub measured: Vec<Measured>,
}

/// All measurements of a run so far, and their circumstances.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Measurements {
    /// The steps, in the order in which they were made.
    pub steps: Vec<StepResult>,
    /// The circumstances when the run began.
    pub circumstances: Circumstances,
}

/// The result of all sittings together at one point.
#[derive(Debug, Clone)]
pub struct Point {
    /// The point on the axis.
    pub x: u64,
    /// All samples of the sittings that count.
    pub samples: Samples,
    /// The median of each of these sittings, in the quantity's unit.
    pub sittings: Vec<u64>,
}

impl Measurements {
    /// The measurements of one experiment.
    pub fn of<'m>(&'m self, experiment: &'m str) -> impl Iterator<Item = &'m StepResult> + 'm {
        self.steps.iter().filter(move |step| step.experiment == experiment)
    }

    /// The points of one series, ascending, from the sittings with the placement that most sittings had.
    pub fn points(&self, experiment: &str, setting: &str, series: &str, quantity: Quantity) -> Vec<Point> {
        let placement = self.placement(experiment);
        let mut points: std::collections::BTreeMap<u64, Point> = std::collections::BTreeMap::new();
        for step in self.of(experiment).filter(|step| step.placement == placement) {
            let is_it =
                |one: &&Measured| one.setting == setting && one.series == series && one.quantity == quantity;
            for one in step.measured.iter().filter(is_it) {
                let here: Samples = one.samples.iter().collect();
                let empty = || Point { x: one.x, samples: Samples::default(), sittings: Vec::new() };
                let point = points.entry(one.x).or_insert_with(empty);
                point.sittings.push(here.median());
                point.samples.merge(&here);
            }
        }
        points.into_values().collect()
    }

    /// The medians of the points of one series, ascending: times in microseconds, other quantities in their own unit.
    pub fn medians(
        &self,
        experiment: &str,
        setting: &str,
        series: &str,
        quantity: Quantity,
    ) -> Vec<(u64, f64)> {
        let points = self.points(experiment, setting, series, quantity);
        points.iter().map(|point| (point.x, point.median() as f64 / quantity.per_unit())).collect()
    }

    /// The placement that most steps of an experiment had.
    pub fn placement(&self, experiment: &str) -> Option<Placement> {
        crate::probe::majority(self.of(experiment).map(|step| step.placement))
    }
}

impl Point {
    /// The median of all samples.
    pub fn median(&self) -> u64 {
        self.samples.median()
    }

    /// The least and the greatest of the sittings' medians.
    pub fn ends(&self) -> (u64, u64) {
        let (least, greatest) = (self.sittings.iter().min(), self.sittings.iter().max());
        (least.copied().unwrap_or_default(), greatest.copied().unwrap_or_default())
    }

    /// How far the sittings' medians are apart: the greatest over the least; 1 for a single sitting.
    pub fn disagreement(&self) -> f64 {
        let (least, greatest) = self.ends();
        greatest.max(1) as f64 / least.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::synthetic;

    fn step(sitting: usize, placement: Placement, samples: &[u64]) -> StepResult {
        let measured = Measured::new("", "copy", 64, Quantity::Latency, samples.to_vec());
        let placement = Some(placement);
        StepResult { sitting, placement, ..synthetic::step("latency", vec![measured]) }
    }

    #[test]
    fn sittings_of_the_rarer_placement_do_not_count() {
        let steps = vec![
            step(0, Placement::Near, &[10, 11, 12]),
            step(1, Placement::Far, &[100, 100, 100]),
            step(2, Placement::Near, &[20, 21, 22]),
        ];
        let run = Measurements { steps, ..Measurements::default() };
        let points = run.points("latency", "", "copy", Quantity::Latency);
        assert_eq!(points.len(), 1);
        assert_eq!((points[0].x, &points[0].sittings), (64, &vec![11, 21]));
        assert_eq!(points[0].samples.count(), 6);
        assert!((points[0].disagreement() - 21.0 / 11.0).abs() < 1e-9);
    }
}
