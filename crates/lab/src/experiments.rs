//! The experiments, in the order in which they are run.

mod cpu;
mod latency;
mod latency_short;
mod reading;
#[cfg(test)]
mod synthetic;
mod turns;

use crate::experiment::Experiment;

/// All of them.
pub const ALL: [&dyn Experiment; 3] = [&latency::Latency, &latency_short::LatencyShort, &cpu::Cpu];

/// The experiment of that id.
pub fn find(id: &str) -> Option<&'static dyn Experiment> {
    ALL.into_iter().find(|experiment| experiment.declaration().id == id)
}
