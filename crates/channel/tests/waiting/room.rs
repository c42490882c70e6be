//! Room: requests with many parts, and rings with little room.

use std::time::{Duration, Instant};

use genie_channel::{Layout, ServeOptions};
use genie_io::servers::memory::{ECHO, NULL, SINK};
use genie_io::{Error, In, Incoming, Interface, Limits, Out, RequestId, Server, ServerHandle, Service};
use genie_sys::Errno;

use super::fixture::{
    ASK, FOR_EVER, Fixture, Keeper, assert_idle, interface, interface_with, memory, options, store_and_fetch,
};

/// The smallest ring that there can be.
const TINY: Layout = Layout { lines: 2, area: 128 };
/// A ring with room for a request with a buffer or two, and for little else.
const SMALL: Layout = Layout { lines: 4, area: 512 };

fn of_rings(rings: Layout) -> ServeOptions {
    ServeOptions { rings, ..options() }
}

#[test]
fn a_request_of_a_thousand_elements_is_one_record() {
    let fixture = Fixture::new();
    let _running = fixture.serve("memory", memory());
    let interface = interface();
    let server = fixture.connect(&interface, "memory");
    let from: Vec<u8> = (0..200_000u32).map(|at| (at / 7 + at) as u8).collect();
    let mut to = vec![0; from.len()];
    for round in 0..10 {
        to.fill(round);
        let mut pieces = from.chunks(200);
        let mut request = interface.request(&server, ECHO).out(Out::copy(pieces.next().unwrap()));
        for piece in pieces {
            request = request.and_out(Out::emulated_copy(piece));
        }
        let mut pieces = to.chunks_mut(200);
        request = request.input(In::copy(pieces.next().unwrap()));
        for piece in pieces {
            request = request.and_input(In::emulated_copy(piece));
        }
        let reply = request.send().unwrap();
        assert_eq!((reply.buffers[1].actual, reply.receipts().count()), (from.len(), 2_000));
        assert!(from == to, "round {round}");
    }
    assert_idle(&interface);
}

#[test]
fn a_request_that_no_ring_of_the_server_holds_is_refused_and_harms_nothing() {
    let fixture = Fixture::new();
    let _running = fixture.bind("memory", memory(), of_rings(SMALL)).start().unwrap();
    let interface = interface();
    let server = fixture.connect(&interface, "memory");
    let piece = [7; 100];
    let mut request = interface.request(&server, SINK).out(Out::copy(&piece));
    for _ in 0..100 {
        request = request.and_out(Out::copy(&piece));
    }
    let error = request.send().unwrap_err().error;
    assert!(matches!(error, Error::TooManyParts { max, .. } if max < 2_000), "{error}");
    store_and_fetch(&interface, &server, 1, 1);
    assert_idle(&interface);
}

#[test]
fn threads_wait_for_room_on_the_smallest_ring_there_is() {
    let fixture = Fixture::new();
    let _running = fixture.bind("memory", memory(), of_rings(TINY)).start().unwrap();
    let interface = interface();
    let server = fixture.connect(&interface, "memory");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let (interface, server) = (&interface, &server);
            scope.spawn(move || {
                (0..1_000).for_each(|_| drop(interface.request(server, NULL).send().unwrap()));
            });
        }
    });
    assert_idle(&interface);
}

/// If the ring was full of requests that then timed out, their aborts were lost: a server that took these requests later
/// kept them for ever.
#[test]
fn a_request_whose_abort_found_no_room_is_aborted_later() {
    let fixture = Fixture::new();
    let mut driven = fixture.bind("keeper", Keeper::default(), of_rings(SMALL)).drive().unwrap();
    let interface = interface_with(Limits { abort_timeout: Duration::from_millis(5), ..Limits::default() });
    let server = fixture.connect(&interface, "keeper");
    // No thread takes these.
    let submit = || interface.request(&server, ASK).timeout(Duration::from_millis(10)).submit();
    let pending: Vec<_> = std::iter::repeat_with(submit).map_while(Result::ok).collect();
    assert!(!pending.is_empty());
    for request in pending {
        let error = request.sync().unwrap_err().error;
        assert!(matches!(error, Error::TimedOut { .. }), "{error}");
    }
    let start = Instant::now();
    while !interface.flush(&server, Duration::from_millis(1)) {
        assert!(start.elapsed() < FOR_EVER / 6, "the server was not asked to let go");
        driven.attend(Duration::ZERO).expect("a server");
    }
}

/// The replies waited until the server's thread was about to sleep.
#[test]
fn replies_that_found_no_room_are_sent_by_a_thread_that_never_sleeps() {
    let (fixture, keeper) = (Fixture::new(), Keeper::default());
    let mut driven = fixture.bind("keeper", keeper.clone(), of_rings(SMALL)).drive().unwrap();
    let interface = interface();
    let server = fixture.connect(&interface, "keeper");
    let mut outstanding = Vec::new();
    let start = Instant::now();
    while outstanding.len() < 16 {
        outstanding.push(interface.request(&server, ASK).submit().unwrap());
        while keeper.count() < outstanding.len() {
            assert!(start.elapsed() < FOR_EVER, "it does not come");
            driven.attend(Duration::ZERO).unwrap();
        }
    }
    keeper.take(16).into_iter().for_each(|request| request.reply(Ok(())));
    while !outstanding.iter().all(genie_io::Pending::is_replied) {
        assert!(start.elapsed() < FOR_EVER, "the replies are not sent");
        driven.attend(Duration::ZERO).unwrap();
    }
    outstanding.into_iter().for_each(|pending| drop(pending.sync().unwrap()));
    assert_idle(&interface);
}

