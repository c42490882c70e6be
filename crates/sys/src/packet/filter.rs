//! Filters of packet sockets: classic BPF, by which the kernel chooses frames.
#![allow(unsafe_code, reason = "hands a program to the kernel, which verifies it")]

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::os::fd::OwnedFd;

use crate::Errno;

/// Where things stand in a frame without a tag.
const ETHER_TYPE: u32 = 12;
const IP: u32 = 14;
const UDP: u32 = 17;
/// All of a frame.
const WHOLE: u32 = u32::MAX;

/// A program has at most 4,096 steps.
const PORTS_MOST: usize = 1024;

const LOAD_BYTE: u32 = libc::BPF_LD | libc::BPF_B | libc::BPF_ABS;
const LOAD_HALF: u32 = libc::BPF_LD | libc::BPF_H | libc::BPF_ABS;
const LOAD_WORD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
const LOAD_HALF_BEHIND: u32 = libc::BPF_LD | libc::BPF_H | libc::BPF_IND;
const LOAD_IP_LENGTH: u32 = libc::BPF_LDX | libc::BPF_B | libc::BPF_MSH;
const RETURN: u32 = libc::BPF_RET;
const JUMP: u32 = libc::BPF_JMP;
const IF_EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ;
const IF_ANY_BIT: u32 = libc::BPF_JMP | libc::BPF_JSET;
const IF_GREATER: u32 = libc::BPF_JMP | libc::BPF_JGT;
const IF_AT_LEAST: u32 = libc::BPF_JMP | libc::BPF_JGE;

/// Which frames a socket gets.
#[derive(Debug, Clone)]
pub struct Filter(Vec<libc::sock_filter>);

type Program = Vec<libc::sock_filter>;

impl Filter {
    /// Whole UDP datagrams for one of `hosts`, at one of `ports`. A datagram in fragments, or with extension headers of IPv6, or with the tag
    /// of a virtual network, is none. If there are too many ports for a filter, it lets those through that lie between them, too.
    pub fn udp(hosts: &[IpAddr], ports: &BTreeSet<u16>) -> Self {
        let ports = match (ports.first(), ports.last()) {
            (Some(first), Some(last)) if ports.len() > PORTS_MOST => any(vec![range(*first, *last)]),
            _ => any(ports.iter().map(|port| range(*port, *port)).collect()),
        };
        let (mut to_v4, mut to_v6) = (Vec::new(), Vec::new());
        for host in hosts {
            match host {
                IpAddr::V4(host) => to_v4.push(vec![step(IF_EQUAL, u32::from(*host), (0, 1))]),
                IpAddr::V6(host) => to_v6.push(words(host.octets())),
            }
        }
        let v6 = [
            has(LOAD_HALF, ETHER_TYPE, libc::ETH_P_IPV6 as u32),
            has(LOAD_BYTE, IP + 6, UDP),
            any(to_v6),
            vec![plain(LOAD_HALF, IP + 40 + 2)],
        ]
        .concat();
        let v4 = [
            has(LOAD_BYTE, IP + 9, UDP),
            // More is to follow, or something precedes.
            vec![plain(LOAD_HALF, IP + 6), step(IF_ANY_BIT, 0x3fff, (0, 1)), plain(RETURN, 0)],
            vec![plain(LOAD_WORD, IP + 16)],
            any(to_v4),
            vec![plain(LOAD_IP_LENGTH, IP), plain(LOAD_HALF_BEHIND, IP + 2)],
            vec![plain(JUMP, v6.len() as u32)],
        ]
        .concat();
        let has_no_tag = has(LOAD_WORD, (libc::SKF_AD_OFF + libc::SKF_AD_VLAN_TAG_PRESENT) as u32, 0);
        let kind = vec![
            plain(LOAD_HALF, ETHER_TYPE),
            step(IF_EQUAL, libc::ETH_P_IP as u32, (1, 0)),
            plain(JUMP, v4.len() as u32),
        ];
        Self([has_no_tag, kind, v4, v6, ports, vec![plain(RETURN, WHOLE)]].concat())
    }

    /// No frame at all.
    pub(super) fn none() -> Self {
        Self(vec![plain(RETURN, 0)])
    }

