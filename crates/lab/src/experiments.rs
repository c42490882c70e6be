//! The experiments, in the order in which they are run.

mod latency;
mod reading;
mod turns;

use crate::experiment::Experiment;

/// All of them.
pub const ALL: [&dyn Experiment; 1] = [&latency::Latency];

/// The experiment of that id.
pub fn find(id: &str) -> Option<&'static dyn Experiment> {
    ALL.into_iter().find(|experiment| experiment.declaration().id == id)
}
