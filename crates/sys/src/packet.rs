//! Packet sockets: rings of frames that the process shares with the kernel, for one interface.
//!
//! Why: where AF_XDP is refused, a program still gets whole frames from an interface, and sends such, without a system call for each frame.
//! How: one socket has a ring for frames that come and one for frames that go. Each slot holds a frame, and begins with a status word that
//! says whose the slot is. Frames are those of TPACKET_V2: the kernel hands each over as it comes. TPACKET_V3 hands over blocks of frames,
//! when one is full or its time is over, which is a millisecond or more, so that a lone frame would wait that long.
//! A [`Filter`] lets through what the owner wants. The kernel's own stack has these frames as well: [`Claim`] keeps it from answering them.
//! Frames that go bypass the queueing discipline, and taps of other programs.
//! Trust: the other side is the kernel. It loads and stores a slot only while the status says that the slot is the kernel's. Lengths in a
//! slot are read once, and checked.
//! Limits: frames of up to 65,550 bytes. A ring has 64 to 1,024 slots, and 8 MiB where these are long. What comes while it is full is
//! dropped and counted.
#![allow(
    unsafe_code,
    reason = "makes slices of slots of mapped rings, each while its status says that it is the process's; calls setsockopt, ioctl"
)]

use std::cell::Cell;
use std::ffi::c_int;
use std::mem::{offset_of, size_of, zeroed};
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice, sockopt};

use crate::error::{DRIVERS_NEED, last_errno};
use crate::fork::Maker;
use crate::mmap::Mapping;
use crate::unshared::Unshared;
use crate::{Errno, Error};

mod filter;

pub use filter::Filter;

/// What an Ethernet puts before a packet: two stations, a type, and perhaps the tag of a virtual network.
const LINK_HEADER: usize = 18;
/// What a slot has before its frame at most.
const BEFORE: usize = 128;
const SLOT_LEAST: usize = 2048;
const BLOCK_LEAST: usize = 64 << 10;
const RING: usize = 8 << 20;
const SLOTS: std::ops::RangeInclusive<usize> = 64..=1024;
/// A header of virtio's, which a slot has right before its frame: it tells whether a frame is yet to be cut. Zeros ask for nothing.
const OFFLOADS: usize = 10;
/// Where in it the kind of segmentation stands.
const SEGMENTATION: usize = 1;
/// Where in a slot the kernel looks for what is to be sent.
const SENT_AT: usize = libc::TPACKET2_HDRLEN - size_of::<libc::sockaddr_ll>();

/// A frame that has come.
#[derive(Debug, Clone, Copy)]
pub struct Came<'f> {
    /// Its bytes.
    pub bytes: &'f [u8],
    /// Whether its sender's kernel may have left the transport checksum to a device that there was not.
    pub is_unsummed: bool,
    /// Whether these are not a frame's bytes: it was cut off, or is several frames that its sender's kernel has left to be cut apart.
    pub is_unfit: bool,
}

/// A packet socket that is bound to an interface.
#[derive(Debug)]
pub struct Packets {
    coming: Ring,
    going: Ring,
    mapping: Mapping,
    frame_most: usize,
    dropped: Cell<u64>,
    _unshared: Option<Unshared>,
    socket: OwnedFd,
    maker: Maker,
}

/// Slots that both sides go through in the same order.
#[derive(Debug, Clone, Copy)]
struct Ring {
    /// Where in the mapping it begins.
    start: usize,
    slot: usize,
    slots: usize,
    next: usize,
}

