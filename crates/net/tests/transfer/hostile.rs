//! Hostile packets and clients: nothing takes memory without bounds, and nothing is lost without a word.

use std::time::Duration;

use genie_conformance::bytes::pattern;
use genie_io::ServerHandle;
use genie_io::{Error, In, Out, Pending};
use genie_memory::Data;
use genie_net::transfer::port;
use genie_net::wire::{self, Clock, Options};
use genie_net::{Frame, Wire};
use genie_passing::Scheme;

use crate::link::{Kind, Link, PORT, RECEIVE, SEND, receiving};

fn packet(port: u16, at: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = vec![8, 0];
    bytes.extend(port.to_be_bytes());
    bytes.extend(at.to_be_bytes());
    bytes.extend(data);
    bytes
}

/// Has a frame arrive at a station.
fn arrive(station: &impl wire::Station, bytes: &[u8]) {
    station.arrive(&Frame::new(Data::from(bytes)));
}

fn send(link: &Link, bytes: &[u8]) {
    let port = port(PORT);
    link.genie.request(&link.sender, SEND).argument(&port).out(Out::copy(bytes)).send().expect("sent");
}

fn ask(link: &Link, len: usize) -> Pending<'static> {
    let (port, buffer) = (port(PORT), link.genie.allocate(len).expect("memory"));
    let asked = link.genie.request(&link.receiver, RECEIVE).argument(&port);
    asked.input(In::owned(Scheme::EmulatedCopy, buffer)).submit().expect("asked")
}

#[test]
fn a_server_without_a_wire_sends_nothing_and_one_whose_wire_leads_back_to_it_sends_to_itself() {
    let link = Link::open(Kind::Early, receiving(1000));
    let (bytes, port) = (pattern(1, 5000), port(PORT));
    let send = || link.genie.request(&link.receiver, SEND).argument(&port).out(Out::copy(&bytes)).send();
    assert!(send().expect_err("no wire").error.to_string().contains("no wire"));
    let wire = Wire::new(Options::default(), Clock::default(), link.receiving.clone()).expect("options");
    link.receiving.attach(ServerHandle::new(wire)).expect("a wire");
    let asked = ask(&link, bytes.len());
    send().expect("a wire");
    let mut reply = asked.sync().expect("data");
    assert_eq!(reply.take_buffer().as_deref(), Some(&bytes[..]));
}

/// A request that waits for bytes that the server has dropped is told.
#[test]
fn a_request_whose_bytes_are_dropped_for_a_limit_is_told() {
    for kind in Kind::ALL {
        let mut how = receiving(4096);
        how.limits.queued = 1000;
        let link = Link::open(kind, how);
        let asked = ask(&link, 100);
        send(&link, &pattern(1, 4096));
        send(&link, &pattern(1, 4096));
        let is_told = asked.wait(Duration::from_secs(2));
        drop(asked.abort());
        assert!(is_told, "{kind:?}: its 100 bytes came twice over and were dropped; it waits for ever");
    }
}

/// Requests are laid out for the packets that are expected: not byte by byte after a packet of one.
#[test]
fn short_packets_are_not_expected() {
    let mut how = receiving(4096);
    how.tracks = true;
    let link = Link::open(Kind::Early, how);
    let expected = || {
        let preference = link.genie.preferred(&link.receiver, RECEIVE, &port(PORT)).expect("an answer");
        preference.preferred().expect("a layout").len
    };
    arrive(&link.receiving, &packet(PORT, 5, &[1]));
    assert_eq!(expected(), 4096);
    arrive(&link.receiving, &packet(PORT, 6, &[1; 600]));
    assert_eq!(expected(), 600);
}

/// Ports that nobody asks at leave something for those where somebody does.
#[test]
fn transfers_keep_no_more_than_the_adapter_can_spare() {
    for kind in [Kind::Pooled, Kind::SnapOff, Kind::Outboard] {
        let link = Link::open(kind, receiving(4096));
        for number in 100..1200 {
            for at in 0..2 {
                arrive(&link.receiving, &packet(number, at * 4000, &[1; 4000]));
            }
        }
        let pending = ask(&link, 8000);
        arrive(&link.receiving, &packet(PORT, 0, &[2; 4000]));
        arrive(&link.receiving, &packet(PORT, 4000, &[2; 4000]));
        let is_filled = pending.wait(Duration::from_secs(1));
        drop(pending.abort());
        assert!(is_filled, "{kind:?}: {:?}", link.receiving.totals());
    }
}

/// A request of the wrong direction is refused, without a panic in the server, and takes no place in the stream.
#[test]
fn an_input_that_is_to_be_sent_is_refused() {
    let link = Link::open(Kind::Pooled, receiving(4096));
    let asked = ask(&link, 200);
    send(&link, &[1; 100]);
    let wrong = link
        .genie
        .request(&link.sender, SEND)
        .argument(&port(PORT))
        .input(In::copy(&mut [0; 50]))
        .send()
        .expect_err("nothing to send");
    println!("{}", wrong.error);
    send(&link, &[1; 100]);
    let is_filled = asked.wait(Duration::from_secs(2));
    drop(asked.abort());
    assert!(is_filled, "a gap in the stream: all that is sent later is kept from its receivers");
    assert!(!matches!(wrong.error, Error::Panicked { .. }), "the server panicked");
}

/// Packets that came early, and were overtaken, are forgotten.
#[test]
fn early_packets_that_are_overtaken_are_not_kept() {
    let link = Link::open(Kind::Pooled, receiving(4096));
    arrive(&link.receiving, &packet(PORT, 0, &[1; 10]));
    // 64 packets that overlap the one that comes next.
    (0..64).for_each(|at| arrive(&link.receiving, &packet(PORT, 11 + at, &[2])));
    arrive(&link.receiving, &packet(PORT, 10, &[1; 990]));
    ask(&link, 1000).sync().expect("all of it");
    // Two packets that change their places on the way, as may be at any time.
    let pending = ask(&link, 200);
    arrive(&link.receiving, &packet(PORT, 1100, &[1; 100]));
    arrive(&link.receiving, &packet(PORT, 1000, &[1; 100]));
    let is_filled = pending.wait(Duration::from_secs(1));
    drop(pending.abort());
    assert!(
        is_filled,
        "64 packets that are of no use to anybody take all the room for early ones: {:?}",
        link.receiving.totals()
    );
}

/// One stream keeps no more segments than the adapter can spare, whatever few bytes are in each.
#[test]
fn short_packets_of_one_port_leave_segments_for_others() {
    let link = Link::open(Kind::Pooled, receiving(4096));
    // 20 KB at one port, of 1 MiB that may be queued there.
    (0..2000).for_each(|at| arrive(&link.receiving, &packet(100, at * 10, &[1; 10])));
    let pending = ask(&link, 100);
    arrive(&link.receiving, &packet(PORT, 0, &[2; 100]));
    let is_filled = pending.wait(Duration::from_secs(1));
    drop(pending.abort());
    assert!(is_filled, "{:?}", link.receiving.totals());
}
