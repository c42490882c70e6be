//! Networks for tests: two namespaces, with a link between them, of which nothing is ever left.
//!
//! Why: drivers are tried on interfaces that nobody else uses, with a kernel's own sockets at the other end; a test that is killed must
//! leave no interface.
//! How: the namespaces have no names ([`Namespace`]), so the kernel removes them, and the link, with the last descriptor.
//! Limits: one link of two ends (veth). An ordinary user needs a user namespace (`unshare --map-root-user COMMAND`), where packet sockets
//! work, and XDP does not.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd};
use std::thread;

use genie_sys::namespace::offload_checksums;
use genie_sys::{Errno, Error, Result};
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage};
use netlink_packet_route::link::{
    AfSpecInet6, AfSpecUnspec, In6AddrGenMode, InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags,
    LinkInfo, LinkMessage,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use crate::driver::interfaces::{Interface, interface};
use crate::netlink::Netlink;

pub use genie_sys::namespace::Namespace;

/// Why there is no such network here, for a test to say that it was skipped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no network of its own: {0}")]
pub struct Unavailable(#[from] pub Error);

/// Two namespaces with a link between them. Dropping the last handle of one removes the link.
#[derive(Debug)]
pub struct Pair {
    /// Its ends.
    pub ends: [End; 2],
}

/// One end of a link: an interface that is up, alone with a loopback interface in a namespace.
#[derive(Debug, Clone)]
pub struct End {
    /// Where the interface is.
    pub namespace: Namespace,
    /// What the kernel says of it.
    pub interface: Interface,
    /// The address that it has over IPv4, 10.71.0.1 or 10.71.0.2, in a network of 24 bits.
    pub v4: Ipv4Addr,
    /// The address that it has over IPv6, fd71::1 or fd71::2, in a network of 64 bits. It may be used at once.
    pub v6: Ipv6Addr,
}

impl Pair {
    /// Makes them, with a link of this MTU, of 68 to 65,535 bytes; IPv6 needs 1,280. The interfaces are `genie0` and `genie1`,
    /// with the stations 02:00:71:00:00:01 and 02:00:71:00:00:02.
    ///
    /// # Errors
    /// A right is missing, or the kernel has no veth, or no IPv6.
    pub fn new(mtu: u32) -> std::result::Result<Self, Unavailable> {
        let namespaces = [Namespace::new()?, Namespace::new()?];
        let ends = [0, 1].map(|at| (NAMES[at], Some([2, 0, 0x71, 0, 0, at as u8 + 1])));
        namespaces[0].enter(|| link(ends, &namespaces[1], mtu))?;
        for (at, namespace) in namespaces.iter().enumerate() {
            let local = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, at as u16 + 1);
            let hosts = [(v4(at).into(), 24), (v6(at).into(), 64), (local.into(), 64)];
            namespace.enter(|| set_up(NAMES[at], &hosts))?;
        }
        let end = |at: usize| -> Result<End> {
            let namespace = namespaces[at].clone();
            let interface = namespace.enter(|| {
                wait_until_it_sends(NAMES[at])?;
                wait_until_it_hears(v6(at))?;
                interface(NAMES[at])
            })?;
            Ok(End { namespace, interface, v4: v4(at), v6: v6(at) })
        };
        Ok(Self { ends: [end(0)?, end(1)?] })
    }
}

impl End {
    /// Says whether the kernel may leave the checksums of what its own senders send here to the link, which has them nowhere: frames
    /// arrive with partial checksums. It may until told otherwise.
    ///
    /// # Errors
    /// The link is gone.
    pub fn offload_checksums(&self, is_offloaded: bool) -> Result<()> {
        self.namespace.enter(|| offload_checksums(&self.interface.name, is_offloaded))
    }
}

const NAMES: [&str; 2] = ["genie0", "genie1"];

fn v4(at: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 71, 0, at as u8 + 1)
}

fn v6(at: usize) -> Ipv6Addr {
    Ipv6Addr::new(0xfd71, 0, 0, 0, 0, 0, 0, at as u16 + 1)
}

