//! Packet sockets, with the kernel's own sockets at the other end of the link.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use genie_conformance::bytes::{pattern, same};
use genie_net::checksum::Checksum;
use genie_net::driver::{self, PacketSocket, Rings};
use genie_net::namespaces::{End, Pair};
use genie_net::packet::{Between, HEADERS_MOST, Header, Hosts};
use genie_sys::Errno;
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use crate::child::{ExitOutcome, fork_child};
use crate::front::until;
use crate::neighbours::ip;
use crate::udp::{host, kernel, pair};
use crate::xdp::{PATIENCE, frame, open_in, small, space};

const PORT: u16 = 4000;

fn open(end: &End) -> PacketSocket {
    end.namespace
        .enter(|| PacketSocket::open(&end.interface.name, &end.interface.hosts).expect("a packet socket"))
}

/// The frames that come until there are `count`, or time is over.
fn taken(rings: &mut PacketSocket, count: usize) -> Vec<Vec<u8>> {
    let (mut frames, end) = (Vec::new(), Instant::now() + Duration::from_secs(10));
    while frames.len() < count && Instant::now() < end {
        let see = &mut |frame: &genie_net::Frame<'_>| {
            let mut bytes = vec![0; frame.len()];
            frame.read(0, &mut bytes);
            frames.push(bytes);
        };
        rings.take(32, see).expect("frames");
    }
    frames
}

#[test]
fn datagrams_of_the_kernel_come_whole_and_go_back_to_it() {
    let test = "datagrams_of_the_kernel_come_whole_and_go_back_to_it";
    for (mtu, is_v6) in [(1500, false), (1500, true), (9000, false), (65_535, true)] {
        let Some(Pair { ends: [ours, theirs] }) = pair(test, mtu) else { return };
        let mut rings = open(&ours);
        rings.claim(PORT, true).expect("a port");
        let (here, socket) = (host(&ours, is_v6), kernel(&theirs, is_v6));
        let most = mtu as usize - if is_v6 { 48 } else { 28 };
        for len in [0, 1, 17, 1000, most] {
            let sent: Vec<u8> = (0..len).map(|at| (at * 7) as u8).collect();
            socket.send_to(&sent, (here, PORT)).expect("it is sent");
            let frames = taken(&mut rings, 1);
            let frame = &frames[0];
            let head = &frame[..frame.len().min(HEADERS_MOST)];
            let (header, data) = Header::parse(head, frame.len()).expect("a datagram");
            assert_eq!((header.ports.to, &frame[data.clone()]), (PORT, &sent[..]));
            let answer = Header {
                stations: turned(header.stations),
                hosts: match header.hosts {
                    Hosts::V4(hosts) => Hosts::V4(turned(hosts)),
                    Hosts::V6(hosts) => Hosts::V6(turned(hosts)),
                },
                ports: turned(header.ports),
                ..header
            };
            let checksum = answer.udp_sum(!(Checksum::Internet.of(&sent) as u16).swap_bytes());
            let answer = [&Header { checksum, ..answer }.build().expect("a header")[..], &sent[..]].concat();
            assert!(rings.put(&answer[..].into()).expect("it fits"));
            rings.send().expect("it goes");
            let mut received = vec![0; len + 1];
            let from = SocketAddr::from((here, PORT));
            assert_eq!(socket.recv_from(&mut received).expect("an answer"), (len, from));
            assert_eq!(received[..len], sent);
        }
        let long = vec![0; mtu as usize + 19];
        assert_eq!(rings.put(&long[..].into()), Err(Errno::MSGSIZE));
        let counters = rings.counters();
        assert_eq!((counters.sent, counters.received, counters.dropped, counters.unfit), (5, 5, 0, 0));
    }
}

/// The loopback interface has longer packets than any other, and no stations. The kernel takes nothing from there that it has not sent.
#[test]
fn the_loopback_interface_brings_the_longest_datagrams() {
    let test = "the_loopback_interface_brings_the_longest_datagrams";
    let Some(Pair { ends: [end, _other] }) = pair(test, 1500) else { return };
    let host = Ipv4Addr::LOCALHOST;
    let mut rings =
        end.namespace.enter(|| PacketSocket::open("lo", &[host.into()]).expect("a packet socket"));
    rings.claim(PORT, true).expect("a port");
    let socket = end.namespace.enter(|| UdpSocket::bind((host, 0)).expect("a port"));
    let sent = pattern(1, 65_507);
    socket.send_to(&sent, (host, PORT)).expect("it is sent");
    let frames = taken(&mut rings, 1);
    same(&frames[0][42..], &sent, "from the kernel");
    assert!(rings.put(&frames[0][..].into()).expect("it fits"));
    rings.send().expect("it goes");
    same(&taken(&mut rings, 1)[0], &frames[0], "from this socket");
}

#[test]
fn what_a_full_ring_has_no_room_for_is_counted_and_what_comes_later_comes() {
    let Some(Pair { ends: [ours, theirs] }) = pair("what_a_full_ring_has_no_room_for_is_counted", 1500)
    else {
        return;
    };
    let mut rings = open(&ours);
    rings.claim(PORT, true).expect("a port");
    let socket = kernel(&theirs, false);
    let send =
        |count: usize| (0..count).for_each(|_| assert!(socket.send_to(&[1; 100], (ours.v4, PORT)).is_ok()));
    send(1500);
    assert!(rings.has_frames());
    let came =
        std::iter::from_fn(|| Some(rings.take(32, &mut |_| {}).expect("frames")).filter(|count| *count > 0));
    let came: usize = came.sum();
    let dropped = rings.counters().dropped;
    assert!(dropped > 0 && came as u64 + dropped == 1500, "{came} have come, {dropped} were dropped");
    send(40);
    assert_eq!(taken(&mut rings, 40).len(), 40);
}

