//! Progress on standard error, where a person looks at it.

use std::io::IsTerminal;

use genie::Direction;
use genie_lab::length;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar that counts rounds.
#[derive(Debug)]
pub(super) struct Progress(ProgressBar);

impl Progress {
    /// Shows a bar for so many rounds, if standard error is a terminal.
    pub(super) fn new(rounds: usize) -> Self {
        if !std::io::stderr().is_terminal() {
            return Self(ProgressBar::hidden());
        }
        let bar = ProgressBar::with_draw_target(Some(rounds as u64), ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{msg:14} {wide_bar} {percent:>3} %");
        Self(style.map_or(bar.clone(), |style| bar.with_style(style)))
    }

    /// Says what is measured now.
    pub(super) fn begin(&self, length: usize, direction: Direction) {
        self.0.set_message(format!("{:>8} {direction}", length::format(length)));
    }

    /// Counts rounds that are done.
    pub(super) fn done(&self, rounds: usize) {
        self.0.inc(rounds as u64);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
