//! How a datagram server is.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use genie_io::ServerError;
use genie_sys::Errno;
use serde::{Deserialize, Serialize};

use super::argument::refusal;
use crate::driver::neighbours::{Neighbours, Unreachable, Way};
use crate::packet::{Between, Hosts};

/// How a datagram server is: who it is on the network, and what it allows.
#[derive(Debug, Clone)]
pub struct Options {
    /// Its station on the Ethernet.
    pub station: [u8; 6],
    /// The hosts that it is, of either kind.
    pub hosts: Vec<IpAddr>,
    /// The hosts that it sends to, and their stations.
    pub neighbours: BTreeMap<IpAddr, [u8; 6]>,
    /// Where datagrams to all others go: by the kernel's routes and neighbours (none).
    pub kernel: Option<Arc<Neighbours>>,
    /// The longest packet, its IP header included (1,500); 65,535 at most.
    pub mtu: usize,
    /// What is done for the checksum of a datagram that is sent ([`Summing::Separate`]).
    pub summing: Summing,
    /// What is done for the checksum of a datagram that arrives ([`Verifying::Separate`]).
    pub verifying: Verifying,
    /// What clients may have.
    pub limits: Limits,
}

/// What is done for the checksum of a datagram that is sent.
///
/// The adapter does not sum: the checksum is in front of the data, so it would have to keep all of a frame in memory of its own first
/// (§6.7), and over a [`Wire`](crate::Wire) a frame's bytes are stored once, from the sender's memory to where the receiver's adapter puts
/// them. To keep the frame in other memory first is [`Summing::Integrated`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Summing {
    /// Nothing: it has none. Over IPv6, which does not allow that, it is [`Summing::Separate`].
    None,
    /// The data is read.
    Separate,
    /// The data is copied, and summed meanwhile. The client has its reply before the datagram is sent.
    Integrated,
}

/// What is done for the checksum of a datagram that arrives. [`Counters`](super::Counters) say how many bytes were summed in each way.
///
/// A damaged datagram is dropped, and counted; the request for which it would have been waits for the next one. If the client has asked for
/// strong integrity, its buffer is as it was. By share, an adapter stores what comes into the client's buffer before anybody knows the sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verifying {
    /// The data is read.
    Separate,
    /// The data is summed while the server moves it: from the adapter's own memory to the host's, as Medusa and Afterburner do (§6.8), or
    /// from where the adapter has stored it to where the request's input is. By emulated copy the target is a buffer of the system's, whose
    /// granules change places with the client's; only by share is it the client's buffer, where damaged data may so be found.
    ///
    /// What the server does not move is read: data that is in its place already, or will be, in the adapter's pooled buffers. Those the
    /// interface copies or swaps, straight into the client's buffer: to sum there would spoil it, and to sum on the way to another buffer
    /// would be a second copy. A datagram that waits for a request is verified when that comes: until then, damaged ones take up room, too.
    Integrated,
    /// The adapter sums all of the frame as it stores it, and the server subtracts what is not data, of which it has read the headers
    /// anyway. With [`Outboard`](crate::adapter::Outboard) this is how the Gigabit Nectar's WCAB does it (§6.8). What an adapter does not
    /// sum is read.
    Adapter,
}

/// What clients may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// How many ports a client (64), each with a program of some KiB at most.
    pub ports: usize,
    /// How many requests to receive that wait for datagrams, of a client (256).
    pub waiting: usize,
    /// How many requests to send whose datagrams are on the wire, of a client (64).
    pub sending: usize,
    /// How many datagrams that wait for requests, at a port (128).
    pub queued: usize,
    /// How many bytes of these, at a port (256 KiB).
    pub queued_bytes: usize,
    /// How many buffers of the adapter's all datagrams that wait for requests may occupy (128), or one less than there are when the server
    /// is made, if that is fewer. Of what the other clients leave of these, a client may have half: one that does not receive leaves
    /// others something, but many leave little.
    pub held: usize,
    /// How many bytes these datagrams may have, by the same rule (2 MiB).
    pub held_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            ports: 64,
            waiting: 256,
            sending: 64,
            queued: 128,
            queued_bytes: 256 << 10,
            held: 128,
            held_bytes: 2 << 20,
        }
    }
}

impl Options {
    /// Those of a host without neighbours, which sends to nobody.
    pub fn new(station: [u8; 6], hosts: impl IntoIterator<Item = IpAddr>) -> Self {
        Self {
            station,
            hosts: hosts.into_iter().collect(),
            neighbours: BTreeMap::new(),
            kernel: None,
            mtu: 1500,
            summing: Summing::Separate,
            verifying: Verifying::Separate,
            limits: Limits::default(),
        }
    }

    /// Those of the host that the kernel is on an interface now, with all its addresses there, which sends to whom the kernel would.
    pub fn on(kernel: Arc<Neighbours>) -> Self {
        let interface = kernel.interface();
        let mtu = interface.mtu as usize;
        let options = Self::new(interface.station, interface.hosts.iter().copied());
        Self { mtu, kernel: Some(kernel), ..options }
    }

    /// The same with one neighbour more.
    #[must_use]
    pub fn neighbour(mut self, host: IpAddr, station: [u8; 6]) -> Self {
        self.neighbours.insert(host, station);
        self
    }

    /// The way to `to`, if that is known already.
    pub(super) fn known_way(&self, to: IpAddr) -> Result<Option<Way>, ServerError> {
        if let Some(station) = self.neighbours.get(&to) {
            return Ok(Some(Way { hop: to, station: *station, from: None, mtu: self.mtu }));
        }
        self.kernel.as_ref().map_or(Ok(None), |kernel| kernel.known(to).map_err(unreachable))
    }

    /// The way to `to` where it is not known: the kernel is asked, and maybe waited for, so no lock should be held.
    pub(super) fn find_way(&self, to: IpAddr) -> Result<Way, ServerError> {
        let none = || {
            let message = format!("{to} is no neighbour of this host's (`Options::neighbour`)");
            refusal(Errno::HOSTUNREACH, message)
        };
        self.kernel.as_ref().ok_or_else(none)?.find(to).map_err(unreachable)
    }

    /// The hosts between which a datagram travels to `to`: from the address that the kernel prefers, if it is this host's, or the first
    /// of the kind.
    pub(super) fn hosts(&self, to: IpAddr, preferred: Option<IpAddr>) -> Result<Hosts, ServerError> {
        let preferred = preferred.filter(|from| self.hosts.contains(from));
        let hosts = preferred.iter().chain(&self.hosts).find_map(|from| match (*from, to) {
            (IpAddr::V4(from), IpAddr::V4(to)) => Some(Hosts::V4(Between { from, to })),
            (IpAddr::V6(from), IpAddr::V6(to)) => Some(Hosts::V6(Between { from, to })),
            _ => None,
        });
        let none = || refusal(Errno::ADDRNOTAVAIL, format!("this host has no address of the kind of {to}"));
        hosts.ok_or_else(none)
    }

    /// Whether a datagram with such headers is for this host.
    pub(super) fn is_for_us(&self, stations: &Between<[u8; 6]>, hosts: &Hosts) -> bool {
        let to: IpAddr = match hosts {
            Hosts::V4(hosts) => hosts.to.into(),
            Hosts::V6(hosts) => hosts.to.into(),
        };
        stations.to == self.station && self.hosts.contains(&to)
    }
}

fn unreachable(error: Unreachable) -> ServerError {
    refusal(error.errno(), error.to_string())
}