impl Packets {
    /// Opens a socket that sends by the interface with this name, number and MTU, and gets nothing until it has
    /// [a filter](Packets::filter).
    ///
    /// # Errors
    /// EPERM: the process lacks CAP_NET_RAW. ENETDOWN: the interface is down. ENODEV: it has gone. EPROTONOSUPPORT: it has no Ethernet's
    /// frames. ENOMEM: there is no memory for the rings.
    pub fn open(interface: &str, index: u32, mtu: usize) -> crate::Result<Self> {
        let failed = |call, errno| Error::new(call, format!("a packet socket at {interface}"), errno);
        let kind = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::PACKET, SocketType::RAW, kind, None)
            .map_err(|errno| failed("socket", errno).with_remedy(DRIVERS_NEED))?;
        let set = |option, value: c_int| set(&socket, libc::SOL_PACKET, option, &value);
        let frame_most = mtu + LINK_HEADER;
        let ring = Ring::for_frames(frame_most);
        let setup = || {
            set(libc::PACKET_VERSION, libc::tpacket_versions::TPACKET_V2 as c_int)?;
            set(libc::PACKET_VNET_HDR, 1)?;
            set(libc::PACKET_IGNORE_OUTGOING, 1)?;
            set(libc::PACKET_QDISC_BYPASS, 1)?;
            // A frame that the interface does not take any more is skipped, rather than in the way of the next ones.
            set(libc::PACKET_LOSS, 1)?;
            Filter::none().attach(&socket)?;
            let request = ring.request();
            for option in [libc::PACKET_RX_RING, libc::PACKET_TX_RING] {
                self::set(&socket, libc::SOL_PACKET, option, &request)?;
            }
            let most = ring.len().min(c_int::MAX as usize / 2);
            // Beyond the limit for all only who administers the network may go.
            sockopt::set_socket_send_buffer_size_force(&socket, most)
                .or_else(|_| sockopt::set_socket_send_buffer_size(&socket, most))
        };
        setup().map_err(|errno| failed("setsockopt", errno))?;
        let mapping =
            Mapping::new(socket.as_fd(), 0, 2 * ring.len()).map_err(|errno| failed("mmap", errno))?;
        bind(&socket, index).map_err(|errno| failed("bind", errno))?;
        sockopt::socket_error(&socket)
            .and_then(|error| error)
            .map_err(|errno| failed("bind", errno).with_remedy("bring it up: `ip link set NAME up`"))?;
        let address = address(&socket).map_err(|errno| failed("getsockname", errno))?;
        if !matches!(address.sll_hatype, libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK) {
            return Err(failed("bind", Errno::PROTONOSUPPORT)
                .with_remedy("use an interface that has an Ethernet's frames"));
        }
        let going = Ring { start: ring.len(), ..ring };
        let (_unshared, maker) = (Unshared::new(&socket).ok(), Maker::this_process());
        Ok(Self { coming: ring, going, mapping, frame_most, dropped: Cell::new(0), _unshared, socket, maker })
    }

    /// Has the frames come that pass this filter, and no others, from now on.
    ///
    /// # Errors
    /// EINVAL: the filter is too long.
    pub fn filter(&self, filter: &Filter) -> Result<(), Errno> {
        self.own()?;
        filter.attach(&self.socket)
    }

    /// Shows the next frame that has come to `see`, and then gives its memory back; false if none has.
    ///
    /// # Errors
    /// EBADF: a child made by fork has this from its parent.
    #[inline]
    pub fn take(&mut self, see: impl FnOnce(Came<'_>)) -> Result<bool, Errno> {
        self.own()?;
        let slot = self.coming.slot(&self.mapping);
        // Acquire: pairs with the kernel's barrier between the frame and the status.
        let status = slot.status().load(Ordering::Acquire);
        if status & libc::TP_STATUS_USER == 0 {
            return Ok(false);
        }
        see(slot.came(status));
        // Release: the kernel, which reads the status before it stores a frame, stores none before these loads.
        slot.status().store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.coming.advance();
        Ok(true)
    }

    /// Whether a frame has come.
    #[inline]
    pub fn has_frames(&self) -> bool {
        let status = || self.coming.slot(&self.mapping).status().load(Ordering::Relaxed);
        self.maker.is_this_process() && status() & libc::TP_STATUS_USER != 0
    }

    /// Has `fill` store a frame of `len` bytes, which [`Packets::send`] sends; false if the ring is full.
    ///
    /// # Errors
    /// EMSGSIZE: the interface takes no frames of that length. EBADF: a child made by fork has this from its parent.
    #[inline]
    pub fn put(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> Result<bool, Errno> {
        self.own()?;
        if len > self.frame_most {
            return Err(Errno::MSGSIZE);
        }
        if !self.has_room()? {
            return Ok(false);
        }
        let slot = self.going.slot(&self.mapping);
        slot.fill(len, fill);
        // Release: pairs with the kernel's barrier between the status and the frame.
        slot.status().store(libc::TP_STATUS_SEND_REQUEST, Ordering::Release);
        self.going.advance();
        Ok(true)
    }

    /// Whether there is room for a frame.
    ///
    /// # Errors
    /// EBADF: a child made by fork has this from its parent.
    #[inline]
    pub fn has_room(&self) -> Result<bool, Errno> {
        self.own()?;
        let busy = libc::TP_STATUS_SEND_REQUEST | libc::TP_STATUS_SENDING;
        // Acquire: pairs with the kernel's barrier before the status; it has read the frame that was here.
        Ok(self.going.slot(&self.mapping).status().load(Ordering::Acquire) & busy == 0)
    }

    /// Has the kernel send what was put.
    ///
    /// # Errors
    /// EAGAIN, ENOBUFS: the interface takes no more at present; the rest is sent by the next call. ENETDOWN, ENXIO: it is down, or has gone.
    pub fn send(&self) -> Result<(), Errno> {
        self.own()?;
        // SAFETY: no bytes but those in the ring.
        let sent = unsafe { libc::send(self.socket.as_raw_fd(), std::ptr::null(), 0, libc::MSG_DONTWAIT) };
        done(sent as c_int)
    }

    /// Takes back what was put and not sent: it will not be. To be called when [`Packets::send`] has failed.
    pub fn take_back(&mut self) {
        loop {
            let last = (self.going.next + self.going.slots - 1) % self.going.slots;
            let before = Ring { next: last, ..self.going };
            let status = before.slot(&self.mapping).status();
            if self.own().is_err() || status.load(Ordering::Acquire) != libc::TP_STATUS_SEND_REQUEST {
                return;
            }
            // The kernel, which looks at slots in a call alone, waits at the first one of these, where the next frame will be.
            status.store(libc::TP_STATUS_AVAILABLE, Ordering::Relaxed);
            self.going = before;
        }
    }

    /// Whether the interface has a link, as far as the kernel tells.
    ///
    /// # Cost
    /// Two system calls.
    #[doc(alias("SIOCGIFFLAGS", "IFF_RUNNING"))]
    pub fn has_link(&self) -> bool {
        let name = address(&self.socket)
            .and_then(|address| netdevice::index_to_name(&self.socket, address.sll_ifindex as u32));
        // SAFETY: all fields may be zero.
        let mut request: libc::ifreq = unsafe { zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(name.unwrap_or_default().bytes()) {
            *to = from as libc::c_char;
        }
        // SAFETY: the kernel loads the name, which ends by a zero, and stores flags.
        let asked = unsafe { libc::ioctl(self.socket.as_raw_fd(), libc::SIOCGIFFLAGS, &raw mut request) };
        // SAFETY: all of its fields are numbers, and any number is one of these.
        done(asked).is_err() || c_int::from(unsafe { request.ifr_ifru.ifru_flags }) & libc::IFF_RUNNING != 0
    }

    /// Finds out whether the interface is still there, by two system calls: without frames, nothing else tells.
    ///
    /// # Errors
    /// ENETDOWN, once: it has been brought down. ENXIO: it has gone.
    pub fn verify(&self) -> Result<(), Errno> {
        self.own()?;
        let address = address(&self.socket)?;
        if address.sll_ifindex <= 0 { Err(Errno::NXIO) } else { sockopt::socket_error(&self.socket)? }
    }

    /// How many frames were dropped since there was no room in the ring.
    ///
    /// # Cost
    /// A system call.
    pub fn dropped(&self) -> u64 {
        // SAFETY: zeros are numbers.
        let mut counted: libc::tpacket_stats = unsafe { zeroed() };
        let mut len = size_of::<libc::tpacket_stats>() as libc::socklen_t;
        let (socket, into) = (self.socket.as_raw_fd(), (&raw mut counted).cast());
        // SAFETY: the kernel stores at most `len` bytes.
        if unsafe { libc::getsockopt(socket, libc::SOL_PACKET, libc::PACKET_STATISTICS, into, &raw mut len) }
            == 0
        {
            // The kernel begins anew with each call.
            self.dropped.set(self.dropped.get() + u64::from(counted.tp_drops));
        }
        self.dropped.get()
    }

    fn own(&self) -> Result<(), Errno> {
        if self.maker.is_this_process() { Ok(()) } else { Err(Errno::BADF) }
    }
}

impl AsFd for Packets {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A slot of a ring.
#[derive(Clone, Copy)]
struct Slot<'m> {
    start: *mut u8,
    len: usize,
    _mapping: &'m Mapping,
}

impl Ring {
    fn for_frames(most: usize) -> Self {
        let slot = (most + BEFORE).next_power_of_two().max(SLOT_LEAST);
        Self { start: 0, slot, slots: (RING / slot).clamp(*SLOTS.start(), *SLOTS.end()), next: 0 }
    }

    fn len(&self) -> usize {
        self.slot * self.slots
    }

    fn request(&self) -> libc::tpacket_req {
        // All are powers of two: slots lie side by side.
        let block = self.slot.max(BLOCK_LEAST);
        libc::tpacket_req {
            tp_block_size: block as u32,
            tp_block_nr: (self.len() / block) as u32,
            tp_frame_size: self.slot as u32,
            tp_frame_nr: self.slots as u32,
        }
    }

    fn slot<'m>(&self, mapping: &'m Mapping) -> Slot<'m> {
        let at = self.start + self.next * self.slot;
        Slot { start: mapping.at(at, self.slot).cast(), len: self.slot, _mapping: mapping }
    }

    fn advance(&mut self) {
        self.next = (self.next + 1) % self.slots;
    }
}

