//! Userfaultfd in write-protect mode: taking write permission from granules and hearing of stores into them.
//!
//! Why: TCOW must learn of a store before it happens, also of a store that the kernel makes (read, recv,
//! O_DIRECT) on behalf of the program. mprotect with a signal handler sees only the program's own stores, and splits
//! mappings.
//! How: 1. `register` a mapping once. 2. `protect` its granules while output is pending. 3. A thread in
//! `wait` gets the address of each store that stopped. 4. `unprotect`, or a new mapping and `wake`, lets the
//! store go on.
//! Invariants: the descriptor is non-blocking and not inherited by exec; the handshake has been made, with
//! every feature that write protection of shared and huge-paged memory needs.
//! Trust: fault messages come from the kernel alone.
//! Limits: ranges are whole pages of the mapping (2 MiB where it is huge-paged). At most `FAULTS_PER_READ`
//! faults a read. A child of fork starts with its copies of the ranges unregistered and writable, and shares
//! the descriptor.
//! Source: thesis §4.2 (TCOW). Differs: NetBSD's fault handler ran inside the faulting thread; here another
//! thread must be woken, because Linux hands the fault to the thread that reads the descriptor.

mod calls;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use linux_raw_sys::general as kernel;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::mm::UserfaultfdFlags;
use rustix::time::Timespec;

use crate::{Error, Result};
use calls::{MESSAGE_SIZE, REGISTER, WAKE, WRITE_PROTECT, control, range};

/// The most faults that one call of [`Userfault::wait`] reports.
pub const FAULTS_PER_READ: usize = 16;

/// How a userfaultfd was obtained, in the order of preference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// The system call; needs CAP_SYS_PTRACE or vm.unprivileged_userfaultfd=1.
    SystemCall,
    /// /dev/userfaultfd; needs its file permission.
    Device,
    /// The system call with UFFD_USER_MODE_ONLY; needs no right.
    UserModeOnly,
}

impl Way {
    /// Whether the kernel's own stores are caught beside the program's. If not, a kernel write into protected memory fails with
    /// EFAULT.
    pub const fn catches_kernel_stores(self) -> bool {
        !matches!(self, Self::UserModeOnly)
    }
}

/// A store that waits for its granule's write permission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// The address stored to; for a kernel write, perhaps only its page.
    pub addr: usize,
    /// Whether the access is a store.
    pub write: bool,
    /// Whether write protection stopped it.
    pub write_protect: bool,
    /// The kernel's number of the thread that waits.
    pub thread: u32,
}

/// Why [`Userfault::wait`] returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// There is at least one fault.
    Faults,
    /// The signal to stop had come, and no fault was pending.
    Stopped,
    /// The time is up, and no fault was pending.
    TimedOut,
}

/// A userfaultfd of this process, ready for write protection.
///
/// Registering or protecting an address that belongs to someone else makes storing threads wait, perhaps
/// forever; it can't break memory safety, so these calls are safe. Dropping it lifts all protection and wakes
/// every waiter, unless a child of fork still has the descriptor.
#[derive(Debug)]
#[doc(alias = "userfaultfd")]
pub struct Userfault {
    fd: OwnedFd,
    way: Way,
}

impl Userfault {
    /// Gets a userfaultfd by the first way that works: system call, device, user mode only.
    ///
    /// # Errors
    /// The last way's error, where none works.
    pub fn open() -> Result<Self> {
        Self::open_way(Way::SystemCall)
            .or_else(|_| Self::open_way(Way::Device))
            .or_else(|_| Self::open_way(Way::UserModeOnly))
    }

    /// Gets a userfaultfd by that way and no other.
    ///
    /// # Errors
    /// EPERM or EACCES where the right is missing, ENOENT without the device, EINVAL where the kernel can't
    /// write-protect shared memory.
    pub fn open_way(way: Way) -> Result<Self> {
        let fd = match way {
            Way::SystemCall => calls::by_system_call(UserfaultfdFlags::empty()),
            Way::Device => calls::by_device(),
            Way::UserModeOnly => {
                calls::by_system_call(UserfaultfdFlags::from_bits_retain(kernel::UFFD_USER_MODE_ONLY))
            }
        }?;
        calls::shake_hands(fd.as_fd())?;
        Ok(Self { fd, way })
    }

    /// The way in which it was obtained.
    pub fn way(&self) -> Way {
        self.way
    }

    /// Makes a range of shared mappings known, so that it can be protected.
    ///
    /// A range that is part of a mapping splits it; MAP_FIXED over a range, and mremap of it, drop the
    /// registration.
    ///
    /// # Errors
    /// EINVAL: not whole pages, not wholly mapped, or private file memory. EBUSY: registered with another userfaultfd.
    /// ENOMEM: too many mappings.
    pub fn register(&self, addr: usize, len: usize) -> Result<()> {
        let mut argument = kernel::uffdio_register {
            range: range(addr, len),
            mode: u64::from(kernel::UFFDIO_REGISTER_MODE_WP),
            ioctls: 0,
        };
        control::<REGISTER, _>(self.as_fd(), &mut argument)
            .map_err(|errno| failed("UFFDIO_REGISTER", addr, len, errno))?;
        if argument.ioctls & (1 << kernel::_UFFDIO_WRITEPROTECT) == 0 {
            return Err(failed("UFFDIO_REGISTER", addr, len, Errno::OPNOTSUPP)
                .with_remedy("register memory of a memfd; this kind can't be write-protected"));
        }
        Ok(())
    }

