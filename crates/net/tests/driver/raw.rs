//! Datagrams that are sent from where the application has written them arrive at sockets of the kernel's.

use std::net::{IpAddr, UdpSocket};
use std::sync::atomic::Ordering;
use std::time::Duration;

use genie_conformance::bytes::{pattern, same};
use genie_conformance::machine::skip;
use genie_net::driver::Error;
use genie_net::namespaces::Pair;
use genie_net::packet::{Between, Hosts, NotBuilt};
use genie_net::raw::{Flow, Options, Piece, Reason, Sender};
use genie_sys::Errno;

use crate::child;

const PORT: u16 = 7000;
/// After this, what should have come never will.
const PATIENCE: Duration = Duration::from_secs(20);

/// A sender at one end of a link, its own memory, and what it sends to at the other.
struct Stage {
    pair: Pair,
    sender: Sender,
    area: Piece,
}

impl Stage {
    /// None where this process may not.
    fn open(test: &str, mtu: u32, options: &Options) -> Option<Self> {
        let pair = Pair::new(mtu).map_err(|reason| skip(test, &reason.to_string())).ok()?;
        let near = &pair.ends[0];
        match near.namespace.enter(|| Sender::open(&near.interface.name, options)) {
            Ok((sender, area)) => Some(Self { pair, sender, area }),
            Err(Error::Kernel { source, .. })
                if source.remedy.is_some_and(|remedy| remedy.contains("CAP_")) =>
            {
                skip(test, &source.to_string());
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// A socket at the other end, and a flow to it.
    fn flow(&self, is_v6: bool, has_checksum: bool) -> Result<(UdpSocket, Flow), NotBuilt> {
        let [near, far] = &self.pair.ends;
        let (host, hosts): (IpAddr, _) = match is_v6 {
            true => (far.v6.into(), Hosts::V6(Between { from: near.v6, to: far.v6 })),
            false => (far.v4.into(), Hosts::V4(Between { from: near.v4, to: far.v4 })),
        };
        let socket = far.namespace.enter(|| UdpSocket::bind((host, 0)).unwrap());
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let stations = Between { from: near.interface.station, to: far.interface.station };
        let ports = Between { from: PORT, to: socket.local_addr().unwrap().port() };
        Flow::new(stations, hosts, ports, has_checksum).map(|flow| (socket, flow))
    }
}

fn arrives(socket: &UdpSocket, sent: &[u8], what: &str) {
    let mut bytes = vec![0; 65_536];
    let (len, from) = socket.recv_from(&mut bytes).unwrap_or_else(|error| panic!("{what}: {error}"));
    same(&bytes[..len], sent, what);
    assert_eq!(from.port(), PORT);
}

/// Splits memory into pieces of some lengths, and fills them with data.
fn pieces(area: &mut Piece, data: &[u8], cuts: &[usize]) -> Vec<Piece> {
    let (mut at, mut pieces) = (0, Vec::new());
    for end in cuts.iter().copied().chain([data.len()]) {
        let mut piece = area.split_to(end.clamp(at, data.len()) - at);
        let from = at;
        at += piece.len();
        piece.copy_from_slice(&data[from..at]);
        pieces.push(piece);
    }
    pieces
}

#[test]
fn datagrams_of_all_lengths_arrive_by_each_method() {
    let test = "datagrams_of_all_lengths_arrive_by_each_method";
    for mtu in [1500, 9000, 65_535] {
        let options = Options { buffers: 5, area: 1 << 20, batch: 2, queue: 0 };
        let Some(mut stage) = Stage::open(test, mtu, &options) else { return };
        for (is_v6, has_checksum) in [(false, false), (false, true), (true, true)] {
            let (socket, flow) = stage.flow(is_v6, has_checksum).unwrap();
            let Stage { sender, area, .. } = &mut stage;
            let most = sender.most(&flow);
            assert_eq!(most, mtu as usize - if is_v6 { 48 } else { 28 });
            for len in [0, 1, 2, 63, 1400, 1451, 4032, 4033, 8192, most - 1, most]
                .into_iter()
                .filter(|len| *len <= most)
            {
                let (before, data) = (sender.counters(), pattern(len as u64, len));
                let what = |how: &str| {
                    format!("{how}: {len} bytes, MTU {mtu}, IPv6: {is_v6}, checksum: {has_checksum}")
                };
                let mut buffer = sender.buffer().unwrap().expect("a buffer that was sent");
                buffer[..len].copy_from_slice(&data);
                sender.send(&flow, buffer, len).unwrap();
                sender.flush().unwrap();
                arrives(&socket, &data, &what("mmap"));
                // One piece is empty, and none begins where a word does.
                let mut rest = area.split_to(len + 61);
                let _ = rest.split_to(61);
                let cuts = [len / 2, len / 2, len / 2 + 7];
                let cuts = if len < 10_000 { &cuts[..] } else { &[] };
                sender.gather(&flow, pieces(&mut rest, &data, cuts)).unwrap();
                assert!(sender.gathered().unwrap().is_some(), "{}", what("gather"));
                arrives(&socket, &data, &what("gather"));
                assert_eq!(sender.counters().copied, before.copied);
                assert!(sender.copy(&flow, &data).unwrap());
                sender.flush().unwrap();
                arrives(&socket, &data, &what("copying extension"));
                let (after, bytes) = (sender.counters(), 3 * (flow.headers_len() + len) as u64);
                assert_eq!((after.sent - before.sent, after.bytes - before.bytes), (3, bytes));
                assert_eq!(after.copied - before.copied, len as u64);
                assert_eq!(after.copied_by_kernel, after.bytes, "a virtual link has the kernel copy");
            }
        }
    }
}

#[test]
fn what_cannot_be_sent_comes_back_with_the_reason() {
    let test = "what_cannot_be_sent_comes_back_with_the_reason";
    let options = Options { buffers: 1, area: 1 << 20, ..Options::default() };
    let Some(mut stage) = Stage::open(test, 1500, &options) else { return };
    assert_eq!(stage.flow(true, false).unwrap_err(), NotBuilt::NoChecksum);
    let (socket, flow) = stage.flow(false, true).unwrap();
    let Stage { pair, sender, area } = &mut stage;
    let mut buffer = sender.buffer().unwrap().unwrap();
    buffer[..1472].fill(7);
    assert!(sender.buffer().unwrap().is_none(), "the only one is out");
    let refused = sender.send(&flow, buffer, 1473).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "a datagram was not sent: 1473 bytes of data and 28 of headers are more than the MTU of genie0, 1500"
    );
    sender.send(&flow, refused.given, 1472).unwrap();
    sender.flush().unwrap();
    arrives(&socket, &[7; 1472], "the same buffer");
    assert!(matches!(sender.copy(&flow, &[0; 1473]), Err(Reason::TooLong { len: 1473, mtu: 1500, .. })));
    let many = (0..18).map(|_| area.split_to(1)).collect();
    let refused = sender.gather(&flow, many).unwrap_err();
    assert_eq!((refused.reason, refused.given.len()), (Reason::Scattered { parts: 18 }, 18));
    // A buffer that is dropped is the sender's again.
    for _ in 0..3 {
        assert!(sender.buffer().unwrap().is_some());
    }
    let second = pair.ends[0].namespace.enter(|| Sender::open("genie0", &options));
    let error = second.expect_err("one socket has the queue").to_string();
    assert!(error.contains("genie0") && error.contains("another AF_XDP socket"), "{error}");
    let missing = pair.ends[0].namespace.enter(|| Sender::open("nowhere", &options));
    assert!(matches!(missing, Err(Error::NoInterface { interface }) if interface == "nowhere"));
}

#[test]
fn buffers_are_used_again_after_so_many_others_or_when_they_were_sent() {
    const COUNT: u32 = 1000;
    let test = "buffers_are_used_again_after_so_many_others_or_when_they_were_sent";
    let options = Options { buffers: 8, ..Options::default() };
    let Some(mut stage) = Stage::open(test, 1500, &options) else { return };
    let (socket, flow) = stage.flow(false, true).unwrap();
    for is_weak in [false, true] {
        for number in 0..COUNT {
            let bytes = number.to_le_bytes();
            let sender = &mut stage.sender;
            if is_weak {
                // Seven others were sent after the one that comes.
                let mut buffer = sender.buffer_after(7).unwrap().expect("a buffer that was sent long ago");
                buffer.write(1, &bytes[1..]);
                buffer.bytes()[0].store(bytes[0], Ordering::Relaxed);
                sender.send(&flow, buffer, bytes.len()).unwrap();
            } else {
                let mut buffer = sender.buffer().unwrap().expect("a buffer that was sent");
                buffer[..bytes.len()].copy_from_slice(&bytes);
                sender.send(&flow, buffer, bytes.len()).unwrap();
            }
            if number % 100 == 99 {
                sender.flush().unwrap();
                for number in number - 99..=number {
                    arrives(&socket, &number.to_le_bytes(), &format!("datagram {number}, weak: {is_weak}"));
                }
            }
        }
    }
    let held: Vec<_> = (0..4).map(|_| stage.sender.buffer_after(4).unwrap()).collect();
    assert!(held.iter().all(Option::is_some));
}

/// The kernel removes the link with the other end's namespace.
#[test]
fn an_interface_that_goes_ends_sending_by_an_error() {
    let test = "an_interface_that_goes_ends_sending_by_an_error";
    let Some(Stage { pair, mut sender, .. }) = Stage::open(test, 1500, &Options::default()) else { return };
    let [near, far] = pair.ends;
    drop(far);
    while near.namespace.enter(|| genie_net::driver::interfaces::interface("genie0")).is_ok() {
        std::thread::yield_now();
    }
    let hosts = Hosts::V4(Between { from: near.v4, to: near.v4 });
    let flow =
        Flow::new(Between { from: [2; 6], to: [2; 6] }, hosts, Between { from: 1, to: 2 }, false).unwrap();
    let buffer = sender.buffer().unwrap().unwrap();
    sender.send(&flow, buffer, 1).unwrap();
    let errno = sender.flush().expect_err("the interface is gone");
    assert!([Errno::NETDOWN, Errno::NXIO].contains(&errno), "{errno}");
}

/// Once the sender's own bytes at the same place were sent.
#[test]
fn what_lies_in_another_senders_memory_is_refused() {
    let test = "what_lies_in_another_senders_memory_is_refused";
    let options = Options { buffers: 4, area: 4096, ..Options::default() };
    let Some(mut one) = Stage::open(test, 1500, &options) else { return };
    let Some(mut other) = Stage::open(test, 1500, &options) else { return };
    let (_socket, flow) = one.flow(false, false).unwrap();
    let refused = one.sender.gather(&flow, vec![one.area.split_to(8), other.area.split_to(8)]).unwrap_err();
    assert_eq!((refused.reason, refused.given.len()), (Reason::Elsewhere, 2));
    let buffer = other.sender.buffer().unwrap().expect("none was sent");
    let refused = one.sender.send(&flow, buffer, 8).unwrap_err();
    assert_eq!(refused.reason, Reason::Elsewhere);
    assert_eq!(one.sender.counters().sent, 0);
}

/// Once it had buffers.
#[test]
#[allow(unsafe_code, reason = "forks a child")]
fn a_child_made_by_fork_gets_errors() {
    let options = Options { buffers: 4, area: 4096, ..Options::default() };
    let Some(mut stage) = Stage::open("a_child_made_by_fork_gets_errors", 1500, &options) else { return };
    let sender = &mut stage.sender;
    let in_child = || {
        let all = [
            sender.buffer().err(),
            sender.buffer_after(1).err(),
            sender.gathered().err(),
            sender.flush().err(),
        ];
        all.iter().filter(|errno| **errno == Some(Errno::CHILD)).count() as u8
    };
    // SAFETY: the child makes calls that load a number, and fail.
    let child = unsafe { child::fork_child(in_child) }.unwrap();
    assert_eq!(child.wait().unwrap(), child::ExitOutcome::Code(4));
    assert!(stage.sender.buffer().unwrap().is_some());
}

/// Once it was an overflow.
#[test]
fn options_that_ask_for_too_much_are_refused() {
    let most = usize::MAX;
    for options in
        [Options { buffers: most, ..Options::default() }, Options { area: most, ..Options::default() }]
    {
        let error = Sender::open("lo", &options).expect_err("it is too much");
        assert!(error.to_string().contains("65,536"), "{error}");
    }
}
