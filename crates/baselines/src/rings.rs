//! A bare loop over AF_XDP's rings: the limit of what frames of this kind cost, with nothing above the rings.
//!
//! How: the frames of one flow, whose headers are written once. A frame to be sent lies in a slot of whole chunks, where its number is
//! written; 32 go in a call. Of a frame that has come only what is asked for is looked at, where the kernel has stored it, and its
//! chunks go back at once. The program sends all frames of the queue to the socket: the kernel has none of them.
//! Trust: what comes is for [`Arrivals`] to judge; the kernel is trusted with the memory.
#![allow(
    unsafe_code,
    reason = "gives memory to the kernel's rings, and looks at a chunk while the rings give it to this process"
)]

use std::io;
use std::ops::Range;

use genie_lab::datagrams::{Arrivals, End, rest};
use genie_lab::error::{Error, Result};
use genie_sys::Errno;
use genie_sys::bpf::{Assembly, Attached, Program, Sockets, Verdict, Width};
use genie_sys::xdp::{CHUNK, Lengths, Part, Places, Socket};
use vm_memory::MmapRegion;

/// How many frames go in a call.
const BATCH: u64 = 32;
/// How many chunks frames come into, and how many slots there are for frames to be sent: as many as Genie's driver has by default.
const RECEIVING: usize = 1024;
const SLOTS: usize = 128;
/// The longest MTU whose frames are in one chunk, for each driver.
const MTU_WHOLE: u32 = 3506;
const NUMBER: usize = size_of::<u64>();

/// The rings of an interface's first queue.
#[derive(Debug)]
pub struct BareRings {
    // Declared in the order in which they are to go.
    _attached: Attached,
    _sockets: Sockets,
    socket: Socket,
    memory: MmapRegion,
    headers: usize,
    len: usize,
    /// How many bytes a slot has.
    stride: usize,
    idle: Vec<usize>,
    /// The frame that comes, if all its bytes are asked for, or as far as it has come.
    frame: Vec<u8>,
    frame_len: usize,
    is_zero_copy: bool,
}

impl BareRings {
    /// Takes all frames of the interface of this number and MTU in this thread's network namespace. Frames that are sent have these headers, and
    /// `len` bytes of data, those behind the number `byte`.
    ///
    /// # Errors
    /// A right is missing, or another program has the interface.
    pub fn open(interface: u32, mtu: u32, headers: &[u8], len: usize, byte: u8) -> Result<Self> {
        let stride = (headers.len() + len).next_multiple_of(CHUNK);
        let has_frags = mtu > MTU_WHOLE;
        let sending = SLOTS * stride / CHUNK;
        let memory = MmapRegion::new(SLOTS * stride + RECEIVING * CHUNK).map_err(io::Error::other);
        let memory =
            memory.map_err(|error| Error::Peer(format!("there is no memory for frames: {error}")))?;
        let start = memory.as_ptr().addr();
        // The kernel shows a frame before it gives back the places of the chunks that it took for it.
        let lengths =
            Lengths { receiving: 2 * RECEIVING as u32, sending: sending.next_power_of_two() as u32 };
        // SAFETY: the memory is mapped, and is unmapped after the socket has gone. The chunks behind the slots are in the fill ring, or
        // were received and not given back yet: `take` looks at those alone.
        let mut socket = unsafe { Socket::open(start..start + memory.size(), Places::Multiples, lengths) }?;
        for chunk in 0..RECEIVING {
            socket.fill.push((SLOTS * stride + chunk * CHUNK) as u64);
        }
        socket.fill.publish();
        socket.bind(interface, 0, has_frags)?;
        let sockets = Sockets::create(1)?;
        sockets.set(0, std::os::fd::AsFd::as_fd(&socket))?;
        let attached = program(&sockets, has_frags)?.attach(interface, None)?;
        let is_zero_copy = socket.is_zero_copy()?;
        let mut rings = Self {
            _attached: attached,
            _sockets: sockets,
            socket,
            memory,
            headers: headers.len(),
            len,
            stride,
            idle: (0..SLOTS).collect(),
            frame: Vec::with_capacity(1 << 16),
            frame_len: 0,
            is_zero_copy,
        };
        for slot in 0..SLOTS {
            let slot = rings.slot(slot);
            slot.fill(byte);
            slot[..headers.len()].copy_from_slice(headers);
        }
        Ok(rings)
    }

