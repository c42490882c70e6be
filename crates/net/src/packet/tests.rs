use std::net::UdpSocket;
use std::time::Duration;

use genie_conformance::machine;
use proptest::prelude::*;
use rustix::net::{AddressFamily, SendFlags, SocketAddrAny, SocketType};
use smoltcp::wire::{
    EthernetFrame, EthernetProtocol, IpAddress, IpProtocol, Ipv4Packet, Ipv6Packet, UdpPacket,
};

use super::check::{check, sum};
use super::*;

fn hosts() -> impl Strategy<Value = Hosts> {
    prop_oneof![
        any::<[[u8; 4]; 2]>().prop_map(|[from, to]| Hosts::V4(Between { from: from.into(), to: to.into() })),
        any::<[[u8; 16]; 2]>().prop_map(|[from, to]| Hosts::V6(Between { from: from.into(), to: to.into() })),
    ]
}

fn between<T: Arbitrary>() -> impl Strategy<Value = Between<T>> {
    any::<(T, T)>().prop_map(|(from, to)| Between { from, to })
}

/// Data, and a header with its checksum.
fn datagram() -> impl Strategy<Value = (Header, Vec<u8>)> {
    let data = prop::collection::vec(any::<u8>(), 0..100);
    (between(), hosts(), between(), data).prop_map(|(stations, hosts, ports, data)| {
        let header = Header { stations, hosts, ports, len: data.len() as u16, checksum: 0 };
        (Header { checksum: header.udp_sum(sum(&data)), ..header }, data)
    })
}

/// A frame with a datagram: options are put into an IPv4 header.
fn frame(header: &Header, data: &[u8], options: usize, padding: &[u8]) -> Vec<u8> {
    let mut frame = header.build().expect("a header").to_vec();
    if matches!(header.hosts, Hosts::V4(_)) {
        // No operation, many times.
        frame.splice(34..34, vec![1; 4 * options]);
        frame[14] = 0x45 + options as u8;
        let len = (20 + 4 * options + 8 + data.len()) as u16;
        frame[16..18].copy_from_slice(&len.to_be_bytes());
        mend(&mut frame);
    }
    [&frame, data, padding].concat()
}

