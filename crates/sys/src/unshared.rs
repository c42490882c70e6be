//! Unshared descriptors: those of which a child made by fork is to have no duplicate.
//!
//! Why: a lock, or an end of a connection, lasts as long as anybody has its descriptor. A child that lives on would keep its
//! parent's, and others would never learn that the parent has closed it, or has died.
//! How: a handler that `fork` calls in the child puts a *dummy*, a socket whose other end is closed, in the place of each
//! descriptor that is entered here. So the number stays in use until the child closes its copy, cannot become another file's
//! behind the back of a handle that the child has inherited, and [`is_parents`] tells it.
//! Invariants: a number that the program has closed, and that is another file's now, is left alone, the dummy's number, too: files are
//! known by their inodes.
//! Limits: [`CAPACITY`] in one process. A child keeps a descriptor that another thread is just making, or closing, at the fork. So
//! does one that does not call the handlers of fork (a bare `clone`), until it calls exec or ends.
#![allow(unsafe_code, reason = "replaces descriptors that a child has inherited and nobody uses there")]

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, IntoRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

use rustix::fs::fstat;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::fork::{Maker, on_fork};
use crate::{Errno, Error, Result};

/// How many of these a process may have at once.
pub const CAPACITY: usize = 4096;

const NONE: i32 = -1;
/// The number of an entry that is being written.
const RESERVED: i32 = -2;

static ENTRIES: [Entry; CAPACITY] = [const { Entry::new() }; CAPACITY];
/// What children get instead. A child that has closed it makes another one.
static DUMMY: Entry = Entry::new();
/// Whether `fork` calls the handler.
static IS_INSTALLED: AtomicBool = AtomicBool::new(false);
/// Whether this process is a child that has got dummies.
static HAS_DUMMIES: AtomicBool = AtomicBool::new(false);

#[derive(Debug)]
struct Entry {
    number: AtomicI32,
    device: AtomicU64,
    inode: AtomicU64,
}

impl Entry {
    const fn new() -> Self {
        Self { number: AtomicI32::new(NONE), device: AtomicU64::new(0), inode: AtomicU64::new(0) }
    }

    /// Enters what was reserved.
    fn enter(&self, descriptor: impl AsFd) -> std::result::Result<(), Errno> {
        let found = fstat(&descriptor).inspect_err(|_| self.number.store(NONE, Ordering::Release))?;
        self.device.store(found.st_dev, Ordering::Relaxed);
        self.inode.store(found.st_ino, Ordering::Relaxed);
        self.number.store(descriptor.as_fd().as_raw_fd(), Ordering::Release);
        Ok(())
    }

    /// Whether this file is the one that was entered.
    fn is(&self, device: u64, inode: u64) -> bool {
        (self.device.load(Ordering::Relaxed), self.inode.load(Ordering::Relaxed)) == (device, inode)
    }

    /// The number, if it is still that of the file that was entered.
    fn number(&self) -> Option<i32> {
        let number = self.number.load(Ordering::Acquire);
        let mut found = MaybeUninit::<libc::stat>::uninit();
        // SAFETY: the kernel fills the structure, or fails: it knows no negative numbers.
        let is_there = unsafe { libc::fstat(number, found.as_mut_ptr()) } == 0;
        if !is_there {
            return None;
        }
        // SAFETY: filled, since the call succeeded.
        let found = unsafe { found.assume_init_ref() };
        self.is(found.st_dev, found.st_ino).then_some(number)
    }
}

/// Keeps a descriptor from children. To be dropped before the descriptor is closed.
#[derive(Debug)]
pub struct Unshared {
    entry: &'static Entry,
    maker: Maker,
}

impl Unshared {
    /// Enters a descriptor.
    ///
    /// # Errors
    /// ENOSPC: [`CAPACITY`] are entered. The limit on descriptors; memory.
    ///
    /// # Cost
    /// A system call; for each child, two.
    pub fn new(descriptor: impl AsFd) -> Result<Self> {
        let subject = "a descriptor that children are not to have";
        prepare().map_err(|errno| Error::new("prepare for fork", subject, errno))?;
        let is_free = |entry: &&Entry| {
            let number = &entry.number;
            number.compare_exchange(NONE, RESERVED, Ordering::Acquire, Ordering::Relaxed).is_ok()
        };
        let entry = ENTRIES.iter().find(is_free).ok_or_else(|| {
            Error::new("enter", subject, Errno::NOSPC).with_remedy("have fewer channels and locks at once")
        })?;
        entry.enter(descriptor).map_err(|errno| Error::new("fstat", subject, errno))?;
        Ok(Self { entry, maker: Maker::this_process() })
    }
}

impl Drop for Unshared {
    fn drop(&mut self) {
        if self.maker.is_this_process() {
            self.entry.number.store(NONE, Ordering::Release);
        }
    }
}

