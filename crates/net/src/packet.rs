//! UDP datagrams over IPv4 and IPv6 on an Ethernet: their headers, as bytes and as what they say.
//!
//! Why: a datagram's data stays where it is, in clients' buffers or in an adapter's memory. So headers are built and parsed apart from it,
//! and a checksum is made of the data's sum, which the copy or the adapter has computed, without the data being read again.
//! How: headers are etherparse's, which parses each header by itself: of a long frame its first [`HEADERS_MOST`] bytes are enough.
//! (smoltcp's packets want the whole frame in one slice. The tests have it as a second opinion.)
//! Sums: a ones' complement sum (RFC 1071) is here the number whose bytes, high one first, would stand in the frame. A sum that was made of
//! words with their low byte first is that number with its bytes swapped.
//! Trust: frames are anybody's. Nothing is taken from a header before the lengths in all of them were found to fit into the frame.
//! Limits: IPv4 headers with options are read, never built. Fragments, IPv6 extension headers and VLAN tags are refused.
//! Source: RFC 768, RFC 791, RFC 8200; thesis chapter 9.

#[cfg(any(test, feature = "fuzzing"))]
pub mod check;
#[cfg(test)]
mod tests;

use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::Range;

use etherparse::checksum::Sum16BitWords;
use etherparse::{
    EtherType, Ethernet2Header, IpNumber, Ipv4Header, Ipv4HeaderSlice, Ipv6Header, Ipv6HeaderSlice, UdpHeader,
};
use smallvec::SmallVec;

/// How many bytes headers have at most: those of IPv4 with all options that there can be.
pub const HEADERS_MOST: usize = Ethernet2Header::LEN + Ipv4Header::MAX_LEN + UdpHeader::LEN;
/// How many stations may forward a datagram.
const HOPS: u8 = 64;

/// What a datagram's headers say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Header {
    /// The stations on this Ethernet.
    pub stations: Between<[u8; 6]>,
    /// The hosts.
    pub hosts: Hosts,
    /// The ports.
    pub ports: Between<u16>,
    /// How many bytes of data the datagram has.
    pub len: u16,
    /// The checksum as it stands in the header. Zero is none, which IPv6 does not allow.
    pub checksum: u16,
}

/// From where to where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the words say it")]
pub struct Between<T> {
    pub from: T,
    pub to: T,
}

/// The addresses of hosts, of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the words say it")]
pub enum Hosts {
    V4(Between<Ipv4Addr>),
    V6(Between<Ipv6Addr>),
}

/// Why headers cannot be built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotBuilt {
    /// The datagram is longer than IP allows.
    #[error("a datagram of {len} bytes is longer than the {most} that its IP version allows")]
    TooLong {
        /// How long its data is.
        len: u16,
        /// How long it may be.
        most: u16,
    },
    /// It has no checksum, over IPv6.
    #[error("a datagram over IPv6 needs a checksum")]
    NoChecksum,
}

/// Why a frame is taken for no datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum NoDatagram {
    /// It is of another protocol.
    #[error("the frame is no UDP datagram")]
    NotUdp,
    /// It is a part of one.
    #[error("the frame is a fragment of a datagram")]
    Fragment,
    /// A version is not what was announced, or a length is more than there is, or less than a header.
    #[error("the versions and lengths in the frame's headers make no sense")]
    Malformed,
    /// The checksum of its IPv4 header is wrong.
    #[error("the checksum of the frame's IP header is wrong")]
    HeaderChecksum,
    /// It has no checksum, over IPv6.
    #[error("the datagram came over IPv6 without a checksum")]
    NoChecksum,
}

impl Header {
    /// The bytes that precede the data in a frame: 42 with IPv4, 62 with IPv6.
    ///
    /// # Errors
    /// The datagram is too long, or lacks a checksum that it must have.
    pub fn build(&self) -> Result<SmallVec<[u8; 62]>, NotBuilt> {
        let most = match self.hosts {
            Hosts::V4(_) => u16::MAX - (Ipv4Header::MIN_LEN + UdpHeader::LEN) as u16,
            Hosts::V6(_) if self.checksum == 0 => return Err(NotBuilt::NoChecksum),
            Hosts::V6(_) => u16::MAX - UdpHeader::LEN as u16,
        };
        if self.len > most {
            return Err(NotBuilt::TooLong { len: self.len, most });
        }
        let length = self.len + UdpHeader::LEN as u16;
        let ethernet = |ether_type| {
            let Between { from: source, to: destination } = self.stations;
            Ethernet2Header { source, destination, ether_type }.to_bytes()
        };
        let mut bytes = SmallVec::new();
        match self.hosts {
            Hosts::V4(hosts) => {
                let mut ip = Ipv4Header {
                    total_len: length + Ipv4Header::MIN_LEN as u16,
                    dont_fragment: true,
                    time_to_live: HOPS,
                    protocol: IpNumber::UDP,
                    source: hosts.from.octets(),
                    destination: hosts.to.octets(),
                    ..Ipv4Header::default()
                };
                ip.header_checksum = ip.calc_header_checksum();
                bytes.extend_from_slice(&ethernet(EtherType::IPV4));
                bytes.extend_from_slice(&ip.to_bytes());
            }
            Hosts::V6(hosts) => {
                let ip = Ipv6Header {
                    payload_length: length,
                    next_header: IpNumber::UDP,
                    hop_limit: HOPS,
                    source: hosts.from.octets(),
                    destination: hosts.to.octets(),
                    ..Ipv6Header::default()
                };
                bytes.extend_from_slice(&ethernet(EtherType::IPV6));
                bytes.extend_from_slice(&ip.to_bytes());
            }
        }
        let Between { from: source_port, to: destination_port } = self.ports;
        let udp = UdpHeader { source_port, destination_port, length, checksum: self.checksum };
        bytes.extend_from_slice(&udp.to_bytes());
        Ok(bytes)
    }