/// Makes the checksum of the IPv4 header right, if there is one.
fn mend(frame: &mut [u8]) {
    let header = 14..14 + 4 * usize::from(frame.get(14).copied().unwrap_or(0) & 0xf);
    if frame.get(12..14) == Some(&[8, 0]) && header.len() >= 20 && header.end <= frame.len() {
        frame[24..26].fill(0);
        let sum = !sum(&frame[header]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
    }
}

/// The ports, the data, and whether it is intact, as smoltcp has them.
fn as_smoltcp_sees_it(frame: &[u8]) -> Option<(Between<u16>, &[u8], bool)> {
    let ethernet = EthernetFrame::new_checked(frame).ok()?;
    let (udp, from, to) = match ethernet.ethertype() {
        EthernetProtocol::Ipv4 => {
            let ip = Ipv4Packet::new_checked(ethernet.payload()).ok()?;
            let is_whole = ip.version() == 4 && !ip.more_frags() && ip.frag_offset() == 0;
            if !is_whole || ip.next_header() != IpProtocol::Udp || !ip.verify_checksum() {
                return None;
            }
            (ip.payload(), IpAddress::from(ip.src_addr()), IpAddress::from(ip.dst_addr()))
        }
        EthernetProtocol::Ipv6 => {
            let ip = Ipv6Packet::new_checked(ethernet.payload()).ok()?;
            if ip.version() != 6 || ip.next_header() != IpProtocol::Udp {
                return None;
            }
            (ip.payload(), ip.src_addr().into(), ip.dst_addr().into())
        }
        _ => return None,
    };
    let udp = UdpPacket::new_checked(udp).ok()?;
    if udp.checksum() == 0 && ethernet.ethertype() == EthernetProtocol::Ipv6 {
        return None;
    }
    let ports = Between { from: udp.src_port(), to: udp.dst_port() };
    Some((ports, udp.payload(), udp.verify_checksum(&from, &to)))
}

/// The same, as this module has them.
fn as_seen_here(frame: &[u8]) -> Option<(Between<u16>, &[u8], bool)> {
    let (header, data) = Header::parse(&frame[..frame.len().min(HEADERS_MOST)], frame.len()).ok()?;
    let data = &frame[data];
    Some((header.ports, data, header.is_intact(sum(data))))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn what_is_built_is_what_others_read(
        (header, data) in datagram(),
        options in 0..11_usize,
        padding in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let frame = frame(&header, &data, options, &padding);
        prop_assert_eq!(check(&frame), Ok(()));
        let (found, place) = Header::parse(&frame, frame.len()).expect("a datagram");
        prop_assert_eq!(found, header);
        prop_assert_eq!(place.end + padding.len(), frame.len());
        prop_assert_eq!(as_smoltcp_sees_it(&frame), Some((header.ports, &data[..], true)));
    }

    #[test]
    fn hostile_frames_are_seen_as_others_see_them(
        (header, data) in datagram(),
        options in 0..11_usize,
        padding in prop::collection::vec(any::<u8>(), 0..40),
        changes in prop::collection::vec((0..110_usize, prop_oneof![Just(0), 0..80_u8, any::<u8>()]), 0..4),
        cut in prop_oneof![Just(usize::MAX), 0..200_usize],
        is_mended in any::<bool>(),
    ) {
        let mut frame = frame(&header, &data, options, &padding);
        frame.truncate(cut);
        for (at, byte) in changes {
            if let Some(place) = frame.get_mut(at) {
                *place = byte;
            }
        }
        if is_mended {
            mend(&mut frame);
        }
        let _ = check(&frame);
        prop_assert_eq!(as_seen_here(&frame), as_smoltcp_sees_it(&frame));
    }

    #[test]
    fn any_bytes_are_parsed_or_refused(frame in prop::collection::vec(any::<u8>(), 0..120), len in any::<usize>()) {
        let _ = check(&frame);
        let _ = Header::parse(&frame, len);
    }
}

/// A datagram of this data, from one port of this machine to another, with its checksum.
fn local(is_v4: bool, from: u16, to: u16, data: &[u8]) -> Header {
    let hosts = match is_v4 {
        true => Hosts::V4(Between { from: Ipv4Addr::LOCALHOST, to: Ipv4Addr::LOCALHOST }),
        false => Hosts::V6(Between { from: Ipv6Addr::LOCALHOST, to: Ipv6Addr::LOCALHOST }),
    };
    let (stations, ports) = (Between { from: [2; 6], to: [4; 6] }, Between { from, to });
    let header = Header { stations, hosts, ports, len: data.len() as u16, checksum: 0 };
    Header { checksum: header.udp_sum(sum(data)), ..header }
}

#[test]
fn refusals_say_what_is_wrong() {
    let v4 = frame(&local(true, 1, 2, b"data"), b"data", 0, &[]);
    let v6 = frame(&local(false, 1, 2, b"data"), b"data", 0, &[]);
    for (whole, at, byte, why) in [
        (&v4, 13, 0x06, NoDatagram::NotUdp),
        (&v4, 23, 6, NoDatagram::NotUdp),
        (&v6, 20, 6, NoDatagram::NotUdp),
        (&v4, 20, 0x20, NoDatagram::Fragment),
        (&v4, 21, 1, NoDatagram::Fragment),
        (&v6, 20, 44, NoDatagram::Fragment),
        (&v4, 14, 0x65, NoDatagram::Malformed),
        (&v4, 14, 0x44, NoDatagram::Malformed),
        (&v6, 14, 0x40, NoDatagram::Malformed),
        // Longer than the frame, shorter than its header, and a datagram that is longer than what it is in, or shorter than its header.
        (&v4, 17, 33, NoDatagram::Malformed),
        (&v4, 17, 19, NoDatagram::Malformed),
        (&v4, 39, 13, NoDatagram::Malformed),
        (&v4, 39, 7, NoDatagram::Malformed),
        (&v6, 19, 13, NoDatagram::Malformed),
        (&v4, 22, 63, NoDatagram::HeaderChecksum),
    ] {
        let mut frame = whole.clone();
        frame[at] = byte;
        assert_eq!(check(&frame), Err(why), "{byte} at {at}");
    }
    let mut frame = v6.clone();
    frame[60..62].fill(0);
    assert_eq!(check(&frame), Err(NoDatagram::NoChecksum));
    for whole in [&v4, &v6] {
        for len in 0..whole.len() {
            assert_eq!(check(&whole[..len]), Err(NoDatagram::Malformed), "{len} bytes");
        }
    }
}

#[test]
fn a_sum_of_zero_is_sent_as_ones_and_zero_is_no_checksum() {
    for is_v4 in [true, false] {
        let header = local(is_v4, 1, 2, &[]);
        // With its own checksum as data the sum is all ones, the checksum of which would be zero.
        let data = header.checksum;
        assert_eq!(header.udp_sum(data), 0xffff);
        let ones = Header { checksum: 0xffff, ..header };
        assert!(ones.is_intact(data) && !ones.is_intact(data ^ 1));
    }
    let v4 = Header { checksum: 0, ..local(true, 1, 2, b"data") };
    assert!(v4.is_intact(0) && v4.is_intact(1), "IPv4 does without");
    assert_eq!(check(&frame(&v4, b"data", 0, &[])), Ok(()));
    let v6 = Header { checksum: 0, ..local(false, 1, 2, b"data") };
    assert_eq!(v6.build(), Err(NotBuilt::NoChecksum));
}

#[test]
fn the_longest_datagrams_are_those_that_ip_allows() {
    for (is_v4, most) in [(true, 65_507), (false, 65_527)] {
        let header = Header { len: most, ..local(is_v4, 1, 2, &[]) };
        let built = header.build().expect("the longest");
        let frame = built.len() + usize::from(most);
        assert_eq!(Header::parse(&built, frame), Ok((header, built.len()..frame)));
        for len in [most + 1, u16::MAX] {
            assert_eq!(Header { len, ..header }.build(), Err(NotBuilt::TooLong { len, most }));
            // There is a sum of it, and it is nobody's.
            Header { len, ..header }.udp_sum(0);
        }
    }
}

/// Sends a built datagram to itself by way of the kernel, first with a wrong checksum.
#[test]
fn the_kernel_receives_what_is_built_and_drops_what_has_a_wrong_checksum() {
    for (is_v4, family, host) in
        [(true, AddressFamily::INET, "127.0.0.1:0"), (false, AddressFamily::INET6, "[::1]:0")]
    {
        let name = "the_kernel_receives_what_is_built_and_drops_what_has_a_wrong_checksum";
        let raw = rustix::net::socket(family, SocketType::RAW, Some(rustix::net::ipproto::RAW));
        let (raw, socket) = match (raw, UdpSocket::bind(host)) {
            (Ok(raw), Ok(socket)) => (raw, socket),
            (Err(error), _) => return machine::skip(name, &format!("no raw socket: {error}")),
            (_, Err(error)) => return machine::skip(name, &format!("{host}: {error}")),
        };
        let (port, mut to) =
            (socket.local_addr().expect("an address").port(), socket.local_addr().expect("an address"));
        to.set_port(0);
        let send = |header: Header, data: &[u8]| {
            let packet = &frame(&header, data, 0, &[])[14..];
            let sent = rustix::net::sendto(&raw, packet, SendFlags::empty(), &SocketAddrAny::from(to));
            assert_eq!(sent, Ok(packet.len()));
        };
        for len in [0, 1, 2, 101, 1400] {
            let data: Vec<u8> = (0..len).map(|at| at as u8 ^ 0x5a).collect();
            let header = local(is_v4, 9, port, &data);
            send(Header { checksum: header.checksum ^ 0x100, ..header }, &data);
            send(header, &data);
            socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
            let mut received = [0; 2000];
            let (there, from) = socket.recv_from(&mut received).expect("a datagram");
            assert_eq!((&received[..there], from.port()), (&data[..], 9));
            socket.set_nonblocking(true).expect("no waiting");
            assert!(socket.recv_from(&mut received).is_err(), "the damaged one came, too");
            socket.set_nonblocking(false).expect("waiting");
        }
    }
}
