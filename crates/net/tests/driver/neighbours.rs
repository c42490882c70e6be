//! Where datagrams go by the kernel's routes and neighbours, and that changes are followed.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::Command;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use genie_conformance::machine::skip;
use genie_conformance::{Buffering, Granules, Guard, Setup, interface};
use genie_io::{Limits, Out, ServerHandle};
use genie_net::adapter::Outboard;
use genie_net::datagram::{Datagrams, Open, Options, SEND, Socket, send_argument};
use genie_net::driver::neighbours::{Unreachable, Way, Why};
use genie_net::driver::{self, Driver, Neighbours};
use genie_net::namespaces::{End, Pair};
use genie_net::{Frame, Wire, wire};
use genie_passing::Thresholds;
use genie_sys::Errno;
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use crate::child::{ExitOutcome, fork_child};
use crate::hosts;

const ELSEWHERE: [u8; 6] = [2, 0, 0, 0, 0, 9];

/// A link, and who asks the kernel at its first end; or SKIP.
fn pair(test: &str) -> Option<(Pair, Neighbours)> {
    if let Err(error) = Command::new("ip").arg("-V").output() {
        skip(test, &format!("`ip` of iproute2: {error}"));
        return None;
    }
    let pair = Pair::new(1500).map_err(|unavailable| skip(test, &unavailable.to_string())).ok()?;
    let neighbours = pair.ends[0].namespace.enter(|| Neighbours::of("genie0")).unwrap();
    Some((pair, neighbours))
}

pub(crate) fn ip(end: &End, command: &str) {
    let done = end.namespace.enter(|| Command::new("ip").args(command.split(' ')).output()).unwrap();
    assert!(done.status.success(), "ip {command}: {}", String::from_utf8_lossy(&done.stderr));
}

fn host(host: &str) -> IpAddr {
    host.parse().unwrap()
}

/// What is found when changes have been read.
#[track_caller]
fn until<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "the change was not noticed");
        std::thread::yield_now();
    }
}

#[track_caller]
fn until_station(neighbours: &Neighbours, to: IpAddr, station: [u8; 6]) {
    until(|| (neighbours.find(to).unwrap().station == station).then_some(()));
}

#[test]
fn a_host_on_the_link_is_found_and_then_known() {
    let Some((Pair { ends: [a, b] }, neighbours)) = pair("a_host_on_the_link_is_found_and_then_known") else {
        return;
    };
    for (from, to) in [(a.v4.into(), b.v4.into()), (IpAddr::from(a.v6), IpAddr::from(b.v6))] {
        assert_eq!(neighbours.known(to), Ok(None));
        let way = Way { hop: to, station: b.interface.station, from: Some(from), mtu: 1500 };
        assert_eq!(neighbours.find(to), Ok(way));
        // What the question itself has changed may have to be read, and the answer found again.
        until(|| neighbours.known(to).unwrap().or_else(|| neighbours.find(to).map(|_| None).unwrap()));
        assert_eq!(neighbours.known(to), Ok(Some(way)));
    }
}

#[test]
fn a_host_behind_a_gateway_is_reached_by_the_gateways_station() {
    let test = "a_host_behind_a_gateway_is_reached_by_the_gateways_station";
    let Some((Pair { ends: [a, b] }, neighbours)) = pair(test) else { return };
    ip(&a, "route add 192.0.2.0/24 via 10.71.0.2");
    ip(&a, "route add 198.51.100.0/24 via inet6 fd71::2");
    ip(&a, "route add 2001:db8::/32 via fd71::2");
    for (to, hop) in
        [("192.0.2.7", b.v4.into()), ("198.51.100.7", b.v6.into()), ("2001:db8::7", IpAddr::from(b.v6))]
    {
        let way = neighbours.find(host(to)).unwrap();
        assert_eq!((way.hop, way.station), (hop, b.interface.station), "{to}");
    }
    // A route that changes is followed, whatever becomes of the gateway: a station that is said to be permanent does not change.
    ip(&a, "neighbour replace 10.71.0.2 lladdr 02:00:71:00:00:02 dev genie0");
    assert_eq!(neighbours.find(host("192.0.2.7")).unwrap().station, b.interface.station);
    ip(&a, "neighbour replace 10.71.0.9 lladdr 02:00:00:00:00:09 dev genie0");
    ip(&a, "route replace 192.0.2.0/24 via 10.71.0.9");
    until_station(&neighbours, host("192.0.2.7"), ELSEWHERE);
}

