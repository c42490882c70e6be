//! The loop device: what it promises senders and receivers.

use std::time::Duration;

use genie::channel::{ConnectOptions, Directory, Listener, Running, ServeOptions};
use genie::{Connect, Error, In, Interface, Out, Pending, ServerHandle};
use genie_lab::device::{DISCARD, Loop, PACE, RECEIVE, TRANSMIT, argument};
use genie_lab::interface::Granule;
use genie_net::Rate;

/// Long enough for whatever happens soon, on however busy a machine.
const SOON: Duration = Duration::from_secs(20);
/// Several granules, and not a whole number of them.
const LEN: usize = 40_000;

fn interface() -> Interface {
    Granule::Base.open().expect("an interface with 4 KiB granules")
}

fn bytes(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8 ^ seed).collect()
}

fn post<'i>(genie: &Interface, device: &ServerHandle, port: u32, into: &'i mut [u8]) -> Pending<'i> {
    let request = genie.request(device, RECEIVE).input(In::emulated_copy(into));
    request.argument(&argument(port)).submit().expect("a posted input")
}

fn transmit(genie: &Interface, device: &ServerHandle, port: u32, data: &[u8]) -> Pending<'static> {
    let request = genie.request(device, TRANSMIT).out(Out::emulated_copy(data));
    request.argument(&argument(port)).submit().expect("an output")
}

fn set_rate(genie: &Interface, device: &ServerHandle, rate: Rate) {
    let bits = rate.bits().to_le_bytes();
    genie.request(device, PACE).argument(&bits).send().expect("a rate");
}

#[test]
fn what_is_sent_arrives_at_every_rate_whoever_comes_first() {
    let (genie, device) = (interface(), ServerHandle::new(Loop::default()));
    for rate in Rate::ALL {
        set_rate(&genie, &device, rate);
        for len in [1, 64, 4096, LEN] {
            for receiver_first in [true, false] {
                let data = bytes(len as u8, len);
                let mut into = vec![0; len];
                let (sent, received) = if receiver_first {
                    let received = post(&genie, &device, 7, &mut into);
                    assert!(!received.is_replied());
                    (transmit(&genie, &device, 7, &data), received)
                } else {
                    let sent = transmit(&genie, &device, 7, &data);
                    assert!(!sent.is_replied());
                    (sent, post(&genie, &device, 7, &mut into))
                };
                assert_eq!(received.sync().expect("data").actual(), len);
                sent.sync().expect("a reply to the sender");
                assert!(into == data, "{len} bytes at {}", rate.name());
            }
        }
    }
}

#[test]
fn ports_do_not_mix() {
    let (genie, device) = (interface(), ServerHandle::new(Loop::default()));
    let (mut one, mut two) = (vec![0; 100], vec![0; 100]);
    let at_one = post(&genie, &device, 1, &mut one);
    let at_two = post(&genie, &device, 2, &mut two);
    transmit(&genie, &device, 2, &bytes(2, 100)).sync().expect("sent to the second");
    assert!(!at_one.is_replied() && at_two.is_replied());
    transmit(&genie, &device, 1, &bytes(1, 100)).sync().expect("sent to the first");
    at_one.sync().expect("data");
    at_two.sync().expect("data");
    assert!(one == bytes(1, 100) && two == bytes(2, 100));
}

#[test]
fn a_datagram_that_is_longer_than_its_buffer_is_cut_and_a_shorter_one_says_how_long_it_is() {
    let (genie, device) = (interface(), ServerHandle::new(Loop::default()));
    for (sent, room) in [(100, 60), (60, 100)] {
        let mut into = vec![0xff; room];
        let received = post(&genie, &device, 0, &mut into);
        transmit(&genie, &device, 0, &bytes(3, sent)).sync().expect("sent");
        assert_eq!(received.sync().expect("data").actual(), sent.min(room));
        assert!(into[..sent.min(room)] == bytes(3, sent)[..sent.min(room)]);
        assert!(into[sent.min(room)..].iter().all(|byte| *byte == 0xff), "nothing beyond");
    }
}

#[test]
fn an_aborted_input_gets_nothing_and_the_next_one_gets_the_data() {
    let (genie, device) = (interface(), ServerHandle::new(Loop::default()));
    let (mut aborted, mut kept) = (vec![0; LEN], vec![0; LEN]);
    let first = post(&genie, &device, 1, &mut aborted);
    let second = post(&genie, &device, 1, &mut kept);
    assert!(matches!(first.abort().expect_err("aborted").error, Error::Aborted));
    transmit(&genie, &device, 1, &bytes(9, LEN)).sync().expect("sent");
    second.sync().expect("data");
    assert!(kept == bytes(9, LEN) && aborted.iter().all(|byte| *byte == 0));
}