/// What several datagrams have in one frame would come as one.
#[test]
#[allow(unsafe_code, reason = "sets an option, to a number that is there")]
fn datagrams_that_are_yet_to_be_cut_apart_are_dropped_and_counted() {
    let test = "datagrams_that_are_yet_to_be_cut_apart_are_dropped_and_counted";
    let Some(Pair { ends: [ours, theirs] }) = pair(test, 9000) else { return };
    let mut rings = open(&ours);
    rings.claim(PORT, true).expect("a port");
    let socket = kernel(&theirs, false);
    for (segment, is_cut) in [(100_i32, false), (0, true)] {
        let (fd, value) = (socket.as_raw_fd(), (&raw const segment).cast());
        // SAFETY: the kernel reads a number.
        assert_eq!(unsafe { libc::setsockopt(fd, libc::SOL_UDP, libc::UDP_SEGMENT, value, 4) }, 0);
        socket.send_to(&[u8::from(is_cut); 1000], (ours.v4, PORT)).expect("it is sent");
    }
    assert_eq!(taken(&mut rings, 1)[0][42..], [1; 1000]);
    assert_eq!((rings.counters().received, rings.counters().unfit), (1, 1));
}

#[test]
fn who_lacks_the_right_is_told_which_and_what_to_do() {
    let Some(Pair { ends: [ours, _theirs] }) = pair("who_lacks_the_right_is_told_which_and_what_to_do", 1500)
    else {
        return;
    };
    // Rights are a thread's, and this one ends.
    let error = ours.namespace.enter(|| {
        let mut sets = capabilities(None).expect("what this thread may");
        sets.effective.remove(CapabilitySet::NET_RAW);
        set_capabilities(None, sets).expect("less is allowed");
        PacketSocket::open("genie0", &[ours.v4.into()]).expect_err("it lacks the right")
    });
    for word in ["genie0", "CAP_NET_RAW", "setcap", "unshare -rn", "genie doctor"] {
        assert!(error.to_string().contains(word), "{error}");
    }
    let open = |name: &str| {
        ours.namespace.enter(|| PacketSocket::open(name, &[ours.v4.into()]).expect_err("no interface"))
    };
    assert!(matches!(open("nowhere"), driver::Error::NoInterface { interface } if interface == "nowhere"));
}

#[test]
#[allow(unsafe_code, reason = "forks a child that makes no calls but these")]
fn a_child_made_by_fork_gets_errors_and_its_parent_the_frames() {
    let Some(Pair { ends: [ours, theirs] }) = pair("a_child_made_by_fork_gets_errors", 1500) else { return };
    let mut rings = open(&ours);
    rings.claim(PORT, true).expect("a port");
    kernel(&theirs, false).send_to(b"parent", (ours.v4, PORT)).expect("it is sent");
    let in_child = || {
        let put = rings.put(&[0; 60][..].into());
        let refused = [put.map(drop), rings.take(1, &mut |_| {}).map(drop), rings.send()];
        u8::from(rings.has_frames() || refused != [Err(Errno::BADF); 3])
    };
    // SAFETY: the child makes loads.
    let child = unsafe { fork_child(in_child) }.expect("a child");
    assert_eq!(child.wait().expect("it ends"), ExitOutcome::Code(0));
    assert_eq!(taken(&mut rings, 1)[0][42..], *b"parent");
}

/// Regression: a packet socket kept as many frames as there was room for, and then had none for ever.
#[test]
fn what_is_sent_while_there_is_no_link_is_dropped_by_either_driver() {
    let test = "what_is_sent_while_there_is_no_link_is_dropped_by_either_driver";
    for is_by_xdp in [false, true] {
        let Some(pair) = pair(test, 1500) else { return };
        let [ours, theirs] = &pair.ends;
        let mut rings: Box<dyn Rings> = if is_by_xdp {
            let Some(xdp) = open_in(&space(), test, ours, &small()) else { continue };
            Box::new(xdp)
        } else {
            Box::new(open(ours))
        };
        let socket = kernel(theirs, false);
        let frame = |data: &[u8]| frame(&pair, 0, socket.local_addr().unwrap().port(), data);
        let mut send = |frame: &[u8], count| {
            let (mut put, begun) = (0, Instant::now());
            while put < count {
                put += usize::from(rings.put(&frame.into()).expect("the interface is there"));
                match rings.send() {
                    Ok(()) | Err(Errno::AGAIN | Errno::NOBUFS) => {}
                    Err(errno) => panic!("{errno}"),
                }
                assert!(begun.elapsed() < PATIENCE, "{put} of {count} were put");
            }
        };
        ip(theirs, "link set genie1 down");
        send(&frame(b"lost"), 3000);
        ip(theirs, "link set genie1 up");
        socket.set_nonblocking(true).unwrap();
        let mut bytes = [0; 9];
        until(|| {
            send(&frame(b"there"), 1);
            socket.recv(&mut bytes).is_ok()
        });
        assert_eq!(&bytes[..5], b"there");
    }
}

fn turned<T>(between: Between<T>) -> Between<T> {
    Between { from: between.to, to: between.from }
}
