//! What is refused, and what one client can have.

use std::net::Ipv4Addr;

use genie_io::{Error, In, Out, ServerError};
use genie_net::datagram::{
    ARRIVED, CLOSE, OPEN, Open, RECEIVE, SEND, Socket, Summing, open_argument, port_argument, send_argument,
};
use genie_net::wire;
use rustix::io::Errno;

use crate::hosts::{Hosts, Level, address, host, open, synced};

#[track_caller]
fn refused<T>(why: Errno, result: Result<T, impl Into<Error>>) -> String {
    let result = result.map(|_| ()).map_err(Into::into);
    let is_congestion = result.as_ref().is_err_and(Error::is_congestion);
    assert_eq!(is_congestion, matches!(why, Errno::MFILE | Errno::NOBUFS), "{why:?}");
    match result {
        Err(Error::Server(ServerError { code, message, .. })) => {
            assert_eq!(code, why.raw_os_error(), "{message}");
            message
        }
        other => panic!("{why:?} was expected, not {other:?}"),
    }
}

#[test]
fn a_datagram_longer_than_the_mtu_is_refused_and_the_mtu_is_named() {
    for summing in [Summing::None, Summing::Separate, Summing::Integrated] {
        let hosts = Hosts::with(Level::SnapOff, wire::Options::default(), |options| {
            (options.mtu, options.summing) = (1500, summing);
        });
        let (alice, bob) = (hosts.socket(0), hosts.socket(1));
        for (is_v6, most) in [(false, 1472), (true, 1452)] {
            let to = address(1, is_v6, &bob);
            alice.send_to(Out::copy(&vec![1; most]), to).expect("as long as may be");
            let message = refused(Errno::MSGSIZE, alice.send_to(Out::copy(&vec![1; most + 1]), to));
            assert!(message.contains("MTU, 1500"), "{message}");
            let (_, arrived) = bob.receive(In::copy(&mut [0; 2000])).expect("it has come");
            assert_eq!(arrived.len, most);
        }
        assert_eq!(alice.statistics().expect("counters").sent, 2);
    }
}

#[test]
fn datagrams_that_can_go_nowhere_are_refused() {
    let hosts = Hosts::new(Level::Pooled);
    let (alice, bob) = (hosts.socket(0), hosts.socket(1));
    let to = address(1, false, &bob);
    let connected = hosts.opened(0, &Open { peer: Some(to), ..Open::default() });
    refused(Errno::DESTADDRREQ, alice.send(Out::copy(b"to whom?")));
    refused(Errno::HOSTUNREACH, alice.send_to(Out::copy(b""), (Ipv4Addr::LOCALHOST, 1).into()));
    refused(Errno::ISCONN, connected.send_to(Out::copy(b""), address(1, true, &bob)));
    connected.send(Out::copy(b"there")).expect("it is sent");
    let (_, arrived) = bob.receive(In::copy(&mut [0; 10])).expect("it arrives");
    assert_eq!(arrived.from, address(0, false, &connected));

    let detached = genie_net::datagram::Datagrams::new(
        hosts.genie.clone(),
        Level::Outboard.adapter(hosts.genie.space()),
        crate::hosts::options(0),
    );
    let socket = Socket::open(&hosts.genie, &genie_io::ServerHandle::new(detached), &Open::default());
    refused(Errno::NETDOWN, socket.expect("a port").send_to(Out::copy(b""), to));
}

#[test]
fn a_port_is_its_clients_alone() {
    let hosts = Hosts::new(Level::Early);
    let bob = hosts.opened(1, &Open { port: 53, ..Open::default() });
    let eve = open();
    refused(Errno::ADDRINUSE, Socket::open(&eve, &hosts.handles[1], &Open { port: 53, ..Open::default() }));
    let port = port_argument(53);
    let argument = send_argument(53, Some((host(0, false), 1).into()));
    refused(Errno::BADF, eve.request(&hosts.handles[1], SEND).argument(&argument).send());
    refused(Errno::BADF, eve.request(&hosts.handles[1], CLOSE).argument(&port).send());
    let mut bytes = [0; 10];
    let receive =
        eve.request(&hosts.handles[1], RECEIVE).argument(&port).room(ARRIVED).input(In::copy(&mut bytes));
    refused(Errno::BADF, receive.send());
    assert_eq!(bob.port(), 53);
    drop(bob);
    Socket::open(&eve, &hosts.handles[1], &Open { port: 53, ..Open::default() }).expect("it is free again");
}

#[test]
fn requests_that_make_no_sense_are_refused_and_lose_no_datagram() {
    let hosts = Hosts::new(Level::Splitting);
    let (alice, bob) = (hosts.socket(0), hosts.socket(1));
    alice.send_to(Out::copy(b"hello"), address(1, false, &bob)).expect("it is sent");
    let port = port_argument(bob.port());
    let request = |room: usize| hosts.genie.request(&hosts.handles[1], RECEIVE).argument(&port).room(room);
    let mut bytes = [0; 10];
    let failed = request(ARRIVED - 1).input(In::copy(&mut bytes)).send().expect_err("too little room");
    assert!(matches!(failed.error, Error::ArgumentTooLong { len: ARRIVED, .. }), "{}", failed.error);
    assert!(request(ARRIVED).send().expect_err("no buffer").error.is_misuse());
    let failed = request(ARRIVED).out(Out::copy(b"an output")).send().expect_err("no input");
    assert!(!matches!(failed.error, Error::TimedOut { .. }), "{}", failed.error);
    for (service, len) in [(OPEN, 3), (CLOSE, 3), (SEND, 5), (RECEIVE, 1)] {
        let argument = vec![7; len];
        let failed = hosts.genie.request(&hosts.handles[1], service).argument(&argument).room(100).send();
        assert!(failed.expect_err("no argument").error.is_misuse());
    }
    let failed =
        hosts.genie.request(&hosts.handles[1], OPEN).argument(&open_argument(&Open::default())).send();
    assert!(matches!(failed.expect_err("no room").error, Error::ArgumentTooLong { .. }));
    let (_, arrived) = bob.receive(In::copy(&mut bytes)).expect("it is there");
    assert_eq!(&bytes[..arrived.len], b"hello");
}

