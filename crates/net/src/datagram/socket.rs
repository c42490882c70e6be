//! Sockets: a client's port, by calls instead of requests.

use std::net::SocketAddr;

use genie_io::{Error, Failed, In, Interface, Out, Pending, Reply, ServerHandle};

use super::argument::{Arrived, OPENED, Open, open_argument, opened, port_argument, send_argument};
use super::counters::{COUNTERS, Counters};
use super::services::{CLOSE, OPEN, RECEIVE, SEND, STATISTICS};

/// A port of a client's, which is closed when this is dropped. What its calls do not say, such as timeouts, batches and several elements,
/// requests do: [`Socket::port`] is what they need.
///
/// A server that is started anew knows nothing of the port: open it again. While as many requests are pending as the client may have, the
/// port cannot be closed, and stays open until the client is gone: end some first.
///
/// # Examples
/// ```
/// # use std::net::{IpAddr, Ipv4Addr};
/// # use genie_io::{In, Interface, Out, ServerHandle};
/// use genie_net::adapter::{Pool, Pooled};
/// use genie_net::datagram::{Datagrams, Open, Options, Socket};
/// use genie_net::{Wire, wire};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // A host that is its own neighbour: its wire leads to itself.
/// let (genie, host) = (Interface::open()?, IpAddr::from(Ipv4Addr::LOCALHOST));
/// let options = Options::new([2, 0, 0, 0, 0, 1], [host]).neighbour(host, [2, 0, 0, 0, 0, 1]);
/// let adapter = Pooled::new(Pool::reserve(genie.space(), 2048, 64)?);
/// let server = Datagrams::new(genie.clone(), Box::new(adapter), options);
/// let wire = Wire::new(wire::Options::default(), wire::Clock::default(), server.station())?;
/// server.attach(ServerHandle::new(wire))?;
///
/// let server = ServerHandle::new(server);
/// let alice = Socket::open(&genie, &server, &Open::default())?;
/// let bob = Socket::open(&genie, &server, &Open { port: 7, ..Open::default() })?;
/// alice.send_to(Out::copy(b"hello"), (host, 7).into())?;
/// let mut bytes = [0; 100];
/// let (_, arrived) = bob.receive(In::copy(&mut bytes))?;
/// assert_eq!((&bytes[..arrived.len], arrived.from), (&b"hello"[..], (host, alice.port()).into()));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Socket {
    interface: Interface,
    server: ServerHandle,
    port: u16,
    /// How much room the argument of a reply needs that has a datagram.
    room: usize,
}

impl Socket {
    /// Opens a port.
    ///
    /// # Errors
    /// It is taken, the client has as many as it may, or its program is refused.
    pub fn open(interface: &Interface, server: &ServerHandle, open: &Open) -> Result<Self, Error> {
        let argument = open_argument(open);
        let opening = interface.request(server, OPEN).argument(&argument).room(OPENED).send();
        let reply = opening.map_err(|failed| failed.error)?;
        let port = opened(reply.argument()).ok_or_else(strange)?;
        Ok(Self { interface: interface.clone(), server: server.clone(), port, room: open.room() })
    }

    /// The port's number.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Sends a datagram to the port's peer.
    ///
    /// # Errors
    /// The port has no peer, the datagram is longer than the MTU allows, or see [`Error`].
    pub fn send(&self, data: Out<'_>) -> Result<Reply, Failed> {
        self.transmit(data, None)
    }

    /// Sends a datagram.
    ///
    /// # Errors
    /// The way is not known, the port has another peer, the datagram is longer than the MTU allows, or see [`Error`].
    pub fn send_to(&self, data: Out<'_>, to: SocketAddr) -> Result<Reply, Failed> {
        self.transmit(data, Some(to))
    }

    fn transmit(&self, data: Out<'_>, to: Option<SocketAddr>) -> Result<Reply, Failed> {
        let argument = send_argument(self.port, to);
        self.interface.request(&self.server, SEND).out(data).argument(&argument).send()
    }

    /// Waits for a datagram. If it was longer than the buffer, the rest is lost ([`Arrived::len`]). The
    /// application's header and trailer come with it, if it has said how long they are ([`Open::apart`]).
    ///
    /// # Errors
    /// See [`Error`].
    pub fn receive(&self, room: In<'_>) -> Result<(Reply, Arrived), Failed> {
        let argument = port_argument(self.port);
        let request = self.interface.request(&self.server, RECEIVE).input(room).argument(&argument);
        let reply = request.room(self.room).send()?;
        let arrived = Arrived::from_reply(reply.argument()).ok_or_else(strange)?;
        Ok((reply, arrived))
    }

    /// Asks for a datagram without waiting. [`Arrived::from_reply`] reads the reply's argument. A request that is dropped still waits, and takes
    /// a datagram that nobody sees then: [`Pending::abort`] ends it.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn submit<'i>(&self, room: In<'i>) -> Result<Pending<'i>, Failed> {
        let argument = port_argument(self.port);
        self.interface.request(&self.server, RECEIVE).input(room).argument(&argument).room(self.room).submit()
    }

    /// What has become of the port's datagrams so far.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn statistics(&self) -> Result<Counters, Error> {
        let argument = port_argument(self.port);
        let request = self.interface.request(&self.server, STATISTICS).argument(&argument).room(COUNTERS);
        let reply = request.send().map_err(|failed| failed.error)?;
        Counters::from_reply(reply.argument()).ok_or_else(strange)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // A server that is gone has closed it.
        drop(self.interface.request(&self.server, CLOSE).argument(&port_argument(self.port)).submit());
    }
}

/// The server is another one than it was taken for.
fn strange() -> Error {
    Error::Server("the server is no datagram server: its reply makes no sense".into())
}
