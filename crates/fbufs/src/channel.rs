//! Channels: descriptors over which members of a group pass buffers, by their places in the pool.
//!
//! Why: between members, a buffer's bytes need not go through the kernel: both have mapped the pages. So writing and reading
//! cost the same at all lengths.
//! How: a ring in each direction (`genie_ring`) carries the places. To write makes the *direction* the holder of the buffer's
//! pages, and then tells the place; to read makes the reader the holder, after it has checked what it was told. A reader spins
//! for about as long as a wake-up takes and then sleeps; a writer sleeps when 256 messages have not been read.
//! Invariants: bytes are read in the order in which they were written. What is on its way when an end closes, or its process
//! dies, is freed if it went there, and can still be read if it came from there.
//! Trust: the other end's process may tell any place: what the direction does not hold is refused, and ends this end.
//! Limits: 128 channels in a pool; four descriptors and 80 KiB an end.
//! Source: SMLI TR-95-39 §3.3, §6.1 (the loop-back driver).

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use genie_ring::{Bells, Consumer, Ends, Layout, Mode, Producer, Record, Side, Spin};
use genie_sys::Object;
use genie_sys::event::Event;
use rustix::event::{PollFd, PollFlags};

use crate::error::{Error, Result};
use crate::holder::Holder;
use crate::message::Message;
use crate::offer::{Offer, State};
use crate::unwritten::Unwritten;
use crate::{Fbuf, Pool, channels};

/// The ring of a channel: a message takes a line, and the lines that were read are published by the quarter.
pub(crate) const RING: Layout = Layout { lines: 512, area: 128 };
/// How many messages may be on their way in one direction.
const ON_THEIR_WAY: u64 = 256;
/// After how many messages a reader publishes how far it is.
const PUBLISHED: u64 = 64;
/// About as long as it takes to wake a process that sleeps.
const SPIN: Duration = Duration::from_micros(50);

/// One end of a channel.
///
/// Its descriptor names it in calls that take descriptors, and is readable for `poll` when the other end has closed.
#[derive(Debug)]
pub struct Channel {
    pool: Pool,
    index: usize,
    end: usize,
    sender: Mutex<Sender>,
    receiver: Mutex<Receiver>,
    descriptor: OwnedFd,
    room: Event,
    spin: Spin,
    is_spoilt: AtomicBool,
    /// What became of the other end, if this one was made together with it.
    offered: Option<Arc<State>>,
}

#[derive(Debug)]
struct Sender {
    producer: Producer,
    sent: u64,
    /// As seen last.
    taken: u64,
}

