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
    /// What the experiment says about itself.
    pub experiment: &'static Declaration,
    /// How the run was made, and where.
    pub run: &'r Record,
    /// What was measured, sample by sample.
    pub measurements: &'r [StepResult],
    /// Steps that failed.
    pub failures: &'r [Failed],
    /// How far the measurements can be trusted.
    pub noise: &'r Noise,
    /// What follows from them.
    pub conclusion: &'r Conclusion,
}
