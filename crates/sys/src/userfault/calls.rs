#![allow(
    unsafe_code,
    reason = "gives each userfaultfd ioctl the structure that the kernel expects for its number"
)]
//! The kernel's userfaultfd interface: opening, handshake, ioctls, and the shape of its messages.

use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};

use linux_raw_sys::general as kernel;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::ioctl::{self, Ioctl, IoctlOutput, Opcode, opcode};
use rustix::mm::UserfaultfdFlags;

use super::Fault;
use crate::{Error, Result};

const GROUP: u8 = kernel::USERFAULTFD_IOC as u8;
const NEW: Opcode = opcode::none(GROUP, 0);
const API: Opcode = opcode::read_write::<kernel::uffdio_api>(GROUP, kernel::_UFFDIO_API as u8);
pub(super) const REGISTER: Opcode =
    opcode::read_write::<kernel::uffdio_register>(GROUP, kernel::_UFFDIO_REGISTER as u8);
pub(super) const WAKE: Opcode = opcode::read::<kernel::uffdio_range>(GROUP, kernel::_UFFDIO_WAKE as u8);
pub(super) const WRITE_PROTECT: Opcode =
    opcode::read_write::<kernel::uffdio_writeprotect>(GROUP, kernel::_UFFDIO_WRITEPROTECT as u8);

/// UFFDIO_WRITEPROTECT_MODE_WP, a bit that the bindings leave out.
pub(super) const WRITE_PROTECT_ON: u64 = 1;

const FEATURES: u64 = (kernel::UFFD_FEATURE_PAGEFAULT_FLAG_WP
    | kernel::UFFD_FEATURE_WP_HUGETLBFS_SHMEM
    | kernel::UFFD_FEATURE_EXACT_ADDRESS
    | kernel::UFFD_FEATURE_THREAD_ID) as u64;

const NO_RIGHT: &str = "run `sysctl vm.unprivileged_userfaultfd=1`, or let this user open /dev/userfaultfd (chown, chmod), \
                        or add CAP_SYS_PTRACE";
const NO_DEVICE: &str =
    "Linux 6.1 or later has /dev/userfaultfd, if its kernel was built with CONFIG_USERFAULTFD";
const NO_CALL: &str =
    "use a kernel built with CONFIG_USERFAULTFD, and a container whose seccomp profile allows userfaultfd";
const NO_FEATURE: &str = "write protection of shared memory (UFFD_FEATURE_WP_HUGETLBFS_SHMEM) needs \
                          Linux 5.19 or later on x86-64 or arm64";

/// Says that the kernel's ioctl `OPCODE` on a userfaultfd takes a pointer to this structure.
///
/// # Safety
/// The ioctl does take this structure, and it writes nothing beyond it.
pub(super) unsafe trait Argument<const OPCODE: Opcode> {}

// SAFETY: linux/userfaultfd.h defines UFFDIO_API with struct uffdio_api.
unsafe impl Argument<API> for kernel::uffdio_api {}
// SAFETY: linux/userfaultfd.h defines UFFDIO_REGISTER with struct uffdio_register.
unsafe impl Argument<REGISTER> for kernel::uffdio_register {}
// SAFETY: linux/userfaultfd.h defines UFFDIO_WAKE with struct uffdio_range.
unsafe impl Argument<WAKE> for kernel::uffdio_range {}
// SAFETY: linux/userfaultfd.h defines UFFDIO_WRITEPROTECT with struct uffdio_writeprotect.
unsafe impl Argument<WRITE_PROTECT> for kernel::uffdio_writeprotect {}

pub(super) fn control<const OPCODE: Opcode, T: Argument<OPCODE>>(
    fd: BorrowedFd<'_>,
    argument: &mut T,
) -> rustix::io::Result<()> {
    // SAFETY: `Argument` vouches that this number takes this structure, which is exclusively borrowed. None
    // of the calls reads, writes or unmaps the ranges that it names; they change who may write there and who
    // sleeps.
    unsafe { ioctl::ioctl(fd, ioctl::Updater::<OPCODE, T>::new(argument)) }
}

/// USERFAULTFD_IOC_NEW: its argument is the flags themselves, its result a descriptor.
struct NewUserfault(UserfaultfdFlags);

// SAFETY: linux/userfaultfd.h defines the call so; it is given no memory.
unsafe impl Ioctl for NewUserfault {
    type Output = OwnedFd;
    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        NEW
    }

    fn as_ptr(&mut self) -> *mut std::ffi::c_void {
        std::ptr::without_provenance_mut(self.0.bits() as usize)
    }

    unsafe fn output_from_ptr(fd: IoctlOutput, _: *mut std::ffi::c_void) -> rustix::io::Result<OwnedFd> {
        // SAFETY: the call succeeded, so its result is a new descriptor that nobody else owns.
        Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
    }
}

fn creation_flags() -> UserfaultfdFlags {
    UserfaultfdFlags::CLOEXEC | UserfaultfdFlags::NONBLOCK
}