#[test]
fn no_client_has_more_than_it_may_and_others_have_theirs() {
    for level in Level::ALL {
        let hosts = Hosts::with(level, wire::Options::default(), |options| {
            options.limits.ports = 3;
            options.limits.waiting = 4;
            (options.limits.queued, options.limits.queued_bytes) = (10, 4000);
            (options.limits.held, options.limits.held_bytes) = (16, 100_000);
        });
        let alice = hosts.socket(0);
        let greedy: Vec<_> = (0..3).map(|_| hosts.socket(1)).collect();
        refused(Errno::MFILE, Socket::open(&hosts.genie, &hosts.handles[1], &Open::default()));
        let waiting: Vec<_> = (0..4).map(|_| greedy[0].submit(In::moved(100)).expect("a request")).collect();
        let fifth = greedy[0].submit(In::moved(100)).expect("a request");
        refused(Errno::NOBUFS, synced(fifth));
        drop(
            waiting.into_iter().map(|pending| pending.abort().expect_err("nothing came")).collect::<Vec<_>>(),
        );

        // A queue has a length, and bytes.
        let send = |socket: &Socket, len: usize, count: u64, kept: u64| {
            let before = socket.statistics().expect("counters").full;
            let to = address(1, false, socket);
            (0..count).for_each(|_| drop(alice.send_to(Out::copy(&vec![1; len]), to).expect("it is sent")));
            assert_eq!(socket.statistics().expect("counters").full - before, count - kept, "{level:?}");
        };
        send(&greedy[0], 2000, 3, 2);
        send(&greedy[1], 10, 6, 6);
        // Eight of sixteen buffers are taken. Another client has half of the others.
        send(&greedy[2], 10, 1, 0);
        let other = open();
        let modest = Socket::open(&other, &hosts.handles[1], &Open::default()).expect("a port");
        send(&modest, 10, 5, 4);
        // What one has received, it may have again.
        greedy[0].receive(In::copy(&mut [0; 2000])).expect("it waits");
        send(&greedy[2], 10, 1, 0);
        modest.receive(In::copy(&mut [0; 2000])).expect("it waits");
        drop((alice, greedy, modest));
        hosts.assert_idle(level);
    }
}

#[test]
fn a_client_has_so_many_datagrams_on_the_wire() {
    let slow = wire::Options { delay: std::time::Duration::from_secs(100), ..wire::Options::default() };
    let hosts = Hosts::with(Level::Pooled, slow, |options| options.limits.sending = 3);
    let alice = hosts.socket(0);
    let argument = send_argument(alice.port(), Some((host(1, false), 1).into()));
    let send = || hosts.genie.request(&hosts.handles[0], SEND).argument(&argument).out(Out::copy(b"bytes"));
    let pending: Vec<_> = (0..3).map(|_| send().submit().expect("a request")).collect();
    refused(Errno::NOBUFS, send().send());
    // A client that gives one datagram up may send another one.
    pending
        .into_iter()
        .for_each(|pending| assert_eq!(pending.abort().expect_err("late").error, Error::Aborted));
    drop(send().submit().expect("a request").abort());
    assert_eq!(hosts.servers[0].counters().unsent, 4);
}

/// The default limits are for more buffers than this adapter has.
#[test]
fn a_port_at_which_nobody_receives_keeps_no_other_client_from_receiving() {
    for level in Level::ALL {
        let hosts = Hosts::new(level);
        let (alice, idle, others) = (hosts.socket(0), hosts.socket(1), open());
        for _ in 0..200 {
            alice.send_to(Out::copy(&[1; 8000]), address(1, false, &idle)).expect("it is sent");
        }
        let bob = Socket::open(&others, &hosts.handles[1], &Open::default()).expect("a port");
        alice.send_to(Out::copy(b"for bob"), address(1, false, &bob)).expect("it is sent");
        let mut buffer = [0; 100];
        let (_, arrived) = synced(bob.submit(In::copy(&mut buffer)).expect("a request")).expect("it waits");
        assert_eq!(&buffer[..arrived.len], b"for bob", "{level:?}");
        assert_eq!(hosts.servers[1].adapter().no_buffers, 0, "{level:?}");
        assert!(hosts.servers[1].counters().full > 100, "{level:?}");
    }
}

#[test]
fn a_datagram_to_port_0_is_refused() {
    let hosts = Hosts::new(Level::Pooled);
    let alice = hosts.socket(0);
    let message = refused(Errno::ADDRNOTAVAIL, alice.send_to(Out::copy(b"x"), (host(1, false), 0).into()));
    assert!(message.contains("port 0"), "{message}");
}
