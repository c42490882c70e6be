//! Datagrams whose frames a device has stored in the host's buffers: they change places with clients' pages, and come home.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use genie_conformance::bytes::{pattern, same};
use genie_conformance::{checked, interface};
use genie_io::{In, Interface, Limits, Out, Pending, ServerHandle};
use genie_memory::Buffer;
use genie_net::Frame;
use genie_net::datagram::{self, Datagrams, Open, RECEIVE, Socket, port_argument};
use genie_net::driver::{self, Driver, Host, Link, Queue, Rings, Xdp};
use genie_net::namespaces::Pair;
use genie_net::wire::Station;
use genie_passing::{Receipt, Scheme, Thresholds};

use crate::proc;
use crate::udp::{host, kernel, pair};
use crate::xdp::{HEADERS, PATIENCE, PORT, frame, open_in, put, small, space};

/// Where data begins in its page, and how much fits in there.
const OFFSET: usize = 256 + HEADERS;
const LEN: usize = 4096 - OFFSET;

/// A server at end 1, and what sends to it from end 0.
struct Bench {
    genie: Interface,
    sender: Xdp,
    receiver: Xdp,
    datagrams: Datagrams,
    handle: ServerHandle,
    pair: Pair,
}

impl Bench {
    fn new(test: &str, options: &Queue) -> Option<Self> {
        let pair = pair(test, 9000)?;
        let genie = interface(space(), Limits::default(), Thresholds::ALWAYS);
        let sender = open_in(&space(), test, &pair.ends[0], &small())?;
        let receiver = open_in(genie.space(), test, &pair.ends[1], options)?;
        let [from, to] = &pair.ends;
        let mut server = datagram::Options::new(to.interface.station, [IpAddr::from(to.v4)]);
        server = server.neighbour(from.v4.into(), from.interface.station);
        let datagrams = Datagrams::new(genie.clone(), Box::new(receiver.adapter()), server);
        let handle = ServerHandle::new(datagrams.clone());
        Some(Self { genie, sender, receiver, datagrams, handle, pair })
    }

    fn socket(&mut self, port: u16) -> Socket {
        self.receiver.claim(port, true).expect("the interface is there");
        Socket::open(&self.genie, &self.handle, &Open { port, ..Open::default() }).expect("a port")
    }

    fn buffer(&self, offset: usize, len: usize) -> Buffer {
        self.genie.allocate_at(offset, len).expect("memory")
    }

