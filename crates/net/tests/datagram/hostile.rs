//! Hostile frames, and wires in other processes: nothing hangs, and nobody starves.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use genie_channel::directory::Directory;
use genie_channel::{Connect, ConnectOptions, Listener, ServeOptions};
use genie_io::{Interface, Out, ServerHandle};
use genie_memory::Data;
use genie_net::adapter::Outboard;
use genie_net::datagram::{self, Datagrams, Open, Socket};
use genie_net::packet::{Between, Header, Hosts as Ips};
use genie_net::transfer::{self, Receiving, Shape, Transfers, port};
use genie_net::wire::{self, Clock, Options, TRANSMIT};
use genie_net::{Frame, Wire};
use genie_passing::Scheme;

use crate::hosts::{Hosts, Level, STATIONS, host, open, options, room, synced};

const PLACE: &str = "GENIE_HOSTILE_PLACE";

/// Runs it in a thread; a hang fails.
#[track_caller]
fn bounded<T: Send + 'static>(seconds: u64, act: impl FnOnce() -> T + Send + 'static) -> T {
    let (tell, told) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let result = act();
        let _ = tell.send(());
        result
    });
    match told.recv_timeout(Duration::from_secs(seconds)) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("it hangs: not over after {seconds} s"),
        _ => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
    }
}

fn ip_header(port: u16, len: usize) -> Vec<u8> {
    let (std::net::IpAddr::V4(from), std::net::IpAddr::V4(to)) = (host(0, false), host(1, false)) else {
        unreachable!()
    };
    let header = Header {
        stations: Between { from: STATIONS[0], to: STATIONS[1] },
        hosts: Ips::V4(Between { from, to }),
        ports: Between { from: 1, to: port },
        len: len as u16,
        checksum: 0,
    };
    header.build().expect("a header").to_vec()
}

/// Has a frame arrive at a station.
fn arrive(station: &impl wire::Station, bytes: &[u8]) {
    station.arrive(&Frame::new(Data::from(bytes)));
}

/// Frames that are filled up hold more of the adapter's memory than they are counted for.
#[test]
fn frames_that_are_filled_up_far_leave_outboard_memory_for_others() {
    let genie = open();
    let mut options = options(1);
    options.limits.held_bytes = 256 << 10; // of 1 MiB
    let server = Datagrams::new(genie.clone(), Box::new(Outboard::new(1 << 20)), options);
    let handle = ServerHandle::new(server.clone());
    let eve = Socket::open(&genie, &handle, &Open::default()).expect("a port");
    let bob = Socket::open(&genie, &handle, &Open::default()).expect("a port");
    let mut frame = ip_header(eve.port(), 1);
    for len in [60_000, 10_000, 1000, 100] {
        frame.resize(len, 0);
        (0..20).for_each(|_| arrive(&server.station(), &frame));
    }
    let mut good = ip_header(bob.port(), 100);
    good.extend([7; 100]);
    let before = server.adapter().no_buffers;
    arrive(&server.station(), &good);
    assert_eq!(
        server.adapter().no_buffers,
        before,
        "bob's datagram was dropped: eve's 32 datagrams of a byte hold all the memory, where they are allowed a quarter"
    );
}

#[test]
fn damage_of_any_number_of_bits_ends() {
    bounded(10, || {
        let sink = genie_net::traffic::Sink::new(1, 0, Clock::default());
        let options = Options { damage: 1.0, damaged_bits: usize::MAX, ..Options::default() };
        let Ok(wire) = Wire::new(options, Clock::default(), sink) else { return };
        let genie = open();
        drop(genie.request(&ServerHandle::new(wire), TRANSMIT).out(Out::copy(b"x")).send());
    });
}

