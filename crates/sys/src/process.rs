#![allow(
    unsafe_code,
    reason = "passes exclusively borrowed or readable buffers to process_vm_readv and writev; fork is the caller's duty"
)]
//! Other processes: reading and writing their memory, seeing them exit, and children made by fork.
//!
//! Why: copying straight out of a peer is the only output that a malicious client can't change afterwards and
//! that needs no mapping of its memory.
//! Trust: the other process may unmap or change its memory at any moment; a transfer may be short, and its
//! bytes mixed.
//! Limits: at most 1024 segments on each side of a transfer.

use std::io::{IoSlice, IoSliceMut};
use std::panic::AssertUnwindSafe;

use rustix::io::Errno;
use rustix::process::{Signal, WaitOptions};

pub use pidfd::Process;
pub use rustix::process::Pid;

use crate::{Error, Result};

mod pidfd;

/// The exit code of a child whose closure panicked.
pub const PANIC_CODE: u8 = 101;

/// This process.
pub fn own_pid() -> Pid {
    rustix::process::getpid()
}

/// Copies memory of process `pid` from `remote_addr` on into `local`, and returns how many bytes came.
///
/// Fewer than asked for come when a later page is not mapped.
///
/// # Errors
/// EFAULT: not even the first page is mapped. EPERM: no right to trace that process. ESRCH: it has gone.
#[doc(alias = "process_vm_readv")]
pub fn read_memory(pid: Pid, remote_addr: usize, local: &mut [u8]) -> Result<usize> {
    let remote = [(remote_addr, local.len())];
    read_memory_vectored(pid, &remote, &mut [IoSliceMut::new(local)])
}

