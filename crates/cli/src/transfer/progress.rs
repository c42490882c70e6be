//! Progress on standard error, where a person looks at it.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar that counts bytes, for all jobs.
#[derive(Debug)]
pub(super) struct Progress(ProgressBar);

impl Progress {
    /// Shows a bar for so many bytes, if standard error is a terminal.
    pub(super) fn new(bytes: u64) -> Self {
        if !std::io::stderr().is_terminal() {
            return Self(ProgressBar::hidden());
        }
        let bar = ProgressBar::with_draw_target(Some(bytes), ProgressDrawTarget::stderr());
        let style = "{wide_bar} {bytes}/{total_bytes}  {bytes_per_sec}  {eta}";
        Self(ProgressStyle::with_template(style).map_or(bar.clone(), |style| bar.with_style(style)))
    }

    /// Counts bytes that are done.
    pub(super) fn done(&self, bytes: usize) {
        self.0.inc(bytes as u64);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
