//! Where datagrams go that leave by an interface: the kernel's routes and neighbours, followed as they change.
//!
//! Why: a server's own table of stations ([`Options::neighbour`](crate::datagram::Options::neighbour)) knows no host that comes later, none
//! behind a gateway, and none whose station has changed. The kernel resolves all that (ARP, NDP), and administrators know how to tell it.
//! How: a destination that is new is looked up by two questions (netlink): its route, and the neighbour that is next there. Where that has
//! no station yet, the kernel is told to ask for it, and waited for. What was found is kept until the kernel says that something has
//! changed. That is read by whoever looks a destination up, once for each tick of the kernel's coarse clock (1 to 10 ms): otherwise a
//! destination that is known costs a lock and no system call, and a server that sends nothing costs nothing. A thread that waits for
//! changes would hear of them no earlier, since the kernel itself takes longer to find out.
//!
//! The kernel does not see what is sent by a driver, and so would not find out that a neighbour is gone. When it doubts a neighbour (STALE),
//! the neighbour is looked up anew, which makes the kernel ask it.
//! Trust: stations are what hosts on the network say that they are, as for the kernel's own datagrams.
//! Limits: unicast alone; no multicast, broadcast or anycast, and no host of this machine's own. Ways are kept to 4,096 destinations; then all
//! are looked up anew. A change of a nexthop object (`ip nexthop`) is seen when a route or the neighbour changes. A path's own MTU is not
//! heeded.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::thread;
use std::time::{Duration, Instant};

use genie_sys::fork::Maker;
use genie_sys::lock::Mutex;
use genie_sys::{Errno, Error, machine};
use netlink_packet_core::NLM_F_CREATE;
use netlink_packet_route::link::LinkMessage;
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteType, RouteVia,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::interfaces::{Interface, interface};
use crate::netlink::Netlink;

/// How long a neighbour is waited for that the kernel has to ask. On an Ethernet it answers in less than a millisecond.
const WAIT: Duration = Duration::from_millis(100);
/// To how many destinations ways are kept.
const WAYS_MAX: usize = 4096;
/// RTMGRP: links, neighbours, and each kind's addresses, routes and rules.
const CHANGES: u32 = 0x1 | 0x4 | 0x10 | 0x40 | 0x80 | 0x100 | 0x400 | 0x4_0000;

/// Where a datagram goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Way {
    /// The host that gets the frame: the destination, or a gateway.
    pub hop: IpAddr,
    /// That host's station.
    pub station: [u8; 6],
    /// The address from which the kernel would send there, if the interface has one of the kind.
    pub from: Option<IpAddr>,
    /// The longest packet that the interface takes.
    pub mtu: usize,
}

/// An interface by which a datagram cannot go.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("interface {interface} {why}")]
pub struct Unreachable {
    /// Its name.
    pub interface: String,
    /// Why.
    pub why: Why,
}

/// Why a datagram cannot go by an interface.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Why {
    /// The interface was removed, or is in another network namespace now.
    #[error("is gone")]
    Gone,
    /// The interface, or its other end, is down.
    #[error("is down, or has no link; `ip link set NAME up` brings it up")]
    Down,
    /// The kernel has no route.
    #[error("leads no way to {to} ({reason}); see `ip route get {to} oif NAME`")]
    NoRoute {
        /// The destination.
        to: IpAddr,
        /// The kernel's reason.
        reason: Errno,
    },
    /// The destination is this host itself, or many hosts: that is not supported.
    #[error("has no single other host {to}: datagrams by a driver go nowhere else")]
    NoUnicast {
        /// The destination.
        to: IpAddr,
    },
    /// No host has said, in 100 ms, that the address is its own.
    #[error("has no answer from {hop}, by which {to} is reached; see `ip neighbour show dev NAME`")]
    NoAnswer {
        /// The destination.
        to: IpAddr,
        /// The host whose station was asked for.
        hop: IpAddr,
    },
    /// The process is a child, made by fork, of the one that asks the kernel.
    #[error("belongs to the parent of this process")]
    Inherited,
    /// The kernel refuses to answer.
    #[error("cannot be used: {0}")]
    Refused(#[from] Error),
}