impl<'m> Slot<'m> {
    fn status(self) -> &'m AtomicU32 {
        // SAFETY: mapped for 'm, aligned, since slots are of powers of two, and nobody uses the word but by atomics, and the kernel.
        unsafe { &*self.start.cast() }
    }

    /// A word of the header, which belongs to the process with the slot.
    fn word<T>(self, at: usize) -> T {
        // SAFETY: within the header, and so within the slot. The status that the caller has read says that the kernel stores nothing here.
        unsafe { self.start.add(at).cast::<T>().read_unaligned() }
    }

    /// The frame in it. Its status says that it is the process's.
    fn came(self, status: u32) -> Came<'m> {
        let len: u32 = self.word(offset_of!(libc::tpacket2_hdr, tp_len));
        let stored: u32 = self.word(offset_of!(libc::tpacket2_hdr, tp_snaplen));
        let at = usize::from(self.word::<u16>(offset_of!(libc::tpacket2_hdr, tp_mac)));
        let end = at.saturating_add(stored as usize);
        let is_there = at >= size_of::<libc::tpacket2_hdr>() + OFFLOADS && end <= self.len;
        let (at, end) = if is_there { (at, end) } else { (SENT_AT + OFFLOADS, SENT_AT + OFFLOADS) };
        let segmentation: u8 = self.word(at - OFFLOADS + SEGMENTATION);
        // SAFETY: within the slot, as was checked. The status says that the kernel stores nothing in it until the process, which does so
        // behind this borrow of the ring, gives the slot back; no other process has the memory mapped.
        let bytes = unsafe { std::slice::from_raw_parts(self.start.add(at), end - at) };
        let is_unsummed = status & libc::TP_STATUS_CSUMNOTREADY != 0;
        Came { bytes, is_unsummed, is_unfit: !is_there || stored < len || segmentation != 0 }
    }

    /// Has `fill` store a frame into it. Its status says that it is the process's, and a frame of that length fits.
    fn fill(self, len: usize, fill: impl FnOnce(&mut [u8])) {
        let whole = (OFFLOADS + len) as u32;
        // SAFETY: within the slot, which is longer than any frame and what is before it; the kernel neither loads nor stores here until the
        // status is changed, and the caller has borrowed the ring for itself alone.
        unsafe {
            self.start.add(offset_of!(libc::tpacket2_hdr, tp_len)).cast::<u32>().write(whole);
            fill(std::slice::from_raw_parts_mut(self.start.add(SENT_AT + OFFLOADS), len));
        }
    }
}

