//! Networks whose packets lie in buffers that the network allocates: one interface over drivers with two copies, one and none.
//!
//! Why: an interface that takes data from anywhere in the application's memory copies it, in general. Where the network allocates the
//! buffers, it can allocate them where no copy is needed, and the application is the same whether it can or not.
//! How: the application allocates a [`Packet`], fills it, and sends it; it receives a packet, reads it, and drops it. What a packet is made
//! of is the driver's business:
//!
//! ```text
//!   two copies    packet --copy--> message block -> modules, by reference -> driver's queue --copy--> adapter   (`two_copies`, `stream`)
//!   one copy      packet --copy, and checksum on demand--> adapter                                              (`one_copy`)
//!   no copy       packet = a buffer of the adapter's                                                            (`no_copy`)
//! ```
//!
//! Invariants: a buffer is one packet's, the driver's, or the adapter's. [`Counters`] count the bytes that were copied, where they are copied.
//! Trust: the application's process has its own adapter's memory and no other. If it keeps its packets, its own pool is exhausted. A device
//! reads what it is sent once, and changes of it meanwhile are the application's own loss. What was received without a copy can still be
//! changed by a device that breaks the rules.
//! Limits: packets of 1 to 4,096 bytes; 128 packets to be sent, and as many that were received, at once.
//! Source: Murphy, Zeadally, Adams, *An Analysis of Process and Memory Models* (USENIX 1996), "Copy Avoidance", "Application Program
//! Interface", "Protection", "Performance For Small Packets". Differs: there is no kernel between an application and its adapter, so that the
//! zero-copy driver makes only those system calls that its [`Management`] has.

mod driving;
mod locked;
pub mod modules;
mod no_copy;
mod one_copy;
mod pool;
pub mod stream;
mod two_copies;

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use genie_memory::{Data, DataMut};
use genie_sys::event::Event;
use genie_sys::fork::Maker;
use genie_sys::lock::Mutex;
use genie_sys::poll::any_readable;
use genie_sys::{Errno, Error};

use crate::checksum::Checksum;
use crate::driver::card::memory::Memory;
use crate::driver::card::words::BUFFER;
use crate::driver::{Card, Rings};
use driving::{Driving, Fate, Outgoing};
use locked::Locked;
use no_copy::NoCopy;
use one_copy::OneCopy;
use stream::Stream;
use two_copies::TwoCopies;

pub use driving::Counters;

/// How long a thread waits that has kept all packets that it may, while more have come, until it looks for room again.
const TICK: Duration = Duration::from_millis(1);

/// How buffers are allocated and released that are used in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Management {
    /// By memory that is shared with the adapter: its FIFOs.
    SharedRing,
    /// By a system call for each buffer that is allocated to be sent, and for each that is released after it was received: the numbers of
    /// free buffers lie in a pipe. Nothing else differs.
    SystemCall,
}

/// A network. Clones are handles of the same one, as packets are: it ends with the last of them. A [module](stream::Module) that uses its own
/// network is refused: EDEADLK.
#[derive(Debug, Clone)]
pub struct Network(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    state: Mutex<State>,
    memory: Arc<Memory>,
    descriptor: OwnedFd,
    /// Wakes those who wait: another thread may have silenced the descriptor.
    news: Event,
    maker: Maker,
}

#[derive(Debug)]
struct State {
    driver: Box<dyn Driving>,
    counters: Counters,
    sums: bool,
    /// How many threads wait.
    waiting: usize,
}

/// A packet: bytes in a buffer of a network's, which may lie anywhere and in several pieces. Dropping it releases the buffer.
#[derive(Debug)]
pub struct Packet {
    network: Arc<Inner>,
    buffer: u32,
    len: usize,
    checksum_at: Option<usize>,
    /// The checksum of a received packet that was summed while it was copied.
    sum: Option<u16>,
    /// The adapter has the buffer.
    is_away: bool,
}