    /// Has datagrams come.
    fn send(&mut self, port: u16, all: &[Vec<u8>]) {
        let frames: Vec<_> = all.iter().map(|data| frame(&self.pair, 0, port, data)).collect();
        put(&mut self.sender, &frames);
        let (begun, station, mut come) = (Instant::now(), self.datagrams.station(), 0);
        while come < frames.len() {
            assert!(begun.elapsed() < PATIENCE, "{come} frames have come: {:?}", self.receiver.counters());
            come += self.receiver.take(32, &mut |frame: &Frame<'_>| station.arrive(frame)).expect("frames");
        }
    }
}

fn received(pending: Pending<'_>) -> (Buffer, Receipt) {
    assert!(pending.wait(PATIENCE), "no datagram came");
    let mut reply = pending.sync().expect("a datagram");
    let buffer = reply.take_buffer().expect("it was given");
    (buffer, reply.buffers[0].elements[0].receipt)
}

/// The memory object in which a buffer's page is, and where.
fn place(buffer: &Buffer) -> (u64, usize) {
    let (_, number, offset) = proc::object_at(buffer.addresses().start).expect("an object");
    (number, offset / 4096)
}

/// Regression: a buffer that came back after the last look for frames was not counted until the next one.
#[test]
fn buffers_that_have_come_back_are_free() {
    let Some(mut bench) = Bench::new("buffers_that_have_come_back_are_free", &small()) else { return };
    let (all, socket) = (bench.datagrams.free(), bench.socket(PORT));
    let buffer = bench.buffer(OFFSET, LEN);
    let pending = socket.submit(In::owned(Scheme::EmulatedCopy, buffer)).expect("a request");
    bench.send(PORT, &[pattern(1, LEN)]);
    assert_ne!(bench.datagrams.free(), all, "one is out");
    drop(received(pending));
    assert_eq!(bench.datagrams.free(), all);
}

#[test]
fn a_datagram_changes_places_with_the_clients_page_and_no_other_page_comes_into_the_ring() {
    let test = "a_datagram_changes_places_with_the_clients_page_and_no_other_page_comes_into_the_ring";
    for (splits, offset) in [(false, OFFSET), (true, 0)] {
        let Some(mut bench) = Bench::new(test, &Queue { splits, ..small() }) else { return };
        let socket = bench.socket(PORT);
        let (mut kept, mut seen, mut object) = (Vec::new(), BTreeSet::new(), None);
        for round in 0..400 {
            let data = pattern(round, LEN - round as usize % 3);
            let buffer = bench.buffer(offset, data.len());
            let before = place(&buffer);
            assert_ne!(Some(before.0), object, "the client's own page is in the object");
            let pending = socket.submit(In::owned(Scheme::EmulatedCopy, buffer)).expect("a request");
            bench.send(PORT, std::slice::from_ref(&data));
            let (buffer, receipt) = received(pending);
            same(&buffer, &data, "the data");
            assert_eq!((receipt.swapped, receipt.copied, receipt.reason), (1, 0, None), "{receipt}");
            let (number, page) = place(&buffer);
            assert_eq!(*object.get_or_insert(number), number, "the page is of another object");
            // The kernel stores headers in every other page.
            assert!(!splits || page % 2 == 1, "page {page}");
            seen.insert(page);
            // Some stay with the client meanwhile.
            if round % 10 == 0 {
                kept.push((data, buffer));
            }
        }
        assert!(seen.len() > 64, "only {} pages of the object were used", seen.len());
        for (data, buffer) in kept {
            same(&buffer, &data, "what the client has kept");
        }
        assert_eq!(bench.receiver.counters().dropped, 0);
        checked(bench.genie.space());
    }
}

#[test]
fn the_first_part_of_a_long_datagram_is_swapped_and_a_client_that_asks_for_copying_gets_a_copy() {
    let test = "the_first_part_of_a_long_datagram_is_swapped_and_a_client_that_asks_for_copying_gets_a_copy";
    let Some(mut bench) = Bench::new(test, &small()) else { return };
    let socket = bench.socket(PORT);
    for (round, len) in [1, 1400, LEN, LEN + 1, 8192, 8972].into_iter().enumerate() {
        for is_swapped in [true, false] {
            let (data, mut room) = (pattern(round as u64, len), bench.buffer(OFFSET, len));
            room.fill(0xee);
            let room = if is_swapped {
                In::owned(Scheme::EmulatedCopy, room)
            } else {
                In::owned(Scheme::Copy, room)
            };
            let pending = socket.submit(room).expect("a request");
            bench.send(PORT, std::slice::from_ref(&data));
            let (buffer, receipt) = received(pending);
            same(&buffer, &data, len);
            let whole = if is_swapped { len.min(LEN) } else { 0 };
            assert_eq!((receipt.swapped > 0, receipt.copied), (is_swapped, len - whole), "{len}: {receipt}");
        }
    }
    checked(bench.genie.space());
}

#[test]
fn whatever_clients_keep_frames_come_to_others() {
    let test = "whatever_clients_keep_frames_come_to_others";
    let options = Queue { away: 128, ..small() };
    let Some(mut bench) = Bench::new(test, &options) else { return };
    let (hoarder, other) = (bench.socket(PORT), bench.socket(PORT + 1));
    let free = bench.datagrams.free().segments;
    assert_eq!(free, options.receiving - options.reserve);
    // Nobody asks for these: the server has fewer than all wait.
    let data = pattern(1, LEN);
    for _ in 0..10 {
        bench.send(PORT, &vec![data.clone(); 30]);
    }
    assert!(bench.datagrams.free().segments > 0);
    let receive = |bench: &mut Bench| {
        let pending =
            other.submit(In::owned(Scheme::EmulatedCopy, bench.buffer(OFFSET, LEN))).expect("a request");
        bench.send(PORT + 1, std::slice::from_ref(&data));
        received(pending)
    };
    assert_eq!(receive(&mut bench).1.swapped, 1, "one more comes, and is swapped");
    // A client keeps the pages that it has got, and replies that it does not take.
    let room = || In::owned(Scheme::EmulatedCopy, bench.buffer(OFFSET, LEN));
    let mut kept = Vec::new();
    for _ in 0..free {
        let Some(pending) =
            Some(hoarder.submit(room()).expect("a request")).filter(|pending| pending.wait(Duration::ZERO))
        else {
            break;
        };
        kept.push(received(pending).0);
    }
    assert!(kept.len() > 32, "{} datagrams waited", kept.len());
    let room = |bench: &Bench| In::owned(Scheme::EmulatedCopy, bench.buffer(OFFSET, LEN));
    let mut untaken = Vec::new();
    for _ in 0..options.receiving {
        let Ok(pending) = hoarder.submit(room(&bench)) else { break };
        bench.send(PORT, std::slice::from_ref(&data));
        untaken.push(pending);
    }
    // Now only the reserve is left: frames come, and are dropped.
    assert_eq!(bench.datagrams.free().segments, 0);
    let dropped = bench.datagrams.adapter().no_buffers;
    assert!(dropped > 0);
    for _ in 0..4 {
        bench.send(PORT + 1, &vec![data.clone(); 20]);
    }
    assert_eq!(bench.datagrams.adapter().no_buffers, dropped + 80);
    // As soon as some are taken, others get theirs.
    drop(untaken);
    drop(kept);
    let (buffer, _) = receive(&mut bench);
    same(&buffer, &data, "the data");
    assert_eq!(bench.receiver.counters().dropped, 0, "the kernel always had a buffer");
    checked(bench.genie.space());
}

#[test]
fn datagrams_of_the_kernels_sockets_are_swapped_and_answered_whoever_has_summed_them() {
    let test = "datagrams_of_the_kernels_sockets_are_swapped_and_answered_whoever_has_summed_them";
    for (mtu, splits) in [(9000, false), (9000, true), (65_535, true)] {
        let Some(pair) = pair(test, mtu) else { return };
        let [theirs, ours] = &pair.ends;
        let genie = interface(space(), Limits::default(), Thresholds::ALWAYS);
        let queue = Queue { splits, ..small() };
        let Some(xdp) = open_in(genie.space(), test, ours, &queue) else { return };
        let mut options = datagram::Options::new(ours.interface.station, [ours.v4.into(), ours.v6.into()]);
        for host in [IpAddr::from(theirs.v4), theirs.v6.into()] {
            options = options.neighbour(host, theirs.interface.station);
        }
        options.mtu = mtu as usize;
        let datagrams = Datagrams::new(genie.clone(), Box::new(xdp.adapter()), options);
        let link = Link::new(&ours.interface.name, xdp, driver::Options::default()).expect("descriptors");
        datagrams.attach_link(&link).expect("nobody has either");
        let socket =
            Socket::open(&genie, &ServerHandle::new(datagrams.clone()), &Open::default()).expect("a port");
        for (is_v6, headers) in [(false, 42), (true, 62)] {
            // Where data begins in its page, and how much of it is in there.
            let (offset, whole) = if splits { (0, 3840) } else { (256 + headers, 3840 - headers) };
            let kernels = kernel(theirs, is_v6);
            let (here, there) = (host(ours, is_v6), kernels.local_addr().unwrap());
            let longest = mtu as usize + 14 - headers;
            for is_partial in [true, false] {
                theirs.offload_checksums(is_partial).expect("a link of ours");
                let lengths = [1, 14, 1400, whole, whole + 1, 4096, 4097, 8192, 8975, longest];
                for (seed, len) in lengths.into_iter().filter(|len| *len <= longest).enumerate() {
                    let what = format!("{len} bytes from {there}, MTU {mtu}, splitting: {splits}");
                    let data = pattern(seed as u64, len);
                    let room = genie.allocate_at(offset, len).expect("memory");
                    let pending = socket.submit(In::owned(Scheme::EmulatedCopy, room)).expect("a request");
                    kernels.send_to(&data, (here, socket.port())).expect(&what);
                    let (buffer, receipt) = received(pending);
                    same(&buffer, &data, &what);
                    // Headers stay in front of data that is shorter than those of an Ethernet.
                    let whole = if splits && len < 14 { 0 } else { whole };
                    // The data of 16 pages of the object makes up 15: the next one begins where a page does, too.
                    let parts = [len.min(whole), len.saturating_sub(15 * 4096).min(3840)];
                    let swapped = parts.iter().filter(|part| **part > 0).count() as u32;
                    let expected = (swapped, len - parts.iter().sum::<usize>());
                    assert_eq!((receipt.swapped, receipt.copied), expected, "{what}: {receipt}");
                    socket.send_to(Out::copy(&data), there).expect(&what);
                    let mut answer = vec![0; len + 1];
                    assert_eq!(kernels.recv(&mut answer).expect("an answer"), len);
                    same(&answer[..len], &data, &what);
                }
            }
        }
        let counters = datagrams.counters();
        assert_eq!((counters.unsummed * 2, counters.damaged), (counters.received, 0), "{counters:?}");
        drop(socket);
        checked(genie.space());
    }
}

#[test]
fn a_host_splits_headers_off_where_that_is_asked_for_and_tells_where_data_begins() {
    let test = "a_host_splits_headers_off_where_that_is_asked_for_and_tells_where_data_begins";
    let pooled = (Driver::Xdp, "pooled buffering", OFFSET);
    for (driver, level, offset) in [pooled, (Driver::Splitting, "header/data splitting", 0)] {
        let Some(Bench { genie, receiver, pair, .. }) = Bench::new(test, &small()) else { return };
        drop(receiver);
        let Pair { ends: [_far, near] } = pair;
        let open = || Host::open(&genie, &near.interface.name, Some(driver), |_| ());
        let host = near.namespace.enter(open).expect("the queue is free");
        assert!(host.driver == driver && host.to_string().contains(level), "{host}");
        let server = ServerHandle::new(host.datagrams);
        let socket = Socket::open(&genie, &server, &Open::default()).expect("a port");
        let preferred = genie.preferred(&server, RECEIVE, &port_argument(socket.port()));
        assert_eq!(preferred.expect("an answer").preferred().expect("a layout").offset, offset);
    }
}
