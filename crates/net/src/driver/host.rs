//! A datagram server on an interface of the kernel's, with the best driver that can be had there.
//!
//! Why: a program wants datagrams on an interface, and not to know what the kernel, the device and its own rights allow.
//! How: AF_XDP is tried first; where it is refused, a packet socket. Each has the adapter that copies least: frames by AF_XDP lie in buffers
//! that can change places with clients' pages, and are taken as they are; frames in a packet socket's ring are copied from there once, to
//! where the request of their port waits. Headers are split off by whoever asks for it: it takes more memory, and gains something only where a
//! page changes places for less than the copy of it.

use std::fmt;
use std::sync::Arc;

use genie_io::Interface;
use genie_sys::Errno;
use genie_sys::bpf::Mode;

use super::interfaces;
use super::link::{self, Link};
use super::{Error, Neighbours, PacketSocket, Queue, Rings, Xdp};
use crate::adapter::{Adapter, EarlyDemultiplexing, Layout, Pool, Program};
use crate::datagram::{Datagrams, Options};

/// How many buffers a packet socket's adapter has for datagrams whose ports have no request.
const BUFFERS: usize = 256;
/// How long a frame's header is before the packet.
const LINK_HEADER: usize = 14;

/// A driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Driver {
    /// AF_XDP: [`Xdp`].
    Xdp,
    /// The same, with headers apart from data: [`Queue::splits`].
    Splitting,
    /// A packet socket: [`PacketSocket`].
    PacketSocket,
}

/// A datagram server on an interface. Its hosts are the kernel's there, and it sends to whom the kernel would, by the same routes.
pub struct Host {
    /// The server, which is attached to the link.
    pub datagrams: Datagrams,
    /// The interface as a server, for its counters.
    pub link: Link,
    /// What the kernel says of the interface.
    pub interface: interfaces::Interface,
    /// By what it is driven.
    pub driver: Driver,
    /// How it is driven, which adapter the server has, and why.
    pub how: String,
}

/// What drives an interface.
struct Driven {
    driver: Driver,
    link: Link,
    adapter: Box<dyn Adapter>,
    how: String,
}

impl Host {
    /// Opens a server on an interface of this thread's network namespace: by the driver that is asked for, or by AF_XDP where that can be
    /// had, and else by a packet socket. `adjust` changes the options that follow from the interface. An MTU that is longer than the
    /// interface's counts for no more.
    ///
    /// # Errors
    /// See [`Error`]. Where a right is missing, it is named.
    pub fn open(
        genie: &Interface,
        name: &str,
        driver: Option<Driver>,
        adjust: impl FnOnce(&mut Options),
    ) -> Result<Self, Error> {
        let kernel = Arc::new(Neighbours::of(name).map_err(|source| Error::of(name, source))?);
        let interface = kernel.interface().clone();
        let driven = match driver {
            Some(driver @ (Driver::Xdp | Driver::Splitting)) => by_xdp(genie, &interface, driver),
            Some(Driver::PacketSocket) => by_packet_socket(genie, &interface, "as was asked for"),
            None => by_xdp(genie, &interface, Driver::Xdp).or_else(|refused| {
                by_packet_socket(genie, &interface, &format!("since AF_XDP is refused ({refused})"))
            }),
        };
        let Driven { driver, link, adapter, how } = driven?;
        let mut options = Options::on(kernel);
        adjust(&mut options);
        options.mtu = options.mtu.min(interface.mtu as usize);
        let datagrams = Datagrams::new(genie.clone(), adapter, options);
        datagrams.attach_link(&link).expect("nobody has the link or the datagram server yet");
        Ok(Self { datagrams, link, interface, driver, how })
    }
}

fn by_xdp(genie: &Interface, interface: &interfaces::Interface, driver: Driver) -> Result<Driven, Error> {
    let (splits, level) = match driver {
        Driver::Splitting => (true, "header/data splitting by the kernel, as was asked for"),
        _ => (false, "pooled buffering, since the kernel stores each frame before its port is known"),
    };
    let queue = Queue { splits, ..Queue::default() };
    let rings = Xdp::open(genie.space(), &interface.name, &interface.hosts, &queue)?;
    let mode = match rings.mode() {
        Mode::Native => "native",
        Mode::Generic => "generic",
    };
    let copying = if rings.is_zero_copy() { "zero-copy" } else { "frames copied by the kernel" };
    let how = format!("AF_XDP ({mode} mode, {copying}); {level}");
    let adapter = Box::new(rings.adapter());
    Ok(Driven { driver, link: link_over(interface, rings)?, adapter, how })
}

fn by_packet_socket(
    genie: &Interface,
    interface: &interfaces::Interface,
    why: &str,
) -> Result<Driven, Error> {
    let rings = PacketSocket::open(&interface.name, &interface.hosts)?;
    let space = genie.space().small().unwrap_or(genie.space());
    let pool = Pool::reserve(space, interface.mtu as usize + LINK_HEADER, BUFFERS)
        .map_err(|source| Error::Memory { interface: interface.name.clone(), source })?;
    let adapter = Box::new(EarlyDemultiplexing::splitting(Layout::Program(Program::udp()), pool));
    let how = format!(
        "a packet socket, {why}; early demultiplexing in software, since the kernel has copied each frame to the ring already"
    );
    Ok(Driven { driver: Driver::PacketSocket, link: link_over(interface, rings)?, adapter, how })
}

fn link_over(interface: &interfaces::Interface, rings: impl Rings + 'static) -> Result<Link, Error> {
    Link::new(&interface.name, rings, link::Options::default()).map_err(|error| {
        let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
        Error::of(&interface.name, genie_sys::Error::new("dup", "the socket", errno))
    })
}

impl fmt::Display for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Xdp => "AF_XDP",
            Self::Splitting => "AF_XDP, splitting",
            Self::PacketSocket => "packet socket",
        })
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let interfaces::Interface { name, mtu, .. } = &self.interface;
        write!(f, "interface {name}, MTU {mtu}, is driven by {}", self.how)
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host")
            .field("interface", &self.interface)
            .field("how", &self.how)
            .finish_non_exhaustive()
    }
}
