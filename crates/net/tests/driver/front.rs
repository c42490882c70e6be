//! Several processes behind a front: each has its own datagrams, in memory of its own, and nothing else.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, UdpSocket};
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use genie_conformance::bytes::same;
use genie_conformance::machine::skip;
use genie_io::{In, Out, ServerHandle};
use genie_net::datagram::{Open, Socket};
use genie_net::driver::interfaces::interface;
use genie_net::driver::{Driver, Error, Front, Host, Rings};
use genie_net::namespaces::{End, Namespace, Pair};
use genie_sys::Errno;
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, setrlimit};

use crate::hosts;
use crate::neighbours::ip;
use crate::udp::{host, kernel, pair};
use crate::xdp::{ALONE, PATIENCE, PORT, frame, open_in, put, small, space};

const PORTS: [u16; 2] = [PORT, PORT + 1];
/// How many datagrams go to each client and back, over each version of IP.
const COUNT: usize = 20;
/// Says to a process of the first test which port it has, which one the other process has, and to which it is to speak first.
const BEHIND: &str = "GENIE_TEST_BEHIND";

/// A front on an end, or SKIP.
fn front(test: &str, end: &End) -> Option<Front> {
    match end.namespace.enter(|| Front::open(&end.interface.name)) {
        Err(Error::Kernel { source, .. }) if source.remedy.is_some_and(|remedy| remedy.contains("CAP_")) => {
            skip(test, &source.to_string());
            None
        }
        opened => Some(opened.expect("a front")),
    }
}

/// This test again, as a process in a namespace.
fn process(test: &str, namespace: &Namespace, variable: &str, value: &str) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("front::{test}"), "--nocapture"]).env(variable, value);
    namespace.enter(|| command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap())
}

/// Waits for what a process says after a word.
fn said(child: &mut Child, word: &str) -> String {
    let lines = BufReader::new(child.stdout.as_mut().unwrap()).lines().map_while(Result::ok);
    let line = lines.into_iter().find_map(|line| line.split_once(word).map(|(_, rest)| rest.to_owned()));
    line.expect("the process says it")
}

/// Looks until it is so.
#[track_caller]
pub(crate) fn until(mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "it never is");
        std::thread::yield_now();
    }
}

/// What is in all datagrams to and from a port, and nowhere else.
fn canary(port: u16) -> [u8; 16] {
    u128::from(port).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835).to_le_bytes()
}

/// How often each of these is in this process's memory objects, in which frames are.
fn found(canaries: [[u8; 16]; 2]) -> [usize; 2] {
    let (memory, mut counts) = (File::open("/proc/self/mem").unwrap(), [0; 2]);
    for line in fs::read_to_string("/proc/self/maps").unwrap().lines().filter(|line| line.contains("memfd:"))
    {
        let ends = line.split(' ').next().and_then(|range| range.split_once('-')).unwrap();
        let [start, end] = [ends.0, ends.1].map(|end| u64::from_str_radix(end, 16).unwrap());
        let mut page = [0; 4096];
        for at in (start..end).step_by(page.len()) {
            if memory.read_exact_at(&mut page, at).is_err() {
                break;
            }
            for (canary, count) in canaries.iter().zip(&mut counts) {
                *count += page.windows(16).filter(|bytes| bytes == canary).count();
            }
        }
    }
    counts
}

/// How many frames have come by an interface of this process's network.
fn received(name: &str) -> usize {
    let lines = fs::read_to_string("/proc/self/net/dev").unwrap();
    let line = lines.lines().find_map(|line| line.trim().strip_prefix(&format!("{name}:")));
    line.and_then(|numbers| numbers.split_whitespace().nth(1)).unwrap().parse().unwrap()
}

