//! Frames that are not what they should be, and requests that end early.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use fastrand::Rng;
use genie_conformance::bytes::{pattern, same};
use genie_io::{Error, In, Out, Pending};
use genie_net::datagram::{ARRIVED, Arrived, Counters, Open, RECEIVE, SEND, port_argument, send_argument};
use genie_net::packet::{Between, Header, Hosts as Ends};
use genie_net::wire::{self, TRANSMIT};
use genie_passing::Scheme;

use crate::hosts::{Hosts, Level, STATIONS, address, host, out, room, synced, taken};

/// The header of a datagram of these bytes from port 1 of host 0 to host 1.
pub(crate) fn header(is_v6: bool, port: u16, bytes: &[u8]) -> Header {
    let hosts = match (host(0, is_v6), host(1, is_v6)) {
        (IpAddr::V4(from), IpAddr::V4(to)) => Ends::V4(Between { from, to }),
        (IpAddr::V6(from), IpAddr::V6(to)) => Ends::V6(Between { from, to }),
        _ => unreachable!(),
    };
    let header = Header {
        stations: Between { from: STATIONS[0], to: STATIONS[1] },
        hosts,
        ports: Between { from: 1, to: port },
        len: bytes.len() as u16,
        checksum: 0,
    };
    let words = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)));
    let sum = words.fold(0, |sum, word| (sum + word) % 0xffff);
    Header { checksum: header.udp_sum(sum as u16), ..header }
}

impl Hosts {
    /// Has a frame arrive at host 1.
    pub(crate) fn inject(&self, header: &[u8], data: &[u8]) {
        let request = self.genie.request(&self.wires[1], TRANSMIT).out(Out::copy(header));
        request.and_out(Out::copy(data)).send().expect("a frame");
    }
}

#[test]
fn frames_that_are_dropped_change_no_buffer_and_take_no_requests_place() {
    for level in Level::ALL {
        let hosts = Hosts::new(level);
        let from: SocketAddr = (host(0, false), 1).into();
        let peer = Some(from);
        let bob = hosts.opened(1, &Open { port: 9, peer, ..Open::default() });
        let (right, len) = (header(false, 9, &pattern(1, 5000)), 5000);
        let data = pattern(1, len);
        let mut buffers = [0xaa, 0xbb].map(|fill| {
            let mut buffer = hosts.genie.allocate(len).expect("memory");
            buffer.fill(fill);
            buffer
        });
        {
            let [first, second] = &mut buffers;
            // Both wait, the second by a scheme that lets nothing be seen before the reply either.
            let pending = [bob.submit(In::emulated_copy(first)), bob.submit(In::copy(second))];
            let [first, second] = pending.map(|pending| pending.expect("a request"));

            let wrong = |change: fn(&mut Header)| {
                let mut header = right;
                change(&mut header);
                hosts.inject(&header.build().expect("a header"), &data);
            };
            wrong(|header| header.checksum ^= 1);
            wrong(|header| header.ports.to = 10);
            wrong(|header| header.ports.from = 2);
            wrong(|header| header.stations.to = STATIONS[0]);
            wrong(|header| {
                let Ends::V4(hosts) = &mut header.hosts else { unreachable!() };
                hosts.to = hosts.from;
            });
            let bytes = right.build().expect("a header");
            for len in [0, 1, 13, 14, 33, 34, 41] {
                hosts.inject(&bytes[..len], &[]);
            }
            hosts.inject(&bytes, &data[..len - 1]);
            let mut fragment = bytes.clone();
            fragment[20] = 0x20;
            hosts.inject(&fragment, &data);
            let counters = Counters {
                damaged: 1,
                unclaimed: 1,
                strange: 1,
                misled: 2,
                malformed: 9,
                ..Counters::default()
            };
            let found = hosts.servers[1].counters();
            // The damaged one was read.
            assert_eq!(found, Counters { summed: len as u64, ..counters }, "{level:?}");
            assert!(!first.is_replied() && !second.is_replied());

            // The right one finds its request; the next one, which is given up, its buffer as it was.
            hosts.inject(&bytes, &data);
            let (reply, arrived) = synced(first).expect("it arrives");
            assert_eq!((reply.actual(), arrived.len, arrived.from), (len, len, from));
            // What was posted was as if nothing had been stored there.
            assert_eq!(hosts.servers[1].counters().copied, 0, "{level:?}");
            let failed = second.abort().expect_err("nothing has come");
            assert_eq!(failed.error, Error::Aborted);
        }
        same(&buffers[0], &data, level.name());
        assert!(buffers[1].iter().all(|byte| *byte == 0xbb), "{level:?}: the buffer has changed");
        drop((bob, buffers));
        hosts.assert_idle(level);
    }
}

