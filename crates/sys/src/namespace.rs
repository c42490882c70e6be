//! Network namespaces: networks that only the threads see that are in them.
//!
//! Why: what speaks to the kernel's interfaces is tried on interfaces that nobody else uses, and of which nothing may be left.
//! How: a thread of its own makes a namespace, and ends; the descriptor is what keeps it. So it has no name and no file, and the kernel
//! removes it, with the interfaces in it, when the last descriptor, socket and thread in it are gone, whatever way the process ends.
//! Invariants: the thread that calls [`Namespace::enter`] stays where it is.
//! Limits: a child made by fork keeps the namespaces that it inherits until it ends, or calls exec.
#![allow(
    unsafe_code,
    reason = "unshare concerns the thread that calls it alone; ioctl is given what the command asks for"
)]

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::panic::resume_unwind;
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

use crate::error::last_errno;
use crate::{Errno, Error, Result};

/// A network namespace. Clones are handles of the same one.
#[derive(Debug, Clone)]
pub struct Namespace(Arc<OwnedFd>);

impl Namespace {
    /// Makes an empty one: its loopback interface is down.
    ///
    /// # Errors
    /// EPERM: this process has no CAP_SYS_ADMIN. ENOSPC: `user.max_net_namespaces`. The limit on descriptors.
    ///
    /// # Cost
    /// A thread, and for the kernel a network of its own: a millisecond or so.
    #[doc(alias("unshare", "CLONE_NEWNET"))]
    pub fn new() -> Result<Self> {
        apart(|| {
            // SAFETY: descriptors stay shared; only the network of this thread, which ends here, is another one.
            unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.map_err(|errno| {
                let error = Error::new("unshare", "a network namespace", errno);
                match errno {
                    Errno::PERM => error.with_remedy(
                        "CAP_SYS_ADMIN is missing: run as root, or below `unshare --map-root-user`",
                    ),
                    Errno::NOSPC => error.with_remedy("raise user.max_net_namespaces"),
                    _ => error,
                }
            })?;
            Self::current()
        })
    }

    /// The one to which `ip netns add` has given this name.
    ///
    /// # Errors
    /// ENOENT: there is none. EPERM: this process has no CAP_SYS_ADMIN there.
    pub fn named(name: &str) -> Result<Self> {
        let path = Path::new("/run/netns").join(name);
        let failed =
            |call, errno, remedy| Error::new(call, path.display().to_string(), errno).with_remedy(remedy);
        let file = File::open(&path).map_err(|error| {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            failed("open", errno, "`ip netns` lists the names of network namespaces")
        })?;
        let network = Some(LinkNameSpaceType::Network);
        apart(|| move_into_link_name_space(file.as_fd(), network))
            .map_err(|errno| failed("setns", errno, "CAP_SYS_ADMIN is missing: run as root"))?;
        Ok(Self(Arc::new(file.into())))
    }

    /// The one in which this thread is.
    ///
    /// # Errors
    /// There is no /proc. The limit on descriptors.
    pub fn current() -> Result<Self> {
        let path = "/proc/thread-self/ns/net";
        let failed = |error: std::io::Error| {
            Error::new("open", path, Errno::from_io_error(&error).unwrap_or(Errno::IO))
        };
        Ok(Self(Arc::new(File::open(path).map_err(failed)?.into())))
    }

    /// Runs `act` in this namespace, in a thread of its own, and waits for it. Sockets made there stay in the namespace; so do threads and
    /// processes that begin there.
    ///
    /// # Panics
    /// If `act` does; if this process has lost the right (CAP_SYS_ADMIN) by which it made the namespace.
    #[doc(alias = "setns")]
    pub fn enter<T: Send>(&self, act: impl FnOnce() -> T + Send) -> T {
        apart(|| {
            self.move_in();
            act()
        })
    }

    /// Begins a thread in this namespace.
    ///
    /// # Panics
    /// There, as [`Namespace::enter`] does.
    pub fn spawn<T: Send + 'static>(&self, act: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
        let namespace = self.clone();
        thread::spawn(move || {
            namespace.move_in();
            act()
        })
    }

    fn move_in(&self) {
        move_into_link_name_space(self.as_fd(), Some(LinkNameSpaceType::Network))
            .expect("who has made a namespace, or entered it, may enter it");
    }
}

impl From<OwnedFd> for Namespace {
    /// One whose descriptor another process has passed.
    fn from(descriptor: OwnedFd) -> Self {
        Self(Arc::new(descriptor))
    }
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Runs `act` in a thread of its own.
fn apart<T: Send>(act: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| scope.spawn(act).join()).unwrap_or_else(|panic| resume_unwind(panic))
}

/// Says whether the kernel may leave the checksums of TCP and UDP to an interface that is in this thread's namespace. Where it may, frames
/// of the kernel's own senders leave a virtual interface without them.
///
/// # Errors
/// EPERM: no CAP_NET_ADMIN. ENODEV: there is no such interface. EOPNOTSUPP: it cannot.
#[doc(alias("SIOCETHTOOL", "ETHTOOL_STXCSUM"))]
pub fn offload_checksums(interface: &str, is_offloaded: bool) -> Result<()> {
    set(interface, 0x17, is_offloaded)
}

/// Says whether the kernel may gather the frames that come by an interface that is in this thread's namespace. A virtual link takes frames
/// that a program sends there (DEVMAP) if it may, or if a program is attached to that end.
///
/// # Errors
/// As [`offload_checksums`].
#[doc(alias("SIOCETHTOOL", "ETHTOOL_SGRO"))]
pub fn gather_frames(interface: &str, may_gather: bool) -> Result<()> {
    set(interface, 0x2c, may_gather)
}

/// Carries out a command of linux/ethtool.h that has one value.
fn set(interface: &str, command: u32, is_on: bool) -> Result<()> {
    #[repr(C)]
    struct Value {
        command: u32,
        data: u32,
    }
    let mut value = Value { command, data: is_on.into() };
    // SAFETY: all fields may be zero.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let failed = |errno| Error::new("ethtool", format!("interface {interface}, command {command:#x}"), errno);
    if interface.len() >= request.ifr_name.len() {
        return Err(failed(Errno::NODEV));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = (&raw mut value).cast();
    let socket =
        socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None).map_err(failed)?;
    // SAFETY: the request's name ends by a zero, and its data is the structure of this command; both outlive the call.
    match unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL, &raw mut request) } {
        0 => Ok(()),
        _ => Err(failed(last_errno())),
    }
}
