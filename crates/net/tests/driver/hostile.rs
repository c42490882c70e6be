//! Frames that lie, from the other end of the link, at full rate, while a good client exchanges datagrams.

use std::net::UdpSocket;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

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

use crate::hosts::{out, room, synced, taken};
use crate::udp::{Host, Way, at_length, kernel, pair};

/// Where an IPv4 header begins, its checksum, and that of UDP behind such a header.
const IP: usize = 14;
const IP_CHECKSUM: usize = IP + 10;
const CHECKSUM: usize = IP + 20 + 6;
/// How long a datagram's data is that is no lie: its number and a pattern.
const LEN: usize = 1400;

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
    fn send(&self, frame: &[u8], is_partial: bool) -> bool {
        let (start, offset) = ((CHECKSUM as u16 - 6).to_le_bytes(), 6_u16.to_le_bytes());
        let said = [u8::from(is_partial), 0, 0, 0, 0, 0, start[0], start[1], offset[0], offset[1]];
        rustix::io::write(&self.0, &[&said, frame].concat()).is_ok()
    }
}

/// A frame from one end to a port at the other one.
fn frame(
    [to, from]: [&End; 2],
    is_v6: bool,
    port: u16,
    data: &[u8],
    checksum: impl FnOnce(&Header) -> u16,
) -> Vec<u8> {
    let hosts = match is_v6 {
        true => Hosts::V6(Between { from: from.v6, to: to.v6 }),
        false => Hosts::V4(Between { from: from.v4, to: to.v4 }),
    };
    let header = Header {
        stations: Between { from: from.interface.station, to: to.interface.station },
        hosts,
        ports: Between { from: 9, to: port },
        len: data.len() as u16,
        checksum: 0,
    };
    let header = Header { checksum: checksum(&header), ..header };
    [&header.build().expect("a header")[..], data].concat()
}

/// A frame for a port that is wrong in some way, whatever else is right.
fn wrong(random: &mut Rng, ends: [&End; 2], port: u16) -> Vec<u8> {
    let (data, is_v6) = (pattern(random.u64(..), random.usize(0..LEN)), random.u8(0..4) == 0);
    let right = |header: &Header| header.udp_sum(!(Checksum::Internet.of(&data) as u16).swap_bytes());
    let mut frame = frame(ends, is_v6, port, &data, right);
    match random.u8(0..9) {
        0 => (0..random.usize(1..6)).for_each(|_| frame[random.usize(14..42)] = random.u8(..)),
        1 => frame.truncate(random.usize(0..frame.len())),
        // The lengths of IP and UDP.
        2 => [16, 38]
            .into_iter()
            .for_each(|at| frame[at..at + 2].copy_from_slice(&random.u16(..).to_be_bytes())),
        3 => frame.iter_mut().skip(42).for_each(|byte| *byte = random.u8(..)),
        4 => frame[random.usize(12..24)] ^= 1 << random.u8(0..8),
        // The tag of a virtual network.
        5 => drop(frame.splice(12..12, [0x81, 0, 0, random.u8(..)])),
        // A fragment: more follow, or some precede.
        6 => frame[IP + 6..IP + 8].copy_from_slice(&(1 << random.u8(0..14)).min(0x2000_u16).to_be_bytes()),
        // Options, or nonsense in their place.
        7 => {
            let words = random.u8(1..11);
            frame[IP] = frame[IP] & 0xf0 | (5 + words);
            drop(frame.splice(IP + 20..IP + 20, std::iter::repeat_n(random.u8(..2), usize::from(words) * 4)));
            let len = (frame.len() - IP) as u16;
            frame[IP + 2..IP + 4].copy_from_slice(&len.to_be_bytes());
        }
        _ => frame.iter_mut().skip(random.usize(..60)).for_each(|byte| *byte = random.u8(..)),
    }
    let header = IP + frame.get(IP).map_or(0, |first| usize::from(first & 15) * 4);
    if random.u8(0..4) > 0 && header > IP_CHECKSUM + 2 && frame.len() >= header {
        frame[IP_CHECKSUM..IP_CHECKSUM + 2].fill(0);
        let sum = !(Checksum::Internet.of(&frame[IP..header]) as u16);
        frame[IP_CHECKSUM..IP_CHECKSUM + 2].copy_from_slice(&(!sum).to_le_bytes());
    }
    if let Ok((header, data)) = Header::parse(&frame[..frame.len().min(HEADERS_MOST)], frame.len()) {
        let right = header.udp_sum(!(Checksum::Internet.of(&frame[data.clone()]) as u16).swap_bytes());
        let mut checksum = header.checksum;
        while [0, right, header.partial_sum()].contains(&checksum) {
            checksum = random.u16(..);
        }
        let at = data.start - 2;
        frame[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
    }
    frame
}

/// A client that exchanges datagrams, of which the link may lose some.
struct Good<'h> {
    host: &'h Host,
    honest: UdpSocket,
    ours: &'h End,
    sent: u64,
    came: u64,
}

