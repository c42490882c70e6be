//! AF_XDP: frames go both ways, and what is not ours stays the kernel's.
#![allow(unsafe_code, reason = "forks a child that makes three calls")]

use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use genie_conformance::bytes::{pattern, same};
use genie_conformance::machine::skip;
use genie_conformance::{Buffering, Granules, Guard, Setup};
use genie_memory::{Data, Space};
use genie_net::driver::{Error, Queue, Rings, Xdp};
use genie_net::namespaces::{End, Pair};
use genie_net::network::Network;
use genie_net::network::stream::Stream;
use genie_net::packet::{Between, Header, Hosts};
use genie_sys::Errno;
use genie_sys::bpf::Mode;
use genie_sys::lock::Mutex;

use crate::child;
use crate::udp::pair;

pub(crate) const PORT: u16 = 7000;
/// How many bytes of headers are in front of a datagram's data.
pub(crate) const HEADERS: usize = 42;
/// After this, what should have come never will.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn space() -> Space {
    let setup = Setup::new(Granules::Base, Guard::Never, Buffering::Customized);
    setup.space("driver", 64 << 20).expect("4 KiB pages are there always")
}

pub(crate) fn small() -> Queue {
    Queue { receiving: 128, sending: 64, reserve: 32, away: 64, ..Queue::default() }
}

/// Held by tests that open a queue again, and by those that make a process, which has all descriptors of this one for a moment.
pub(crate) static ALONE: Mutex<()> = Mutex::new(());

/// Opens an end, whose port is claimed; none where this process may not.
fn open(test: &str, end: &End, options: &Queue) -> Option<Xdp> {
    open_in(&space(), test, end, options)
}

