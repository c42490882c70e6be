//! Networks whose packets lie in buffers that the network allocates, over cards: adapters with memory of their own.
//!
//! Source: Murphy, Zeadally, Adams, *An Analysis of Process and Memory Models* (USENIX 1996).

use std::ffi::{c_int, c_void};
use std::os::fd::{FromRawFd, OwnedFd};

use genie_net::driver::Card;
use genie_net::driver::card::Device;
use genie_net::network::modules::Headers;
use genie_net::network::stream::Stream;
use genie_net::network::{Management, Network};
use genie_sys::socket::Socket;
use genie_sys::{Errno, Error, thread};

use crate::failure::{Failure, call};
use crate::given::{checked, duration, ensure_place, set, sized};
use crate::packet::{Owned, Packet};
use crate::process::process;
use crate::types::{io_network_t, io_packet_t};

/// A flag of a network without copies: a system call allocates each buffer that is sent, and one releases each that was received. Otherwise
/// memory does that is shared with the card.
pub const IO_BY_SYSTEM_CALLS: u32 = 1;
/// A flag of a network: what comes is summed, while it is copied where it is.
pub const IO_SUMMED: u32 = 2;
/// A flag of a network: the card brings back what is sent.
pub const IO_REFLECTED: u32 = 4;

/// In place of where a packet's checksum is to be stored: nowhere.
pub const IO_NO_CHECKSUM: i64 = -1;

/// What a network is to be. Set size to sizeof(struct io_network_options) and all else to 0, and then what you need.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct NetworkOptions {
    /// Bytes of this structure, by which later versions of the library know what it has.
    pub size: usize,
    /// How often data is copied between the program and the card, each way: 0, packets are the card's own buffers; 1; or 2, by way of message
    /// blocks.
    pub copies: u32,
    /// IO_BY_SYSTEM_CALLS, IO_SUMMED, IO_REFLECTED, or 0.
    pub flags: u32,
    /// With two copies: a header that is put in front of what is sent, and taken off what comes; what comes without it is dropped.
    pub header: *const c_void,
    /// Its length; 0 for none.
    pub header_length: usize,
}

/// What has become of a network's packets.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct NetworkCounters {
    /// Packets that were sent, with those that wait in a queue.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Packets that were received.
    pub received: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Bytes that were copied on the way out, headers included.
    pub copied_out: u64,
    /// Bytes that were copied on the way in.
    pub copied_in: u64,
    /// System calls for the allocation and the release of buffers.
    pub management_calls: u64,
    /// Packets that were dropped, since they were empty, or longer than 4,096 bytes with their header.
    pub unfit: u64,
}

/// Works as a card's device, for the host at the other end of a socket, until that has gone; so the device can be a process of its own. The
/// socket is one end of a socketpair of AF_UNIX and SOCK_SEQPACKET, and is the library's from then on.
///
/// Errors: EBADF, EINVAL (it is no such socket), EPROTO (the host has broken the rules), EPIPE (the host had gone), ENOMEM, EMFILE.
///
/// Pointers: none; the descriptor is used by nobody else any more, also where the call fails.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn io_card_serve(host: c_int) -> c_int {
    call(|| {
        // SAFETY: the caller gives the descriptor away.
        let socket = unsafe { socket(host) }?;
        Device::attach(socket).and_then(Device::run).map(|()| 0).map_err(|error| system(&error))
    })
}

/// Opens a network over a card. Its device is at the other end of a socket, in io_card_serve; or with -1, in a thread of this process.
/// The socket is the library's from then on, also where the call fails. Close the network by io_network_close.
///
/// Errors: EBADF, EINVAL (the descriptor is no such socket; options that are wrong; or networkp is NULL), EFAULT (there is no header),
/// ETIMEDOUT (there is no device, after 10 s), EPROTO (what is there is none), ENODEV, EAGAIN, ENOMEM, EMFILE.
///
/// Pointers: options points to a structure of options->size bytes, with a header of its length or NULL; networkp is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn io_network_open(
    device: c_int,
    options: *const NetworkOptions,
    networkp: *mut io_network_t,
) -> c_int {
    call(|| {
        // SAFETY: the caller gives the descriptor away.
        let host = (device != -1).then(|| unsafe { socket(device) }).transpose()?;
        ensure_place(networkp)?;
        // SAFETY: the caller vouches for the options.
        let wanted = unsafe { sized::<NetworkOptions>(options, size_of::<NetworkOptions>()) }?;
        let (known, copies) = (IO_BY_SYSTEM_CALLS | IO_SUMMED | IO_REFLECTED, wanted.copies);
        if wanted.flags & !known != 0 || (wanted.flags & IO_BY_SYSTEM_CALLS != 0 && copies > 0) {
            return Err(Failure::misuse(format!(
                "there are no flags {:#x} of a network with {copies} copies",
                wanted.flags
            )));
        }
        if copies > 2 || (wanted.header_length > 0 && copies < 2) {
            let sentence = "a network has 0 copies, 1, or 2, and with 2 it may have a header";
            return Err(Failure::misuse(sentence));
        }
        let header = checked(wanted.header.cast_mut(), wanted.header_length)?;
        // SAFETY: the caller vouches for the header, which is copied.
        let stream = match unsafe { header.read() } {
            [] => Stream::new(),
            header => Stream::new().push(Headers::new(header)),
        };
        let host = host.map_or_else(own_device, Ok)?;
        let card = Card::open(host).map_err(|error| system(&error))?;
        if wanted.flags & IO_REFLECTED != 0 {
            card.control().reflect().map_err(|error| system(&error))?;
        }
        let management = match wanted.flags & IO_BY_SYSTEM_CALLS {
            0 => Management::SharedRing,
            _ => Management::SystemCall,
        };
        let network = match copies {
            0 => Network::no_copy(card, management),
            1 => Network::one_copy(card),
            _ => Network::two_copies(card, stream),
        };
        let network = network.map_err(|error| system(&error))?;
        network.set_summing(wanted.flags & IO_SUMMED != 0).map_err(failed)?;
        // SAFETY: the caller vouches for the pointer.
        unsafe { set(networkp, process().networks.add(network)) };
        Ok(0)
    })
}

