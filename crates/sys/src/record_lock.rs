//! Record locks: locks on single bytes of an object, or of a file, that the kernel takes off when their holder is gone.
//!
//! Why: processes that share memory have to know who of them is still there. A process number may be used again, and a
//! process that has called exec keeps its number although it has lost its memory. A lock that belongs to an open
//! descriptor ends with the descriptor, however the process ends.
//! How: an open file description of its own, made by opening the object again; locks of the kind F_OFD_SETLK on it. The
//! bytes need not be there, nor does a lock keep anybody from touching them.
//! Invariants: a child made by fork has no duplicate of the description (`unshared`), so the child keeps no lock of its parent's.
//! A process that is sent the descriptor keeps the locks, too.
//! Limits: those of `unshared`; processes that may open the object: its owner's, and root's.
#![allow(unsafe_code, reason = "calls fcntl with a structure of plain numbers")]

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};

use crate::error::last_errno;
use crate::fork::Maker;
use crate::unshared::Unshared;
use crate::{Errno, Error, Result};

/// Locks on bytes of one object. Dropping this takes them off.
#[derive(Debug)]
pub struct RecordLocks {
    /// Dropped before the descriptor is.
    _unshared: Unshared,
    descriptor: OwnedFd,
    maker: Maker,
}

impl RecordLocks {
    /// Opens an object, or another file, to lock bytes of it.
    ///
    /// # Errors
    /// EACCES: it is another user's. Those of [`Unshared::new`]; the limit on descriptors; /proc is not mounted.
    pub fn open(object: impl AsFd) -> Result<Self> {
        let path = format!("/proc/self/fd/{}", object.as_fd().as_raw_fd());
        let descriptor =
            rustix::fs::open(&path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).map_err(|errno| {
                Error::new("open", "an object whose bytes are to be locked", errno)
                    .with_remedy("share memory among processes of one user only, and mount /proc")
            })?;
        Ok(Self { _unshared: Unshared::new(&descriptor)?, descriptor, maker: Maker::this_process() })
    }

    /// Locks a byte; returns whether it is locked by this then. If not, somebody else has locked it.
    ///
    /// # Errors
    /// ENOLCK: the kernel has no memory for locks. ESTALE: a child uses what it has inherited.
    #[doc(alias = "F_OFD_SETLK")]
    pub fn try_lock(&self, byte: u64) -> Result<bool> {
        match self.call(libc::F_OFD_SETLK, &mut record(libc::F_WRLCK, byte)) {
            Ok(()) => Ok(true),
            Err(Errno::AGAIN | Errno::ACCESS) => Ok(false),
            Err(errno) => Err(failed(byte, errno)),
        }
    }

    /// Takes the lock off a byte; does nothing where there is none of this.
    ///
    /// # Errors
    /// As [`RecordLocks::try_lock`].
    pub fn unlock(&self, byte: u64) -> Result<()> {
        self.call(libc::F_OFD_SETLK, &mut record(libc::F_UNLCK, byte)).map_err(|errno| failed(byte, errno))
    }

    /// Whether somebody else has locked a byte.
    ///
    /// # Errors
    /// As [`RecordLocks::try_lock`].
    #[doc(alias = "F_OFD_GETLK")]
    pub fn is_locked_elsewhere(&self, byte: u64) -> Result<bool> {
        let mut found = record(libc::F_WRLCK, byte);
        self.call(libc::F_OFD_GETLK, &mut found).map_err(|errno| failed(byte, errno))?;
        Ok(i32::from(found.l_type) != libc::F_UNLCK)
    }

    fn call(&self, command: i32, record: &mut libc::flock) -> std::result::Result<(), Errno> {
        if !self.maker.is_this_process() {
            return Err(Errno::STALE);
        }
        let number = self.descriptor.as_raw_fd();
        // SAFETY: the kernel reads and fills plain numbers, borrowed during the call.
        let result = unsafe { libc::fcntl(number, command, std::ptr::from_mut(record)) };
        if result == 0 { Ok(()) } else { Err(last_errno()) }
    }
}

/// The descriptor to which the locks belong.
impl AsFd for RecordLocks {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

fn record(kind: i32, byte: u64) -> libc::flock {
    // SAFETY: plain numbers, of which zeros are valid.
    let mut record: libc::flock = unsafe { std::mem::zeroed() };
    record.l_type = kind as libc::c_short;
    record.l_whence = libc::SEEK_SET as libc::c_short;
    (record.l_start, record.l_len) = (byte as libc::off_t, 1);
    record
}

fn failed(byte: u64, errno: Errno) -> Error {
    Error::new("fcntl(F_OFD_SETLK)", format!("byte {byte} of an object"), errno)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::child::{ExitOutcome, fork_child};
    use crate::{GranuleKind, Object};

    fn object() -> Object {
        Object::create(GranuleKind::Base, 4096).unwrap()
    }

    #[test]
    fn a_byte_is_locked_by_one_and_free_when_that_one_is_dropped() {
        let object = object();
        let [one, other] = [(); 2].map(|()| RecordLocks::open(&object).unwrap());
        assert!(one.try_lock(5).unwrap() && one.try_lock(5).unwrap(), "its own lock is no obstacle");
        assert!(!other.try_lock(5).unwrap() && other.try_lock(6).unwrap());
        assert!(other.is_locked_elsewhere(5).unwrap() && !one.is_locked_elsewhere(5).unwrap());
        drop(one);
        assert!(!other.is_locked_elsewhere(5).unwrap() && other.try_lock(5).unwrap());
        other.unlock(5).unwrap();
        let third = RecordLocks::open(&object).unwrap();
        assert!(third.try_lock(5).unwrap() && !third.try_lock(6).unwrap());
    }

    #[test]
    fn a_child_keeps_no_lock_and_uses_none() {
        let object = object();
        let [held, watch] = [(); 2].map(|()| RecordLocks::open(&object).unwrap());
        assert!(held.try_lock(1).unwrap());
        // SAFETY: the child only makes system calls.
        let child = unsafe {
            fork_child(|| {
                if !matches!(held.call(libc::F_OFD_SETLK, &mut record(libc::F_UNLCK, 1)), Err(Errno::STALE)) {
                    return 1;
                }
                loop {
                    rustix::thread::sched_yield();
                }
            })
        }
        .unwrap();
        assert!(watch.is_locked_elsewhere(1).unwrap());
        drop(held);
        // The child, which lives, has to get as far as the handler first: fork returned here, not necessarily there.
        while watch.is_locked_elsewhere(1).unwrap() {
            rustix::thread::sched_yield();
        }
        child.kill().unwrap();
        assert_eq!(child.wait().unwrap(), ExitOutcome::Signal(9));
    }
}