/// A packet that was not sent, and why: [`Errno::AGAIN`] where there is no room at the moment.
#[derive(Debug, thiserror::Error)]
#[error("a packet of {} bytes was not sent: {errno}", packet.len())]
pub struct Unsent {
    /// The packet.
    pub packet: Packet,
    /// The reason.
    pub errno: Errno,
}

impl Network {
    /// A network with two copies each way: between packets and message blocks, and between blocks and the adapter. The blocks pass the
    /// stream's modules by reference. What finds no room in the adapter waits in the stream, and goes on when the program sends, receives,
    /// waits or [flushes](Network::flush); a network that ends loses it.
    ///
    /// # Errors
    /// The limits on memory and descriptors.
    pub fn two_copies(rings: impl Rings + 'static, stream: Stream) -> genie_sys::Result<Self> {
        let driver = TwoCopies::new(Box::new(rings), stream)?;
        Self::of(Arc::clone(driver.memory()), driver)
    }

    /// A network with one copy each way, between packets and the adapter.
    ///
    /// # Errors
    /// The limits on memory and descriptors.
    pub fn one_copy(rings: impl Rings + 'static) -> genie_sys::Result<Self> {
        let driver = OneCopy::new(Box::new(rings))?;
        Self::of(Arc::clone(driver.memory()), driver)
    }

    /// A network whose packets are the card's buffers, so that nothing is copied.
    ///
    /// # Errors
    /// The limits on descriptors.
    pub fn no_copy(card: Card, management: Management) -> genie_sys::Result<Self> {
        let memory = Arc::clone(card.memory());
        Self::of(memory, NoCopy::new(card, management)?)
    }

    fn of(memory: Arc<Memory>, mut driver: impl Driving + 'static) -> genie_sys::Result<Self> {
        let descriptor = driver.rings().descriptor().try_clone_to_owned();
        let descriptor = descriptor.map_err(|error| {
            Error::new("dup", "a network", Errno::from_io_error(&error).unwrap_or(Errno::MFILE))
        })?;
        let (driver, counters) = (Box::new(driver), Counters::default());
        let state = Mutex::new(State { driver, counters, sums: false, waiting: 0 });
        let (news, maker) = (Event::new()?, Maker::this_process());
        Ok(Self(Arc::new(Inner { state, memory, descriptor, news, maker })))
    }

    /// Allocates a packet of `len` bytes, which are whatever they are; none if all buffers are in use.
    ///
    /// # Errors
    /// EMSGSIZE: `len` is not from 1 to 4,096. The device is gone, or breaks the rules; ECHILD in a child made by fork.
    pub fn allocate(&self, len: usize) -> Result<Option<Packet>, Errno> {
        if len == 0 || len > BUFFER {
            return Err(Errno::MSGSIZE);
        }
        let State { driver, counters, .. } = &mut *self.0.lock()?;
        Ok(driver.allocate(counters)?.map(|buffer| self.packet(buffer, len, None)))
    }

    /// Sends a packet. One that the driver cannot send from where it lies is copied once more: another network's, or, without copies, one
    /// that was received.
    ///
    /// # Errors
    /// The packet, and the reason: EAGAIN, if there is no room at the moment; and those of [`Network::allocate`]. Where the adapter has
    /// gone, the packet may have been sent.
    pub fn send(&self, packet: Packet) -> Result<(), Box<Unsent>> {
        match self.pass(&packet) {
            Ok(Fate::Copied) => Ok(()),
            Ok(Fate::Taken) => {
                let mut packet = packet;
                packet.is_away = true;
                Ok(())
            }
            Ok(Fate::Elsewhere) => self.send_copy(packet),
            Ok(Fate::Waits) => Err(Box::new(Unsent { packet, errno: Errno::AGAIN })),
            Err(errno) => Err(Box::new(Unsent { packet, errno })),
        }
    }

    fn pass(&self, packet: &Packet) -> Result<Fate, Errno> {
        let State { driver, counters, .. } = &mut *self.0.lock()?;
        if !Arc::ptr_eq(&self.0, &packet.network) {
            return Ok(Fate::Elsewhere);
        }
        let &Packet { buffer, len, checksum_at, .. } = packet;
        let fate = driver.send(&Outgoing { buffer, len, checksum_at }, counters)?;
        if matches!(fate, Fate::Copied | Fate::Taken) {
            counters.sent += 1;
            counters.sent_bytes += len as u64;
        }
        Ok(fate)
    }

