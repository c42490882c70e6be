//! Listening: how a server becomes reachable from other processes.
//!
//! How: [`Listener::bind`] claims a name; a control thread accepts clients, answers their messages and notices when they
//! hang up; worker threads take requests off the clients' rings and hand them to the server's code, which may reply from
//! any thread.
//! Limits: [`ServeOptions`]; a worker attends to at most [`WORKER_CLIENTS`] clients.
//! Source: thesis §7.2 (`io_server_register`, `io_server`).

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use genie_memory::Space;
use genie_sys::event::Event;
use genie_sys::fork::Maker;

use super::directory::{Claim, Directory};
use super::evictions::Evictions;
use super::options::ServeOptions;
use super::private;
use super::serving::Serving;
use super::session::Session;
use super::wire::control::{
    ClientStatus, Limits, MAX_ABORT_TIMEOUT, Message, Offer, Status, Trust, VERSION, Welcome,
};
use super::worker::ClientRing;
use crate::code::Code;
use crate::primitive::Mutex;
use crate::{Error, Server, ServiceId};

/// How many clients one thread attends to: the kernel lets a thread sleep on 128 words, and one of them is the worker's own.
pub(super) const WORKER_CLIENTS: usize = 127;

/// A name that was claimed for a server that is not made yet. Clients that connect meanwhile wait.
///
/// Most servers need no more than [`Listener::bind`]. A server that fills buffers of its own before it is asked (pooled
/// in-host buffering) needs the private pool, and so is made between the claim and the serving:
///
/// ```no_run
/// # mod genie { pub use genie_io::channel; pub use genie_io::servers::memory; }
/// use genie::channel::{Listener, ServeOptions};
/// use genie::memory::Memory;
///
/// let listener = Listener::claim("letters", ServeOptions::default())?;
/// let letters = Memory::pooled(listener.private_pool()?, 0, 1 << 20, 16)?;
/// listener.serve(letters)?.run()?;
/// # Ok::<(), genie_io::Error>(())
/// ```
#[derive(Debug)]
pub struct Listener {
    name: String,
    claim: Arc<Claim>,
    options: ServeOptions,
    /// Made when it is first asked for.
    private_pool: OnceLock<Space>,
}

impl Listener {
    /// Claims `name` in the run-time directory for a server.
    ///
    /// # Errors
    /// The name is taken or can't be used, the directory is unsafe, or the kernel refuses. [`Error::Unservable`]: the
    /// options, or the services, of which there may be 256, can't be told to clients.
    pub fn bind(name: &str, server: impl Server, options: ServeOptions) -> Result<Serving, Error> {
        Self::claim(name, options)?.serve(server)
    }

    /// The same in another directory.
    ///
    /// # Errors
    /// As [`Listener::bind`].
    pub fn bind_in(
        directory: &Directory,
        name: &str,
        server: impl Server,
        options: ServeOptions,
    ) -> Result<Serving, Error> {
        Self::claim_in(directory, name, options)?.serve(server)
    }

    /// Claims `name` in the run-time directory for a server that is yet to be made. Dropping the listener gives the name up.
    ///
    /// # Errors
    /// As [`Listener::bind`].
    pub fn claim(name: &str, options: ServeOptions) -> Result<Self, Error> {
        Self::claim_in(&Directory::open()?, name, options)
    }

    /// The same in another directory.
    ///
    /// # Errors
    /// As [`Listener::bind`].
    pub fn claim_in(directory: &Directory, name: &str, options: ServeOptions) -> Result<Self, Error> {
        options.check()?;
        let claim = Arc::new(directory.claim(name)?);
        Ok(Self { name: name.to_owned(), claim, options, private_pool: OnceLock::new() })
    }

    /// Memory of the server's own, of [`ServeOptions::private_pool`] bytes, for buffers that it fills before it is asked.
    /// When the server overlays such a buffer, the data is copied into memory of the client's channel, since no client may
    /// see another's data.
    ///
    /// # Errors
    /// There is no memory.
    pub fn private_pool(&self) -> Result<&Space, Error> {
        match self.private_pool.get() {
            Some(space) => Ok(space),
            None => {
                let space = private::space(self.options.private_pool)?;
                Ok(self.private_pool.get_or_init(|| space))
            }
        }
    }

    /// Gives the name to a server, which other processes can reach as soon as it runs.
    ///
    /// # Errors
    /// The kernel refuses, or [`Error::Unservable`]; [`Error::Inherited`] in a child made by fork since the name was claimed.
    pub fn serve(self, server: impl Server) -> Result<Serving, Error> {
        let threads = self.options.threads.clamp(1, 64);
        let server = Code::new(server);
        server.check()?;
        let maker = self.claim.maker();
        if !maker.is_this_process() {
            return Err(Error::Inherited);
        }
        let shared = Shared {
            maker,
            name: self.name,
            evictions: Evictions::new(&server),
            server,
            instance: u64::from(std::process::id()) << 32 ^ started_at(),
            started: Instant::now(),
            sessions: Mutex::default(),
            inboxes: (0..threads).map(|_| Inbox::default()).collect(),
            has_stopped: AtomicBool::new(false),
            attention: Event::new()?,
            options: self.options,
        };
        shared.check()?;
        Ok(Serving::new(shared, self.claim))
    }
}

