//! A flow's headers, which are written once.

use smallvec::SmallVec;

use crate::checksum::plus;
use crate::packet::{Between, Header, Hosts, NotBuilt};

/// Where the fields are that change from datagram to datagram, from the IP header's beginning on.
const V4_LENGTH: usize = 2;
const V4_CHECKSUM: usize = 10;
const V6_LENGTH: usize = 4;
/// The same, from the UDP header's beginning on.
const UDP_LENGTH: usize = 4;
const UDP_CHECKSUM: usize = 6;
const UDP: usize = 8;
const ETHERNET: usize = 14;

/// Datagrams from one port to one other, with a checksum or without.
///
/// They have no number in the IP header, since they are never fragmented (RFC 6864).
#[derive(Debug, Clone)]
pub struct Flow {
    header: Header,
    has_checksum: bool,
    /// The headers of a datagram without data.
    headers: SmallVec<[u8; 62]>,
}

impl Flow {
    /// Datagrams between these stations, hosts and ports.
    ///
    /// # Errors
    /// Datagrams over IPv6 need a checksum.
    pub fn new(
        stations: Between<[u8; 6]>,
        hosts: Hosts,
        ports: Between<u16>,
        has_checksum: bool,
    ) -> Result<Self, NotBuilt> {
        let header = Header { stations, hosts, ports, len: 0, checksum: has_checksum.into() };
        Ok(Self { header, has_checksum, headers: header.build()? })
    }

    /// How many bytes of headers there are.
    pub fn headers_len(&self) -> usize {
        self.headers.len()
    }

    /// The same without the Ethernet's, which an interface's MTU does not count.
    pub(super) fn packet_len(&self) -> usize {
        self.headers_len() - ETHERNET
    }

    /// Whether the data's sum is needed.
    pub(super) fn has_checksum(&self) -> bool {
        self.has_checksum
    }

    /// The headers of a datagram with `len` bytes of data, whose sum is `sum`.
    pub(super) fn headers(&self, len: u16, sum: Option<u16>) -> SmallVec<[u8; 62]> {
        let mut headers = self.headers.clone();
        let mut put = |at: usize, value: u16| headers[at..at + 2].copy_from_slice(&value.to_be_bytes());
        match self.header.hosts {
            Hosts::V4(_) => {
                let at = ETHERNET + V4_CHECKSUM;
                let sum = !u16::from_be_bytes([self.headers[at], self.headers[at + 1]]);
                put(at, !plus(sum, len));
                put(ETHERNET + V4_LENGTH, len + self.packet_len() as u16);
            }
            Hosts::V6(_) => put(ETHERNET + V6_LENGTH, len + UDP as u16),
        }
        let udp = self.headers_len() - UDP;
        put(udp + UDP_LENGTH, len + UDP as u16);
        let sum = sum.map_or(0, |sum| Header { len, ..self.header }.udp_sum(sum));
        put(udp + UDP_CHECKSUM, sum);
        headers
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn headers_that_are_patched_are_those_that_are_built(
            len in 0..=65_507_u16, sum: u16, from: u32, to: u32, ports: (u16, u16), is_v6: bool, has_checksum: bool,
        ) {
            let host = |address: u32| Ipv6Addr::from(u128::from(address) << 64 | 1);
            let hosts = match is_v6 {
                true => Hosts::V6(Between { from: host(from), to: host(to) }),
                false => Hosts::V4(Between { from: Ipv4Addr::from(from), to: Ipv4Addr::from(to) }),
            };
            let stations = Between { from: [2; 6], to: [4; 6] };
            let ports = Between { from: ports.0, to: ports.1 };
            let flow = Flow::new(stations, hosts, ports, has_checksum);
            if is_v6 && !has_checksum {
                prop_assert_eq!(flow.err(), Some(NotBuilt::NoChecksum));
            } else {
                let header = Header { stations, hosts, ports, len, checksum: 0 };
                let checksum = if has_checksum { header.udp_sum(sum) } else { 0 };
                let built = Header { checksum, ..header }.build().unwrap();
                prop_assert_eq!(flow.unwrap().headers(len, has_checksum.then_some(sum)), built);
            }
        }
    }
}
