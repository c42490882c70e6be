//! The datagram server: UDP over IPv4 and IPv6 on an Ethernet.
//!
//! Why: network input has ephemeral buffers, so it is what copy avoidance is worth most for; a datagram server shows what each scheme costs
//! over each kind of adapter, in the client's process and in one of its own.
//! How: a client [opens](OPEN) a port, and [sends](SEND) and [receives](RECEIVE) by requests; [`Socket`] makes them. A datagram that is sent
//! is a header of the server's and a fragment of the client's output, in one request to the [wire]: the server replies when
//! the wire has, and no thread waits. A request to receive that finds no datagram is posted where the adapter keeps lists for ports, so the
//! data is stored in its place. When a frame comes, the adapter stores it, and the server reads the headers from there, verifies the
//! checksum, and passes the data to the port's first request, or has it wait. If the client has said how long its own headers and trailers are
//! ([`Open::apart`]), the reply's argument has these, and the buffer the data alone.
//!
//! The same code is a server in its clients' process or, behind a listener, in one of its own. There, posted buffers come from the pool that
//! the server has lent to the client, so they change places with the client's; the adapter's own buffers may hold other clients' data, and
//! are copied.
//! Invariants: nothing is stored for a request that is over. A frame that is dropped changes no client's buffer, but for one that is shared
//! ([`Verifying`]), and takes no request's place. Requests are replied to without the server's lock: what follows from a reply may make
//! requests of this server.
//! Trust: frames are anybody's. A datagram is taken for what its headers say only as far as there are bytes in the adapter's memory, which is
//! read again after the adapter has looked at the frame: a port's own program, too, is run on what was stored. A client's port is its own,
//! and what it can have is bounded ([`Limits`]). A server in a process of its own shows a client the memory in which its requests wait: also
//! what came to its port and was dropped, since it was damaged, say.
//! Limits: no fragments: a datagram is as long as the MTU allows. A port has one owner, and one peer or any. A datagram that finds no room
//! in a queue is dropped, and counted ([`Counters`]).
//! Source: thesis chapter 9; §6.4, §6.5, §7.1, §7.4.3.

mod argument;
#[cfg(any(test, feature = "fuzzing"))]
pub mod check;
mod counters;
mod options;
mod ports;
mod receiving;
mod sending;
mod services;
mod socket;

use std::sync::{Arc, Weak};

use genie_io::{
    Client, ClientId, Completer, Error, Incoming, Interface, RequestId, Server, ServerError, ServerHandle,
    Service, ServiceId,
};
use genie_memory::TellLater;
use genie_passing::Preferred;
use genie_sys::Errno;
use genie_sys::fork::Maker;
use genie_sys::lock::Mutex;

use crate::adapter::Free;
use crate::driver::Link;
use crate::uplink::Uplink;
use crate::{Adapter, Frame, adapter, wire};
use argument::refusal;
use ports::State;
use receiving::Over;
use services::SERVICES;

pub use argument::{
    APART, ARRIVED, Arrived, OPENED, Open, Work, open_argument, opened, port_argument, send_argument,
};
pub use counters::{COUNTERS, Counters};
pub use options::{Limits, Options, Summing, Verifying};
pub use services::{CLOSE, OPEN, RECEIVE, SEND, STATISTICS};
pub use socket::Socket;

/// How many ports are tried for one who wants any.
const ATTEMPTS: usize = 64;

/// A datagram server, over one adapter and one wire. Clones are handles of the same server.
#[derive(Clone)]
pub struct Datagrams(Arc<Inner>);

struct Inner {
    uplink: Uplink,
    options: Options,
    state: Mutex<State>,
    maker: Maker,
}

/// A datagram server as what is attached to a wire's far end. It keeps no server: frames for one that is gone are dropped.
#[derive(Clone)]
pub struct Attached(Weak<Inner>);

impl Datagrams {
    /// A server that receives by `adapter`, whose requests to the wire are made by `interface`.
    ///
    /// The interface's limits are for the datagrams of all clients. [`Datagrams::attach`] says where they go.
    pub fn new(interface: Interface, adapter: Box<dyn Adapter>, mut options: Options) -> Self {
        options.mtu = options.mtu.min(wire::MTU_MAX);
        let state = Mutex::new(State::new(adapter, options.clone()));
        let uplink = Uplink::new(interface);
        Self(Arc::new(Inner { uplink, options, state, maker: Maker::this_process() }))
    }

    /// Says by which wire datagrams are sent from now on.
    ///
    /// # Errors
    /// The handle is no wire's; or the wire is in another process, and this server was given to clients ([`ServerHandle::new`], a
    /// listener) when it had none there: they would not wait for the wire's replies.
    pub fn attach(&self, wire: ServerHandle) -> Result<(), Error> {
        self.0.uplink.attach(wire)
    }

    /// Says by which link datagrams are sent, and come, from now on.
    ///
    /// # Errors
    /// Clients have the server already, it is attached to a link, or the link leads elsewhere.
    pub fn attach_link(&self, link: &Link) -> Result<(), Error> {
        self.0.uplink.attach_link(link, self.station())
    }

    /// What is to be attached to the wire by which datagrams come.
    pub fn station(&self) -> Attached {
        Attached(Arc::downgrade(&self.0))
    }

    /// What has become of all datagrams so far.
    ///
    /// In a child made by fork, it is what it was then; nothing while a thread was inside.
    pub fn counters(&self) -> Counters {
        self.0.state.lock_made_by(self.0.maker).map_or_else(Counters::default, |state| state.counters)
    }

