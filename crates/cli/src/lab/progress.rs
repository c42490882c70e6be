//! Shows how far a run is, on standard error: a bar with the time left for people, a line for each step otherwise.

use std::io::IsTerminal;
use std::time::Duration;

use genie_lab::runner::{Doing, Watcher};
use indicatif::HumanDuration;

use crate::bar::Bar;

/// Shows each step.
#[derive(Debug)]
pub(super) enum Progress {
    /// To a person.
    Bar(Bar),
    /// To a file or a program.
    Lines,
}

impl Progress {
    /// A bar if standard error is a terminal.
    pub(super) fn new() -> Self {
        if !std::io::stderr().is_terminal() {
            return Self::Lines;
        }
        Self::Bar(Bar::new(0, "{wide_msg}\n{wide_bar} {pos}/{len} steps, {prefix} left"))
    }

    /// Says something between steps.
    fn say(&self, line: &str) {
        match self {
            Self::Bar(Bar(bar)) => bar.suspend(|| eprintln!("{line}")),
            Self::Lines => eprintln!("{line}"),
        }
    }
}

impl Watcher for Progress {
    fn begin(&mut self, doing: &Doing<'_>) {
        let Doing { experiment, step, sitting, sittings, done, steps, left } = doing;
        let what = format!("{experiment}: {step} (sitting {} of {sittings})", sitting + 1);
        let left = HumanDuration(Duration::from_secs(left.as_secs())).to_string();
        match self {
            Self::Bar(Bar(bar)) => {
                bar.set_length(*steps as u64);
                bar.set_position(*done as u64);
                bar.set_prefix(left);
                bar.set_message(what);
                bar.tick();
            }
            Self::Lines => eprintln!("genie: {}/{steps} {what}, about {left} left", done + 1),
        }
    }

    fn end(&mut self, doing: &Doing<'_>, failure: Option<&str>) {
        if let Some(error) = failure {
            self.say(&format!("genie: {}: {} failed: {error}", doing.experiment, doing.step));
        }
    }
}