/// Holds a port of the kernel's UDP, where nothing is received, so that the kernel's stack does not answer datagrams that a packet socket
/// gets by saying that nobody has the port.
#[derive(Debug)]
pub struct Claim {
    _socket: OwnedFd,
}

impl Claim {
    /// Claims `port` of `host`, by an ordinary socket that drops all it gets. It needs no rights beyond those to bind the port. The host's
    /// address need not be this machine's yet; `scope` is the interface's number.
    ///
    /// # Errors
    /// EADDRINUSE: somebody has the port. EACCES: it is privileged.
    pub fn new(host: IpAddr, port: u16, scope: u32) -> Result<Self, Errno> {
        let (family, level, free_bind) = match host {
            IpAddr::V4(_) => (AddressFamily::INET, libc::SOL_IP, libc::IP_FREEBIND),
            IpAddr::V6(_) => (AddressFamily::INET6, libc::SOL_IPV6, libc::IPV6_FREEBIND),
        };
        let socket = rustix::net::socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        Filter::none().attach(&socket)?;
        set(&socket, level, free_bind, &1)?;
        let address = match host {
            IpAddr::V6(host) if host.is_unicast_link_local() => {
                SocketAddrV6::new(host, port, 0, scope).into()
            }
            host => SocketAddr::new(host, port),
        };
        rustix::net::bind(&socket, &address)?;
        Ok(Self { _socket: socket })
    }
}

