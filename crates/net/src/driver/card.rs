//! The card: an adapter with memory of its own, which needs no device and no rights.
//!
//! Why: the drivers that a paper compares differ in what they do with an adapter's memory, and few machines have an adapter whose memory a
//! program can map.
//! How: a [`Device`], in a process or a thread of its own, has 1 MiB of memory in buffers of 4 KiB, a pool for transmission and one for
//! reception, and shares it with its host, which has a [`Card`]. Buffers are named in two FIFOs in shared memory, one each way, which are rings
//! of [`genie_ring`]: a side that sleeps is woken, and no other.
//!
//! ```text
//!   host: put -> buffer (the one copy), TRANSMIT ---------> device: sink or reflection
//!                buffer again <----------------------- SENT
//!   host: take <- buffer in place <-------------- CAME, len   device: generator
//!                                GIVE --------------------> buffer again
//! ```
//!
//! What the device is to do it is told by a socket ([`Control`]); it ends when the socket's other end is closed.
//! Invariants: a buffer is the host's or the card's. The host knows which by itself.
//! Trust: neither side trusts the other beyond the card's memory. A card that names a buffer that it does not have, or a length beyond a
//! buffer, is gone for its host (EPROTO), and nothing else is.
//! Limits: frames of 1 to 4,096 bytes; 128 of them each way at once.
//! Source: Murphy, Zeadally, Adams, *An Analysis of Process and Memory Models* (USENIX 1996), "Copy Avoidance". Differs: the memory is
//! cached, and the processors are those of the host.

mod device;
pub(crate) mod memory;
pub(crate) mod words;

use std::collections::VecDeque;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use genie_memory::{Data, DataMut, Object};
use genie_ring::{Bells, Ends, Mode, Record, Side};
use genie_sys::event::Event;
use genie_sys::fork::Maker;
use genie_sys::lock::Mutex;
use genie_sys::poll::is_hung_up;
use genie_sys::socket::Received;
use genie_sys::{Errno, Error, Result};

use super::{Counters, Rings};
use crate::Frame;
use crate::checksum::{Checksum, Sum};
use device::failed;
use memory::Memory;
use words::{BUFFER, CAME, Command, FIFOS, GIVE, HELLO, POOL, SENT, TRANSMIT, parse, words};

pub use device::Device;
pub use genie_sys::socket::Socket;
pub use words::Report;

/// How long a device may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The host's side of a card. Dropping it ends the device, if no [`Control`] is left.
#[derive(Debug)]
pub struct Card {
    memory: Arc<Memory>,
    ends: Ends,
    control: Arc<Shared>,
    /// Buffers for transmission that are here.
    idle: Vec<u32>,
    /// Which buffers the card has.
    is_away: Box<[bool]>,
    /// The frames that have come, each with its buffer.
    came: VecDeque<(u32, usize)>,
    /// The buffer of the frame that is being shown.
    shown: Option<u32>,
    gone: Option<Errno>,
    record: Record,
    counters: Counters,
    maker: Maker,
}

/// Tells a device what to do. Clones are handles of the same card.
#[derive(Debug, Clone)]
pub struct Control(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    socket: Socket,
    asking: Mutex<()>,
    maker: Maker,
}

impl Card {
    /// Takes the card whose device is at the other end of the socket.
    ///
    /// # Errors
    /// ETIMEDOUT, EPROTO: there is no device, or none that keeps to the rules; EMFILE and the like: the limits on descriptors and memory.
    pub fn open(control: Socket) -> Result<Self> {
        let mut bytes = [0; HELLO.len()];
        let silent = || Error::new("recvmsg", "the device of a card", Errno::TIMEDOUT);
        let Received { len, descriptors, is_short, .. } =
            control.receive_timeout(&mut bytes, PATIENCE)?.ok_or_else(silent)?;
        if is_short {
            return Err(Error::new("recvmsg", "the device of a card", Errno::MFILE));
        }
        let (true, Ok([memory, fifos, bell])) = (bytes[..len] == *HELLO, <[_; 3]>::try_from(descriptors))
        else {
            return Err(Error::new("check", "the device of a card", Errno::PROTO));
        };
        let (memory, fifos) = (Object::accept(memory)?, Object::accept(fifos)?);
        let bells = Bells::end(Event::try_from_descriptor(bell)?);
        let maker = Maker::this_process();
        let mut card = Self {
            memory: Arc::new(Memory::map(&memory)?),
            ends: Ends::attach(&fifos, FIFOS, Side::Client, bells).map_err(failed)?,
            control: Arc::new(Shared { socket: control, asking: Mutex::default(), maker }),
            idle: (0..POOL).collect(),
            is_away: vec![false; 2 * POOL as usize].into(),
            came: VecDeque::with_capacity(POOL as usize),
            shown: None,
            gone: None,
            record: Record::new(),
            counters: Counters::default(),
            maker,
        };
        (POOL..2 * POOL).for_each(|buffer| card.give(buffer));
        card.ends.producer.ring_bell();
        Ok(card)
    }

    /// What tells its device what to do.
    pub fn control(&self) -> Control {
        Control(Arc::clone(&self.control))
    }

