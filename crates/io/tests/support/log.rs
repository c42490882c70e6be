//! A log that several servers write, maybe of several processes: one line for each event, in the order of events.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

use genie_sys::lock::Mutex;

/// One server's way to write the log: its own name, a line at a time.
#[derive(Debug)]
pub(crate) struct Log {
    label: String,
    file: Mutex<File>,
}

impl Log {
    pub(crate) fn open(path: &Path, label: &str) -> Self {
        let file = OpenOptions::new().append(true).create(true).open(path).expect("the log can be written");
        Self { label: label.to_owned(), file: Mutex::new(file) }
    }

    /// Adds that a request has come.
    pub(crate) fn note_arrival(&self) {
        self.note("asked");
    }

    /// Adds that a request is to be let go.
    pub(crate) fn note_abort(&self) {
        self.note("aborted");
    }

    fn note(&self, event: &str) {
        let line = format!("{} {event}\n", self.label);
        self.file.lock().write_all(line.as_bytes()).expect("room for the log");
    }
}

/// What was noted so far.
pub(crate) fn read(path: &Path) -> Vec<String> {
    std::fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
}