impl fmt::Debug for Neighbours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Neighbours").field("interface", &self.interface).finish_non_exhaustive()
    }
}

impl Unreachable {
    /// The kernel's number for it.
    pub fn errno(&self) -> Errno {
        match &self.why {
            Why::Gone => Errno::NODEV,
            Why::Down => Errno::NETDOWN,
            Why::NoRoute { reason, .. } => *reason,
            Why::NoUnicast { .. } => Errno::OPNOTSUPP,
            Why::NoAnswer { .. } => Errno::HOSTUNREACH,
            Why::Inherited => Errno::PERM,
            Why::Refused(error) => error.errno,
        }
    }
}

/// The kernel's routes and neighbours on an interface.
pub struct Neighbours {
    /// As it was when this was made.
    interface: Interface,
    state: Mutex<State>,
    maker: Maker,
}

struct State {
    questions: Netlink,
    changes: Netlink,
    /// When changes were read, by the coarse clock.
    read: Duration,
    is_gone: bool,
    is_up: bool,
    mtu: usize,
    ways: HashMap<IpAddr, Way>,
}

impl Neighbours {
    /// Those on an interface of this thread's network namespace.
    ///
    /// # Errors
    /// ENODEV: there is no such interface. The limit on descriptors, of which it has two.
    pub fn of(name: &str) -> genie_sys::Result<Self> {
        // Before the interface is looked at, so that no change is missed.
        let changes = Netlink::open(CHANGES)?;
        let interface = interface(name)?;
        let state = State {
            questions: Netlink::open(0)?,
            changes,
            read: Duration::ZERO,
            is_gone: false,
            is_up: interface.is_up,
            mtu: interface.mtu as usize,
            ways: HashMap::new(),
        };
        Ok(Self { interface, state: Mutex::new(state), maker: Maker::this_process() })
    }

    /// The interface, as it was when this was made.
    pub fn interface(&self) -> &Interface {
        &self.interface
    }

    /// The way to a destination, if it has been found before and has not changed.
    ///
    /// # Errors
    /// The interface is gone or down.
    ///
    /// # Cost
    /// A lock; once in a tick of the kernel's clock, a system call.
    pub fn known(&self, to: IpAddr) -> Result<Option<Way>, Unreachable> {
        self.asking(|state, index| {
            state.follow(index)?;
            Ok(state.ways.get(&to).copied())
        })
    }

    /// The way to a destination.
    ///
    /// # Errors
    /// As the variants of [`Why`] say. A host that does not answer is asked for again with the next call.
    ///
    /// # Cost
    /// Where it is not known, half a dozen system calls; where the kernel has to ask for the host's station, the caller waits until
    /// that is there, 100 ms at most, and without a lock.
    pub fn find(&self, to: IpAddr) -> Result<Way, Unreachable> {
        if let Some(way) = self.known(to)? {
            return Ok(way);
        }
        let mut end = None;
        loop {
            let found = self.asking(|state, index| {
                state.follow(index)?;
                state.ask(index, to, end.is_none())
            });
            let no_answer = matches!(&found, Err(Unreachable { why: Why::NoAnswer { .. }, .. }));
            if !no_answer || Instant::now() >= *end.get_or_insert_with(|| Instant::now() + WAIT) {
                return found;
            }
            thread::sleep(Duration::from_micros(200));
        }
    }

    /// Whether the interface has gone, for which the kernel is asked.
    pub(super) fn has_gone(&self) -> bool {
        self.asking(|state, index| state.begin_anew(index).map(|()| state.is_gone)) == Ok(true)
    }

    fn asking<T>(&self, ask: impl FnOnce(&mut State, u32) -> Result<T, Why>) -> Result<T, Unreachable> {
        // A child has its parent's sockets, and would take the answers.
        let asked = if self.maker.is_this_process() {
            ask(&mut self.state.lock(), self.interface.index)
        } else {
            Err(Why::Inherited)
        };
        asked.map_err(|why| Unreachable { interface: self.interface.name.clone(), why })
    }
}