/// Every truncation of a frame while requests are posted, and lengths that lie.
#[test]
fn frames_that_lie() {
    for level in Level::ALL {
        bounded(60, move || {
            let hosts = Hosts::new(level);
            let bob = hosts.opened(1, &Open { port: 9, ..Open::default() });
            let station = hosts.servers[1].station();
            let mut random = fastrand::Rng::with_seed(5);
            let mut waiting: std::collections::VecDeque<_> = (0..3)
                .map(|_| bob.submit(room(&hosts.genie, Scheme::EmulatedCopy, 5000)).expect("asked"))
                .collect();
            let whole = {
                let mut whole = ip_header(9, 4500);
                whole.extend([7; 4500]);
                whole
            };
            for len in (0..whole.len()).step_by(7).chain(0..80) {
                arrive(&station, &whole[..len]);
                assert!(!waiting[0].is_replied(), "{level:?}: {len} bytes of a frame were taken for all");
            }
            for _ in 0..20_000 {
                let mut frame = whole.clone();
                for _ in 0..random.usize(1..4) {
                    frame[random.usize(12..42)] = random.u8(..);
                }
                if random.bool() {
                    // The IP header's checksum is made right.
                    let header = (usize::from(frame[14] & 15) * 4).clamp(20, 60);
                    (frame[24], frame[25]) = (0, 0);
                    let sum: u32 = frame[14..14 + header]
                        .chunks(2)
                        .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]))
                        .sum();
                    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
                    frame[24..26].copy_from_slice(&sum.to_be_bytes());
                }
                frame.truncate(random.usize(30..frame.len()));
                frame.resize(frame.len() + random.usize(0..30_000), 7);
                arrive(&station, &frame);
                while waiting[0].is_replied() {
                    let (mut reply, arrived) = synced(waiting.pop_front().expect("one")).expect("a datagram");
                    let (actual, buffer) = (reply.actual(), reply.take_buffer().expect("it"));
                    assert_eq!(actual, arrived.len.min(5000));
                    let wrong = buffer[..actual].iter().filter(|byte| **byte != 7).count();
                    assert!(wrong < 80, "{level:?}: {wrong} of {actual}");
                    assert!(buffer[actual..].iter().all(|byte| *byte == 0xee), "{level:?}: behind the end");
                    waiting.push_back(
                        bob.submit(room(&hosts.genie, Scheme::EmulatedCopy, 5000)).expect("asked"),
                    );
                }
            }
            drop((waiting, bob));
            hosts.check();
            hosts.assert_idle(level);
        });
    }
}

#[test]
#[ignore = "it is the other process"]
fn peer() {
    let Some(place) = std::env::var_os(PLACE).map(std::path::PathBuf::from) else { return };
    let directory = Directory::at(place.join("run")).expect("a run-time directory");
    let sink = genie_net::traffic::Sink::new(1, 0, Clock::default());
    let wire = Wire::new(Options::default(), Clock::default(), sink).expect("a wire");
    let _running = Listener::bind_in(
        &directory,
        "wire",
        wire,
        ServeOptions { pool: 2 << 20, ..ServeOptions::default() },
    )
    .expect("a listener")
    .start()
    .expect("threads");
    println!("\nready");
    std::thread::sleep(Duration::from_secs(100));
}

/// Starts a process with a wire, and waits until it is there.
fn other_process(place: &Path) -> Child {
    let mut program = Command::new(std::env::current_exe().expect("the test's path"));
    program.args(["hostile::peer", "--exact", "--ignored", "--nocapture"]).env(PLACE, place);
    let mut child = program.stdout(Stdio::piped()).spawn().expect("a process");
    let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
    assert!(lines.by_ref().map_while(Result::ok).any(|line| line.contains("ready")));
    child
}

/// That wire.
fn wire_at(genie: &Interface, place: &Path) -> ServerHandle {
    let directory = Directory::at(place.join("run")).expect("a directory");
    let patient = ConnectOptions { wait: Duration::from_secs(20), ..ConnectOptions::default() };
    genie.connect_with(&directory, "wire", &patient).expect("a connection")
}

