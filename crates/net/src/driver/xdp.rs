//! AF_XDP: the driver whose frames the kernel stores into buffers of one memory object, which can change places with clients' pages.
//!
//! Why: a frame that the device has stored where a client's page can be is passed to the client without a copy.
//! How: the object is divided into chunks of a page ([`genie_memory::Frames`]), each an overlay buffer. Chunks are in the ring for frames that will
//! come, or are kept for sending, or are out: with an adapter ([`Native`]), with requests, or clients'. A chunk that comes back is put into the
//! ring again. A frame longer than a chunk is in several. Which frames are ours, a [program](program) says; all others are the kernel's.
//! With [`Queue::splits`], that program takes their headers off, so that data begins where a page does, and the kernel stores the headers in
//! front of it: an overlay buffer has two pages then, of which clients get none but the second.
//! Invariants: a chunk is in the ring only while its overlay buffer is here, whole. A [`reserve`](Queue::reserve) of chunks never leaves,
//! so frames come, whatever clients keep. No granule of other memory is ever named to the kernel.
//! Trust: the kernel is trusted with the object, frames are anybody's, and clients see only chunks that were passed to them.
//! Limits: one queue of an interface. Frames of other queues are the kernel's: `ethtool -L IFACE combined 1` leaves one. Datagrams with IP
//! options, extension headers, VLAN tags, or in fragments are the kernel's, too. Nobody tells a thread that waits for frames that the interface
//! was set down; one that was removed ends the wait.
//! Source: thesis §6.1, §6.2. Differs: the client's pages do not refill the ring, and headers have no list of their own.
#![allow(
    unsafe_code,
    reason = "registers the frames' memory with the kernel, and puts only chunks into the ring whose buffers it has"
)]

pub(super) mod program;
mod queue;

use std::net::IpAddr;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use genie_memory::{Data, DataMut, Segments, Space};
use genie_passing::{Layout, Overlay, Overlays};
use genie_sys::bpf::{Attached, Sockets};
use genie_sys::fork::Maker;
use genie_sys::xdp::{CHUNK, HEADROOM, Lengths, Part, Places, Socket};
use genie_sys::{Errno, Span, bpf};

use super::claims::Claims;
use super::interfaces::interface;
use super::{Counters, Error, Native, Rings};
use crate::Frame;
use crate::frame::Buffers;
use program::{Ports, SPLIT};

pub use queue::Queue;

/// How many bytes of a frame a chunk holds.
const ROOM: usize = CHUNK - HEADROOM;
/// The longest MTU whose frames are in one buffer, for each driver.
const MTU_WHOLE: usize = 3506;
/// The header of a link, and a tag.
const LINK_HEADER: usize = 18;
/// How many calls find nothing before one asks whether the interface is still there.
const PATIENCE: u32 = 1024;

/// How overlay buffers are laid out.
#[derive(Debug, Clone, Copy)]
struct Shape {
    /// How long one is.
    stride: usize,
    /// Where in it the kernel stores a frame, or what is left of it without headers: behind a chunk's [`HEADROOM`].
    data: usize,
    /// How much of what lies in front of that is metadata.
    front: usize,
}

const WHOLE: Shape = Shape { stride: CHUNK, data: HEADROOM, front: 0 };
/// Data has a page, and what the kernel stores in front of it has another one, which no client gets.
const SPLITTING: Shape = Shape { stride: 2 * CHUNK, data: CHUNK, front: SPLIT };

/// A queue of an interface, and its rings. Dropping it gives all frames back to the kernel.
#[derive(Debug)]
pub struct Xdp {
    /// It ends before the socket.
    attached: Attached,
    _sockets: Sockets,
    ports: Ports,
    claims: Claims,
    socket: Socket,
    pool: Overlays,
    /// Where the object begins.
    start: usize,
    shape: Shape,
    /// The buffers in the ring for frames that will come, and those for sending, by their place in the object.
    chunks: Box<[Option<Overlay>]>,
    /// Those for sending that are not in use.
    idle: Vec<u32>,
    /// How many are in the ring for frames that will come.
    filled: usize,
    /// The same, as the adapter sees it: those that may leave.
    free: Arc<AtomicUsize>,
    frame: Buffers,
    receiving: usize,
    reserve: usize,
    longest: usize,
    is_zero_copy: bool,
    /// Whether senders' kernels may have left checksums to the device, which computes none and does not tell.
    is_unsummed: bool,
    /// Whether something that was put is still to be sent.
    is_held_up: bool,
    unfound: u32,
    gone: Option<Errno>,
    counters: Counters,
    maker: Maker,
}

