//! The protocol server: what it promises about headers and checksums.

use std::task::{Context, Waker};
use std::time::Duration;

use genie::{Completer, In, Interface, Out, Pending, ServerHandle};
use genie_lab::device::{Loop, RECEIVE, TRANSMIT, argument};
use genie_lab::interface::Granule;
use genie_lab::protocol::{Check, Protocol};
use genie_net::checksum::Checksum;
use genie_sys::poll::readable;

const LEN: usize = 10_000;

/// A sender's and a receiver's server, at one device.
struct Ends {
    genie: Interface,
    device: ServerHandle,
    sender: Protocol,
    receiver: Protocol,
}

impl Ends {
    fn open(sender: Check, receiver: Check) -> Self {
        let genie = Granule::Base.open().expect("an interface with 4 KiB granules");
        let device = ServerHandle::new(Loop::default());
        let end = |check| {
            let protocol = Protocol::new(genie.clone(), device.clone());
            protocol.set_check(check);
            protocol
        };
        Self { sender: end(sender), receiver: end(receiver), device, genie }
    }

    fn post<'i>(&self, into: &'i mut [u8]) -> Pending<'i> {
        let server = ServerHandle::new(self.receiver.clone());
        let request = self.genie.request(&server, RECEIVE).input(In::emulated_copy(into));
        request.argument(&argument(1)).submit().expect("a posted input")
    }

    fn send(&self, data: &[u8]) {
        let server = ServerHandle::new(self.sender.clone());
        let request = self.genie.request(&server, TRANSMIT).out(Out::emulated_copy(data));
        let sent = request.argument(&argument(1)).submit().expect("an output");
        sent.sync().expect("a reply to the sender");
    }
}

fn data() -> Vec<u8> {
    (0..LEN).map(|at| (at % 251) as u8 + 1).collect()
}

#[test]
fn headers_are_put_before_and_taken_off_with_every_check() {
    let kinds = Checksum::ALL.into_iter();
    let checks = kinds.flat_map(|kind| [Check::None, Check::Separate(kind), Check::Integrated(kind)]);
    for check in checks {
        let ends = Ends::open(check, check);
        for room in [LEN, LEN + 77] {
            let mut into = vec![0; room];
            let received = ends.post(&mut into);
            ends.send(&data());
            assert_eq!(received.sync().expect("data").actual(), LEN, "{check:?}");
            assert!(into[..LEN] == data() && into[LEN..].iter().all(|byte| *byte == 0), "{check:?}");
        }
        // Nobody waits for a datagram that was copied.
        ends.sender.collect();
        assert!(ends.sender.is_idle() && ends.receiver.is_idle());
    }
}

/// An event loop that had the protocol server do something slept though the device behind it had replied.
#[test]
fn an_event_loop_is_woken_for_what_arrives_at_the_device() {
    let sending = Ends::open(Check::None, Check::None);
    let genie = Granule::Base.open().expect("an interface with 4 KiB granules");
    let server = ServerHandle::new(sending.receiver.clone());
    let descriptor = genie.descriptor().expect("a descriptor");
    let mut into = vec![0; LEN];
    let request = genie.request(&server, RECEIVE).input(In::emulated_copy(&mut into));
    let received = request.argument(&argument(1)).submit().expect("a posted input");
    let is_readable = |timeout| readable(descriptor, Some(timeout)).expect("a descriptor");
    genie.collect();
    assert!(genie.arm() && !is_readable(Duration::ZERO), "nothing has arrived");
    sending.send(&data());
    assert!(is_readable(Duration::from_secs(60)), "the server's own interface tells of the device");
    genie.collect();
    let mut context = Context::from_waker(Waker::noop());
    assert!(received.poll(&mut context).is_ready());
    assert_eq!(received.sync().expect("data").actual(), LEN);
    assert!(into == data());
}

#[test]
fn damage_is_found_before_it_reaches_the_client() {
    // The two ends disagree about the checksum, as they do when the data is damaged.
    let ends = Ends::open(Check::Separate(Checksum::Internet), Check::Separate(Checksum::Crc32c));
    let mut into = vec![7; LEN];
    let received = ends.post(&mut into);
    ends.send(&data());
    let error = received.sync().expect_err("damaged data").to_string();
    assert!(error.contains("damaged: the CRC32C is"), "{error}");
    assert!(into.iter().all(|byte| *byte == 7), "the client's buffer is as it was");
}

#[test]
fn what_has_no_header_or_lacks_its_end_is_refused() {
    let ends = Ends::open(Check::None, Check::None);
    let mut into = vec![7; LEN];
    let received = ends.post(&mut into);
    let port = argument(1);
    let raw = ends.genie.request(&ends.device, TRANSMIT).out(Out::copy(&[0; 100])).argument(&port);
    raw.send().expect("sent");
    assert!(received.sync().expect_err("no header").to_string().contains("no header"));
    let mut short = vec![7; LEN / 2];
    let received = ends.post(&mut short);
    ends.send(&data());
    let error = received.sync().expect_err("a cut datagram").to_string();
    assert!(error.contains("5000 bytes arrived of a datagram of 10000"), "{error}");
    assert!(into.iter().chain(&short).all(|byte| *byte == 7));
}

#[test]
fn an_aborted_input_leaves_nothing_behind() {
    let ends = Ends::open(Check::None, Check::None);
    let mut into = vec![7; LEN];
    assert!(ends.post(&mut into).abort().is_err());
    assert!(ends.receiver.is_idle());
    let mut kept = vec![0; LEN];
    let received = ends.post(&mut kept);
    ends.send(&data());
    received.sync().expect("data");
    assert!(kept == data() && into.iter().all(|byte| *byte == 7));
}