    /// What the headers say of a frame of `frame` bytes that begins with `head`, and where in the frame the data is.
    ///
    /// `head` has the frame's first [`HEADERS_MOST`] bytes, or all that there are. What comes behind the data fills the frame up.
    /// The datagram's own checksum is not looked at: see [`Header::is_intact`].
    ///
    /// # Errors
    /// Why there is no datagram.
    pub fn parse(head: &[u8], frame: usize) -> Result<(Self, Range<usize>), NoDatagram> {
        let (ethernet, rest) = Ethernet2Header::from_slice(head).map_err(|_| NoDatagram::Malformed)?;
        let ip = Ip::parse(ethernet.ether_type, rest)?;
        let rest = rest.get(ip.header..).unwrap_or_default();
        let (udp, _) = UdpHeader::from_slice(rest).map_err(|_| NoDatagram::Malformed)?;
        let start = Ethernet2Header::LEN + ip.header;
        let len = udp.length.checked_sub(UdpHeader::LEN as u16).ok_or(NoDatagram::Malformed)?;
        if udp.length > ip.payload || start + usize::from(ip.payload) > frame {
            return Err(NoDatagram::Malformed);
        }
        match ip.hosts {
            Hosts::V4(_) if !ip.is_intact => return Err(NoDatagram::HeaderChecksum),
            Hosts::V6(_) if udp.checksum == 0 => return Err(NoDatagram::NoChecksum),
            _ => {}
        }
        let data = start + UdpHeader::LEN;
        let header = Self {
            stations: Between { from: ethernet.source, to: ethernet.destination },
            hosts: ip.hosts,
            ports: Between { from: udp.source_port, to: udp.destination_port },
            len,
            checksum: udp.checksum,
        };
        Ok((header, data..data + usize::from(len)))
    }

    /// The checksum that belongs into the header of data whose sum is `data`. It is never zero, which would mean that there is none.
    pub fn udp_sum(&self, data: u16) -> u16 {
        let sum = self.pseudo_header().add_2bytes(self.ports.from.to_be_bytes());
        let sum = sum.add_2bytes(self.ports.to.to_be_bytes()).add_4bytes(self.length().to_be_bytes());
        sum.add_2bytes(data.to_be_bytes()).to_ones_complement_with_no_zero().to_be()
    }

    /// What stands in the place of the checksum while a device is still to sum the rest: the sum of the pseudo-header, as it is.
    pub fn partial_sum(&self) -> u16 {
        !self.pseudo_header().ones_complement().to_be()
    }

    fn pseudo_header(&self) -> Sum16BitWords {
        let sum = Sum16BitWords::new();
        let mut sum = match self.hosts {
            Hosts::V4(hosts) => sum.add_slice(&hosts.from.octets()).add_slice(&hosts.to.octets()),
            Hosts::V6(hosts) => sum.add_slice(&hosts.from.octets()).add_slice(&hosts.to.octets()),
        };
        sum.add_4bytes(self.length().to_be_bytes()).add_2bytes([0, IpNumber::UDP.0])
    }

    fn length(&self) -> u32 {
        u32::from(self.len) + UdpHeader::LEN as u32
    }

    /// Whether data whose sum is `data` is what was sent, as far as the checksum tells: over IPv4 it may be absent.
    pub fn is_intact(&self, data: u16) -> bool {
        self.checksum == 0 || self.checksum == self.udp_sum(data)
    }
}

/// What an IP header says.
struct Ip {
    hosts: Hosts,
    /// How long the header is.
    header: usize,
    /// How many bytes follow.
    payload: u16,
    /// Whether the header's own checksum is right, where it has one.
    is_intact: bool,
}

impl Ip {
    fn parse(kind: EtherType, bytes: &[u8]) -> Result<Self, NoDatagram> {
        match kind {
            EtherType::IPV4 => {
                let ip = Ipv4HeaderSlice::from_slice(bytes).map_err(|_| NoDatagram::Malformed)?;
                let found = Self {
                    hosts: Hosts::V4(Between { from: ip.source_addr(), to: ip.destination_addr() }),
                    header: ip.slice().len(),
                    payload: ip.payload_len().map_err(|_| NoDatagram::Malformed)?,
                    is_intact: Sum16BitWords::new().add_slice(ip.slice()).ones_complement() == 0,
                };
                match ip.protocol() {
                    IpNumber::UDP if ip.is_fragmenting_payload() => Err(NoDatagram::Fragment),
                    IpNumber::UDP => Ok(found),
                    _ => Err(NoDatagram::NotUdp),
                }
            }
            EtherType::IPV6 => {
                let ip = Ipv6HeaderSlice::from_slice(bytes).map_err(|_| NoDatagram::Malformed)?;
                let found = Self {
                    hosts: Hosts::V6(Between { from: ip.source_addr(), to: ip.destination_addr() }),
                    header: Ipv6Header::LEN,
                    payload: ip.payload_length(),
                    is_intact: true,
                };
                match ip.next_header() {
                    IpNumber::UDP => Ok(found),
                    IpNumber::IPV6_FRAGMENTATION_HEADER => Err(NoDatagram::Fragment),
                    _ => Err(NoDatagram::NotUdp),
                }
            }
            _ => Err(NoDatagram::NotUdp),
        }
    }
}
