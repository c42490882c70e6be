//! AF_XDP: sockets whose frames are in memory of this process, and the four rings that each shares with the kernel.
//!
//! Why: a frame is stored where this process has said, and no system call tells of it.
//! How: memory is divided into chunks of one length. This process puts chunks into the *fill* ring; the kernel stores a frame into one, or
//! several, and says so in the ring of what was *received*. What is put into the ring for *sending* comes back by the ring of what was
//! *completed*.
//! Invariants: of each ring one side produces, and one consumes. An index is masked by the ring's length, so no index leads out of it.
//! Trust: the kernel is the peer, and is trusted with the memory; but what it says of a frame is checked by whoever looks at the chunk.
//! Limits: a child made by fork has the same rings: it must not use them.
#![allow(
    unsafe_code,
    reason = "has the kernel store into memory that the socket's maker vouches for; loads and stores entries inside a mapped ring"
)]

mod sending;

use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::time::{Duration, Instant};

use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags as Flags, XDP_PGOFF_RX_RING, XDP_PGOFF_TX_RING,
    XDP_UMEM_PGOFF_COMPLETION_RING, XDP_UMEM_PGOFF_FILL_RING, XdpDesc, XdpDescOptions, XdpOptionsFlags,
    XdpRingOffset, XdpUmemReg, XdpUmemRegFlags,
};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, sockopt};

use crate::error::DRIVERS_NEED;
use crate::mmap::Mapping;
use crate::{Errno, Error, Result};

pub use sending::{Extent, Sending};

/// For how long the kernel may keep a queue after its socket was closed.
const UNBINDING: Duration = Duration::from_secs(2);

const LOCKED: &str = "raise the limit of locked memory: `ulimit -l`";

/// The length of chunks, the longest that the kernel takes: a part to be sent is in one.
pub const CHUNK: usize = 4096;
/// How many bytes of a chunk the kernel keeps free in front of what it stores there of a frame, for the frame's metadata.
pub const HEADROOM: usize = 256;

/// Some of a frame's bytes, or all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// Where they begin, in the registered memory.
    pub at: usize,
    /// How many they are.
    pub len: usize,
    /// Whether the frame goes on in the next part.
    pub goes_on: bool,
}

/// How many entries the rings have: each a power of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lengths {
    /// Those for receiving: fill and received.
    pub receiving: u32,
    /// Those for sending: sending and completed.
    pub sending: u32,
}

/// Where chunks begin in the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Places {
    /// At multiples of their length.
    Multiples,
    /// Anywhere. The kernel copies all frames then: a chunk may cross pages, and devices want contiguous memory.
    Any,
}

/// A socket, its rings, and the memory in which its frames are.
#[derive(Debug)]
pub struct Socket {
    /// Chunks for frames that will come.
    pub fill: Producer<u64>,
    /// Chunks whose bytes were sent.
    pub completed: Consumer<u64>,
    /// What is to be sent.
    pub sending: Producer<XdpDesc>,
    /// What has come.
    pub received: Consumer<XdpDesc>,
    descriptor: OwnedFd,
    places: Places,
}

