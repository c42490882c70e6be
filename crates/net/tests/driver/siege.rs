//! Clients, servers and links that die under load: of none of them anything is left.
//!
//! How: servers, clients and what removes links are processes of their own, so that what each holds can be counted. Who hangs is shown with
//! the places of all its threads ([`Peer::hear`]).

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{read_dir, read_link, read_to_string};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use genie_conformance::bytes::{pattern, same};
use genie_conformance::{assert_idle, checked};
use genie_io::{Interface, ServerHandle};
use genie_net::datagram::{Open, Socket};
use genie_net::driver::interfaces::interface;
use genie_net::driver::{self, Driver};
use genie_net::namespaces::{End, Pair};
use genie_passing::Scheme;
use rustix::process::Signal;

use crate::hosts::{self, out, room, taken};
use crate::peer::{Peer, bind, connect, next_word, say};
use crate::spies::spy;
use crate::udp::{at_length, kernel, pair};
use crate::xdp::{PATIENCE, open_in, small, space};

const DRIVERS: [Driver; 2] = [Driver::PacketSocket, Driver::Xdp];
/// How many requests to receive a client has waiting.
const WAITING: usize = 12;

fn rounds() -> usize {
    at_length(4, 200)
}

/// Plays a part in another process.
pub(crate) fn play(place: &Path, task: &[&str]) {
    let driver = |number: &str| DRIVERS[number.parse::<usize>().expect("a number")];
    match task {
        ["serve", number] => serve(place, driver(number)),
        ["load", to] => load(place, to.parse().expect("an address")),
        ["links", number] => links(driver(number)),
        ["spy", client] => spy(place, client.parse().expect("a number")),
        _ => panic!("no task {task:?}"),
    }
}

/// A link whose first end this process may drive so; or SKIP.
fn driven(test: &str, driver: Driver) -> Option<Pair> {
    let pair = pair(test, 1500)?;
    if driver == Driver::Xdp {
        drop(open_in(&space(), test, &pair.ends[0], &small())?);
    }
    Some(pair)
}

fn open(genie: &Interface, driver: Driver) -> driver::Host {
    driver::Host::open(genie, "genie0", Some(driver), |_| {}).expect("a server on the interface")
}

/// Removes an interface, and so the link.
pub(crate) fn remove(end: &End) {
    let args = ["link", "del", &end.interface.name, "type", "veth"];
    let removed = end.namespace.enter(|| Command::new("ip").args(args).status());
    assert!(removed.expect("`ip` of iproute2").success());
}

/// A server for clients in other processes, which says what it holds.
fn serve(place: &Path, driver: Driver) {
    let genie = hosts::open();
    let host = open(&genie, driver);
    let running = bind(place, "host", host.datagrams.clone());
    say("ready");
    let all = host.datagrams.free().segments;
    while next_word().is_some() {
        let (taken, usage) = (all - host.datagrams.free().segments, checked(genie.space()));
        let (held, clients) = (held(), running.status().clients_total);
        let count: usize = held.values().sum();
        let pending = genie.pending_bytes();
        say(format!("{clients} {count} {taken} {} {pending}|{held:?}", usage.references));
    }
}

/// What a server says that it holds: how many clients, descriptors and objects, buffers, references and bytes; and which of these.
fn reported(server: &mut Peer) -> (Vec<usize>, String) {
    let said = server.ask();
    let (numbers, which) = said.split_once('|').expect("numbers");
    (numbers.split(' ').map(|number| number.parse().expect("a number")).collect(), which.to_owned())
}

/// A client under load: it sends to what sends all back, and has requests waiting, until it is told to end, or its server is gone.
fn load(place: &Path, to: SocketAddr) {
    let genie = hosts::open();
    let server = connect(&genie, place, "host");
    let socket = Socket::open(&genie, &server, &Open::default()).expect("a port");
    let words = std::thread::spawn(|| while next_word().is_some() {});
    let said = std::sync::Once::new();
    let is_over = |count| {
        if count == 30 {
            said.call_once(|| say("under load"));
        }
        words.is_finished()
    };
    let is_well = exchange(&genie, &socket, to, &is_over).is_ok();
    drop((socket, server));
    assert_idle(&genie, 0);
    say(if is_well { "done" } else { "the server is gone" });
}