/// What the server's threads share.
pub(super) struct Shared {
    maker: Maker,
    pub(super) name: String,
    pub(super) server: Code,
    pub(super) evictions: Arc<Evictions>,
    pub(super) instance: u64,
    pub(super) started: Instant,
    pub(super) options: ServeOptions,
    pub(super) sessions: Mutex<Vec<Arc<Session>>>,
    pub(super) inboxes: Vec<Inbox>,
    pub(super) has_stopped: AtomicBool,
    /// Wakes the control thread.
    pub(super) attention: Event,
}

/// Where the control thread leaves new clients for one worker.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    rings: Mutex<Vec<ClientRing>>,
    /// Counts changes; the worker sleeps on it, among others.
    pub(super) changes: AtomicU32,
    /// How many changes the worker has seen.
    pub(super) seen: AtomicU32,
}

impl Shared {
    pub(super) fn has_stopped(&self) -> bool {
        self.has_stopped.load(Ordering::Acquire)
    }

    /// Whether this process is a child, made by fork, of the one that serves.
    pub(super) fn is_inherited(&self) -> bool {
        !self.maker.is_this_process()
    }

    /// Wakes the control thread.
    pub(super) fn attend(&self) {
        // If this fails, the control thread looks by itself after a while.
        let _ = self.attention.signal();
    }

    /// Makes sure that clients can be told of the server; the error says which part they can't be told.
    fn check(&self) -> Result<(), Error> {
        let limits = Limits { pending_bytes: 0, pending_requests: 0 };
        let welcome = self.welcome(limits, Trust::Mapped, Vec::new());
        for offer in &welcome.services {
            let name = &offer.service.name;
            offer.check().map_err(|error| Error::Unservable(format!("service {name:?}: {error}")))?;
        }
        let encoded = Message::Welcome(welcome).encode();
        encoded.map(drop).map_err(|error| Error::Unservable(error.to_string()))
    }

    /// The welcome for a client that is granted these limits and lent this pool.
    pub(super) fn welcome(&self, limits: Limits, trust: Trust, pool: Vec<u64>) -> Welcome {
        Welcome {
            version: VERSION,
            name: self.name.clone(),
            instance: self.instance,
            limits,
            abort_timeout: self.options.abort_timeout.min(MAX_ABORT_TIMEOUT),
            rings: self.options.rings,
            mapping: self.options.mapping,
            trust,
            pool,
            services: self.offers(),
        }
    }

    /// The services as clients are told of them.
    pub(super) fn offers(&self) -> Vec<Offer> {
        let services = (0..).zip(self.server.services());
        services
            .map(|(number, service)| Offer {
                service: service.clone(),
                preferred: self.server.preferred(ServiceId(number)),
            })
            .collect()
    }

    pub(super) fn trust(&self, is_wanted_untrusted: bool) -> Trust {
        if self.options.untrusted || is_wanted_untrusted { Trust::Copied } else { Trust::Mapped }
    }

    pub(super) fn status(&self) -> Status {
        let sessions = self.sessions.lock();
        let client = |session: &Arc<Session>| {
            let (bytes, requests) = session.in_progress.lock().load();
            let pending = Limits { pending_bytes: bytes as u64, pending_requests: requests };
            let client = session.client();
            ClientStatus { name: client.name.clone(), pid: client.pid, pending }
        };
        Status {
            name: self.name.clone(),
            instance: self.instance,
            pid: std::process::id(),
            uptime: self.started.elapsed(),
            services: self.offers(),
            clients_total: sessions.len() as u32,
            clients: sessions.iter().take(super::wire::control::MAX_CLIENTS).map(client).collect(),
        }
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Inbox {
    /// Whether the worker has not seen the last change yet.
    pub(super) fn is_behind(&self) -> bool {
        self.seen.load(Ordering::Relaxed) != self.changes.load(Ordering::Relaxed)
    }

    pub(super) fn leave(&self, ring: ClientRing) {
        self.rings.lock().push(ring);
        self.notify();
    }

    pub(super) fn take(&self) -> Vec<ClientRing> {
        std::mem::take(&mut *self.rings.lock())
    }

    /// Whether no client waits for the worker to take it.
    pub(super) fn is_empty(&self) -> bool {
        self.rings.lock().is_empty()
    }

    /// Takes back a client that the worker has not taken yet.
    pub(super) fn take_one(&self) -> Option<ClientRing> {
        self.rings.lock().pop()
    }

    /// Makes the worker look at the inbox and at its clients.
    pub(super) fn notify(&self) {
        self.changes.fetch_add(1, Ordering::Release);
        // The word is mapped, so waking can't fail.
        let _ = genie_sys::futex::wake(&self.changes, 1);
    }
}

fn started_at() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |since| since.as_nanos() as u64)
}

#[cfg(test)]
mod tests;
