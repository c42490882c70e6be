//! Whether a run was too noisy to conclude from.
//!
//! Why: a run cannot show by itself how far the next run will differ from it. The differences between its own sittings
//! predict that, since each sitting opens its parties anew, and sittings are far apart in time. The spread of samples within
//! a sitting does not: it hardly moves the median of many samples, and says nothing about differences between sittings.
//! How: of the medians of a point's sittings, the greatest is compared with the least. With three sittings whose medians
//! scatter evenly, the range is 1.7 times the scatter, and the difference between two runs 0.9 times: so a difference of
//! 10 % between runs seldom comes without a range of more than 10 % in one of them. A test in this module tries it.
//! Limits: a difference that lasts for a whole run (another placement of its memory by the host) shows in no range.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::length;
use crate::measurement::{Measurements, Point, Quantity, StepResult};
use crate::placement::Placement;

/// The greatest median over the least, above which a point is noisy.
pub const TOLERATED: f64 = 1.10;
/// The difference, in nanoseconds, that the clock's resolution explains.
const RESOLUTION_NS: u64 = 30;
/// The share of CPU time given to others above which a step is noisy.
const TOLERATED_STEAL: f64 = 0.02;

/// How far the measurements of an experiment can be trusted.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Noise {
    /// Points that were measured.
    pub points: usize,
    /// Points whose sittings disagree.
    pub noisy: usize,
    /// The greatest disagreement, where several sittings count: the greatest median over the least.
    pub worst: Option<f64>,
    /// The greatest share of CPU time that the host gave to others in a step.
    pub steal: Option<f64>,
    /// Warnings for the reader, a sentence each; none where the run was quiet.
    pub warnings: Vec<String>,
}

/// A point with its name and its samples.
struct Named {
    name: String,
    quantity: Quantity,
    point: Point,
}

/// Judges an experiment's measurements.
pub fn judge(experiment: &str, measurements: &Measurements) -> Noise {
    let points = points(experiment, measurements);
    let several: Vec<_> = points.iter().filter(|named| named.point.sittings.len() > 1).collect();
    let noisy: Vec<_> =
        several.iter().copied().filter(|named| is_noisy(&named.point, named.quantity)).collect();
    let steps: Vec<_> = measurements.of(experiment).collect();
    let most = measurements.placement(experiment);
    let warnings = [
        disagreement(&noisy, points.len()),
        lonely(&points, &steps),
        stolen(&steps),
        moved(&steps, most),
        missing(&steps, most),
    ];
    Noise {
        points: points.len(),
        noisy: noisy.len(),
        worst: several.iter().map(|named| named.point.disagreement()).max_by(f64::total_cmp),
        steal: steps.iter().filter_map(|step| step.steal).max_by(f64::total_cmp),
        warnings: warnings.into_iter().flatten().collect(),
    }
}

fn points(experiment: &str, measurements: &Measurements) -> Vec<Named> {
    let mut curves: Vec<(&str, &str, Quantity)> = Vec::new();
    for one in measurements.of(experiment).flat_map(|step| &step.measured) {
        let curve = (one.setting.as_str(), one.series.as_str(), one.quantity);
        if !curves.contains(&curve) {
            curves.push(curve);
        }
    }
    let mut points = Vec::new();
    for (setting, series, quantity) in curves {
        for point in measurements.points(experiment, setting, series, quantity) {
            let length = length::format(point.x as usize);
            let parts = [series, setting, &length].into_iter().filter(|part| !part.is_empty());
            points.push(Named { name: parts.collect::<Vec<_>>().join(", "), quantity, point });
        }
    }
    points
}

/// Whether the sittings' medians at a point are further apart than is tolerated.
pub fn is_noisy(point: &Point, quantity: Quantity) -> bool {
    let (least, greatest) = point.ends();
    let resolution = match quantity {
        Quantity::Instructions | Quantity::UserInstructions => 0,
        _ => RESOLUTION_NS,
    };
    greatest - least > resolution && point.disagreement() > TOLERATED
}

fn disagreement(noisy: &[&Named], points: usize) -> Option<String> {
    let apart = |named: &&&Named| named.point.disagreement();
    let worst = noisy.iter().max_by(|one, other| apart(one).total_cmp(&apart(other)))?;
    Some(format!(
        "The sittings' medians are more than {:.0} % apart at {} of {points} points; the worst is {}, with {:.0} %. \
         Another run may differ from this one as much: repeat it on a quieter machine before concluding from these points.",
        (TOLERATED - 1.0) * 100.0,
        noisy.len(),
        worst.name,
        (worst.point.disagreement() - 1.0) * 100.0,
    ))
}

/// Names points at which only one of several sittings counts: such points cannot show noise.
fn lonely(points: &[Named], steps: &[&StepResult]) -> Option<String> {
    let alone = points.iter().filter(|named| named.point.sittings.len() < 2).count();
    let several = steps.iter().any(|step| step.sitting > 0);
    (several && alone > 0).then(|| {
        let all = points.len();
        format!(
            "At {alone} of {all} points only one sitting counts, so that nothing shows how far another run would differ there."
        )
    })
}

fn stolen(steps: &[&StepResult]) -> Option<String> {
    let steal = |step: &&&StepResult| step.steal.unwrap_or_default();
    let stolen: Vec<_> = steps.iter().filter(|step| steal(step) > TOLERATED_STEAL).collect();
    let worst = stolen.iter().max_by(|one, other| steal(one).total_cmp(&steal(other)))?;
    Some(format!(
        "The host gave more than {:.0} % of the CPU time to others in {} of {} steps; the worst is {}, with {:.1} %.",
        TOLERATED_STEAL * 100.0,
        stolen.len(),
        steps.len(),
        worst.step,
        steal(worst) * 100.0,
    ))
}

fn moved(steps: &[&StepResult], most: Option<Placement>) -> Option<String> {
    let others = steps.iter().filter(|step| step.placement != most).count();
    (others > 0).then(|| {
        let all = steps.len();
        format!(
            "The host moved the CPUs: {others} of {all} steps were measured while they were placed otherwise than in most, \
             and do not count."
        )
    })
}

/// Names the steps of which no sitting counts: they leave no point behind, so nothing else would report them.
fn missing(steps: &[&StepResult], most: Option<Placement>) -> Option<String> {
    let counts = |name: &str| steps.iter().any(|step| step.step == name && step.placement == most);
    let names: BTreeSet<&str> = steps.iter().map(|step| step.step.as_str()).collect();
    let missing: Vec<&str> = names.iter().copied().filter(|name| !counts(name)).collect();
    (!missing.is_empty()).then(|| {
        format!(
            "Of {} of {} steps no sitting counts, so that their points are missing from figures and tables: {}. What was measured \
             is among the raw measurements; another run, or one with more sittings, may have them.",
            missing.len(),
            names.len(),
            missing.join("; "),
        )
    })
}

#[cfg(test)]
mod tests;