/// Sends datagrams and receives them again until that fails, or is over; by each scheme, of all lengths. The link may lose some.
fn exchange(
    genie: &Interface,
    socket: &Socket,
    to: SocketAddr,
    is_over: &dyn Fn(u64) -> bool,
) -> Result<u64, genie_io::Failed> {
    let data =
        |number: u64| [&number.to_le_bytes()[..], &pattern(number, number as usize * 37 % 1400)].concat();
    let mut schemes = Scheme::ALL.into_iter().cycle();
    let mut ask = || socket.submit(room(genie, schemes.next().expect("a scheme"), 1472));
    let mut waiting = (0..WAITING).map(|_| ask()).collect::<Result<std::collections::VecDeque<_>, _>>()?;
    let (mut sent, mut came) = (0, 0);
    while !is_over(came) {
        socket.send_to(out(genie, Scheme::ALL[sent as usize % 8], &data(sent)), to)?;
        sent += 1;
        if waiting[0].wait(Duration::from_millis(2)) {
            let (bytes, _) = taken(waiting.pop_front().expect("one").sync()?);
            let number = bytes.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
            same(&bytes, &data(number.filter(|number| *number < sent).expect("what was sent")), "an answer");
            came += 1;
            waiting.push_back(ask()?);
        }
    }
    waiting.into_iter().for_each(|pending| drop(pending.abort()));
    Ok(came)
}

