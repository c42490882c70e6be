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

mod alone;
mod checksum;
mod cpu;
mod fbufs_mapwr;
mod fbufs_rw;
mod latency;
mod latency_short;
pub mod model;
mod partners;
mod primitives;
mod programs;
mod projection;
mod reading;
mod servers;
mod single_copy_tcp;
mod sweep;
#[cfg(test)]
pub(crate) mod synthetic;
mod turns;

use crate::error::{Error, Result};
use crate::experiment::{Declaration, Experiment, Options, Sitting, Step};
use crate::findings::Conclusion;
use crate::measurement::Measurements;
use sweep::Sweep;

/// All experiments; one that others need comes before those others.
pub const ALL: &[&dyn Experiment] = &[
    &latency::LATENCY,
    // Next to the experiments whose predictions use it.
    &primitives::PRIMITIVES,
    &latency_short::LATENCY_SHORT,
    &cpu::CPU,
    &checksum::CHECKSUM,
    &servers::SERVERS,
    &model::MODEL,
    &fbufs_rw::FBUFS_RW,
    &fbufs_mapwr::FBUFS_MAPWR,
    &programs::TTCP,
    &programs::FTP,
    &projection::PROJECTION,
    &single_copy_tcp::SINGLE_COPY_TCP,
];

/// The experiment of that id.
pub fn find(id: &str) -> Option<&'static dyn Experiment> {
    ALL.iter().copied().find(|experiment| experiment.declaration().id == id)
}

/// An experiment as a description.
struct Described {
    declaration: &'static Declaration,
    measuring: Measuring,
    conclude: fn(&Measurements) -> Conclusion,
}

/// How an experiment measures.
enum Measuring {
    /// It measures nothing, and concludes from the measurements of others.
    Nothing,
    /// Subjects take turns, one length after the other.
    Sweep(fn(&Options) -> Sweep),
    /// In steps and sittings of its own.
    Own { steps: fn(&Options) -> Vec<Step>, sit: for<'o> fn(&'o Options) -> Result<Box<dyn Sitting + 'o>> },
}

impl Experiment for Described {
    fn declaration(&self) -> &'static Declaration {
        self.declaration
    }

    fn steps(&self, options: &Options) -> Vec<Step> {
        match self.measuring {
            Measuring::Nothing => Vec::new(),
            Measuring::Sweep(sweep) => sweep(options).steps(),
            Measuring::Own { steps, .. } => steps(options),
        }
    }

    fn sit<'o>(&'o self, options: &'o Options) -> Result<Box<dyn Sitting + 'o>> {
        match self.measuring {
            Measuring::Nothing => {
                Err(Error::NoSuchStep { experiment: self.declaration.id, step: "any".to_owned() })
            }
            Measuring::Sweep(sweep) => Ok(Box::new(sweep(options).sit())),
            Measuring::Own { sit, .. } => sit(options),
        }
    }

    fn conclude(&self, measurements: &Measurements) -> Conclusion {
        (self.conclude)(measurements)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::Verdict;

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
