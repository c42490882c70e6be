//! Headers as bytes: TCP over IPv4 and IPv6.
//!
//! Why: a segment's data stays where it is. So headers are made and read apart from it, and a checksum is made of the data's sum, which the
//! copy or the adapter has computed, without the data being read again.
//! How: headers are etherparse's.
//! Sums: a ones' complement sum (RFC 1071) is here the number whose bytes, high one first, would stand in the packet, as in `genie-net`.
//! Trust: packets are anybody's. Nothing is taken from a header before the lengths in all of them were found to fit into the packet.
//! Limits: IPv4 headers with options are read (the options are ignored: MUST-50), never made. Fragments and IPv6 extension headers are refused.
//! Source: RFC 9293 §3.1, RFC 791, RFC 8200.

use std::net::IpAddr;
use std::ops::Range;

use etherparse::checksum::Sum16BitWords;
use etherparse::{
    IpDscp, IpNumber, Ipv4Header, Ipv4HeaderSlice, Ipv6Header, Ipv6HeaderSlice, TcpHeader, TcpHeaderSlice,
};
use smallvec::SmallVec;

use crate::options::Options;
use crate::segment::{Flags, Header, Path};
use crate::sequence::Seq;

/// How many bytes the headers have at most that are made here.
pub const HEADERS_MOST: usize = Ipv6Header::LEN + TcpHeader::MAX_LEN;

/// Where TCP's header has its checksum.
const CHECKSUM: Range<usize> = 16..18;

/// What an IP header says besides addresses and lengths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delivery {
    /// How many routers the packet may pass (MUST-49).
    pub hop_limit: u8,
    /// The Differentiated Services field: six bits (MUST-48).
    pub dscp: u8,
}

/// The sum of bytes that stand one after the other, for the checksum.
pub fn sum(bytes: &[u8]) -> u16 {
    !Sum16BitWords::new().add_slice(bytes).ones_complement().to_be()
}

/// Makes the bytes that precede a segment's data in a packet: the headers of IP and TCP, checksums included (MUST-2). `data` is how many
/// bytes of data there are, and `data_sum` their sum.
///
/// # Panics
/// When the two ends of the path are of different families, or the packet is longer than 65535 bytes.
pub fn write(
    path: &Path,
    header: &Header,
    delivery: Delivery,
    data: usize,
    data_sum: u16,
) -> SmallVec<[u8; HEADERS_MOST]> {
    let options = header.options.write();
    let tcp = TcpHeader {
        source_port: path.local.port(),
        destination_port: path.remote.port(),
        sequence_number: header.seq.0,
        acknowledgment_number: header.ack.0,
        syn: header.flags.syn,
        ack: header.flags.ack,
        fin: header.flags.fin,
        rst: header.flags.rst,
        psh: header.flags.psh,
        window_size: header.window,
        options,
        ..TcpHeader::default()
    };
    let len = u16::try_from(tcp.header_len() + data).expect("a segment of at most 65535 bytes");
    let mut tcp = tcp.to_bytes();
    let sum = pseudo_header(path, len).add_slice(&tcp).add_2bytes(data_sum.to_be_bytes());
    tcp[CHECKSUM].copy_from_slice(&sum.ones_complement().to_be().to_be_bytes());
    let dscp = IpDscp::try_new(delivery.dscp & 63).expect("six bits");
    let mut bytes = SmallVec::new();
    match (path.local.ip(), path.remote.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let mut ip = Ipv4Header {
                dscp,
                total_len: len
                    .checked_add(Ipv4Header::MIN_LEN as u16)
                    .expect("a packet of at most 65535 bytes"),
                dont_fragment: true,
                time_to_live: delivery.hop_limit,
                protocol: IpNumber::TCP,
                source: from.octets(),
                destination: to.octets(),
                ..Ipv4Header::default()
            };
            ip.header_checksum = ip.calc_header_checksum();
            bytes.extend_from_slice(&ip.to_bytes());
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let mut ip = Ipv6Header {
                payload_length: len,
                next_header: IpNumber::TCP,
                hop_limit: delivery.hop_limit,
                source: from.octets(),
                destination: to.octets(),
                ..Ipv6Header::default()
            };
            ip.set_dscp(dscp);
            bytes.extend_from_slice(&ip.to_bytes());
        }
        _ => panic!("a path between addresses of different families"),
    }
    bytes.extend_from_slice(&tcp);
    bytes
}

fn pseudo_header(path: &Path, len: u16) -> Sum16BitWords {
    let sum = Sum16BitWords::new();
    let sum = [path.local.ip(), path.remote.ip()].into_iter().fold(sum, |sum, ip| match ip {
        IpAddr::V4(ip) => sum.add_slice(&ip.octets()),
        IpAddr::V6(ip) => sum.add_slice(&ip.octets()),
    });
    sum.add_2bytes(len.to_be_bytes()).add_2bytes([0, IpNumber::TCP.0])
}

