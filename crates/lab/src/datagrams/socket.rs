//! The kernel's own UDP socket as an end, by each of the calls that it has.

use std::array;
use std::net::UdpSocket;
use std::ops::Range;
use std::time::Duration;

use genie_sys::Errno;
use genie_sys::udp::{self, MANY};
use rustix::net::{RecvFlags, SendFlags, recv, send, sockopt};

use super::{Arrivals, End};
use crate::error::{Error, Result};

/// How much the socket holds.
const HELD: usize = 64 << 20;
/// How long a call that waits for a datagram does so.
const PATIENCE: Duration = Duration::from_millis(20);
/// How many segments one call sends at most, and how many bytes of data an IP packet has room for.
const SEGMENTS: usize = 64;
const PACKET: usize = 65_507;

/// By which calls datagrams are sent and received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Calls {
    /// One for each; the receiver waits in it.
    Blocking,
    /// One for each; the receiver looks again and again.
    Spinning,
    /// One for 32 (`sendmmsg`, `recvmmsg`); the receiver looks again and again.
    Many,
    /// One for as many as the kernel takes in one piece and cuts, and may put together again (`UDP_SEGMENT`, `UDP_GRO`); the receiver looks again
    /// and again.
    Segments,
}

/// A socket that has a peer.
#[derive(Debug)]
pub struct Socket {
    socket: UdpSocket,
    calls: Calls,
    len: usize,
    /// Datagrams that are to be sent, one behind the other, and those that have come.
    sent: Box<[u8]>,
    came: Box<[u8]>,
    /// How many bytes there are for one that comes: one byte more than it has, to know one that is longer.
    room: usize,
    /// How many segments are sent at once.
    segments: usize,
}

impl Socket {
    /// For datagrams of `len` bytes whose bytes behind the number are `byte`. The socket has a peer if anything is to be sent.
    ///
    /// # Errors
    /// No right to hold so much (CAP_NET_ADMIN), or the kernel has no such calls.
    pub fn new(socket: UdpSocket, calls: Calls, len: usize, byte: u8) -> Result<Self> {
        let failed = |call, errno| genie_sys::Error::new(call, "a UDP socket", errno);
        let held = sockopt::set_socket_recv_buffer_size_force(&socket, HELD);
        held.map_err(|errno| {
            failed("setsockopt(SO_RCVBUFFORCE)", errno)
                .with_remedy("CAP_NET_ADMIN is missing: run as root, or below `unshare --map-root-user`")
        })?;
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(PATIENCE))
            .map_err(|errno| failed("setsockopt(SO_RCVTIMEO)", errno))?;
        let segments = (PACKET / len.max(1)).min(SEGMENTS);
        if calls == Calls::Segments {
            udp::segments(&socket, len as u16).map_err(|errno| failed("setsockopt(UDP_SEGMENT)", errno))?;
            udp::merged(&socket).map_err(|errno| failed("setsockopt(UDP_GRO)", errno))?;
        }
        let (at_once, room) = match calls {
            Calls::Blocking | Calls::Spinning => (1, len + 1),
            Calls::Many => (MANY, len + 1),
            Calls::Segments => (segments, 1 << 16),
        };
        let sent = vec![byte; at_once * len].into();
        let came = vec![0; if calls == Calls::Many { MANY * room } else { room }].into();
        Ok(Self { socket, calls, len, sent, came, room, segments })
    }
}

impl End for Socket {
    fn send(&mut self, numbers: Range<u64>) -> Result<()> {
        let Self { socket, calls, len, sent, segments, .. } = self;
        let at_once = match calls {
            Calls::Blocking | Calls::Spinning => 1,
            Calls::Many => MANY,
            Calls::Segments => *segments,
        };
        for first in numbers.clone().step_by(at_once) {
            let count = (numbers.end - first).min(at_once as u64) as usize;
            for (number, datagram) in (first..).zip(sent.chunks_exact_mut(*len)) {
                datagram[..8].copy_from_slice(&number.to_le_bytes());
            }
            let mut left = &sent[..count * *len];
            while !left.is_empty() {
                let gone = match calls {
                    Calls::Many => {
                        let mut datagrams = left.chunks_exact(*len);
                        let datagrams: [&[u8]; MANY] =
                            array::from_fn(|_| datagrams.next().unwrap_or_default());
                        udp::send_many(&*socket, &datagrams[..left.len() / *len], None)
                            .map(|count| count * *len)
                    }
                    _ => send(&*socket, left, SendFlags::empty()),
                };
                match gone {
                    Ok(gone) => left = &left[gone..],
                    // There is no room at the moment.
                    Err(Errno::NOBUFS | Errno::INTR) => std::thread::yield_now(),
                    Err(errno) => return Err(failed("send", errno)),
                }
            }
        }
        Ok(())
    }

    fn take(&mut self, arrivals: &mut Arrivals) -> Result<()> {
        let Self { socket, calls, len, came, room, .. } = self;
        let mut lens = [0; MANY];
        let found = match calls {
            Calls::Many => udp::receive_many(&*socket, came, *room, &mut lens),
            Calls::Blocking => recv(&*socket, &mut came[..], RecvFlags::empty()).map(|(len, _)| len),
            _ => recv(&*socket, &mut came[..], RecvFlags::DONTWAIT).map(|(len, _)| len),
        };
        match (found, calls) {
            (Ok(count), Calls::Many) => {
                for (data, len) in came.chunks_exact(*room).zip(&lens[..count]) {
                    arrivals.note(&data[..*len], *len);
                }
            }
            (Ok(found), Calls::Segments) => {
                came[..found].chunks(*len).for_each(|data| arrivals.note(data, data.len()));
            }
            (Ok(found), _) => arrivals.note(&came[..found], found),
            (Err(Errno::AGAIN | Errno::INTR), _) => {}
            (Err(errno), _) => return Err(failed("receive", errno)),
        }
        Ok(())
    }
}

fn failed(what: &str, errno: Errno) -> Error {
    Error::Peer(format!("a UDP socket of the kernel's cannot {what}: {errno}"))
}
