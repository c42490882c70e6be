//! Results on standard output: coloured for people, plain for programs, and without an error when nobody reads them.
//!
//! Why: `print!` panics when a reader such as `head` closes the pipe; that is no error of the command.

use std::io::{ErrorKind, IsTerminal, Write};

use crate::failure::Failure;

/// Prints results. A pipe closed by its reader counts as success.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::could_not(format!("standard output cannot be written: {error}")))
        }
        _ => Ok(()),
    }
}

/// Prints a result as one indented JSON document.
pub(crate) fn print_json(value: &impl serde::Serialize) -> Result<(), Failure> {
    match serde_json::to_string_pretty(value) {
        Ok(text) => print(&(text + "\n")),
        Err(error) => Err(Failure::could_not(format!("the result cannot be written as JSON: {error}"))),
    }
}

/// Whether results may be coloured: on a terminal, unless NO_COLOR is set to anything.
pub(crate) fn is_coloured() -> bool {
    std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}
