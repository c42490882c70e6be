//! Files, pipes and sockets as rings.
//!
//! How: a descriptor may be shared with other processes, so its flags stay as they are. Sockets are asked not to block; of anything else but
//! files it is found out first whether it would, and at most a page is written, for which a pipe that is writable has room. A packet is copied
//! on its way to the kernel, since the memory in which it is may be a peer's. What the kernel has not taken of it goes with the next look.
//! A message that is longer than a packet is an error (EMSGSIZE), and lost. An empty datagram is a packet, which sockets of datagrams alone
//! take: of any other kind, an empty message would be the end, or nothing.
//! Limits: where another process reads the same pipe, a read may wait for what that one has taken. A program that does not ignore SIGPIPE, as
//! Rust's do, is killed by it where a pipe's reader is gone.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use genie_memory::Data;
use genie_sys::Errno;
use rustix::event::{PollFd, PollFlags};
use rustix::fs::FileType;
use rustix::net::{RecvFlags, SendFlags, SocketType};

use crate::Frame;
use crate::driver::rings::or_later;
use crate::driver::{Counters, Rings};

/// How much a pipe takes without blocking that is writable.
const PAGE: usize = 4096;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// It never blocks, and epoll refuses it.
    File,
    /// A socket of bytes, or of messages: these end, too.
    Stream,
    Messages,
    /// A socket of datagrams.
    Datagrams,
    Other,
}

/// A descriptor.
#[derive(Debug)]
pub(super) struct Descriptor {
    descriptor: OwnedFd,
    kind: Kind,
    /// The packet that comes, and how much of it is there.
    packet: Vec<u8>,
    filled: usize,
    /// What is still to be written of packets that were put.
    rest: Vec<u8>,
    written: usize,
    is_over: bool,
    /// What the next look is to say, after the packets that came before.
    failed: Option<Errno>,
    counters: Counters,
}

impl Descriptor {
    pub(super) fn new(descriptor: OwnedFd, len: usize) -> std::io::Result<Self> {
        if len == 0 {
            return Err(Errno::INVAL.into());
        }
        let kind = match FileType::from_raw_mode(rustix::fs::fstat(&descriptor)?.st_mode) {
            FileType::RegularFile => Kind::File,
            FileType::Socket => match rustix::net::sockopt::socket_type(&descriptor)? {
                SocketType::STREAM => Kind::Stream,
                SocketType::SEQPACKET => Kind::Messages,
                _ => Kind::Datagrams,
            },
            _ => Kind::Other,
        };
        let (packet, rest, counters) = (vec![0; len], Vec::new(), Counters::default());
        let (is_over, failed) = (false, None);
        Ok(Self { descriptor, kind, packet, filled: 0, rest, written: 0, is_over, failed, counters })
    }

    fn is_message(&self) -> bool {
        matches!(self.kind, Kind::Messages | Kind::Datagrams)
    }

    /// Whether a call would not block.
    fn is_ready(&self, flags: PollFlags) -> Result<bool, Errno> {
        let mut polled = [PollFd::new(&self.descriptor, flags)];
        rustix::event::poll(&mut polled, Some(&Default::default()))?;
        Ok(!polled[0].revents().is_empty())
    }

    /// Reads what there is, at most the rest of a packet; none if there is nothing.
    fn read(&mut self) -> Result<Option<usize>, Errno> {
        if self.kind == Kind::Other && !self.is_ready(PollFlags::IN)? {
            return Ok(None);
        }
        let into = &mut self.packet[self.filled..];
        let (most, now) = (into.len(), RecvFlags::DONTWAIT);
        let read = match self.kind {
            Kind::File | Kind::Other => rustix::io::read(&self.descriptor, into),
            Kind::Stream => rustix::net::recv(&self.descriptor, into, now).map(|(len, _)| len),
            // The length is the message's own.
            Kind::Messages | Kind::Datagrams => {
                rustix::net::recv(&self.descriptor, into, now | RecvFlags::TRUNC).map(|(_, len)| len)
            }
        };
        match or_later(read.map(Some), None)? {
            Some(len) if len > most => {
                self.counters.unfit += 1;
                Err(Errno::MSGSIZE)
            }
            read => Ok(read),
        }
    }