impl Good<'_> {
    fn data(number: u64) -> Vec<u8> {
        [&number.to_le_bytes()[..], &pattern(number, LEN - 8)].concat()
    }

    /// Sends one datagram each way. What has come must be of those that were sent.
    fn exchange(&mut self, scheme: Scheme) {
        let Host { genie, socket, .. } = self.host;
        let pending = socket.submit(room(genie, scheme, LEN + 100)).expect("asked");
        let begun = Instant::now();
        loop {
            self.honest.send_to(&Self::data(self.sent), (self.ours.v4, socket.port())).expect("it is sent");
            self.sent += 1;
            if pending.wait(Duration::from_millis(5)) {
                break;
            }
            assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", self.host.link.counters());
        }
        self.verify(&taken(synced(pending).expect("a datagram").0).0);
        let data = Self::data(self.sent);
        socket
            .send_to(out(genie, scheme, &data), self.honest.local_addr().expect("an address"))
            .expect("it is sent");
        let mut buffer = [0; LEN + 1];
        let len = self.honest.recv(&mut buffer).expect("it comes");
        same(&buffer[..len], &data, "from ours");
    }

    fn verify(&mut self, found: &[u8]) {
        let number = found.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
        let number = number.filter(|number| *number < self.sent).expect("what was sent");
        same(found, &Self::data(number), "from the kernel's socket");
        self.came += 1;
    }

    /// Takes what waits at the port.
    fn drain(&mut self) {
        let Host { genie, socket, link, .. } = self.host;
        loop {
            while link.collect() > 0 {}
            let pending = socket.submit(room(genie, Scheme::EmulatedCopy, LEN + 100)).expect("asked");
            if !pending.wait(Duration::ZERO) {
                let _ = pending.abort();
                return;
            }
            self.verify(&taken(synced(pending).expect("a datagram").0).0);
        }
    }
}

/// At length, for a minute over each driver.
#[test]
fn frames_that_lie_are_dropped_while_a_good_client_has_its_datagrams() {
    let test = "frames_that_lie_are_dropped_while_a_good_client_has_its_datagrams";
    let Some(Pair { ends: [ours, theirs] }) = pair(test, 1500) else { return };
    let ways = [Verifying::Separate, Verifying::Integrated, Verifying::Adapter];
    for (number, way) in Way::all().enumerate() {
        let Some(host) = Host::new(test, [&ours, &theirs], way, ways[number % ways.len()]) else { continue };
        let (liar, port, free) = (Liar::new(&theirs), host.socket.port(), host.server.free());
        let mut good = Good { host: &host, honest: kernel(&theirs, false), ours: &ours, sent: 0, came: 0 };
        let is_over = AtomicBool::new(false);
        let until = Instant::now() + at_length(Duration::from_millis(60), Duration::from_secs(8));
        let lies = std::thread::scope(|scope| {
            let lies = scope.spawn(|| {
                let (mut random, mut count) = (Rng::with_seed(number as u64), 0);
                // What the kernel's thread is given is a round at least.
                while count < 1000 || !is_over.load(Ordering::Acquire) {
                    let frame = wrong(&mut random, [&ours, &theirs], port);
                    count += u64::from(liar.send(&frame, random.bool()));
                }
                count
            });
            for scheme in Scheme::ALL.into_iter().cycle() {
                good.exchange(scheme);
                if Instant::now() > until {
                    break;
                }
            }
            is_over.store(true, Ordering::Release);
            while !lies.is_finished() {
                host.link.collect();
            }
            lies.join().expect("it lies")
        });
        good.drain();
        let Counters { received, damaged, malformed, .. } = host.server.counters();
        let counters = host.server.counters();
        let dropped = damaged + malformed + counters.strange + counters.rejected + counters.full;
        let dropped = dropped + counters.unclaimed + counters.misled;
        let (adapter, link) = (host.server.adapter(), host.link.counters());
        let what = format!("{way:?}, {lies} lies: {counters:?}, {adapter:?}, {link:?}");
        // Each frame is counted once, and no good one is lost but where there was no room.
        assert_eq!(
            (adapter.packets + adapter.no_buffers, adapter.packets),
            (link.received, received + dropped),
            "{what}"
        );
        assert_eq!(received, good.came, "{what}");
        assert!(good.sent - good.came <= counters.full + adapter.no_buffers + link.dropped, "{what}");
        assert!(damaged + counters.full + link.dropped > lies / 20 && malformed > 0, "few have come: {what}");
        assert!(link.received <= lies + good.sent, "{what}");
        // A sum is taken for partial where the link says so, and there alone. By AF_XDP it does not say.
        let partial = frame([&ours, &theirs], false, port, b"partial", |header| header.partial_sum());
        for is_partial in [false, true] {
            assert!(liar.send(&partial, is_partial));
            if is_partial || !matches!(way, Way::Packets(_)) {
                let pending = host.socket.submit(room(&host.genie, Scheme::EmulatedCopy, 9)).expect("asked");
                assert_eq!(taken(synced(pending).expect("it comes").0).0, b"partial");
            }
        }
        // With the next frame all buffers are where they were.
        let mut malformed = partial;
        malformed[IP_CHECKSUM] ^= 1;
        while host.link.collect() == 0 {
            liar.send(&malformed, false);
        }
        assert_eq!(host.server.free(), free, "{what}");
        checked(host.genie.space());
    }
}