    /// Its memory, in which hosts that copy nothing work.
    pub(crate) fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// Takes a buffer for transmission, if one is here. It is the host's until it is committed, or is not needed.
    pub(crate) fn reserve(&mut self) -> std::result::Result<Option<u32>, Errno> {
        self.room().map(|_| self.idle.pop())
    }

    /// Takes back a buffer that was reserved, and not committed.
    pub(crate) fn unreserve(&mut self, buffer: u32) {
        self.idle.push(buffer);
    }

    /// Has the card send what is in a reserved buffer.
    pub(crate) fn commit(&mut self, buffer: u32, len: usize) -> std::result::Result<(), Errno> {
        self.counters.sent += 1;
        self.is_away[buffer as usize] = true;
        self.tell(TRANSMIT, buffer, len);
        self.ensure_own()
    }

    /// Takes the next frame that has come: its buffer, and its length. The buffer is the host's until it is released.
    pub(crate) fn keep(&mut self) -> std::result::Result<Option<(u32, usize)>, Errno> {
        let reaped = if self.came.is_empty() {
            self.wake_up();
            self.reap()
        } else {
            self.ensure_made_here()
        };
        let came = if reaped == Err(Errno::CHILD) { None } else { self.came.pop_front() };
        let Some((buffer, len)) = came else { return reaped.map(|()| None) };
        self.counters.received += 1;
        self.counters.received_bytes += len as u64;
        Ok(Some((buffer, len)))
    }

    /// Lets the card have buffers that were kept.
    pub(crate) fn release(&mut self, buffers: impl IntoIterator<Item = u32>) {
        buffers.into_iter().for_each(|buffer| self.give(buffer));
        self.ends.producer.ring_bell();
    }

    /// Puts a frame, which `copy` copies into the card's memory.
    fn put_by(
        &mut self,
        len: usize,
        copy: impl FnOnce(&DataMut<'_>) -> usize,
    ) -> std::result::Result<bool, Errno> {
        if len == 0 || len > BUFFER {
            return Err(Errno::MSGSIZE);
        }
        let Some(buffer) = self.reserve()? else { return Ok(false) };
        self.counters.sent_bytes += copy(&self.memory.buffer(buffer)) as u64;
        self.commit(buffer, len).map(|()| true)
    }

    /// Lets the card have a buffer.
    fn give(&mut self, buffer: u32) {
        self.is_away[buffer as usize] = true;
        self.tell(GIVE, buffer, 0);
    }

    fn tell(&mut self, kind: u8, buffer: u32, len: usize) {
        // An honest card leaves room for all.
        if self.ends.producer.publish(kind, &words(buffer, len)).is_err() {
            self.gone = Some(Errno::PROTO);
        }
    }

    /// Is not asleep. Where no bell has ended its sleep, the device may have gone, and its end of the bell with it.
    fn wake_up(&mut self) {
        if self.ends.consumer.disarm() {
            self.look_after_device();
        }
    }

    /// Takes what the card has said: all of it, even if it has gone since.
    fn reap(&mut self) -> std::result::Result<(), Errno> {
        self.ensure_made_here()?;
        loop {
            match self.ends.consumer.pop(&mut self.record) {
                Ok(false) => return self.ensure_own(),
                Ok(true) if self.believe() => {}
                _ => {
                    self.gone = Some(Errno::PROTO);
                    return Err(Errno::PROTO);
                }
            }
        }
    }

    /// Takes back the buffer of the latest record, if the card had it.
    fn believe(&mut self) -> bool {
        let Some((kind, buffer, len)) = parse(&self.record) else { return false };
        let is_for = match kind {
            SENT => buffer < POOL,
            CAME => buffer >= POOL && len > 0,
            _ => false,
        };
        if !is_for || !self.is_away.get_mut(buffer as usize).is_some_and(std::mem::take) {
            return false;
        }
        match kind {
            SENT => self.idle.push(buffer),
            _ => self.came.push_back((buffer, len)),
        }
        true
    }

    /// Finds out whether the device is there, by a system call.
    fn look_after_device(&mut self) {
        if self.gone.is_none() && is_hung_up(&self.ends.consumer) {
            self.gone = Some(Errno::NODEV);
        }
    }

    /// Fails once the card has gone, and in a child made by fork.
    fn ensure_own(&self) -> std::result::Result<(), Errno> {
        self.ensure_made_here()?;
        self.gone.map_or(Ok(()), Err)
    }

    /// Fails in a child made by fork.
    fn ensure_made_here(&self) -> std::result::Result<(), Errno> {
        if self.maker.is_this_process() { Ok(()) } else { Err(Errno::CHILD) }
    }
}

impl Rings for Card {
    fn put(&mut self, frame: &Data<'_>) -> std::result::Result<bool, Errno> {
        self.put_by(frame.len(), |memory| memory.copy_data(frame))
    }