#[test]
fn what_a_buffer_has_no_room_for_is_lost_and_told() {
    for level in Level::ALL {
        let hosts = Hosts::new(level);
        let (alice, bob) = (hosts.socket(0), hosts.socket(1));
        let to = address(1, false, &bob);
        for (len, most) in [(100, 99), (5000, 4096), (60_000, 1), (10_000, 5000)] {
            for waits in [true, false] {
                let receive =
                    || bob.submit(room(&hosts.genie, Scheme::EmulatedCopy, most)).expect("a request");
                let before = waits.then(|| [receive(), receive()]);
                for seed in [1, 2] {
                    alice.send_to(Out::copy(&pattern(seed, len)), to).expect("it is sent");
                }
                let what = format!("{level:?}: {most} of {len} bytes");
                for (seed, pending) in
                    [1, 2].into_iter().zip(before.unwrap_or_else(|| [receive(), receive()]))
                {
                    let (reply, arrived) = synced(pending).expect("it arrives");
                    assert_eq!((reply.actual(), arrived.len), (most, len), "{what}");
                    same(&taken(reply).0, &pattern(seed, len)[..most], &what);
                }
            }
        }
        // Nor does what there was no room for, and went on into the next request's buffering, have that one's datagram copied.
        assert_eq!(hosts.servers[1].counters().copied, 0, "{level:?}");
        drop((alice, bob));
        hosts.assert_idle(level);
    }
}

#[test]
fn a_late_datagram_is_for_the_next_request_and_lands_nowhere_before() {
    for level in Level::ALL {
        let hosts = Hosts::new(level);
        let (alice, bob) = (hosts.socket(0), hosts.socket(1));
        let mut buffer = hosts.genie.allocate(8192).expect("memory");
        let to = address(1, false, &bob);
        for scheme in [Scheme::Copy, Scheme::EmulatedCopy] {
            buffer.fill(0xcc);
            let argument = port_argument(bob.port());
            let request = hosts.genie.request(&hosts.handles[1], RECEIVE).argument(&argument).room(ARRIVED);
            let request = request.timeout(Duration::from_millis(1));
            let failed =
                request.input(In::borrowed(scheme, &mut buffer[..])).send().expect_err("nothing came");
            assert!(matches!(failed.error, Error::TimedOut { .. }), "{}", failed.error);
            alice.send_to(Out::copy(&pattern(5, 8192)), to).expect("it is sent");
            assert!(buffer.iter().all(|byte| *byte == 0xcc), "{level:?}, {scheme}: it landed");
            let pending = bob.submit(In::emulated_copy(&mut buffer)).expect("a request");
            let (reply, _) = synced(pending).expect("it waits");
            assert_eq!(reply.actual(), 8192);
            same(&buffer, &pattern(5, 8192), format!("{level:?}, {scheme}"));
        }
        buffer.fill(0xcc);
        let pending = bob.submit(In::share(buffer)).expect("a request");
        let mut failed = pending.abort().expect_err("nothing came");
        alice.send_to(Out::copy(&pattern(5, 8192)), to).expect("it is sent");
        let buffer = failed.take_buffer().expect("it comes back");
        assert!(buffer.iter().all(|byte| *byte == 0xcc), "{level:?}: it landed in a shared buffer");
        drop((alice, bob, buffer));
        hosts.assert_idle(level);
    }
}

/// What has to come of a request, or may not be known yet.
struct Waiting {
    pending: Pending<'static>,
    room: usize,
    gets: Option<Vec<u8>>,
}