/// Copies memory of process `pid`, given as (address, length) segments, into `local`, in order.
///
/// # Errors
/// As [`read_memory`]; EINVAL with more than 1024 segments on a side.
#[doc(alias = "process_vm_readv")]
pub fn read_memory_vectored(
    pid: Pid,
    remote: &[(usize, usize)],
    local: &mut [IoSliceMut<'_>],
) -> Result<usize> {
    let segments = remote_segments(remote);
    // SAFETY: `IoSliceMut` is layout-compatible with iovec and borrows its bytes exclusively; remote
    // addresses are only read, by the kernel, which checks them.
    let transferred = unsafe {
        libc::process_vm_readv(
            pid.as_raw_nonzero().get(),
            local.as_ptr().cast(),
            local.len() as libc::c_ulong,
            segments.as_ptr(),
            segments.len() as libc::c_ulong,
            0,
        )
    };
    outcome("process_vm_readv", pid, remote, transferred)
}

/// Copies `local` into the memory of process `pid` from `remote_addr` on, and returns how many bytes went.
///
/// This process is refused: its memory belongs to its Rust values.
///
/// # Errors
/// As [`read_memory`]; EFAULT also where the memory is not writable, EINVAL for this process.
#[doc(alias = "process_vm_writev")]
pub fn write_memory(pid: Pid, remote_addr: usize, local: &[u8]) -> Result<usize> {
    write_memory_vectored(pid, &[(remote_addr, local.len())], &[IoSlice::new(local)])
}

/// Copies `local` into memory of process `pid`, given as (address, length) segments, in order.
///
/// # Errors
/// As [`write_memory`]; EINVAL with more than 1024 segments on a side.
#[doc(alias = "process_vm_writev")]
pub fn write_memory_vectored(pid: Pid, remote: &[(usize, usize)], local: &[IoSlice<'_>]) -> Result<usize> {
    let len = remote.iter().fold(0usize, |sum, segment| sum.saturating_add(segment.1));
    refuse_own(pid, remote.first().map_or(0, |segment| segment.0), len)?;
    let segments = remote_segments(remote);
    // SAFETY: `IoSlice` is layout-compatible with iovec and its bytes are readable; the remote memory isn't
    // that of this process, as checked above.
    let transferred = unsafe {
        libc::process_vm_writev(
            pid.as_raw_nonzero().get(),
            local.as_ptr().cast(),
            local.len() as libc::c_ulong,
            segments.as_ptr(),
            segments.len() as libc::c_ulong,
            0,
        )
    };
    outcome("process_vm_writev", pid, remote, transferred)
}

/// Refuses to have the kernel store into this process's own memory.
pub(crate) fn refuse_own(pid: Pid, addr: usize, len: usize) -> Result<()> {
    if is_own(pid) {
        return Err(Error::new("process_vm_writev", describe(pid, &[(addr, len)]), Errno::INVAL)
            .with_remedy("write to this process's own memory through its own references"));
    }
    Ok(())
}

/// Whether `pid` names this process or one of its threads, which the kernel takes as well.
fn is_own(pid: Pid) -> bool {
    let own = own_pid();
    // SAFETY: signal 0 is not delivered; the call only looks for the thread.
    let is_thread = || unsafe {
        libc::syscall(libc::SYS_tgkill, own.as_raw_nonzero().get(), pid.as_raw_nonzero().get(), 0) == 0
    };
    pid == own || is_thread()
}

fn remote_segments(remote: &[(usize, usize)]) -> Vec<libc::iovec> {
    let segment = |&(addr, len): &(usize, usize)| libc::iovec {
        iov_base: std::ptr::without_provenance_mut(addr),
        iov_len: len,
    };
    remote.iter().map(segment).collect()
}

fn describe(pid: Pid, remote: &[(usize, usize)]) -> String {
    let bytes = remote.iter().fold(0usize, |sum, segment| sum.saturating_add(segment.1));
    let start = remote.first().map_or(0, |segment| segment.0);
    format!("{bytes} bytes in {} segments from {start:#x} of process {pid}", remote.len())
}

fn outcome(call: &'static str, pid: Pid, remote: &[(usize, usize)], transferred: isize) -> Result<usize> {
    usize::try_from(transferred).map_err(|_| {
        let errno = last_errno();
        let error = Error::new(call, describe(pid, remote), errno);
        match errno {
            Errno::PERM => error.with_remedy(
                "run both processes as the same user with kernel.yama.ptrace_scope=0, or this one with CAP_SYS_PTRACE",
            ),
            Errno::SRCH => error.with_remedy("the process has exited; drop its requests"),
            _ => error,
        }
    })
}

fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// How a child ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitOutcome {
    /// It exited with this code.
    Code(u8),
    /// This signal killed it.
    Signal(i32),
}

/// A child made by [`fork_child`]. Dropping it kills and reaps the child.
#[derive(Debug)]
pub struct Child {
    pid: Pid,
    reaped: bool,
}

impl Child {
    /// The child's number.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Kills the child.
    ///
    /// # Errors
    /// ESRCH where someone else reaped it.
    pub fn kill(&self) -> Result<()> {
        rustix::process::kill_process(self.pid, Signal::KILL)
            .map_err(|errno| Error::new("kill", format!("child {}", self.pid), errno))
    }

    /// Waits until the child ends.
    ///
    /// # Errors
    /// ECHILD where someone else reaped it.
    pub fn wait(mut self) -> Result<ExitOutcome> {
        self.reap()
    }

    fn reap(&mut self) -> Result<ExitOutcome> {
        let failed = |errno| Error::new("waitpid", format!("child {}", self.pid), errno);
        let status = loop {
            match rustix::process::waitpid(Some(self.pid), WaitOptions::empty()) {
                Ok(Some((_, status))) => break status,
                Ok(None) | Err(Errno::INTR) => {}
                Err(errno) => return Err(failed(errno)),
            }
        };
        self.reaped = true;
        match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => Ok(ExitOutcome::Code(code as u8)),
            (None, Some(signal)) => Ok(ExitOutcome::Signal(signal)),
            // Only WUNTRACED and WCONTINUED, which are not asked for, report anything else.
            (None, None) => Err(failed(Errno::INVAL)),
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if !self.reaped {
            // Errors mean that the child is no longer ours to kill or reap, which is what a drop wants.
            let _ = self.kill();
            let _ = self.reap();
        }
    }
}

/// Forks: the child runs `child` and exits with its result (101 if it panics), running no destructor and no
/// exit hook.
///
/// # Errors
/// EAGAIN, ENOMEM: no room for another process.
///
/// # Safety
/// Only the calling thread exists in the child, and locks stay as they were at the fork. Where this process has other
/// threads, `child` must do only what is safe in a signal handler: loads, stores and plain system calls, no allocation,
/// no lock, no panic. Memory that MADV_DONTFORK kept from the child must not be touched there, but for that of arenas, where
/// the child has zeros (see [`fork`](crate::fork)).
#[doc(alias = "fork")]
pub unsafe fn fork_child(child: impl FnOnce() -> u8) -> Result<Child> {
    // SAFETY: the caller restricts what the child does until it exits, here, without returning.
    match unsafe { libc::fork() } {
        -1 => Err(Error::new("fork", "this process", last_errno())
            .with_remedy("raise the limit on processes (`ulimit -u`), or free memory")),
        0 => {
            let code = std::panic::catch_unwind(AssertUnwindSafe(child)).unwrap_or(PANIC_CODE);
            // SAFETY: _exit never returns and touches nothing of the parent.
            unsafe { libc::_exit(i32::from(code)) }
        }
        pid => Pid::from_raw(pid)
            .map(|pid| Child { pid, reaped: false })
            .ok_or_else(|| Error::new("fork", format!("child {pid}"), Errno::INVAL)),
    }
}

#[cfg(test)]
mod tests;
