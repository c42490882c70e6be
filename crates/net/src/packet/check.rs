//! What fuzzers and random tests check of received frames: that parsing, building, summing and the program for UDP agree.

use etherparse::UdpHeader;

use super::{HEADERS_MOST, Header, Hosts, NoDatagram};
use crate::Frame;
use crate::adapter::{Port, Program};

/// Parses a frame, and says what came out.
///
/// # Panics
/// When the program for UDP finds something else, or when what was found cannot be built again, or has another checksum than etherparse
/// computes over the datagram as a whole.
pub fn check(frame: &[u8]) -> Result<(), NoDatagram> {
    let parsed = Header::parse(&frame[..frame.len().min(HEADERS_MOST)], frame.len());
    let found = Program::udp().run(&Frame::new(frame.into()));
    let (header, data) = match parsed {
        Ok(parsed) => parsed,
        // A program looks at no checksums.
        Err(why @ (NoDatagram::HeaderChecksum | NoDatagram::NoChecksum)) => {
            assert!(found.is_some());
            return Err(why);
        }
        Err(why) => {
            assert_eq!(found, None);
            return Err(why);
        }
    };
    let found = found.expect("what was parsed");
    assert_eq!(found.port, Port(header.ports.to.into()));
    assert_eq!(found.header..frame.len() - found.trailer, data);
    let built = header.build().expect("headers that have arrived");
    let again = Header::parse(&built, built.len() + data.len());
    assert_eq!(again, Ok((header, built.len()..built.len() + data.len())));
    let whole = whole_sum(&header, &frame[data.clone()]);
    assert_eq!(header.udp_sum(sum(&frame[data.clone()])), whole);
    assert_eq!(header.is_intact(sum(&frame[data])), [0, whole].contains(&header.checksum));
    Ok(())
}

/// The ones' complement sum of words with their high byte first.
pub(super) fn sum(bytes: &[u8]) -> u16 {
    let word = |pair: &[u8]| u64::from(pair[0]) << 8 | u64::from(pair.get(1).copied().unwrap_or(0));
    let mut sum: u64 = bytes.chunks(2).map(word).sum();
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    sum as u16
}

/// The checksum of a datagram as etherparse computes it.
fn whole_sum(header: &Header, data: &[u8]) -> u16 {
    let (source_port, destination_port) = (header.ports.from, header.ports.to);
    let length = header.len + UdpHeader::LEN as u16;
    let udp = UdpHeader { source_port, destination_port, length, checksum: 0 };
    let sum = match header.hosts {
        Hosts::V4(hosts) => udp.calc_checksum_ipv4_raw(hosts.from.octets(), hosts.to.octets(), data),
        Hosts::V6(hosts) => udp.calc_checksum_ipv6_raw(hosts.from.octets(), hosts.to.octets(), data),
    };
    sum.expect("a length that fits")
}
