//! Frames that lie, from the other end of the link.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use fastrand::Rng;
use genie_conformance::bytes::{pattern, same};
use genie_conformance::checked;
use genie_io::Completer;
use genie_net::checksum::Checksum;
use genie_net::datagram::{Counters, Verifying};
use genie_net::namespaces::{End, Pair};
use genie_net::packet::{Between, HEADERS_MOST, Header, Hosts};
use genie_passing::Scheme;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::hosts::{Level, room, synced, taken};
use crate::udp::{Host, kernel, pair};

const FRAMES: usize = 4000;
/// Where the checksum of UDP over IPv4 stands.
const CHECKSUM: usize = 14 + 20 + 6;

/// A packet socket that sends any bytes, and says of them what it likes.
struct Liar(OwnedFd);

impl Liar {
    #[allow(unsafe_code, reason = "sets an option and binds a socket, by structures that are there")]
    fn new(end: &End) -> Self {
        let (family, kind) = (AddressFamily::PACKET, SocketType::RAW);
        let open =
            || rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None).expect("a packet socket");
        let socket = end.namespace.enter(open);
        // SAFETY: zeros are an address, the kernel reads what it is told to.
        let results = unsafe {
            let mut address: libc::sockaddr_ll = std::mem::zeroed();
            (address.sll_family, address.sll_ifindex) = (libc::AF_PACKET as u16, end.interface.index as i32);
            let (fd, one) = (socket.as_raw_fd(), 1_i32);
            [
                libc::setsockopt(fd, libc::SOL_PACKET, libc::PACKET_VNET_HDR, (&raw const one).cast(), 4),
                libc::bind(fd, (&raw const address).cast(), size_of_val(&address) as u32),
            ]
        };
        assert_eq!(results, [0; 2]);
        Self(socket)
    }

    /// Sends a frame whose checksum a device is to finish, if `is_partial`. The kernel refuses some.
    fn send(&self, frame: &[u8], is_partial: bool) {
        let (start, offset) = ((CHECKSUM as u16 - 6).to_le_bytes(), 6_u16.to_le_bytes());
        let said = [u8::from(is_partial), 0, 0, 0, 0, 0, start[0], start[1], offset[0], offset[1]];
        let _ = rustix::io::write(&self.0, &[&said, frame].concat());
    }
}

/// A frame from one end to a port at the other one.
fn frame([to, from]: [&End; 2], port: u16, data: &[u8], checksum: impl FnOnce(&Header) -> u16) -> Vec<u8> {
    let header = Header {
        stations: Between { from: from.interface.station, to: to.interface.station },
        hosts: Hosts::V4(Between { from: from.v4, to: to.v4 }),
        ports: Between { from: 9, to: port },
        len: data.len() as u16,
        checksum: 0,
    };
    let header = Header { checksum: checksum(&header), ..header };
    [&header.build().expect("a header")[..], data].concat()
}

/// A frame for a port that is wrong in some way, whatever else is right.
fn wrong(random: &mut Rng, ends: [&End; 2], port: u16) -> Vec<u8> {
    let data = pattern(random.u64(..), random.usize(0..1400));
    let mut frame = frame(ends, port, &data, |_| random.u16(1..));
    match random.u8(0..5) {
        0 => (0..random.usize(1..6)).for_each(|_| frame[random.usize(14..42)] = random.u8(..)),
        1 => frame.truncate(random.usize(0..frame.len())),
        // The lengths of IP and UDP.
        2 => [16, 38]
            .into_iter()
            .for_each(|at| frame[at..at + 2].copy_from_slice(&random.u16(..).to_be_bytes())),
        3 => frame.iter_mut().skip(42).for_each(|byte| *byte = random.u8(..)),
        _ => frame[random.usize(12..24)] ^= 1 << random.u8(0..8),
    }
    if let Ok((header, data)) = Header::parse(&frame[..frame.len().min(HEADERS_MOST)], frame.len()) {
        let right = header.udp_sum(!(Checksum::Internet.of(&frame[data]) as u16).swap_bytes());
        let mut checksum = header.checksum;
        while [0, right, header.partial_sum()].contains(&checksum) {
            checksum = random.u16(..);
        }
        let at = 14 + usize::from(frame[14] & 15) * 4 + 6;
        frame[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
    }
    frame
}

#[test]
fn frames_that_lie_are_dropped_and_what_is_honest_comes_afterwards() {
    let test = "frames_that_lie_are_dropped_and_what_is_honest_comes_afterwards";
    let Some(Pair { ends: [ours, theirs] }) = pair(test, 1500) else { return };
    let ways = [Verifying::Separate, Verifying::Integrated, Verifying::Adapter];
    for (number, level) in Level::ALL.into_iter().enumerate() {
        let host = Host::new(&ours, &theirs, level, ways[number % ways.len()]);
        let (port, honest, liar) = (host.socket.port(), kernel(&theirs, false), Liar::new(&theirs));
        let ask = || host.socket.submit(room(&host.genie, Scheme::EmulatedCopy, 1500)).expect("asked");
        let mut waiting: Vec<_> = (0..3).map(|_| ask()).collect();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut random = Rng::with_seed(number as u64);
                for _ in 0..FRAMES {
                    liar.send(&wrong(&mut random, [&ours, &theirs], port), random.bool());
                }
                is_over.store(true, Ordering::Release);
            });
            while !is_over.load(Ordering::Acquire) {
                host.link.collect();
            }
        });
        while host.link.collect() > 0 {}
        assert!(waiting.iter().all(|pending| !pending.is_replied()), "{level:?}: a lie was received");
        for (seed, pending) in waiting.drain(..).enumerate() {
            let bytes = pattern(seed as u64, 1400);
            honest.send_to(&bytes, (ours.v4, port)).expect("it is sent");
            same(&taken(synced(pending).expect("it comes").0).0, &bytes, format!("{level:?}"));
        }
        // A sum is taken for partial where the link says so, and there alone.
        let partial = frame([&ours, &theirs], port, b"partial", |header| header.partial_sum());
        [false, true].into_iter().for_each(|is_partial| liar.send(&partial, is_partial));
        assert_eq!(taken(synced(ask()).expect("one of them comes").0).0, b"partial");
        let (counters, stored) = (host.server.counters(), host.server.adapter().packets);
        let Counters { received, damaged, strange, rejected, full, unclaimed, misled, malformed, .. } =
            counters;
        let dropped = damaged + strange + rejected + full + unclaimed + misled + malformed;
        assert_eq!((received, stored, counters.unsummed), (4, 4 + dropped, 4), "{level:?}: {counters:?}");
        assert!(damaged > FRAMES as u64 / 20 && malformed > 0, "{level:?}: few have come: {counters:?}");
        assert!(host.link.counters().received <= FRAMES as u64 + 5);
        checked(host.genie.space());
    }
}
