//! Processes that are watched: a name for a process that stays valid even when its number is used again.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::process::PidfdFlags;

use super::Pid;
use crate::poll::readable;
use crate::{Errno, Error, Result};

/// Another process, or this one. Its descriptor is readable once the process has exited.
#[derive(Debug)]
#[doc(alias = "pidfd")]
pub struct Process {
    descriptor: OwnedFd,
    pid: Pid,
}

impl Process {
    /// Finds the process that has the number `pid` now. For the other end of a socket,
    /// [`Socket::peer_process`](crate::socket::Socket::peer_process) is more reliable.
    ///
    /// # Errors
    /// ESRCH: there is no such process, or `pid` is only a thread's number. The limit on descriptors.
    #[doc(alias = "pidfd_open")]
    pub fn open(pid: Pid) -> Result<Self> {
        match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
            Ok(descriptor) => Ok(Self { descriptor, pid }),
            // What the kernel says of a thread's number depends on its version.
            Err(Errno::SRCH | Errno::INVAL | Errno::NOENT) => {
                Err(Error::new("pidfd_open", format!("process {pid}"), Errno::SRCH))
            }
            Err(errno) => Err(Error::new("pidfd_open", format!("process {pid}"), errno)),
        }
    }

    /// Takes a descriptor that the kernel made for process `pid`.
    pub(crate) fn from_descriptor(descriptor: OwnedFd, pid: Pid) -> Self {
        Self { descriptor, pid }
    }

    /// The process's number; after its exit, another process may have the same number.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Whether the process has exited with all of its threads, even if nobody has waited for it yet. False also where the
    /// kernel has no memory to find out.
    pub fn has_exited(&self) -> bool {
        self.wait(Some(Duration::ZERO)).unwrap_or(false)
    }

    /// Waits until it has exited, for at most `timeout`; returns whether it has.
    ///
    /// # Errors
    /// ENOMEM: the kernel has no memory to wait with.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<bool> {
        readable(&self.descriptor, timeout)
    }
}

impl AsFd for Process {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::child::{Child, fork_child};
    use crate::process::own_pid;

    /// A child that lives until it is killed.
    fn lasting() -> Child {
        // SAFETY: the child only yields by a system call.
        unsafe {
            fork_child(|| {
                loop {
                    rustix::thread::sched_yield();
                }
            })
        }
        .unwrap()
    }

    #[test]
    fn a_process_has_exited_once_killed_even_while_nobody_waited_for_it() {
        let child = lasting();
        let process = Process::open(child.pid()).unwrap();
        assert!(!process.has_exited() && !process.wait(Some(Duration::from_millis(1))).unwrap());
        child.kill().unwrap();
        assert!(process.wait(Some(Duration::from_secs(10))).unwrap());
        assert!(process.has_exited());
        child.wait().unwrap();
        assert!(process.has_exited(), "and once it was waited for");
    }

    #[test]
    fn a_number_that_no_process_has_is_named() {
        let child = lasting();
        let pid = child.pid();
        drop(child);
        let error = Process::open(pid).unwrap_err();
        assert_eq!(error.errno, Errno::SRCH);
        assert!(error.to_string().contains(&format!("process {pid}")), "{error}");
    }

    #[test]
    fn this_process_has_not_exited() {
        let process = Process::open(own_pid()).unwrap();
        assert_eq!((process.pid(), process.has_exited()), (own_pid(), false));
    }
}