/// What the headers of a packet say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Read {
    /// From where to where, seen from the receiver.
    pub path: Path,
    /// TCP's header.
    pub header: Header,
    /// Where in the packet the data is. What comes behind it fills a frame up.
    pub data: Range<usize>,
    /// The sum of TCP's header, and of what IP's adds to it.
    sum: u16,
}

impl Read {
    /// Whether data whose sum is `data` is what was sent, as far as the checksum tells (MUST-3).
    pub fn is_intact(&self, data: u16) -> bool {
        let sum = Sum16BitWords::new().add_2bytes(self.sum.to_be_bytes());
        sum.add_2bytes(data.to_be_bytes()).ones_complement() == 0
    }
}

/// Why a packet has no segment for this engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoSegment {
    /// It is no TCP.
    #[error("the packet is not TCP over IPv4 or IPv6")]
    NotTcp,
    /// It is a part of one.
    #[error("the packet is a fragment: reassemble it first")]
    Fragment,
    /// A header is cut off, or a length in it does not fit.
    #[error("a header of the packet is cut off, or says a length that does not fit")]
    Malformed,
    /// The checksum of the IPv4 header is wrong.
    #[error("the IPv4 header was damaged: its checksum is wrong")]
    HeaderChecksum,
    /// An option of TCP has a length that it cannot have (MUST-7).
    #[error("the TCP option at byte {0} of the options has a length that it cannot have")]
    Options(usize),
}

/// Reads the headers of a packet of `packet` bytes, which begins with `head`: the headers, or more. The segment's own checksum is not looked
/// at: see [`Read::is_intact`].
///
/// # Errors
/// Why there is no segment.
pub fn read(head: &[u8], packet: usize) -> Result<Read, NoSegment> {
    let ip = read_ip(head)?;
    let rest = head.get(ip.header..).ok_or(NoSegment::Malformed)?;
    let tcp = TcpHeaderSlice::from_slice(rest).map_err(|_| NoSegment::Malformed)?;
    let header_len = tcp.slice().len();
    let end = ip.header + usize::from(ip.payload);
    if usize::from(ip.payload) < header_len || end > packet {
        return Err(NoSegment::Malformed);
    }
    let path = Path {
        local: (ip.destination, tcp.destination_port()).into(),
        remote: (ip.source, tcp.source_port()).into(),
    };
    let header = Header {
        seq: Seq(tcp.sequence_number()),
        ack: if tcp.ack() { Seq(tcp.acknowledgment_number()) } else { Seq(0) },
        flags: Flags { syn: tcp.syn(), ack: tcp.ack(), fin: tcp.fin(), rst: tcp.rst(), psh: tcp.psh() },
        window: tcp.window_size(),
        options: Options::read(tcp.options()).map_err(NoSegment::Options)?,
    };
    let sum = !pseudo_header(&path, ip.payload).add_slice(tcp.slice()).ones_complement().to_be();
    Ok(Read { path, header, data: ip.header + header_len..end, sum })
}

struct Ip {
    source: IpAddr,
    destination: IpAddr,
    /// How long the header is.
    header: usize,
    /// How many bytes follow.
    payload: u16,
}

fn read_ip(bytes: &[u8]) -> Result<Ip, NoSegment> {
    match bytes.first().map(|first| first >> 4) {
        Some(4) => {
            let ip = Ipv4HeaderSlice::from_slice(bytes).map_err(|_| NoSegment::Malformed)?;
            if ip.protocol() != IpNumber::TCP {
                return Err(NoSegment::NotTcp);
            } else if ip.is_fragmenting_payload() {
                return Err(NoSegment::Fragment);
            } else if Sum16BitWords::new().add_slice(ip.slice()).ones_complement() != 0 {
                return Err(NoSegment::HeaderChecksum);
            }
            Ok(Ip {
                source: ip.source_addr().into(),
                destination: ip.destination_addr().into(),
                header: ip.slice().len(),
                payload: ip.payload_len().map_err(|_| NoSegment::Malformed)?,
            })
        }
        Some(6) => {
            let ip = Ipv6HeaderSlice::from_slice(bytes).map_err(|_| NoSegment::Malformed)?;
            match ip.next_header() {
                IpNumber::TCP => Ok(Ip {
                    source: ip.source_addr().into(),
                    destination: ip.destination_addr().into(),
                    header: Ipv6Header::LEN,
                    payload: ip.payload_length(),
                }),
                IpNumber::IPV6_FRAGMENTATION_HEADER => Err(NoSegment::Fragment),
                _ => Err(NoSegment::NotTcp),
            }
        }
        _ => Err(NoSegment::NotTcp),
    }
}

#[cfg(test)]
mod tests;
