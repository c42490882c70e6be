//! Reading buffers from a channel.

use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use genie_ring::{Mode, Spin};
use rustix::event::PollFlags;

use super::{CROWDED, Channel, PATIENCE, PUBLISHED, Receiver, WITHOUT_OFFERS, poll};
use crate::error::{Error, Result};
use crate::holder::Holder;
use crate::place::Place;
use crate::{Fbuf, channels};

impl Channel {
    /// Reads the next buffer, of at most `len` bytes; nothing when the other end is closed and all was read. Waits for one.
    ///
    /// # Errors
    /// [`Error::Spoilt`]. [`Error::Exhausted`] where the buffer that came is longer than `len`: its first part is copied
    /// then, so that the rest can be read next, and nothing is lost.
    ///
    /// # Cost
    /// The same at any length, if there is something to read: see `genie lab run fbufs-rw`.
    #[doc(alias = "uf_read")]
    pub fn read(&self, len: usize) -> Result<Option<Fbuf>> {
        self.receive(len, true)
    }

    /// As [`Channel::read`], but fails with [`Error::WouldBlock`] instead of waiting. From then on until the next call, the channel's
    /// descriptor becomes readable for `poll` when there is something to read. So an event loop reads until this fails, and then
    /// waits; it may be woken once too often.
    ///
    /// # Errors
    /// As [`Channel::read`].
    pub fn try_read(&self, len: usize) -> Result<Option<Fbuf>> {
        self.receive(len, false)
    }

    fn receive(&self, len: usize, waits: bool) -> Result<Option<Fbuf>> {
        self.ensure_usable()?;
        let receiver = &mut *self.receiver.lock();
        let next = match receiver.rest.take() {
            Some(rest) => Some(rest),
            None => match self.next(receiver, waits)? {
                Some(place) if self.keeps && place.len() > len => {
                    return self.read_part(receiver, place, len);
                }
                Some(place) => self.accept(receiver, place)?,
                None => None,
            },
        };
        let next = match next {
            Some(next) if next.len() > len => next,
            done => return Ok(done),
        };
        let (part, rest) = next.split_by_copy(len);
        receiver.rest = Some(rest);
        part.map(Some)
    }

    /// The next message, which is the direction's.
    fn next(&self, receiver: &mut Receiver, waits: bool) -> Result<Option<Place>> {
        if receiver.unread.is_some() {
            return Ok(receiver.unread);
        }
        while !self.wait_for_message(receiver, waits)? {
            if self.is_hung_up() && !receiver.consumer.is_ready() {
                // The other end's process may have died with buffers in its hands.
                let _ = self.pool.sweep();
                return Ok(None);
            }
        }
        let Receiver { consumer, record, taken, .. } = receiver;
        if !consumer.pop(record).map_err(|_| self.spoil("a channel"))? {
            return Err(self.spoil("a channel"));
        }
        *taken += 1;
        self.publish(*taken);
        let pages = self.pool.0.words.layout.pages();
        let place = Place::from_record(record, pages).ok_or_else(|| self.spoil("a message"))?;
        receiver.unread = Some(place);
        Ok(receiver.unread)
    }

    /// Makes the buffer that a message tells of this member's. Where that fails for now, the next read tries again.
    fn accept(&self, receiver: &mut Receiver, place: Place) -> Result<Option<Fbuf>> {
        let fbuf = self.make_ours(place, Holder::direction(self.index, self.end))?;
        receiver.unread = None;
        receiver.bytes = receiver.bytes.wrapping_add(place.len() as u64);
        if fbuf.is_none() && !self.keeps {
            return Err(self.spoil("a buffer on its way"));
        }
        // Where the channel keeps it, the writer has taken it back, and all that follows.
        Ok(fbuf)
    }

    /// Waits until there is a message; returns whether there is one. If not, look whether the other end is there.
    fn wait_for_message(&self, receiver: &mut Receiver, waits: bool) -> Result<bool> {
        if receiver.consumer.is_ready() || waits && self.look(receiver) {
            return Ok(true);
        }
        let consumer = &mut receiver.consumer;
        if !waits && !self.is_hung_up() {
            // The last message's signal ends before the next one's can come, so the descriptor is readable from then on.
            consumer.disarm();
            return if consumer.arm(Mode::Descriptor) { Err(Error::WouldBlock) } else { Ok(true) };
        }
        if consumer.arm(Mode::Descriptor) {
            let polled = poll(&self.descriptor, PollFlags::IN, waits);
            consumer.disarm();
            polled?;
        }
        Ok(consumer.is_ready())
    }

    /// Looks for a message for about as long as it takes to wake a process that sleeps, and offers the CPU to others meanwhile:
    /// at once, if the other end cannot run before that; and not for a while, if others kept it for long.
    fn look(&self, receiver: &mut Receiver) -> bool {
        let Receiver { consumer, without_offers, .. } = receiver;
        if *without_offers > 0 {
            *without_offers -= 1;
            return self.spin().until(|| consumer.is_ready());
        }
        let start = Instant::now();
        let mut looked = Duration::ZERO;
        while !self.spin().until(|| consumer.is_ready()) {
            if looked >= PATIENCE {
                return false;
            }
            rustix::thread::sched_yield();
            let now = start.elapsed();
            if now - looked >= CROWDED {
                *without_offers = WITHOUT_OFFERS;
            }
            looked = now;
        }
        true
    }

    /// How long to spin: not at all if the other end waited on this CPU last.
    fn spin(&self) -> Spin {
        if self.shares_cpu() { Spin::NONE } else { self.spin }
    }

    /// Tells the writer how far this end has read, now and then, and each time if it waits. A writer that sleeps is woken now
    /// and then: woken for each message on the reader's CPU, it would take that CPU each time, to write one more.
    fn publish(&self, count: u64) {
        let words = &self.pool.0.words;
        let wanted = channels::wanted(words, self.index, self.end);
        let publish = || channels::taken(words, self.index, self.end).store(count, Ordering::Release);
        let is_time = count.is_multiple_of(PUBLISHED);
        if is_time {
            publish();
        }
        // Partner: the fence in `wait_for_room`.
        fence(Ordering::SeqCst);
        if wanted.load(Ordering::Relaxed) == 0 {
            return;
        }
        publish();
        if is_time {
            wanted.store(0, Ordering::Release);
            // Without memory for it, the next time tells.
            if self.room.signal().is_err() {
                wanted.store(1, Ordering::Release);
            }
        }
    }
}
