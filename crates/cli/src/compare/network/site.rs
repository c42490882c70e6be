//! The two ends of the link, before anybody sends.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};

use genie::net::driver::interfaces::{Interface, interface};
use genie::net::namespaces::{End, Namespace, Pair};
use genie::net::packet::{Between, Header, Hosts};

use super::super::options::Wanted;
use crate::failure::Failure;

/// How long the headers are that an MTU counts.
const HEADERS: usize = 28;
/// The MTU of a pair that is made, unless datagrams are longer.
const MTU: usize = 1500;

/// An interface, and who its end is.
#[derive(Debug)]
pub(super) struct Site {
    pub(super) namespace: Namespace,
    pub(super) interface: Interface,
    pub(super) host: Ipv4Addr,
    /// A port that nobody had.
    pub(super) port: u16,
}

/// Both.
#[derive(Debug)]
pub(super) struct Sites(pub(super) [Site; 2]);

impl Sites {
    /// Finds them, or makes them, for datagrams of up to `longest` bytes.
    pub(super) fn open(wanted: &Wanted, longest: usize) -> Result<Self, Failure> {
        let ends = match wanted {
            Wanted::Veth => {
                let pair = Pair::new(MTU.max(longest + HEADERS) as u32).map_err(Failure::could_not)?;
                pair.ends.map(|End { namespace, interface, .. }| (namespace, interface))
            }
            Wanted::Between { near, namespace, far } => {
                let found = |namespace: genie_sys::Result<Namespace>, name: &str| {
                    let namespace = namespace.map_err(Failure::could_not)?;
                    let found = namespace.enter(|| interface(name)).map_err(Failure::could_not)?;
                    Ok::<_, Failure>((namespace, found))
                };
                [found(Namespace::current(), near)?, found(Namespace::named(namespace), far)?]
            }
        };
        let [near, far] = ends.map(|(namespace, interface)| Site::of(namespace, interface, longest));
        Ok(Self([near?, far?]))
    }
}

impl Site {
    fn of(namespace: Namespace, interface: Interface, longest: usize) -> Result<Self, Failure> {
        let Interface { name, mtu, is_up, .. } = &interface;
        let unfit = |why: String| Failure::could_not(format!("the interface {name} {why}"));
        if !is_up {
            return Err(unfit("is down, or has no link".to_owned()));
        }
        if (*mtu as usize) < longest + HEADERS {
            return Err(unfit(format!(
                "has an MTU of {mtu}, and datagrams of {longest} bytes need one of {}",
                longest + HEADERS
            )));
        }
        let host = interface.hosts.iter().find_map(|host| match host {
            IpAddr::V4(host) => Some(*host),
            IpAddr::V6(_) => None,
        });
        let host = host.ok_or_else(|| unfit("has no IPv4 address".to_owned()))?;
        let free = namespace.enter(|| UdpSocket::bind((host, 0))).and_then(|socket| socket.local_addr());
        let port = free.map_err(|error| unfit(format!("has no port: {error}")))?.port();
        Ok(Self { namespace, interface, host, port })
    }

    /// The headers of datagrams that go from here to the other end, which have no checksum.
    pub(super) fn header(&self, to: &Self, len: usize) -> Header {
        Header {
            stations: Between { from: self.interface.station, to: to.interface.station },
            hosts: Hosts::V4(Between { from: self.host, to: to.host }),
            ports: Between { from: self.port, to: to.port },
            len: len as u16,
            checksum: 0,
        }
    }
}

impl fmt::Display for Sites {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [near, far] = self.0.each_ref().map(|site| &site.interface);
        let kind = near.kind.as_deref().unwrap_or("device");
        write!(f, "{} and {} ({kind}), MTU {}", near.name, far.name, near.mtu.min(far.mtu))
    }
}
