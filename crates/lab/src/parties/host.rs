//! A host: a datagram server over an adapter with early demultiplexing, in its client's process or in one of its own.
//!
//! Why: the papers compare protocol servers in the kernel with the same servers in processes of their own.
//! How: a wire leads from the sender's host to the receiver's. The process that has the receiver's adapter has the wire, too, and stores
//! its frames, by one copy out of the sender's memory. A receiver that has its server in its process looks at the wire itself, which stands
//! for the interrupt; a server in a process of its own has threads, which sleep while they have nothing to do.
//! Source: J. C. Brustoloni's thesis, §9.1.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use genie::channel::{ConnectOptions, Directory, Driven, Listener, Running, ServeOptions};
use genie::mechanism::Space;
use genie::{Connect, Interface, ServerHandle};
use genie_net::adapter::{Adapter, EarlyDemultiplexing, Layout, Outboard, Pool, Program};
use genie_net::datagram::{Datagrams, Open, Options, Socket, Summing};
use genie_net::{Wire, wire};
use genie_sys::machine;

use super::order::{Attending, End, Network, Serving};
use crate::error::{Error, Result};

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

    fn host(self) -> IpAddr {
        Ipv4Addr::new(10, 0, 0, 1 + self as u8).into()
    }

    /// Opens the port by which the clients at both ends meet.
    pub(super) fn open(self, genie: &Interface, server: &ServerHandle) -> Result<Socket> {
        let peer = SocketAddr::new(self.other().host(), PORT);
        Ok(Socket::open(genie, server, &Open { port: PORT, peer: Some(peer), ..Open::default() })?)
    }

    /// A server that is attached to no wire.
    fn server(self, network: Option<Network>, genie: &Interface, space: &Space) -> Result<Datagrams> {
        let station = |end: Self| [2, 0, 0, 0, 0, end as u8];
        let options = Options {
            neighbours: BTreeMap::from([(self.other().host(), station(self.other()))]),
            mtu: wire::MTU_MAX,
            summing: network.map_or(Summing::None, |network| network.summing),
            ..Options::new(station(self), [self.host()])
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

/// A datagram server in this process, and the wire that leads there, at the receiver's end.
pub(super) fn here(attending: &Attending, genie: &Interface) -> Result<(Datagrams, Option<Driven>)> {
    let server = attending.end.server(attending.route.network(), genie, genie.space())?;
    let wire = match attending.end {
        End::Sender => {
            attach(&server, attending, genie)?;
            None
        }
        End::Receiver => Some(lead_to(&server, attending)?.drive()?),
    };
    Ok((server, wire))
}

/// Serves in threads until the returned values are dropped.
pub(super) fn serve(of: &Serving) -> Result<Vec<Running>> {
    let _ = machine::raise_memory_lock_limit();
    let Serving { name, attending } = of;
    let genie = attending.granule.open()?;
    attending.route.adjust(&genie);
    let options = serving(LONGEST, Duration::ZERO);
    let listener = Listener::claim_in(&Directory::at(&attending.folder)?, name, options)?;
    let server = attending.end.server(attending.route.network(), &genie, listener.private_pool()?)?;
    let mut running = Vec::new();
    match attending.end {
        End::Sender => attach(&server, attending, &genie)?,
        End::Receiver => running.push(lead_to(&server, attending)?.start()?),
    }
    running.push(listener.serve(server)?.start()?);
    Ok(running)
}

fn attach(server: &Datagrams, attending: &Attending, genie: &Interface) -> Result<()> {
    let options = ConnectOptions { spin: Some(attending.spin), ..ConnectOptions::default() };
    server.attach(genie.connect_with(&Directory::at(&attending.folder)?, &attending.server, &options)?)?;
    Ok(())
}

fn lead_to(server: &Datagrams, attending: &Attending) -> Result<genie::channel::Serving> {
    let options = wire::Options { rate: attending.route.rate(), ..wire::Options::default() };
    let wire = Wire::new(options, wire::Clock::default(), server.station());
    let wire = wire.map_err(|error| Error::Peer(error.to_string()))?;
    let (directory, options) = (Directory::at(&attending.folder)?, serving(LONGEST, Duration::ZERO));
    Ok(Listener::bind_in(&directory, &attending.server, wire, options)?)
}