impl State {
    /// Reads what has changed, if the clock has gone on since it was read.
    fn follow(&mut self, index: u32) -> Result<(), Why> {
        let now = machine::coarse_time();
        if self.read != now {
            self.read = now;
            loop {
                match self.changes.changes() {
                    Ok(changes) => changes.iter().for_each(|change| self.change(index, change)),
                    Err(Errno::AGAIN) => break,
                    // Some were lost.
                    Err(Errno::NOBUFS) => self.begin_anew(index)?,
                    Err(errno) => return Err(Error::new("recv", "changes of the network", errno).into()),
                }
            }
        }
        match (self.is_gone, self.is_up) {
            (true, _) => Err(Why::Gone),
            (false, false) => Err(Why::Down),
            (false, true) => Ok(()),
        }
    }

    fn change(&mut self, index: u32, change: &RouteNetlinkMessage) {
        match change {
            // A bridge tells of its ports by links of its own kind.
            RouteNetlinkMessage::NewLink(link) | RouteNetlinkMessage::DelLink(link)
                if link.header.index != index || link.header.interface_family != AddressFamily::Unspec => {}
            RouteNetlinkMessage::DelLink(_) => self.is_gone = true,
            RouteNetlinkMessage::NewLink(_) => {
                if let Some(interface) = Interface::from_message(change) {
                    (self.is_up, self.mtu) = (interface.is_up, interface.mtu as usize);
                }
                self.ways.clear();
            }
            RouteNetlinkMessage::NewNeighbour(message) | RouteNetlinkMessage::DelNeighbour(message) => {
                if message.header.ifindex == index {
                    let is_there = matches!(change, RouteNetlinkMessage::NewNeighbour(_));
                    let station = station(message).filter(|_| is_there && !is_doubtful(message));
                    let hop = hop(message);
                    self.ways.retain(|_, way| Some(way.hop) != hop || Some(way.station) == station);
                }
            }
            // Addresses, routes, rules.
            _ => self.ways.clear(),
        }
    }

