//! Servers in processes of their own, and clients that die.

use std::path::Path;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use genie_channel::{Listener, Running, ServeOptions};
use genie_conformance::bytes::{pattern, same};
use genie_io::{Out, ServerHandle};
use genie_net::datagram::{Datagrams, Open, SEND, Socket, send_argument};
use genie_net::{Wire, wire};
use genie_passing::Scheme;
use genie_sys::poll::readable;

use crate::hosts::{Hosts, Level, address, host, open, out, room, synced, taken};
use crate::peer::{Peer, bind, connect, directory, next_word, say};
use crate::sight::{in_sight, marked};

/// Plays a part in another process.
pub(crate) fn play(place: &Path, task: &[&str]) {
    match task {
        ["host", number, other, level] => {
            let [number, other, level] = [number, other, level].map(|word| word.parse().expect("a number"));
            serve(place, [number, other], Level::ALL[level]);
        }
        ["hold"] => hold(place),
        ["spy", len] => spy(place, len.parse().expect("a length")),
        _ => panic!("no task {task:?}"),
    }
}

/// Is a host: a datagram server, the wire that leads to it, and a client of the wire that leads to the other host.
fn serve(place: &Path, [number, other]: [usize; 2], level: Level) {
    let genie = open();
    let options = ServeOptions { pool: 2 << 20, ..ServeOptions::default() };
    let listener = Listener::claim_in(&directory(place), &format!("host{number}"), options).expect("a name");
    let adapter = level.adapter(listener.private_pool().expect("memory"));
    let server = Datagrams::new(genie.clone(), adapter, crate::hosts::options(number));
    let wire = Wire::new(wire::Options::default(), wire::Clock::default(), server.station()).expect("a wire");
    let _wire = bind(place, &format!("wire{number}"), wire);
    server.attach(connect(&genie, place, &format!("wire{other}"))).expect("a wire");
    let running = listener.serve(server.clone()).expect("a server").start().expect("threads");
    say("ready");
    while next_word().is_some() {
        let counts = running.traffic().total();
        say(format!("{} copied, {} passed", counts.in_copied, counts.in_passed));
    }
}

struct Nobody;

