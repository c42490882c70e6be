//! What the kernel says of its interfaces.

use std::net::IpAddr;

use genie_sys::{Error, Result};
use netlink_packet_core::NLM_F_DUMP;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkInfo, LinkMessage};

use crate::netlink::Netlink;

/// An interface of the kernel's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// Its number in its network namespace.
    pub index: u32,
    /// Its name, which may change.
    pub name: String,
    /// Its address on the Ethernet; zeros where it has none, as the loopback interface.
    pub station: [u8; 6],
    /// The longest packet, its IP header included.
    pub mtu: u32,
    /// What a virtual one is: "veth", "bridge"; nothing for a device.
    pub kind: Option<String>,
    /// Whether it is up, and has a link.
    pub is_up: bool,
    /// The hosts that the kernel is there.
    pub hosts: Vec<IpAddr>,
}

/// All interfaces in this thread's network namespace. One of which the kernel says what this crate cannot read is left out.
///
/// # Errors
/// The limit on descriptors; memory.
pub fn interfaces() -> Result<Vec<Interface>> {
    let mut netlink = Netlink::open(0)?;
    let links = RouteNetlinkMessage::GetLink(LinkMessage::default());
    let links = netlink.ask(links, NLM_F_DUMP, "all interfaces")?;
    let addresses = RouteNetlinkMessage::GetAddress(AddressMessage::default());
    let addresses = netlink.ask(addresses, NLM_F_DUMP, "the addresses of all interfaces")?;
    let mut interfaces: Vec<_> = links.iter().filter_map(Interface::from_message).collect();
    for message in &addresses {
        let RouteNetlinkMessage::NewAddress(message) = message else { continue };
        let interface = interfaces.iter_mut().find(|interface| interface.index == message.header.index);
        let host = message.attributes.iter().find_map(|attribute| match attribute {
            // On a point-to-point link, `Address` is the other end's.
            AddressAttribute::Local(host) => Some(*host),
            _ => None,
        });
        let host = host.or_else(|| {
            message.attributes.iter().find_map(|attribute| match attribute {
                AddressAttribute::Address(host) => Some(*host),
                _ => None,
            })
        });
        if let (Some(interface), Some(host)) = (interface, host) {
            interface.hosts.push(host);
        }
    }
    Ok(interfaces)
}

/// The interface of this name in this thread's network namespace.
///
/// # Errors
/// ENODEV: there is none. As [`interfaces`].
pub fn interface(name: &str) -> Result<Interface> {
    let found = interfaces()?.into_iter().find(|interface| interface.name == name);
    found.ok_or_else(|| {
        Error::new("find", format!("interface {name}"), genie_sys::Errno::NODEV)
            .with_remedy("`ip link` lists those of this network namespace")
    })
}

impl Interface {
    pub(super) fn from_message(message: &RouteNetlinkMessage) -> Option<Self> {
        let RouteNetlinkMessage::NewLink(message) = message else { return None };
        let mut interface = Self {
            index: message.header.index,
            name: String::new(),
            station: [0; 6],
            mtu: 0,
            kind: None,
            is_up: message.header.flags.contains(LinkFlags::Up | LinkFlags::LowerUp),
            hosts: Vec::new(),
        };
        for attribute in &message.attributes {
            match attribute {
                LinkAttribute::IfName(name) => interface.name.clone_from(name),
                LinkAttribute::Address(bytes) => interface.station = (**bytes).try_into().unwrap_or_default(),
                LinkAttribute::Mtu(mtu) => interface.mtu = *mtu,
                LinkAttribute::LinkInfo(infos) => {
                    interface.kind = infos.iter().find_map(|info| match info {
                        LinkInfo::Kind(kind) => Some(kind.to_string()),
                        _ => None,
                    });
                }
                _ => {}
            }
        }
        Some(interface)
    }
}
