//! What the threads of a server share: its code, its clients, and who attends to them.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use genie_io::Error;
use genie_io::carrier::Code;
use genie_sys::event::Event;
use genie_sys::fork::Maker;
use genie_sys::poll::Poller;

use super::evictions::Evictions;
use super::options::{MOST_THREADS, ServeOptions};
use super::post::{Away, Post};
use super::session::Session;
use super::wire::TooLarge;
use super::wire::control::{
    ClientCounts, ClientStatus, Limits, MAX_ABORT_TIMEOUT, MAX_CLIENTS, Message, Status, Traffic, Trust,
    VERSION, Welcome, check_service,
};
use crate::counts::Counts;
use crate::primitive::{AtomicBool, AtomicU32, AtomicUsize, Mutex, Ordering, Thread, spawn, thread};

/// After this time a thread looks again where the server's completer may have something, and cannot say so.
const LOOK: Duration = Duration::from_millis(2);

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
    pub(super) threads: Mutex<Vec<Thread>>,
    /// What was passed for clients that have left.
    pub(super) departed: Mutex<Counts>,
    /// What clients are lent now, and what is kept of their outputs.
    pub(super) spent: Arc<AtomicUsize>,
    pub(super) has_stopped: AtomicBool,
    /// The server's completer can be armed, and its descriptor then wakes the control thread, or the program that drives the server.
    pub(super) has_bell: AtomicBool,
    /// How many workers sleep that would otherwise look at the server's completer.
    pub(super) sleepers: AtomicUsize,
    /// Wakes the control thread.
    pub(super) attention: Arc<Event>,
}

impl Shared {
    /// What the threads of a server share that is about to serve.
    ///
    /// # Errors
    /// The kernel refuses, or [`Error::Unservable`]; [`Error::Inherited`] in a child made by fork since the name was claimed.
    pub(super) fn new(
        name: String,
        server: Code,
        options: ServeOptions,
        maker: Maker,
    ) -> Result<Self, Error> {
        server.check()?;
        if !maker.is_this_process() {
            return Err(Error::Inherited);
        }
        let threads = options.attending();
        let workers = options.most_threads.clamp(threads, MOST_THREADS);
        let shared = Self {
            maker,
            name,
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
            spent: Arc::default(),
            has_stopped: AtomicBool::new(false),
            has_bell: AtomicBool::new(false),
            sleepers: AtomicUsize::new(0),
            attention: Arc::new(Event::new()?),
            options,
        };
        shared.check()?;
        Ok(shared)
    }

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

    /// Starts a thread that is waited for when the server ends. The server ends when it panics.
    pub(super) fn start_thread(
        self: &Arc<Self>,
        name: &str,
        run: impl FnOnce() + Send + 'static,
    ) -> Result<(), Error> {
        let stops = StopsOnPanic(Arc::clone(self));
        let thread = spawn(name, move || {
            let _stops = stops;
            run();
        })?;
        self.threads.lock().push(thread);
        Ok(())
    }

    /// Makes all threads end, and wakes them.
    pub(super) fn stop(&self) {
        if self.is_inherited() {
            return;
        }
        self.has_stopped.store(true, Ordering::Release);
        self.attend();
        self.posts.iter().for_each(Post::notify);
    }

    /// Has the server reply to requests whose work is done, if it has a completer; returns whether there were any. If another thread is
    /// looking, that one looks once more. The server's code may have forked.
    pub(super) fn collect(&self) -> bool {
        self.server.collect() > 0
    }

    /// Has this poller tell when the server's completer may have something. Returns what it waits for: a duplicate of the completer's
    /// descriptor, since the completer may close its own. The server's code may have forked.
    pub(super) fn watch_completer(&self, poller: &Poller, token: u64) -> Option<OwnedFd> {
        let bell = self.server.descriptor().and_then(|bell| bell.try_clone_to_owned().ok());
        let bell = bell.filter(|bell| poller.add_edges(bell, token).is_ok());
        self.has_bell.store(bell.is_some(), Ordering::Relaxed);
        bell
    }

    /// Has what the server's completer has next ring for who watches it. Returns none if it will, and else after what time a thread has
    /// to look: at once, if there was something. The server's code may have forked.
    pub(super) fn arm_bell(&self) -> Option<Duration> {
        let arm = || {
            self.has_bell.load(Ordering::Relaxed)
                && self.server.arm().unwrap_or_else(|_| {
                    // The server panicked, and would panic again.
                    self.has_bell.store(false, Ordering::Relaxed);
                    false
                })
        };
        if !self.server.is_looked_at() || arm() || self.is_inherited() {
            return None;
        }
        if self.collect() {
            return Some(Duration::ZERO);
        }
        // Collecting may have undone what arming had done, for threads that sleep already, too.
        let is_done = arm() || self.is_inherited();
        let is_idle = || self.sessions.lock().iter().all(|session| session.is_idle());
        (!is_done && !is_idle()).then_some(LOOK)
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
        for service in &welcome.services {
            let part = || format!("service {:?}", service.name);
            check_service(service)
                .map_err(|error| Error::Unservable { part: part(), why: error.to_string() })?;
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
            services: self.server.services().to_vec(),
        }
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
            services: self.server.services().to_vec(),
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

/// Stops the server when the thread that holds this panics. A panic of the server's code does not get here. A hang-up serves
/// clients better than a server that lacks a thread.
struct StopsOnPanic(Arc<Shared>);

impl Drop for StopsOnPanic {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.stop();
        }
    }
}

fn started_at() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |since| since.as_nanos() as u64)
}