#[test]
fn a_station_that_changes_is_followed() {
    let Some((Pair { ends: [a, b] }, neighbours)) = pair("a_station_that_changes_is_followed") else {
        return;
    };
    let to = b.v4.into();
    assert_eq!(neighbours.find(to).unwrap().station, b.interface.station);
    ip(&a, "neighbour replace 10.71.0.2 lladdr 02:00:00:00:00:09 dev genie0");
    until_station(&neighbours, to, ELSEWHERE);
    ip(&a, "neighbour del 10.71.0.2 dev genie0");
    until_station(&neighbours, to, b.interface.station);
}

/// The kernel does not see what a driver sends, and would doubt a neighbour for ever, while frames go to where nobody is.
#[test]
fn a_station_that_the_kernel_doubts_is_asked_for() {
    let test = "a_station_that_the_kernel_doubts_is_asked_for";
    let Some((Pair { ends: [a, b] }, neighbours)) = pair(test) else { return };
    for (option, value) in [("delay_first_probe_time", "0"), ("retrans_time_ms", "1"), ("ucast_solicit", "1")]
    {
        let path = format!("/proc/sys/net/ipv4/neigh/genie0/{option}");
        if let Err(error) = a.namespace.enter(|| std::fs::write(&path, value)) {
            return skip(test, &format!("{path}: {error}"));
        }
    }
    ip(&a, "neighbour replace 10.71.0.2 lladdr 02:00:00:00:00:09 dev genie0 nud stale");
    assert_eq!(neighbours.find(b.v4.into()).unwrap().station, ELSEWHERE);
    until_station(&neighbours, b.v4.into(), b.interface.station);
}

#[test]
fn where_datagrams_cannot_go_the_error_says_why() {
    let Some((Pair { ends: [a, _b] }, neighbours)) = pair("where_datagrams_cannot_go_the_error_says_why")
    else {
        return;
    };
    let why = |to: &str| neighbours.find(host(to)).unwrap_err();
    let to = host("10.71.0.99");
    let error = why("10.71.0.99");
    assert_eq!((&error.why, error.errno()), (&Why::NoAnswer { to, hop: to }, Errno::HOSTUNREACH));
    for to in ["10.71.0.1", "10.71.0.255", "255.255.255.255", "224.0.0.1", "fd71::1", "ff02::1"] {
        assert_eq!(why(to).why, Why::NoUnicast { to: host(to) });
    }
    ip(&a, "route add unreachable 192.0.2.0/24");
    for to in ["192.0.2.7", "2001:db8::7"] {
        let error = why(to);
        assert!(matches!(&error.why, Why::NoRoute { .. }) && error.to_string().contains(to), "{error}");
        assert!(error.to_string().starts_with("interface genie0 "), "{error}");
    }
}

#[test]
fn an_interface_that_changes_or_goes_is_noticed() {
    let Some((Pair { ends: [a, b] }, neighbours)) = pair("an_interface_that_changes_or_goes_is_noticed")
    else {
        return;
    };
    let to = b.v4.into();
    ip(&a, "link set genie0 mtu 1400");
    until(|| (neighbours.find(to).unwrap().mtu == 1400).then_some(()));
    for (end, name) in [(&a, "genie0"), (&b, "genie1")] {
        ip(end, &format!("link set {name} down"));
        let down = until(|| neighbours.known(to).err());
        assert_eq!((&down.why, down.errno()), (&Why::Down, Errno::NETDOWN));
        assert!(down.to_string().contains("interface genie0"), "{down}");
        ip(end, &format!("link set {name} up"));
        until(|| neighbours.find(to).ok());
    }
    ip(&b, "link del genie1");
    let is_gone = |error: &Unreachable| error.why == Why::Gone && error.errno() == Errno::NODEV;
    until(|| neighbours.find(to).err().filter(is_gone));
    assert!(neighbours.known(to).unwrap_err().to_string().contains("interface genie0 is gone"));
}

