#![allow(
    unsafe_code,
    reason = "borrows exclusively, or to be read, what process_vm_readv and writev are given"
)]
//! Other processes: reading and writing their memory, and seeing them exit.
//!
//! Why: copying straight out of a peer is the only output that a malicious client can't change afterwards and
//! that needs no mapping of its memory.
//! Trust: the other process may unmap or change its memory at any moment; a transfer may be short, and its
//! bytes mixed.

use rustix::io::Errno;

pub use pidfd::Process;
pub use rustix::process::Pid;

use crate::{Error, Result, Span};

mod pidfd;

/// This process.
pub fn own_pid() -> Pid {
    rustix::process::getpid()
}

/// Copies memory of process `pid` from `remote_addr` on into `local`, and returns how many bytes were copied.
///
/// Fewer bytes than asked for are copied when a later page is not mapped.
///
/// # Errors
/// EFAULT: not even the first page is mapped. EPERM: no right to trace that process. ESRCH: it has gone.
#[doc(alias = "process_vm_readv")]
pub fn read_memory(pid: Pid, remote_addr: usize, local: &mut [u8]) -> Result<usize> {
    // SAFETY: the bytes are borrowed exclusively during the call.
    unsafe { Span::new(local.as_mut_ptr(), local.len()).read_process(pid, remote_addr) }
}

/// Copies `local` into the memory of process `pid` from `remote_addr` on, and returns how many bytes were copied.
///
/// This process is refused: its memory belongs to its Rust values.
///
/// # Errors
/// As [`read_memory`]; EFAULT also where the memory is not writable, EINVAL for this process.
#[doc(alias = "process_vm_writev")]
pub fn write_memory(pid: Pid, remote_addr: usize, local: &[u8]) -> Result<usize> {
    // SAFETY: the bytes are only loaded, and borrowed during the call.
    unsafe { Span::new(local.as_ptr().cast_mut(), local.len()).write_process(pid, remote_addr) }
}

/// Refuses a `pid` of this process, so that the kernel never stores into this process's own memory.
pub(crate) fn refuse_own(pid: Pid, addr: usize, len: usize) -> Result<()> {
    if is_own(pid) {
        let subject = format!("{len} bytes at {addr:#x} of process {pid}");
        return Err(Error::new("process_vm_writev", subject, Errno::INVAL)
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

#[cfg(test)]
mod tests;
