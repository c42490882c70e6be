//! UDP datagrams that are sent from the memory where the application has written them, without a copy of Genie's.
//!
//! Why: the copy that a socket's sender makes can be left out if the application either writes its data where it is sent from, or leaves it
//! alone until it was sent.
//! How: by the ring for sending of an AF_XDP socket, in the paper's two ways. *mmap*: the application gets [buffers](Sender::buffer) of the
//! socket's memory, with room for headers, writes its data there, and [sends](Sender::send) them. *gather*: the application has a part of that
//! memory for itself, keeps its data there wherever it likes, and [gives](Sender::gather) the pieces of a datagram; the headers are apart.
//! Beside them is the *copying extension*, which [copies](Sender::copy) data into a buffer, and sums it meanwhile.
//! A buffer is the application's again when the kernel has sent it ([`Sender::buffer`]), or, by the paper's weaker rule, when so many others
//! were sent after it ([`Sender::buffer_after`]): the kernel is not asked then, and may send what is stored too early.
//! Trust: nothing comes in.
//! Limits: UDP, and one queue of an interface. Datagrams are not fragmented: their headers and data are at most the interface's MTU. A
//! datagram has 18 parts at most, each in one page. Whether the kernel copies the bytes once more is the device's matter: virtual ones (veth)
//! have it do so, which [`Sender::counters`] say.
//! Source: J. van Rantwijk, Experiments with zero-copy UDP transmission under Linux. Differs: AF_XDP takes the place of the paper's driver;
//! completion, and owned buffers, so that nobody stores too early by mistake; datagrams go in batches.

mod buffer;
mod flow;
mod slots;

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use genie_sys::Errno;
use genie_sys::fork::Maker;
use genie_sys::xdp::{CHUNK, Extent, Part, Sending};

use crate::checksum::{Checksum, Sum, ones_complement};
use crate::driver::Error;
use crate::driver::interfaces::interface;
use buffer::{HEADROOM, Home};
use slots::Slots;

pub use buffer::{Buffer, Filled, Unsettled};
pub use flow::Flow;

/// How many parts a frame may have.
const PARTS_MOST: usize = 18;
const BUFFERS_MOST: usize = 1 << 16;
const AREA_MOST: usize = 4 << 30;
/// How many gathered datagrams may be on their way.
const GATHERS: usize = 256;

/// A piece of the application's own part of the memory. It can be split; nobody else has it.
pub type Piece = Extent;

/// What a [`Sender`] has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// The interface's queue.
    pub queue: u32,
    /// How many buffers there are, of the interface's MTU.
    pub buffers: usize,
    /// How many bytes the application has for itself.
    pub area: usize,
    /// How many datagrams the kernel is asked to send at once.
    pub batch: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self { queue: 0, buffers: 256, area: 0, batch: 32 }
    }
}

/// What was sent so far, and copied for it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Datagrams.
    pub sent: u64,
    /// The bytes of their headers and data.
    pub bytes: u64,
    /// Bytes of data that Genie has copied: those of [`Sender::copy`].
    pub copied: u64,
    /// Bytes that the kernel has copied, into packets of its own.
    pub copied_by_kernel: u64,
}

/// Why a datagram was not sent; and the memory that has its data.
#[derive(Debug, thiserror::Error)]
#[error("a datagram was not sent: {reason}")]
pub struct Refused<T> {
    /// Why.
    #[source]
    pub reason: Reason,
    /// What was to be sent.
    pub given: T,
}

/// Why a datagram is not sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// It is longer than the interface sends.
    #[error("{len} bytes of data and {headers} of headers are more than the MTU of {interface}, {mtu}")]
    TooLong {
        /// How long the data is.
        len: usize,
        /// How long the headers of IP and UDP are.
        headers: usize,
        /// The interface.
        interface: String,
        /// Its MTU.
        mtu: usize,
    },
    /// It lies in too many pages.
    #[error("the data is in {parts} parts, counted by page; with its headers there may be {PARTS_MOST}")]
    Scattered {
        /// How many.
        parts: usize,
    },
    /// It lies in memory that another sender sends from.
    #[error("the data lies in another sender's memory")]
    Elsewhere,
    /// The ring has no room now.
    #[error("the ring has no room; take back what was sent, and send it again")]
    Full,
    /// The kernel's reason.
    #[error("the kernel says: {0}")]
    Kernel(#[from] Errno),
}