#[derive(Debug)]
struct Receiver {
    consumer: Consumer,
    record: Record,
    taken: u64,
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
        let state = Arc::default();
        let index = channels::make(&self.0.words)?;
        // From here on dropping the offer closes its end, if this end cannot be made.
        let descriptors = [object.duplicate()?, other_bell.into(), other_room.into()];
        let offer = Offer::made_here(self.clone(), index, descriptors, Arc::clone(&state));
        let channel = Channel::attach(self.clone(), index, 0, &object, bell, room);
        let mut channel = channel.inspect_err(|_| {
            channels::close(&self.0.words, index, 0, self.0.words.me);
        })?;
        channel.offered = Some(state);
        Ok((channel, offer))
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
        let side = if end == 0 { Side::Client } else { Side::Server };
        let Ends { producer, consumer } = Ends::attach(object, RING, side, Bells::end(bell))?;
        // With one CPU, whoever is waited for cannot run meanwhile.
        let is_alone = std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() == 1);
        Ok(Self {
            pool,
            index,
            end,
            sender: Mutex::new(Sender { producer, sent: 0, taken: 0 }),
            receiver: Mutex::new(Receiver { consumer, record: Record::new(), taken: 0, rest: None }),
            descriptor,
            room,
            spin: if is_alone { Spin::NONE } else { Spin::new(SPIN) },
            is_spoilt: AtomicBool::new(false),
            offered: None,
        })
    }

    /// The pool whose buffers it passes.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Writes a buffer away: the other end has it from now on. A buffer of another pool is copied into one of this pool. Waits
    /// while 256 buffers have not been read.
    ///
    /// # Errors
    /// [`Error::Closed`]; [`Error::Spoilt`]; [`Error::Exhausted`] where a buffer has to be copied. The buffer comes back.
    ///
    /// # Cost
    /// Some 100 ns at any length up to 256 KiB, and an exchange for each 256 KiB more; a system call if the reader sleeps.
    #[doc(alias = "uf_write")]
    pub fn write(&self, fbuf: Fbuf) -> Result<usize, Box<Unwritten>> {
        self.pass(fbuf, true)
    }

    /// As [`Channel::write`], but fails with [`Error::WouldBlock`] instead of waiting.
    ///
    /// # Errors
    /// As [`Channel::write`].
    pub fn try_write(&self, fbuf: Fbuf) -> Result<usize, Box<Unwritten>> {
        self.pass(fbuf, false)
    }

    fn pass(&self, fbuf: Fbuf, waits: bool) -> Result<usize, Box<Unwritten>> {
        if let Err(error) = self.ensure_usable() {
            return Err(Unwritten::nothing(error, fbuf));
        }
        let fbuf = self.pool.import(fbuf)?;
        if fbuf.is_empty() {
            // The other end would take it for the end.
            return Ok(0);
        }
        let mut sender = lock(&self.sender);
        match self.wait_for_room(&mut sender, waits) {
            Ok(()) => self.transmit(&mut sender, fbuf),
            Err(error) => Err(Unwritten::nothing(error, fbuf)),
        }
    }

    fn transmit(&self, sender: &mut Sender, fbuf: Fbuf) -> Result<usize, Box<Unwritten>> {
        let (len, message) = (fbuf.len(), Message::of(&fbuf));
        let (words, direction) = (&self.pool.0.words, Holder::direction(self.index, 1 - self.end));
        // Before: the reader may be in this process.
        fbuf.give_up();
        if !message.runs().all(|run| words.pass(run, words.me, direction)) {
            return Err(self.lost(message));
        }
        // From here on the pages are not this process's. If the other end is closed, whoever closed it may have freed them.
        if channels::is_closed(words, self.index, 1 - self.end) {
            return Err(self.taken_back(message).unwrap_or_else(|| self.lost(message)));
        }
        if sender.producer.push(Message::KIND, &message.bytes()).is_err() {
            return Err(self.lost(message));
        }
        sender.sent += 1;
        Ok(len)
    }

    /// The buffer, made this member's again because the other end is closed; nothing where it is not there any more.
    #[cold]
    fn taken_back(&self, message: Message) -> Option<Box<Unwritten>> {
        let fbuf = self.make_ours(message, Holder::direction(self.index, 1 - self.end))?;
        Some(Unwritten::nothing(Error::Closed, fbuf))
    }

    /// A write that failed when the pages were given away already: an empty buffer comes back.
    #[cold]
    fn lost(&self, message: Message) -> Box<Unwritten> {
        let direction = Holder::direction(self.index, 1 - self.end);
        self.pool.0.free_if_held(message.runs(), direction);
        let error = if self.is_hung_up() { Error::Closed } else { self.spoil("a channel") };
        Box::new(Unwritten { error, fbuf: Fbuf::empty(self.pool.clone()), written: 0 })
    }

    /// Makes the buffer at a place this member's, if the direction holds all of it.
    fn make_ours(&self, message: Message, direction: Holder) -> Option<Fbuf> {
        let words = &self.pool.0.words;
        let ours: Vec<_> = message.runs().take_while(|run| words.pass(*run, direction, words.me)).collect();
        let claim = if ours.len() == message.runs().count() {
            words.shared.claim(message.first(), message.count())
        } else {
            None
        };
        let Some(claim) = claim else {
            self.pool.0.free_if_held(ours.into_iter(), words.me);
            return None;
        };
        self.pool.0.adopt(&claim);
        Some(Fbuf::new(self.pool.clone(), claim, message.start(), message.len()))
    }

    /// Reads the next buffer, of at most `len` bytes; nothing when the other end is closed and all was read. Waits for one.
    ///
    /// # Errors
    /// [`Error::Spoilt`]. [`Error::Exhausted`] where the buffer that came is longer than `len`: its first part is copied
    /// then, so that the rest can be read next, and nothing is lost.
    ///
    /// # Cost
    /// Some 100 ns at any length, if there is something to read.
    #[doc(alias = "uf_read")]
    pub fn read(&self, len: usize) -> Result<Option<Fbuf>> {
        self.receive(len, true)
    }

    /// As [`Channel::read`], but fails with [`Error::WouldBlock`] instead of waiting.
    ///
    /// # Errors
    /// As [`Channel::read`].
    pub fn try_read(&self, len: usize) -> Result<Option<Fbuf>> {
        self.receive(len, false)
    }

    fn receive(&self, len: usize, waits: bool) -> Result<Option<Fbuf>> {
        self.ensure_usable()?;
        let mut receiver = lock(&self.receiver);
        let next = match receiver.rest.take() {
            Some(rest) => rest,
            None => match self.next(&mut receiver, waits)? {
                Some(next) => next,
                None => return Ok(None),
            },
        };
        if next.len() <= len {
            return Ok(Some(next));
        }
        let (part, rest) = next.split_by_copy(len);
        receiver.rest = Some(rest);
        part.map(Some)
    }

    fn next(&self, receiver: &mut Receiver, waits: bool) -> Result<Option<Fbuf>> {
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
        self.accept(record)
    }

    /// Makes the buffer that a record tells of this member's.
    fn accept(&self, record: &Record) -> Result<Option<Fbuf>> {
        let pages = self.pool.0.words.layout.pages();
        let message = Message::from_record(record, pages).ok_or_else(|| self.spoil("a message"))?;
        let fbuf = self.make_ours(message, Holder::direction(self.index, self.end));
        fbuf.map(Some).ok_or_else(|| self.spoil("a buffer on its way"))
    }

    /// Waits until there is a message; returns whether there is one. If not, look whether the other end is there.
    fn wait_for_message(&self, receiver: &mut Receiver, waits: bool) -> Result<bool> {
        let consumer = &mut receiver.consumer;
        if consumer.is_ready() || waits && self.spin.until(|| consumer.is_ready()) {
            return Ok(true);
        }
        if !waits && !self.is_hung_up() {
            return Err(Error::WouldBlock);
        }
        if consumer.arm(Mode::Descriptor) {
            let polled = poll(&self.descriptor, PollFlags::IN, waits);
            consumer.disarm();
            polled?;
        }
        Ok(consumer.is_ready())
    }

    /// Tells the writer how far this end has read, now and then, and at once if it waits.
    fn publish(&self, count: u64) {
        let words = &self.pool.0.words;
        let wanted = channels::wanted(words, self.index, self.end);
        let publish = || channels::taken(words, self.index, self.end).store(count, Ordering::Release);
        if count.is_multiple_of(PUBLISHED) {
            publish();
        }
        // Partner: the fence in `wait_for_room`.
        fence(Ordering::SeqCst);
        if wanted.load(Ordering::Relaxed) != 0 {
            publish();
            wanted.store(0, Ordering::Release);
            // Without memory for it, the next message that is read tells.
            if self.room.signal().is_err() {
                wanted.store(1, Ordering::Release);
            }
        }
    }

    fn wait_for_room(&self, sender: &mut Sender, waits: bool) -> Result<()> {
        let (words, to) = (&self.pool.0.words, 1 - self.end);
        let taken: &AtomicU64 = channels::taken(words, self.index, to);
        while sender.sent - sender.taken >= ON_THEIR_WAY {
            channels::wanted(words, self.index, to).store(1, Ordering::Release);
            // Partner: the fence in `publish`.
            fence(Ordering::SeqCst);
            let found = taken.load(Ordering::Acquire);
            if found > sender.taken {
                if found > sender.sent {
                    return Err(self.spoil("a channel"));
                }
                sender.taken = found;
            } else if self.is_hung_up() {
                return Err(Error::Closed);
            } else if waits {
                poll(&self.room, PollFlags::IN, true)?;
                self.room.clear()?;
            } else {
                return Err(Error::WouldBlock);
            }
        }
        Ok(())
    }

    /// Whether the other end is closed, or its process has ended. What it wrote can still be read.
    pub fn is_hung_up(&self) -> bool {
        poll(&self.descriptor, PollFlags::RDHUP, false).unwrap_or(false)
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
        channels::close(words, self.index, self.end, words.me);
        // Nobody may have taken the other end, which was sent to another process.
        if self.offered.as_ref().is_some_and(|state| state.is_sent()) {
            channels::close(words, self.index, 1 - self.end, words.me);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
