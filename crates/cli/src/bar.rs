//! A bar on standard error that shows a person how far work is.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar; dropping it removes the bar from the screen.
#[derive(Debug)]
pub(crate) struct Bar(pub(crate) ProgressBar);

impl Bar {
    /// Shows a bar with the template `look` for this amount of work, if standard error is a terminal.
    pub(crate) fn new(work: u64, look: &str) -> Self {
        if !std::io::stderr().is_terminal() {
            return Self(ProgressBar::hidden());
        }
        let bar = ProgressBar::with_draw_target(Some(work), ProgressDrawTarget::stderr());
        Self(ProgressStyle::with_template(look).map_or(bar.clone(), |style| bar.with_style(style)))
    }

    /// Says what is done now.
    pub(crate) fn say(&self, what: String) {
        self.0.set_message(what);
    }

    /// Counts work that is done.
    pub(crate) fn done(&self, work: usize) {
        self.0.inc(work as u64);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
