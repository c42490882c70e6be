//! `ID.json`: everything about one experiment of a run in one document.

use serde::{Deserialize, Serialize};

use super::journal::Failed;
use super::record::Record;
use crate::experiment;
use crate::findings::Conclusion;
use crate::measurement::StepResult;
use crate::runner::noise::Noise;

/// Everything about one experiment of a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Document {
    /// The version of the schema.
    pub schema: u64,
    /// What the experiment says about itself.
    pub experiment: Declaration,
    /// How the run was made, and where.
    pub run: Record,
    /// What was measured, sample by sample.
    pub measurements: Vec<StepResult>,
    /// Steps that failed.
    pub failures: Vec<Failed>,
    /// How far the measurements can be trusted.
    pub noise: Noise,
    /// What follows from them.
    pub conclusion: Conclusion,
}

/// An experiment's declaration, as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Declaration {
    /// The name on the command line.
    pub id: String,
    /// What is measured, in a few words.
    pub title: String,
    /// Where the papers have it.
    pub source: String,
    /// What the papers found.
    pub claims: Vec<Claim>,
    /// What is varied.
    pub axes: Vec<String>,
    /// The experiments whose measurements it concludes from, besides its own.
    pub needs: Vec<String>,
}

/// A claim, as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// The name that the verdict refers to.
    pub id: String,
    /// What the paper found.
    pub text: String,
    /// Where.
    pub source: String,
}

impl From<&experiment::Declaration> for Declaration {
    fn from(one: &experiment::Declaration) -> Self {
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        let claim = |claim: &experiment::Claim| Claim {
            id: claim.id.to_owned(),
            text: claim.text.to_owned(),
            source: claim.source.to_owned(),
        };
        Self {
            id: one.id.to_owned(),
            title: one.title.to_owned(),
            source: one.source.to_owned(),
            claims: one.claims.iter().map(claim).collect(),
            axes: owned(one.axes),
            needs: owned(one.needs),
        }
    }
}