/// A client: it speaks first, and then sends back what comes.
fn behind(orders: &str) {
    let mut orders = orders.split(' ');
    let [port, other] = [(); 2].map(|()| orders.next().unwrap().parse().unwrap());
    let genie = hosts::open();
    let host = Host::open(&genie, "genie1", None, |_| ()).expect("an ordinary host");
    assert_eq!(host.driver, Driver::Xdp, "{host}");
    let server = ServerHandle::new(host.datagrams);
    let socket = Socket::open(&genie, &server, &Open { port, ..Open::default() }).expect("the port");
    for to in orders {
        socket.send_to(Out::copy(&canary(port)), to.parse().unwrap()).expect("the front answers for it");
    }
    let mut bytes = genie.allocate(9000).unwrap();
    for _ in 0..2 * COUNT {
        let (_, arrived) = socket.receive(In::emulated_copy(&mut bytes)).expect("the interface is there");
        socket.send_to(Out::emulated_copy(&bytes[..arrived.len]), arrived.from).expect("it is sent");
    }
    let [own, others] = found([port, other].map(canary));
    println!("found {own} {others} {}", received("genie1"));
    std::io::stdin().lines().for_each(drop);
}

#[test]
fn processes_behind_a_front_have_their_own_datagrams_in_memory_of_their_own() {
    let test = "processes_behind_a_front_have_their_own_datagrams_in_memory_of_their_own";
    if let Ok(orders) = std::env::var(BEHIND) {
        return behind(&orders);
    }
    let _alone = ALONE.lock();
    for mtu in [1500, 9000] {
        let Some(pair) = pair(test, mtu) else { return };
        let [far, near] = &pair.ends;
        let Some(front) = front(test, near) else { return };
        let seen_by_the_kernel = || {
            let read = || fs::read_to_string("/proc/thread-self/net/snmp").unwrap();
            let lines = near.namespace.enter(read);
            lines
                .lines()
                .filter(|line| line.starts_with("Ip:"))
                .nth(1)
                .unwrap()
                .split(' ')
                .nth(3)
                .unwrap()
                .to_owned()
        };
        let before = seen_by_the_kernel();
        let mut clients = [PORTS, [PORTS[1], PORTS[0]]].map(|[port, other]| {
            let sockets = [false, true].map(|is_v6| kernel(far, is_v6));
            let to = sockets.each_ref().map(|socket| socket.local_addr().unwrap().to_string()).join(" ");
            let namespace = front.admit(&[port]).expect("room");
            (process(test, &namespace, BEHIND, &format!("{port} {other} {to}")), port, sockets)
        });
        let mut buffer = [0; 9000];
        for (_, port, sockets) in &clients {
            for (socket, is_v6) in sockets.iter().zip([false, true]) {
                let (len, from) = socket.recv_from(&mut buffer).expect("it speaks first");
                assert_eq!((&buffer[..len], from), (&canary(*port)[..], (host(near, is_v6), *port).into()));
                socket.connect(from).unwrap();
            }
        }
        for number in 0..COUNT {
            let len = [0, 1, 7, 64][number % 4] * 20 + if mtu == 9000 { 7000 } else { 16 };
            let datagram = |port| Vec::from_iter(canary(port).into_iter().cycle().take(len));
            for at in 0..2 {
                clients.iter().for_each(|(_, port, sockets)| {
                    assert_eq!(sockets[at].send(&datagram(*port)).expect("it is sent"), len);
                });
                for (_, port, sockets) in &clients {
                    let came = sockets[at].recv(&mut buffer).expect("it comes back");
                    same(&buffer[..came], &datagram(*port), format!("{len} bytes, port {port}"));
                }
            }
        }
        for (child, port, _) in &mut clients {
            let numbers = said(child, "found ");
            let numbers: Vec<usize> = numbers.split(' ').map(|number| number.parse().unwrap()).collect();
            let [own, others, received] = numbers[..] else { panic!("{numbers:?}") };
            assert!(own >= COUNT, "the look at memory finds nothing");
            assert_eq!(others, 0, "the client of port {port} can see the other one's datagrams");
            // Beside the datagrams, answers for two hosts.
            assert!((2 * COUNT..2 * COUNT + 10).contains(&received), "{received} frames");
        }
        assert_eq!(seen_by_the_kernel(), before, "no datagram took another way");
        assert_eq!(front.refused(), 0);
        assert_eq!(front.ports(), PORTS);
        for (child, ..) in &mut clients {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        until(|| front.ports().is_empty());
    }
}

/// A client in this process, by its namespace.
fn client(namespace: Namespace, pair: &Pair) -> End {
    End { namespace, ..pair.ends[1].clone() }
}

#[test]
fn what_a_client_sends_that_is_not_its_own_is_dropped_and_counted() {
    let test = "what_a_client_sends_that_is_not_its_own_is_dropped_and_counted";
    let Some(pair) = pair(test, 1500) else { return };
    let Some(front) = front(test, &pair.ends[1]) else { return };
    let [one, _other] = PORTS.map(|port| client(front.admit(&[port]).expect("room"), &pair));
    let Some(mut xdp) = open_in(&space(), test, &one, &small()) else { return };
    let theirs = kernel(&pair.ends[0], false);
    let port = theirs.local_addr().unwrap().port();
    let own = frame(&pair, 1, port, b"its own");
    let with = |at: usize, bytes: &[u8]| {
        let mut frame = own.clone();
        frame[at..at + bytes.len()].copy_from_slice(bytes);
        frame
    };
    let foreign = [
        with(34, &PORTS[1].to_be_bytes()),
        with(34, &(PORT + 2).to_be_bytes()),
        with(29, &[77]),
        with(11, &[77]),
        with(23, &[6]),
    ];
    put(&mut xdp, &foreign);
    put(&mut xdp, std::slice::from_ref(&own));
    let mut bytes = [0; 32];
    let (len, from) = theirs.recv_from(&mut bytes).expect("its own comes");
    assert_eq!((&bytes[..len], from), (&b"its own"[..], (pair.ends[1].v4, PORT).into()));
    assert_eq!(front.refused(), foreign.len() as u64);
    theirs.set_nonblocking(true).unwrap();
    assert!(theirs.recv(&mut bytes).is_err(), "nothing else has come");
}

#[test]
fn a_port_is_one_clients_until_its_namespace_has_gone() {
    let test = "a_port_is_one_clients_until_its_namespace_has_gone";
    let _alone = ALONE.lock();
    let Some(pair) = pair(test, 1500) else { return };
    let [far, near] = &pair.ends;
    let Some(front) = front(test, near) else { return };
    let taken = kernel(near, false);
    let theirs = taken.local_addr().unwrap().port();
    let namespace = front.admit(&[PORT, PORT + 1]).expect("room");
    let bind = |port: u16| near.namespace.enter(|| UdpSocket::bind((near.v4, port)));
    for ports in [&[PORT + 2, PORT][..], &[PORT + 2, theirs]] {
        let error = front.admit(ports).expect_err("the last one is taken").to_string();
        assert!(error.contains(&format!("port {}", ports[1])) && error.contains("genie1"), "{error}");
        bind(PORT + 2).expect("it was let go");
    }
    for ports in [&[][..], &[0], &[PORT + 2, PORT + 2]] {
        front.admit(ports).expect_err("these make no sense");
    }
    bind(PORT + 2).expect("nobody has it");
    bind(PORT).expect_err("the client has it");
    // A kernel's own socket can be a client, too.
    let bound = |namespace: &Namespace| namespace.enter(|| UdpSocket::bind((near.v4, PORT)).unwrap());
    let socket = bound(&namespace);
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    far.offload_checksums(false).unwrap();
    let far = kernel(far, false);
    far.send_to(b"there", (near.v4, PORT)).unwrap();
    let (len, from) = socket.recv_from(&mut [0; 9]).expect("it comes");
    assert_eq!((len, from), (5, far.local_addr().unwrap()));
    socket.send_to(b"and back", from).unwrap();
    assert_eq!(far.recv(&mut [0; 9]).expect("it comes back"), 8);
    drop(namespace);
    assert_eq!(front.ports(), [PORT, PORT + 1], "a socket is in it");
    drop(socket);
    until(|| front.ports().is_empty());
    bind(PORT).expect("it is free");
    front.admit(&[PORT]).expect("it is free");
}

/// Names the interface that the process of the next test is to open, and hold until it is killed.
const FRONTED: &str = "GENIE_TEST_FRONTED";

#[test]
fn nothing_is_left_of_a_front_and_its_clients_get_errors() {
    let test = "nothing_is_left_of_a_front_and_its_clients_get_errors";
    if let Ok(name) = std::env::var(FRONTED) {
        let front = Front::open(&name).expect("the parent may");
        let _namespace = front.admit(&PORTS).expect("room");
        println!("fronted in {:?} mode", front.mode());
        return std::io::stdin().lines().for_each(drop);
    }
    let _alone = ALONE.lock();
    let Some(pair) = pair(test, 1500) else { return };
    let near = &pair.ends[1];
    let Some(front) = front(test, near) else { return };
    let before = near.namespace.enter(|| interface("genie1").unwrap());
    let client = client(front.admit(&[PORT]).expect("room"), &pair);
    let Some(mut xdp) = open_in(&space(), test, &client, &small()) else { return };
    drop(front);
    until(|| xdp.take(8, &mut |_| ()) == Err(Errno::NETDOWN));
    assert_eq!(client.namespace.enter(|| interface("genie1").unwrap_err()).errno, Errno::NODEV);
    let is_clean = || {
        assert_eq!(near.namespace.enter(|| interface("genie1").unwrap()), before);
        near.namespace.enter(|| UdpSocket::bind((near.v4, PORT))).expect("nobody has it");
        open_in(&space(), test, near, &small()).expect("no program is attached")
    };
    is_clean();
    let mut child = process(test, &near.namespace, FRONTED, "genie1");
    assert_eq!(said(&mut child, "fronted "), "in Native mode");
    near.namespace.enter(|| Front::open("genie1")).expect_err("another process has it");
    child.kill().unwrap();
    child.wait().unwrap();
    is_clean();
}

/// Names the interface that the process of the next test is to open.
const EXHAUSTED: &str = "GENIE_TEST_EXHAUSTED";

/// Regression: to remove a link took a descriptor, and the front waited for ever for what waited at the link.
#[test]
fn a_front_ends_when_its_process_has_no_descriptors_left() {
    let test = "a_front_ends_when_its_process_has_no_descriptors_left";
    if let Ok(name) = std::env::var(EXHAUSTED) {
        let front = Front::open(&name).expect("the parent may");
        let _namespace = front.admit(&PORTS).expect("room");
        let none = Rlimit { current: Some(0), maximum: Some(0) };
        setrlimit(Resource::Nofile, none).expect("fewer are allowed");
        return drop(front);
    }
    let _alone = ALONE.lock();
    let Some(pair) = pair(test, 1500) else { return };
    let Some(_) = front(test, &pair.ends[1]) else { return };
    let mut child = process(test, &pair.ends[1].namespace, EXHAUSTED, "genie1");
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() && begun.elapsed() < PATIENCE {
        std::thread::yield_now();
    }
    let ended = child.try_wait().unwrap();
    child.kill().unwrap();
    assert!(ended.expect("it ends").success());
}

#[test]
fn an_interface_that_goes_ends_what_the_clients_of_its_front_do() {
    let test = "an_interface_that_goes_ends_what_the_clients_of_its_front_do";
    let Some(pair) = pair(test, 1500) else { return };
    let Some(front) = front(test, &pair.ends[1]) else { return };
    let client = client(front.admit(&[PORT]).expect("room"), &pair);
    let Some(mut xdp) = open_in(&space(), test, &client, &small()) else { return };
    let Pair { ends: [far, _near] } = pair;
    drop(far);
    until(|| xdp.take(8, &mut |_| ()) == Err(Errno::NETDOWN));
    until(|| front.ports().is_empty());
    let refused = front.admit(&[PORT]).expect_err("there is no interface");
    assert!(matches!(&refused, Error::NoInterface { interface } if interface == "genie1"), "{refused}");
}

/// Names the interface that the process of the next test is to open until it has gone.
const STOPPED: &str = "GENIE_TEST_STOPPED";

/// Regression: a front that was not told that its interface had gone, since too much had changed meanwhile, kept its clients' ports for ever.
#[test]
fn an_interface_that_goes_is_noticed_also_when_the_message_was_lost() {
    let test = "an_interface_that_goes_is_noticed_also_when_the_message_was_lost";
    if let Ok(name) = std::env::var(STOPPED) {
        let front = Front::open(&name).expect("the parent may");
        let _namespace = front.admit(&PORTS).expect("room");
        println!("fronted");
        return until(|| front.ports().is_empty());
    }
    let _alone = ALONE.lock();
    let Some(pair) = pair(test, 1500) else { return };
    let near = &pair.ends[1];
    let Some(_) = front(test, near) else { return };
    let mut child = process(test, &near.namespace, STOPPED, "genie1");
    said(&mut child, "fronted");
    let pid = Pid::from_child(&child);
    kill_process(pid, Signal::STOP).unwrap();
    let changes = (0..400).map(|number| format!("link set genie1 mtu {}\n", 1400 + number));
    let path = tempfile::NamedTempFile::new().unwrap();
    fs::write(&path, changes.collect::<String>()).unwrap();
    ip(near, &format!("-batch {}", path.path().display()));
    ip(near, "link del genie1 type veth");
    kill_process(pid, Signal::CONT).unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_front_tells_which_mtus_it_takes() {
    let test = "a_front_tells_which_mtus_it_takes";
    let Some(pair) = pair(test, 1500) else { return };
    let near = &pair.ends[1];
    ip(near, "link set genie1 mtu 576");
    // The loopback interface has 65,536.
    for name in ["genie1", "lo"] {
        let error = near.namespace.enter(|| Front::open(name)).expect_err("no virtual link can have it");
        assert!(
            error.to_string().contains(&format!("{name} cannot be driven so: a front needs an MTU")),
            "{error}"
        );
    }
}

/// Hosts behind a gateway, too: a client has the routes of the interface's kernel.
#[test]
fn a_client_reaches_whom_the_interfaces_kernel_would() {
    let test = "a_client_reaches_whom_the_interfaces_kernel_would";
    let Some(pair) = pair(test, 1500) else { return };
    let [far, near] = &pair.ends;
    let Some(front) = front(test, near) else { return };
    let ip = |end: &End, args: &str| {
        let output = end.namespace.enter(|| Command::new("ip").args(args.split(' ')).output());
        output.is_ok_and(|output| output.status.success())
    };
    if !ip(near, &format!("route add 192.0.2.0/24 via {}", far.v4))
        || !ip(far, "address add 192.0.2.9/32 dev lo")
    {
        return skip(test, "`ip` of iproute2");
    }
    let namespace = front.admit(&[PORT]).expect("room");
    let socket = namespace.enter(|| UdpSocket::bind((near.v4, PORT)).unwrap());
    let there = far.namespace.enter(|| UdpSocket::bind("192.0.2.9:9").unwrap());
    there.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.send_to(b"behind", "192.0.2.9:9").unwrap();
    let (len, from) = there.recv_from(&mut [0; 9]).expect("it comes");
    assert_eq!((len, from), (6, (IpAddr::from(near.v4), PORT).into()));
}
