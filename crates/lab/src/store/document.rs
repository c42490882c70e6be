//! `ID.json`: everything about one experiment of a run in one document.

use serde::Serialize;

use super::journal::Failed;
use super::record::Record;
use crate::experiment::Declaration;
use crate::findings::Conclusion;
use crate::measurement::StepResult;
use crate::runner::noise::Noise;

/// Everything about one experiment of a run.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Document<'r> {
    /// The version of the schema.
    pub schema: u64,
    /// The experiment's declaration.
    pub experiment: &'static Declaration,
    /// How the run was made, and where.
    pub run: &'r Record,
    /// The measurements, sample by sample.
    pub measurements: &'r [StepResult],
    /// Steps that failed.
    pub failures: &'r [Failed],
    /// How far the measurements can be trusted.
    pub noise: &'r Noise,
    /// The conclusion from the measurements.
    pub conclusion: &'r Conclusion,
}
