//! Early demultiplexing in the kernel: an interface whose datagrams go to several processes, to each its own, into memory of its own.
//!
//! Why: the kernel stores an interface's frames into one memory for each queue. Processes that share it see each other's data, and a server
//! in front of them sees and copies all of it.
//! How: a front makes a network namespace for each client, and a virtual link (veth) into it. The client's end is what the interface is: its
//! name, station, hosts and MTU. There the client drives it by itself ([`Host`](super::Host)). A program on the interface finds a datagram's
//! client by its port, and has it leave by that client's link; a program on the front's end of the link has what the client sends leave by the
//! interface. No process sees a frame on its way.
//!
//! ```text
//!   interface -- program: whose port? (DEVMAP) --> front's end of a link == client's end --> the client's own rings and memory
//!             <-- (DEVMAP) its own port? :program --                     ==              <--
//! ```
//!
//! To a client's kernel all hosts are on the link, and it asks for their stations there. The front answers what the interface's own kernel
//! knows, by the routes there ([`Neighbours`]): a thread for each client waits for such questions.
//!
//! *The end of a client.* The kernel removes a namespace, and with it the link, when its last descriptor, process and socket are gone. The
//! client's thread learns it from the link, and frees the ports. The front keeps no descriptor of the namespace that would be in the way.
//! *The end of the front.* Links and programs are held by descriptors alone, so nothing is left of it, whatever way its process ends. Clients
//! then find that their interface has gone.
//! Trust: clients are hostile. What leaves is whole UDP datagrams from their own ports and the interface's hosts and station.
//! Limits: 255 clients. A client's ports are said at the beginning. Hosts and MTU are those that the interface had when the front was opened.
//! A client hears that a station has changed when its kernel asks again, which it does after half a minute or so. The interface needs an MTU
//! of 1,280 to 65,535, and CAP_SYS_ADMIN is needed besides what [`Xdp`](super::Xdp) needs.
//! Source: thesis §6.4.

mod program;
mod stations;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};

