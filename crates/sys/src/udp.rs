//! What the kernel's UDP sockets can do with many datagrams in one call.
//!
//! Why: a call for each datagram is most of what a short one costs. A program that compares itself with the kernel's sockets must use these
//! as they are fastest.
//! How: [`send_many`] and [`receive_many`] name each datagram to the kernel. With [`segments`], what is sent in one call is cut into datagrams by the kernel, or by the device; with [`merged`], datagrams of one length may
//! be received as one.
#![allow(
    unsafe_code,
    reason = "recvmmsg is given buffers that are borrowed for the call; setsockopt is given a number and its length"
)]

use std::io::IoSlice;
use std::mem::zeroed;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;

use rustix::net::{MMsgHdr, SendAncillaryBuffer, SendFlags, SocketAddrAny, sendmmsg};

use crate::Errno;
use crate::error::last_errno;

/// How many datagrams a call sends or receives at most.
pub const MANY: usize = 32;

/// Sends datagrams to a host, or to the socket's peer, [`MANY`] at most; returns how many were sent.
///
/// # Errors
/// As of sendmmsg(2), if none was sent.
///
/// # Panics
/// When there are more.
#[doc(alias = "sendmmsg")]
pub fn send_many(socket: impl AsFd, datagrams: &[&[u8]], to: Option<SocketAddr>) -> Result<usize, Errno> {
    let count = datagrams.len();
    assert!(count <= MANY, "{count} datagrams in a call");
    let pieces: [_; MANY] =
        std::array::from_fn(|at| [IoSlice::new(datagrams.get(at).copied().unwrap_or_default())]);
    let mut controls: [_; MANY] = std::array::from_fn(|_| SendAncillaryBuffer::default());
    let to = to.map(SocketAddrAny::from);
    let mut given = pieces.iter().zip(&mut controls);
    let mut headers: [_; MANY] = std::array::from_fn(|_| {
        let (pieces, control) = given.next().expect("as many as there are headers");
        match &to {
            Some(to) => MMsgHdr::new_with_addr(to, pieces, control),
            None => MMsgHdr::new(pieces, control),
        }
    });
    sendmmsg(socket, &mut headers[..count], SendFlags::empty())
}

/// Receives datagrams that have come, [`MANY`] at most, without waiting: each into the next `len` bytes of `bytes`, as far as there are any.
/// Their lengths go to `lens`; returns how many came.
///
/// # Errors
/// EAGAIN: none has come. As of recvmmsg(2).
#[doc(alias = "recvmmsg")]
pub fn receive_many(
    socket: impl AsFd,
    bytes: &mut [u8],
    len: usize,
    lens: &mut [usize; MANY],
) -> Result<usize, Errno> {
    // SAFETY: all fields of both may be zero.
    let (mut pieces, mut headers): ([libc::iovec; MANY], [libc::mmsghdr; MANY]) = unsafe { zeroed() };
    let mut count = 0;
    for ((piece, header), room) in pieces.iter_mut().zip(&mut headers).zip(bytes.chunks_exact_mut(len)) {
        *piece = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: len };
        (header.msg_hdr.msg_iov, header.msg_hdr.msg_iovlen) = (piece, 1);
        count += 1;
    }
    let descriptor = socket.as_fd().as_raw_fd();
    // SAFETY: each of the first `count` headers names a piece, and this a part of `bytes`, which is borrowed; none overlaps another one.
    let received = unsafe {
        libc::recvmmsg(descriptor, headers.as_mut_ptr(), count, libc::MSG_DONTWAIT as _, ptr::null_mut())
    };
    let received = usize::try_from(received).map_err(|_| last_errno())?;
    headers[..received].iter().zip(lens).for_each(|(header, len)| *len = header.msg_len as usize);
    Ok(received)
}

/// Has what is sent in one call cut into datagrams of `len` bytes, the last one of what is left.
///
/// # Errors
/// The kernel cannot.
#[doc(alias("UDP_SEGMENT", "GSO"))]
pub fn segments(socket: impl AsFd, len: u16) -> Result<(), Errno> {
    set(socket, libc::UDP_SEGMENT, len.into())
}

/// Allows datagrams of one length that came from one sender to be received in one call, one behind the other.
///
/// # Errors
/// The kernel cannot.
#[doc(alias("UDP_GRO", "GRO"))]
pub fn merged(socket: impl AsFd) -> Result<(), Errno> {
    set(socket, libc::UDP_GRO, 1)
}

fn set(socket: impl AsFd, option: i32, value: i32) -> Result<(), Errno> {
    let (descriptor, len) = (socket.as_fd().as_raw_fd(), size_of::<i32>() as u32);
    // SAFETY: the option's value is a number of this length, which outlives the call.
    match unsafe { libc::setsockopt(descriptor, libc::SOL_UDP, option, (&raw const value).cast(), len) } {
        0 => Ok(()),
        _ => Err(last_errno()),
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::time::Duration;

    use super::*;

    fn pair() -> [UdpSocket; 2] {
        let pair = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        pair[0].connect(pair[1].local_addr().unwrap()).unwrap();
        pair[1].set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        pair
    }

    #[test]
    fn many_datagrams_go_and_come_in_a_call_each_with_its_own_length() {
        let [near, far] = pair();
        let bytes: Vec<u8> = (0..30).collect();
        let datagrams: Vec<_> = bytes.chunks(10).collect();
        assert_eq!(send_many(&near, &datagrams, None), Ok(3));
        let other = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert_eq!(send_many(&other, &[&[7; 4]], Some(far.local_addr().unwrap())), Ok(1));
        let (mut came, mut lens) = ([0; 55], [0; MANY]);
        assert_eq!(receive_many(&far, &mut came, 11, &mut lens), Ok(4));
        assert_eq!(lens[..4], [10, 10, 10, 4]);
        for at in 0..3 {
            assert_eq!(came[at * 11..at * 11 + 10], bytes[at * 10..at * 10 + 10]);
        }
        assert_eq!(came[33..37], [7; 4]);
        assert_eq!(receive_many(&far, &mut came, 11, &mut lens), Err(Errno::AGAIN));
    }

    #[test]
    fn what_is_sent_in_a_call_is_cut_and_may_be_received_in_one() {
        let [near, far] = pair();
        segments(&near, 100).unwrap();
        let bytes: Vec<u8> = (0..250).collect();
        near.send(&bytes).unwrap();
        let mut came = [0; 300];
        assert_eq!([(); 3].map(|()| far.recv(&mut came).unwrap()), [100, 100, 50]);
        assert_eq!(came[..50], bytes[200..]);
        merged(&far).unwrap();
        near.send(&bytes).unwrap();
        assert_eq!((far.recv(&mut came).unwrap(), &came[..250]), (250, &bytes[..]));
    }
}