pub(crate) fn open_in(space: &Space, test: &str, end: &End, options: &Queue) -> Option<Xdp> {
    let hosts: [IpAddr; 2] = [end.v4.into(), end.v6.into()];
    match end.namespace.enter(|| Xdp::open(space, &end.interface.name, &hosts, options)) {
        Ok(mut xdp) => {
            xdp.claim(PORT, true).unwrap();
            Some(xdp)
        }
        Err(Error::Kernel { source, .. }) if source.remedy.is_some_and(|remedy| remedy.contains("CAP_")) => {
            skip(test, &source.to_string());
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// A frame from end 0 to end 1, or back.
pub(crate) fn frame(pair: &Pair, from: usize, port: u16, data: &[u8]) -> Vec<u8> {
    let hosts = Between { from: pair.ends[from].v4, to: pair.ends[1 - from].v4 };
    let stations = [from, 1 - from].map(|at| pair.ends[at].interface.station);
    let stations = Between { from: stations[0], to: stations[1] };
    let ports = Between { from: PORT, to: port };
    let header = Header { stations, hosts: Hosts::V4(hosts), ports, len: data.len() as u16, checksum: 0 };
    let mut frame = header.build().expect("headers").to_vec();
    frame.extend_from_slice(data);
    frame
}

/// Has frames sent.
pub(crate) fn put(xdp: &mut Xdp, frames: &[Vec<u8>]) {
    for frame in frames {
        while !xdp.put(&Data::from(&frame[..])).expect("it can be sent") {
            xdp.send().expect("the interface is there");
        }
    }
    xdp.send().expect("the interface is there");
}

/// Waits for so many frames.
fn taken(xdp: &mut Xdp, count: usize) -> Vec<Vec<u8>> {
    let (begun, mut frames) = (Instant::now(), Vec::new());
    while frames.len() < count {
        assert!(
            begun.elapsed() < PATIENCE,
            "{} of {count} frames have come: {:?}",
            frames.len(),
            xdp.counters()
        );
        let mut see = |frame: &genie_net::Frame<'_>| {
            let mut bytes = vec![0; frame.len()];
            assert_eq!(frame.read(0, &mut bytes), bytes.len());
            frames.push(bytes);
        };
        xdp.take(count, &mut see).expect("the interface is there");
    }
    frames
}

#[test]
fn frames_of_all_lengths_go_both_ways_in_either_mode() {
    let test = "frames_of_all_lengths_go_both_ways_in_either_mode";
    for (mtu, mode) in [
        (1500, Mode::Native),
        (1500, Mode::Generic),
        (9000, Mode::Native),
        (65_535, Mode::Native),
        (65_535, Mode::Generic),
    ] {
        let Some(pair) = pair(test, mtu) else { return };
        let mut splits = [false, true].into_iter();
        let open_next = |end| {
            let splits = splits.next()?;
            open(test, end, &Queue { mode: Some(mode), splits, ..small() })
        };
        let Some(mut ends) = pair.ends.each_ref().map(open_next).into_iter().collect::<Option<Vec<_>>>()
        else {
            return;
        };
        assert!(ends.iter().all(|xdp| xdp.mode() == mode));
        let longest = mtu as usize - 28;
        let lengths = [1, 22, 1400, 1472, 3798, 3799, 4096, 8192, 20_000, longest];
        for (round, len) in lengths.into_iter().filter(|len| *len <= longest).enumerate() {
            for from in [0, 1] {
                let what = format!("{len} bytes from {from} in {mode:?} mode, MTU {mtu}");
                let frames: Vec<_> = (0..3)
                    .map(|number| frame(&pair, from, PORT, &pattern(round as u64 + number, len)))
                    .collect();
                put(&mut ends[from], &frames);
                for (found, sent) in taken(&mut ends[1 - from], 3).iter().zip(&frames) {
                    same(found, sent, &what);
                }
            }
        }
        let too_long = vec![0; mtu as usize + 19];
        assert_eq!(ends[0].put(&Data::from(&too_long[..])), Err(Errno::MSGSIZE));
    }
}

#[test]
fn what_is_not_ours_stays_the_kernels_and_what_is_ours_comes() {
    let Some(pair) = pair("what_is_not_ours_stays_the_kernels_and_what_is_ours_comes", 1500) else { return };
    let [far, near] = &pair.ends;
    let Some(mut xdp) = open("what_is_not_ours_stays_the_kernels_and_what_is_ours_comes", near, &small())
    else {
        return;
    };
    let [kernels, theirs] =
        [far, near].map(|end| end.namespace.enter(|| UdpSocket::bind((end.v4, PORT + 1)).unwrap()));
    theirs.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut bytes = [0; 32];
    // That the kernel finds the other end at all takes ARP.
    kernels.send_to(b"the kernel's", (near.v4, PORT + 1)).unwrap();
    assert_eq!(theirs.recv(&mut bytes).unwrap(), 12);
    assert_eq!(xdp.take(8, &mut |_| ()), Ok(0));
    kernels.send_to(b"ours", (near.v4, PORT)).unwrap();
    let frames = taken(&mut xdp, 1);
    assert_eq!(&frames[0][HEADERS..HEADERS + 4], b"ours");
    // And back, to a socket of the kernel's.
    let sent = frame(&pair, 1, PORT + 1, b"from ours");
    kernels.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(xdp.put(&Data::from(&sent[..])), Ok(true));
    xdp.send().unwrap();
    let (len, from) = kernels.recv_from(&mut bytes).unwrap();
    assert_eq!((&bytes[..len], from), (&b"from ours"[..], (near.v4, PORT).into()));
    xdp.claim(PORT, false).unwrap();
    let released = near.namespace.enter(|| UdpSocket::bind((near.v4, PORT)).unwrap());
    released.set_read_timeout(Some(PATIENCE)).unwrap();
    kernels.send_to(b"released", (near.v4, PORT)).unwrap();
    assert_eq!(released.recv(&mut bytes).unwrap(), 8);
    drop(xdp);
    kernels.send_to(b"detached", (near.v4, PORT)).unwrap();
    assert_eq!(released.recv(&mut bytes).unwrap(), 8);
}

#[test]
fn a_queue_can_be_opened_again_at_once_and_by_one_alone() {
    let test = "a_queue_can_be_opened_again_at_once_and_by_one_alone";
    let _alone = ALONE.lock();
    let Some(pair) = pair(test, 1500) else { return };
    let [_, near] = &pair.ends;
    for _ in 0..20 {
        let Some(xdp) = open(test, near, &small()) else { return };
        drop(xdp);
    }
    let _xdp = open(test, near, &small());
    let second =
        near.namespace.enter(|| Xdp::open(&space(), &near.interface.name, &[near.v4.into()], &small()));
    let error = second.expect_err("another one has the queue").to_string();
    assert!(
        error.contains(&near.interface.name) && error.contains("another AF_XDP socket has the queue"),
        "{error}"
    );
}

/// Once those for which there was no chunk were counted twice.
#[test]
fn each_frame_comes_or_is_counted_as_dropped_once() {
    let test = "each_frame_comes_or_is_counted_as_dropped_once";
    for mtu in [1500, 9000] {
        let Some(pair) = pair(test, mtu) else { return };
        let Some(mut ends) =
            pair.ends.each_ref().map(|end| open(test, end, &small())).into_iter().collect::<Option<Vec<_>>>()
        else {
            return;
        };
        let sent = vec![frame(&pair, 0, PORT, &vec![7; mtu as usize - 28]); 400];
        put(&mut ends[0], &sent);
        let (begun, mut come) = (Instant::now(), 0);
        while come + ends[1].counters().dropped < 400 {
            assert!(begun.elapsed() < PATIENCE, "{come} have come, {:?}", ends[1].counters());
            come += ends[1].take(8, &mut |_| ()).expect("the interface is there") as u64;
        }
        // What is on its way comes.
        std::thread::sleep(Duration::from_millis(20));
        while ends[1].has_frames() {
            come += ends[1].take(8, &mut |_| ()).expect("the interface is there") as u64;
        }
        let dropped = ends[1].counters().dropped;
        assert!(dropped > 0);
        assert_eq!(come + dropped, 400);
    }
}

#[test]
fn an_interface_that_goes_ends_what_uses_it_by_errors() {
    let test = "an_interface_that_goes_ends_what_uses_it_by_errors";
    let Some(pair) = pair(test, 1500) else { return };
    let Some(mut xdp) = open(test, &pair.ends[1], &small()) else { return };
    let sent = frame(&pair, 1, PORT, b"gone");
    // The kernel removes the link with the other end's namespace.
    let Pair { ends: [far, near] } = pair;
    drop(far);
    let begun = Instant::now();
    let errno = loop {
        match xdp.take(8, &mut |_| ()) {
            Err(errno) => break errno,
            Ok(_) => assert!(begun.elapsed() < PATIENCE, "the interface is there"),
        }
    };
    assert_eq!(errno, Errno::NETDOWN);
    assert_eq!(xdp.put(&Data::from(&sent[..])), Err(Errno::NETDOWN));
    assert_eq!(xdp.send(), Err(Errno::NETDOWN));
    drop(xdp);
    let again =
        near.namespace.enter(|| Xdp::open(&space(), &near.interface.name, &[near.v4.into()], &small()));
    assert!(
        matches!(&again, Err(Error::NoInterface { interface }) if *interface == near.interface.name),
        "{again:?}"
    );
}

/// Names the interface that the process of the next test is to open, and hold until it is killed.
const HELD: &str = "GENIE_TEST_HELD";

#[test]
fn a_process_that_is_killed_leaves_no_program_and_no_queue() {
    let test = "a_process_that_is_killed_leaves_no_program_and_no_queue";
    if let Ok(name) = std::env::var(HELD) {
        let xdp =
            Xdp::open(&space(), &name, &[Ipv4Addr::LOCALHOST.into()], &small()).expect("the parent may");
        println!("held in {:?} mode", xdp.mode());
        loop {
            std::thread::park();
        }
    }
    let _alone = ALONE.lock();
    let Some(pair) = pair(test, 1500) else { return };
    let near = &pair.ends[1];
    for _ in 0..3 {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", &format!("xdp::{test}"), "--nocapture"]).env(HELD, &near.interface.name);
        command.stdout(Stdio::piped());
        if open(test, near, &small()).is_none() {
            return;
        }
        let mut child = near.namespace.enter(|| command.spawn().unwrap());
        let said = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(said.map_while(Result::ok).any(|line| line.contains("held in Native mode")));
        let taken =
            near.namespace.enter(|| Xdp::open(&space(), &near.interface.name, &[near.v4.into()], &small()));
        assert!(matches!(taken, Err(Error::Kernel { .. })), "{taken:?}");
        child.kill().unwrap();
        child.wait().unwrap();
    }
    assert!(open(test, near, &small()).is_some());
}

#[test]
fn a_child_made_by_fork_gets_errors_and_its_parent_goes_on() {
    let test = "a_child_made_by_fork_gets_errors_and_its_parent_goes_on";
    let _alone = ALONE.lock();
    let Some(pair) = pair(test, 1500) else { return };
    let Some(ends) =
        pair.ends.each_ref().map(|end| open(test, end, &small())).into_iter().collect::<Option<Vec<_>>>()
    else {
        return;
    };
    let Ok([mut far, mut near]) = <[Xdp; 2]>::try_from(ends) else { unreachable!("two ends") };
    let sent = frame(&pair, 0, PORT, b"the parent's");
    put(&mut far, std::slice::from_ref(&sent));
    let in_child = || {
        let refused = Errno::CHILD;
        let all = [near.take(1, &mut |_| ()).err(), near.send().err(), far.put(&Data::from(&sent[..])).err()];
        all.iter().filter(|errno| **errno == Some(refused)).count() as u8 + u8::from(near.has_frames())
    };
    // SAFETY: the child makes calls that load a number, and fail.
    let child = unsafe { child::fork_child(in_child) }.unwrap();
    assert_eq!(child.wait().unwrap(), child::ExitOutcome::Code(3));
    assert_eq!(taken(&mut near, 1), [sent]);
}

/// Once it was an overflow.
#[test]
fn queues_that_ask_for_too_much_are_refused() {
    let (space, host) = (space(), Ipv4Addr::LOCALHOST.into());
    for queue in [Queue { receiving: usize::MAX, ..small() }, Queue { sending: usize::MAX, ..small() }] {
        let error = Xdp::open(&space, "lo", &[host], &queue).expect_err("it is too much");
        assert!(error.to_string().contains("1,048,576"), "{error}");
    }
}

/// Once its buffers were taken for the next frame's.
#[test]
fn a_panic_while_a_frame_is_seen_loses_that_frame_alone() {
    let test = "a_panic_while_a_frame_is_seen_loses_that_frame_alone";
    let Some(pair) = pair(test, 1500) else { return };
    let [near, far] = pair.ends.each_ref().map(|end| open(test, end, &small()));
    let (Some(mut near), Some(mut far)) = (near, far) else { return };
    let sent = [[1; 100], [2; 100]].map(|data| frame(&pair, 1, PORT, &data));
    put(&mut far, &sent);
    let begun = Instant::now();
    while !near.has_frames() {
        assert!(begun.elapsed() < PATIENCE);
    }
    let seen = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        near.take(1, &mut |_| panic!("on purpose"))
    }));
    seen.expect_err("it panics");
    assert_eq!(taken(&mut near, 1), sent[1..]);
}

