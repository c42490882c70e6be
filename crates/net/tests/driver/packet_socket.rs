//! Packet sockets, with the kernel's own sockets at the other end of the link.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use genie_net::checksum::Checksum;
use genie_net::driver::{PacketSocket, Rings};
use genie_net::namespaces::{End, Pair};
use genie_net::packet::{Between, HEADERS_MOST, Header, Hosts};

use crate::udp::{host, kernel, pair};

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
        let counters = rings.counters();
        assert_eq!((counters.sent, counters.received, counters.dropped, counters.unfit), (5, 5, 0, 0));
    }
}

fn turned<T>(between: Between<T>) -> Between<T> {
    Between { from: between.to, to: between.from }
}