impl wire::Station for Nobody {
    fn arrive(&self, _frame: &genie_net::Frame<'_>) {}
}

/// The wire's replies come to the server's interface, which the client's event loop does not know.
#[test]
fn an_event_loop_is_woken_for_what_the_wire_replies_to_the_server() {
    let place = tempfile::tempdir().expect("a directory");
    let slow = wire::Options { delay: Duration::from_millis(100), ..wire::Options::default() };
    let wire = Wire::new(slow, wire::Clock::default(), Nobody).expect("a wire");
    let _wire = bind(place.path(), "wire", wire);
    let (client, own) = (open(), open());
    let server = Datagrams::new(own.clone(), Level::Pooled.adapter(own.space()), crate::hosts::options(0));
    server.attach(connect(&own, place.path(), "wire")).expect("a wire");
    let server = ServerHandle::new(server);
    let socket = Socket::open(&client, &server, &Open::default()).expect("a port");
    let to = send_argument(socket.port(), Some((host(1, false), 9).into()));
    // Without data, for which there would be a copy: the interfaces have no memory together.
    let request = client.request(&server, SEND).argument(&to).out(Out::copy(&[]));
    let pending = request.submit().expect("a request");
    let descriptor = client.descriptor().expect("a descriptor");
    let is_readable = |timeout| readable(descriptor, Some(timeout)).expect("a descriptor");
    assert!(!pending.is_replied(), "the frame is on its way");
    let mut context = Context::from_waker(Waker::noop());
    while pending.poll(&mut context).is_pending() {
        assert!(
            !client.arm() || is_readable(Duration::from_secs(60)),
            "the server's interface tells the client's"
        );
        client.collect();
    }
    pending.sync().expect("it is sent");
}

#[test]
fn servers_in_processes_of_their_own_pass_datagrams_by_every_scheme() {
    for (index, level) in Level::ALL.into_iter().enumerate() {
        let place = tempfile::tempdir().expect("a directory");
        let mut hosts =
            [0, 1].map(|number| Peer::start(place.path(), &format!("host {number} {} {index}", 1 - number)));
        hosts.iter_mut().for_each(|host| host.says("ready"));
        let genie = open();
        let [alice, bob] = [0, 1].map(|number| {
            let server = connect(&genie, place.path(), &format!("host{number}"));
            Socket::open(&genie, &server, &Open::default()).expect("a port")
        });
        for (seed, len) in [0, 1, 17, 1472, 8192, 60_000].into_iter().enumerate() {
            for scheme in Scheme::ALL {
                for waits in [true, false] {
                    let (bytes, to) = (pattern(seed as u64, len), address(1, seed % 2 == 1, &bob));
                    let receive = || bob.submit(room(&genie, scheme, len.max(1))).expect("a request");
                    let before = waits.then(receive);
                    // What was submitted has been taken from the ring when this is answered.
                    bob.statistics().expect("counters");
                    let sent = alice.send_to(out(&genie, scheme, &bytes), to).expect("it is sent");
                    let (reply, arrived) = synced(before.unwrap_or_else(receive)).expect("it arrives");
                    let what = format!("{level:?}, {len} bytes by {scheme}, waits {waits}");
                    assert_eq!(
                        (arrived.len, arrived.from),
                        (len, address(0, seed % 2 == 1, &alice)),
                        "{what}"
                    );
                    if scheme != Scheme::Copy && len >= 8192 {
                        // The client copies nothing: its input's buffer is the server's pool's, which both processes see.
                        assert_eq!(sent.receipt().copied, 0, "{what}, output");
                        let copied = reply.receipt().copied;
                        assert!(copied == 0 || len % 4096 != 0 && copied < 4096, "{what}, input: {copied}");
                    }
                    same(&taken(reply).0, &bytes, &what);
                }
            }
        }
        // The server has copied what was in its own buffers.
        let before = hosts[1].ask();
        let pending = bob.submit(room(&genie, Scheme::EmulatedCopy, 8192)).expect("a request");
        bob.statistics().expect("counters");
        alice.send_to(Out::copy(&pattern(1, 8192)), address(1, false, &bob)).expect("it is sent");
        synced(pending).expect("it arrives");
        let counts = [before, hosts[1].ask()].map(|said| {
            let numbers: Vec<u64> =
                said.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse().ok()).collect();
            (numbers[0], numbers[1])
        });
        let (copied, passed) = (counts[1].0 - counts[0].0, counts[1].1 - counts[0].1);
        let expected = if level.keeps_lists() || level == Level::Outboard { (0, 8192) } else { (8192, 0) };
        assert_eq!((copied, passed), expected, "{level:?}");
        drop((alice, bob));
        genie_conformance::assert_idle(&genie, 0);
    }
}

/// Both hosts here, for clients in other processes.
pub(crate) struct Reached {
    pub(crate) hosts: Hosts,
    pub(crate) place: tempfile::TempDir,
    running: Running,
}

impl Reached {
    pub(crate) fn new(level: Level) -> Self {
        let (hosts, place) = (Hosts::new(level), tempfile::tempdir().expect("a directory"));
        let running = bind(place.path(), "host1", hosts.servers[1].clone());
        Self { hosts, place, running }
    }
}

/// How many clients are in a process that is killed, and how many requests each of them has waiting.
const CLIENTS: usize = 10;
const REQUESTS: usize = 4;

/// Has ports, requests that wait there and datagrams that do, until it is killed.
fn hold(place: &Path) {
    let genie = open();
    let clients: Vec<_> = (0..CLIENTS).map(|_| connect(&genie, place, "host1")).collect();
    let sockets: Vec<_> = clients
        .iter()
        .enumerate()
        .flat_map(|(index, server)| [1000, 2000].map(|port| (server, port + index as u16)))
        .map(|(server, port)| {
            Socket::open(&genie, server, &Open { port, ..Open::default() }).expect("a port")
        })
        .collect();
    let waits = |socket: &&Socket| socket.port() < 2000;
    let pending: Vec<_> = sockets
        .iter()
        .filter(waits)
        .flat_map(|socket| (0..REQUESTS).map(|_| socket.submit(room(&genie, Scheme::EmulatedCopy, 9000))))
        .map(|pending| pending.expect("a request"))
        .collect();
    for socket in &sockets {
        socket.statistics().expect("counters");
    }
    say(format!("{} wait", pending.len()));
    next_word();
}