/// Regression: a flow slept on, since nothing had asked why its descriptor was readable.
#[test]
fn a_flow_from_an_interface_that_is_removed_ends_by_its_name() {
    use genie_net::streaming::{self, How, Streaming};
    let test = "a_flow_from_an_interface_that_is_removed_ends_by_its_name";
    let Some(pair) = pair(test, 1500) else { return };
    let near = &pair.ends[0];
    let Some(xdp) = open(test, near, &small()) else { return };
    let null = std::fs::File::create("/dev/null").unwrap().into();
    let from = streaming::End::new("near", xdp).unwrap();
    let to = streaming::End::of_descriptor("null", null, 4096).unwrap();
    let streaming = Streaming::new(Duration::ZERO).unwrap();
    let flow = streaming.connect(&from, &to, How::default(), None).unwrap();
    flow.start().unwrap();
    std::thread::sleep(Duration::from_millis(20));
    let args = ["link", "del", near.interface.name.as_str()];
    assert!(near.namespace.enter(|| Command::new("ip").args(args).status()).unwrap().success());
    let failed = flow.wait(Some(PATIENCE)).expect_err("it is gone");
    let expected = streaming::Error::Source { end: "near".to_owned(), errno: Errno::NETDOWN };
    assert_eq!(failed, expected);
}

