//! Experiments: each has a declaration, steps that measure side by side, and a conclusion.
//!
//! How: an experiment is run in several *sittings*. Each sitting opens its parties anew (processes, buffers). So
//! circumstances that vary from one run to the next, such as where pages lie and which process the host's scheduler favours,
//! also vary between the sittings of one run, and show. A sitting consists of *steps*; the subjects of a step take turns.
//! Results are stored step by step, and an interrupted run goes on from the last stored step. When all steps of all sittings
//! are done, the experiment concludes: tables, figures, and a verdict on each of its claims.
//! Invariants: conclusions depend on stored measurements alone, so that a report can be made without measuring.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::findings::Conclusion;
use crate::interface::Granule;
use crate::length;
use crate::measurement::{Measured, Measurements};

/// What an experiment says about itself before it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Declaration {
    /// The name on the command line.
    pub id: &'static str,
    /// What is measured, in a few words.
    pub title: &'static str,
    /// Where the experiment is in the papers: author, work, section, figure.
    pub source: &'static str,
    /// The claims of the papers.
    pub claims: &'static [Claim],
    /// The parameters that are varied, in words, with units.
    pub axes: &'static [&'static str],
    /// The other experiments from whose measurements this one concludes.
    pub needs: &'static [&'static str],
}

/// Something that a paper found, to be checked here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Claim {
    /// The name that the verdict refers to.
    pub id: &'static str,
    /// One sentence, in our words, with the paper's figures.
    pub text: &'static str,
    /// The paper's section, figure or table.
    pub source: &'static str,
}

/// How a run is to be made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Options {
    /// Everything once and small: to see that it works, not to conclude anything.
    pub smoke: bool,
    /// The granules asked for.
    pub granule: Granule,
    /// Seeds the order of turns.
    pub seed: u64,
}

/// A step: measurements that are made side by side.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// The name in progress and in stored results, unique within its experiment: `10 Gbit/s, 64 KiB`.
    pub name: String,
    /// About how long it takes, for the time left that progress shows.
    pub seconds: f64,
}

impl Step {
    /// A step for each length; `seconds` says about how long one takes.
    pub(crate) fn each(lengths: &[usize], seconds: impl Fn(usize) -> f64) -> Vec<Self> {
        lengths.iter().map(|len| Self { name: length::format(*len), seconds: seconds(*len) }).collect()
    }

    /// The length of a step of [`Step::each`].
    pub(crate) fn length(&self, experiment: &'static str, lengths: &[usize]) -> Result<usize> {
        let found = lengths.iter().copied().find(|len| length::format(*len) == self.name);
        found.ok_or_else(|| Error::NoSuchStep { experiment, step: self.name.clone() })
    }
}

/// An experiment.
pub trait Experiment: Sync {
    /// The experiment's declaration.
    fn declaration(&self) -> &'static Declaration;

    /// The steps of each sitting, in order; none for an experiment that concludes from the measurements of others, as models
    /// do.
    fn steps(&self, options: &Options) -> Vec<Step>;

    /// Opens what a sitting needs. It is not told which sitting this is: all sittings are made alike, with turns in the same
    /// order, so that only the machine makes them differ.
    ///
    /// # Errors
    /// No memory, a process does not start, or there are no steps.
    fn sit<'a>(&'a self, options: &'a Options) -> Result<Box<dyn Sitting + 'a>>;

    /// Concludes from all measurements of a run: its own and those of the experiments that it needs. A claim about something
    /// that was not measured cannot be tested.
    fn conclude(&self, measurements: &Measurements) -> Conclusion;
}

/// A sitting under way; dropping it closes everything that it opened.
pub trait Sitting {
    /// Measures one of the steps.
    ///
    /// # Errors
    /// A request failed, or data arrived damaged.
    fn measure(&mut self, step: &Step) -> Result<Vec<Measured>>;
}
