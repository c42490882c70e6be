//! A log that several servers write, maybe of several processes: one line for each event, in the order of events.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use genie_io::{Client, Incoming, RequestId, Server, Service, ServiceId};
use genie_passing::{Overlays, Preferred};
use genie_sys::lock::Mutex;

use super::holder::{Control, Held, HoldingServer, PASS};

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

/// A holder that may note which requests come, and which are to be let go.
pub(crate) struct Noting {
    holder: HoldingServer,
    log: Option<Log>,
}

impl Noting {
    /// A holder, and what it holds; if it notes what comes, it lets requests go when it is asked to.
    pub(crate) fn new(overlays: Option<Overlays>, log: Option<Log>) -> (Self, Arc<Held>) {
        let held = Arc::new(Held::new(overlays));
        held.set_obliging(log.is_some());
        (Self { holder: HoldingServer(Arc::clone(&held)), log }, held)
    }
}

impl Server for Noting {
    fn name(&self) -> &str {
        self.holder.name()
    }

    fn services(&self) -> &[Service] {
        self.holder.services()
    }

    fn request(&self, incoming: Incoming) {
        if incoming.service() != PASS {
            self.log.iter().for_each(Log::note_arrival);
        }
        self.holder.request(incoming);
    }

    fn abort(&self, request: RequestId) {
        self.log.iter().for_each(Log::note_abort);
        self.holder.abort(request);
    }

    fn preferred(&self, client: &Client, service: ServiceId, argument: &[u8]) -> Option<Preferred> {
        self.holder.preferred(client, service, argument)
    }
}

/// What was noted so far.
pub(crate) fn read(path: &Path) -> Vec<String> {
    std::fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
}