impl Xdp {
    /// Opens a queue of an interface in this thread's network namespace, whose frames lie in an object of `space`. Datagrams to `hosts` are
    /// ours when their ports are [claimed](Rings::claim).
    ///
    /// # Errors
    /// There is no such interface, a right is missing, or another program has the interface.
    ///
    /// # Cost
    /// All of the memory is taken, and pinned.
    pub fn open(space: &Space, name: &str, hosts: &[IpAddr], queue: &Queue) -> Result<Self, Error> {
        let interface_name = || name.to_owned();
        queue.check(hosts).map_err(|reason| Error::Options { interface: interface_name(), reason })?;
        let failed = |source| Error::of(name, source);
        let interface = interface(name).map_err(failed)?;
        let (index, mtu) = (interface.index, interface.mtu as usize);
        let Queue { number, receiving, sending, reserve, away, mode, splits } = *queue;
        let (shape, places) = if splits { (SPLITTING, Places::Any) } else { (WHOLE, Places::Multiples) };
        let frames = space
            .make_frames(shape.stride, receiving + sending)
            .map_err(|source| Error::Memory { interface: interface_name(), source: source.into() })?;
        let pool = Overlays::framed(
            frames,
            Layout { headroom: shape.data - shape.front, len: shape.front + ROOM, away },
        );
        let memory = pool.addresses().expect("it is a pool of frames");
        // The kernel shows a frame before it gives back the places of the chunks that it took for it.
        let lengths = Lengths {
            receiving: (2 * receiving).next_power_of_two() as u32,
            sending: sending.next_power_of_two() as u32,
        };
        let start = memory.start;
        // SAFETY: the pool's memory is mapped, and stays while its buffers are here. `fill` is the only one to put chunks into the ring; it has
        // their buffers, whole, and keeps each until the chunk was received. In a child made by fork no method uses the rings.
        let socket = unsafe { Socket::open(memory, places, lengths) }.map_err(failed)?;
        let frags = mtu > MTU_WHOLE;
        let attach = || {
            socket.bind(index, number, frags)?;
            let (ports, sockets) = (Ports::none()?, Sockets::create(number + 1)?);
            sockets.set(number, socket.as_fd())?;
            let program = program::load(hosts, &ports, &sockets, frags, splits.then_some(number))?;
            Ok((program.attach(index, mode)?, sockets, ports, socket.is_zero_copy()?))
        };
        let (attached, sockets, ports, is_zero_copy) = attach().map_err(failed)?;
        let mut xdp = Self {
            attached,
            _sockets: sockets,
            ports,
            claims: Claims::of(&interface, hosts),
            socket,
            chunks: (0..receiving + sending).map(|_| None).collect(),
            pool,
            start,
            shape,
            idle: Vec::with_capacity(sending),
            filled: 0,
            free: Arc::default(),
            frame: Buffers::default(),
            receiving,
            reserve,
            longest: mtu + LINK_HEADER,
            is_zero_copy,
            is_unsummed: interface.kind.as_deref() == Some("veth"),
            is_held_up: false,
            unfound: 0,
            gone: None,
            counters: Counters::default(),
            maker: Maker::this_process(),
        };
        for _ in 0..sending {
            let overlay = xdp.pool.allocate().expect("no buffer is out yet");
            let chunk = xdp.chunk_of(&overlay);
            debug_assert_eq!(
                overlay.data().segments()[..],
                [xdp.span(chunk, 0..overlay.len())],
                "it is at its place"
            );
            xdp.idle.push(chunk as u32);
            xdp.chunks[chunk] = Some(overlay);
        }
        xdp.refill();
        Ok(xdp)
    }