/// The socket that hears of changes has room for some hundred of them.
#[test]
fn changes_that_were_lost_are_made_up_for() {
    let Some((Pair { ends: [a, b] }, neighbours)) = pair("changes_that_were_lost_are_made_up_for") else {
        return;
    };
    assert_eq!(neighbours.find(b.v4.into()).unwrap().station, b.interface.station);
    let hosts =
        (0..4000).map(|number| format!("route add 192.0.{}.{}/32 dev genie0\n", number / 200, number % 200));
    let path = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&path, hosts.collect::<String>()).unwrap();
    ip(&a, &format!("-batch {}", path.path().display()));
    ip(&a, "neighbour replace 10.71.0.2 lladdr 02:00:00:00:00:09 dev genie0");
    ip(&a, "link set genie0 mtu 1400");
    let way = until(|| Some(neighbours.find(b.v4.into()).unwrap()).filter(|way| way.mtu == 1400));
    assert_eq!(way.station, ELSEWHERE);
}

#[test]
fn without_the_right_to_ask_the_error_names_it_and_what_the_kernel_knows_is_found() {
    let test = "without_the_right_to_ask_the_error_names_it_and_what_the_kernel_knows_is_found";
    let Some((Pair { ends: [a, b] }, _)) = pair(test) else { return };
    ip(&a, "neighbour replace 10.71.0.9 lladdr 02:00:00:00:00:09 dev genie0");
    let (refused, found) = a.namespace.enter(|| {
        let mut sets = capabilities(None).unwrap();
        sets.effective.remove(CapabilitySet::NET_ADMIN);
        set_capabilities(None, sets).unwrap();
        let neighbours = Neighbours::of("genie0").unwrap();
        (neighbours.find(b.v4.into()), neighbours.find(host("10.71.0.9")))
    });
    assert_eq!(found.unwrap().station, ELSEWHERE);
    let refused = refused.unwrap_err();
    assert_eq!(refused.errno(), Errno::PERM);
    assert!(refused.to_string().contains("CAP_NET_ADMIN"), "{refused}");
}

#[test]
#[allow(unsafe_code, reason = "forks, which is what is tested")]
fn a_child_made_by_fork_gets_an_error_and_takes_no_answers() {
    let Some((Pair { ends: [_a, b] }, neighbours)) =
        pair("a_child_made_by_fork_gets_an_error_and_takes_no_answers")
    else {
        return;
    };
    let is_refused = || {
        let found = neighbours.find(b.v4.into());
        u8::from(!matches!(found, Err(Unreachable { why: Why::Inherited, .. })))
    };
    // SAFETY: the child takes no lock but the allocator's, which is free after a fork.
    let child = unsafe { fork_child(is_refused) }.unwrap();
    assert_eq!(child.wait().unwrap(), ExitOutcome::Code(0));
    assert_eq!(neighbours.find(b.v4.into()).unwrap().station, b.interface.station);
}

/// What is attached to a wire, and tells of frames.
struct Frames(mpsc::Sender<Vec<u8>>);

impl wire::Station for Frames {
    fn arrive(&self, frame: &Frame<'_>) {
        let mut bytes = vec![0; frame.len()];
        frame.store_bytes(0, &mut bytes);
        self.0.send(bytes).unwrap();
    }
}

