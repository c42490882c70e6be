//! Handles: how clients hold a server, in this process or elsewhere.

use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

use genie_memory::Space;
use genie_passing::{Parties, Passing, Preferred};

use crate::carrier::Carrier;
use crate::carrier::outgoing::Outgoing;
use crate::client::presence::Presence;
use crate::deadline::Patience;
use crate::exchange::{Awaited, Exchange};
use crate::incoming::Origin;
use crate::sequel;
use crate::server::code::Code;
use crate::server::service::Access;
use crate::work::Work;
use crate::{Completer, Error, Incoming, RequestId, Server, Service, ServiceId};

mod eviction;

/// A client's handle of a server, in this process or in another. Cloning makes another handle.
///
/// A server in this process is dropped with its last handle. If a request outlived the call that made it, the thread that
/// replies holds a handle until just after the client has the reply. So that thread may drop the server, some moments after
/// the client has dropped its handles. A server that joins threads of its own when it is dropped must not let one of those
/// threads reply last.
#[derive(Clone)]
pub struct ServerHandle(Place);

#[derive(Clone)]
enum Place {
    Here(Code),
    There(Arc<dyn Carrier>),
}

/// Does the same with either kind of server: in this process, or in another.
macro_rules! either {
    ($handle:ident, $server:ident => $what:expr) => {
        match &$handle.0 {
            Place::Here($server) => $what,
            Place::There($server) => $what,
        }
    };
}

impl ServerHandle {
    /// Makes a server reachable in this process.
    pub fn new(server: impl Server) -> Self {
        Self(Place::Here(Code::new(server)))
    }

    pub(crate) fn connected(carrier: Arc<dyn Carrier>) -> Self {
        Self(Place::There(carrier))
    }

    /// The server's name.
    pub fn name(&self) -> &str {
        either!(self, server => server.name())
    }

    /// The server's services, numbered by their place.
    pub fn services(&self) -> &[Service] {
        either!(self, server => server.services())
    }

    /// What a service's mapping flags allow.
    #[inline]
    pub(crate) fn access(&self, service: ServiceId) -> Result<Access, Error> {
        let access = self.services().get(service.0 as usize).map(Service::access);
        access.ok_or_else(|| {
            if let Place::Here(server) = &self.0
                && let Err(panicked) = server.check()
            {
                return panicked;
            }
            let (server, count) = (self.name().to_owned(), self.services().len());
            Error::NoSuchService { server, service: service.0, count }
        })
    }

    /// The number of the service with this name.
    ///
    /// # Errors
    /// [`Error::UnknownService`]: there is none.
    pub fn service(&self, name: &str) -> Result<ServiceId, Error> {
        let named = self.services().iter().position(|service| service.name == name);
        named.map(|index| ServiceId(index as u32)).ok_or_else(|| {
            let names: Vec<_> = self.services().iter().map(|service| &*service.name).collect();
            let (server, service) = (self.name().to_owned(), name.to_owned());
            Error::UnknownService { server, service, services: names.join(", ") }
        })
    }

    /// Asks how this client should lay out input buffers; returns that, and how often the server had said that it prefers other
    /// layouts when it answered.
    pub(crate) fn preferred(
        &self,
        client: &Presence,
        service: ServiceId,
        argument: &[u8],
    ) -> Result<(Option<Preferred>, u64), Error> {
        match &self.0 {
            Place::Here(server) => {
                client.asks(server);
                // The server may prefer something else at once: then the answer is stale already.
                let changes = server.changes();
                Ok((server.preferred(client.client(), service, argument), changes))
            }
            // It takes an answer.
            Place::There(_) if sequel::is_hijacked() => Err(Error::MayNotWait),
            Place::There(carrier) => carrier.preferred(service, argument),
        }
    }

    /// How often the server has said that it prefers other layouts than before, as far as this client was told: see
    /// [`Preference::is_stale`](crate::Preference::is_stale).
    pub fn changes(&self) -> u64 {
        either!(self, server => server.changes())
    }

    /// Whether the server shares no memory with this client, since one of them does not trust the other: the kernel copies all data
    /// between them (`channel::ConnectOptions::untrusted`,
    /// `channel::ServeOptions::untrusted`).
    pub fn is_untrusted(&self) -> bool {
        self.carrier().is_some_and(|carrier| carrier.is_untrusted())
    }

    /// The server's completer, if it is in this process and has one: for a server that depends on this one for more than the replies to its
    /// own requests, and gives it to its own clients. Those of other processes have their replies taken by
    /// [`Interface::collect_from`](crate::Interface::collect_from).
    pub fn completer(&self) -> Option<&dyn Completer> {
        let code = self.here().filter(|code| code.is_looked_at())?;
        Some(code)
    }

    /// Whether the server is in another process.
    pub fn is_remote(&self) -> bool {
        self.carrier().is_some()
    }

    /// Asks a server in another process to let this many bytes and requests of this client be pending; returns what it
    /// grants: of both it may be less, and of requests it is never less than before. A server in this process knows no limits
    /// but the interface's.
    ///
    /// # Errors
    /// [`Error::Inherited`], [`Error::MayNotWait`]; or the server is gone, or does not answer within 5 seconds. If it answers later, what it
    /// grants is valid from then on.
    pub fn adjust(&self, pending_bytes: usize, pending_requests: u32) -> Result<(usize, u32), Error> {
        match &self.0 {
            Place::Here(_) => Ok((usize::MAX, u32::MAX)),
            Place::There(_) if sequel::is_hijacked() => Err(Error::MayNotWait),
            Place::There(carrier) => carrier.adjust(pending_bytes, pending_requests),
        }
    }