/// The drivers of networks that copy run over these rings as over a card's: headers in front of the data, and no other copies than theirs.
#[test]
fn networks_that_copy_go_over_both_ends_of_a_link() {
    let test = "networks_that_copy_go_over_both_ends_of_a_link";
    let Some(pair) = pair(test, 1500) else { return };
    let opened = pair.ends.each_ref().map(|end| open(test, end, &small()));
    let [Some(one), Some(other)] = opened else { return };
    let one = Network::one_copy(one).expect("memory");
    let other = Network::two_copies(other, Stream::new()).expect("memory");
    for (from, sender, receiver) in [(0, &one, &other), (1, &other, &one)] {
        let mut sum = 0;
        for (number, len) in [1, 64, 1400, 1472].into_iter().enumerate() {
            let frame = frame(&pair, from, PORT, &pattern(number as u64, len));
            let mut packet = sender.allocate(frame.len()).expect("no error").expect("a buffer");
            packet.data_mut().copy_from(&frame);
            sender.send(packet).expect("there is room");
            let came = receiver.receive_timeout(Some(PATIENCE)).expect("no error").expect("it comes in time");
            same(&came.data().to_vec(), &frame, format!("{len} bytes from {from}"));
            sum += frame.len() as u64;
        }
        let copies = 1 + from as u64;
        assert_eq!(sender.counters().expect("this process").copied_out, copies * sum);
        assert_eq!(receiver.counters().expect("this process").copied_in, (3 - copies) * sum);
    }
}
