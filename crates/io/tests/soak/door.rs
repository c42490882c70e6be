//! Doors: the way of a client, or a relay, to a server that may be killed and replaced at any time.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use genie_io::channel::ConnectOptions;
use genie_io::channel::directory::Directory;
use genie_io::{Interface, ServerHandle};

use crate::traces::is_dead;

/// How long a server may take to listen.
const PATIENCE: Duration = Duration::from_secs(10);

/// One server's name, and the connection to whoever has it now.
pub(crate) struct Door {
    pub(crate) name: String,
    options: ConnectOptions,
    visit: Mutex<Option<Visit>>,
}

/// A connection.
#[derive(Clone)]
pub(crate) struct Visit {
    pub(crate) server: ServerHandle,
    /// Who had the name just before: the server's process, or one that is dead by now.
    pub(crate) pid: u32,
}

impl Door {
    pub(crate) fn new(name: &str, options: ConnectOptions) -> Self {
        Self { name: name.to_owned(), options, visit: Mutex::default() }
    }

    /// The connection, made if there is none; none, while there is no server.
    ///
    /// # Panics
    /// When a living server doesn't let anybody in for long.
    pub(crate) fn enter(&self, interface: &Interface, directory: &Directory) -> Option<Visit> {
        let mut visit = self.visit.lock().unwrap_or_else(PoisonError::into_inner);
        let deadline = Instant::now() + PATIENCE;
        while visit.is_none() {
            let pid = self.pid(directory).filter(|pid| !is_dead(*pid))?;
            match interface.connect_with(directory, &self.name, &self.options) {
                Ok(server) => *visit = Some(Visit { server, pid }),
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
        let mut visit = self.visit.lock().unwrap_or_else(PoisonError::into_inner);
        let left = visit.take_if(|visit| visit.pid == pid);
        drop(visit);
        drop(left);
    }

    /// Lets it go, whoever it is to.
    pub(crate) fn close(&self) {
        *self.visit.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Who has the name, or had it last.
    fn pid(&self, directory: &Directory) -> Option<u32> {
        let lock = directory.path().join(format!("{}.lock", self.name));
        std::fs::read_to_string(lock).ok()?.trim().parse().ok()
    }
}
