//! The process that has the other ends.

use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;

use genie_fbufs::{Offer, Pool};
use genie_sys::socket::Socket;
use serde::{Deserialize, Serialize};

use super::end::{End, of_transport};
use super::{Means, Transport, config};
use crate::clock::{CpuClock, now_ns};
use crate::error::{Error, Result};
use crate::parties::pattern;
use crate::peer::{self, Link, Said, say};

/// The role in which a peer process must call [`run`].
pub const ROLE: &str = "partner";

/// An order to the process.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Order {
    /// Join the pool of the attached descriptor.
    Join,
    /// Take the other end of a transport: of a channel, the attached socket brings the offer.
    Open(Means),
    /// Send back this many buffers.
    Echo { means: Means, len: usize, count: usize },
    /// Say when ready, then read a stream to its end, and report.
    Receive { means: Means, stream: Stream, to: Sink },
}

/// A stream of buffers.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Stream {
    /// The length of each buffer.
    pub(super) len: usize,
    /// The length of the stream.
    pub(super) total: usize,
}

/// What becomes of what was read.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) enum Sink {
    /// The numbers with which buffers begin are compared.
    Numbers,
    /// All bytes are compared: each buffer has the pattern of its number.
    Patterns,
    /// It is written to `/dev/null`.
    Null,
}

/// How a stream was read.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Report {
    /// When all was read, by the clock that all processes share.
    pub(super) done_ns: u64,
    /// The CPU time of the process meanwhile.
    pub(super) cpu_ns: u64,
}

/// Acts as the partner, on `cpu` if there is one, until the process that started it ends.
///
/// # Errors
/// The process was not started as a peer, or could not do what it was told; then that process has been told why.
pub fn run(cpu: Option<usize>) -> Result<()> {
    let mut ends = Ends { pool: None, open: Vec::new(), clock: CpuClock::of_process() };
    peer::obey(cpu, |order, descriptors, link| ends.obey(order, descriptors, link))
}

struct Ends {
    pool: Option<Pool>,
    open: Vec<(Means, End)>,
    clock: CpuClock,
}

impl Ends {
    fn obey(&mut self, order: Order, descriptors: Vec<OwnedFd>, link: &Link) -> Result<()> {
        match order {
            Order::Join => {
                let [pool]: [OwnedFd; 1] = descriptors.try_into().map_err(|_| nonsense())?;
                self.pool = Some(Pool::join(pool, config())?);
            }
            Order::Open(means) => {
                let end = self.open(means, descriptors)?;
                self.open.push((means, end));
            }
            Order::Echo { means, len, count } => {
                let end = self.end(means)?;
                return (0..count).try_for_each(|_| end.echo(len));
            }
            Order::Receive { means, stream, to } => {
                let clock = self.clock;
                let end = self.end(means)?;
                say(link, &Said::Ready)?;
                let before = clock.now();
                receive(end, stream, to)?;
                let (done_ns, used) = (now_ns(), clock.since(before));
                return say(link, &Report { done_ns, cpu_ns: crate::samples::nanoseconds(used) });
            }
        }
        say(link, &Said::Ready)
    }

    fn open(&self, means: Means, descriptors: Vec<OwnedFd>) -> Result<End> {
        let pool = self.pool.as_ref().ok_or_else(nonsense)?;
        if means.transport != Transport::Channel {
            return End::of(means.calls, descriptors, pool);
        }
        let [socket]: [OwnedFd; 1] = descriptors.try_into().map_err(|_| nonsense())?;
        let offer = Offer::receive(&Socket::try_from_descriptor(socket)?)?;
        Ok(End::Channel(Box::new(pool.take(offer)?)))
    }

    fn end(&mut self, means: Means) -> Result<&mut End> {
        let end = self.open.iter_mut().find(|(open, _)| *open == means);
        end.map(|(_, end)| end).ok_or_else(nonsense)
    }
}

fn receive(end: &mut End, stream: Stream, to: Sink) -> Result<()> {
    let Stream { len, total } = stream;
    match to {
        Sink::Numbers => end.read_all(len, total, |at, bytes| {
            if at.is_multiple_of(len) { check_number(bytes, at / len) } else { Ok(()) }
        }),
        Sink::Patterns => {
            let mut all = Vec::with_capacity(total);
            end.read_all(len, total, |_, bytes| {
                all.extend_from_slice(bytes);
                Ok(())
            })?;
            all.chunks(len).enumerate().try_for_each(|(number, bytes)| check(bytes, number))
        }
        Sink::Null => {
            let mut null = File::options().write(true).open("/dev/null").map_err(of_transport)?;
            end.read_all(len, total, |_, bytes| null.write_all(bytes).map_err(of_transport))
        }
    }
}

/// Compares the number at a buffer's start.
pub(super) fn check_number(bytes: &[u8], number: usize) -> Result<()> {
    match bytes.first_chunk() {
        Some(found) if u64::from_le_bytes(*found) != number as u64 => Err(damaged(number)),
        _ => Ok(()),
    }
}

/// Compares all bytes of a buffer.
pub(super) fn check(bytes: &[u8], number: usize) -> Result<()> {
    pattern::mismatch(bytes, number as u64).map_or(Ok(()), |_| Err(damaged(number)))
}

fn damaged(number: usize) -> Error {
    Error::Peer(format!(
        "buffer {number} of a stream arrived damaged; this is an error of Genie's, please report it"
    ))
}

fn nonsense() -> Error {
    Error::Peer("a partner was told to do what it cannot".to_owned())
}
