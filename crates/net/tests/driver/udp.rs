//! UDP over packet sockets: datagram servers of ours at one end of a link, the kernel's own sockets at the other.

use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::time::Duration;

use fastrand::Rng;
use genie_conformance::bytes::{pattern, same};
use genie_conformance::checked;
use genie_conformance::machine::skip;
use genie_io::{Completer, Interface, ServerHandle};
use genie_net::datagram::{Counters, Datagrams, Open, Options, Socket, Verifying};
use genie_net::driver::{self, Link, PacketSocket};
use genie_net::namespaces::{End, Pair};
use genie_passing::Scheme;
use genie_sys::Errno;

use crate::hosts::{self, Level, out, room, synced, taken};

/// A link, or SKIP.
pub(crate) fn pair(test: &str, mtu: u32) -> Option<Pair> {
    Pair::new(mtu).map_err(|unavailable| skip(test, &unavailable.to_string())).ok()
}

/// A port of the kernel's at an end.
pub(crate) fn kernel(end: &End, is_v6: bool) -> UdpSocket {
    let socket = end.namespace.enter(|| UdpSocket::bind((host(end, is_v6), 0)).expect("a port"));
    socket.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
    socket
}

pub(crate) fn host(end: &End, is_v6: bool) -> IpAddr {
    if is_v6 { end.v6.into() } else { end.v4.into() }
}

/// A datagram server of ours at one end, and its client.
pub(crate) struct Host {
    pub(crate) genie: Interface,
    pub(crate) server: Datagrams,
    pub(crate) link: Link,
    pub(crate) socket: Socket,
}

impl Host {
    pub(crate) fn new(ours: &End, theirs: &End, level: Level, verifying: Verifying) -> Self {
        let (genie, name) = (hosts::open(), &ours.interface.name);
        let hosts = [ours.v4.into(), ours.v6.into()];
        let mut options = Options::new(ours.interface.station, hosts);
        for host in [theirs.v4.into(), theirs.v6.into()] {
            options = options.neighbour(host, theirs.interface.station);
        }
        (options.mtu, options.verifying) = (ours.interface.mtu as usize, verifying);
        let server = Datagrams::new(genie.clone(), level.adapter(genie.space()), options);
        let rings = ours.namespace.enter(|| PacketSocket::open(name, &hosts).expect("a packet socket"));
        let link = Link::new(name, rings, driver::Options::default()).expect("descriptors");
        server.attach_link(&link).expect("nobody has either");
        let handle = ServerHandle::new(server.clone());
        let socket = Socket::open(&genie, &handle, &Open::default()).expect("a port");
        Self { genie, server, link, socket }
    }
}

/// Sends and receives a datagram of each of these lengths, and compares.
fn exchange(
    host: &Host,
    theirs: &UdpSocket,
    here: SocketAddr,
    schemes: &[Scheme],
    lengths: impl Iterator<Item = usize>,
) {
    let there = theirs.local_addr().expect("an address");
    let mut buffer = vec![0; 65_536];
    for (number, len) in lengths.enumerate() {
        let scheme = schemes[number % schemes.len()];
        let what = format!("{len} bytes by {scheme}, {here}");
        let bytes = pattern(number as u64, len);
        // Some find a request that waits, and others wait for one.
        let ask = || host.socket.submit(room(&host.genie, scheme, len + 1)).expect(&what);
        let early = (number % 3 > 0).then(ask);
        theirs.send_to(&bytes, here).expect(&what);
        let (reply, arrived) = synced(early.unwrap_or_else(ask)).expect(&what);
        assert_eq!((arrived.from, arrived.len), (there, len), "{what}");
        same(&taken(reply).0, &bytes, &what);
        host.socket.send_to(out(&host.genie, scheme, &bytes), there).expect(&what);
        assert_eq!(theirs.recv_from(&mut buffer).expect(&what), (len, here), "{what}");
        same(&buffer[..len], &bytes, &what);
    }
}

#[test]
fn datagrams_pass_between_any_adapter_and_the_kernels_sockets_whoever_has_summed_them() {
    let test = "datagrams_pass_between_any_adapter_and_the_kernels_sockets_whoever_has_summed_them";
    let mut random = Rng::with_seed(31);
    for mtu in [1500, 9000, 65_535] {
        let Some(Pair { ends: [ours, theirs] }) = pair(test, mtu) else { return };
        for (number, level) in Level::ALL.into_iter().enumerate() {
            for is_partial in [true, false] {
                theirs.offload_checksums(is_partial).expect("a link of ours");
                let ways = [Verifying::Separate, Verifying::Integrated, Verifying::Adapter];
                let host = Host::new(&ours, &theirs, level, ways[number % ways.len()]);
                let mut count = 0;
                for is_v6 in [false, true] {
                    let most = mtu as usize - if is_v6 { 48 } else { 28 };
                    let some = std::iter::repeat_with(|| random.usize(0..=most)).take(24);
                    let lengths: Vec<_> =
                        [0, 1, 2, 17, 1000, most - 1, most].into_iter().chain(some).collect();
                    let here = (self::host(&ours, is_v6), host.socket.port()).into();
                    exchange(&host, &kernel(&theirs, is_v6), here, &Scheme::ALL, lengths.iter().copied());
                    count += lengths.len() as u64;
                }
                let counters = host.server.counters();
                let what = format!("{level:?}, MTU {mtu}: {counters:?}");
                assert_eq!((counters.received, counters.sent, counters.damaged), (count, count, 0), "{what}");
                assert_eq!(counters.unsummed, if is_partial { count } else { 0 }, "{what}");
                checked(host.genie.space());
            }
        }
    }
}

