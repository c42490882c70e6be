//! AF_XDP for sending alone: a socket whose memory the kernel loads from, and never stores into.
//!
//! Invariants: nothing is ever in the ring for frames that will come, so the kernel has no place to store. The extents of a socket's memory
//! do not overlap: the first one is all of it, and others are split off.
//! Limits: bytes that are changed before the kernel has sent them are sent as they are then. A child made by fork has a copy of the memory,
//! and must not use the rings.

use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU8;

use rustix::net::xdp::XdpDesc;

use super::{CHUNK, Consumer, Lengths, Part, Places, Producer, Socket, failed};
use crate::mmap::{self, Access};
use crate::{Errno, Result, copying};

/// A socket that sends, and never receives.
#[derive(Debug)]
pub struct Sending(Socket);

/// Some of a sending socket's memory, which nobody else in this process has.
#[derive(Debug)]
pub struct Extent {
    memory: Arc<Memory>,
    at: usize,
    len: usize,
}

#[derive(Debug)]
struct Memory {
    start: *mut u8,
    len: usize,
}

// SAFETY: memory at an address that does not depend on the thread; its bytes are reached by extents, which do not overlap.
unsafe impl Send for Memory {}
// SAFETY: as for Send.
unsafe impl Sync for Memory {}

impl Sending {
    /// A socket with `len` bytes of memory, in whole chunks, and rings of `entries`, a power of two; and that memory.
    ///
    /// # Errors
    /// No right, or no memory.
    pub fn open(len: usize, entries: u32) -> Result<(Self, Extent)> {
        let len = len.next_multiple_of(CHUNK);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
        // SAFETY: the kernel chooses addresses where nothing is.
        let start = unsafe { mmap::map(mmap::ANYWHERE, len, Access::ReadWrite.bits(), flags, None) };
        let start = start.map_err(|errno| failed("mmap", len, errno))?.cast::<u8>();
        let memory = Memory { start, len };
        let lengths = Lengths { receiving: 1, sending: entries };
        // SAFETY: the memory is mapped, and nothing is put into the fill ring, which is private.
        let socket = unsafe { Socket::open(start.addr()..start.addr() + len, Places::Multiples, lengths) }?;
        Ok((Self(socket), Extent { memory: Arc::new(memory), at: 0, len }))
    }

    /// As [`Socket::bind`].
    ///
    /// # Errors
    /// As there.
    pub fn bind(&self, interface: u32, queue: u32, frags: bool) -> Result<()> {
        self.0.bind(interface, queue, frags)
    }

    /// As [`Socket::is_zero_copy`].
    ///
    /// # Errors
    /// As there.
    pub fn is_zero_copy(&self) -> Result<bool> {
        self.0.is_zero_copy()
    }

    /// Where parts of the memory are put that are to be sent.
    pub fn ring(&mut self) -> &mut Producer<XdpDesc> {
        &mut self.0.sending
    }

    /// Where parts come back.
    pub fn completed(&mut self) -> &mut Consumer<u64> {
        &mut self.0.completed
    }

    /// Has the kernel send what is in the ring, as far as the device has room now.
    ///
    /// # Errors
    /// ENETDOWN, ENXIO: the interface is down, or gone.
    pub fn send(&self) -> std::result::Result<(), Errno> {
        match self.0.send() {
            Err(Errno::AGAIN | Errno::NOBUFS | Errno::INTR) => Ok(()),
            sent => sent,
        }
    }
}

impl AsFd for Sending {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Extent {
    /// Where it begins, in the socket's memory.
    pub fn at(&self) -> usize {
        self.at
    }

    /// Whether another one is of the same socket's memory.
    pub fn is_beside(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.memory, &other.memory)
    }

    /// Splits its first `len` bytes off.
    ///
    /// # Panics
    /// When it is shorter.
    #[must_use]
    pub fn split_to(&mut self, len: usize) -> Self {
        assert!(len <= self.len, "{len} bytes of an extent of {}", self.len);
        let first = Self { memory: Arc::clone(&self.memory), at: self.at, len };
        self.at += len;
        self.len -= len;
        first
    }

    /// Stores bytes from `at` on, while the kernel may load them.
    ///
    /// # Panics
    /// When they do not fit.
    pub fn write(&mut self, at: usize, bytes: &[u8]) {
        let to = &raw mut self[at..][..bytes.len()];
        // SAFETY: a place of this extent, as long as `bytes`, which are elsewhere.
        unsafe { copying::copy_in(bytes, to.cast()) };
    }

    /// Its bytes, as they are stored while the kernel may load them.
    pub fn atomics(&mut self) -> &[AtomicU8] {
        let bytes = &raw mut self[..];
        // SAFETY: bytes and atomic bytes are laid out alike, and this extent is borrowed as a whole.
        unsafe { &*(bytes as *const [AtomicU8]) }
    }

    /// The parts of some of its bytes: each in one chunk. If `goes_on`, the frame does so after the last one.
    pub fn parts(&self, at: usize, len: usize, goes_on: bool) -> impl Iterator<Item = Part> + Clone + use<> {
        let (mut at, end) = (self.at + at, self.at + at + len);
        std::iter::from_fn(move || {
            let here = (CHUNK - at % CHUNK).min(end - at);
            let part = Part { at, len: here, goes_on: goes_on || at + here < end };
            at += here;
            (here > 0).then_some(part)
        })
    }

    fn start(&self) -> *mut u8 {
        self.memory.start.wrapping_add(self.at)
    }
}

impl Deref for Extent {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: mapped as long as the memory exists, and borrowed with the extent: no other extent has these bytes, and the kernel does not
        // store into them.
        unsafe { std::slice::from_raw_parts(self.start(), self.len) }
    }
}

impl DerefMut for Extent {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.start(), self.len) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: mapped by `Sending::open`; no extent is left.
        unsafe { libc::munmap(self.start.cast(), self.len) };
    }
}
