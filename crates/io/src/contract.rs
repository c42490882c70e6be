//! Contracts: requests whose servers have forwarded parts of their buffers, and the subcontract graph.
//!
//! How: a server that makes requests of its own with [`Fragment`](crate::Fragment)s of a request's buffers becomes a contractor. Its
//! reply takes effect when the last fragment has been let go, so that no subcontractor ever works in memory that its
//! client has back. The graph's edges are kept with the contractor's request, which lists the requests originated from it.
//! Invariants: eviction is in post-order: whatever a request originated is aborted before the request itself. A request that
//! is being aborted originates no more requests, since nothing would abort those. Where several threads abort a request, its
//! server is asked once, after all that it originated.
//! Limits: [`DEEPEST`]: replies and evictions go along a chain of requests by recursion.
//! Source: thesis §3.1.2, figure 3.1; §5.3.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use genie_sys::fork::Maker;

use crate::Error;
use crate::primitive::Mutex;

/// The longest chain of requests in one process, each of which forwards parts of the one before. The last one forwards nothing.
pub(crate) const DEEPEST: u32 = 64;

/// A request of which its server has forwarded parts: whoever aborts the request first evicts what it has originated.
pub struct Contract {
    maker: Maker,
    /// How many requests of this process led to it, itself included.
    depth: u32,
    /// What gives the contractor's reply when the last fragment has been let go; none before the contractor has replied.
    reply: Mutex<Option<Deferred>>,
    /// Why the request fails, whatever the contractor has replied.
    failure: OnceLock<Error>,
    originated: Mutex<AllOriginated>,
}

/// Gives a reply, or this error in its place.
type Deferred = Box<dyn FnOnce(Option<Error>) + Send>;

/// A request that another one has originated.
pub(crate) trait Originated: Send + Sync {
    /// Whether nobody can abort it any more.
    fn is_over(&self) -> bool;

    /// Aborts it, after whatever it originated; its server has `grace` for letting it go.
    fn evict(&self, reason: &Error, grace: Duration);
}

/// The requests that one request has originated.
#[derive(Default)]
struct AllOriginated {
    requests: Vec<Arc<dyn Originated>>,
    /// Why no more requests can be originated.
    over: Option<Error>,
}

impl Contract {
    pub(crate) fn new(depth: u32) -> Arc<Self> {
        let (reply, failure, originated) = Default::default();
        Arc::new(Self { maker: Maker::this_process(), depth, reply, failure, originated })
    }

    pub(crate) fn depth(&self) -> u32 {
        self.depth
    }

    /// Has the contractor's reply given, by `reply`, when the last fragment has been let go. `reply` is told why the request has failed
    /// by then, if it has.
    pub(crate) fn defer(&self, reply: impl FnOnce(Option<Error>) + Send + 'static) {
        *self.reply.lock() = Some(Box::new(reply));
    }

    /// Has the request fail, unless it has failed before.
    pub(crate) fn fail(&self, reason: Error) {
        let _ = self.failure.set(reason);
    }

    /// Links a request to the one that originated it, unless the originating request is being aborted.
    pub(crate) fn originate(&self, request: Arc<dyn Originated>) -> Result<(), Error> {
        let mut originated = self.originated.lock();
        if let Some(reason) = &originated.over {
            return Err(reason.clone());
        }
        let over: Vec<_> = originated.requests.extract_if(.., |request| request.is_over()).collect();
        originated.requests.push(request);
        drop(originated);
        // Without the lock: these may hold the last handles of servers, whose code then runs.
        drop(over);
        Ok(())
    }

    /// Aborts the requests that this one originated, but first the requests that those originated. Each server has `grace`
    /// for letting its request go.
    ///
    /// Threads that evict the same request at the same time all go through all of what it originated, so that each of them
    /// returns after the last of these servers was asked. One of them asks, and the others wait with it.
    pub fn evict(&self, reason: &Error, grace: Duration) {
        self.end(reason).iter().for_each(|request| request.evict(reason, grace));
    }

    /// Stops requests from being originated; returns those that have been. They stay listed for another thread that evicts
    /// this request.
    pub(crate) fn end(&self, reason: &Error) -> Vec<Arc<dyn Originated>> {
        let mut originated = self.originated.lock();
        originated.over.get_or_insert_with(|| reason.clone());
        originated.requests.clone()
    }
}

impl fmt::Debug for Contract {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Contract").field("depth", &self.depth).finish_non_exhaustive()
    }
}

impl Drop for Contract {
    fn drop(&mut self) {
        let reply = self.reply.get_mut().take();
        if !self.maker.is_this_process() {
            // The reply is the parent's.
            return std::mem::forget(reply);
        }
        if let Some(reply) = reply {
            reply(self.failure.take());
        }
    }
}