/// Sends datagrams by a queue of an interface, from memory of its own.
#[derive(Debug)]
pub struct Sender {
    sending: Sending,
    interface: String,
    mtu: usize,
    batch: u32,
    /// How many datagrams the kernel was not asked to send yet.
    waiting: u32,
    /// The buffers that are here, the one that was sent longest ago first.
    buffers: VecDeque<Extent>,
    /// The headers of gathered datagrams, the one that was used longest ago first.
    headers: VecDeque<Extent>,
    /// The pieces of gathered datagrams, and the slots of their headers.
    gathered: VecDeque<(usize, Vec<Piece>)>,
    slots: Slots,
    home: Arc<Home>,
    is_zero_copy: bool,
    counters: Counters,
    maker: Maker,
}

impl Sender {
    /// Opens a queue of an interface in this thread's network namespace, and returns the application's own part of the memory with it.
    ///
    /// # Errors
    /// There is no such interface, a right is missing, another program has the queue, or the options ask for too much.
    pub fn open(name: &str, options: &Options) -> Result<(Self, Piece), Error> {
        let failed = |source| Error::of(name, source);
        if options.buffers > BUFFERS_MOST || options.area > AREA_MOST {
            let reason = "there are at most 65,536 buffers, and 4 GiB for the application itself";
            return Err(Error::Options { interface: name.to_owned(), reason });
        }
        let interface = interface(name).map_err(failed)?;
        let mtu = interface.mtu as usize;
        let stride = match HEADROOM + mtu {
            ..=2048 => 2048,
            len => len.next_multiple_of(CHUNK),
        };
        let headers = if options.area > 0 { GATHERS } else { 0 };
        let of_buffers = (options.buffers * stride).next_multiple_of(CHUNK);
        let entries = options.buffers * stride.div_ceil(CHUNK) + headers * PARTS_MOST;
        let len = of_buffers + headers * HEADROOM + options.area;
        let opened = Sending::open(len, entries.max(1).next_power_of_two() as u32);
        let (sending, mut memory) = opened.map_err(failed)?;
        let has_frags = stride > CHUNK || headers > 0;
        sending.bind(interface.index, options.queue, has_frags).map_err(failed)?;
        let is_zero_copy = sending.is_zero_copy().map_err(failed)?;
        let mut buffers = memory.split_to(of_buffers);
        let sender = Self {
            sending,
            interface: interface.name,
            mtu,
            batch: options.batch,
            waiting: 0,
            buffers: (0..options.buffers).map(|_| buffers.split_to(stride)).collect(),
            headers: (0..headers).map(|_| memory.split_to(HEADROOM)).collect(),
            gathered: VecDeque::with_capacity(headers),
            slots: Slots::new(stride, of_buffers / stride, headers),
            home: Home::new(),
            is_zero_copy,
            counters: Counters::default(),
            maker: Maker::this_process(),
        };
        Ok((sender, memory.split_to(options.area)))
    }

    /// How many bytes of data a datagram of a flow has at most.
    pub fn most(&self, flow: &Flow) -> usize {
        self.mtu.saturating_sub(flow.packet_len())
    }

    /// A buffer that the kernel has done with; none while all are out or still to be sent.
    ///
    /// # Errors
    /// The interface is gone. In a child made by fork: ECHILD.
    pub fn buffer(&mut self) -> Result<Option<Buffer>, Errno> {
        self.ensure_own()?;
        if !self.is_first_settled() {
            self.flush()?;
        }
        Ok(if self.is_first_settled() { self.next_buffer() } else { None })
    }

    /// A buffer after which at least `later` others were sent, whether or not the kernel has done with it: the paper's rule.
    ///
    /// # Errors
    /// As [`Sender::buffer`].
    pub fn buffer_after(&mut self, later: usize) -> Result<Option<Unsettled>, Errno> {
        self.ensure_own()?;
        if self.waiting as usize >= later {
            self.flush()?;
        }
        let is_later = self.is_first_settled() || self.buffers.len() > later;
        Ok(if is_later { self.next_buffer().map(Unsettled) } else { None })
    }

