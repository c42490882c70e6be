//! Child processes that tests fork.
#![allow(unsafe_code, reason = "forks; what the child does is the caller's duty")]
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::io::{Error, Result};
use std::panic::AssertUnwindSafe;

use rustix::process::{Pid, Signal, WaitOptions};

/// How a child ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExitOutcome {
    /// It exited with this code.
    Code(u8),
    /// This signal killed it.
    Signal(i32),
}

/// A child made by [`fork_child`]. Dropping it kills and reaps the child.
#[derive(Debug)]
pub(crate) struct Child {
    pid: Pid,
    reaped: bool,
}

impl Child {
    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    pub(crate) fn kill(&self) -> Result<()> {
        Ok(rustix::process::kill_process(self.pid, Signal::KILL)?)
    }

    /// Waits until the child ends.
    pub(crate) fn wait(mut self) -> Result<ExitOutcome> {
        self.reap()
    }

    fn reap(&mut self) -> Result<ExitOutcome> {
        let wait = || rustix::process::waitpid(Some(self.pid), WaitOptions::empty());
        let (_, status) = rustix::io::retry_on_intr(wait)?.expect("a child that has ended");
        self.reaped = true;
        Ok(match status.exit_status() {
            Some(code) => ExitOutcome::Code(code as u8),
            None => ExitOutcome::Signal(status.terminating_signal().expect("an exit or a signal")),
        })
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

/// Forks: the child runs `child` and exits with its result (101 if it panics), running no destructor and no exit hook.
///
/// # Safety
/// Only the calling thread exists in the child, and locks stay as they were at the fork. Where this process has other
/// threads, `child` must do only what is safe in a signal handler: loads, stores and plain system calls, no allocation,
/// no lock, no panic. Memory that MADV_DONTFORK kept from the child must not be touched there, except the memory of arenas,
/// where the child has zeros.
pub(crate) unsafe fn fork_child(child: impl FnOnce() -> u8) -> Result<Child> {
    // SAFETY: the caller restricts what the child does until it exits, here, without returning.
    match unsafe { libc::fork() } {
        0 => {
            let code = std::panic::catch_unwind(AssertUnwindSafe(child)).unwrap_or(101);
            // SAFETY: _exit never returns and touches nothing of the parent.
            unsafe { libc::_exit(i32::from(code)) }
        }
        pid => match Pid::from_raw(pid) {
            Some(pid) if pid.as_raw_nonzero().get() > 0 => Ok(Child { pid, reaped: false }),
            _ => Err(Error::last_os_error()),
        },
    }
}