    fn slot(&mut self, slot: usize) -> &mut [u8] {
        assert!(slot < SLOTS, "slot {slot}");
        let start = self.memory.as_ptr().wrapping_add(slot * self.stride);
        // SAFETY: mapped, and borrowed with the rings; the kernel does not store into slots.
        unsafe { std::slice::from_raw_parts_mut(start, self.stride) }
    }

    fn reclaim(&mut self) {
        while let Some(at) = self.socket.completed.pop() {
            // A frame's parts come back in order: with the last one, all have.
            let (slot, at) = (at as usize / self.stride, at as usize % self.stride);
            if at + CHUNK >= self.headers + self.len {
                self.idle.push(slot);
            }
        }
        self.socket.completed.release();
    }

    fn kick(&mut self) -> Result<()> {
        match self.socket.send() {
            Ok(()) | Err(Errno::AGAIN | Errno::NOBUFS | Errno::INTR) => {}
            Err(errno) => return Err(Error::Peer(format!("the rings cannot send: {errno}"))),
        }
        self.reclaim();
        Ok(())
    }
}

impl End for BareRings {
    fn send(&mut self, numbers: Range<u64>) -> Result<()> {
        let (headers, len, stride) = (self.headers, self.headers + self.len, self.stride);
        for number in numbers.clone() {
            let slot = loop {
                let parts = stride.div_ceil(CHUNK) as u32;
                match self.idle.pop() {
                    Some(slot) if self.socket.sending.has_room(parts) => break slot,
                    none => self.idle.extend(none),
                }
                self.kick()?;
                rest();
            };
            self.slot(slot)[headers..headers + NUMBER].copy_from_slice(&number.to_le_bytes());
            for at in (0..len).step_by(CHUNK) {
                let here = CHUNK.min(len - at);
                self.socket.sending.push(Part {
                    at: slot * stride + at,
                    len: here,
                    goes_on: at + here < len,
                });
            }
            if (number + 1 - numbers.start).is_multiple_of(BATCH) {
                self.kick()?;
            }
        }
        self.kick()
    }

    fn take(&mut self, arrivals: &mut Arrivals) -> Result<()> {
        let Self { socket, memory, headers, frame, frame_len, is_zero_copy, .. } = self;
        for _ in 0..BATCH {
            let Some(Part { at, len, goes_on }) = socket.received.pop().map(Part::from) else { break };
            assert!(at + len <= memory.size(), "{len} bytes at {at} of {}", memory.size());
            let start = memory.as_ptr().wrapping_add(at);
            // SAFETY: inside the mapping, and received: the kernel does not store there until it is put into the fill ring, below.
            let part = unsafe { std::slice::from_raw_parts(start, len) };
            let (is_first, is_alone) = (*frame_len == 0, *frame_len == 0 && !goes_on);
            *frame_len += len;
            if !is_alone && (is_first || arrivals.are_compared()) {
                frame.extend_from_slice(if arrivals.are_compared() {
                    part
                } else {
                    &part[..len.min(*headers + NUMBER)]
                });
            }
            if !goes_on {
                let seen = if is_alone { part } else { &frame[..] };
                arrivals.note(seen.get(*headers..).unwrap_or_default(), frame_len.saturating_sub(*headers));
                frame.clear();
                *frame_len = 0;
            }
            socket.fill.push((at / CHUNK * CHUNK) as u64);
        }
        socket.received.release();
        socket.fill.publish();
        if *is_zero_copy && socket.fill.needs_wakeup() {
            // What is wrong with the interface, the next call tells.
            let _ = socket.kick_fill();
        }
        Ok(())
    }
}

/// All of a queue's frames go to its socket.
fn program(sockets: &Sockets, has_frags: bool) -> genie_sys::Result<Program> {
    /// The kernel's number of `bpf_redirect_map`, and where its `struct xdp_md` has the queue.
    const REDIRECT: i32 = 51;
    const QUEUE: i16 = 16;
    let mut code = Assembly::default();
    code.load(Width::Word, 2, 1, QUEUE);
    code.load_sockets(1, sockets);
    code.set(3, Verdict::Pass as i32);
    code.call(REDIRECT);
    code.exit();
    Program::load(&code.finish(), has_frags)
}
