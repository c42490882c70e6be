//! Listening: how a server becomes reachable from other processes.
//!
//! How: [`Listener::bind`] claims a name; a control thread accepts clients, answers their messages and notices when they
//! hang up; worker threads take requests off the clients' rings and hand them to the server's code, which may reply from
//! any thread.
//! Limits: [`ServeOptions`]; a worker attends to at most [`WORKER_CLIENTS`] clients.
//! Source: thesis §7.2 (`io_server_register`, `io_server`).

use std::ops::BitAnd;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use genie_memory::{Config, Faults, Granularity, Mapping, Space};
use genie_ring::Layout;
use genie_sys::GranuleKind;
use genie_sys::event::Event;

use super::customer::Customer;
use super::directory::{Claim, Directory};
use super::reception;
use super::wire::control::{ClientStatus, Limits, Offer, Status, Trust};
use super::worker::{Line, Worker};
use crate::{Error, Server, ServiceId};

/// How many clients one thread attends to: as many words as the kernel lets it sleep on, but for its own.
pub(super) const WORKER_CLIENTS: usize = 127;

/// How a server serves clients in other processes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServeOptions {
    /// Bytes lent to each client, in which data that is not passed in place is put. Each client has memory of its own.
    pub pool: usize,
    /// Bytes that each client may be lent in all: when its pool is exhausted it asks for more. Beyond that, and where there
    /// is no memory (huge pages), data goes by way of the client's own.
    pub hard_pool: usize,
    /// Bytes of the server's own, for buffers that it fills before it is asked ([`Serving::private_pool`]) and for data of
    /// clients that are not trusted.
    pub private_pool: usize,
    /// Bytes that each client may have pending.
    pub pending_bytes: usize,
    /// Requests that each client may have pending.
    pub pending_requests: u32,
    /// What a client may have that limit raised to, if it asks.
    pub hard_bytes: usize,
    /// What a client may have the limit on requests raised to.
    pub hard_requests: u32,
    /// How many clients there may be.
    pub clients: usize,
    /// How many threads take requests.
    pub threads: usize,
    /// When clients' memory is mapped.
    pub mapping: Mapping,
    /// Maps nothing of its clients': what they output can't be changed any more once the server's code sees it.
    pub untrusted: bool,
    /// How long the server may take to let an aborted request go.
    pub abort_timeout: Duration,
    /// How long a thread looks for requests before it sleeps.
    pub spin: Duration,
    /// How large the rings are.
    pub rings: Layout,
}

impl Default for ServeOptions {
    fn default() -> Self {
        Self {
            pool: 64 << 20,
            hard_pool: 256 << 20,
            private_pool: 64 << 20,
            pending_bytes: 1 << 30,
            pending_requests: 256,
            hard_bytes: 4 << 30,
            hard_requests: 4096,
            clients: WORKER_CLIENTS,
            threads: 1,
            mapping: Mapping::Cached,
            untrusted: false,
            abort_timeout: Duration::from_millis(100),
            spin: Duration::from_micros(50),
            rings: Layout { lines: 1024, area: 256 << 10 },
        }
    }
}

/// Makes servers reachable from other processes.
#[derive(Debug)]
pub struct Listener;

impl Listener {
    /// Claims `name` in the run-time directory for a server.
    ///
    /// # Errors
    /// The name is taken or can't be used, the directory is unsafe, or the kernel refuses.
    pub fn bind(name: &str, server: impl Server, options: ServeOptions) -> Result<Serving, Error> {
        Self::bind_in(&Directory::open()?, name, server, options)
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
        let claim = Arc::new(directory.claim(name)?);
        let threads = options.threads.clamp(1, 64);
        let shared = Shared {
            name: name.to_owned(),
            server: Arc::new(server),
            instance: u64::from(std::process::id()) << 32 ^ started_at(),
            started: Instant::now(),
            private: private_space(options.private_pool)?,
            customers: Mutex::default(),
            inboxes: (0..threads).map(|_| Inbox::default()).collect(),
            has_stopped: AtomicBool::new(false),
            attention: Event::new()?,
            options,
        };
        Ok(Serving { shared: Arc::new(shared), claim })
    }
}