    /// Writes bytes, as many as are taken at once.
    fn write(&self, bytes: &[u8]) -> Result<usize, Errno> {
        let mut done = 0;
        while done < bytes.len() && (self.kind != Kind::Other || self.is_ready(PollFlags::OUT)?) {
            let rest = &bytes[done..];
            let written = match self.kind {
                Kind::File => rustix::io::write(&self.descriptor, rest),
                Kind::Other => rustix::io::write(&self.descriptor, &rest[..rest.len().min(PAGE)]),
                _ => rustix::net::send(&self.descriptor, rest, SendFlags::DONTWAIT | SendFlags::NOSIGNAL),
            };
            match or_later(written, 0)? {
                0 => break,
                written => done += written,
            }
        }
        Ok(done)
    }

    fn put_empty(&mut self) -> Result<bool, Errno> {
        if self.kind != Kind::Datagrams {
            return Err(Errno::MSGSIZE);
        }
        let sent = rustix::net::send(&self.descriptor, &[], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        let is_sent = or_later(sent.map(|_| true), false)?;
        self.counters.sent += u64::from(is_sent);
        Ok(is_sent)
    }
}

impl Rings for Descriptor {
    fn put(&mut self, frame: &Data<'_>) -> Result<bool, Errno> {
        if self.room()? == 0 {
            return Ok(false);
        }
        if frame.is_empty() {
            return self.put_empty();
        }
        let mut bytes = std::mem::take(&mut self.rest);
        bytes.clear();
        frame.append_to(&mut bytes);
        self.written = 0;
        let written = self.write(&bytes)?;
        if self.is_message() && written == 0 {
            return Ok(false);
        }
        self.rest = bytes;
        self.written = written;
        self.counters.sent += 1;
        self.counters.sent_bytes += frame.len() as u64;
        self.counters.copied_by_kernel += frame.len() as u64;
        Ok(true)
    }

    fn room(&mut self) -> Result<usize, Errno> {
        or_later(self.send(), ())?;
        let is_ready = self.kind == Kind::File || self.is_ready(PollFlags::OUT)?;
        Ok(usize::from(is_ready && self.written == self.rest.len()))
    }

    fn send(&mut self) -> Result<(), Errno> {
        self.written += self.write(&self.rest[self.written..])?;
        if self.written < self.rest.len() { Err(Errno::AGAIN) } else { Ok(()) }
    }

    fn take(&mut self, most: usize, see: &mut dyn FnMut(&Frame<'_>)) -> Result<usize, Errno> {
        if let Some(errno) = self.failed.take() {
            return Err(errno);
        }
        let mut taken = 0;
        for _ in 0..most {
            if self.is_over {
                break;
            }
            let len = match self.read() {
                Ok(None) => break,
                Ok(Some(len)) => len,
                Err(errno) if taken == 0 => return Err(errno),
                Err(errno) => {
                    self.failed = Some(errno);
                    break;
                }
            };
            self.filled += len;
            self.is_over = len == 0 && self.kind != Kind::Datagrams;
            let is_whole = self.filled == self.packet.len() || self.is_message() || self.is_over;
            if is_whole && (self.filled > 0 || !self.is_over) {
                let packet = &self.packet[..std::mem::take(&mut self.filled)];
                self.counters.received += 1;
                self.counters.received_bytes += packet.len() as u64;
                self.counters.copied_by_kernel += packet.len() as u64;
                see(&Frame::new(Data::from(packet)));
                taken += 1;
            }
        }
        Ok(taken)
    }

    fn claim(&mut self, _port: u16, _is_ours: bool) -> Result<(), Errno> {
        Err(Errno::OPNOTSUPP)
    }

    fn has_frames(&self) -> bool {
        false
    }

    fn is_over(&self) -> bool {
        self.is_over
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    fn counters(&self) -> Counters {
        self.counters
    }
}