    /// An adapter that takes the buffers in which frames come.
    pub fn adapter(&self) -> Native {
        Native::new(self.pool.clone(), Arc::clone(&self.free), self.shape.front > 0)
    }

    /// Where the program is run.
    pub fn mode(&self) -> bpf::Mode {
        self.attached.mode()
    }

    /// Whether frames go between the device and the buffers without a copy of the kernel's.
    pub fn is_zero_copy(&self) -> bool {
        self.is_zero_copy
    }

    /// Puts buffers that are free into the ring for frames that will come.
    fn refill(&mut self) {
        while self.filled < self.receiving
            && let Some(overlay) = self.pool.allocate()
        {
            let chunk = self.chunk_of(&overlay);
            self.fill(overlay, chunk);
        }
        self.show_filled();
    }

    fn fill(&mut self, overlay: Overlay, chunk: usize) {
        self.chunks[chunk] = Some(overlay);
        let has_room = self.socket.fill.push((chunk * self.shape.stride + self.shape.data - HEADROOM) as u64);
        debug_assert!(has_room, "the ring has room for all buffers");
        self.filled += 1;
    }

    fn show_filled(&mut self) {
        self.socket.fill.publish();
        if self.is_zero_copy && self.socket.fill.needs_wakeup() {
            // What is wrong with the interface, the next call tells.
            let _ = self.socket.kick_fill();
        }
        self.free.store(self.filled.saturating_sub(self.reserve), Ordering::Relaxed);
    }

    /// Which buffer of the object it is.
    fn chunk_of(&self, overlay: &Overlay) -> usize {
        overlay.place().expect("buffers of the pool are frames") / self.shape.stride
    }

    /// Bytes of an overlay buffer that is here, whole: it is where its place in the object is mapped.
    fn span(&self, chunk: usize, bytes: Range<usize>) -> Span {
        let Shape { stride, data, front } = self.shape;
        let at = self.start + chunk * stride + data - front + bytes.start;
        Span::new(std::ptr::with_exposed_provenance_mut(at), bytes.len())
    }

    /// Takes the next frame out of the ring, if all of it has come.
    fn receive(&mut self) -> bool {
        while let Some(Part { at, len, goes_on }) = self.socket.received.pop().map(Part::from) {
            self.filled -= 1;
            let Shape { stride, data, front } = self.shape;
            let start = (at % stride).checked_sub(data).filter(|start| start + len <= ROOM);
            // What the kernel names is a buffer that it was given.
            let overlay = self.chunks.get_mut(at / stride).and_then(Option::take);
            if let (Some(overlay), Some(start)) = (overlay, start) {
                let headers = if front > 0 { take_headers(&overlay) } else { 0 };
                let part = front + start - headers..front + start + len;
                let bytes = Segments::from_iter([self.span(at / stride, part.clone())]);
                // SAFETY: the buffer is whole, and stays so while it is in `frame`; so its bytes stay mapped. No others are shown.
                self.frame.push(overlay, part, unsafe { Data::new(bytes) });
            }
            if !goes_on {
                return true;
            }
        }
        false
    }

    /// Puts the buffers of a frame that nobody has taken into the ring again.
    fn keep_frame(&mut self) {
        while let Some((overlay, bytes)) = self.frame.pop() {
            let chunk = (bytes.segments()[0].addr() - self.start) / self.shape.stride;
            self.fill(overlay, chunk);
        }
    }

    /// Takes back what was sent.
    fn reclaim(&mut self) {
        while let Some(at) = self.socket.completed.pop() {
            self.idle.push((at as usize / self.shape.stride) as u32);
        }
        self.socket.completed.release();
    }

    /// Fails once the interface has gone, and in a child made by fork.
    fn ensure_own(&self) -> Result<(), Errno> {
        if !self.maker.is_this_process() {
            return Err(Errno::CHILD);
        }
        self.gone.map_or(Ok(()), Err)
    }
}

/// How long the headers are that were taken off the frame in a buffer. None are, until the next metadata is stored there, which a frame that
/// stays whole and the later parts of a long one do not have.
fn take_headers(overlay: &Overlay) -> usize {
    let (all, mut len) = (overlay.data(), [0; 4]);
    let word = all.part(0..4);
    word.copy_to(&mut len);
    word.fill(0);
    (u32::from_ne_bytes(len) as usize).min(SPLIT - 4)
}

