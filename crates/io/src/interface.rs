//! The I/O interface of one client: where its requests begin.
//!
//! How: a request is admitted (limits), its elements' request-time operations run, and the server gets it, in the
//! client's thread. A server that replies at once costs the client no lock that anyone contends for and no system call;
//! only a request that outlives the call is listed, so that it can be timed out, flushed or aborted.
//! Source: thesis §7.1.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use genie_memory::{Buffer, Config, Migrant, Space};
use genie_passing::Passing;

use crate::exchange::{Exchange, Found};
use crate::limits::Pendings;
use crate::pending::deliver;
use crate::timer::Timer;
use crate::work::{Destinations, Work};
use crate::{Error, Failed, Incoming, Limits, Pending, Reply, Request, ServerHandle, ServiceId};

/// Names a request within its interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub(crate) u64);

impl std::fmt::Display for RequestId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "request {}", self.0)
    }
}

/// A client's I/O interface. Cloning makes another handle to the same one.
#[derive(Debug, Clone)]
pub struct Interface(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    passing: Passing,
    limits: Limits,
    pendings: Arc<Pendings>,
    next: AtomicU64,
    outstanding: Arc<Outstanding>,
    timer: Timer,
}

/// The requests that outlived the call that made them and that a server still has a part of.
#[derive(Debug, Default)]
pub(crate) struct Outstanding {
    requests: Mutex<BTreeMap<u64, (Arc<Exchange>, ServerHandle)>>,
    removed: Condvar,
}

impl Interface {
    /// Opens an interface with a space and limits as given by default: the best granules the machine has.
    ///
    /// # Errors
    /// No memory object or userfaultfd could be had; each error says what to do.
    pub fn open() -> Result<Self, Error> {
        Ok(Self::new(Passing::open(&Config::default())?, Limits::default()))
    }

    /// Makes an interface of a data passing engine and limits.
    pub fn new(passing: Passing, limits: Limits) -> Self {
        let pendings = Arc::new(Pendings::new(limits.pending_bytes));
        Self(Arc::new(Inner {
            passing,
            limits,
            pendings,
            next: AtomicU64::new(1),
            outstanding: Arc::default(),
            timer: Timer::default(),
        }))
    }

