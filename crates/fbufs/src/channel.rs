//! Channels: descriptors over which members of a group pass buffers, by their places in the pool.
//!
//! Why: between members, a buffer's bytes need not go through the kernel: both have mapped the pages. So writing and reading
//! cost the same at all lengths.
//! How: a ring in each direction (`genie_ring`) carries the places. To write makes the *direction* the holder of the buffer's
//! pages, and then tells the place; to read makes the reader the holder, after it has checked what it was told. A reader looks
//! for about as long as a wake-up takes and then sleeps; a writer sleeps when 256 messages have not been read. Each end says on
//! which CPU it waits: a reader that finds the other end on its own CPU hands that over at once instead of looking. Where
//! others want the CPU, too, a reader looks but briefly, and sleeps.
//! Invariants: bytes are read in the order in which they were written. What is on its way when an end closes, or its process
//! dies, is freed if it went there, and can still be read if it came from there, even by a process that has not taken the other end yet.
//! A pipe's channel keeps what went there instead, and the writer takes it back (`keeping`).
//! A child made by fork has no duplicate of the descriptors by which an end learns that the other one is gone (`sys/unshared.rs`).
//! Trust: the other end's process may tell any place: what the direction does not hold is refused, and ends this end.
//! Limits: 128 channels in a pool; four descriptors and 80 KiB an end.
//! Source: SMLI TR-95-39 §3.3, §6.1 (the loop-back driver).

mod keeping;
mod reading;
mod writing;

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use genie_ring::{Bells, Consumer, Ends, Layout, Producer, Record, Side, Spin};
use genie_sys::Object;
use genie_sys::event::Event;
use genie_sys::lock::Mutex;
use genie_sys::unshared::Unshared;
use rustix::event::{PollFd, PollFlags};
use rustix::net::Shutdown;

use crate::error::{Error, Result};
use crate::holder::Holder;
use crate::offer::Offer;
use crate::place::Place;
use crate::{Fbuf, Pool, channels};

/// The ring of a channel: a message takes a line, and the lines that were read are published by the quarter.
pub(crate) const RING: Layout = Layout { lines: 512, area: 128 };
/// How many messages may be on their way in one direction.
const ON_THEIR_WAY: u64 = 256;
/// After how many messages a reader publishes how far it is, and wakes a writer that sleeps: at most half of those that may be on
/// their way, so that there are as many for it to read.
const PUBLISHED: u64 = 64;
/// About as long as it takes to wake a process that sleeps.
const PATIENCE: Duration = Duration::from_micros(50);
/// How long to look before the CPU is offered to others: the other end's process may be waiting for this one.
const SPIN: Duration = Duration::from_micros(2);
/// An end that gets its CPU back only after this, when it has offered it, takes it to be wanted by other work.
const CROWDED: Duration = Duration::from_micros(500);
/// How many times that end then waits without offering its CPU: a process that sleeps gets it as soon as it is woken, while one that
/// has offered it may wait for milliseconds.
const WITHOUT_OFFERS: u32 = 1000;

/// One end of a channel.
///
/// Its descriptor names it in calls that take descriptors. It is readable for `poll` when the other end has closed, or has written
/// after [`Channel::try_read`] found nothing.
#[derive(Debug)]
pub struct Channel {
    /// Dropped before the descriptors are.
    _unshared: [Unshared; 3],
    pool: Pool,
    index: usize,
    end: usize,
    sender: Mutex<Sender>,
    receiver: Mutex<Receiver>,
    descriptor: OwnedFd,
    room: Event,
    spin: Spin,
    is_spoilt: AtomicBool,
    /// Whether what is on its way to an end that closes stays there (`keeping`).
    keeps: bool,
}

#[derive(Debug)]
struct Sender {
    producer: Producer,
    sent: u64,
    /// The bytes of these messages.
    bytes: u64,
    /// As seen last.
    taken: u64,
    /// Where a channel keeps what is on its way: what may be unread, the oldest first.
    kept: VecDeque<Place>,
    /// Whether that was taken back.
    is_over: bool,
}

#[derive(Debug)]
struct Receiver {
    consumer: Consumer,
    record: Record,
    taken: u64,
    /// Bytes of messages that were read.
    bytes: u64,
    /// A message that was taken from the ring and is still the direction's: its buffer could not be made accessible, or a part of it
    /// was read.
    unread: Option<Place>,
    /// How many times more this end waits without offering its CPU to others.
    without_offers: u32,
    /// What is left of a buffer of which a part was read.
    rest: Option<Fbuf>,
}

impl Pool {
    /// Makes a channel: one end, and the other one as an [`Offer`], which is taken here or by another member of the group.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::Inherited`]; the limit on descriptors.
    pub fn channel(&self) -> Result<(Channel, Offer)> {
        self.ensure_own()?;
        let object = genie_ring::create(RING)?;
        let ((bell, other_bell), (room, other_room)) = (Event::pair()?, Event::pair()?);
        let descriptors = [object.duplicate()?, other_bell.into(), other_room.into()];
        let words = &self.0.words;
        let index = channels::make(words).or_else(|_| {
            // Some may have been those of members that have died.
            self.sweep()?;
            channels::make(words)
        })?;
        // From here on, dropping the offer closes its end.
        let made = Offer::made_here(self.clone(), index, descriptors)
            .and_then(|offer| Ok((Channel::attach(self.clone(), index, 0, &object, bell, room)?, offer)));
        made.inspect_err(|_| channels::close_own(words, index, 0))
    }
}