use genie_sys::bpf::{Attached, Bytes, Exits, Mode};
use genie_sys::event::Event;
use genie_sys::fork::Maker;
use genie_sys::lock::Mutex;
use genie_sys::namespace::{Namespace, gather_frames};
use genie_sys::{Errno, packet, poll};
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::link::LinkMessage;
use netlink_packet_route::route::{
    RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::claims::Claims;
use super::interfaces::{Interface, interface};
use super::{Error, Neighbours};
use crate::namespaces::{link, set_up, wait_until_it_sends};
use crate::netlink::Netlink;
use program::{EXIT, Table};

/// RTMGRP_LINK.
const LINKS: u32 = 1;
/// With which MTUs a virtual link has hosts over both versions of IP.
const MTUS: RangeInclusive<u32> = 1280..=65_535;
/// As much of a question as anybody reads.
const QUESTION: usize = 128;

/// An interface that several processes drive, each for its own ports.
#[derive(Debug)]
pub struct Front {
    shared: Arc<Shared>,
    /// Ends the thread.
    end: Event,
    watch: Option<JoinHandle<()>>,
    attached: Attached,
}

#[derive(Debug)]
struct Shared {
    neighbours: Neighbours,
    /// Where the front's ends of links are.
    namespace: Namespace,
    /// Removes links there, also when this process has no descriptors left.
    removing: Mutex<Netlink>,
    table: Table,
    exits: Exits,
    exit: Exits,
    refused: Bytes,
    clients: Mutex<Clients>,
    maker: Maker,
}

#[derive(Debug)]
struct Clients {
    claims: Claims,
    by_number: BTreeMap<u8, Client>,
    /// How many there have been.
    admitted: u32,
    is_gone: bool,
}

#[derive(Debug)]
struct Client {
    ports: Vec<u16>,
    /// The front's end of its link.
    link: u32,
    _attached: Attached,
    attendant: JoinHandle<()>,
}

impl Front {
    /// Opens an interface of this thread's network namespace for clients, of which there are none yet.
    ///
    /// # Errors
    /// There is no such interface; it has no host, or an MTU that a virtual link cannot have; a right is missing; another program has the
    /// interface.
    pub fn open(name: &str) -> Result<Self, Error> {
        let failed = |source| Error::of(name, source);
        // Before the interface is looked at, so that no change is missed.
        let changes = Netlink::open(LINKS).map_err(failed)?;
        let neighbours = Neighbours::of(name).map_err(failed)?;
        let interface = neighbours.interface().clone();
        let refused = |reason| Err(Error::Options { interface: name.to_owned(), reason });
        if interface.hosts.is_empty() {
            return refused("a front needs an address there: `ip address add`");
        }
        if !MTUS.contains(&interface.mtu) {
            return refused(
                "a front needs an MTU of 1,280 to 65,535, which `ip link set NAME mtu 1500` sets",
            );
        }
        let open = || {
            let namespace = Namespace::new()?;
            let removing = Mutex::new(namespace.enter(|| Netlink::open(0))?);
            let (table, exits, exit) = (Table::empty()?, Exits::create(256)?, Exits::create(1)?);
            exit.set(EXIT, interface.index)?;
            let attached =
                program::inward(&interface.hosts, &table, &exits)?.attach(interface.index, None)?;
            let claims = Claims::of(&interface, &interface.hosts);
            let clients = Clients { claims, by_number: BTreeMap::new(), admitted: 0, is_gone: false };
            let (refused, clients) = (Bytes::create(8)?, Mutex::new(clients));
            let maker = Maker::this_process();
            let shared =
                Shared { neighbours, namespace, removing, table, exits, exit, refused, clients, maker };
            let (shared, end) = (Arc::new(shared), Event::new()?);
            let (watched, ended) = (Arc::clone(&shared), end.duplicate()?);
            let watch = Some(thread::spawn(move || watched.watch(changes, &ended)));
            Ok(Self { shared, end, watch, attached })
        };
        open().map_err(failed)
    }

    /// Makes room for a client: the network namespace in which it finds the interface. Datagrams to these ports are the client's until the
    /// namespace has gone. Until the client has [claimed](super::Rings::claim) a port, what comes there is dropped.
    ///
    /// # Errors
    /// A port is another client's or program's, or cannot be had; there are 255 clients; the interface has gone; this process is a child made
    /// by fork.
    ///
    /// # Cost
    /// A network of its own, and a thread: some milliseconds.
    pub fn admit(&self, ports: &[u16]) -> Result<Namespace, Error> {
        self.shared.admit(ports)
    }

    /// The ports that clients have now.
    pub fn ports(&self) -> Vec<u16> {
        let clients = self.shared.clients.lock_made_by(self.shared.maker);
        clients.map_or_else(Vec::new, |clients| clients.ports().collect())
    }

    /// How many frames of clients were dropped, since they were no datagrams from their own ports. A child made by fork is not told.
    pub fn refused(&self) -> u64 {
        let is_ours = self.shared.maker.is_this_process();
        if is_ours { self.shared.refused.numbers()[0].load(Ordering::Relaxed) } else { 0 }
    }

    /// Where the program on the interface is run.
    pub fn mode(&self) -> Mode {
        self.attached.mode()
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        // A child has none of the threads, and the links are its parent's.
        if self.shared.maker.is_this_process() {
            self.end.signal().expect("an event of ours");
            if let Some(Err(panic)) = self.watch.take().map(JoinHandle::join) {
                std::panic::resume_unwind(panic);
            }
        }
    }
}

impl Clients {
    fn ports(&self) -> impl Iterator<Item = u16> {
        self.by_number.values().flat_map(|client| client.ports.iter().copied())
    }

    /// Holds all of these ports in the kernel, or none.
    fn claim(&mut self, ports: &[u16]) -> genie_sys::Result<()> {
        for (at, port) in ports.iter().enumerate() {
            let is_taken = self.ports().any(|taken| taken == *port);
            let claimed = if is_taken { Err(Errno::ADDRINUSE) } else { self.claims.set(*port, true) };
            if let Err(errno) = claimed {
                self.release(&ports[..at]);
                let error = genie_sys::Error::new("claim", format!("port {port}"), errno);
                let is_taken = errno == Errno::ADDRINUSE;
                let remedy = "another client has it, or a socket of the kernel's: see `ss -ulpn`";
                return Err(if is_taken { error.with_remedy(remedy) } else { error });
            }
        }
        Ok(())
    }

    fn release(&mut self, ports: &[u16]) {
        for port in ports {
            self.claims.set(*port, false).expect("letting go of a port");
        }
    }
}

impl Shared {
    fn admit(self: &Arc<Self>, ports: &[u16]) -> Result<Namespace, Error> {
        let interface = self.neighbours.interface();
        let name = || interface.name.clone();
        let failed = |source| Error::of(&interface.name, source);
        if !self.maker.is_this_process() {
            return Err(failed(genie_sys::Error::new("admit", "a client", Errno::CHILD)));
        }
        let distinct: BTreeSet<_> = ports.iter().collect();
        if ports.is_empty() || ports.contains(&0) || distinct.len() < ports.len() {
            let reason = "a client needs ports, from 1 on, each of them once";
            return Err(Error::Options { interface: name(), reason });
        }
        let mut clients = self.clients.lock();
        if clients.is_gone {
            return Err(Error::NoInterface { interface: name() });
        }
        let number = (1..=u8::MAX).find(|number| !clients.by_number.contains_key(number));
        let number = number.ok_or(Error::Options { interface: name(), reason: "it has 255 clients" })?;
        clients.claim(ports).map_err(failed)?;
        let (namespace, link, attached, socket) =
            self.lead_to_client(number, clients.admitted).map_err(|source| {
                clients.release(ports);
                failed(source)
            })?;
        clients.admitted += 1;
        let shared = Arc::clone(self);
        let attendant = thread::spawn(move || shared.attend(number, &socket));
        let client = Client { ports: ports.to_vec(), link, _attached: attached, attendant };
        clients.by_number.insert(number, client);
        ports.iter().for_each(|port| self.table.set(*port, number));
        Ok(namespace)
    }

    /// Makes a client's namespace and link, and a socket for what it asks.
    fn lead_to_client(
        &self,
        number: u8,
        unique: u32,
    ) -> genie_sys::Result<(Namespace, u32, Attached, OwnedFd)> {
        let ours = self.neighbours.interface();
        let (name, near) = (&ours.name[..], format!("genie{unique}"));
        let client = Namespace::new()?;
        self.namespace.enter(|| {
            link([(&near, None), (name, Some(ours.station))], &client, ours.mtu)?;
            set_up(&near, &[])
        })?;
        client.enter(|| {
            let whole = |host: &IpAddr| (*host, if host.is_ipv4() { 32 } else { 128 });
            set_up(name, &ours.hosts.iter().map(whole).collect::<Vec<_>>())?;
            lead_everywhere(ours, interface(name)?.index)?;
            // Otherwise the link would take the interface's frames only while a program is attached in the namespace.
            gather_frames(name, true)?;
            wait_until_it_sends(name)
        })?;
        self.namespace.enter(|| {
            wait_until_it_sends(&near)?;
            let link = interface(&near)?.index;
            let program = program::outward(ours, number, &self.table, &self.exit, &self.refused)?;
            // In native mode, nothing could leave by a virtual link to a kernel's own sockets.
            let attached = program.attach(link, Some(Mode::Generic))?;
            self.exits.set(number.into(), link)?;
            Ok((client, link, attached, packet::without_rings(&near, link)?))
        })
    }

    /// Answers what a client's kernel asks, until its link has gone.
    fn attend(&self, number: u8, socket: &OwnedFd) {
        let mut question = [0; QUESTION];
        loop {
            let len = match recv(socket, &mut question[..], RecvFlags::empty()) {
                Ok((len, _)) => len,
                Err(Errno::INTR) => continue,
                Err(_) => break,
            };
            let question = &question[..len];
            let Some(host) = stations::asked(question) else { continue };
            if let Ok(way) = self.neighbours.find(host) {
                // If the link has gone, the next call says so.
                let _ = send(socket, &stations::answer(question, host, way.station), SendFlags::empty());
            }
        }
        self.remove(number);
    }

    /// Frees a client's ports, and removes its link. Returns the thread that has waited for its questions.
    fn remove(&self, number: u8) -> Option<JoinHandle<()>> {
        let mut clients = self.clients.lock();
        let Client { ports, link, attendant, .. } = clients.by_number.remove(&number)?;
        ports.iter().for_each(|port| self.table.set(*port, 0));
        clients.release(&ports);
        drop(clients);
        let mut message = LinkMessage::default();
        message.header.index = link;
        // The kernel may have removed it with the client's namespace.
        let _ = self.removing.lock().ask(RouteNetlinkMessage::DelLink(message), 0, "a link");
        Some(attendant)
    }

    /// Waits for the interface to go, or the front, and then removes all clients.
    fn watch(&self, mut changes: Netlink, end: &OwnedFd) {
        let index = self.neighbours.interface().index;
        let goes = |change: &RouteNetlinkMessage| {
            // A bridge tells of its ports by links of its own kind.
            matches!(change, RouteNetlinkMessage::DelLink(link)
                if link.header.index == index && link.header.interface_family == AddressFamily::Unspec)
        };
        while let Ok([_, false]) = poll::any_readable([changes.as_fd(), end.as_fd()], None) {
            let has_gone = match changes.changes() {
                Ok(changes) => changes.iter().any(goes),
                // Some were lost.
                Err(Errno::NOBUFS) => self.neighbours.has_gone(),
                Err(_) => false,
            };
            if has_gone {
                break;
            }
        }
        self.clients.lock().is_gone = true;
        for attendant in (1..=u8::MAX).filter_map(|number| self.remove(number)) {
            attendant.join().expect("it ends when its link has gone");
        }
    }
}

/// Has all other hosts be on the link with this number, for this thread's namespace.
fn lead_everywhere(interface: &Interface, index: u32) -> genie_sys::Result<()> {
    for is_v4 in [true, false] {
        if interface.hosts.iter().any(|host| host.is_ipv4() == is_v4) {
            let mut route = RouteMessage::default();
            let (family, scope) = if is_v4 {
                (AddressFamily::Inet, RouteScope::Link)
            } else {
                (AddressFamily::Inet6, RouteScope::Universe)
            };
            (route.header.address_family, route.header.scope) = (family, scope);
            (route.header.kind, route.header.protocol) = (RouteType::Unicast, RouteProtocol::Static);
            route.header.table = RouteHeader::RT_TABLE_MAIN;
            route.attributes = vec![RouteAttribute::Oif(index)];
            let (route, flags) = (RouteNetlinkMessage::NewRoute(route), NLM_F_CREATE | NLM_F_EXCL);
            Netlink::open(0)?.ask(route, flags, "a route to all hosts")?;
        }
    }
    Ok(())
}