    /// Sends the first `len` bytes of a buffer: the mmap method.
    ///
    /// # Errors
    /// Why not; the buffer comes back.
    ///
    /// # Panics
    /// When the buffer is shorter.
    ///
    /// # Cost
    /// No copy. With a checksum, the data is read once. A system call for each batch.
    pub fn send(
        &mut self,
        flow: &Flow,
        buffer: impl Into<Filled>,
        len: usize,
    ) -> Result<(), Refused<Filled>> {
        let given = buffer.into();
        let sum = flow.has_checksum().then(|| ones_complement(Checksum::Internet.of(&given.0[..len])));
        self.put_buffer(flow, given, len, sum)
    }

    /// Copies data into a buffer, and sends that: the copying extension. False: no buffer is free.
    ///
    /// # Errors
    /// Why not.
    ///
    /// # Cost
    /// One copy, into which the checksum is integrated.
    pub fn copy(&mut self, flow: &Flow, data: &[u8]) -> Result<bool, Reason> {
        self.check(flow, data.len())?;
        let Some(mut buffer) = self.buffer()? else { return Ok(false) };
        let to = &mut buffer[..data.len()];
        let sum = match flow.has_checksum() {
            true => Some(ones_complement(Checksum::Internet.copy(data, to))),
            false => {
                to.copy_from_slice(data);
                None
            }
        };
        self.put_buffer(flow, buffer.into(), data.len(), sum).map_err(|refused| refused.reason)?;
        self.counters.copied += data.len() as u64;
        Ok(true)
    }

    /// Sends a datagram whose data lies in pieces of the application's own memory: the gather method. They come back by
    /// [`Sender::gathered`].
    ///
    /// # Errors
    /// Why not; the pieces come back.
    ///
    /// # Cost
    /// No copy. With a checksum, the data is read once. A system call for each batch.
    pub fn gather(&mut self, flow: &Flow, pieces: Vec<Piece>) -> Result<(), Refused<Vec<Piece>>> {
        match self.put_pieces(flow, &pieces) {
            Ok(slot) => {
                self.gathered.push_back((slot, pieces));
                Ok(())
            }
            Err(reason) => Err(Refused { reason, given: pieces }),
        }
    }

    /// The pieces of the datagram that was gathered first, if the kernel has done with it.
    ///
    /// # Errors
    /// As [`Sender::buffer`].
    pub fn gathered(&mut self) -> Result<Option<Vec<Piece>>, Errno> {
        self.ensure_own()?;
        let is_done =
            |sender: &Self| sender.gathered.front().is_some_and(|(slot, _)| sender.slots.is_settled(*slot));
        if !is_done(self) {
            self.flush()?;
        }
        Ok(if is_done(self) { self.gathered.pop_front().map(|(_, pieces)| pieces) } else { None })
    }

    /// Has the kernel send all that it was not asked to send yet, and looks at what it has done with.
    ///
    /// # Errors
    /// As [`Sender::buffer`].
    pub fn flush(&mut self) -> Result<(), Errno> {
        self.ensure_own()?;
        self.sending.send()?;
        self.waiting = 0;
        self.reclaim();
        Ok(())
    }

    /// What was sent, and copied for it.
    pub fn counters(&self) -> Counters {
        let copied_by_kernel = if self.is_zero_copy { 0 } else { self.counters.bytes };
        Counters { copied_by_kernel, ..self.counters }
    }

    fn ensure_own(&self) -> Result<(), Errno> {
        if self.maker.is_this_process() { Ok(()) } else { Err(Errno::CHILD) }
    }

    fn is_first_settled(&self) -> bool {
        let slot = self.buffers.front().and_then(|buffer| self.slots.at(buffer.at()));
        slot.is_some_and(|slot| self.slots.is_settled(slot))
    }

    fn next_buffer(&mut self) -> Option<Buffer> {
        self.buffers.pop_front().map(|extent| Buffer::new(extent, Arc::clone(&self.home)))
    }