/// A server in this process that forwards its requests, and waits until they are replied to.
struct Passing {
    interface: Interface,
    to: ServerHandle,
}

static SERVICES: [Service; 1] = [Service::new("ask", false, false)];

impl Server for Passing {
    fn name(&self) -> &str {
        "passing"
    }

    fn services(&self) -> &[Service] {
        &SERVICES
    }

    fn request(&self, mut request: Incoming) {
        let (interface, to) = (self.interface.clone(), self.to.clone());
        std::thread::spawn(move || {
            let fragment = request.fragment(0, 0..request.len(0)).unwrap();
            let passed = interface.request(&to, ASK).out(Out::fragment(fragment)).send();
            request.reply(passed.map(drop).map_err(|failed| failed.error.into()));
        });
    }

    fn abort(&self, _request: RequestId) {
        // The requests that it has forwarded are aborted before.
    }
}

/// A forwarded request waited for room at the next server when the original request was aborted. The abort did not find the
/// forwarded request anywhere, and later it was sent all the same.
#[test]
fn a_request_that_is_aborted_while_it_waits_for_room_is_never_sent() {
    let fixture = Fixture::new();
    let keeper = Keeper::default();
    let options = ServeOptions { pending_requests: 1, ..options() };
    let _running = fixture.bind("keeper", keeper.clone(), options).start().unwrap();
    let interface = interface_with(Limits { abort_timeout: Duration::from_millis(20), ..Limits::default() });
    let to = fixture.connect(&interface, "keeper");
    let first = interface.request(&to, ASK).submit().unwrap();
    let passing = ServerHandle::new(Passing { interface: interface.clone(), to: to.clone() });
    let second = interface.request(&passing, ASK).out(Out::copy(b"second")).submit().unwrap();
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(second.abort().unwrap_err().error, Error::Aborted);
    keeper.take(1).into_iter().for_each(|request| request.reply(Ok(())));
    first.sync().unwrap();
    let start = Instant::now();
    while interface.pending_bytes() > 0 {
        assert!(start.elapsed() < FOR_EVER / 6, "the request was sent, and nobody aborts it");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_idle(&interface);
}

/// Submits as many requests as there is room for, some of them after others have been taken.
fn submit<'i>(interface: &'i Interface, server: &ServerHandle, count: usize) -> Vec<genie_io::Pending<'i>> {
    let mut pending = Vec::new();
    while pending.len() < count {
        match interface.request(server, ASK).submit() {
            Ok(request) => pending.push(request),
            Err(refused) => {
                assert!(matches!(refused.error, Error::ChannelFull { pending: 1.. }), "{refused}");
                std::thread::sleep(Duration::from_micros(50));
            }
        }
    }
    pending
}

#[test]
fn replies_that_found_no_room_come_when_the_client_has_made_some() {
    for rings in [TINY, SMALL] {
        let fixture = Fixture::new();
        let keeper = Keeper::default();
        let _running = fixture.bind("keeper", keeper.clone(), of_rings(rings)).start().unwrap();
        let interface = interface();
        let server = fixture.connect(&interface, "keeper");
        for _ in 0..20 {
            let pending = submit(&interface, &server, 40);
            // All at once, by a thread that is not the worker, which sleeps.
            keeper.take(40).into_iter().for_each(|request| request.reply(Ok(())));
            for request in &pending {
                assert!(request.wait(FOR_EVER), "a reply is missing on {rings:?}");
            }
            pending.into_iter().for_each(|request| drop(request.sync().unwrap()));
        }
        assert_idle(&interface);
    }
}

#[test]
fn a_reply_that_the_ring_never_holds_fails_its_request_alone() {
    for rings in [TINY, SMALL] {
        let fixture = Fixture::new();
        let keeper = Keeper::default();
        let _running = fixture.bind("keeper", keeper.clone(), of_rings(rings)).start().unwrap();
        let interface = interface();
        let server = fixture.connect(&interface, "keeper");
        for is_anticipated in [false, true] {
            let pending = interface.request(&server, ASK).room(1000).submit().unwrap();
            for mut request in keeper.take(1) {
                request.set_argument(&[7; 1000]).unwrap();
                match is_anticipated {
                    true => drop(request.anticipate().unwrap()),
                    false => request.reply(Ok(())),
                }
            }
            let error = pending.sync().unwrap_err().error;
            let Error::Server(told) = &error else { panic!("{error}") };
            assert_eq!(told.code, Errno::MSGSIZE.raw_os_error());
            assert!(told.message.starts_with("the reply takes 1020 bytes"), "{error}");
            let pending = submit(&interface, &server, 1);
            keeper.take(1).into_iter().for_each(|request| request.reply(Ok(())));
            pending.into_iter().for_each(|request| drop(request.sync().unwrap()));
        }
        // A long sentence is cut.
        let pending = submit(&interface, &server, 1);
        keeper.take(1).into_iter().for_each(|request| request.reply(Err("because ".repeat(200).into())));
        let error = pending.into_iter().next().unwrap().sync().unwrap_err().error;
        assert!(
            matches!(&error, Error::Server(told) if told.message.starts_with("because because")),
            "{error}"
        );
        assert_idle(&interface);
    }
}
