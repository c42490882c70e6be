//! The experiments, in the order in which they are run.
//!
//! How: each is a description, with functions that make its own measurements and that conclude.

/// A place in the thesis.
macro_rules! brustoloni {
    ($place:literal) => {
        concat!(
            "J. C. Brustoloni, Effects of Data Passing Semantics and Operating System Structure on Network I/O Performance, ",
            $place
        )
    };
}

/// A place in the paper on fbufs.
macro_rules! thadani {
    ($place:literal) => {
        concat!(
            "M. N. Thadani and Y. A. Khalidi, An Efficient Zero-Copy I/O Framework for UNIX, SMLI TR-95-39, ",
            $place
        )
    };
}

mod adapters;
mod alone;
mod checksum;
mod cpu;
mod curves;
mod described;
mod drivers;
mod fbufs_mapwr;
mod fbufs_rw;
mod latency;
mod latency_pooled;
mod latency_short;
mod link;
pub mod model;
mod packets;
mod partners;
mod primitives;
mod programs;
mod projection;
mod reading;
mod servers;
mod single_copy_tcp;
mod streaming;
mod sweep;
#[cfg(test)]
pub(crate) mod synthetic;
mod transfers;
mod turns;
mod udp;

use crate::experiment::Experiment;

/// All experiments; one that others need comes before those others.
pub const ALL: &[&dyn Experiment] = &[
    &latency::LATENCY,
    // Next to the experiments whose predictions use it.
    &primitives::PRIMITIVES,
    &latency_short::LATENCY_SHORT,
    &cpu::CPU,
    &checksum::CHECKSUM,
    &servers::SERVERS,
    &adapters::ADAPTERS,
    &latency_pooled::LATENCY_POOLED,
    &packets::PACKETS,
    &model::MODEL,
    &fbufs_rw::FBUFS_RW,
    &fbufs_mapwr::FBUFS_MAPWR,
    &programs::TTCP,
    &programs::FTP,
    &projection::PROJECTION,
    &single_copy_tcp::SINGLE_COPY_TCP,
    &udp::UDP,
    &drivers::DRIVERS_OF_PAPER,
    &streaming::STREAMING,
];

/// The experiment of that id.
pub fn find(id: &str) -> Option<&'static dyn Experiment> {
    ALL.iter().copied().find(|experiment| experiment.declaration().id == id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::Verdict;
    use crate::measurement::Measurements;

    #[test]
    fn nothing_measured_is_nothing_concluded() {
        for experiment in ALL {
            let conclusion = experiment.conclude(&Measurements::default());
            let claims = experiment.declaration().claims.iter().map(|claim| claim.id);
            assert!(claims.eq(conclusion.verdicts.iter().map(|finding| finding.claim.as_str())));
            assert!(conclusion.verdicts.iter().all(|finding| finding.verdict == Verdict::CannotBeTested));
            let mut curves = conclusion.figures.iter().flat_map(|figure| &figure.curves);
            assert!(curves.all(|curve| !curve.measured), "{}", experiment.declaration().id);
        }
    }
}