impl Rings for Xdp {
    fn put(&mut self, frame: &Data<'_>) -> Result<bool, Errno> {
        self.ensure_own()?;
        let len = frame.len();
        if len > self.longest || len == 0 {
            return Err(Errno::MSGSIZE);
        }
        let parts = len.div_ceil(ROOM);
        if self.idle.len() < parts {
            self.reclaim();
        }
        if self.idle.len() < parts || !self.socket.sending.has_room(parts as u32) {
            return Ok(false);
        }
        for from in (0..len).step_by(ROOM) {
            let here = ROOM.min(len - from);
            let Some(chunk) = self.idle.pop() else { break };
            let Shape { stride, data, front } = self.shape;
            let Some(_) = &self.chunks[chunk as usize] else { break };
            let bytes = Segments::from_iter([self.span(chunk as usize, front..front + here)]);
            // SAFETY: the buffer is here, whole, and the kernel has given it back; no Rust reference points there.
            unsafe { DataMut::new(bytes) }.copy_data(&frame.part(from..from + here));
            let at = chunk as usize * stride + data;
            self.socket.sending.push(Part { at, len: here, goes_on: from + here < len });
        }
        self.counters.sent += 1;
        self.counters.sent_bytes += len as u64;
        Ok(true)
    }

    fn room(&mut self) -> Result<usize, Errno> {
        self.ensure_own()?;
        let parts = self.longest.div_ceil(ROOM);
        if self.idle.len() < parts {
            self.reclaim();
        }
        Ok(self.idle.len().min(self.socket.sending.room() as usize) / parts)
    }

    fn send(&mut self) -> Result<(), Errno> {
        self.ensure_own()?;
        let sent = self.socket.send();
        self.is_held_up = sent.is_err();
        sent
    }

    fn take(&mut self, most: usize, see: &mut dyn FnMut(&Frame<'_>)) -> Result<usize, Errno> {
        self.ensure_own()?;
        if self.is_held_up {
            // If it is in vain again, the next look is another try.
            let _ = self.send();
        }
        if self.filled <= self.reserve {
            self.refill();
        }
        // A panic in `see` has left one here.
        self.keep_frame();
        let mut taken = 0;
        while taken < most && self.receive() {
            let frame = Frame::in_buffers(&self.frame);
            let frame = if self.is_unsummed { frame.unsummed() } else { frame };
            self.counters.received += 1;
            self.counters.received_bytes += frame.len() as u64;
            self.frame.let_leave(self.filled >= self.reserve);
            see(&frame);
            self.keep_frame();
            taken += 1;
        }
        if taken > 0 {
            self.socket.received.release();
            self.refill();
            return Ok(taken);
        }
        self.unfound = self.unfound.wrapping_add(1);
        if self.unfound.is_multiple_of(PATIENCE) {
            self.gone = self.socket.check().err();
        }
        self.ensure_own().map(|()| 0)
    }

    fn claim(&mut self, port: u16, is_ours: bool) -> Result<(), Errno> {
        self.ensure_own()?;
        self.claims.set(port, is_ours)?;
        self.ports.set(port, is_ours);
        Ok(())
    }

    fn has_frames(&self) -> bool {
        // What is held up goes soon: whoever waits is to look again.
        self.maker.is_this_process() && (self.is_held_up || self.socket.received.has_next())
    }

    fn arm(&mut self) -> bool {
        if self.maker.is_this_process() && self.gone.is_none() {
            self.gone = self.socket.check().err();
        }
        self.gone.is_none()
    }

    fn tells_of_its_end(&self) -> bool {
        false
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn counters(&self) -> Counters {
        let copied_by_kernel = self.copied() - self.counters.sent_bytes;
        Counters { dropped: self.socket.dropped(), copied_by_kernel, ..self.counters }
    }

    fn copied(&self) -> u64 {
        let Counters { sent_bytes, received_bytes, .. } = self.counters;
        sent_bytes + if self.is_zero_copy { 0 } else { sent_bytes + received_bytes }
    }
}