#[test]
fn nonsense_is_refused_and_harms_nobody() {
    let (genie, device) = (interface(), ServerHandle::new(Loop::default()));
    let mut into = [0; 8];
    let unnamed = genie.request(&device, RECEIVE).input(In::copy(&mut into)).argument(b"12345").send();
    assert!(unnamed.unwrap_err().to_string().contains("4 bytes, not by 5"));
    let swapped = genie.request(&device, RECEIVE).out(Out::copy(b"data")).argument(&argument(1)).submit();
    let met = genie.request(&device, TRANSMIT).out(Out::copy(b"data")).argument(&argument(1)).send();
    assert!(met.is_err(), "a receiver without an input buffer");
    assert!(swapped.expect("it waited").sync().is_err());
    genie.request(&device, DISCARD).send().expect("the device goes on");
}

/// The device behind a channel, as clients in other processes see it.
fn hosted() -> (tempfile::TempDir, Directory, Running) {
    let folder = tempfile::tempdir().expect("a folder");
    let directory = Directory::at(folder.path().join("run")).expect("a directory");
    let options = ServeOptions { pool: 1 << 20, private_pool: 2 << 20, ..ServeOptions::default() };
    let serving = Listener::bind_in(&directory, "loop", Loop::default(), options).expect("a name");
    let running = serving.start().expect("threads");
    (folder, directory, running)
}

fn client(directory: &Directory) -> (Interface, ServerHandle) {
    let genie = interface();
    let device = genie.connect_with(directory, "loop", &ConnectOptions::default()).expect("a connection");
    (genie, device)
}

#[test]
fn what_a_client_that_has_gone_had_sent_or_posted_meets_nobody() {
    let (_folder, directory, _running) = hosted();
    let (genie, device) = client(&directory);
    let (gone, its_device) = client(&directory);
    drop(transmit(&gone, &its_device, 1, &bytes(1, LEN)));
    drop((gone, its_device));
    let (gone, its_device) = client(&directory);
    let mut into = vec![0; LEN];
    drop(post(&gone, &its_device, 2, &mut into));
    drop((gone, its_device));
    // Their hang-ups may come later than the first of these, which then meet dead ones; in time they do not any more.
    arrives_in_time(&genie, &device, 1);
    arrives_in_time(&genie, &device, 2);
}

/// Thesis §6.4: the MTU of a port is the length of the longest packet that came there.
#[test]
fn receivers_are_told_of_the_longest_datagram_at_their_port() {
    let (_folder, directory, _running) = hosted();
    let ((sender, its_device), (genie, there)) = (client(&directory), client(&directory));
    let ask = |port| genie.preferred(&there, RECEIVE, &argument(port)).expect("an answer");
    let longest = |port| ask(port).preferred().map(|preferred| preferred.len);
    let pass = |len: usize| {
        let mut into = vec![0; LEN];
        let received = post(&genie, &there, 1, &mut into);
        transmit(&sender, &its_device, 1, &bytes(1, len)).sync().expect("a reply to the sender");
        assert_eq!(received.sync().expect("data").actual(), len);
    };
    assert_eq!(longest(1), None, "nothing has come yet");
    let mut known = ask(1);
    for (len, expected) in [(1500, 1500), (9180, 9180), (700, 9180)] {
        pass(len);
        let is_longer = known.preferred().is_none_or(|preferred| preferred.len < expected);
        let deadline = std::time::Instant::now() + SOON;
        while is_longer && !known.is_stale() {
            assert!(std::time::Instant::now() < deadline, "the device does not say that {len} bytes came");
            std::thread::yield_now();
        }
        assert_eq!(known.is_stale(), is_longer, "{len} bytes");
        known = ask(1);
        assert_eq!(known.preferred().map(|preferred| preferred.len), Some(expected));
    }
    assert_eq!(longest(2), None, "nothing came to this port");
    let of_senders = genie.preferred(&there, TRANSMIT, &argument(1)).expect("an answer");
    assert_eq!(of_senders.preferred(), None);
}

/// Sends and receives at a port until the data arrives.
fn arrives_in_time(genie: &Interface, device: &ServerHandle, port: u32) {
    let data = bytes(5, LEN);
    let deadline = std::time::Instant::now() + SOON;
    while std::time::Instant::now() < deadline {
        let mut kept = vec![0; LEN];
        let received = post(genie, device, port, &mut kept);
        let sent = transmit(genie, device, port, &data);
        let is_replied = received.wait(Duration::from_millis(100));
        let outcome = if is_replied { received.sync() } else { received.abort() };
        drop(sent);
        if outcome.is_ok() && kept == data {
            return;
        }
    }
    panic!("what the dead have left at port {port} stays there");
}

/// A receiver that forgot its request and went left that at its port, in this process, where nobody aborted it: what was sent there
/// next was lost.
#[test]
fn a_request_of_a_client_that_has_left_takes_nothing_any_more() {
    let device = ServerHandle::new(Loop::default());
    let left = interface();
    let mut lost = vec![0; LEN];
    drop(post(&left, &device, 1, &mut lost));
    drop(left);
    let genie = interface();
    let (data, mut into) = (bytes(9, LEN), vec![0; LEN]);
    let received = post(&genie, &device, 1, &mut into);
    transmit(&genie, &device, 1, &data).sync().expect("a reply to the sender");
    assert!(received.wait(SOON), "the data went to a client that is not there");
    received.sync().expect("data");
    assert!(into == data);
}
