#![allow(
    unsafe_code,
    reason = "asks the kernel for SIGBUS where memory is missing, by ioctls that touch no memory"
)]
//! Missing memory: makes the kernel answer a touch of a hole with SIGBUS, as it does when its huge pages have run out.
//!
//! Why: a test that uses up all huge pages disturbs every other test of the machine, and needs huge pages.
//! How: a userfaultfd with UFFD_FEATURE_SIGBUS, on the addresses at which this process has mapped an object. A page that is in
//! the object is mapped as ever; one that is missing is SIGBUS.
//! Source: userfaultfd(2), ioctl_userfaultfd(2).

use std::ops::Range;
use std::os::fd::OwnedFd;

use rustix::ioctl::{Opcode, Updater, ioctl, opcode};
use rustix::mm::UserfaultfdFlags;

const GROUP: u8 = 0xaa;
const HANDSHAKE: Opcode = opcode::read_write::<Handshake>(GROUP, 0x3f);
const REGISTER: Opcode = opcode::read_write::<Register>(GROUP, 0);
/// UFFD_API.
const API: u64 = 0xaa;
/// UFFD_FEATURE_SIGBUS.
const SIGBUS: u64 = 1 << 7;
/// UFFD_USER_MODE_ONLY.
const USER_MODE_ONLY: u32 = 1;
/// UFFDIO_REGISTER_MODE_MISSING.
const MISSING: u64 = 1;

/// The kernel's struct uffdio_api.
#[repr(C)]
struct Handshake {
    api: u64,
    features: u64,
    ioctls: u64,
}

/// The kernel's struct uffdio_register.
#[repr(C)]
struct Register {
    start: u64,
    len: u64,
    mode: u64,
    ioctls: u64,
}

/// Has missing memory be SIGBUS at these addresses, as long as the result is there; an error says why it can't be had.
pub(crate) fn is_bus_error_at(addresses: &Range<usize>) -> Result<OwnedFd, String> {
    let failed = |errno: rustix::io::Errno| format!("a userfaultfd with UFFD_FEATURE_SIGBUS: {errno}");
    let flags = UserfaultfdFlags::CLOEXEC | UserfaultfdFlags::from_bits_retain(USER_MODE_ONLY);
    let mut hands = Handshake { api: API, features: SIGBUS, ioctls: 0 };
    let (start, len) = (addresses.start as u64, addresses.len() as u64);
    let mut register = Register { start, len, mode: MISSING, ioctls: 0 };
    // SAFETY: linux/userfaultfd.h defines the calls with these structures, and neither touches other memory.
    unsafe {
        let descriptor = rustix::mm::userfaultfd(flags).map_err(failed)?;
        ioctl(&descriptor, Updater::<HANDSHAKE, Handshake>::new(&mut hands)).map_err(failed)?;
        ioctl(&descriptor, Updater::<REGISTER, Register>::new(&mut register)).map_err(failed)?;
        Ok(descriptor)
    }
}
