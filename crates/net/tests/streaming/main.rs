//! Cards, and flows of packets between drivers.

mod card;
#[path = "../../../sys/tests/child/mod.rs"]
mod child;
mod fakes;
mod files;
mod flows;
mod hostile;
mod network;
mod torture;
mod waiting;

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use genie_net::driver::Card;
use genie_net::driver::card::{Control, Device};
use genie_net::streaming::{End, Flow, How, Streaming, Style, WhenFull};
use genie_sys::socket::Socket;

/// Says that the test is the other process of a test.
const DEVICE: &str = "GENIE_TEST_DEVICE";
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

/// A card whose device is a process.
fn card_elsewhere() -> (Card, std::process::Child) {
    let (ours, theirs) = Socket::pair().expect("a socket");
    let mut program = Command::new(std::env::current_exe().expect("the test's own path"));
    program.args(["device", "--exact", "--ignored", "--nocapture"]).env(DEVICE, "1");
    let child = program.stdin(Stdio::from(std::os::fd::OwnedFd::from(theirs))).stdout(Stdio::null());
    let child = child.spawn().expect("a process");
    (Card::open(ours).expect("a card"), child)
}

#[test]
#[ignore = "it is the other process of tests that need one"]
fn device() {
    use std::os::fd::AsFd;
    if std::env::var_os(DEVICE).is_some() {
        let control = std::io::stdin().as_fd().try_clone_to_owned().expect("a descriptor");
        let control = Socket::try_from_descriptor(control).expect("a socket");
        Device::attach(control).and_then(Device::run).expect("an honest host");
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
