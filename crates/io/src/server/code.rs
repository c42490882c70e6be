//! A server's code: the one place that calls it.
//!
//! Invariants: no panic of a server's code leaves a method of [`Code`].

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use genie_passing::Preferred;

use crate::exchange::Awaited;
use crate::panics::call;
use crate::{
    Client, ClientId, Completer, Error, Incoming, Preferences, RequestId, Server, Service, ServiceId,
};

mod reaping;

use reaping::Reaping;

/// A server's code, which a carrier calls by this alone: no panic of the server's leaves its methods. Cloning makes another handle; the
/// last one drops the server.
#[derive(Clone)]
pub struct Code(Arc<Held>);

/// A server's code, as long as others hold it.
pub(crate) struct WeakCode(Weak<Held>);

struct Held {
    /// Some until this is dropped.
    server: Option<Box<dyn Server>>,
    /// Tells servers apart; no other server of this process ever has it.
    number: u64,
    /// The server's services, asked for once, so that clients are told of the same services that they then get.
    services: Result<Box<[Service]>, Error>,
    /// What counts how often the server has changed what it prefers, if it does.
    preferences: Option<Preferences>,
    /// Some for a server that completes requests when a thread looks.
    reaping: Option<Reaping>,
}

impl Code {
    /// Takes a server, and asks it what its services are.
    pub fn new(server: impl Server) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let services: Result<Box<[Service]>, Error> = call(|| server.services().into());
        let preferences = call(|| server.preferences().cloned()).unwrap_or_default();
        let has_completer = call(|| server.completer().is_some()).unwrap_or_default();
        let (number, reaping) = (NEXT.fetch_add(1, Ordering::Relaxed), has_completer.then(Reaping::default));
        Self(Arc::new(Held { server: Some(Box::new(server)), number, services, preferences, reaping }))
    }

    pub(crate) fn name(&self) -> &str {
        call(|| self.server().name()).unwrap_or("nameless")
    }

    /// The server's services, numbered by their place; none if it panicked when it was asked.
    #[inline]
    pub fn services(&self) -> &[Service] {
        self.0.services.as_deref().unwrap_or_default()
    }

    /// How the client should lay out input buffers for requests of a service with this argument, when that makes a difference.
    pub fn preferred(&self, client: &Client, service: ServiceId, argument: &[u8]) -> Option<Preferred> {
        call(|| self.server().preferred(client, service, argument)).unwrap_or_default()
    }

    /// By what the server tells that it prefers other layouts.
    pub fn preferences(&self) -> Option<&Preferences> {
        self.0.preferences.as_ref()
    }

    /// How often the server has said that it prefers other layouts.
    pub fn changes(&self) -> u64 {
        self.preferences().map_or(0, Preferences::changes)
    }

    /// Makes sure that the server has said what its services are.
    ///
    /// # Errors
    /// It panicked.
    pub fn check(&self) -> Result<(), Error> {
        self.0.services.as_ref().map(drop).map_err(Clone::clone)
    }

    /// Hands over the request that `make` makes. `make` is called where panics are caught already, since moving the request
    /// in there would cost more.
    #[inline]
    pub fn request(&self, make: impl FnOnce() -> Incoming) {
        // The requests that a panic ended have the panic's message already.
        let _ = call(|| self.server().request(make()));
    }

    /// Asks the server to let a request go that it has got, after what that request has originated ([`Contract::evict`](crate::carrier::Contract::evict)).
    pub fn abort(&self, request: RequestId) {
        // A request that the server still has stays with it.
        let _ = call(|| self.server().abort(request));
    }

    /// Tells the server that a client has left, of which no request will come any more.
    pub fn departed(&self, client: ClientId) {
        let _ = call(|| self.server().departed(client));
    }

    #[inline]
    pub(crate) fn number(&self) -> u64 {
        self.0.number
    }

    /// Waits for a reply, looking for it where the server's clients have to.
    pub(crate) fn wait(&self, awaited: &Awaited<'_>, deadline: Option<Instant>) -> bool {
        match &self.0.reaping {
            Some(reaping) => reaping.wait(self, awaited, deadline),
            None => awaited.sleep(deadline),
        }
    }

    /// Has the server's completer collect, if there is one; returns how many requests it has completed. If another thread is collecting,
    /// that one does so once more. The server's code may have forked.
    pub fn collect(&self) -> usize {
        self.0.reaping.as_ref().map_or(0, |reaping| reaping.collect(self))
    }

    /// The same, unless another thread is collecting. It is for threads that come back before they sleep: by [`Code::collect`], a thread
    /// of several that are busy would collect for all of them, and do nothing else.
    pub fn collect_if_free(&self) -> usize {
        self.0.reaping.as_ref().map_or(0, |reaping| reaping.collect_if_free(self))
    }

    /// The descriptor by which an event loop waits until there may be something to collect.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.completer(|completer| completer.descriptor()).ok()??
    }

    /// Prepares the descriptor; returns false when there may be something to collect now.
    ///
    /// # Errors
    /// The server panicked.
    pub fn arm(&self) -> Result<bool, Error> {
        Ok(self.completer(|completer| completer.arm())?.unwrap_or(true))
    }

    /// Has threads that wait look again: something has become of a request, of which the completer does not know.
    pub(crate) fn look(&self) {
        self.0.reaping.iter().for_each(Reaping::wake);
    }

    /// Whether its clients have to look for what it has completed: whether it has a completer.
    pub fn is_looked_at(&self) -> bool {
        self.0.reaping.is_some()
    }

    /// Has the server's completer do something, where there is one.
    ///
    /// # Errors
    /// The server panicked.
    pub(crate) fn completer<'a, T>(
        &'a self,
        act: impl FnOnce(&'a dyn Completer) -> T,
    ) -> Result<Option<T>, Error> {
        match &self.0.reaping {
            Some(_) => call(|| self.server().completer().map(act)),
            None => Ok(None),
        }
    }

    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(crate) fn downgrade(&self) -> WeakCode {
        WeakCode(Arc::downgrade(&self.0))
    }

    fn server(&self) -> &dyn Server {
        self.0.server.as_deref().expect("a server is there until this is dropped")
    }
}

/// What the server's own completer does.
impl Completer for Code {
    fn collect(&self) -> usize {
        self.collect()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.descriptor()
    }

    fn arm(&self) -> bool {
        self.arm().unwrap_or(false)
    }

    fn spin(&self) -> Duration {
        self.completer(|completer| completer.spin()).ok().flatten().unwrap_or_default()
    }
}

impl WeakCode {
    pub(crate) fn upgrade(&self) -> Option<Code> {
        self.0.upgrade().map(Code)
    }

    pub(crate) fn is_there(&self) -> bool {
        self.0.strong_count() > 0
    }

    pub(crate) fn is(&self, server: &Code) -> bool {
        self.0.as_ptr() == Arc::as_ptr(&server.0)
    }
}

impl std::fmt::Debug for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Code").field(&self.0.number).finish()
    }
}

impl std::fmt::Debug for WeakCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("WeakCode").finish()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let server = self.server.take();
        let _ = call(|| drop(server));
    }
}