/// Makes a link from this namespace to the other one. Its ends have these names and stations; where none is named, the kernel makes one up.
pub(crate) fn link(ends: [(&str, Option<[u8; 6]>); 2], other: &Namespace, mtu: u32) -> Result<()> {
    let [mut near, mut far] = ends.map(|(name, station)| {
        let mut message = LinkMessage::default();
        message.attributes = vec![LinkAttribute::IfName(name.to_owned()), LinkAttribute::Mtu(mtu)];
        message.attributes.extend(station.map(|station| LinkAttribute::Address(station.to_vec())));
        message
    });
    far.attributes.push(LinkAttribute::NetNsFd(other.as_fd().as_raw_fd()));
    let peer = LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(far)));
    near.attributes.push(LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Veth), peer]));
    let flags = NLM_F_CREATE | NLM_F_EXCL;
    let what = format!("a link (veth) of MTU {mtu}");
    match Netlink::open(0)?.ask(RouteNetlinkMessage::NewLink(near), flags, &what) {
        Err(error) if error.errno == Errno::OPNOTSUPP => {
            Err(error.with_remedy("this kernel has no veth: `modprobe veth`"))
        }
        Err(error) if error.errno == Errno::PERM => Err(error.with_remedy("CAP_NET_ADMIN is missing")),
        made => made.map(drop),
    }
}

/// Gives an end in this namespace its addresses, with the lengths of their networks, and brings all up.
pub(crate) fn set_up(name: &str, hosts: &[(IpAddr, u8)]) -> Result<()> {
    let mut netlink = Netlink::open(0)?;
    let index = interface(name)?.index;
    // The kernel would make a link-local address by itself, and try for a second whether somebody else has it.
    let none = AfSpecUnspec::Inet6(vec![AfSpecInet6::AddrGenMode(In6AddrGenMode::None)]);
    set_link(&mut netlink, index, LinkFlags::empty(), vec![LinkAttribute::AfSpecUnspec(vec![none])])?;
    for (host, prefix_len) in hosts {
        add_address(&mut netlink, index, *host, *prefix_len)?;
    }
    for index in [interface("lo")?.index, index] {
        set_link(&mut netlink, index, LinkFlags::Up, Vec::new())?;
    }
    Ok(())
}

/// Waits until frames that are sent are not dropped. The kernel notices in a thread of its own that an interface has a link, and drops
/// them until then (the queueing discipline `noop`).
pub(crate) fn wait_until_it_sends(name: &str) -> Result<()> {
    let mut netlink = Netlink::open(0)?;
    let mut message = LinkMessage::default();
    message.attributes = vec![LinkAttribute::IfName(name.to_owned())];
    let has_none = |answer: &RouteNetlinkMessage| match answer {
        RouteNetlinkMessage::NewLink(link) => link.attributes.contains(&LinkAttribute::Qdisc("noop".into())),
        _ => false,
    };
    while netlink.ask(RouteNetlinkMessage::GetLink(message.clone()), 0, name)?.iter().any(has_none) {
        thread::yield_now();
    }
    Ok(())
}

/// Waits until a neighbour that asks for this address gets an answer. The kernel has the address at once, and joins the group to which
/// such questions go in a thread of its own.
fn wait_until_it_hears(host: Ipv6Addr) -> Result<()> {
    let [.., a, b, c] = host.octets();
    let group = format!("ff0200000000000000000001ff{a:02x}{b:02x}{c:02x}");
    let path = "/proc/thread-self/net/igmp6";
    let failed = |error| Error::new("read", path, Errno::from_io_error(&error).unwrap_or(Errno::IO));
    while !fs::read_to_string(path).map_err(failed)?.contains(&group) {
        thread::yield_now();
    }
    Ok(())
}

fn set_link(
    netlink: &mut Netlink,
    index: u32,
    flags: LinkFlags,
    attributes: Vec<LinkAttribute>,
) -> Result<()> {
    let mut message = LinkMessage::default();
    message.header.index = index;
    (message.header.flags, message.header.change_mask) = (flags, flags);
    message.attributes = attributes;
    netlink.ask(RouteNetlinkMessage::SetLink(message), 0, &format!("interface {index}")).map(drop)
}

fn add_address(netlink: &mut Netlink, index: u32, host: IpAddr, prefix_len: u8) -> Result<()> {
    let mut message = AddressMessage::default();
    message.header.family = if host.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    message.header.prefix_len = prefix_len;
    message.header.index = index;
    message.attributes = vec![
        AddressAttribute::Address(host),
        AddressAttribute::Local(host),
        AddressAttribute::Flags(AddressFlags::Nodad),
    ];
    let what = format!("address {host} of interface {index}");
    let flags = NLM_F_CREATE | NLM_F_EXCL;
    netlink.ask(RouteNetlinkMessage::NewAddress(message), flags, &what).map(drop)
}