/// Closes a network. Packets that the program still has stay good to be read and freed; its card ends with the last of them.
///
/// Errors: EBADF (there is no such network, or it was closed before), ECHILD.
#[unsafe(no_mangle)]
pub extern "C" fn io_network_close(network: io_network_t) -> c_int {
    call(|| process().networks.remove(network).map(|_closed| 0))
}

/// Allocates a packet of length bytes, 1 to 4,096, which are whatever they are. The program fills them where *packetp says that they
/// are, and then sends the packet or frees it. A network has 128 packets to be sent.
///
/// Errors: EAGAIN (all of the network's packets are in use: see io_network_wait), EBADF, ECHILD, EINVAL (there is no such length; or packetp is
/// NULL), ENODEV (the device has gone), EPROTO (it breaks the rules).
///
/// Pointers: packetp is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn io_network_allocate(
    network: io_network_t,
    length: usize,
    packetp: *mut Packet,
) -> c_int {
    call(|| {
        ensure_place(packetp)?;
        let allocated = named(network)?.allocate(length).map_err(failed)?;
        let owned = Owned::new(allocated.ok_or_else(|| failed(Errno::AGAIN))?);
        // SAFETY: the caller vouches for the pointer.
        unsafe { set(packetp, owned.listed(0)) };
        Ok(0)
    })
}

/// Sends a packet, which is the network's then: its number and its bytes are of no use to the program. At checksum_at, an even place, its
/// Internet checksum is stored in two bytes, which count as zeros, while it is copied where it is; IO_NO_CHECKSUM stores none.
///
/// A packet that the network cannot send from where it lies is copied once more: another network's, or one that a network without copies has
/// received. With two copies, a packet that finds no room in the card waits in a queue, and goes on when the program sends, receives,
/// waits or flushes; a network that is closed loses it.
///
/// Errors: EAGAIN (there is no room: see io_network_wait), EBADF (there is no such network or packet, or it was sent or freed before), ECHILD,
/// EINVAL (there are no two bytes at checksum_at), ENODEV, EPROTO. The packet is still the program's.
#[unsafe(no_mangle)]
pub extern "C" fn io_network_send(network: io_network_t, packet: io_packet_t, checksum_at: i64) -> c_int {
    call(|| {
        let network = named(network)?;
        let Owned { packet: mut sent, shown } = process().packets.remove(packet)?;
        let at = (checksum_at != IO_NO_CHECKSUM).then(|| usize::try_from(checksum_at).unwrap_or(usize::MAX));
        let (sent, errno) = match sent.set_checksum_at(at) {
            Err(errno) => (sent, errno),
            Ok(()) => match network.send(sent) {
                Ok(()) => return Ok(0),
                Err(unsent) => (unsent.packet, unsent.errno),
            },
        };
        process().packets.restore(packet, Owned { packet: sent, shown });
        Err(failed(errno))
    })
}

/// Receives the next packet, and waits for one at most timeout nanoseconds, or with IO_FOREVER as long as it takes. The program reads it where
/// *packetp says that it is, and frees it by io_packet_free, or sends it. A program that keeps 128 packets receives no more.
///
/// Errors: EAGAIN (none came in time), EBADF, ECHILD, EINVAL (packetp is NULL), ENODEV (the device has gone), EPROTO (it breaks the rules).
///
/// Pointers: packetp is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn io_network_receive(
    network: io_network_t,
    timeout: i64,
    packetp: *mut Packet,
) -> c_int {
    call(|| {
        ensure_place(packetp)?;
        let network = named(network)?;
        let received = network.receive_timeout(duration(timeout)).map_err(failed)?;
        let received = received.ok_or_else(|| failed(Errno::AGAIN))?;
        let checksum = if network.is_summing().map_err(failed)? { received.checksum() } else { 0 };
        // SAFETY: the caller vouches for the pointer.
        unsafe { set(packetp, Owned::new(received).listed(checksum)) };
        Ok(0)
    })
}