    /// Has a socket get these alone.
    pub(super) fn attach(&self, socket: &OwnedFd) -> Result<(), Errno> {
        let len = u16::try_from(self.0.len()).map_err(|_| Errno::INVAL)?;
        let program = libc::sock_fprog { len, filter: self.0.as_ptr().cast_mut() };
        super::set(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
    }
}

/// Goes on where what is loaded is `value`.
fn has(load: u32, at: u32, value: u32) -> Program {
    vec![plain(load, at), step(IF_EQUAL, value, (1, 0)), plain(RETURN, 0)]
}

/// Goes on where one of these does: each jumps one beyond its end where it does not.
fn any(alternatives: Vec<Program>) -> Program {
    let whole: usize = alternatives.iter().map(|alternative| alternative.len() + 1).sum();
    let mut program = Program::new();
    for alternative in alternatives {
        program.extend(alternative);
        program.push(plain(JUMP, (whole - program.len()) as u32));
    }
    program.push(plain(RETURN, 0));
    program
}

/// Whether what is loaded is one of these ports.
fn range(first: u16, last: u16) -> Program {
    vec![step(IF_AT_LEAST, first.into(), (0, 2)), step(IF_GREATER, last.into(), (1, 0))]
}

/// Whether the words of a packet's address are these.
fn words(address: [u8; 16]) -> Program {
    let (words, _) = address.as_chunks::<4>();
    let word = |(index, word): (usize, &[u8; 4])| {
        let place = 4 * index as u32;
        let beyond = 2 * (words.len() - 1 - index) as u8 + 1;
        [plain(LOAD_WORD, IP + 24 + place), step(IF_EQUAL, u32::from_be_bytes(*word), (0, beyond))]
    };
    words.iter().enumerate().flat_map(word).collect()
}

fn plain(code: u32, value: u32) -> libc::sock_filter {
    step(code, value, (0, 0))
}

fn step(code: u32, k: u32, (jt, jf): (u8, u8)) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt, jf, k }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};
    use std::os::unix::net::UnixDatagram;

    use super::*;

    const V4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
    const V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 1, 2, 0, 0, 3);

    /// A datagram to a port of a host, over IPv4 behind so many words of options.
    fn datagram(host: IpAddr, port: u16, options: u8) -> Vec<u8> {
        let udp = [0, 9, (port >> 8) as u8, port as u8, 0, 9, 0, 0, b'x'];
        let link = |kind: [u8; 2]| [&[2; 12][..], &kind].concat();
        match host {
            IpAddr::V4(host) => {
                let ip = [0x45 + options, 0, 0, 29 + options * 4, 0, 1, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 2];
                [&link([8, 0])[..], &ip, &host.octets(), &vec![1; usize::from(options) * 4], &udp].concat()
            }
            IpAddr::V6(host) => {
                let ip = [0x60, 0, 0, 0, 0, 9, 17, 64];
                [&link([0x86, 0xdd])[..], &ip, &[3; 16], &host.octets(), &udp].concat()
            }
        }
    }

    /// Any socket applies such a filter to the bytes that it gets, and nobody needs a right for that.
    fn passes(filter: &Filter) -> impl Fn(&[u8]) -> bool + use<> {
        let (from, to) = UnixDatagram::pair().expect("two sockets");
        to.set_nonblocking(true).expect("a flag");
        let to = OwnedFd::from(to);
        filter.attach(&to).expect("a filter that the kernel takes");
        let to = UnixDatagram::from(to);
        move |frame| {
            from.send(frame).expect("it is sent, or tossed");
            to.recv(&mut [0; 200]).is_ok_and(|len| len == frame.len())
        }
    }

    #[test]
    fn datagrams_to_these_hosts_and_ports_pass_and_nothing_else() {
        let hosts = [IpAddr::from([10, 9, 9, 9]), V4.into(), Ipv6Addr::LOCALHOST.into(), V6.into()];
        let passes = passes(&Filter::udp(&hosts, &BTreeSet::from([7, 300, 65_535])));
        for host in hosts {
            for port in [7, 300, 65_535] {
                assert!(passes(&datagram(host, port, 0)), "{host}, port {port}");
                assert!(passes(&datagram(host, port, 10)), "{host}, port {port}, options");
            }
            for port in [0, 6, 8, 299, 301, 65_534] {
                assert!(!passes(&datagram(host, port, 0)), "{host}, port {port}");
            }
            let whole = datagram(host, 7, 0);
            let is_v4 = host.is_ipv4();
            // Where the port stands, and whatever else is looked at, there are bytes.
            let needed = whole.len() - 5;
            (1..whole.len())
                .for_each(|len| assert_eq!(passes(&whole[..len]), len >= needed, "{host}, {len} bytes"));
            let changed = |at: usize, byte: u8| {
                let mut frame = whole.clone();
                frame[at] = byte;
                passes(&frame)
            };
            assert!(!changed(13, 1) && !changed(12, 0x81), "other types");
            assert!(!changed(if is_v4 { 23 } else { 20 }, 6), "TCP");
            let address = if is_v4 { 30..34 } else { 38..54 };
            address.for_each(|at| assert!(!changed(at, 0xaa), "another host than {host}"));
            let fragments = [(20, 0x20), (20, 0x1f), (21, 1)];
            fragments.into_iter().filter(|_| is_v4).for_each(|(at, byte)| assert!(!changed(at, byte)));
        }
        assert!(!passes(&datagram([10, 0, 0, 2].into(), 7, 0)));
    }

    #[test]
    fn without_hosts_or_ports_nothing_passes_and_too_many_ports_are_a_range() {
        let frame = datagram(V4.into(), 2000, 0);
        let ports = |ports: &[u16]| ports.iter().copied().collect::<BTreeSet<_>>();
        assert!(!passes(&Filter::udp(&[V4.into()], &ports(&[])))(&frame));
        assert!(!passes(&Filter::udp(&[V6.into()], &ports(&[2000])))(&frame));
        assert!(!passes(&Filter::none())(&frame));
        for (count, lies_between) in [(PORTS_MOST as u16, false), (PORTS_MOST as u16 + 1, true)] {
            let odd: BTreeSet<_> = (0..count).map(|number| 1001 + 2 * number).collect();
            let passes = passes(&Filter::udp(&[V4.into(), V6.into()], &odd));
            let last = 1001 + 2 * (count - 1);
            assert!([1001, last].iter().all(|port| passes(&datagram(V6.into(), *port, 0))), "{count} ports");
            assert!(
                [1000, last + 1].iter().all(|port| !passes(&datagram(V6.into(), *port, 0))),
                "{count} ports"
            );
            assert_eq!(passes(&frame), lies_between, "{count} ports");
        }
    }
}
