//! Cards, and flows of packets between drivers.

mod card;
#[path = "../../../sys/tests/child/mod.rs"]
mod child;
mod fakes;
mod files;
mod flows;
mod hostile;
mod hosts;
mod network;
#[path = "../datagram/sight.rs"]
mod sight;
mod torture;
mod waiting;

use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use genie_net::driver::Card;
use genie_net::driver::card::{Control, Device};
use genie_net::streaming::{End, Flow, How, Streaming, Style, WhenFull};
use genie_sys::socket::Socket;

/// Says that the test is the other process of a test, and which.
const NUMBER: &str = "GENIE_TEST_NUMBER";
const STYLES: [Style; 2] = [Style::Synchronous, Style::Asynchronous];

/// A card whose device is a thread.
fn card() -> Card {
    let (ours, theirs) = Socket::pair().expect("a socket");
    std::thread::spawn(move || Device::attach(theirs).and_then(Device::run).expect("an honest host"));
    Card::open(ours).expect("a card")
}

/// The same, as an end, and what tells its device what to do.
fn end(name: &str) -> (End, Control) {
    let card = card();
    let control = card.control();
    (End::new(name, card).expect("descriptors"), control)
}

/// Another process, which is the test of this name. Its standard input is the descriptor.
fn elsewhere(name: &str, number: u32, descriptor: OwnedFd) -> Child {
    let mut program = Command::new(std::env::current_exe().expect("the test's own path"));
    program.args([name, "--exact", "--ignored", "--nocapture"]).env(NUMBER, number.to_string());
    program.stdin(descriptor).stdout(Stdio::null()).spawn().expect("a process")
}

/// The socket and the number of another process.
fn given() -> Option<(Socket, u32)> {
    let number = std::env::var(NUMBER).ok()?.parse().expect("a number");
    let control = std::io::stdin().as_fd().try_clone_to_owned().expect("a descriptor");
    Some((Socket::try_from_descriptor(control).expect("a socket"), number))
}

/// A card whose device is a process.
fn card_elsewhere() -> (Card, Child) {
    let (ours, theirs) = Socket::pair().expect("a socket");
    let child = elsewhere("device", 0, theirs.into());
    (Card::open(ours).expect("a card"), child)
}

#[test]
#[ignore = "it is the other process of tests that need one"]
fn device() {
    if let Some((control, _)) = given() {
        Device::attach(control).and_then(Device::run).expect("an honest host");
    }
}

#[test]
#[ignore = "it is the other process of tests that need one"]
fn application() {
    if let Some((control, kind)) = given() {
        hosts::application(control, kind);
    }
}

fn streaming() -> Streaming {
    Streaming::new(Duration::from_micros(20)).expect("descriptors")
}

fn how(style: Style, when_full: WhenFull) -> How {
    How { style, when_full, ..How::default() }
}

/// A flow that is started.
fn started(streaming: &Streaming, from: &End, to: &End, how: How) -> Flow {
    let flow = streaming.connect(from, to, how, None).expect("a flow");
    flow.start().expect("it is new");
    flow
}

/// Waits until it is so.
fn until(what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < end, "{what}: this takes too long");
        std::thread::sleep(Duration::from_micros(200));
    }
}