#[test]
fn datagrams_of_all_lengths_up_to_the_longest_pass_both_ways() {
    let test = "datagrams_of_all_lengths_up_to_the_longest_pass_both_ways";
    let Some(Pair { ends: [ours, theirs] }) = pair(test, 65_535) else { return };
    let host = Host::new(&ours, &theirs, Level::Splitting, Verifying::Separate);
    let here = (ours.v4, host.socket.port()).into();
    let most = 65_535 - 28;
    // With all of them it would take half a minute.
    let lengths = (0..4500).chain((4500..most).step_by(11)).chain([most]);
    exchange(&host, &kernel(&theirs, false), here, &[Scheme::EmulatedCopy], lengths);
    assert_eq!(host.server.counters().damaged, 0);
}

#[test]
fn what_is_no_datagram_to_a_port_of_ours_is_the_kernels_alone() {
    let test = "what_is_no_datagram_to_a_port_of_ours_is_the_kernels_alone";
    let Some(Pair { ends: [ours, theirs] }) = pair(test, 1500) else { return };
    let host = Host::new(&ours, &theirs, Level::Pooled, Verifying::Separate);
    for is_v6 in [false, true] {
        let [here, there] = [kernel(&ours, is_v6), kernel(&theirs, is_v6)];
        let to = here.local_addr().expect("an address");
        // The longer ones come in fragments.
        for len in [0, 100, 1452, 5000] {
            let (bytes, mut buffer) = (pattern(1, len), vec![0; 9000]);
            there.send_to(&bytes, to).expect("it is sent");
            let (found, from) = here.recv_from(&mut buffer).expect("it comes");
            assert_eq!((&buffer[..found], from), (&bytes[..], there.local_addr().expect("an address")));
            here.send_to(&bytes, from).expect("it is sent");
            assert_eq!(there.recv_from(&mut buffer).expect("it comes"), (len, to));
        }
        let listener =
            ours.namespace.enter(|| TcpListener::bind((self::host(&ours, is_v6), 0)).expect("a port"));
        let to = listener.local_addr().expect("an address");
        theirs.namespace.enter(|| TcpStream::connect(to).expect("the kernel answers"));
    }
    let Host { server, link, .. } = &host;
    link.collect();
    assert_eq!((link.counters().received, server.counters()), (0, Counters::default()));
}

/// Once nobody held the port in the kernel, which told senders that nobody has it.
#[test]
fn the_kernel_does_not_say_that_nobody_has_a_port_of_ours_nor_give_it_to_others() {
    let test = "the_kernel_does_not_say_that_nobody_has_a_port_of_ours_nor_give_it_to_others";
    let Some(Pair { ends: [ours, theirs] }) = pair(test, 1500) else { return };
    let Host { genie, server, socket, .. } = Host::new(&ours, &theirs, Level::Pooled, Verifying::Separate);
    let port = socket.port();
    for is_v6 in [false, true] {
        let (here, there) = (SocketAddr::new(host(&ours, is_v6), port), kernel(&theirs, is_v6));
        there.connect(here).expect("a route");
        for byte in 0..10 {
            there.send(&[byte]).expect("nobody says that the port is closed");
            let (reply, _) =
                synced(socket.submit(room(&genie, Scheme::Copy, 1)).expect("asked")).expect("it comes");
            assert_eq!(taken(reply).0, [byte]);
        }
        let taken = ours.namespace.enter(|| UdpSocket::bind(here)).expect_err("the port is ours");
        assert_eq!(taken.kind(), std::io::ErrorKind::AddrInUse);
    }
    let squatter = kernel(&ours, false);
    let open = Open { port: squatter.local_addr().expect("an address").port(), ..Open::default() };
    let error =
        Socket::open(&genie, &ServerHandle::new(server), &open).expect_err("the port is the kernel's");
    assert!(error.to_string().contains("genie0"), "{error}");
    // When it is closed, the kernel has it again.
    drop(socket);
    let again = ours.namespace.enter(|| UdpSocket::bind((ours.v4, port))).expect("nobody has it");
    let there = kernel(&theirs, false);
    there.send_to(b"again", (ours.v4, port)).expect("it is sent");
    assert_eq!(again.recv_from(&mut [0; 9]).expect("it comes").0, 5);
}

#[test]
fn an_interface_that_goes_ends_what_waits_by_an_error_that_names_it() {
    let test = "an_interface_that_goes_ends_what_waits_by_an_error_that_names_it";
    for is_deleted in [true, false] {
        let Some(Pair { ends: [ours, theirs] }) = pair(test, 1500) else { return };
        let Host { genie, socket, .. } = Host::new(&ours, &theirs, Level::Early, Verifying::Separate);
        let to = kernel(&theirs, false).local_addr().expect("an address");
        let namespace = ours.namespace.clone();
        let remover = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            let args = if is_deleted {
                ["link", "del", "genie0", "type", "veth"]
            } else {
                ["link", "set", "dev", "genie0", "down"]
            };
            namespace.enter(|| Command::new("ip").args(args).status().expect("ip").success())
        });
        let pending = socket.submit(room(&genie, Scheme::EmulatedCopy, 9)).expect("it waits");
        let refused = std::iter::repeat_with(|| socket.send_to(out(&genie, Scheme::Copy, b"x"), to))
            .find_map(Result::err)
            .expect("it goes on until the interface fails");
        let failed = synced(pending).expect_err("the interface has failed");
        for error in [refused.error, failed.error] {
            assert!(error.to_string().contains("genie0"), "{error}");
            let expected = [Errno::NETDOWN, Errno::NXIO].map(Errno::raw_os_error);
            assert!(expected.contains(&error.errno()), "{error}");
        }
        assert!(remover.join().expect("the thread ends"), "ip has failed");
        drop(socket);
        checked(genie.space());
    }
}
