//! How the command fails: one line for an operator, and an exit status.

use std::fmt::Display;
use std::io::Write;
use std::process::ExitCode;

use crate::output;

/// The exit status of a command that was called correctly but could not do its work.
const COULD_NOT: u8 = 1;
/// The exit status of a command that was called wrongly.
const WRONG_USAGE: u8 = 2;

/// Why the command ends without having done what was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    /// One sentence: what failed, on what, and what to do about it.
    pub(crate) message: String,
    /// The exit status: 1 if the command could not do its work, 2 for wrong usage.
    pub(crate) status: u8,
}

impl Failure {
    /// The command could not do what was asked.
    pub(crate) fn could_not(message: impl Display) -> Self {
        Self { message: message.to_string(), status: COULD_NOT }
    }

    /// The command was asked for something that makes no sense.
    pub(crate) fn usage(message: impl Display) -> Self {
        Self { message: message.to_string(), status: WRONG_USAGE }
    }

    /// Prints the line to standard error and gives the status to exit with.
    pub(crate) fn report(&self) -> ExitCode {
        // If standard error cannot be written to, the status alone reports the failure.
        let _ = writeln!(std::io::stderr(), "genie: {}", output::one_line(&self.message));
        ExitCode::from(self.status)
    }
}

impl From<genie_lab::error::Error> for Failure {
    fn from(error: genie_lab::error::Error) -> Self {
        Self::could_not(error)
    }
}
