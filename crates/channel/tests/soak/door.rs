//! Doors: the way of a client, or a relay, to a server that may be killed and replaced at any time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use genie_channel::directory::Directory;
use genie_channel::{Connect, ConnectOptions};
use genie_io::{Error, Interface, ServerHandle};
use genie_sys::lock::Mutex;

use crate::traces::is_dead;

/// How long a server may take to listen.
const PATIENCE: Duration = Duration::from_secs(10);

/// One server's name, and the connection to the server that has it now.
pub(crate) struct Door {
    pub(crate) name: String,
    options: ConnectOptions,
    visit: Mutex<Option<Visit>>,
    /// Whether it is to a server in this process, which needs no connection.
    is_within: bool,
}

/// A connection.
#[derive(Clone)]
pub(crate) struct Visit {
    pub(crate) server: ServerHandle,
    /// The process that had the name just before: the server's, or one that is dead by now.
    pub(crate) pid: u32,
    /// Whether a request took longer than it may, as it does while the server is stopped.
    is_late: Arc<AtomicBool>,
}

impl Visit {
    /// Notes that a request took too long.
    pub(crate) fn note_late(&self) {
        self.is_late.store(true, Ordering::Relaxed);
    }

    /// Whether one did before this one, which is served.
    pub(crate) fn is_served_again(&self) -> bool {
        self.is_late.load(Ordering::Relaxed) && self.is_late.swap(false, Ordering::Relaxed)
    }
}

impl Door {
    pub(crate) fn new(name: &str, options: ConnectOptions) -> Self {
        Self { name: name.to_owned(), options, visit: Mutex::default(), is_within: false }
    }

    /// The way to a server in this process.
    pub(crate) fn within(server: &ServerHandle) -> Self {
        let visit = Visit { server: server.clone(), pid: std::process::id(), is_late: Arc::default() };
        let (name, options) = (server.name().to_owned(), ConnectOptions::default());
        Self { name, options, visit: Mutex::new(Some(visit)), is_within: true }
    }

    /// The connection, made if there is none. `None` while there is no server, or if `refused` accepts the reason why no
    /// connection can be made.
    ///
    /// # Panics
    /// When a living server doesn't let anybody in for long.
    pub(crate) fn enter(
        &self,
        interface: &Interface,
        directory: &Directory,
        refused: impl Fn(&Error) -> bool,
    ) -> Option<Visit> {
        let mut visit = self.visit.lock();
        let deadline = Instant::now() + PATIENCE;
        while visit.is_none() {
            let pid = self.pid(directory).filter(|pid| !is_dead(*pid))?;
            match interface.connect_with(directory, &self.name, &self.options) {
                Ok(server) => *visit = Some(Visit { server, pid, is_late: Arc::default() }),
                Err(error) if refused(&error) => return None,
                // A server that has its name may not listen yet.
                Err(error) => {
                    assert!(Instant::now() < deadline, "{}, process {pid}, is alive: {error}", self.name);
                    std::thread::sleep(Duration::from_millis(2));
                }
            }
        }
        visit.clone()
    }

    /// Lets the connection go, if it is to this process.
    pub(crate) fn leave(&self, pid: u32) {
        let mut visit = self.visit.lock();
        let left = visit.take_if(|visit| visit.pid == pid);
        drop(visit);
        drop(left);
    }

    /// Lets the connection go, whatever process it is to.
    pub(crate) fn close(&self) {
        if !self.is_within {
            *self.visit.lock() = None;
        }
    }

    /// The process that has the name, or had it last.
    fn pid(&self, directory: &Directory) -> Option<u32> {
        let lock = directory.path().join(format!("{}.lock", self.name));
        std::fs::read_to_string(lock).ok()?.trim().parse().ok()
    }
}