    /// Forgets all, and looks at the interface.
    fn begin_anew(&mut self, index: u32) -> Result<(), Why> {
        self.ways.clear();
        let mut link = LinkMessage::default();
        link.header.index = index;
        match self.questions.ask(RouteNetlinkMessage::GetLink(link), 0, "the interface") {
            Ok(answers) => answers.iter().for_each(|answer| self.change(index, answer)),
            Err(error) if error.errno == Errno::NODEV => self.is_gone = true,
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Asks the kernel for a way, and, if so told, has it ask the network where it has no station, or doubts it.
    fn ask(&mut self, index: u32, to: IpAddr, is_first: bool) -> Result<Way, Why> {
        let (hop, from) = self.route(index, to)?;
        let neighbour = self.neighbour(index, hop)?;
        let mut found = neighbour.as_ref().and_then(station);
        if is_first && (found.is_none() || neighbour.as_ref().is_some_and(is_doubtful)) {
            // Without the right to ask, what the kernel doubts is taken.
            let used = self.use_neighbour(index, hop);
            if found.is_none() {
                used?;
                // On a virtual link the answer is there when the question has been sent.
                found = self.neighbour(index, hop)?.as_ref().and_then(station);
            }
        }
        let way = Way { hop, station: found.ok_or(Why::NoAnswer { to, hop })?, from, mtu: self.mtu };
        if self.ways.len() >= WAYS_MAX {
            self.ways.clear();
        }
        self.ways.insert(to, way);
        Ok(way)
    }

    /// The host that is next on the way to `to`, and the address from which the kernel would send there.
    fn route(&mut self, index: u32, to: IpAddr) -> Result<(IpAddr, Option<IpAddr>), Why> {
        let mut message = RouteMessage::default();
        message.header.address_family = family(to);
        message.header.destination_prefix_length = if to.is_ipv4() { 32 } else { 128 };
        message.attributes = vec![RouteAttribute::Destination(to.into()), RouteAttribute::Oif(index)];
        let mut ask = |flags| {
            message.header.flags = flags;
            let question = RouteNetlinkMessage::GetRoute(message.clone());
            match self.questions.ask(question, 0, "a route").as_deref() {
                Ok([RouteNetlinkMessage::NewRoute(route)]) => Ok(route.clone()),
                Ok(_) => Err(Why::NoRoute { to, reason: Errno::NETUNREACH }),
                Err(error) => Err(Why::NoRoute { to, reason: error.errno }),
            }
        };
        let route = ask(RouteFlags::empty())?;
        if route.header.kind != RouteType::Unicast {
            return Err(Why::NoUnicast { to });
        }
        // Where an interface is named, the kernel takes IPv4 hosts without a route to be on the link. This asks for the route itself.
        ask(RouteFlags::FibMatch)?;
        let (mut hop, mut from) = (to, None);
        for attribute in &route.attributes {
            match attribute {
                RouteAttribute::Gateway(gateway) => hop = host(gateway).unwrap_or(hop),
                RouteAttribute::Via(RouteVia::Inet(gateway)) => hop = (*gateway).into(),
                RouteAttribute::Via(RouteVia::Inet6(gateway)) => hop = (*gateway).into(),
                RouteAttribute::PrefSource(source) => from = host(source),
                _ => {}
            }
        }
        Ok((hop, from))
    }

    fn neighbour(&mut self, index: u32, hop: IpAddr) -> Result<Option<NeighbourMessage>, Why> {
        let question = RouteNetlinkMessage::GetNeighbour(neighbour(index, hop));
        match self.questions.ask(question, 0, "a neighbour") {
            Ok(answers) => Ok(answers.into_iter().find_map(|answer| match answer {
                RouteNetlinkMessage::NewNeighbour(neighbour) => Some(neighbour),
                _ => None,
            })),
            Err(error) if error.errno == Errno::NOENT => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Has the kernel behave as if it had sent something there.
    fn use_neighbour(&mut self, index: u32, hop: IpAddr) -> Result<(), Why> {
        let mut message = neighbour(index, hop);
        message.header.flags = NeighbourFlags::Use;
        let what = format!("a question for the station of {hop}");
        let question = RouteNetlinkMessage::NewNeighbour(message);
        self.questions.ask(question, NLM_F_CREATE, &what).map_err(|error| match error.errno {
            Errno::PERM => error.with_remedy("CAP_NET_ADMIN is missing; else say it by `ip neighbour add`"),
            _ => error,
        })?;
        Ok(())
    }
}

fn family(host: IpAddr) -> AddressFamily {
    if host.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

fn neighbour(index: u32, hop: IpAddr) -> NeighbourMessage {
    let mut message = NeighbourMessage::default();
    (message.header.family, message.header.ifindex) = (family(hop), index);
    message.attributes = vec![NeighbourAttribute::Destination(hop.into())];
    message
}

fn host(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(host) => Some((*host).into()),
        RouteAddress::Inet6(host) => Some((*host).into()),
        _ => None,
    }
}

fn hop(message: &NeighbourMessage) -> Option<IpAddr> {
    message.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::Destination(NeighbourAddress::Inet(host)) => Some((*host).into()),
        NeighbourAttribute::Destination(NeighbourAddress::Inet6(host)) => Some((*host).into()),
        _ => None,
    })
}

/// The station that the kernel would send to.
fn station(message: &NeighbourMessage) -> Option<[u8; 6]> {
    use NeighbourState::{Delay, Noarp, Permanent, Probe, Reachable, Stale};
    let is_usable = matches!(message.header.state, Reachable | Stale | Delay | Probe | Permanent | Noarp);
    message.attributes.iter().filter(|_| is_usable).find_map(|attribute| match attribute {
        NeighbourAttribute::LinkLayerAddress(station) => (**station).try_into().ok(),
        _ => None,
    })
}

/// Whether the kernel would ask the neighbour if it sent something there.
fn is_doubtful(message: &NeighbourMessage) -> bool {
    message.header.state == NeighbourState::Stale
}