    /// Sends a copy, in a packet that the driver can send.
    fn send_copy(&self, packet: Packet) -> Result<(), Box<Unsent>> {
        match self.allocate(packet.len) {
            Ok(Some(mut copy)) => {
                let copied = copy.data_mut().copy_data(&packet.data());
                copy.checksum_at = packet.checksum_at;
                self.0.lock().map(|mut state| state.counters.copied_out += copied as u64).unwrap_or_default();
                self.send(copy).map_err(|unsent| Box::new(Unsent { packet, errno: unsent.errno }))
            }
            Ok(None) => Err(Box::new(Unsent { packet, errno: Errno::AGAIN })),
            Err(errno) => Err(Box::new(Unsent { packet, errno })),
        }
    }

    /// Takes the next packet that has come, if there is one, and the application has not kept all that it may.
    ///
    /// # Errors
    /// The device is gone, or breaks the rules; ECHILD in a child made by fork.
    pub fn receive(&self) -> Result<Option<Packet>, Errno> {
        let mut state = self.0.lock()?;
        let State { driver, counters, sums, waiting } = &mut *state;
        let received = driver.receive(*sums, counters);
        if *waiting > 0 {
            self.0.look(&mut state);
        }
        let Some(incoming) = received? else { return Ok(None) };
        let counters = &mut state.counters;
        counters.received += 1;
        counters.received_bytes += incoming.len as u64;
        Ok(Some(self.packet(incoming.buffer, incoming.len, incoming.sum)))
    }

    /// The same, and waits for one: at most so long, or as long as it takes.
    ///
    /// # Errors
    /// As [`Network::receive`].
    pub fn receive_timeout(&self, time: Option<Duration>) -> Result<Option<Packet>, Errno> {
        let until = time.and_then(|time| Instant::now().checked_add(time));
        loop {
            let received = self.receive()?;
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if received.is_some() || left.is_some_and(|left| left.is_zero()) {
                return Ok(received);
            }
            self.wait(left)?;
        }
    }

    /// Waits until the adapter may have something, a packet or room, at most so long. It is for a thread that has just found neither, and
    /// may return sooner.
    ///
    /// # Errors
    /// ECHILD in a child made by fork; the kernel's.
    pub fn wait(&self, time: Option<Duration>) -> Result<(), Errno> {
        let Inner { descriptor, news, .. } = &*self.0;
        let mut state = self.0.lock()?;
        let State { driver, counters, .. } = &mut *state;
        driver.drain(counters)?;
        if self.0.look(&mut state) {
            return Ok(());
        }
        // What is there, and has no buffer, would have the descriptor wake this thread again and again.
        let stays = state.driver.rings().has_frames();
        state.waiting += 1;
        drop(state);
        let woken = if stays {
            let time = time.map_or(TICK, |time| time.min(TICK));
            any_readable([news.as_fd()], Some(time)).map(|[told]| told)
        } else {
            any_readable([descriptor.as_fd(), news.as_fd()], time).map(|[_, told]| told)
        };
        let mut state = self.0.lock()?;
        state.waiting -= 1;
        if woken.map_err(|error| error.errno)? {
            let _ = news.clear();
        }
        if state.waiting > 0 {
            self.0.look(&mut state);
        }
        Ok(())
    }

    /// Waits until the adapter has all that was sent, at most so long, or for ever; returns whether it has. With two copies, what finds no
    /// room in the adapter waits in a queue until the next call; elsewhere nothing does. A network that is dropped loses its queue.
    ///
    /// # Errors
    /// As [`Network::allocate`].
    pub fn flush(&self, time: Option<Duration>) -> Result<bool, Errno> {
        let until = time.map(|time| Instant::now() + time);
        loop {
            let State { driver, counters, .. } = &mut *self.0.lock()?;
            if driver.drain(counters)? {
                return Ok(true);
            }
            if until.is_some_and(|until| Instant::now() >= until) {
                return Ok(false);
            }
            std::thread::sleep(TICK);
        }
    }

