//! The card by itself, and under a link.

use std::time::Duration;

use genie_conformance::{Guard, Setup};
use genie_io::{In, Limits, Out, ServerHandle};
use genie_memory::{Data, GranuleKind};
use genie_net::adapter::{Pool, Pooled};
use genie_net::datagram::{Datagrams, Open, Options, Socket};
use genie_net::driver::{self, Link, Rings};
use genie_passing::Thresholds;
use genie_sys::Errno;

use super::child::{ExitOutcome, fork_child};
use super::{card, until};

#[test]
fn what_a_card_reflects_comes_back_whole_and_in_order() {
    let mut card = card();
    card.control().reflect().expect("a device");
    let lens = [1, 2, 63, 64, 65, 1500, 4072, 4095, 4096];
    let sent: Vec<Vec<u8>> = (0..500).map(|number| vec![number as u8; lens[number % lens.len()]]).collect();
    let mut came = Vec::new();
    for packet in &sent {
        // As many as there are buffers for coming back.
        while came.len() + 64 < card.counters().sent as usize || card.room() == Ok(0) {
            card.take(64, &mut |frame| came.push(bytes_of(frame))).expect("an honest card");
        }
        assert_eq!(card.put(&Data::from(&packet[..])), Ok(true));
        card.send().expect("an honest card");
    }
    while came.len() < sent.len() {
        card.take(64, &mut |frame| came.push(bytes_of(frame))).expect("an honest card");
    }
    assert!(came == sent, "something else has come back");
    let (bytes, counters) = (sent.iter().map(Vec::len).sum::<usize>() as u64, card.counters());
    assert_eq!((counters.sent, counters.sent_bytes, counters.received_bytes), (500, bytes, bytes));
}

fn bytes_of(frame: &genie_net::Frame<'_>) -> Vec<u8> {
    let mut bytes = vec![0; frame.len()];
    frame.read(0, &mut bytes);
    bytes
}

#[test]
fn a_card_refuses_what_fits_no_buffer() {
    let mut card = card();
    for len in [0, 4097] {
        assert_eq!(card.put(&Data::from(&vec![1; len][..])), Err(Errno::MSGSIZE));
    }
    assert_eq!(card.room(), Ok(128));
}

#[test]
fn a_generator_waits_for_buffers_and_leaves_none_out() {
    let mut card = card();
    let control = card.control();
    control.generate(100, 1000, Duration::ZERO).expect("a device");
    let report = || control.report().expect("a device");
    until("the buffers are full", || report().generated == 128 && report().free == 0);
    let mut numbers = Vec::new();
    while numbers.len() < 1000 {
        card.take(10, &mut |frame| {
            let mut number = [0; 8];
            assert_eq!((frame.read(0, &mut number), frame.len()), (8, 100));
            numbers.push(u64::from_le_bytes(number));
        })
        .expect("an honest card");
    }
    assert!(numbers.into_iter().eq(0..1000));
    until("all buffers are home", || report().free == 128);
}

#[test]
fn datagrams_pass_by_a_link_over_a_card_and_wake_who_sleeps() {
    let setup = Setup { guard: Guard::Never, ..Setup::plain(GranuleKind::Base) };
    let genie = setup.interface("card", 64 << 20, Limits::default(), Thresholds::ALWAYS).expect("memory");
    let card = card();
    card.control().reflect().expect("a device");
    let (station, host) = ([2, 0, 0, 0, 0, 1], std::net::Ipv4Addr::new(10, 0, 0, 1).into());
    let pool = Pool::reserve(genie.space(), 2048, 64).expect("memory");
    let options = Options::new(station, [host]).neighbour(host, station);
    let server = Datagrams::new(genie.clone(), Box::new(Pooled::new(pool)), options);
    // Without spinning, each client sleeps until the device rings.
    let options = driver::Options { spin: Duration::ZERO, ..driver::Options::default() };
    let link = Link::new("card0", card, options).expect("descriptors");
    server.attach_link(&link).expect("nobody has either");
    let handle = ServerHandle::new(server);
    let socket = Socket::open(&genie, &handle, &Open::default()).expect("a port");
    for len in [0, 1, 1000, 1472] {
        let (sent, mut came): (Vec<u8>, _) = ((0..len).map(|at| at as u8).collect(), vec![0; len]);
        socket
            .send_to(Out::copy(&sent), (std::net::Ipv4Addr::new(10, 0, 0, 1), socket.port()).into())
            .expect("it goes");
        socket.receive(In::copy(&mut came)).expect("it comes");
        assert_eq!(sent, came);
    }
}

#[test]
#[allow(unsafe_code, reason = "forks a child that makes no calls but these")]
fn a_child_made_by_fork_has_errors_and_its_parents_card_goes_on() {
    let mut card = card();
    let control = card.control();
    control.reflect().expect("a device");
    let in_child = || {
        let is_refused = card.put(&Data::from(&[1; 10][..])) == Err(Errno::CHILD)
            && card.room() == Err(Errno::CHILD)
            && card.take(1, &mut |_| ()) == Err(Errno::CHILD)
            && card.send() == Err(Errno::CHILD)
            && control.report().is_err()
            && !card.has_frames();
        u8::from(!is_refused)
    };
    // SAFETY: the child makes calls that load a number, and fail.
    let child = unsafe { fork_child(in_child) };
    assert_eq!(child.expect("a child").wait().expect("it ends"), ExitOutcome::Code(0));
    assert_eq!(card.put(&Data::from(&[1; 10][..])), Ok(true));
    card.send().expect("an honest card");
    while card.take(1, &mut |_| ()).expect("an honest card") == 0 {}
}