impl Socket {
    /// A socket whose memory is at `memory`, in [chunks](CHUNK) that begin at such `places`.
    ///
    /// # Errors
    /// No right; ENOBUFS or EAGAIN: too little memory may be locked; EINVAL: the addresses are no whole pages.
    ///
    /// # Safety
    /// The memory is mapped and writable. While the socket exists, whoever puts a chunk's place into the fill ring has the chunk's bytes for
    /// the kernel alone, until the kernel gives it back as received: nobody has references to them. Only the process that has made the socket
    /// uses its rings.
    pub unsafe fn open(memory: Range<usize>, places: Places, lengths: Lengths) -> Result<Self> {
        let len = memory.len();
        let failed = |call| move |errno| failed(call, len, errno);
        let descriptor =
            rustix::net::socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None)
                .map_err(failed("socket"))?;
        let flags = match places {
            Places::Multiples => XdpUmemRegFlags::empty(),
            Places::Any => XdpUmemRegFlags::XDP_UMEM_UNALIGNED_CHUNK_FLAG,
        };
        let registered = XdpUmemReg {
            addr: memory.start as u64,
            len: len as u64,
            chunk_size: CHUNK as u32,
            headroom: 0,
            flags,
            tx_metadata_len: 0,
        };
        // The kernel pins the pages, and stores into chunks that it finds in the fill ring: the caller vouches for both.
        sockopt::set_xdp_umem_reg(&descriptor, registered).map_err(failed("setsockopt(XDP_UMEM_REG)"))?;
        let Lengths { receiving, sending } = lengths;
        let rings = || -> std::result::Result<_, Errno> {
            sockopt::set_xdp_umem_fill_ring_size(&descriptor, receiving)?;
            sockopt::set_xdp_umem_completion_ring_size(&descriptor, sending)?;
            sockopt::set_xdp_rx_ring_size(&descriptor, receiving)?;
            sockopt::set_xdp_tx_ring_size(&descriptor, sending)?;
            let offsets = sockopt::xdp_mmap_offsets(&descriptor)?;
            let fill = Ring::map(&descriptor, XDP_UMEM_PGOFF_FILL_RING, &offsets.fr, receiving)?;
            let completed = Ring::map(&descriptor, XDP_UMEM_PGOFF_COMPLETION_RING, &offsets.cr, sending)?;
            let sending = Ring::map(&descriptor, XDP_PGOFF_TX_RING, &offsets.tx, sending)?;
            let received = Ring::map(&descriptor, XDP_PGOFF_RX_RING, &offsets.rx, receiving)?;
            Ok((Producer(fill), Consumer(completed), Producer(sending), Consumer(received)))
        };
        let (fill, completed, sending, received) = rings().map_err(failed("mmap"))?;
        Ok(Self { fill, completed, sending, received, descriptor, places })
    }

    /// Binds it to a queue of an interface, without copies by the kernel where the device can; with `frags`, frames may be in several chunks.
    ///
    /// # Errors
    /// EBUSY: another socket has the queue; ENODEV, EINVAL: there is no such interface or queue.
    ///
    /// # Cost
    /// Where the queue's last socket was closed just now, 15 ms, and longer on a busy machine; two seconds at most.
    pub fn bind(&self, interface: u32, queue: u32, frags: bool) -> Result<()> {
        let frags = if frags { Flags::XDP_USE_SG } else { Flags::empty() };
        let bind = |flags| {
            let address = SocketAddrXdp::new(Flags::XDP_USE_NEED_WAKEUP | frags | flags, interface, queue);
            rustix::net::bind(&self.descriptor, &address)
        };
        let until = Instant::now() + UNBINDING;
        loop {
            let bound = match self.places {
                Places::Multiples => bind(Flags::empty()),
                Places::Any => Err(Errno::OPNOTSUPP),
            };
            let bound = bound.or_else(|errno| match errno {
                Errno::OPNOTSUPP => bind(Flags::XDP_COPY),
                errno => Err(errno),
            });
            match bound {
                Err(Errno::BUSY) if Instant::now() < until => std::thread::sleep(Duration::from_millis(5)),
                bound => {
                    return bound.map_err(|errno| {
                        let error =
                            Error::new("bind", format!("queue {queue} of interface {interface}"), errno);
                        match errno {
                            Errno::BUSY => error
                                .with_remedy("another AF_XDP socket has the queue; end what has opened it"),
                            _ => error,
                        }
                    });
                }
            }
        }
    }

    /// Whether frames go between the device and the memory without a copy of the kernel's.
    ///
    /// # Errors
    /// None is expected.
    pub fn is_zero_copy(&self) -> Result<bool> {
        let options = sockopt::xdp_options(&self.descriptor);
        let options =
            options.map_err(|errno| Error::new("getsockopt(XDP_OPTIONS)", "an AF_XDP socket", errno))?;
        Ok(options.contains(XdpOptionsFlags::XDP_OPTIONS_ZEROCOPY))
    }

    /// Shows the kernel what is in the ring for sending, and has it send that, as far as the device has room now.
    ///
    /// # Errors
    /// EAGAIN, ENOBUFS: some is still to be sent; ENETDOWN, ENXIO: the interface is down, or gone.
    pub fn send(&self) -> std::result::Result<(), Errno> {
        self.sending.publish();
        let mut left = self.sending.unconsumed();
        while left > 0 && self.sending.needs_wakeup() {
            // In copy mode, a call sends 32 parts at most.
            let kicked = rustix::net::send(&self.descriptor, &[], SendFlags::DONTWAIT);
            let before = std::mem::replace(&mut left, self.sending.unconsumed());
            match kicked {
                Ok(_) | Err(Errno::AGAIN | Errno::BUSY | Errno::NOBUFS | Errno::INTR) if left < before => {}
                Err(Errno::BUSY) => return Err(Errno::AGAIN),
                Err(errno) => return Err(errno),
                // A device has begun, and goes on by itself.
                Ok(_) => break,
            }
        }
        Ok(())
    }

    /// Has the kernel look into the fill ring.
    ///
    /// # Errors
    /// As [`Socket::send`].
    pub fn kick_fill(&self) -> std::result::Result<(), Errno> {
        rustix::net::recv(&self.descriptor, &mut [0; 0], rustix::net::RecvFlags::DONTWAIT).map(drop)
    }

    /// What has become of the interface, once after it has gone: ENETDOWN.
    ///
    /// # Errors
    /// That.
    pub fn check(&self) -> std::result::Result<(), Errno> {
        sockopt::socket_error(&self.descriptor)?
    }

    /// How many frames the kernel has dropped that came when there was no chunk for them, or no room in the ring, or that were too long.
    pub fn dropped(&self) -> u64 {
        // What came when the fill ring was empty is among the dropped.
        sockopt::xdp_statistics(&self.descriptor)
            .map_or(0, |all| all.rx_dropped + all.rx_ring_full.unwrap_or(0))
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl From<Part> for XdpDesc {
    fn from(part: Part) -> Self {
        let options = if part.goes_on { XdpDescOptions::XDP_PKT_CONTD } else { XdpDescOptions::empty() };
        Self { addr: part.at as u64, len: part.len as u32, options }
    }
}

impl From<XdpDesc> for Part {
    fn from(found: XdpDesc) -> Self {
        let goes_on = found.options.contains(XdpDescOptions::XDP_PKT_CONTD);
        // Where chunks begin anywhere, the kernel has the distance from there in the high bits.
        let at = (found.addr & ((1 << 48) - 1)) + (found.addr >> 48);
        Self { at: at as usize, len: found.len as usize, goes_on }
    }
}

/// Where this process puts entries for the kernel.
#[derive(Debug)]
pub struct Producer<T>(Ring<T>);

/// Where this process takes entries of the kernel's.
#[derive(Debug)]
pub struct Consumer<T>(Ring<T>);

#[derive(Debug)]
struct Ring<T> {
    mapping: Mapping,
    /// Where the indexes are, and the flags.
    producer: usize,
    consumer: usize,
    flags: usize,
    /// The first entry, of `len`, a power of two.
    entries: *mut T,
    len: u32,
    /// The index of this side's next entry, and the other side's as it was when this side looked last.
    own: u32,
    other: u32,
}

// SAFETY: the entries are in the mapping, which is Send; one thread at a time has the ring.
unsafe impl<T: Send> Send for Ring<T> {}

impl<T: Copy> Ring<T> {
    fn map(
        socket: &OwnedFd,
        which: u64,
        offsets: &XdpRingOffset,
        len: u32,
    ) -> std::result::Result<Self, Errno> {
        assert!(len.is_power_of_two(), "a ring of {len} entries");
        let (start, bytes) = (offsets.desc as usize, len as usize * size_of::<T>());
        let mapping = Mapping::new(socket.as_fd(), which, start + bytes)?;
        let entries = mapping.at(start, bytes).cast::<T>();
        assert!(entries.is_aligned(), "entries at {start} of a ring");
        let flags = offsets.flags.ok_or(Errno::NOSYS)? as usize;
        let (producer, consumer) = (offsets.producer as usize, offsets.consumer as usize);
        Ok(Self { mapping, producer, consumer, flags, entries, len, own: 0, other: 0 })
    }

    fn word(&self, at: usize) -> &AtomicU32 {
        &self.mapping.entries(at, 1)[0]
    }

    fn entry(&self) -> *mut T {
        self.entries.wrapping_add((self.own & (self.len - 1)) as usize)
    }
}

impl<T: Copy> Producer<T> {
    /// Whether there is room for `count` more entries.
    #[inline]
    pub fn has_room(&mut self, count: u32) -> bool {
        self.known_room() >= count || self.room() >= count
    }

    /// How many more entries there is room for.
    pub fn room(&mut self) -> u32 {
        // Pairs with the kernel's release of the entries that it has consumed.
        self.0.other = self.0.word(self.0.consumer).load(Ordering::Acquire);
        self.known_room()
    }

    /// The same, as this side has seen last.
    fn known_room(&self) -> u32 {
        self.0.len.saturating_sub(self.0.own.wrapping_sub(self.0.other))
    }

    /// Puts an entry into the ring; false if there is no room. The kernel sees it when it is [published](Producer::publish).
    #[inline]
    pub fn push(&mut self, entry: impl Into<T>) -> bool {
        let has_room = self.has_room(1);
        if has_room {
            // SAFETY: an entry of the ring, by the mask. The kernel, which has consumed what was there, looks at it when it is published.
            unsafe { self.0.entry().write(entry.into()) };
            self.0.own = self.0.own.wrapping_add(1);
        }
        has_room
    }

    /// Shows the kernel all entries.
    #[inline]
    pub fn publish(&self) {
        // Pairs with the kernel's acquire of the index.
        self.0.word(self.0.producer).store(self.0.own, Ordering::Release);
    }

    /// Whether the kernel has to be told that something was published.
    #[inline]
    pub fn needs_wakeup(&self) -> bool {
        // The kernel sets the flag, and looks for entries again: either it finds those, or this finds the flag.
        fence(Ordering::SeqCst);
        self.0.word(self.0.flags).load(Ordering::Relaxed) & 1 != 0
    }

    /// How many published entries the kernel has not consumed yet.
    pub fn unconsumed(&self) -> u32 {
        self.0.own.wrapping_sub(self.0.word(self.0.consumer).load(Ordering::Acquire))
    }
}

impl<T: Copy> Consumer<T> {
    /// Whether there is an entry.
    #[inline]
    pub fn has_next(&self) -> bool {
        let ring = &self.0;
        ring.own != ring.other || ring.word(ring.producer).load(Ordering::Relaxed) != ring.own
    }

    /// Takes the next entry. The kernel may use its place when it is [released](Consumer::release).
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        let ring = &mut self.0;
        if ring.own == ring.other {
            // Pairs with the kernel's release of the entries that it has produced.
            ring.other = ring.word(ring.producer).load(Ordering::Acquire);
            if ring.own == ring.other {
                return None;
            }
        }
        // SAFETY: an entry of the ring, by the mask, of plain numbers, which the kernel has produced and does not store into now.
        let entry = unsafe { ring.entry().read() };
        ring.own = ring.own.wrapping_add(1);
        Some(entry)
    }

    /// Gives the kernel the places of all entries that were taken.
    #[inline]
    pub fn release(&self) {
        // Pairs with the kernel's acquire of the index.
        self.0.word(self.0.consumer).store(self.0.own, Ordering::Release);
    }
}

fn failed(call: &'static str, len: usize, errno: Errno) -> Error {
    let error = Error::new(call, format!("an AF_XDP socket with {len} bytes"), errno);
    match errno {
        Errno::PERM | Errno::ACCESS => error.with_remedy(DRIVERS_NEED),
        Errno::NOBUFS | Errno::AGAIN => error.with_remedy(LOCKED),
        Errno::AFNOSUPPORT => error.with_remedy("use a kernel built with CONFIG_XDP_SOCKETS"),
        _ => error,
    }
}