/// Waits until the card has all that was sent, at most timeout nanoseconds, or IO_FOREVER. With two copies, what finds no room in the card
/// waits in a queue, and a network that is closed loses its queue; with fewer copies nothing waits.
///
/// Errors: ETIMEDOUT (some still waits), EBADF (no such network), ENODEV, EPROTO (the card is gone), ECHILD.
///
/// Pointers: none.
#[unsafe(no_mangle)]
pub extern "C" fn io_network_flush(network: io_network_t, timeout: i64) -> c_int {
    call(|| match named(network)?.flush(duration(timeout)).map_err(failed)? {
        true => Ok(0),
        false => Err(Failure::new(libc::ETIMEDOUT, "packets still wait for room in the card".to_owned())),
    })
}

/// Waits until a packet may have come, or there may be room, at most timeout nanoseconds, or with IO_FOREVER as long as it takes. It is for a
/// thread that has just found neither, and may return sooner.
///
/// Errors: EBADF, ECHILD.
#[unsafe(no_mangle)]
pub extern "C" fn io_network_wait(network: io_network_t, timeout: i64) -> c_int {
    call(|| named(network)?.wait(duration(timeout)).map(|()| 0).map_err(failed))
}

/// Frees a packet that was allocated or received. Its bytes may not be used any more.
///
/// Errors: EBADF (there is no such packet, or it was sent or freed before), ECHILD.
#[unsafe(no_mangle)]
pub extern "C" fn io_packet_free(packet: io_packet_t) -> c_int {
    call(|| process().packets.remove(packet).map(|_freed| 0))
}

/// Says what has become of a network's packets so far.
///
/// Errors: EBADF, ECHILD, EINVAL (countersp is NULL).
///
/// Pointers: countersp is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn io_network_count(network: io_network_t, countersp: *mut NetworkCounters) -> c_int {
    call(|| {
        ensure_place(countersp)?;
        let counters = named(network)?.counters().map_err(failed)?;
        let shown = NetworkCounters {
            sent: counters.sent,
            sent_bytes: counters.sent_bytes,
            received: counters.received,
            received_bytes: counters.received_bytes,
            copied_out: counters.copied_out,
            copied_in: counters.copied_in,
            management_calls: counters.management_calls,
            unfit: counters.unfit,
        };
        // SAFETY: the caller vouches for the pointer.
        unsafe { set(countersp, shown) };
        Ok(0)
    })
}

/// The network of this number, which stays for the time of a call although another thread closes it.
fn named(network: io_network_t) -> Result<Network, Failure> {
    process().networks.with(network, |network| Ok(network.clone()))
}

/// A descriptor that the caller gives away, if it is a socket of the right kind.
///
/// # Safety
/// Nobody else uses the descriptor.
unsafe fn socket(descriptor: c_int) -> Result<Socket, Failure> {
    // SAFETY: asks about a number.
    if unsafe { libc::fcntl(descriptor, libc::F_GETFD) } < 0 {
        return Err(Failure::new(libc::EBADF, format!("there is no descriptor {descriptor}")));
    }
    // SAFETY: it is open, and the caller has given it away.
    let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
    Socket::try_from_descriptor(descriptor).map_err(|error| system(&error))
}

/// Starts a device in a thread, which ends with its host; returns the host's socket.
fn own_device() -> Result<Socket, Failure> {
    let started = Socket::pair().and_then(|(ours, theirs)| {
        let device = Device::attach(theirs)?;
        // A device that fails is gone for its host, which says so.
        thread::spawn("genie-card", || drop(device.run())).map(|_goes_on| ours)
    });
    started.map_err(|error| system(&error))
}

fn system(error: &Error) -> Failure {
    Failure::new(error.errno.raw_os_error(), error.to_string())
}

/// Why a network has failed.
fn failed(errno: Errno) -> Failure {
    let (code, sentence) = match errno {
        Errno::AGAIN => {
            (errno, "no packet has come, or there is no room: free packets, or wait by io_network_wait")
        }
        Errno::MSGSIZE => (Errno::INVAL, "a packet has 1 to 4,096 bytes"),
        Errno::INVAL => (errno, "a checksum has two bytes of the packet, at an even place"),
        Errno::NODEV => (errno, "the card's device has gone: close the network, and open another one"),
        Errno::PROTO => {
            (errno, "the card's device breaks the rules: close the network, and open another one")
        }
        Errno::CHILD => (errno, "the network is the parent process's: open one after fork"),
        _ => (errno, "the kernel has refused what the network needs"),
    };
    Failure::new(code.raw_os_error(), sentence)
}