    fn check(&self, flow: &Flow, len: usize) -> Result<(), Reason> {
        self.ensure_own()?;
        if len > self.most(flow) {
            let (headers, mtu) = (flow.packet_len(), self.mtu);
            return Err(Reason::TooLong { len, headers, interface: self.interface.clone(), mtu });
        }
        Ok(())
    }

    fn put_buffer(
        &mut self,
        flow: &Flow,
        mut given: Filled,
        len: usize,
        sum: Option<u16>,
    ) -> Result<(), Refused<Filled>> {
        let headers = flow.headers_len();
        let start = HEADROOM - headers;
        let parts = given.0.extent().parts(start, headers + len, false);
        let is_ours = given.0.is_of(&self.home);
        let put = self.check(flow, len).and_then(|()| {
            if !is_ours {
                return Err(Reason::Elsewhere);
            }
            given.0.extent().write(start, &flow.headers(len as u16, sum));
            let slot = self.slots.at(given.0.extent().at()).unwrap_or_default();
            self.put(slot, headers + len, parts)
        });
        match put {
            Ok(()) => {
                self.buffers.push_back(given.0.into_extent());
                Ok(())
            }
            Err(reason) => Err(Refused { reason, given }),
        }
    }

    fn put_pieces(&mut self, flow: &Flow, pieces: &[Piece]) -> Result<usize, Reason> {
        let len = pieces.iter().map(|piece| piece.len()).sum();
        self.check(flow, len)?;
        let is_ours = |piece: &Piece| self.headers.front().is_none_or(|ours| ours.is_beside(piece));
        if !pieces.iter().all(is_ours) {
            return Err(Reason::Elsewhere);
        }
        let mut left = len;
        let parts = pieces.iter().flat_map(move |piece| {
            left -= piece.len();
            piece.parts(0, piece.len(), left > 0)
        });
        let count = parts.clone().count();
        if count >= PARTS_MOST {
            return Err(Reason::Scattered { parts: count });
        }
        let front = self.headers.front().and_then(|extent| self.slots.at(extent.at()));
        let slot =
            front.filter(|slot| self.slots.is_settled(*slot) && self.gathered.len() < self.headers.len());
        let (Some(slot), Some(mut extent)) = (slot, self.headers.pop_front()) else {
            return Err(Reason::Full);
        };
        let sum = flow.has_checksum().then(|| {
            let mut sum = Sum::new(Checksum::Internet);
            pieces.iter().for_each(|piece| sum.add(piece));
            ones_complement(sum.finish())
        });
        let headers = flow.headers(len as u16, sum);
        extent.write(0, &headers);
        let first = extent.parts(0, headers.len(), len > 0);
        let put = self.put(slot, headers.len() + len, first.chain(parts));
        self.headers.push_back(extent);
        put.map(|()| slot)
    }

    /// Puts a frame into the ring, and has the kernel send it when a batch is full.
    fn put(
        &mut self,
        slot: usize,
        len: usize,
        parts: impl Iterator<Item = Part> + Clone,
    ) -> Result<(), Reason> {
        let count = parts.clone().count();
        if !self.sending.ring().has_room(count as u32) {
            self.flush()?;
            if !self.sending.ring().has_room(count as u32) {
                return Err(Reason::Full);
            }
        }
        for part in parts {
            self.sending.ring().push(part);
        }
        self.slots.put(slot, count);
        self.counters.sent += 1;
        self.counters.bytes += len as u64;
        self.waiting += 1;
        if self.waiting >= self.batch {
            // What is wrong with the interface, the next call tells: this datagram is in the ring.
            let _ = self.flush();
        }
        Ok(())
    }

    /// Looks at what the kernel has done with, and takes buffers back that were dropped.
    fn reclaim(&mut self) {
        while let Some(at) = self.sending.completed().pop() {
            self.slots.sent(at as usize);
        }
        self.sending.completed().release();
        while let Some(extent) = self.home.take() {
            self.buffers.push_back(extent);
        }
    }
}

/// Writable, as `poll` has it, when the kernel has done with something.
impl AsFd for Sender {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.sending.as_fd()
    }
}
