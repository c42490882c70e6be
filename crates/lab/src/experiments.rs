//! The experiments, in the order in which they are run.

mod checksum;
mod cpu;
mod latency;
mod latency_short;
pub mod model;
mod primitives;
pub mod projection;
mod reading;
mod servers;
pub mod single_copy_tcp;
mod sweep;
#[cfg(test)]
pub(crate) mod synthetic;
mod turns;

use crate::experiment::Experiment;

/// All of them: what others need before those others.
pub const ALL: &[&dyn Experiment] = &[
    &latency::Latency,
    // Beside what is predicted from it.
    &primitives::Primitives,
    &latency_short::LatencyShort,
    &cpu::Cpu,
    &checksum::Checksum,
    &servers::Servers,
    &model::Model,
    &projection::Projection,
    &single_copy_tcp::SingleCopyTcp,
];

/// The experiment of that id.
pub fn find(id: &str) -> Option<&'static dyn Experiment> {
    ALL.iter().copied().find(|experiment| experiment.declaration().id == id)
}
