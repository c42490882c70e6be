//! Servers: who serves requests.
//!
//! Source: thesis §7.2.

use std::sync::Arc;

use genie_passing::Preferred;

use crate::{Incoming, RequestId};

/// The number of one of a server's services.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServiceId(pub u32);

/// One service that a server offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Service {
    /// Its name, for people.
    pub name: &'static str,
    /// Mapping flag *read*: whether the server reads output buffers.
    pub reads: bool,
    /// Mapping flag *write*: whether the server writes input buffers.
    pub writes: bool,
}

/// Something that serves requests.
///
/// An in-process server's work is done in the client's thread, as a kernel-level server's is, unless it keeps the
/// request and replies from a thread of its own.
pub trait Server: Send + Sync + 'static {
    /// The server's name, for messages.
    fn name(&self) -> &str;

    /// The services, numbered by their place.
    fn services(&self) -> &[Service];

    /// Takes a request. The server owns it until it replies, which it may do now or later, from any thread; dropping it
    /// is a reply, too: an error.
    fn request(&self, request: Incoming);

    /// Is asked to let a request go that it keeps: to reply to it or to drop it. It may have replied already.
    fn abort(&self, request: RequestId);

    /// How clients should lay out input buffers for a service, when that makes a difference (client-aligned buffering).
    fn preferred(&self, service: ServiceId) -> Option<Preferred> {
        let _ = service;
        None
    }
}

/// A server, as its clients hold it. Cloning makes another handle.
#[derive(Clone)]
pub struct ServerHandle(pub(crate) Arc<dyn Server>);

impl ServerHandle {
    /// Makes a server reachable in this process.
    pub fn new(server: impl Server) -> Self {
        Self(Arc::new(server))
    }

    /// The server's name.
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// The server's services, numbered by their place.
    pub fn services(&self) -> &[Service] {
        self.0.services()
    }

    /// The service with this name.
    pub fn service(&self, name: &str) -> Option<ServiceId> {
        self.services().iter().position(|service| service.name == name).map(|index| ServiceId(index as u32))
    }

    /// How input buffers for a service should be laid out, when that makes a difference.
    pub fn preferred(&self, service: ServiceId) -> Option<Preferred> {
        self.0.preferred(service)
    }
}

impl std::fmt::Debug for ServerHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ServerHandle").field(&self.name()).finish()
    }
}