/// Opens a packet socket without rings, where a system call takes or sends a frame. It gets what comes by the interface with this name and
/// number. When that goes, its calls fail: ENETDOWN, once, and then ENXIO.
///
/// # Errors
/// As [`Packets::open`].
pub fn without_rings(interface: &str, index: u32) -> crate::Result<OwnedFd> {
    let failed = |call, errno| Error::new(call, format!("a packet socket at {interface}"), errno);
    let socket = rustix::net::socket_with(AddressFamily::PACKET, SocketType::RAW, SocketFlags::CLOEXEC, None)
        .map_err(|errno| failed("socket", errno).with_remedy(DRIVERS_NEED))?;
    set(&socket, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &1)
        .and_then(|()| bind(&socket, index))
        .map_err(|errno| failed("bind", errno))?;
    Ok(socket)
}

/// Binds a packet socket, which gets frames of all protocols from now on.
fn bind(socket: &OwnedFd, index: u32) -> Result<(), Errno> {
    // SAFETY: zeros are an address.
    let mut address: libc::sockaddr_ll = unsafe { zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = index as i32;
    let len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the kernel reads the address.
    done(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) })
}

/// To what a packet socket is bound.
fn address(socket: &OwnedFd) -> Result<libc::sockaddr_ll, Errno> {
    // SAFETY: zeros are an address.
    let mut address: libc::sockaddr_ll = unsafe { zeroed() };
    let mut len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the kernel stores at most `len` bytes.
    done(unsafe { libc::getsockname(socket.as_raw_fd(), (&raw mut address).cast(), &raw mut len) })?;
    Ok(address)
}

/// Sets an option to a value, which the kernel reads.
fn set<T>(socket: &OwnedFd, level: c_int, option: c_int, value: &T) -> Result<(), Errno> {
    let (value, len) = ((&raw const *value).cast(), size_of::<T>() as libc::socklen_t);
    // SAFETY: the kernel reads `len` bytes, which are there.
    done(unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, value, len) })
}

/// What a call has returned.
fn done(returned: c_int) -> Result<(), Errno> {
    if returned < 0 { Err(last_errno()) } else { Ok(()) }
}