pub(super) fn by_system_call(mode: UserfaultfdFlags) -> Result<OwnedFd> {
    // SAFETY: a new descriptor touches no memory until ranges are registered with it.
    unsafe { rustix::mm::userfaultfd(creation_flags() | mode) }.map_err(|errno| {
        let remedy = if errno == Errno::PERM && mode.is_empty() { NO_RIGHT } else { NO_CALL };
        Error::new("userfaultfd", format!("flags {:#x}", mode.bits()), errno).with_remedy(remedy)
    })
}

pub(super) fn by_device() -> Result<OwnedFd> {
    let device = rustix::fs::open("/dev/userfaultfd", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .map_err(|errno| {
            let remedy = if errno == Errno::NOENT { NO_DEVICE } else { NO_RIGHT };
            Error::new("open", "/dev/userfaultfd", errno).with_remedy(remedy)
        })?;
    // SAFETY: `NewUserfault` describes the call that this device offers, and it is given no memory.
    unsafe { ioctl::ioctl(&device, NewUserfault(creation_flags())) }
        .map_err(|errno| Error::new("USERFAULTFD_IOC_NEW", "/dev/userfaultfd", errno).with_remedy(NO_DEVICE))
}

/// Asks for all the features that are needed; a refused handshake may be repeated, and the second one lists the
/// features that there are.
pub(super) fn shake_hands(fd: BorrowedFd<'_>) -> Result<()> {
    let api = |features| kernel::uffdio_api { api: u64::from(kernel::UFFD_API), features, ioctls: 0 };
    let Err(errno) = control::<API, _>(fd, &mut api(FEATURES)) else {
        return Ok(());
    };
    let mut offer = api(0);
    let offered = control::<API, _>(fd, &mut offer).map_or(0, |()| offer.features);
    let subject =
        format!("userfaultfd features {FEATURES:#x}, of which the kernel lacks {:#x},", FEATURES & !offered);
    Err(Error::new("UFFDIO_API", subject, errno).with_remedy(NO_FEATURE))
}

pub(super) fn range(addr: usize, len: usize) -> kernel::uffdio_range {
    kernel::uffdio_range { start: addr as u64, len: len as u64 }
}

pub(super) const MESSAGE_SIZE: usize = size_of::<kernel::uffd_msg>();
const FLAGS_AT: usize = 8;
const ADDRESS_AT: usize = 16;
const THREAD_AT: usize = 24;
const _: () = assert!(MESSAGE_SIZE == 32);
const _: () = assert!(std::mem::offset_of!(kernel::uffd_msg, arg) == FLAGS_AT);

/// Reads one message; none if it isn't a page fault (no other event was asked for).
pub(super) fn decode(message: &[u8; MESSAGE_SIZE]) -> Option<Fault> {
    if u32::from(message[0]) != kernel::UFFD_EVENT_PAGEFAULT {
        return None;
    }
    let flags = word(message, FLAGS_AT);
    Some(Fault {
        addr: word(message, ADDRESS_AT) as usize,
        write: flags & u64::from(kernel::UFFD_PAGEFAULT_FLAG_WRITE) != 0,
        write_protect: flags & u64::from(kernel::UFFD_PAGEFAULT_FLAG_WP) != 0,
        thread: half_word(message, THREAD_AT),
    })
}

fn word(message: &[u8; MESSAGE_SIZE], at: usize) -> u64 {
    u64::from_ne_bytes(std::array::from_fn(|i| message[at + i]))
}

fn half_word(message: &[u8; MESSAGE_SIZE], at: usize) -> u32 {
    u32::from_ne_bytes(std::array::from_fn(|i| message[at + i]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_fault_message_is_read_field_by_field() {
        let mut message = [0; MESSAGE_SIZE];
        message[0] = kernel::UFFD_EVENT_PAGEFAULT as u8;
        message[8..16].copy_from_slice(&3u64.to_ne_bytes());
        message[16..24].copy_from_slice(&0x7f00_0000_1008u64.to_ne_bytes());
        message[24..28].copy_from_slice(&77u32.to_ne_bytes());
        let expected = Fault { addr: 0x7f00_0000_1008, write: true, write_protect: true, thread: 77 };
        assert_eq!(decode(&message), Some(expected));
        message[8] = kernel::UFFD_PAGEFAULT_FLAG_WRITE as u8;
        assert!(decode(&message).is_some_and(|fault| fault.write && !fault.write_protect));
    }

    #[test]
    fn other_events_are_no_faults() {
        let mut message = [0; MESSAGE_SIZE];
        message[0] = kernel::UFFD_EVENT_UNMAP as u8;
        assert_eq!(decode(&message), None);
    }

    #[test]
    fn numbers_are_those_of_the_kernel_header() {
        assert_eq!((API, REGISTER), (0xc018_aa3f, 0xc020_aa00));
        assert_eq!((WAKE, WRITE_PROTECT, NEW), (0x8010_aa02, 0xc018_aa06, 0xaa00));
    }
}