/// A socket of the kernel's that sends all back.
struct Echo {
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Echo {
    fn new(end: &End) -> Self {
        let (socket, is_over) = (kernel(end, false), Arc::new(AtomicBool::new(false)));
        let (address, until) = (socket.local_addr().expect("an address"), Arc::clone(&is_over));
        socket.set_read_timeout(Some(Duration::from_millis(20))).expect("a timeout");
        let thread = std::thread::spawn(move || {
            let mut buffer = [0; 2000];
            while !until.load(Ordering::Relaxed) {
                if let Ok((len, from)) = socket.recv_from(&mut buffer) {
                    // The link may be gone.
                    let _ = socket.send_to(&buffer[..len], from);
                }
            }
        });
        Self { address, is_over, thread: Some(thread) }
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.take().expect("it was not dropped").join().expect("it sends back");
    }
}

/// Waits until something is so.
#[track_caller]
fn eventually<T: std::fmt::Debug + PartialEq>(expected: T, what: &str, mut found: impl FnMut() -> T) {
    let begun = Instant::now();
    loop {
        let found = found();
        if found == expected {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{what}: {found:?}, and not {expected:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// How many descriptors of each kind this process has, and memory objects that are mapped. Threads that served others' clients while
/// these took long stay, and what they wait by.
fn held() -> BTreeMap<String, usize> {
    let mut held = BTreeMap::new();
    let targets = read_dir("/proc/self/fd").expect("/proc is mounted").flatten();
    for target in targets.filter_map(|entry| read_link(entry.path()).ok()) {
        let target = target.to_string_lossy();
        if target.contains("eventpoll") {
            continue;
        }
        let kind = target.trim_matches(|c: char| c == ']' || c.is_ascii_digit());
        *held.entry(kind.to_owned()).or_default() += 1;
    }
    let maps = read_to_string("/proc/self/maps").expect("the maps");
    held.insert("objects".to_owned(), maps.matches("/memfd:").count());
    held
}

/// What a process has of BPF: its programs, maps and links, by the command that finds one by its number.
fn bpf_of(process: &str) -> BTreeSet<(u32, u32)> {
    let entries = read_dir(format!("/proc/{process}/fdinfo")).expect("/proc is mounted").flatten();
    let texts = entries.filter_map(|entry| read_to_string(entry.path()).ok()).collect::<Vec<_>>();
    let commands = [("prog_id:", 13), ("map_id:", 14), ("link_id:", 30)];
    let number = |line: &str| {
        let (_, command) = commands.iter().find(|(name, _)| line.starts_with(name))?;
        Some((*command, line.split_whitespace().nth(1)?.parse().ok()?))
    };
    texts.iter().flat_map(|text| text.lines()).filter_map(number).collect()
}

/// Which of these the kernel still has. Numbers are not used again soon.
#[allow(unsafe_code, reason = "calls bpf with the numbers that it asks for")]
fn still_there(bpf: &BTreeSet<(u32, u32)>) -> Vec<(u32, u32)> {
    use std::os::fd::{FromRawFd, OwnedFd};
    let is_there = |&(command, number): &(u32, u32)| {
        let asked = [number, 0, 0];
        // SAFETY: the kernel loads the three numbers.
        let found = unsafe { libc::syscall(libc::SYS_bpf, command, &raw const asked, size_of_val(&asked)) };
        found >= 0 && {
            // SAFETY: the kernel has made this descriptor just now.
            drop(unsafe { OwnedFd::from_raw_fd(found as i32) });
            true
        }
    };
    bpf.iter().copied().filter(is_there).collect()
}

/// Has an interface go under load, again and again. What this process holds in the end it held after the first round.
fn links(driver: Driver) {
    let mut random = fastrand::Rng::with_seed(31);
    let mut first = None;
    for round in 0..=rounds() {
        let Pair { ends: [ours, theirs] } = Pair::new(1500).expect("the test has made one");
        let genie = hosts::open();
        let host = ours.namespace.enter(|| open(&genie, driver));
        let handle = ServerHandle::new(host.datagrams.clone());
        let socket = Socket::open(&genie, &handle, &Open::default()).expect("a port");
        let (bpf, echo) = (bpf_of("self"), Echo::new(&theirs));
        assert_eq!(bpf.is_empty(), driver == Driver::PacketSocket, "{bpf:?}");
        let (pause, gone) =
            (Duration::from_micros(random.u64(..8000)), if round % 2 == 0 { &ours } else { &theirs });
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(pause);
                remove(gone);
            });
            let failed =
                exchange(&genie, &socket, echo.address, &|_| false).expect_err("the interface is gone");
            assert!(failed.error.to_string().contains("genie0"), "{}", failed.error);
        });
        drop((socket, handle, host, echo));
        assert_idle(&genie, 0);
        drop((genie, ours, theirs));
        eventually(vec![], "programs, maps and links", || still_there(&bpf));
        eventually(first.get_or_insert_with(held).clone(), "what is held", held);
    }
    say("all are gone");
}

#[test]
fn of_links_that_are_removed_under_load_nothing_is_left() {
    let test = "of_links_that_are_removed_under_load_nothing_is_left";
    for (number, driver) in DRIVERS.into_iter().enumerate() {
        if driven(test, driver).is_none() {
            continue;
        }
        let place = tempfile::tempdir().expect("a directory");
        Peer::start(place.path(), &format!("links {number}")).says("all are gone");
    }
}

#[test]
fn of_clients_that_are_killed_under_load_nothing_is_left_and_a_stopped_one_holds_up_nobody() {
    let test = "of_clients_that_are_killed_under_load_nothing_is_left_and_a_stopped_one_holds_up_nobody";
    for (number, driver) in DRIVERS.into_iter().enumerate() {
        let Some(Pair { ends: [ours, theirs] }) = driven(test, driver) else { continue };
        let (place, echo) = (tempfile::tempdir().expect("a directory"), Echo::new(&theirs));
        let client = format!("load {}", echo.address);
        let client = || {
            let mut client = Peer::start(place.path(), &client);
            client.says("under load");
            client
        };
        let mut server = ours.namespace.enter(|| Peer::start(place.path(), &format!("serve {number}")));
        server.says("ready");
        drop(client());
        let mut random = fastrand::Rng::with_seed(number as u64);
        let mut before = reported(&mut server);
        eventually(true, "the first client is gone", || {
            let last = std::mem::replace(&mut before, reported(&mut server));
            std::thread::sleep(Duration::from_millis(20));
            last == before && before.0[0] == 0
        });
        let (good, stopped) = (client(), client());
        stopped.signal(Signal::STOP);
        for _ in 0..rounds() {
            let client = client();
            std::thread::sleep(Duration::from_micros(random.u64(..8000)));
            drop(client);
        }
        stopped.signal(Signal::CONT);
        [good, stopped].into_iter().for_each(Peer::ends);
        // There may be less: something of the first client's may have been there still.
        eventually(None, "the server holds more than before", || {
            let now = reported(&mut server);
            let is_more = now.0.iter().zip(&before.0).any(|(now, before)| now > before);
            is_more.then(|| format!("{now:?}, where it was {before:?}"))
        });
    }
}

#[test]
fn of_servers_that_are_killed_under_load_nothing_is_left_and_their_clients_are_told() {
    let test = "of_servers_that_are_killed_under_load_nothing_is_left_and_their_clients_are_told";
    for (number, driver) in DRIVERS.into_iter().enumerate() {
        let Some(Pair { ends: [ours, theirs] }) = driven(test, driver) else { continue };
        let (place, echo) = (tempfile::tempdir().expect("a directory"), Echo::new(&theirs));
        for round in 0..rounds() {
            let mut server = ours.namespace.enter(|| Peer::start(place.path(), &format!("serve {number}")));
            server.says("ready");
            let mut client = Peer::start(place.path(), &format!("load {}", echo.address));
            client.says("under load");
            let bpf = bpf_of(&server.pid().to_string());
            assert_eq!(bpf.is_empty(), driver == Driver::PacketSocket, "{bpf:?}");
            // One that has stopped dies as well.
            if round % 2 == 1 {
                server.signal(Signal::STOP);
                std::thread::sleep(Duration::from_millis(5));
            }
            drop(server);
            client.says("the server is gone");
            eventually(vec![], "programs, maps and links", || still_there(&bpf));
        }
        // The link goes with the namespace, as soon as nobody has it any more.
        drop(ours);
        eventually(false, "the namespace is there", || {
            theirs.namespace.enter(|| interface("genie1")).is_ok()
        });
    }
}