/// How many rounds; more by `GENIE_ROUNDS`.
fn rounds() -> usize {
    std::env::var("GENIE_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(2000)
}

#[test]
fn random_programs_receive_what_a_queue_of_copies_would_have() {
    let seed = std::env::var("GENIE_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    println!("GENIE_SEED={seed}");
    for level in Level::ALL {
        random_program(level, Rng::with_seed(seed));
    }
}

/// A wire that loses, doubles, cuts and damages frames, and puts them into another order.
#[test]
fn over_a_bad_wire_random_programs_receive_nothing_but_what_was_sent() {
    let seed = std::env::var("GENIE_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    println!("GENIE_SEED={seed}");
    for level in Level::ALL {
        over_a_bad_wire(level, seed);
    }
}

fn over_a_bad_wire(level: Level, seed: u64) {
    let bad = wire::Options {
        loss: 0.1,
        duplication: 0.1,
        reordering: 0.2,
        displacement: 4,
        truncation: 0.05,
        damage: 0.05,
        seed,
        ..wire::Options::default()
    };
    let (hosts, mut random) = (Hosts::with(level, bad, |_| {}), Rng::with_seed(seed));
    let (alice, bob) = (hosts.socket(0), hosts.socket(1));
    // What was sent, each beginning with its number, and how often that was received.
    let (mut sent, mut in_flight) = (Vec::<(Vec<u8>, u32)>::new(), VecDeque::new());
    let mut waiting = VecDeque::new();
    let end = |sent: &mut Vec<(Vec<u8>, u32)>, (pending, most): (Pending<'static>, usize)| {
        let reply = match pending.abort() {
            Ok(reply) => reply,
            Err(failed) => return assert_eq!(failed.error, Error::Aborted),
        };
        let arrived = Arrived::from_reply(reply.argument()).expect("a sender");
        let (found, _) = taken(reply);
        let number = u64::from_le_bytes(*found.first_chunk().expect("a number")) as usize;
        let (bytes, times) = &mut sent[number];
        same(&found, &bytes[..bytes.len().min(most)], format!("{level:?}, datagram {number}"));
        assert_eq!(arrived.len, bytes.len(), "{level:?}, datagram {number}");
        *times += 1;
    };
    for round in 0..rounds() {
        let len = [8, 30, 1472, 4096, 5000, 9000][random.usize(0..6)];
        let scheme = Scheme::ALL[random.usize(0..8)];
        match random.u32(0..10) {
            0..4 if waiting.len() < 20 => {
                waiting.push_back((bob.submit(room(&hosts.genie, scheme, len)).expect("a request"), len));
            }
            4..8 => {
                let mut bytes = pattern(random.u64(..), len);
                bytes[..8].copy_from_slice(&(sent.len() as u64).to_le_bytes());
                let argument = send_argument(alice.port(), Some(address(1, false, &bob)));
                let request = hosts.genie.request(&hosts.handles[0], SEND).argument(&argument);
                let pending = request.out(out(&hosts.genie, scheme, &bytes)).submit().expect("a request");
                in_flight.push_back(pending);
                sent.push((bytes, 0));
            }
            _ => {
                // The one in the middle, which may have received nothing, or the first.
                let index = if random.bool() { waiting.len() / 2 } else { 0 };
                waiting.remove(index).into_iter().for_each(|ended| end(&mut sent, ended));
            }
        }
        if in_flight.len() > 20 {
            in_flight.drain(..10).for_each(|pending| drop(pending.sync().expect("the wire takes it")));
        }
        if round % 16 == 0 {
            hosts.check();
        }
    }
    in_flight.into_iter().for_each(|pending| drop(pending.sync().expect("the wire takes it")));
    waiting.into_iter().for_each(|ended| end(&mut sent, ended));
    assert!(sent.iter().all(|(_, times)| *times <= 2), "{level:?}: a datagram came more than twice");
    let came = sent.iter().filter(|(_, times)| *times > 0).count();
    assert!(came > sent.len() / 4, "{level:?}: {came} of {} datagrams came", sent.len());
    let counters = hosts.servers[1].counters();
    assert!(counters.damaged > 0 && counters.malformed > 0, "{level:?}: {counters:?}");
    drop((alice, bob));
    hosts.check();
}

fn random_program(level: Level, mut random: Rng) {
    let hosts = Hosts::new(level);
    let (alice, bob) = (hosts.socket(0), hosts.socket(1));
    let (mut waiting, mut queue) = (Vec::<Waiting>::new(), VecDeque::<Vec<u8>>::new());
    for round in 0..rounds() {
        let len = [0, 1, 30, 1472, 4096, 5000, 9000][random.usize(0..7)];
        match random.u32(0..10) {
            0..4 if waiting.len() < 20 => {
                let scheme = Scheme::ALL[random.usize(0..8)];
                let pending = bob.submit(room(&hosts.genie, scheme, len.max(1))).expect("a request");
                waiting.push(Waiting { pending, room: len.max(1), gets: queue.pop_front() });
            }
            4..7 if queue.len() < 20 => {
                let bytes = pattern(random.u64(..), len);
                let to = address(1, random.bool(), &bob);
                let scheme = Scheme::ALL[random.usize(0..8)];
                alice.send_to(out(&hosts.genie, scheme, &bytes), to).expect("it is sent");
                match waiting.iter_mut().find(|waiting| waiting.gets.is_none()) {
                    Some(first) => first.gets = Some(bytes),
                    None => queue.push_back(bytes),
                }
            }
            7 => {
                let bytes = pattern(random.u64(..), len.max(1));
                let mut header = header(random.bool(), bob.port(), &bytes);
                header.checksum ^= 1 << random.u32(0..16);
                hosts.inject(&header.build().expect("a header"), &bytes);
            }
            _ if !waiting.is_empty() => {
                let Waiting { pending, room, gets } = waiting.remove(random.usize(0..waiting.len()));
                match gets {
                    None => assert_eq!(pending.abort().expect_err("nothing came").error, Error::Aborted),
                    Some(bytes) => {
                        let (reply, arrived) = synced(pending).expect("it has come");
                        assert_eq!(arrived.len, bytes.len(), "{level:?}, round {round}");
                        let most = bytes.len().min(room);
                        assert_eq!(reply.actual(), most, "{level:?}, round {round}");
                        same(&taken(reply).0, &bytes[..most], format!("{level:?}, round {round}"));
                    }
                }
            }
            _ => {}
        }
        if round % 16 == 0 {
            hosts.check();
        }
    }
    drop((waiting, alice, bob));
    hosts.assert_buffers_free();
    hosts.assert_idle(level);
}