#[test]
fn a_datagram_server_sends_where_the_kernel_would() {
    let test = "a_datagram_server_sends_where_the_kernel_would";
    let Some((Pair { ends: [a, b] }, neighbours)) = pair(test) else { return };
    ip(&a, "address add 10.72.0.1/24 dev genie0");
    ip(&a, "route add 192.0.2.0/24 via 10.71.0.2 src 10.72.0.1");
    let kernel = Arc::new(a.namespace.enter(|| Neighbours::of("genie0")).unwrap());
    drop(neighbours);
    let setup = Setup::new(Granules::Base, Guard::Never, Buffering::Customized);
    let space = setup.space("neighbours", 16 << 20).unwrap();
    let genie = interface(space, Limits::default(), Thresholds::ALWAYS);
    let server = Datagrams::new(genie.clone(), Box::new(Outboard::new(0)), Options::on(kernel));
    let (sender, frames) = mpsc::channel();
    let wire = Wire::new(wire::Options::default(), wire::Clock::default(), Frames(sender)).unwrap();
    server.attach(ServerHandle::new(wire)).unwrap();
    let socket = Socket::open(&genie, &ServerHandle::new(server), &Open::default()).unwrap();

    for (to, from) in [("10.71.0.2", a.v4), ("192.0.2.7", Ipv4Addr::new(10, 72, 0, 1))] {
        let to: Ipv4Addr = to.parse().unwrap();
        socket.send_to(Out::copy(b"hello"), SocketAddr::new(to.into(), 7)).unwrap();
        let frame = frames.recv().unwrap();
        assert_eq!((&frame[..6], &frame[6..12]), (&b.interface.station[..], &a.interface.station[..]));
        assert_eq!((&frame[26..30], &frame[30..34]), (&from.octets()[..], &to.octets()[..]));
    }
    // The longest datagram is as long as the interface takes at the time.
    ip(&a, "link set genie0 mtu 1400");
    let long = vec![7; 1400 - 28 + 1];
    let send = |len: usize| socket.send_to(Out::copy(&long[..len]), SocketAddr::new(b.v4.into(), 7));
    until(|| send(long.len()).err());
    send(long.len() - 1).unwrap();
    ip(&b, "link del genie1");
    let error = until(|| send(1).err().map(|failed| failed.error.to_string()));
    assert!(error.contains("interface genie0 is"), "{error}");
}

/// Regression: the datagram was sent, from what was another client's port by then.
#[test]
fn nothing_leaves_by_a_port_that_is_closed_while_the_way_is_looked_for() {
    let test = "nothing_leaves_by_a_port_that_is_closed_while_the_way_is_looked_for";
    let Some((Pair { ends: [a, _b] }, _)) = pair(test) else { return };
    let [genie, other] = [hosts::open(), hosts::open()];
    let open = || driver::Host::open(&genie, "genie0", Some(Driver::PacketSocket), |_| ());
    let host = a.namespace.enter(open).expect("a server on the interface");
    let server = ServerHandle::new(host.datagrams.clone());
    // On a busy machine the kernel may have given up before it is told.
    let is_closed_in_time = (100..200).any(|last| {
        let socket = Socket::open(&genie, &server, &Open::default()).expect("a port");
        let (port, to) = (socket.port(), IpAddr::from([10, 71, 0, last]));
        let argument = send_argument(port, Some((to, 9).into()));
        std::thread::scope(|scope| {
            let request = genie.request(&server, SEND).argument(&argument).out(Out::copy(b"late"));
            let sending = scope.spawn(|| request.send());
            let asked = || std::fs::read_to_string("/proc/thread-self/net/arp").unwrap();
            until(|| {
                (sending.is_finished() || a.namespace.enter(asked).contains(&to.to_string())).then_some(())
            });
            drop(socket);
            let _other =
                Socket::open(&other, &server, &Open { port, ..Open::default() }).expect("it is free");
            ip(&a, &format!("neighbour replace {to} lladdr 02:00:71:00:00:02 dev genie0"));
            let failed = sending.join().unwrap().expect_err("the port is not this client's any more");
            matches!(failed.error, genie_io::Error::Server(error) if error.code == Errno::BADF.raw_os_error())
        })
    });
    assert!(is_closed_in_time, "it was always too late");
    assert_eq!(host.datagrams.counters().sent, 0);
}
