//! UDP over each driver: datagram servers of ours at one end of a link, the kernel's own sockets at the other.

use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::time::Duration;

use fastrand::Rng;
use genie_conformance::bytes::{pattern, same};
use genie_conformance::checked;
use genie_conformance::machine::skip;
use genie_io::{Completer, Interface, ServerHandle};
use genie_net::Adapter;
use genie_net::datagram::{Counters, Datagrams, Open, Options, Socket, Verifying};
use genie_net::driver::{self, Link, PacketSocket};
use genie_net::namespaces::{End, Pair};
use genie_passing::Scheme;
use genie_sys::Errno;

use crate::hosts::{self, Level, out, out_at, room, room_at, synced, taken};
use crate::xdp::{open_in, small};

/// What a test does that takes no longer than the others, or, with `GENIE_DRIVERS_AT_LENGTH`, all that is worth doing.
pub(crate) fn at_length<T>(brief: T, all: T) -> T {
    if std::env::var_os("GENIE_DRIVERS_AT_LENGTH").is_some() { all } else { brief }
}

/// By what a host's interface is driven, and its server's adapter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Packets(Level),
    Xdp(Level),
    /// The adapter that takes the buffers in which frames come.
    Native,
}

impl Way {
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        let software = [Self::Packets, Self::Xdp].into_iter().flat_map(|over| Level::ALL.map(over));
        software.chain([Self::Native])
    }
}

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
    /// None, and SKIP, where this process may not drive the interface so.
    pub(crate) fn new(test: &str, [ours, theirs]: [&End; 2], way: Way, verifying: Verifying) -> Option<Self> {
        let (genie, name) = (hosts::open(), &ours.interface.name);
        let hosts = [ours.v4.into(), ours.v6.into()];
        let mut options = Options::new(ours.interface.station, hosts);
        for host in [theirs.v4.into(), theirs.v6.into()] {
            options = options.neighbour(host, theirs.interface.station);
        }
        (options.mtu, options.verifying) = (ours.interface.mtu as usize, verifying);
        let (adapter, link): (Box<dyn Adapter>, _) = match way {
            Way::Packets(level) => {
                let rings = ours.namespace.enter(|| PacketSocket::open(name, &hosts).expect("a socket"));
                (level.adapter(genie.space()), Link::new(name, rings, driver::Options::default()))
            }
            Way::Xdp(_) | Way::Native => {
                let rings = open_in(genie.space(), test, ours, &small())?;
                let adapter: Box<dyn Adapter> = match way {
                    Way::Xdp(level) => level.adapter(genie.space()),
                    _ => Box::new(rings.adapter()),
                };
                (adapter, Link::new(name, rings, driver::Options::default()))
            }
        };
        let link = link.expect("descriptors");
        let server = Datagrams::new(genie.clone(), adapter, options);
        server.attach_link(&link).expect("nobody has either");
        let handle = ServerHandle::new(server.clone());
        let socket = Socket::open(&genie, &handle, &Open::default()).expect("a port");
        Some(Self { genie, server, link, socket })
    }
}

/// Sends and receives a datagram of each of these lengths, each by the next scheme after `first`, at every place in a page, and compares.
pub(crate) fn exchange(
    host: &Host,
    theirs: &UdpSocket,
    here: SocketAddr,
    first: usize,
    lengths: impl Iterator<Item = usize>,
) {
    let there = theirs.local_addr().expect("an address");
    let mut buffer = vec![0; 65_536];
    for (number, len) in lengths.enumerate() {
        let scheme = Scheme::ALL[(first + number) % Scheme::ALL.len()];
        // Where the native adapter has data, and elsewhere.
        let offset = if number % 5 == 0 { 256 + 42 } else { number * 1021 % 4096 };
        let what = format!("{len} bytes by {scheme}, {offset} bytes into a page, {here}");
        let bytes = pattern(number as u64, len);
        // Some find a request that waits, and others wait for one.
        let ask = || host.socket.submit(room_at(&host.genie, scheme, offset, len + 1)).expect(&what);
        let early = (number % 3 > 0).then(ask);
        theirs.send_to(&bytes, here).expect(&what);
        let (reply, arrived) = synced(early.unwrap_or_else(ask)).expect(&what);
        assert_eq!((arrived.from, arrived.len), (there, len), "{what}");
        same(&taken(reply).0, &bytes, &what);
        host.socket.send_to(out_at(&host.genie, scheme, offset, &bytes), there).expect(&what);
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
        for (number, way) in Way::all().enumerate() {
            for is_partial in [true, false] {
                theirs.offload_checksums(is_partial).expect("a link of ours");
                let ways = [Verifying::Separate, Verifying::Integrated, Verifying::Adapter];
                let Some(host) = Host::new(test, [&ours, &theirs], way, ways[number % ways.len()]) else {
                    continue;
                };
                let mut count = 0;
                for is_v6 in [false, true] {
                    let most = mtu as usize - if is_v6 { 48 } else { 28 };
                    let some = std::iter::repeat_with(|| random.usize(0..=most)).take(at_length(10, 200));
                    let lengths: Vec<_> =
                        [0, 1, 2, 17, 1000, most - 1, most].into_iter().chain(some).collect();
                    let here = (self::host(&ours, is_v6), host.socket.port()).into();
                    let first = random.usize(..8);
                    exchange(&host, &kernel(&theirs, is_v6), here, first, lengths.iter().copied());
                    count += lengths.len() as u64;
                }
                let counters = host.server.counters();
                let what = format!("{way:?}, MTU {mtu}: {counters:?}");
                assert_eq!((counters.received, counters.sent, counters.damaged), (count, count, 0), "{what}");
                assert_eq!(counters.unsummed, if is_partial { count } else { 0 }, "{what}");
                checked(host.genie.space());
            }
        }
    }
}

/// At length, each length by each scheme over each adapter; in brief, a part of the lengths.
#[test]
fn datagrams_of_all_lengths_up_to_the_longest_pass_both_ways() {
    let test = "datagrams_of_all_lengths_up_to_the_longest_pass_both_ways";
    let Some(Pair { ends: [ours, theirs] }) = pair(test, 65_535) else { return };
    let most = 65_535 - 28;
    for (number, way) in Way::all().enumerate() {
        let Some(host) = Host::new(test, [&ours, &theirs], way, Verifying::Separate) else { continue };
        let here = (ours.v4, host.socket.port()).into();
        for first in at_length(number..number + 1, 0..Scheme::ALL.len()) {
            let step = at_length(17, 1);
            let lengths = (number % step..4500).step_by(step).chain((4500 + number..most).step_by(11 * step));
            exchange(&host, &kernel(&theirs, false), here, first, lengths.chain([most]));
        }
        assert_eq!(host.server.counters().damaged, 0, "{way:?}");
        checked(host.genie.space());
    }
}

#[test]
fn what_is_no_datagram_to_a_port_of_ours_is_the_kernels_alone() {
    let test = "what_is_no_datagram_to_a_port_of_ours_is_the_kernels_alone";
    let Some(Pair { ends: [ours, theirs] }) = pair(test, 1500) else { return };
    let Some(host) = Host::new(test, [&ours, &theirs], Way::Packets(Level::Pooled), Verifying::Separate)
    else {
        return;
    };
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
    let way = Way::Packets(Level::Pooled);
    let Some(Host { genie, server, socket, .. }) =
        Host::new(test, [&ours, &theirs], way, Verifying::Separate)
    else {
        return;
    };
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
        let way = Way::Packets(Level::Early);
        let Some(Host { genie, socket, .. }) = Host::new(test, [&ours, &theirs], way, Verifying::Separate)
        else {
            return;
        };
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
