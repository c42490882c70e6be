//! Chooses steps of a run that can be combined: those that were measured while the CPUs were equally near each other.
//!
//! Why: the host of a virtual machine moves its CPUs, and copying between them costs several times as much when they are far
//! apart. Costs taken under one placement say nothing about latencies under another.

use crate::measurement::Measurements;
use crate::placement::Placement;

use super::estimates::{Estimates, estimate};

/// The experiments whose steps must have one placement.
const COMBINED: [&str; 2] = ["latency", "primitives"];

/// The estimates under the placement that allows the most estimates, with their measurements.
pub(super) struct Chosen {
    pub(super) measurements: Measurements,
    pub(super) estimates: Estimates,
    /// What was left out, for the reader.
    pub(super) note: Option<String>,
}

/// Estimates under each placement that occurred, and keeps the estimates that cover the most lengths of the most schemes.
pub(super) fn choose(measurements: &Measurements) -> Result<Chosen, String> {
    let combined = || measurements.steps.iter().filter(|step| COMBINED.contains(&step.experiment.as_str()));
    let mut placements: Vec<Option<Placement>> = Vec::new();
    for step in combined() {
        if !placements.contains(&step.placement) {
            placements.push(step.placement);
        }
    }
    let chosen = placements.iter().filter_map(|placement| {
        let measurements = under(measurements, *placement);
        let estimates = estimate(&measurements).ok()?;
        let note = (placements.len() > 1).then(|| left_out(*placement));
        Some(Chosen { measurements, estimates, note })
    });
    let covers_less = |one: &Chosen, other: &Chosen| covered(&one.estimates) < covered(&other.estimates);
    let best = chosen.reduce(|best, next| if covers_less(&best, &next) { next } else { best });
    // If no placement allows an estimate, the same measurements are missing under every placement.
    let missing = || {
        let missing = estimate(measurements).err();
        missing.unwrap_or_else(|| "no placement has all that is needed".to_owned())
    };
    best.ok_or_else(missing)
}

fn under(measurements: &Measurements, placement: Option<Placement>) -> Measurements {
    let goes = |experiment: &str, its: Option<Placement>| !COMBINED.contains(&experiment) || its == placement;
    let steps = measurements.steps.iter().filter(|step| goes(&step.experiment, step.placement));
    Measurements { steps: steps.cloned().collect(), circumstances: measurements.circumstances.clone() }
}

/// How many estimates there are.
fn covered(estimates: &Estimates) -> usize {
    let schemes = estimates.schemes.iter().filter(|estimated| !estimated.is_base);
    schemes.map(|estimated| estimated.lengths.len()).sum()
}

fn left_out(placement: Option<Placement>) -> String {
    let apart = placement.map_or("unknown", Placement::name);
    format!(
        "The host moved the CPUs during the run: estimates and latencies are of those steps alone during which the distance of the \
         CPUs was the same, {apart}."
    )
}
