#![allow(
    unsafe_code,
    reason = "getsockopt fills values for which any bytes are valid, and a descriptor that the kernel made for us"
)]
//! Who is at the other end of a socket, as the kernel knows it.
//!
//! Trust: the kernel noted this when the two were connected. Since then the process may have exited, changed its user,
//! or given its end of the socket away.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::Socket;
use crate::error::last_errno;
use crate::process::{Pid, Process};
use crate::{Errno, Error, Result};

/// The process that connected, or listened, at the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Its number; 0 where it is in a PID namespace that this process cannot see.
    pub pid: i32,
    /// Its effective user.
    pub uid: u32,
    /// Its effective group.
    pub gid: u32,
}

impl Socket {
    /// Tells who connected, or listened, at the other end.
    ///
    /// # Errors
    /// The kernel's, with no cause that a program could meet.
    #[doc(alias = "SO_PEERCRED")]
    pub fn peer(&self) -> Result<Peer> {
        let mut found = libc::ucred { pid: 0, uid: 0, gid: 0 };
        // SAFETY: `ucred` is plain numbers.
        unsafe { self.option(libc::SO_PEERCRED, &mut found) }
            .map_err(|errno| Error::new("getsockopt(SO_PEERCRED)", "a connection", errno))?;
        Ok(Peer { pid: found.pid, uid: found.uid, gid: found.gid })
    }

    /// Finds the process at the other end. With a kernel older than 6.5 the process is found by its number. That is
    /// refused where the connection has ended, because another process might have the number by then.
    ///
    /// # Errors
    /// ESRCH: it has exited, or this process cannot see it. The limit on descriptors.
    #[doc(alias = "SO_PEERPIDFD")]
    pub fn peer_process(&self) -> Result<Process> {
        let peer = self.peer()?;
        let failed = |errno| {
            Error::new("getsockopt(SO_PEERPIDFD)", format!("the connection with process {}", peer.pid), errno)
        };
        let pid = Pid::from_raw(peer.pid).filter(|_| peer.pid > 0).ok_or_else(|| {
            failed(Errno::SRCH).with_remedy("run client and server in PID namespaces that see each other")
        })?;
        let mut descriptor = -1i32;
        // SAFETY: any number is a valid `i32`.
        match unsafe { self.option(libc::SO_PEERPIDFD, &mut descriptor) } {
            // SAFETY: the kernel made the descriptor for this call; nobody else knows it.
            Ok(()) => Ok(Process::from_descriptor(unsafe { OwnedFd::from_raw_fd(descriptor) }, pid)),
            Err(Errno::NOPROTOOPT) => self.peer_process_by_number(pid),
            Err(errno @ (Errno::SRCH | Errno::INVAL)) => {
                Err(Error { errno: Errno::SRCH, ..failed(errno) }.with_remedy("it has exited; connect again"))
            }
            Err(errno) => Err(failed(errno)),
        }
    }

    pub(super) fn peer_process_by_number(&self, pid: Pid) -> Result<Process> {
        let process = Process::open(pid)?;
        if self.is_hung_up() {
            return Err(Error::new("pidfd_open", format!("process {pid}"), Errno::SRCH)
                .with_remedy("it has hung up; connect again"));
        }
        Ok(process)
    }

    /// Reads an option of the socket into `value`.
    ///
    /// # Safety
    /// Any bytes make a valid `T`.
    unsafe fn option<T>(&self, name: i32, value: &mut T) -> std::result::Result<(), Errno> {
        let mut len = size_of::<T>() as libc::socklen_t;
        let socket = self.descriptor.as_raw_fd();
        // SAFETY: the kernel stores at most `len` bytes into the borrowed value, valid by the caller's promise.
        let result = unsafe {
            libc::getsockopt(socket, libc::SOL_SOCKET, name, std::ptr::from_mut(value).cast(), &raw mut len)
        };
        if result == 0 && len as usize == size_of::<T>() {
            return Ok(());
        }
        Err(if result == 0 { Errno::IO } else { last_errno() })
    }
}