impl Channel {
    /// Attaches an end that is this member's already.
    pub(crate) fn attach(
        pool: Pool,
        index: usize,
        end: usize,
        object: &Object,
        bell: Event,
        room: Event,
    ) -> Result<Self> {
        let descriptor = bell.duplicate()?;
        let _unshared = [Unshared::new(&descriptor)?, Unshared::new(&bell)?, Unshared::new(&room)?];
        let side = if end == 0 { Side::Client } else { Side::Server };
        let Ends { producer, consumer } = Ends::attach(object, RING, side, Bells::end(bell))?;
        // With one CPU, whoever is waited for cannot run meanwhile.
        let is_alone = std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() == 1);
        Ok(Self {
            _unshared,
            keeps: channels::keeps(&pool.0.words, index),
            pool,
            index,
            end,
            sender: Mutex::new(Sender {
                producer,
                sent: 0,
                bytes: 0,
                taken: 0,
                kept: VecDeque::new(),
                is_over: false,
            }),
            receiver: Mutex::new(Receiver {
                consumer,
                record: Record::new(),
                taken: 0,
                bytes: 0,
                unread: None,
                without_offers: 0,
                rest: None,
            }),
            descriptor,
            room,
            spin: if is_alone { Spin::NONE } else { Spin::new(SPIN) },
            is_spoilt: AtomicBool::new(false),
        })
    }

    /// The pool whose buffers it passes.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Whether the other end is closed, or its process has ended. What it wrote can still be read.
    pub fn is_hung_up(&self) -> bool {
        poll(&self.descriptor, PollFlags::RDHUP, false).unwrap_or(false)
    }

    /// Makes the buffer at a place this member's, if the direction holds all of it.
    ///
    /// # Errors
    /// With traps: the pages cannot be made accessible now. They are the direction's, as before.
    fn make_ours(&self, place: Place, direction: Holder) -> Result<Option<Fbuf>> {
        let words = &self.pool.0.words;
        let ours: Vec<_> = place.runs().take_while(|run| words.pass(*run, direction, words.me)).collect();
        let claim = if ours.len() == place.runs().count() {
            let claim = words.shared.try_claim(place.first(), place.count());
            claim.inspect_err(|_| {
                let give_back = |run| !words.pass(run, words.me, direction);
                self.pool.0.free_if_held(place.runs().filter(|run| give_back(*run)), words.me);
            })?
        } else {
            None
        };
        let Some(claim) = claim else {
            self.pool.0.free_if_held(ours.into_iter(), words.me);
            return Ok(None);
        };
        self.pool.0.adopt(&claim);
        Ok(Some(Fbuf::new(self.pool.clone(), claim, place.start(), place.len())))
    }

    /// Says on which CPU this end waits; returns whether the other end waited on the same one last. Either may run elsewhere
    /// by now: this decides how to wait, and nothing else.
    fn shares_cpu(&self) -> bool {
        let here = rustix::thread::sched_getcpu() as u64 + 1;
        let [ours, theirs] =
            [self.end, 1 - self.end].map(|end| channels::cpu(&self.pool.0.words, self.index, end));
        if ours.load(Ordering::Relaxed) != here {
            ours.store(here, Ordering::Relaxed);
        }
        theirs.load(Ordering::Relaxed) == here
    }

    /// Tells the other end that this one is over.
    pub(crate) fn hang_up(&self) {
        for descriptor in [self.descriptor.as_fd(), self.room.as_fd()] {
            let _ = rustix::net::shutdown(descriptor, Shutdown::Both);
        }
    }

    fn ensure_usable(&self) -> Result<()> {
        self.pool.ensure_own()?;
        if self.is_spoilt.load(Ordering::Relaxed) { Err(Error::Spoilt { what: "a channel" }) } else { Ok(()) }
    }

    fn spoil(&self, what: &'static str) -> Error {
        self.is_spoilt.store(true, Ordering::Relaxed);
        Error::Spoilt { what }
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        if self.pool.ensure_own().is_err() {
            return;
        }
        let words = &self.pool.0.words;
        channels::close_own(words, self.index, self.end);
        // A child that another thread is just forking may get duplicates.
        self.hang_up();
    }
}

/// Looks whether a descriptor is ready, or waits until it is.
pub(crate) fn poll(descriptor: impl AsFd, flags: PollFlags, waits: bool) -> Result<bool> {
    let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
    loop {
        let mut polled = [PollFd::new(&descriptor, flags)];
        match rustix::event::poll(&mut polled, (!waits).then_some(&now)) {
            Ok(count) => return Ok(count > 0),
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(Error::Io { call: "poll", errno }),
        }
    }
}

#[cfg(test)]
mod tests;
