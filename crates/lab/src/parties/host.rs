//! A host: a datagram server over an adapter with early demultiplexing, in its client's process or in one of its own.
//!
//! Why: the papers compare protocol servers in the kernel with the same servers in processes of their own.
//! How: a wire leads from the sender's host to the receiver's. The process that has the receiver's adapter has the wire, too, and stores
//! its frames, by one copy out of the sender's memory. Over a link of the kernel's, either process has the interface at its end, with the same
//! adapter, which copies frames out of AF_XDP's buffers. A receiver that has its server in its process looks for frames itself, which stands
//! for the interrupt; a server in a process of its own has threads, which sleep while they have nothing to do.
//! Source: J. C. Brustoloni's thesis, §9.1.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use genie::channel::{ConnectOptions, Directory, Driven, Listener, Running, ServeOptions};
use genie::mechanism::Space;
use genie::{Connect, Interface, ServerHandle};
use genie_io::Completer;
use genie_net::adapter::{Adapter, EarlyDemultiplexing, Layout, Outboard, Pool, Program};
use genie_net::datagram::{Datagrams, Open, Options, Socket, Summing};
use genie_net::driver::{self, Link};
use genie_net::namespaces::Namespace;
use genie_net::{Wire, wire};
use genie_sys::machine;

use super::order::{Attending, End, Network, Serving};
use crate::error::{Error, Result};
use crate::medium::{self, Copied};

/// The longest data: that of the longest datagram of the papers.
const LONGEST: usize = 60 << 10;
/// The port at each host.
const PORT: u16 = 7;
/// How many datagrams may come before they are asked for, and how long each is at most.
const POOLED: (usize, usize) = (4, wire::MTU_MAX + wire::LINK_HEADER);

/// How many of the longest buffers the pool holds that each client is lent.
const LENT_BUFFERS: usize = 2;
/// The least size of that pool in bytes.
const LENT_BYTES: usize = 8 << 20;

/// The options with which parties serve: they trust clients, and have memory for the longest data.
pub(super) fn serving(longest: usize, spin: Duration) -> ServeOptions {
    let pool = LENT_BYTES.max(LENT_BUFFERS * longest);
    ServeOptions { pool, pending_bytes: usize::MAX, spin, ..ServeOptions::default() }
}

impl End {
    fn other(self) -> Self {
        match self {
            Self::Sender => Self::Receiver,
            Self::Receiver => Self::Sender,
        }
    }

    /// As at the ends of a link of the kernel's ([`Pair`](genie_net::namespaces::Pair)).
    fn host(self) -> IpAddr {
        Ipv4Addr::new(10, 71, 0, 1 + self as u8).into()
    }

    fn station(self) -> [u8; 6] {
        [2, 0, 0x71, 0, 0, 1 + self as u8]
    }

    /// Opens the port by which the clients at both ends meet.
    pub(super) fn open(self, genie: &Interface, server: &ServerHandle) -> Result<Socket> {
        let peer = SocketAddr::new(self.other().host(), PORT);
        Ok(Socket::open(genie, server, &Open { port: PORT, peer: Some(peer), ..Open::default() })?)
    }

    /// A server that is attached to no wire.
    fn server(self, network: Option<Network>, genie: &Interface, space: &Space) -> Result<Datagrams> {
        let options = Options {
            neighbours: BTreeMap::from([(self.other().host(), self.other().station())]),
            mtu: wire::MTU_MAX,
            summing: network.map_or(Summing::None, |network| network.summing),
            ..Options::new(self.station(), [self.host()])
        };
        let adapter: Box<dyn Adapter> = match self {
            // Nothing comes there.
            Self::Sender => Box::new(Outboard::new(0)),
            Self::Receiver => {
                let (count, len) = POOLED;
                let pool = Pool::reserve(space.small().unwrap_or(space), len, count);
                let layout = Layout::Program(Program::udp());
                Box::new(EarlyDemultiplexing::new(layout, pool.map_err(genie::Error::from)?))
            }
        };
        Ok(Datagrams::new(genie.clone(), adapter, options))
    }
}