    /// Whether the server, in another process, has gone as far as is known: requests fail with [`Error::Gone`].
    pub fn is_gone(&self) -> bool {
        self.carrier().is_some_and(|carrier| carrier.is_gone())
    }

    /// Whether a request of this many bytes, whose record is at most so long, has room there now, or never will.
    pub(crate) fn has_room(&self, bytes: usize, record: usize) -> bool {
        self.carrier().is_none_or(|carrier| carrier.has_room(bytes, record))
    }

    /// The same; if there is no room, the task is woken when there may be.
    pub(crate) fn poll_room(&self, bytes: usize, record: usize, task: &Waker) -> bool {
        self.carrier().is_none_or(|carrier| carrier.poll_room(bytes, record, task))
    }

    /// Whether this process is a child, made by fork, of the one that has connected to the server.
    pub(crate) fn is_inherited(&self) -> bool {
        self.carrier().is_some_and(|carrier| carrier.is_inherited())
    }

    pub(crate) fn carrier(&self) -> Option<&Arc<dyn Carrier>> {
        match &self.0 {
            Place::Here(_) => None,
            Place::There(carrier) => Some(carrier),
        }
    }

    /// Whether it can serve requests with memory of this space. A server in another process serves only requests of the
    /// interface that was connected to it.
    pub(crate) fn is_of(&self, space: &Space) -> bool {
        self.carrier().is_none_or(|carrier| carrier.space().is(space))
    }

    /// The server, where it is in this process.
    pub(crate) fn here(&self) -> Option<&Code> {
        match &self.0 {
            Place::Here(server) => Some(server),
            Place::There(_) => None,
        }
    }

    /// The lender of the system buffers for its requests, where the element names none, and what the server is shown.
    pub(crate) fn parties(&self) -> Parties {
        self.carrier().map_or(Parties::OWN, |carrier| carrier.parties())
    }

    /// Notes that a client of this process asks this server, if it is here.
    #[inline]
    pub(crate) fn asked_by(&self, client: &Presence) {
        if let Place::Here(server) = &self.0 {
            client.asks(server);
        }
    }

    /// Hands a request over; waits at most `patience` for room at a server in another process. Returns whether the server
    /// has the request, or has had it; if not, the request has failed.
    pub(crate) fn request(
        &self,
        mut work: Box<Work>,
        exchange: Arc<Exchange>,
        (service, access): (ServiceId, Access),
        (passing, patience, is_told_later): (&Passing, Patience, bool),
    ) -> bool {
        match &self.0 {
            Place::There(carrier) => {
                carrier.request(Outgoing::new(work, exchange, service, is_told_later), passing, patience)
            }
            Place::Here(server) => {
                match work.map_located(access) {
                    Ok(()) => {
                        server.request(|| Incoming::new(work, Origin::Here(exchange), service, access));
                    }
                    Err(error) => exchange.reply(work, Some(error)),
                }
                true
            }
        }
    }

    /// Wakes a server in another process, if it sleeps and has not been told of all requests.
    pub(crate) fn tell(&self) {
        if let Some(carrier) = self.carrier() {
            carrier.tell();
        }
    }

    pub(crate) fn abort(&self, request: RequestId) {
        either!(self, server => server.abort(request))
    }

    /// Whether memory of the client's was lost to a server in another process.
    pub(crate) fn has_losses(&self) -> bool {
        self.carrier().is_some_and(|carrier| carrier.space().has_losses())
    }

    /// Has threads that wait for this server's replies look again: a request is over without a reply.
    pub(crate) fn look(&self) {
        match &self.0 {
            Place::Here(server) => server.look(),
            Place::There(carrier) => carrier.wake(true),
        }
        self.tend();
    }

    /// Waits until the awaited request has its reply, or has been given up; returns whether either has happened. Meanwhile this takes
    /// the replies of a server elsewhere off its carrier, and looks at a server that completes requests only when clients look.
    pub(crate) fn wait(&self, awaited: &mut Awaited<'_>, deadline: Option<Instant>) -> bool {
        either!(self, server => server.wait(awaited, deadline))
    }

    /// The same for a request for which other threads may wait, too.
    pub(crate) fn wait_for(&self, exchange: &Exchange, deadline: Option<Instant>) -> bool {
        exchange.is_replied()
            || (!sequel::is_hijacked() && self.wait(&mut Awaited::by_many(exchange), deadline))
    }

    /// Takes the replies that are there, where clients have to take them; returns how many there were.
    pub(crate) fn collect(&self) -> usize {
        either!(self, server => server.collect())
    }

    /// Whether clients have to take its replies.
    pub(crate) fn is_looked_at(&self) -> bool {
        match &self.0 {
            Place::Here(server) => server.is_looked_at(),
            Place::There(_) => true,
        }
    }

    /// Has a thread take the replies for which no other thread waits.
    pub(crate) fn tend(&self) {
        if let Some(carrier) = self.carrier() {
            Arc::clone(carrier).tend();
        }
    }

    pub(crate) fn is(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Place::Here(here), Place::Here(other)) => here.is(other),
            (Place::There(there), Place::There(other)) => Arc::ptr_eq(there, other),
            _ => false,
        }
    }
}

impl std::fmt::Debug for ServerHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ServerHandle").field(&self.name()).finish()
    }
}
