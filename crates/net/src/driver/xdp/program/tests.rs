use std::os::fd::{AsFd, OwnedFd};

use genie_conformance::machine::skip;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use super::*;
use crate::packet::{Between, Header, Hosts};

const OURS_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 200);
const OURS_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0xfedc, 1);
const PORT: u16 = 0x8001;

/// What the program says of frames; none where this process may load none.
struct Trial {
    program: Program,
    ports: Ports,
    _sockets: Sockets,
    /// The map has it as long as it is open.
    _socket: OwnedFd,
}

impl Trial {
    fn of(test: &str, hosts: &[IpAddr], splits: Option<u32>) -> Option<Self> {
        let make = || {
            let (ports, sockets) = (Ports::none()?, Sockets::create(1)?);
            let socket =
                rustix::net::socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None)
                    .and_then(|socket| sockopt::set_xdp_rx_ring_size(&socket, 64).map(|()| socket))
                    .map_err(|errno| genie_sys::Error::new("socket", "AF_XDP", errno))?;
            sockets.set(0, socket.as_fd())?;
            let program = load(hosts, &ports, &sockets, true, splits)?;
            Ok(Self { program, ports, _sockets: sockets, _socket: socket })
        };
        let made: genie_sys::Result<_> = make();
        match made {
            Err(error) if matches!(error.errno, genie_sys::Errno::PERM | genie_sys::Errno::ACCESS) => {
                skip(test, &error.to_string());
                None
            }
            made => Some(made.expect("the kernel accepts the program")),
        }
    }

    fn is_ours(&self, frame: &[u8]) -> bool {
        let (verdict, _) = self.program.run(frame).expect("a verdict");
        assert!([Verdict::Pass as i32, Verdict::Redirect as i32].contains(&verdict), "verdict {verdict}");
        verdict == Verdict::Redirect as i32
    }
}

fn datagram(hosts: Hosts, port: u16, len: u16) -> Vec<u8> {
    let stations = Between { from: [2, 0, 0, 0, 0, 1], to: [2, 0, 0, 0, 0, 2] };
    let header = Header { stations, hosts, ports: Between { from: 9, to: port }, len, checksum: 1 };
    let mut frame = header.build().expect("headers").to_vec();
    frame.resize(frame.len() + usize::from(len), 0x55);
    frame
}

fn v4(to: Ipv4Addr, port: u16) -> Vec<u8> {
    datagram(Hosts::V4(Between { from: Ipv4Addr::new(192, 0, 2, 1), to }), port, 30)
}

fn v6(to: Ipv6Addr, port: u16) -> Vec<u8> {
    datagram(Hosts::V6(Between { from: Ipv6Addr::LOCALHOST, to }), port, 30)
}

/// The same frame with other bytes from `at` on.
fn with(mut frame: Vec<u8>, at: usize, bytes: &[u8]) -> Vec<u8> {
    frame[at..at + bytes.len()].copy_from_slice(bytes);
    frame
}

fn tagged(mut frame: Vec<u8>) -> Vec<u8> {
    frame.splice(12..12, [0x81, 0x00, 0x00, 0x07]);
    frame
}