/// With checksums that are integrated, a client that waits for nothing can go on sending, by a wire in another process that takes all.
#[test]
fn integrated_sending_by_a_wire_elsewhere_goes_on() {
    bounded(60, move || {
        let place = tempfile::tempdir().expect("a directory");
        let mut child = other_process(place.path());
        let genie = open();
        let mut options = options(0);
        options.summing = datagram::Summing::Integrated;
        let server = Datagrams::new(genie.clone(), Level::Pooled.adapter(genie.space()), options);
        server.attach(wire_at(&genie, place.path())).expect("a wire");
        let handle = ServerHandle::new(server.clone());
        let alice = Socket::open(&genie, &handle, &Open::default()).expect("a port");
        let to = (host(1, false), 9).into();
        let (mut refused, mut count) = (0, 0);
        for _ in 0..200 {
            count += 1;
            if let Err(failed) = alice.send_to(Out::copy(&[1; 500]), to) {
                if refused == 0 {
                    println!("the {count}th: {}", failed.error)
                }
                refused += 1;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let counters = alice.statistics().expect("counters");
        let _ = child.kill();
        let _ = child.wait();
        assert_eq!(refused, 0, "of 200 datagrams, one each 5 ms; {counters:?}");
    });
}

/// A server whose wire is in another process replies to what it sends.
#[test]
fn transfers_by_a_wire_elsewhere_are_replied_to() {
    bounded(60, move || {
        let place = tempfile::tempdir().expect("a directory");
        let mut child = other_process(place.path());
        let mut found = Vec::new();
        {
            let genie = open();
            let wire = wire_at(&genie, place.path());
            let datagrams = Datagrams::new(genie.clone(), Level::Pooled.adapter(genie.space()), options(0));
            datagrams.attach(wire.clone()).expect("a wire");
            let datagrams = ServerHandle::new(datagrams);
            let alice = Socket::open(&genie, &datagrams, &Open::default()).expect("a port");
            let argument = datagram::send_argument(alice.port(), Some((host(1, false), 9).into()));
            let sent = genie
                .request(&datagrams, datagram::SEND)
                .argument(&argument)
                .out(Out::copy(&[1; 500]))
                .timeout(Duration::from_secs(2))
                .send();
            found.push(format!("a datagram: {:?}", sent.map(|_| ()).map_err(|failed| failed.error)));
            let none = Box::new(Outboard::new(0));
            let transfers = Transfers::new(genie.clone(), none, Receiving::of(Shape::of(1000)));
            transfers.attach(wire).expect("a wire");
            let transfers = ServerHandle::new(transfers);
            let sent = genie
                .request(&transfers, transfer::SEND)
                .argument(&port(7))
                .out(Out::copy(&[1; 500]))
                .timeout(Duration::from_secs(2))
                .send();
            found.push(format!("a transfer: {:?}", sent.map(|_| ()).map_err(|failed| failed.error)));
        }
        let _ = child.kill();
        let _ = child.wait();
        assert!(found.iter().all(|found| found.ends_with("Ok(())")), "{found:#?}");
    });
}

/// Nobody waited for the replies of a wire that came later, and for its successor's nobody asked.
#[test]
fn a_wire_elsewhere_is_attached_before_clients_come_and_another_one_takes_its_place() {
    bounded(60, move || {
        let place = tempfile::tempdir().expect("a directory");
        let mut child = other_process(place.path());
        let (genie, options) = (open(), || options(0));
        let server = || Datagrams::new(genie.clone(), Level::Pooled.adapter(genie.space()), options());
        let late = server();
        let handle = ServerHandle::new(late.clone());
        let error = late.attach(wire_at(&genie, place.path())).expect_err("clients wait for no replies");
        assert!(
            error.is_misuse() && error.to_string().contains("before the first `ServerHandle`"),
            "{error}"
        );
        let error = late.attach(handle).expect_err("it is no wire");
        assert!(error.is_misuse() && error.to_string().contains("datagram is no wire"), "{error}");

        let server = server();
        server.attach(wire_at(&genie, place.path())).expect("a wire");
        let handle = ServerHandle::new(server.clone());
        let alice = Socket::open(&genie, &handle, &Open::default()).expect("a port");
        let send = || alice.send_to(Out::copy(b"x"), (host(1, false), 9).into()).map(drop);
        send().expect("it is sent");
        let _ = child.kill();
        let _ = child.wait();
        send().expect_err("the wire is gone");
        let mut child = other_process(place.path());
        server.attach(wire_at(&genie, place.path())).expect("another wire");
        let sent = send();
        let _ = child.kill();
        let _ = child.wait();
        sent.expect("it is sent by the other one");
    });
}