/// A server that others can reach as soon as it runs. Dropping it gives the name up.
#[derive(Debug)]
pub struct Serving {
    shared: Arc<Shared>,
    claim: Arc<Claim>,
}

/// A server that runs in threads of its own; dropping it stops it.
#[derive(Debug)]
pub struct Running {
    stopper: Stopper,
    threads: Vec<JoinHandle<()>>,
    claim: Option<Arc<Claim>>,
}

/// Stops a server, from any thread.
#[derive(Debug, Clone)]
pub struct Stopper(Arc<Shared>);

/// What the server's threads share.
pub(super) struct Shared {
    pub(super) name: String,
    pub(super) server: Arc<dyn Server>,
    pub(super) instance: u64,
    pub(super) started: Instant,
    pub(super) options: ServeOptions,
    /// Memory of the server's own, which no client sees.
    pub(super) private: Option<Space>,
    pub(super) customers: Mutex<Vec<Arc<Customer>>>,
    pub(super) inboxes: Vec<Inbox>,
    has_stopped: AtomicBool,
    /// Wakes the control thread.
    pub(super) attention: Event,
}

/// Where the control thread leaves new clients for one worker.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    lines: Mutex<Vec<Line>>,
    /// Counts changes; the worker sleeps on it, among others.
    pub(super) changes: AtomicU32,
}

impl Serving {
    /// The name under which clients find it.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Memory of the server's own, for buffers that it fills before it is asked (pooled in-host buffering). What it
    /// overlays from here is copied into memory of the client's channel, since no client may see another's data.
    pub fn private_pool(&self) -> Option<&Space> {
        self.shared.private.as_ref()
    }

    /// Stops it, later, from another thread.
    pub fn stopper(&self) -> Stopper {
        Stopper(Arc::clone(&self.shared))
    }

    /// Serves, in this thread and as many more as were asked for, until it is stopped.
    ///
    /// # Errors
    /// No thread can be had.
    pub fn run(self) -> Result<(), Error> {
        let Self { shared, claim } = self;
        let mut running = start(&shared, claim, 1)?;
        Worker::new(&shared, 0).run();
        running.finish();
        Ok(())
    }

    /// Serves in threads of its own.
    ///
    /// # Errors
    /// No thread can be had.
    pub fn start(self) -> Result<Running, Error> {
        let Self { shared, claim } = self;
        start(&shared, claim, 0)
    }
}

/// A server that the program drives itself, from an event loop of its own: it has no threads.
#[derive(Debug)]
pub struct Driven {
    reception: reception::Reception,
    workers: Vec<Worker>,
    /// Keeps the name.
    _claim: Arc<Claim>,
}

impl Serving {
    /// Serves whenever the program calls [`Driven::turn`].
    ///
    /// # Errors
    /// The limit on descriptors.
    pub fn drive(self) -> Result<Driven, Error> {
        let Self { shared, claim } = self;
        let reception = reception::Reception::new(&shared, &claim)?;
        let workers = (0..shared.inboxes.len()).map(|index| Worker::new(&shared, index)).collect();
        Ok(Driven { reception, workers, _claim: claim })
    }
}

impl Driven {
    /// Serves what is there, without waiting; returns whether there was anything.
    pub fn turn(&mut self) -> bool {
        self.workers.iter_mut().for_each(Worker::disarm);
        self.reception.attend(Some(Duration::ZERO));
        let poller = self.reception.poller();
        let mut served = false;
        for worker in &mut self.workers {
            // A ring that can't be watched is looked at with every turn all the same.
            served |= worker.turn(|consumer, is_new| {
                let _ = if is_new { poller.add(consumer, reception::RING) } else { poller.remove(consumer) };
            });
        }
        served
    }

    /// Prepares for waiting by the descriptor; returns false when there is something to serve already.
    pub fn arm(&mut self) -> bool {
        let armed = self.workers.iter_mut().map(|worker| worker.arm(genie_ring::Mode::Descriptor));
        armed.fold(true, BitAnd::bitand)
    }