    /// Begins a request for one of a server's services.
    pub fn request<'r, 'o, 'i>(
        &'r self,
        server: &'r ServerHandle,
        service: ServiceId,
    ) -> Request<'r, 'o, 'i> {
        Request::new(self, server, service)
    }

    /// Allocates a native buffer; see [`Space::allocate`].
    ///
    /// # Errors
    /// The space's limit is reached, or the kernel has no memory.
    pub fn allocate(&self, len: usize) -> Result<Buffer, Error> {
        Ok(self.space().allocate(len)?)
    }

    /// Allocates a native buffer laid out as a server prefers; see [`Space::allocate_at`].
    ///
    /// # Errors
    /// As [`Interface::allocate`].
    pub fn allocate_at(&self, offset: usize, len: usize) -> Result<Buffer, Error> {
        Ok(self.space().allocate_at(offset, len)?)
    }

    /// Allocates a migrant buffer for the schemes of strong (move) or weak (weak move) integrity.
    ///
    /// # Errors
    /// As [`Interface::allocate`].
    pub fn allocate_migrant(&self, len: usize, strong: bool) -> Result<Migrant, Error> {
        Ok(self.space().allocate_migrant(len, strong)?)
    }

    /// The interface's memory.
    pub fn space(&self) -> &Space {
        self.0.passing.space()
    }

    /// The interface's data passing engine.
    pub fn passing(&self) -> &Passing {
        &self.0.passing
    }

    /// Bytes in pending requests.
    pub fn pending_bytes(&self) -> usize {
        self.0.pendings.used()
    }

    /// Waits until the server has completed all of this interface's earlier requests to it, anticipated ones included
    /// (a flush). Returns whether it has, within `timeout`.
    pub fn flush(&self, server: &ServerHandle, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        self.0.outstanding.wait_for(server, self.0.next.load(Ordering::Relaxed), deadline)
    }

    pub(crate) fn send(&self, request: Request<'_, '_, '_>) -> Result<Reply, Failed> {
        let timeout = self.timeout(request.timeout);
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        let admission = self.0.pendings.admit(request.bytes(), timeout);
        let server = request.server;
        let (exchange, destinations) = self.start(request, admission)?;
        if let Some(found) = exchange.take() {
            if matches!(found, Found::Anticipated(_)) {
                exchange.list(server, &self.0.outstanding);
            }
            return deliver(found, destinations);
        }
        exchange.list(server, &self.0.outstanding);
        if let (false, Some(timeout)) = (exchange.wait(deadline), timeout) {
            exchange.abort(&Error::TimedOut { timeout }, self.0.limits.abort_timeout);
        }
        match exchange.take() {
            Some(found) => deliver(found, destinations),
            None => Err(Error::Aborted.into()),
        }
    }

    pub(crate) fn submit<'i>(&self, request: Request<'_, '_, 'i>) -> Result<Pending<'i>, Failed> {
        let timeout = self.timeout(request.timeout);
        let admission = match timeout.map(|_| self.0.timer.start()) {
            Some(Err(error)) => Err(error),
            _ => self.0.pendings.try_admit(request.bytes()),
        };
        let server = request.server;
        let (exchange, destinations) = self.start(request, admission)?;
        let listed = exchange.list(server, &self.0.outstanding);
        let timeout = timeout.filter(|_| listed);
        if let Some(timeout) = timeout {
            self.0.timer.watch(&exchange, timeout, self.0.limits.abort_timeout);
        }
        let timed = timeout.map(|_| self.clone());
        Ok(Pending::new(exchange, destinations, self.0.limits.abort_timeout, timed))
    }

    /// Runs the request-time operations and hands the request to its server.
    fn start<'i>(
        &self,
        request: Request<'_, '_, 'i>,
        admission: Result<crate::limits::Admission, Error>,
    ) -> Result<(Arc<Exchange>, Destinations<'i>), Failed> {
        let services = request.server.services();
        let mapping = services.get(request.service.0 as usize).copied().ok_or_else(|| Error::NoSuchService {
            server: request.server.name().to_owned(),
            service: request.service.0,
            count: services.len(),
        });
        let (mapping, admission) = match mapping.and_then(|mapping| Ok((mapping, admission?))) {
            Ok(both) => both,
            Err(error) => return Err(Work::refuse(request.buffers, error)),
        };
        let id = RequestId(self.0.next.fetch_add(1, Ordering::Relaxed));
        let (work, destinations) = Work::begin(&self.0.passing, request.buffers, admission)?;
        let exchange = Arc::new(Exchange::new(id));
        let incoming = Incoming::new(work, Arc::clone(&exchange), request.service, mapping);
        request.server.0.request(incoming);
        Ok((exchange, destinations))
    }

    fn timeout(&self, asked: Option<Duration>) -> Option<Duration> {
        match (asked, self.0.limits.timeout) {
            (Some(asked), Some(longest)) => Some(asked.min(longest)),
            (asked, longest) => asked.or(longest),
        }
    }
}

impl Outstanding {
    pub(crate) fn add(&self, exchange: &Arc<Exchange>, server: &ServerHandle) {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        requests.insert(exchange.id.0, (Arc::clone(exchange), server.clone()));
    }

    pub(crate) fn remove(&self, id: RequestId) {
        let removed = self.requests.lock().unwrap_or_else(PoisonError::into_inner).remove(&id.0);
        self.removed.notify_all();
        drop(removed);
    }

    /// Waits until no request numbered below `before` is outstanding at `server`.
    fn wait_for(&self, server: &ServerHandle, before: u64, deadline: Instant) -> bool {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        while requests.range(..before).any(|(_, (_, at))| Arc::ptr_eq(&at.0, &server.0)) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            requests = self.removed.wait_timeout(requests, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}
