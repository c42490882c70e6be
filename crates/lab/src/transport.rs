//! Transports: what passes buffers from one process to another, with the standard calls or with those of fbufs.
//!
//! How: an *end* is one process's end of a transport, with the calls that it makes there. A *partner* is a peer process that has
//! the other ends: it sends back what comes, or receives a stream of buffers. Each buffer begins with its number, which its
//! reader checks where it gets the buffer's start; besides, all bytes of some buffers are compared where no clock runs.
//! Limits: a channel passes buffers of a pool and has no other calls. The kernel's buffers have their default sizes, except where
//! one thread writes a long buffer before it reads it.

mod end;
mod partner;
mod peer;

use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use genie_fbufs::Config;
use serde::{Deserialize, Serialize};

pub(crate) use end::End;
pub(crate) use partner::{Partner, Streamed};
pub use peer::{ROLE, run};

/// What passes the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Transport {
    /// A channel between members of a group, which passes buffers in place.
    Channel,
    /// A pipe each way.
    Pipe,
    /// Unix-domain stream sockets.
    UnixSocket,
    /// TCP through the loopback interface, without delay.
    Tcp,
}

impl Transport {
    /// Its name, in documents.
    pub fn name(self) -> &'static str {
        match self {
            Self::Channel => "channel",
            Self::Pipe => "pipe",
            Self::UnixSocket => "Unix socket",
            Self::Tcp => "TCP",
        }
    }

    /// Makes both ends of one of the kernel's: each a descriptor to read from and one to write to.
    ///
    /// # Errors
    /// The limit on descriptors; there is no loopback interface. A channel is not the kernel's.
    pub fn open(self) -> io::Result<[Vec<OwnedFd>; 2]> {
        let both = |socket: OwnedFd| Ok::<_, io::Error>(vec![socket.try_clone()?, socket]);
        match self {
            Self::Channel => Err(io::ErrorKind::Unsupported.into()),
            Self::Pipe => {
                let ((from_there, to_here), (from_here, to_there)) = (io::pipe()?, io::pipe()?);
                let here = vec![from_there.into(), to_there.into()];
                Ok([here, vec![from_here.into(), to_here.into()]])
            }
            Self::UnixSocket => {
                let (here, there) = UnixStream::pair()?;
                Ok([both(here.into())?, both(there.into())?])
            }
            Self::Tcp => {
                let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
                let here = TcpStream::connect(listener.local_addr()?)?;
                let (there, _) = listener.accept()?;
                here.set_nodelay(true)?;
                there.set_nodelay(true)?;
                Ok([both(here.into())?, both(there.into())?])
            }
        }
    }
}

/// With which calls a program passes its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Calls {
    /// `write` and `read`, with a buffer of the program's own.
    Standard,
    /// `uf_write` and `uf_read`, which pass buffers of a pool.
    Fbufs,
}

/// A transport and the calls that both sides make.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Means {
    pub(crate) calls: Calls,
    pub(crate) transport: Transport,
}

impl Means {
    /// The fastest one of fbufs'.
    pub(crate) const CHANNEL: Self = Self::fbufs(Transport::Channel);

    pub(crate) const fn fbufs(transport: Transport) -> Self {
        Self { calls: Calls::Fbufs, transport }
    }

    pub(crate) const fn standard(transport: Transport) -> Self {
        Self { calls: Calls::Standard, transport }
    }

    /// Its name, in tables and figures.
    pub(crate) fn name(self) -> String {
        let calls = match self.calls {
            Calls::Standard => "standard",
            Calls::Fbufs => "fbufs",
        };
        format!("{calls}, {}", self.transport.name())
    }
}

/// The most bytes of buffers that a pool has: what may be on its way in a channel, 256 buffers of 256 KiB, and as much again.
const POOL: usize = 128 << 20;

/// Pools keep all their memory: otherwise streams of long buffers would measure how the kernel gives and takes memory.
pub(crate) fn config() -> Config {
    Config { limit: POOL, keep: POOL, ..Config::default() }
}
