//! Flows from and to files, pipes and sockets.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::time::Duration;

use genie_conformance::bytes::pattern;
use genie_net::streaming::{End, Error, Flow};
use genie_sys::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair};

use super::{STYLES, WhenFull, how, started, streaming, until};

fn end(name: &str, descriptor: impl Into<OwnedFd>, len: usize) -> End {
    End::of_descriptor(name, descriptor.into(), len).expect("descriptors")
}

fn file(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().expect("a file");
    file.write_all(bytes).expect("room");
    file.rewind().expect("a file");
    file
}

fn over(flow: &Flow) {
    assert_eq!(flow.wait(Some(Duration::from_secs(20))), Ok(true));
}

/// Its parts are longer than a pipe's room, and no multiple of a packet.
#[test]
fn a_file_comes_through_a_pipe_and_a_socket_whole() {
    let bytes = pattern(1, 300_001);
    for style in STYLES {
        let streaming = streaming();
        let how = how(style, WhenFull::Hold);
        let (reader, writer) = std::io::pipe().expect("a pipe");
        let (near, far) = UnixStream::pair().expect("a socket");
        let mut copy = file(&[]);
        let first = started(&streaming, &end("file", file(&bytes), 5000), &end("pipe", writer, 1), how);
        let second = started(&streaming, &end("pipe", reader, 333), &end("socket", near, 1), how);
        let to = end("copy", copy.try_clone().expect("descriptors"), 1);
        let third = started(&streaming, &end("socket", far, 70_000), &to, how);
        over(&first);
        let statistics = first.statistics();
        assert_eq!((statistics.packets, statistics.bytes, statistics.dropped), (61, 300_001, 0));
        // By the kernel, perhaps into the queue, into a packet of its own, and by the kernel.
        let copies = if style == STYLES[0] { 3 } else { 4 };
        assert_eq!(statistics.copied, copies * 300_001);
        // The pipe's end is known when its writer is gone.
        drop(first);
        over(&second);
        assert_eq!(second.statistics().packets, 901);
        drop(second);
        over(&third);
        let mut came = Vec::new();
        copy.rewind().and_then(|()| copy.read_to_end(&mut came)).expect("a file");
        assert!(came == bytes, "{style:?}: the file has changed on its way");
    }
}

#[test]
fn datagrams_stay_packets() {
    let streaming = streaming();
    for style in STYLES {
        let ((source, from), (to, sink)) =
            (UnixDatagram::pair().expect("sockets"), UnixDatagram::pair().expect("sockets"));
        let flow =
            started(&streaming, &end("from", from, 2000), &end("to", to, 1), how(style, WhenFull::Hold));
        for len in [1, 0, 2000, 7, 500] {
            source.send(&pattern(len as u64, len)).expect("it goes");
            let mut came = [0; 4096];
            assert_eq!(sink.recv(&mut came).expect("it comes"), len);
            assert_eq!(came[..len], pattern(len as u64, len));
        }
        assert_eq!(flow.statistics().dropped, 0);
    }
}

/// What has no messages, or takes an empty one for the end, has no place for an empty datagram.
#[test]
fn an_empty_datagram_is_counted_where_it_can_be_no_packet() {
    let streaming = streaming();
    for style in STYLES {
        let ((source, from), (mut reader, writer)) =
            (UnixDatagram::pair().expect("sockets"), std::io::pipe().expect("a pipe"));
        let flow =
            started(&streaming, &end("from", from, 10), &end("to", writer, 1), how(style, WhenFull::Hold));
        for part in ["", "whole"] {
            source.send(part.as_bytes()).expect("it goes");
        }
        let mut came = [0; 5];
        reader.read_exact(&mut came).expect("it comes");
        assert_eq!(&came, b"whole");
        until("the packet is counted", || flow.statistics().packets == 1);
        assert_eq!((flow.statistics().dropped, flow.statistics().bytes), (1, 5));
    }
}

#[test]
fn a_message_longer_than_a_packet_ends_the_flow_after_what_came_before() {
    let streaming = streaming();
    for kind in [SocketType::DGRAM, SocketType::SEQPACKET] {
        let pair = || socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).expect("sockets");
        let ((source, from), (to, sink)) = (pair(), pair());
        for len in [10, 11, 10] {
            send(&source, &pattern(1, len), SendFlags::empty()).expect("room");
        }
        let (from, to) = (end("from", from, 10), end("to", to, 1));
        let flow = started(&streaming, &from, &to, how(STYLES[0], WhenFull::Hold));
        let failed = flow.wait(Some(Duration::from_secs(20)));
        assert_eq!(failed, Err(Error::Message { end: "from".to_owned() }));
        assert_eq!((flow.statistics().packets, flow.statistics().dropped), (1, 1));
        let mut came = [0; 100];
        assert_eq!(recv(&sink, &mut came[..], RecvFlags::empty()).expect("it comes").1, 10);
        assert_eq!(came[..10], pattern(1, 10));
        assert_eq!(recv(&sink, &mut came[..], RecvFlags::DONTWAIT), Err(Errno::AGAIN));
    }
}

#[test]
fn a_sink_that_goes_ends_its_flow_also_while_nothing_comes() {
    let streaming = streaming();
    for style in STYLES {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        let (_source, from) = UnixStream::pair().expect("a socket");
        let flow =
            started(&streaming, &end("from", from, 10), &end("to", writer, 1), how(style, WhenFull::Hold));
        drop(reader);
        let expected = Error::Sink { end: "to".to_owned(), errno: Errno::PIPE };
        assert_eq!(flow.wait(Some(Duration::from_secs(20))), Err(expected.clone()));
        assert_eq!((flow.start(), flow.stop()), (Err(expected.clone()), Err(expected)));
    }
}

#[test]
fn a_descriptors_flags_stay_as_they_are() {
    use rustix::fs::{OFlags, fcntl_getfl};
    let streaming = streaming();
    let ((reader, writer), copy) = (std::io::pipe().expect("a pipe"), file(&[]));
    let ours = reader.try_clone().expect("descriptors");
    let flow =
        started(&streaming, &end("pipe", reader, 4), &end("file", copy, 1), how(STYLES[0], WhenFull::Hold));
    (&writer).write_all(b"four").expect("room");
    drop(writer);
    over(&flow);
    assert!(!fcntl_getfl(&ours).expect("flags").contains(OFlags::NONBLOCK));
}