    /// What the adapter has done so far.
    ///
    /// In a child made by fork, it is what it was then; nothing while a thread was inside.
    pub fn adapter(&self) -> adapter::Counters {
        let state = self.0.state.lock_made_by(self.0.maker);
        state.map_or_else(adapter::Counters::default, |state| state.adapter.counters())
    }

    /// What of its adapter is free.
    ///
    /// In a child made by fork, it is what it was then; nothing while a thread was inside.
    pub fn free(&self) -> Free {
        let none = Free { segments: 0, bytes: 0 };
        self.0.state.lock_made_by(self.0.maker).map_or(none, |state| state.adapter.free())
    }

    fn serve(&self, request: &mut Incoming) -> Result<(), ServerError> {
        let (client, argument) = (request.client().id, request.argument());
        match request.service() {
            OPEN => {
                let open = argument::parse_open(argument)?;
                // The room is checked first: a port whose number does not reach its client would stay open.
                request.set_argument(&[0; OPENED])?;
                let number = self.open(client, &open)?;
                Ok(request.set_argument(&number.to_le_bytes())?)
            }
            CLOSE => {
                let number = argument::parse_port(argument)?;
                let waited = self.locked(|state| state.close(client, number))?;
                self.release(&[number]);
                let closed = || refusal(Errno::CANCELED, format!("port {number} was closed"));
                waited.into_iter().for_each(|request| request.reply(Err(closed())));
                Ok(())
            }
            STATISTICS => {
                let number = argument::parse_port(argument)?;
                let counters = self.0.state.lock().own(client, number)?.counters;
                Ok(request.set_argument(&counters.to_reply())?)
            }
            ServiceId(other) => {
                Err(ServerError::misuse(format!("the datagram server has no service {other}")))
            }
        }
    }

    /// Opens a port, and has the wire bring its datagrams.
    fn open(&self, client: ClientId, open: &Open) -> Result<u16, ServerError> {
        let mut attempts = 0;
        loop {
            let number = self.0.state.lock().open(client, open)?;
            let Err(error) = self.0.uplink.claim(number, true) else { return Ok(number) };
            self.locked(|state| state.close(client, number))?;
            attempts += 1;
            // Another program has this one; any other one will do.
            if open.port != 0 || error.code != Errno::ADDRINUSE.raw_os_error() || attempts == ATTEMPTS {
                return Err(error);
            }
        }
    }

    /// Leaves the datagrams of ports that were closed to whom the wire leaves them.
    fn release(&self, ports: &[u16]) {
        for port in ports {
            // If the port stays claimed, its datagrams are dropped here.
            let _ = self.0.uplink.claim(*port, false);
        }
    }

    /// Has a request wait for a datagram, or replies.
    fn receive(&self, request: Incoming) {
        let checked = argument::parse_port(request.argument()).and_then(|port| {
            request.input(0)?;
            Ok(port)
        });
        match checked {
            Ok(port) => self.locked(|state| state.receive(request, port)).into_iter().for_each(Over::reply),
            Err(error) => request.reply(Err(error)),
        }
    }

    /// Has something done under the lock. What is to be replied to, or dropped, comes back: that replies, too.
    fn locked<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        let _later = TellLater::begin();
        act(&mut self.0.state.lock())
    }
}

impl Server for Datagrams {
    fn name(&self) -> &str {
        "datagram"
    }

    fn services(&self) -> &[Service] {
        &SERVICES
    }

    fn request(&self, mut request: Incoming) {
        match request.service() {
            SEND => self.send(request),
            RECEIVE => self.receive(request),
            _ => {
                let result = self.serve(&mut request);
                request.reply(result);
            }
        }
    }

    fn abort(&self, request: RequestId) {
        // One that is sent is aborted by the wire's letting it go.
        drop(self.locked(|state| state.abort(request)));
        if let Some(link) = self.0.uplink.link() {
            link.let_go(|sent| sent.id() == request);
        }
    }

    fn departed(&self, client: ClientId) {
        let (ports, requests) = self.locked(|state| state.depart(client));
        drop(requests);
        if let Some(link) = self.0.uplink.link() {
            link.let_go(|sent| sent.client().id == client);
        }
        self.release(&ports);
    }

    fn preferred(&self, client: &Client, service: ServiceId, argument: &[u8]) -> Option<Preferred> {
        let number = argument::parse_port(argument).ok().filter(|_| service == RECEIVE)?;
        self.locked(|state| state.preferred(client.id, number))
    }

    fn completer(&self) -> Option<&dyn Completer> {
        self.0.uplink.completer()
    }
}

impl wire::Station for Attached {
    fn arrive(&self, frame: &Frame<'_>) {
        // In a child made by fork, a thread that is not there may have the lock.
        if let Some(inner) = self.0.upgrade().filter(|inner| inner.maker.is_this_process()) {
            let over = Datagrams(inner).locked(|state| state.arrive(frame));
            over.into_iter().for_each(Over::reply);
        }
    }

    fn failed(&self, error: &ServerError) {
        if let Some(inner) = self.0.upgrade().filter(|inner| inner.maker.is_this_process()) {
            let ended = Datagrams(inner).locked(State::end_waiting);
            ended.into_iter().for_each(|request| request.reply(Err(error.clone())));
        }
    }
}