    /// Readable, after [`Driven::arm`], when there is something for [`Driven::turn`] to do.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.reception.poller().as_fd()
    }
}

/// Starts the control thread, and the workers from `first` on.
fn start(shared: &Arc<Shared>, claim: Arc<Claim>, first: usize) -> Result<Running, Error> {
    let mut running = Running { stopper: Stopper(Arc::clone(shared)), threads: Vec::new(), claim: None };
    let control = reception::Reception::new(shared, &claim)?;
    running.spawn("genie-control", move || control.run())?;
    for index in first..shared.inboxes.len() {
        let shared = Arc::clone(shared);
        running.spawn("genie-worker", move || Worker::new(&shared, index).run())?;
    }
    running.claim = Some(claim);
    Ok(running)
}

impl Running {
    fn spawn(&mut self, name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), Error> {
        let spawned = std::thread::Builder::new().name(name.into()).spawn(run);
        self.threads.push(spawned.map_err(|error| {
            let errno = genie_sys::Errno::from_io_error(&error).unwrap_or(genie_sys::Errno::AGAIN);
            genie_memory::Error::Kernel(genie_sys::Error::new("clone", "a thread of a server", errno))
        })?);
        Ok(())
    }

    /// Stops it, from any thread.
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// How it is.
    pub fn status(&self) -> Status {
        self.stopper.0.status()
    }

    /// Waits until it has stopped.
    pub fn wait(mut self) {
        self.join();
    }

    fn finish(&mut self) {
        self.stopper.stop();
        self.join();
    }

    fn join(&mut self) {
        for thread in self.threads.drain(..) {
            // A panic has been reported by the panic hook.
            let _ = thread.join();
        }
        self.claim = None;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.finish();
    }
}

impl Stopper {
    /// Stops the server: its clients see it hang up, and the name is free again.
    pub fn stop(&self) {
        self.0.has_stopped.store(true, Ordering::Release);
        self.0.attend();
        self.0.inboxes.iter().for_each(Inbox::notify);
    }
}

impl Shared {
    pub(super) fn has_stopped(&self) -> bool {
        self.has_stopped.load(Ordering::Acquire)
    }

    /// Wakes the control thread.
    pub(super) fn attend(&self) {
        // It looks again by itself after a while.
        let _ = self.attention.signal();
    }

    pub(super) fn customers(&self) -> MutexGuard<'_, Vec<Arc<Customer>>> {
        self.customers.lock().unwrap_or_else(PoisonError::into_inner)
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
        let customers = self.customers();
        let client = |customer: &Arc<Customer>| {
            let (bytes, requests) = customer.load();
            let pending = Limits { pending_bytes: bytes as u64, pending_requests: requests };
            ClientStatus { name: customer.name.clone(), pid: customer.pid, pending }
        };
        Status {
            name: self.name.clone(),
            instance: self.instance,
            pid: std::process::id(),
            uptime: self.started.elapsed(),
            services: self.offers(),
            clients_total: customers.len() as u32,
            clients: customers.iter().take(super::wire::control::MAX_CLIENTS).map(client).collect(),
        }
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Inbox {
    pub(super) fn leave(&self, line: Line) {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).push(line);
        self.notify();
    }

    pub(super) fn take(&self) -> Vec<Line> {
        std::mem::take(&mut *self.lines.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Has the worker look at what has changed.
    pub(super) fn notify(&self) {
        self.changes.fetch_add(1, Ordering::Release);
        // The word is mapped, so waking can't fail.
        let _ = genie_sys::futex::wake(&self.changes, 1);
    }
}

/// The server's own memory: small granules, never written by two, so never protected.
fn private_space(limit: usize) -> Result<Option<Space>, Error> {
    if limit == 0 {
        return Ok(None);
    }
    let config = Config {
        granularity: Granularity::Only(GranuleKind::Base),
        limit,
        faults: Faults::Never,
        kernel_never_stores: false,
        pool: limit / 2,
    };
    Ok(Some(Space::new(&config)?))
}

fn started_at() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |since| since.as_nanos() as u64)
}