/// Whether a descriptor of a child's stands for one that its parent did not share.
pub fn is_parents(descriptor: impl AsFd) -> bool {
    if !HAS_DUMMIES.load(Ordering::Relaxed) {
        return false;
    }
    fstat(descriptor).is_ok_and(|found| DUMMY.is(found.st_dev, found.st_ino))
}

/// Makes the dummy, and has `fork` call the handler. No lock, which a child could inherit: of several threads one succeeds.
fn prepare() -> std::result::Result<(), Errno> {
    let last = DUMMY.number.load(Ordering::Acquire);
    if last != RESERVED && DUMMY.number().is_none() {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (dummy, _) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        let reserved = DUMMY.number.compare_exchange(last, RESERVED, Ordering::AcqRel, Ordering::Relaxed);
        if reserved.is_ok() {
            DUMMY.enter(&dummy)?;
            let _ = OwnedFd::into_raw_fd(dummy);
        }
    }
    // Calling the handler twice for one fork does no harm.
    if !IS_INSTALLED.load(Ordering::Acquire) {
        if !on_fork(nothing, nothing, replace_in_child) {
            return Err(Errno::NOMEM);
        }
        IS_INSTALLED.store(true, Ordering::Release);
    }
    Ok(())
}

extern "C" fn nothing() {}

/// Called by fork in the child.
extern "C" fn replace_in_child() {
    let dummy = DUMMY.number();
    for entry in ENTRIES.iter().filter(|entry| entry.number.load(Ordering::Acquire) != NONE) {
        let found = entry.number();
        entry.number.store(NONE, Ordering::Relaxed);
        let Some(number) = found else { continue };
        HAS_DUMMIES.store(true, Ordering::Relaxed);
        // SAFETY: the child's duplicate of a descriptor that only handles of its parent's use, which do not in a child.
        let is_replaced =
            dummy.is_some_and(|dummy| unsafe { libc::dup3(dummy, number, libc::O_CLOEXEC) } >= 0);
        if !is_replaced {
            // SAFETY: as above. The program has closed the dummy.
            unsafe { libc::close(number) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::child::{ExitOutcome, fork_child};
    use crate::socket::Socket;

    #[test]
    fn a_child_that_lives_has_neither_the_descriptor_nor_its_number_for_others() {
        let (here, there) = Socket::pair().unwrap();
        let unshared = Unshared::new(&here).unwrap();
        assert!(!is_parents(&here));
        // SAFETY: the child only makes system calls.
        let child = unsafe {
            fork_child(|| {
                if !is_parents(&here) || is_parents(&there) || !here.is_hung_up() {
                    return 1;
                }
                loop {
                    rustix::thread::sched_yield();
                }
            })
        }
        .unwrap();
        assert!(!there.is_hung_up());
        drop((unshared, here));
        assert!(there.wait_for_hang_up(None));
        child.kill().unwrap();
        assert_eq!(child.wait().unwrap(), ExitOutcome::Signal(9));
    }

    #[test]
    fn a_file_that_has_got_the_number_is_left_alone() {
        let (here, there) = Socket::pair().unwrap();
        let (one, other) = Socket::pair().unwrap();
        let _unshared = Unshared::new(&here).unwrap();
        // As if the program had closed it, and opened another file.
        let mut replaced = OwnedFd::from(here);
        rustix::io::dup2(&one, &mut replaced).unwrap();
        assert!(there.is_hung_up());
        // SAFETY: the child only makes system calls.
        let child = unsafe { fork_child(|| u8::from(is_parents(&replaced) || other.is_hung_up())) }.unwrap();
        assert_eq!(child.wait().unwrap(), ExitOutcome::Code(0));
    }

    #[test]
    fn a_file_that_has_got_the_dummys_number_is_left_alone() {
        let (here, there) = Socket::pair().unwrap();
        let _unshared = Unshared::new(&here).unwrap();
        let (one, other) = Socket::pair().unwrap();
        // SAFETY: the children only make system calls.
        let child = unsafe {
            fork_child(|| {
                // As if the child had closed all that it does not know, and opened files of its own.
                let number = DUMMY.number().unwrap_or(NONE);
                if libc::dup2(one.as_fd().as_raw_fd(), number) < 0 || is_parents(&one) {
                    return 1;
                }
                let Ok(_unshared) = Unshared::new(&other) else { return 2 };
                let grandchild = fork_child(|| u8::from(!is_parents(&other) || one.is_hung_up()));
                match grandchild.map(|grandchild| grandchild.wait()) {
                    Ok(Ok(ExitOutcome::Code(code))) => code * 3,
                    _ => 4,
                }
            })
        };
        assert_eq!(child.unwrap().wait().unwrap(), ExitOutcome::Code(0));
        drop(there);
    }
}