#[test]
fn of_clients_that_are_killed_with_posted_requests_nothing_is_left() {
    let kills = std::env::var("GENIE_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(70);
    for level in Level::ALL {
        let reached = Reached::new(level);
        let alice = reached.hosts.socket(0);
        for _ in 0..kills / (CLIENTS * Level::ALL.len()) {
            let mut peer = Peer::start(reached.place.path(), "hold");
            peer.says(&format!("{} wait", CLIENTS * REQUESTS));
            // Of each port's requests one gets a datagram, and datagrams wait.
            for port in (0..CLIENTS as u16).flat_map(|index| [1000 + index, 2000 + index]) {
                alice.send_to(Out::copy(&[1; 5000]), (host(1, false), port).into()).expect("it is sent");
            }
            drop(peer);
            // The server hears of each in turn, and then all ports are free.
            let deadline = Instant::now() + Duration::from_secs(60);
            for port in (0..CLIENTS as u16).flat_map(|index| [1000 + index, 2000 + index]) {
                let open = Open { port, ..Open::default() };
                while Socket::open(&reached.hosts.genie, &reached.hosts.handles[1], &open).is_err() {
                    assert!(Instant::now() < deadline, "port {port} is not free");
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        }
        assert_eq!(reached.hosts.servers[1].counters().unclaimed, 0);
        drop(alice);
        reached.running.stopper().stop();
        reached.running.wait();
        reached.hosts.assert_buffers_free();
        reached.hosts.assert_idle(level);
    }
}

/// The number of the client that the spy looks for.
const BOB: u8 = 2;

/// Receives datagrams of its own, posted and queued, and looks for another client's in all the memory that it can see.
fn spy(place: &Path, len: usize) {
    let genie = open();
    let server = connect(&genie, place, "host1");
    let socket = Socket::open(&genie, &server, &Open { port: 9, ..Open::default() }).expect("a port");
    say("ready");
    while next_word().is_some() {
        let pending: Vec<_> = (0..4)
            .map(|_| socket.submit(room(&genie, Scheme::EmulatedCopy, len)).expect("a request"))
            .collect();
        socket.statistics().expect("counters");
        say("waits");
        next_word();
        for pending in pending {
            taken(synced(pending).expect("it arrives").0);
        }
        for scheme in Scheme::ALL {
            let (reply, _) =
                synced(socket.submit(room(&genie, scheme, len)).expect("a request")).expect("it waits");
            taken(reply);
        }
        let [found] = in_sight([BOB]);
        say(format!("{found} found"));
    }
}

#[test]
fn a_client_finds_no_other_clients_data_in_what_it_can_see() {
    for level in Level::ALL {
        let reached = Reached::new(level);
        let (alice, len) = (reached.hosts.socket(0), 9000);
        // The other client of the server is here, and as far from it as the spy is.
        let genie = open();
        let server = connect(&genie, reached.place.path(), "host1");
        let bob = Socket::open(&genie, &server, &Open::default()).expect("a port");
        let secrets = marked(BOB, 60_000);
        let tell = |bytes: &[u8]| {
            // Some are received by requests that wait, and some wait.
            let receive = || bob.submit(room(&genie, Scheme::EmulatedCopy, bytes.len())).expect("a request");
            let first = receive();
            bob.statistics().expect("counters");
            for _ in 0..3 {
                alice.send_to(Out::copy(bytes), address(1, false, &bob)).expect("it is sent");
            }
            for pending in [first, receive(), receive()] {
                same(&taken(synced(pending).expect("it arrives").0).0, bytes, "what bob receives");
            }
        };
        let mut spy = Peer::start(reached.place.path(), &format!("spy {len}"));
        spy.says("ready");
        let send = |bytes: &[u8]| {
            alice.send_to(Out::copy(bytes), (host(1, false), 9).into()).map(drop).expect("it is sent");
        };
        for sent in [1, 5000, 20_000] {
            tell(&secrets);
            assert_eq!(spy.ask(), "waits");
            tell(&secrets);
            (0..4 + Scheme::ALL.len()).for_each(|_| send(&vec![7; sent]));
            assert_eq!(spy.ask(), "0 found", "{level:?}, datagrams of {sent} bytes");
        }
        // It finds what it is sent.
        assert_eq!(spy.ask(), "waits");
        (0..4 + Scheme::ALL.len()).for_each(|_| send(&secrets[..16]));
        assert_ne!(spy.ask(), "0 found", "{level:?}");
    }
}
