//! A partner, as the measuring process holds it.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use genie_fbufs::Pool;
use genie_sys::socket::Socket;

use super::end::{End, of_transport};
use super::peer::{Order, ROLE, Report, Sink, Stream, check, check_number};
use super::{Means, Transport};
use crate::clock::{CpuClock, now_ns};
use crate::error::Result;
use crate::parties::pattern;
use crate::peer::Peer;

/// Round trips at the beginning of each turn that do not count: the partner is awake after them.
const WARM_UP: usize = 4;
/// How many buffers of a stream are compared.
const COMPARED: usize = 3;

/// A peer process with ends here and there.
#[derive(Debug)]
pub(crate) struct Partner {
    // Declared in the order in which they are to go.
    ends: Vec<(Means, End)>,
    peer: Peer,
    clock: CpuClock,
}

/// What a stream has cost.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Streamed {
    /// From before the first buffer was written until all were read.
    pub(crate) time: Duration,
    /// The CPU time of the sender and of the receiver.
    pub(crate) cpu: [Duration; 2],
}

impl Partner {
    /// Starts a process on a CPU, and opens all these transports to it.
    ///
    /// # Errors
    /// The process does not start, or a transport cannot be had.
    pub(crate) fn open(cpu: usize, means: &[Means], pool: &Pool) -> Result<Self> {
        let peer = Peer::start(ROLE, Some(cpu))?;
        peer.order(&Order::Join, &[pool.descriptor()?.as_fd()], "it joined a pool")?;
        let mut partner = Self { ends: Vec::new(), peer, clock: CpuClock::of_process() };
        for one in means {
            let end = partner.end(*one, pool)?;
            partner.ends.push((*one, end));
        }
        Ok(partner)
    }

    fn end(&self, means: Means, pool: &Pool) -> Result<End> {
        let order = Order::Open(means);
        let doing = format!("it opened {}", means.name());
        if means.transport == Transport::Channel {
            let (channel, offer) = pool.channel()?;
            let (ours, theirs) = Socket::pair()?;
            offer.send(&ours)?;
            self.peer.order(&order, &[OwnedFd::from(theirs).as_fd()], &doing)?;
            return Ok(End::Channel(Box::new(channel)));
        }
        let [ours, theirs] = means.transport.open().map_err(of_transport)?;
        self.peer.order(&order, &[theirs[0].as_fd(), theirs[1].as_fd()], &doing)?;
        End::of(means.calls, ours, pool)
    }

    /// Has an end at work, and the peer at the other one.
    fn with<T>(&mut self, means: Means, work: impl FnOnce(&mut End, &Peer) -> Result<T>) -> Result<T> {
        let end = self.ends.iter_mut().find(|(open, _)| *open == means);
        let (_, end) = end.expect("a partner is asked for what it has opened");
        work(end, &self.peer).map_err(|error| match error {
            // If the process has failed, that is why.
            crate::error::Error::Peer(why) => {
                self.peer.failure(&std::io::Error::other(why), "data was passed")
            }
            other => other,
        })
    }

    /// Makes round trips; returns how long each took.
    pub(crate) fn round_trips(&mut self, means: Means, len: usize, count: usize) -> Result<Vec<Duration>> {
        self.with(means, |end, peer| {
            let order = Order::Echo { means, len, count: WARM_UP + count };
            peer.tell(&order, &[], "it sent buffers back")?;
            let mut trip = |number: usize| {
                let start = Instant::now();
                end.write(len, |bytes| store_number(bytes, number))?;
                end.read_all(
                    len,
                    len,
                    |at, bytes| if at == 0 { check_number(bytes, number) } else { Ok(()) },
                )?;
                Ok(start.elapsed())
            };
            (0..WARM_UP).try_for_each(|number| trip(number).map(drop))?;
            (0..count).map(&mut trip).collect()
        })
    }

    /// Sends a stream of `count` buffers.
    pub(crate) fn stream(&mut self, means: Means, len: usize, count: usize) -> Result<Streamed> {
        self.send(means, Stream { len, total: len * count }, Sink::Numbers, |end| {
            (0..count).try_for_each(|number| end.write(len, |bytes| store_number(bytes, number)))
        })
    }

    /// Sends a file of `len` bytes several times, in parts.
    pub(crate) fn file(
        &mut self,
        means: Means,
        (file, len): (&mut File, usize),
        part: usize,
        times: usize,
    ) -> Result<Streamed> {
        self.send(means, Stream { len: part, total: len * times }, Sink::Null, |end| {
            (0..times).try_for_each(|_| end.send_file(file, len, part))
        })
    }

    /// Sends buffers of which every byte is compared: by the receiver, and here where they can be sent back.
    pub(crate) fn verify(&mut self, means: Means, len: usize, sends_back: bool) -> Result<()> {
        self.send(means, Stream { len, total: len * COMPARED }, Sink::Patterns, |end| {
            (0..COMPARED).try_for_each(|number| end.write(len, |bytes| pattern::fill(bytes, number as u64)))
        })?;
        if !sends_back {
            return Ok(());
        }
        self.with(means, |end, peer| {
            peer.tell(&Order::Echo { means, len, count: 1 }, &[], "it sent a buffer back")?;
            end.write(len, |bytes| pattern::fill(bytes, COMPARED as u64))?;
            let mut back = Vec::with_capacity(len);
            end.read_all(len, len, |_, bytes| {
                back.extend_from_slice(bytes);
                Ok(())
            })?;
            check(&back, COMPARED)
        })
    }

    /// Sends by `write` what the peer receives, and measures both.
    fn send(
        &mut self,
        means: Means,
        stream: Stream,
        to: Sink,
        write: impl FnOnce(&mut End) -> Result<()>,
    ) -> Result<Streamed> {
        let clock = self.clock;
        self.with(means, |end, peer| {
            let doing = "it received a stream";
            peer.order(&Order::Receive { means, stream, to }, &[], doing)?;
            let (start_ns, before) = (now_ns(), clock.now());
            write(end)?;
            let ours = clock.since(before);
            let Report { done_ns, cpu_ns } = peer.hear(doing)?;
            let time = Duration::from_nanos(done_ns.saturating_sub(start_ns));
            Ok(Streamed { time, cpu: [ours, Duration::from_nanos(cpu_ns)] })
        })
    }
}

fn store_number(bytes: &mut [u8], number: usize) {
    bytes[..8].copy_from_slice(&(number as u64).to_le_bytes());
}