/// What brings frames to a datagram server in this process.
#[derive(Debug)]
pub(super) enum Bringing {
    /// A wire that leads there.
    Wire(Driven),
    /// A link of the kernel's.
    Link(Link),
}

impl Bringing {
    /// Looks for frames.
    pub(super) fn attend(&mut self) -> Result<()> {
        match self {
            Self::Wire(driven) => drop(driven.attend(Duration::ZERO)?),
            Self::Link(link) => drop(link.collect()),
        }
        Ok(())
    }

    /// What was copied so far for frames.
    pub(super) fn copied(&self) -> Option<Copied> {
        match self {
            Self::Wire(_) => None,
            Self::Link(link) => Some(Copied::at(link, true)),
        }
    }
}

/// A datagram server in this process, and what brings frames there, if anything does.
pub(super) fn here(
    attending: &Attending,
    genie: &Interface,
    namespace: Option<&Namespace>,
) -> Result<(Datagrams, Option<Bringing>)> {
    let end = attending.end;
    let server = end.server(attending.route.network(), genie, genie.space())?;
    let bringing = match (namespace, end) {
        (Some(namespace), _) => Some(Bringing::Link(link(&server, end, genie.space(), namespace)?)),
        (None, End::Sender) => {
            attach(&server, attending, genie)?;
            None
        }
        (None, End::Receiver) => Some(Bringing::Wire(lead_to(&server, attending)?.drive()?)),
    };
    Ok((server, bringing))
}

/// Serves in threads until the returned values are dropped.
pub(super) fn serve(of: &Serving, namespace: Option<&Namespace>) -> Result<Vec<Running>> {
    let _ = machine::raise_memory_lock_limit();
    let Serving { name, attending } = of;
    let genie = attending.granule.open()?;
    attending.route.adjust(&genie);
    let options = serving(LONGEST, Duration::ZERO);
    let listener = Listener::claim_in(&Directory::at(&attending.folder)?, name, options)?;
    let server = attending.end.server(attending.route.network(), &genie, listener.private_pool()?)?;
    let mut running = Vec::new();
    match (namespace, attending.end) {
        (Some(namespace), end) => drop(link(&server, end, genie.space(), namespace)?),
        (None, End::Sender) => attach(&server, attending, &genie)?,
        (None, End::Receiver) => running.push(lead_to(&server, attending)?.start()?),
    }
    running.push(listener.serve(server)?.start()?);
    Ok(running)
}

/// Has a server send and receive by the interface at its end of a link of the kernel's.
fn link(server: &Datagrams, end: End, space: &Space, namespace: &Namespace) -> Result<Link> {
    let name = format!("genie{}", end as u8);
    let rings = medium::open(space, namespace, &name)?;
    // It is on its client's CPU, or its client looks.
    let options = driver::Options { spin: Duration::ZERO, ..driver::Options::default() };
    let link = Link::new(&name, rings, options).map_err(|error| Error::Peer(error.to_string()))?;
    link.lead_to(server.station());
    server.attach(ServerHandle::new(link.clone()))?;
    Ok(link)
}

fn attach(server: &Datagrams, attending: &Attending, genie: &Interface) -> Result<()> {
    let options = ConnectOptions { spin: Some(attending.spin), ..ConnectOptions::default() };
    server.attach(genie.connect_with(&Directory::at(&attending.folder)?, &attending.server, &options)?)?;
    Ok(())
}

fn lead_to(server: &Datagrams, attending: &Attending) -> Result<genie::channel::Serving> {
    let options = wire::Options { rate: attending.route.medium().rate(), ..wire::Options::default() };
    let wire = Wire::new(options, wire::Clock::default(), server.station());
    let wire = wire.map_err(|error| Error::Peer(error.to_string()))?;
    let (directory, options) = (Directory::at(&attending.folder)?, serving(LONGEST, Duration::ZERO));
    Ok(Listener::bind_in(&directory, &attending.server, wire, options)?)
}
