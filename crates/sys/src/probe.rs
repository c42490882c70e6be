#![allow(unsafe_code, reason = "calls io_uring_setup, which fills the parameter structure that it is given")]
//! Whether this process may use kernel facilities that crates above this one build on: collapsing pages, io_uring and
//! AF_XDP.
//!
//! Why: each can be compiled out, switched off by sysctl, or denied by a container; the only reliable test is to try.
//! Invariants: a probe leaves nothing open.

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::{Arena, Error, GranuleKind, Object, Result};

/// Has the kernel collapse the pages of one granule of 2 MiB.
///
/// # Errors
/// EINVAL: the kernel cannot collapse pages of shared memory. ENOMEM, EAGAIN, EBUSY: it has no huge page to collapse them
/// to. What making and mapping an object fails with.
#[doc(alias = "MADV_COLLAPSE")]
pub fn collapse_available() -> Result<()> {
    let len = GranuleKind::Collapsed.size();
    let object = Object::create(GranuleKind::Base, len)?;
    let arena = Arena::reserve(len)?;
    arena.map(0, &object, 0, len)?;
    arena.collapse(0, len).map_err(uncollapsed)
}

fn uncollapsed(error: Error) -> Error {
    match error.errno {
        Errno::INVAL => error.with_remedy("use Linux 6.1 or later, built with CONFIG_TRANSPARENT_HUGEPAGE"),
        _ => error.with_remedy("join free memory: `sysctl vm.compact_memory=1`"),
    }
}

/// Opens and closes an io_uring of two entries.
///
/// # Errors
/// ENOSYS: the kernel has none. EPERM: a sysctl or a seccomp profile forbids it. ENOMEM: the memory-lock limit
/// is too low.
pub fn io_uring_available() -> Result<()> {
    let mut parameters = rustix::io_uring::io_uring_params::default();
    // SAFETY: the parameters are a valid, zeroed structure, exclusively borrowed; the ring is dropped unused.
    match unsafe { rustix::io_uring::io_uring_setup(2, &mut parameters) } {
        Ok(_) => Ok(()),
        Err(errno) => Err(without_io_uring(errno)),
    }
}

fn without_io_uring(errno: Errno) -> Error {
    let error = Error::new("io_uring_setup", "2 entries", errno);
    match errno {
        Errno::NOSYS => error.with_remedy("use a kernel built with CONFIG_IO_URING"),
        Errno::PERM | Errno::ACCESS => error.with_remedy(
            "run `sysctl kernel.io_uring_disabled=0`; in a container, allow io_uring_setup in its seccomp profile",
        ),
        Errno::NOMEM => error.with_remedy("raise the memory-lock limit (`ulimit -l`)"),
        _ => error,
    }
}

/// Opens and closes an AF_XDP socket.
///
/// # Errors
/// EAFNOSUPPORT: the kernel has none. EPERM: CAP_NET_RAW is missing.
#[doc(alias = "AF_XDP")]
pub fn af_xdp_available() -> Result<()> {
    match rustix::net::socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None) {
        Ok(_) => Ok(()),
        Err(errno) => Err(without_af_xdp(errno)),
    }
}

fn without_af_xdp(errno: Errno) -> Error {
    let error = Error::new("socket", "family AF_XDP", errno);
    match errno {
        Errno::AFNOSUPPORT => error.with_remedy("use a kernel built with CONFIG_XDP_SOCKETS"),
        Errno::PERM | Errno::ACCESS => error.with_remedy("run as root or with CAP_NET_RAW"),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A probe either succeeds or says what to do.
    #[test]
    fn probes_leave_no_descriptor_open_and_name_a_remedy() {
        for probe in [collapse_available, io_uring_available, af_xdp_available] {
            // Other tests open descriptors meanwhile, so many probes must not add as many.
            let before = crate::proc::open_descriptors();
            for _ in 0..200 {
                if let Err(error) = probe() {
                    assert!(error.remedy.is_some(), "{error}");
                }
            }
            assert!(crate::proc::open_descriptors() < before + 100);
        }
    }

    #[test]
    fn a_kernel_without_the_facility_is_named() {
        let uncollapsed = |errno| uncollapsed(Error::new("madvise", "2 MiB", errno)).to_string();
        assert!(uncollapsed(Errno::INVAL).contains("Linux 6.1"));
        assert!(uncollapsed(Errno::NOMEM).contains("vm.compact_memory"));
        assert!(without_io_uring(Errno::NOSYS).to_string().contains("CONFIG_IO_URING"));
        assert!(without_af_xdp(Errno::AFNOSUPPORT).to_string().contains("CONFIG_XDP_SOCKETS"));
        assert!(without_af_xdp(Errno::PERM).to_string().contains("CAP_NET_RAW"));
    }
}