#[test]
fn datagrams_to_our_hosts_and_claimed_ports_are_ours_and_no_others() {
    let test = "datagrams_to_our_hosts_and_claimed_ports_are_ours_and_no_others";
    let Some(trial) =
        Trial::of(test, &[OURS_V4.into(), OURS_V6.into(), Ipv4Addr::new(10, 0, 0, 9).into()], None)
    else {
        return;
    };
    let (v4_frame, v6_frame) = (v4(OURS_V4, PORT), v6(OURS_V6, PORT));
    assert!(!trial.is_ours(&v4_frame) && !trial.is_ours(&v6_frame), "the port was not claimed yet");
    trial.ports.set(PORT, true);
    for (name, frame) in [
        ("IPv4", v4_frame.clone()),
        ("a second host", v4(Ipv4Addr::new(10, 0, 0, 9), PORT)),
        ("no data", datagram(Hosts::V4(Between { from: OURS_V4, to: OURS_V4 }), PORT, 0)),
        ("may be fragmented, and is not", with(v4_frame.clone(), 20, &[0, 0])),
        ("IPv6", v6_frame.clone()),
        ("a long one", datagram(Hosts::V4(Between { from: OURS_V4, to: OURS_V4 }), PORT, 3000)),
    ] {
        assert!(trial.is_ours(&frame), "{name}");
    }
    let mut other_v6 = OURS_V6.octets();
    other_v6[15] ^= 1;
    let first_differs = with(v6_frame.clone(), 38, &[0x30]);
    for (name, frame) in [
        ("another port", v4(OURS_V4, PORT + 1)),
        ("the port with its bytes turned round", v4(OURS_V4, PORT.swap_bytes())),
        ("another port over IPv6", v6(OURS_V6, PORT - 1)),
        ("another host", v4(Ipv4Addr::new(192, 0, 2, 201), PORT)),
        ("another host over IPv6", v6(other_v6.into(), PORT)),
        ("another network over IPv6", first_differs),
        ("ARP", with(v4_frame.clone(), 12, &[0x08, 0x06])),
        ("TCP", with(v4_frame.clone(), 23, &[6])),
        ("ICMP", with(v4_frame.clone(), 23, &[1])),
        ("TCP over IPv6", with(v6_frame.clone(), 20, &[6])),
        ("ICMP over IPv6", with(v6_frame.clone(), 20, &[58])),
        ("a hop-by-hop header", with(v6_frame.clone(), 20, &[0])),
        ("a fragment header", with(v6_frame.clone(), 20, &[44])),
        ("IP options", with(v4_frame.clone(), 14, &[0x46])),
        ("another version", with(v4_frame.clone(), 14, &[0x65])),
        ("the first fragment", with(v4_frame.clone(), 20, &[0x20, 0])),
        ("a later fragment", with(v4_frame.clone(), 20, &[0x20, 1])),
        ("the last fragment", with(v4_frame.clone(), 20, &[0, 0xb9])),
        ("a VLAN tag", tagged(v4_frame.clone())),
        ("a VLAN tag over IPv6", tagged(v6_frame.clone())),
        ("headers that are cut", v4_frame[..41].to_vec()),
        ("IPv6 headers that are cut", v6_frame[..61].to_vec()),
        ("a header of Ethernet alone", v4_frame[..14].to_vec()),
    ] {
        assert!(!trial.is_ours(&frame), "{name}");
    }
    trial.ports.set(PORT, false);
    assert!(!trial.is_ours(&v4_frame) && !trial.is_ours(&v6_frame), "the port was released");
}

#[test]
fn hosts_of_one_version_leave_the_other_version_to_the_kernel() {
    let test = "hosts_of_one_version_leave_the_other_version_to_the_kernel";
    for (host, ours, theirs) in [
        (IpAddr::from(OURS_V4), v4(OURS_V4, PORT), v6(OURS_V6, PORT)),
        (IpAddr::from(OURS_V6), v6(OURS_V6, PORT), v4(OURS_V4, PORT)),
    ] {
        let Some(trial) = Trial::of(test, &[host], None) else { return };
        trial.ports.set(PORT, true);
        assert!(trial.is_ours(&ours) && !trial.is_ours(&theirs), "{host}");
    }
}

#[test]
fn headers_become_metadata_and_frames_of_other_queues_stay_as_they_are() {
    let test = "headers_become_metadata_and_frames_of_other_queues_stay_as_they_are";
    let hosts = [OURS_V4.into(), OURS_V6.into()];
    let (to_v4, to_v6) = (Between { from: OURS_V4, to: OURS_V4 }, Between { from: OURS_V6, to: OURS_V6 });
    let Some(trial) = Trial::of(test, &hosts, Some(0)) else { return };
    let Some(of_another_queue) = Trial::of(test, &hosts, Some(1)) else { return };
    for trial in [&trial, &of_another_queue] {
        trial.ports.set(PORT, true);
    }
    for (hosts, headers) in [(Hosts::V4(to_v4), 42), (Hosts::V6(to_v6), 62)] {
        for len in [0, 1, 13, 14, 15, 1400, 3000] {
            let frame = datagram(hosts, PORT, len);
            let (verdict, made) = trial.program.run(&frame).expect("a verdict");
            assert_eq!(verdict, Verdict::Redirect as i32);
            // What is left is to be as long as an Ethernet header.
            if len < 14 {
                assert_eq!(made, frame);
            } else {
                assert_eq!(made.len(), SPLIT + usize::from(len));
                assert_eq!(made[..4], u32::to_ne_bytes(headers));
                assert_eq!(made[SPLIT - headers as usize..], frame);
            }
            assert_eq!(
                of_another_queue.program.run(&frame).expect("a verdict"),
                (Verdict::Pass as i32, frame)
            );
        }
        let not_ours = datagram(hosts, PORT + 1, 1400);
        assert_eq!(trial.program.run(&not_ours).expect("a verdict"), (Verdict::Pass as i32, not_ours));
    }
}
