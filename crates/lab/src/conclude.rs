//! Conclusions of a run: each experiment's conclusion is drawn from its measurements, and kept beside them.
//!
//! Why: a user can look at a run again without measuring again.
//! Invariants: each claim of a declaration has one verdict, in the declaration's order.

use crate::error::Result;
use crate::experiment::{Declaration, Experiment};
use crate::figure;
use crate::findings::{Conclusion, Finding};
use crate::measurement::{Measurements, StepResult};
use crate::runner::noise::{self, Noise};
use crate::store::{Entry, Failed, Record, Run, SCHEMA, csv};

/// The findings of one experiment of a run.
#[derive(Debug, Clone)]
pub struct Found {
    /// The experiment's declaration.
    pub declaration: &'static Declaration,
    /// The experiment's conclusion.
    pub conclusion: Conclusion,
    /// How far its measurements can be trusted.
    pub noise: Noise,
    /// Its steps that failed.
    pub failures: Vec<Failed>,
    /// The experiments that this one needs and that were too noisy.
    pub noisy_needs: Vec<&'static str>,
}

/// `ID.json`: everything about one experiment of a run in one document.
#[derive(serde::Serialize)]
struct Document<'r> {
    schema: u64,
    experiment: &'static Declaration,
    run: &'r Record,
    measurements: &'r [StepResult],
    failures: &'r [Failed],
    noise: &'r Noise,
    conclusion: &'r Conclusion,
}

/// Concludes from a run, experiment by experiment, in the order of `experiments`.
///
/// # Errors
/// The measurements are damaged.
pub fn conclude(run: &Run, experiments: &[&dyn Experiment]) -> Result<Vec<Found>> {
    let measurements = run.measurements()?;
    let its =
        experiments.iter().filter(|one| run.record.experiments.iter().any(|id| id == one.declaration().id));
    let mut found = its.map(|experiment| one(run, *experiment, &measurements)).collect::<Result<Vec<_>>>()?;
    let noisy: Vec<_> =
        found.iter().filter(|one| !one.noise.warnings.is_empty()).map(|one| one.declaration.id).collect();
    for one in &mut found {
        one.noisy_needs = noisy.iter().copied().filter(|id| one.declaration.needs.contains(id)).collect();
    }
    Ok(found)
}

fn one(run: &Run, experiment: &dyn Experiment, measurements: &Measurements) -> Result<Found> {
    let (declaration, conclusion) = (experiment.declaration(), experiment.conclude(measurements));
    let entries = run.entries(declaration.id)?;
    let failed = |entry| match entry {
        Entry::Failed(failed) => Some(failed),
        Entry::Measured(_) => None,
    };
    Ok(Found {
        declaration,
        conclusion: complete(declaration, conclusion, run.record.options.smoke),
        noise: noise::judge(declaration.id, measurements),
        failures: entries.into_iter().filter_map(failed).collect(),
        noisy_needs: Vec::new(),
    })
}

/// Puts the verdicts into the order of the claims, and adds missing verdicts. A smoke run has measured too little for
/// verdicts, as its reader is told once.
fn complete(declaration: &Declaration, mut conclusion: Conclusion, smoke: bool) -> Conclusion {
    let verdict = |claim: &str| match conclusion.verdicts.iter().find(|finding| finding.claim == claim) {
        Some(finding) if smoke => Finding::of(claim, Err(finding.found.clone())),
        Some(finding) => finding.clone(),
        None => Finding::of(claim, Err("What was measured says nothing about it.".to_owned())),
    };
    conclusion.verdicts = declaration.claims.iter().map(|claim| verdict(claim.id)).collect();
    conclusion
}

/// Writes the findings into the run's folder: documents, tables of numbers, drawings.
///
/// # Errors
/// No room is left, or writing there is not allowed.
pub fn write(run: &Run, found: &[Found]) -> Result<()> {
    let measurements = run.measurements()?;
    let mark = if run.record.options.smoke { "A smoke run, to conclude nothing from: " } else { "" };
    let machine = format!("{mark}{}", run.record.machine.name());
    for one in found {
        let id = one.declaration.id;
        let steps: Vec<_> = measurements.of(id).cloned().collect();
        run.write(&format!("{id}.csv"), &csv::text(&steps))?;
        for figure in &one.conclusion.figures {
            run.write(&figure::file(id, figure), &figure::sheet(&machine, std::slice::from_ref(figure)))?;
        }
        let document = Document {
            schema: SCHEMA,
            experiment: one.declaration,
            run: &run.record,
            measurements: &steps,
            failures: &one.failures,
            noise: &one.noise,
            conclusion: &one.conclusion,
        };
        run.write_json(&format!("{id}.json"), &document)?;
    }
    Ok(())
}