    fn put_summed(&mut self, frame: &Data<'_>, at: usize) -> std::result::Result<bool, Errno> {
        self.put_by(frame.len(), |memory| {
            let (frame, mut sum) = (Frame::new(frame.clone()), Sum::new(Checksum::Internet));
            let store = |range: Range<usize>, sum: &mut Sum| {
                frame.store_summed(range.clone(), &memory.part(range), sum);
            };
            store(0..at, &mut sum);
            sum.add(&[0, 0]);
            store(at + 2..frame.len(), &mut sum);
            memory.part(at..at + 2).copy_from(&sum.finish().to_le_bytes()[..2]);
            frame.len()
        })
    }

    fn room(&mut self) -> std::result::Result<usize, Errno> {
        if self.idle.is_empty() {
            self.reap()?;
        }
        if self.idle.is_empty() {
            self.look_after_device();
        }
        self.ensure_own().map(|()| self.idle.len())
    }

    fn send(&mut self) -> std::result::Result<(), Errno> {
        self.ensure_own()?;
        self.ends.producer.ring_bell();
        Ok(())
    }

    fn take(&mut self, most: usize, see: &mut dyn FnMut(&Frame<'_>)) -> std::result::Result<usize, Errno> {
        self.wake_up();
        // What came before a card has gone has come.
        let reaped = self.reap();
        if reaped != Err(Errno::CHILD) {
            // A panic in `see` has left one here.
            self.shown.take().into_iter().for_each(|buffer| self.give(buffer));
        }
        let mut taken = 0;
        while taken < most
            && reaped != Err(Errno::CHILD)
            && let Some((buffer, len)) = self.came.pop_front()
        {
            self.shown = Some(buffer);
            self.counters.received += 1;
            self.counters.received_bytes += len as u64;
            see(&Frame::new(self.memory.buffer(buffer).into_data().part(0..len)));
            self.shown = None;
            self.give(buffer);
            taken += 1;
        }
        if taken == 0 {
            return reaped.map(|()| 0);
        }
        self.ends.producer.ring_bell();
        Ok(taken)
    }

    /// All that comes is its host's.
    fn claim(&mut self, _port: u16, _is_ours: bool) -> std::result::Result<(), Errno> {
        self.ensure_own()
    }

    fn has_frames(&self) -> bool {
        self.maker.is_this_process() && (!self.came.is_empty() || self.ends.consumer.is_ready())
    }

    fn arm(&mut self) -> bool {
        if self.ensure_own().is_err() {
            return false;
        }
        self.wake_up();
        self.gone.is_none() && self.ends.consumer.arm(Mode::Descriptor)
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.ends.consumer.as_fd()
    }

    fn counters(&self) -> Counters {
        self.counters
    }
}

impl Control {
    /// Has packets come: `count` of them, of `len` bytes (24 to 4,096), one each `interval`, and later where the host has left no buffer.
    ///
    /// # Errors
    /// The device is gone, or does not answer; ECHILD in a child made by fork.
    pub fn generate(&self, len: usize, count: u64, interval: Duration) -> Result<()> {
        let interval_ns = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX);
        self.ask(&Command::Generate { len: len as u32, count, interval_ns }, |_| Some(()))
    }

    /// Has the device forget what has been sent, and expect the first `count` packets of another one's generator.
    ///
    /// # Errors
    /// As [`Control::generate`].
    pub fn expect(&self, count: u64) -> Result<()> {
        self.ask(&Command::Expect { count }, |_| Some(()))
    }

    /// Has what is sent come back from now on, as far as there are buffers for it.
    ///
    /// # Errors
    /// As [`Control::generate`].
    pub fn reflect(&self) -> Result<()> {
        self.ask(&Command::Reflect, |_| Some(()))
    }

    /// What the device says of itself.
    ///
    /// # Errors
    /// As [`Control::generate`].
    pub fn report(&self) -> Result<Report> {
        let mut whole: Option<Report> = None;
        self.ask(&Command::Report, |bytes| {
            let mut part: Report = postcard::from_bytes(bytes).ok()?;
            let report = whole.get_or_insert_with(Report::default);
            let mut latencies = std::mem::take(&mut report.tally.latencies);
            latencies.append(&mut part.tally.latencies);
            part.tally.latencies = latencies;
            *report = part;
            (report.left == 0).then(|| std::mem::take(report))
        })
    }

    /// Sends a command, and shows the answers to `see` until one is the last.
    fn ask<T>(&self, command: &Command, mut see: impl FnMut(&[u8]) -> Option<T>) -> Result<T> {
        let failed = |errno| Error::new("recvmsg", "the device of a card", errno);
        let Shared { socket, asking, maker } = &*self.0;
        let _asking = asking.lock_made_by(*maker).filter(|_| maker.is_this_process());
        let _asking = _asking.ok_or_else(|| failed(Errno::CHILD))?;
        let bytes = postcard::to_allocvec(command).expect("a few numbers");
        socket.send(&bytes, &[])?;
        let (until, mut bytes) = (Instant::now() + PATIENCE, vec![0; 128 << 10]);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let received =
                socket.receive_timeout(&mut bytes, left)?.ok_or_else(|| failed(Errno::TIMEDOUT))?;
            if received.len == 0 {
                return Err(failed(Errno::NODEV));
            }
            if let Some(found) = see(&bytes[..received.len]) {
                return Ok(found);
            }
        }
    }
}