    /// Says whether packets that come are summed from now on while they are copied, where they are: see [`Packet::checksum`].
    ///
    /// # Errors
    /// ECHILD in a child made by fork.
    pub fn set_summing(&self, sums: bool) -> Result<(), Errno> {
        self.0.lock()?.sums = sums;
        Ok(())
    }

    /// Whether they are.
    ///
    /// # Errors
    /// ECHILD in a child made by fork.
    pub fn is_summing(&self) -> Result<bool, Errno> {
        Ok(self.0.lock()?.sums)
    }

    /// What has become of packets so far.
    ///
    /// # Errors
    /// ECHILD in a child made by fork.
    pub fn counters(&self) -> Result<Counters, Errno> {
        let mut state = self.0.lock()?;
        let by_rings = state.driver.rings().counters().sent_bytes;
        let counters = state.counters;
        Ok(Counters { copied_out: counters.copied_out + by_rings, ..counters })
    }

    fn packet(&self, buffer: u32, len: usize, sum: Option<u16>) -> Packet {
        Packet { network: Arc::clone(&self.0), buffer, len, checksum_at: None, sum, is_away: false }
    }
}

impl Inner {
    fn lock(&self) -> Result<Locked<'_, State>, Errno> {
        // In a child made by fork, a thread that is not there may have the lock.
        if self.maker.is_this_process() { Locked::of(&self.state) } else { Err(Errno::CHILD) }
    }

    /// Whether there is something for a thread that waits, and tells those who do; otherwise the descriptor will tell.
    fn look(&self, state: &mut State) -> bool {
        let is_armed = state.driver.rings().arm();
        let has_news = state.driver.has_packets() || !(is_armed || state.driver.rings().has_frames());
        if has_news && state.waiting > 0 {
            // It fails only where the kernel has no memory.
            let _ = self.news.signal();
        }
        has_news
    }
}

impl Packet {
    /// How many bytes it has.
    #[expect(clippy::len_without_is_empty, reason = "no packet is empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Its bytes.
    pub fn data(&self) -> Data<'_> {
        self.network.memory.buffer(self.buffer).into_data().part(0..self.len)
    }

    /// Its bytes, to be filled.
    pub fn data_mut(&mut self) -> DataMut<'_> {
        self.sum = None;
        self.network.memory.buffer(self.buffer).part(0..self.len)
    }

    /// Shortens it to its first `len` bytes, at least one; no checksum is stored there yet.
    pub fn truncate(&mut self, len: usize) {
        (self.len, self.sum, self.checksum_at) = (len.clamp(1, self.len), None, None);
    }

    /// Has the Internet checksum of all its bytes stored in two of them, from `at` on, when it is sent: while the packet is copied, where it
    /// is. The two count as zeros. With none, which is so at first, nothing is stored.
    ///
    /// # Errors
    /// EINVAL: `at` is odd, or the two bytes are not there.
    pub fn set_checksum_at(&mut self, at: Option<usize>) -> Result<(), Errno> {
        if at.is_some_and(|at| !at.is_multiple_of(2) || self.len < 2 || at > self.len - 2) {
            return Err(Errno::INVAL);
        }
        self.checksum_at = at;
        Ok(())
    }

    /// The Internet checksum of all its bytes: 0 where the one that it has is right. It is known already if the packet was received with
    /// [summing](Network::set_summing) and a copy.
    pub fn checksum(&self) -> u16 {
        self.sum.unwrap_or_else(|| Checksum::Internet.of_data(&self.data()) as u16)
    }
}

impl Drop for Packet {
    fn drop(&mut self) {
        if !self.is_away
            && let Ok(mut state) = self.network.lock()
        {
            let State { driver, counters, .. } = &mut *state;
            driver.release(self.buffer, counters);
        }
    }
}
