//! Descriptors of the kernel's: buffers read from and written to sockets, pipes and files.
//!
//! Why: a program that uses buffers throughout should not have to ask what is behind a descriptor.
//! How: to read fills a new buffer, as long as what there is to read. To write gives the kernel the bytes and the pool the
//! buffer. In both cases the kernel copies. It would not have to on output: `splice` and `sendfile` pass pages of the pool's
//! object to pipes and sockets. But nothing tells when the kernel lets go of them, so they could never be used again, and new
//! pages in their place cost more than copying (tried by pipe, Unix and TCP sockets, from 8 to 512 KiB).
//! Sockets could be asked to tell (MSG_ZEROCOPY): within a machine Linux then copies all the same, and elsewhere it tells by errors on
//! the descriptor, which wake loops that wait there for other things.
//! Pages of files need no replacement: those are passed ([`Mapped`](crate::Mapped)).
//! Invariants: no page of a pool is handed to the kernel for longer than a call lasts.
//! Source: SMLI TR-95-39 §3.3, §4.1 (descriptors whose devices know no fbufs).

use std::io::IoSliceMut;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::PollFlags;
use rustix::fs::OFlags;
use rustix::io::{Errno, ReadWriteFlags};
use rustix::net::SocketType;

use crate::channel::poll;
use crate::error::{Error, Result};
use crate::unwritten::Unwritten;
use crate::{Fbuf, Pool};

/// How long a buffer is made where the kernel does not say how much there is to read.
const UNKNOWN: usize = 64 << 10;
/// A read of no more is made at once, into a buffer that long: to ask how much there is costs more than room that is not used.
const SHORT: usize = 16 << 10;
/// One read takes at most this part of a pool, however much there is.
const MOST: usize = 4;

impl Pool {
    /// Reads into a new buffer, of at most `len` bytes, and no more than the quota has left; nothing at the end. Waits for
    /// something to read, unless the descriptor does not block.
    ///
    /// # Errors
    /// [`Error::WouldBlock`], [`Error::Exhausted`], [`Error::Quota`]: it has nothing left; and those of `read`.
    ///
    /// # Cost
    /// That of `read` and an allocation; above 16 KiB, a system call to learn how much there is.
    #[doc(alias = "uf_read")]
    pub fn read(&self, fd: impl AsFd, len: usize) -> Result<Option<Fbuf>> {
        let fd = fd.as_fd();
        self.read_by(fd, len, || available(fd), |bytes| rustix::io::read(fd, bytes))
    }

    /// As [`Pool::read`], of a pipe that others read, too: fails with [`Error::WouldBlock`] instead of waiting, although the pipe
    /// blocks. A kernel that cannot do so (before 6.5, or for a named pipe) waits where another process has read meanwhile.
    pub(crate) fn read_now(&self, fd: BorrowedFd<'_>, len: usize) -> Result<Option<Fbuf>> {
        let now = |bytes: &mut [u8]| {
            // As for `read`: where the descriptor is.
            let bytes = &mut [IoSliceMut::new(bytes)];
            rustix::io::preadv2(fd, bytes, u64::MAX, ReadWriteFlags::NOWAIT)
        };
        self.read_by(
            fd,
            len,
            || Ok(known(fd).unwrap_or(SHORT)),
            |bytes| match now(bytes) {
                Err(Errno::OPNOTSUPP | Errno::NOSYS) if poll(fd, PollFlags::IN, false).unwrap_or(true) => {
                    rustix::io::read(fd, bytes)
                }
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => Err(Errno::AGAIN),
                read => read,
            },
        )
    }

    fn read_by(
        &self,
        fd: BorrowedFd<'_>,
        len: usize,
        available: impl Fn() -> Result<usize>,
        read: impl Fn(&mut [u8]) -> rustix::io::Result<usize>,
    ) -> Result<Option<Fbuf>> {
        self.ensure_own()?;
        let len = if len <= SHORT { len } else { available()?.min(len).min(self.limit() / MOST) };
        let mut fbuf = self.allocate(self.bounded(fd, len))?;
        if fbuf.is_empty() {
            return Ok(Some(fbuf));
        }
        let read = rustix::io::retry_on_intr(|| read(&mut fbuf));
        let read = read.map_err(|errno| Error::io("read", errno))?;
        fbuf.truncate(read)?;
        Ok((read > 0).then_some(fbuf))
    }

    /// No more than the quota has left, unless the rest would be lost: the kernel drops what of a datagram has no room.
    fn bounded(&self, fd: BorrowedFd<'_>, len: usize) -> usize {
        let left = self.0.allowance().max(1);
        let keeps_rest =
            || !matches!(rustix::net::sockopt::socket_type(fd), Ok(kind) if kind != SocketType::STREAM);
        if len > left && keeps_rest() { left } else { len }
    }

    /// Reads what there is to read now, as far as a buffer has room, into a new one; nothing at the end. Waits as [`Pool::read`] does.
    ///
    /// # Errors
    /// As [`Pool::read`].
    #[doc(alias = "uf_get")]
    pub fn get(&self, fd: impl AsFd) -> Result<Option<Fbuf>> {
        self.read(fd, usize::MAX)
    }

    /// Writes a buffer's data away; the buffer is deallocated. Waits until all is written, unless the descriptor does not
    /// block.
    ///
    /// # Errors
    /// Those of `write`, and [`Error::WouldBlock`]: what was not written comes back.
    ///
    /// # Cost
    /// That of `write`, which copies.
    #[doc(alias = "uf_write")]
    pub fn write(&self, fd: impl AsFd, fbuf: Fbuf) -> Result<usize, Box<Unwritten>> {
        match self.ensure_own() {
            Ok(()) => write(fd.as_fd(), fbuf),
            Err(error) => Err(Unwritten::nothing(error, fbuf)),
        }
    }
}

/// As [`Pool::write`], of any buffer of this process.
pub(crate) fn write(fd: BorrowedFd<'_>, mut fbuf: Fbuf) -> Result<usize, Box<Unwritten>> {
    let (mut written, len) = (0, fbuf.len());
    loop {
        let errno = match rustix::io::write(fd, &fbuf[written..]) {
            Ok(count) if written + count == len => return Ok(len),
            Ok(0) => Errno::IO,
            Ok(count) => {
                written += count;
                continue;
            }
            Err(Errno::INTR) => continue,
            Err(errno) => errno,
        };
        // Inside the buffer, since so much was written of it.
        let _ = fbuf.set_data(fbuf.headroom() + written, len - written);
        return Err(Box::new(Unwritten { error: Error::io("write", errno), fbuf, written }));
    }
}

/// How many bytes there are to read, or how many to make room for where that is not known. Waits for some if the descriptor
/// blocks.
fn available(fd: BorrowedFd<'_>) -> Result<usize> {
    if let Some(len) = known(fd) {
        return Ok(len);
    }
    let flags = rustix::fs::fcntl_getfl(fd).map_err(|errno| Error::io("fcntl", errno))?;
    poll(fd, PollFlags::IN, !flags.contains(OFlags::NONBLOCK))?;
    Ok(known(fd).unwrap_or(UNKNOWN))
}

fn known(fd: BorrowedFd<'_>) -> Option<usize> {
    let len = rustix::io::ioctl_fionread(fd).ok()?;
    // The kernel's is an int: negative behind a file's end, and where more than 2 GiB are left.
    usize::try_from(len as i32).ok().filter(|len| *len > 0)
}

#[cfg(test)]
mod tests;
