//! Listening: how a server becomes reachable from other processes.
//!
//! How: [`Listener::bind`] claims a name; a control thread accepts clients, answers their messages and notices when they
//! hang up; worker threads take requests off the clients' rings and hand them to the server's code, which may reply from
//! any thread.
//! Limits: [`ServeOptions`]; a worker attends to at most [`WORKER_CLIENTS`] clients.
//! Source: thesis §7.2 (`io_server_register`, `io_server`).

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use genie_memory::Space;
use genie_sys::event::Event;
use genie_sys::fork::Maker;

use super::directory::{Claim, Directory};
use super::evictions::Evictions;
use super::options::{MOST_THREADS, ServeOptions};
use super::pool::Lent;
use super::post::{Away, Post};
use super::private;
use super::serving::Serving;
use super::session::Session;
use super::wire::TooLarge;
use super::wire::control::{
    ClientCounts, ClientStatus, Counts, Limits, MAX_ABORT_TIMEOUT, MAX_CLIENTS, Message, Offer, Status,
    Traffic, Trust, VERSION, Welcome,
};
use crate::code::Code;
use crate::primitive::{AtomicBool, AtomicU32, AtomicUsize, Mutex, Ordering, thread};
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
        let threads = self.options.attending();
        let workers = self.options.most_threads.clamp(threads, MOST_THREADS);
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
            posts: (0..workers).map(|_| Post::default()).collect(),
            has_relief: AtomicBool::new(false),
            is_watched: AtomicBool::new(false),
            free: AtomicUsize::new(workers),
            looks: AtomicU32::new(0),
            threads: Mutex::default(),
            departed: Mutex::default(),
            lent: Arc::default(),
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
    pub(super) posts: Vec<Post>,
    /// Workers that are in the server's code for long are relieved.
    has_relief: AtomicBool,
    /// The control thread does not sleep for long.
    pub(super) is_watched: AtomicBool,
    /// How many workers have no clients and are not in the server's code, or could be started.
    pub(super) free: AtomicUsize,
    /// How often the control thread has looked for workers to be relieved.
    pub(super) looks: AtomicU32,
    pub(super) threads: Mutex<Vec<thread::JoinHandle<()>>>,
    /// What was passed for clients that have left.
    pub(super) departed: Mutex<Counts>,
    /// What clients are lent now.
    pub(super) lent: Arc<Lent>,
    pub(super) has_stopped: AtomicBool,
    /// Wakes the control thread.
    pub(super) attention: Event,
}

impl Shared {
    pub(super) fn has_stopped(&self) -> bool {
        self.has_stopped.load(Ordering::Acquire)
    }

    /// Whether this process is a child, made by fork, of the one that serves.
    pub(super) fn is_inherited(&self) -> bool {
        !self.maker.is_this_process()
    }

    /// Has workers that are in the server's code for long be relieved, if there can be several of them.
    pub(super) fn relieve(&self) {
        self.has_relief.store(self.posts.len() > 1, Ordering::Relaxed);
    }

    pub(super) fn has_relief(&self) -> bool {
        self.has_relief.load(Ordering::Relaxed)
    }

    /// Has the control thread look for workers to be relieved: one is awake.
    pub(super) fn be_watched(&self) {
        if self.has_relief() && !self.is_watched.swap(true, Ordering::SeqCst) {
            self.attend();
        }
    }

    /// A relieved worker has come back from the server's code.
    pub(super) fn come_back(self: &Arc<Self>, away: &Away) {
        let session = away.session();
        self.evictions.evict(session.long_calls.end(away.slot), &away.departure);
        if session.is_gone() {
            // The control thread may have aborted the request before the server's code had it.
            self.evictions.evict(session.abort(away.slot), &away.departure);
        }
        self.add_free(1);
    }

    /// So many more workers are free.
    pub(super) fn add_free(&self, workers: usize) {
        self.free.fetch_add(workers, Ordering::SeqCst);
        for post in self.posts.iter().filter(|post| post.is_held_up.swap(false, Ordering::SeqCst)) {
            post.notify();
        }
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
            let part = || format!("service {name:?}");
            offer.check().map_err(|error| Error::Unservable { part: part(), why: error.to_string() })?;
        }
        let encoded = Message::Welcome(welcome).encode();
        let unservable =
            |error: TooLarge| Error::Unservable { part: "its services".to_owned(), why: error.to_string() };
        encoded.map(drop).map_err(unservable)
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

    /// The status, and what was passed for the clients that it lists.
    pub(super) fn status(&self) -> (Status, Traffic) {
        let sessions = self.sessions.lock();
        let client = |session: &Arc<Session>| {
            let in_progress = session.in_progress.lock();
            let ((bytes, requests), counts) = (in_progress.load(), in_progress.counts);
            drop(in_progress);
            let pending = Limits { pending_bytes: bytes as u64, pending_requests: requests };
            let client = session.client();
            let status = ClientStatus { name: client.name.clone(), pid: client.pid, pending };
            (status, ClientCounts { client: client.id.number(), counts })
        };
        let (clients, counts) = sessions.iter().take(MAX_CLIENTS).map(client).unzip();
        let status = Status {
            name: self.name.clone(),
            instance: self.instance,
            pid: std::process::id(),
            uptime: self.started.elapsed(),
            services: self.offers(),
            clients_total: sessions.len() as u32,
            clients,
        };
        (status, Traffic { departed: *self.departed.lock(), clients: counts })
    }

    /// Takes a client out, and keeps its counts.
    pub(super) fn remove(&self, session: &Arc<Session>) {
        let mut sessions = self.sessions.lock();
        sessions.retain(|other| !Arc::ptr_eq(other, session));
        let mut departed = self.departed.lock();
        *departed = departed.plus(session.in_progress.lock().counts);
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("name", &self.name).finish_non_exhaustive()
    }
}

fn started_at() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |since| since.as_nanos() as u64)
}

#[cfg(test)]
mod tests;
