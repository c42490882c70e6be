//! Experiments as descriptions.

use super::sweep::Sweep;
use crate::error::{Error, Result};
use crate::experiment::{Declaration, Experiment, Options, Sitting, Step};
use crate::findings::Conclusion;
use crate::measurement::Measurements;

/// An experiment as a description.
pub(super) struct Described {
    pub(super) declaration: &'static Declaration,
    pub(super) measuring: Measuring,
    pub(super) conclude: fn(&Measurements) -> Conclusion,
}

/// How an experiment measures.
pub(super) enum Measuring {
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