    /// Takes write permission from a registered range. Loads stay possible.
    ///
    /// # Errors
    /// ENOENT: part of the range isn't registered here; what precedes it may have been protected.
    ///
    /// # Cost
    /// One call, a step per page of the mapping, and a TLB shoot-down of each CPU that runs the process; `genie
    /// calibrate` measures it.
    pub fn protect(&self, addr: usize, len: usize) -> Result<()> {
        self.write_protect(addr, len, calls::WRITE_PROTECT_ON)
            .map_err(|errno| failed("UFFDIO_WRITEPROTECT (on)", addr, len, errno))
    }

    /// Gives write permission back, and wakes the stores that waited for it.
    ///
    /// # Errors
    /// As [`Self::protect`].
    ///
    /// # Cost
    /// As [`Self::protect`]; on 4 KiB pages of shared memory also a minor fault at each page's next store.
    pub fn unprotect(&self, addr: usize, len: usize) -> Result<()> {
        self.write_protect(addr, len, 0)
            .map_err(|errno| failed("UFFDIO_WRITEPROTECT (off)", addr, len, errno))
    }

    /// Wakes the stores that wait in a range; they are tried again on what is mapped there now.
    ///
    /// # Errors
    /// EINVAL: not whole pages.
    pub fn wake(&self, addr: usize, len: usize) -> Result<()> {
        control::<WAKE, _>(self.as_fd(), &mut range(addr, len))
            .map_err(|errno| failed("UFFDIO_WAKE", addr, len, errno))
    }

    /// Sleeps until there are faults, `stop` is readable or `timeout` is over; `faults` then holds the new faults only.
    ///
    /// Faults come first: while faults come without a pause, `stop` is not looked at.
    ///
    /// # Errors
    /// A failed poll or read, with `faults` empty.
    pub fn wait(
        &self,
        stop: BorrowedFd<'_>,
        timeout: Option<Duration>,
        faults: &mut Vec<Fault>,
    ) -> Result<Wait> {
        let timeout = timeout.and_then(|time| Timespec::try_from(time).ok());
        loop {
            if self.take(faults)? > 0 {
                return Ok(Wait::Faults);
            }
            let mut sources =
                [PollFd::new(&self.fd, PollFlags::IN), PollFd::from_borrowed_fd(stop, PollFlags::IN)];
            match rustix::event::poll(&mut sources, timeout.as_ref()) {
                Ok(0) => return Ok(Wait::TimedOut),
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(Error::new("poll", "userfaultfd and its stop signal", errno)),
            }
            if sources[0].revents().is_empty() && !sources[1].revents().is_empty() {
                return Ok(Wait::Stopped);
            }
        }
    }

    /// Reads the faults that are there, without sleeping; `faults` then holds them only. Returns their
    /// number.
    ///
    /// # Errors
    /// A failed read, with `faults` empty.
    pub fn take(&self, faults: &mut Vec<Fault>) -> Result<usize> {
        faults.clear();
        let mut messages = [[0; MESSAGE_SIZE]; FAULTS_PER_READ];
        match rustix::io::read(&self.fd, messages.as_flattened_mut()) {
            Ok(bytes) => faults.extend(messages[..bytes / MESSAGE_SIZE].iter().filter_map(calls::decode)),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(errno) => return Err(Error::new("read", "userfaultfd", errno)),
        }
        Ok(faults.len())
    }

    /// The kernel answers EAGAIN while another thread changes the process's mappings, and asks for another
    /// try.
    fn write_protect(&self, addr: usize, len: usize, mode: u64) -> rustix::io::Result<()> {
        loop {
            let mut argument = kernel::uffdio_writeprotect { range: range(addr, len), mode };
            match control::<WRITE_PROTECT, _>(self.as_fd(), &mut argument) {
                Err(Errno::AGAIN | Errno::INTR) => std::thread::yield_now(),
                done => return done,
            }
        }
    }
}

impl AsFd for Userfault {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn failed(call: &'static str, addr: usize, len: usize, errno: Errno) -> Error {
    let error = Error::new(call, format!("{len} bytes at {addr:#x}"), errno);
    match errno {
        Errno::NOENT => error.with_remedy("register the whole range with this userfaultfd first"),
        Errno::INVAL => {
            error.with_remedy("name whole pages of mapped memory (2 MiB steps where it is huge-paged)")
        }
        Errno::BUSY => error.with_remedy("unregister the range from the other userfaultfd first"),
        Errno::NOMEM => error.with_remedy("raise vm.max_map_count, or free memory"),
        _ => error,
    }
}
