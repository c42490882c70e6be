#![allow(unsafe_code, reason = "runs in a signal handler, where it calls only what is safe there")]
//! The handler of SIGBUS.
//!
//! Invariants: no allocation, no lock, no panic; when the interrupted code goes on, errno is as it was before.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use super::{Loss, break_guard_of};
use crate::{Error, GranuleKind, Result};

/// What SIGBUS did before.
static PREVIOUS: AtomicPtr<libc::sigaction> = AtomicPtr::new(null_mut());

type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);
type OldHandler = extern "C" fn(c_int);

/// Installs the handler, once. Threads do not wait for each other: one that has begun may be missing in a child made by fork.
pub(super) fn install() -> Result<()> {
    static IS_INSTALLED: AtomicBool = AtomicBool::new(false);
    if IS_INSTALLED.load(Ordering::Acquire) {
        return Ok(());
    }
    // SAFETY: all zeros are a valid sigaction: the default action, no flags, an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // The old action must be known before the new handler can run.
    let mut previous = action;
    set_action(None, Some(&mut previous))?;
    let handler = on_bus_error as Handler as usize;
    // Another thread has been faster, or had been in the process that this one was forked from.
    if previous.sa_sigaction != handler {
        PREVIOUS.store(Box::into_raw(Box::new(previous)), Ordering::Release);
        action.sa_sigaction = handler;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
        set_action(Some(&action), None)?;
    }
    IS_INSTALLED.store(true, Ordering::Release);
    Ok(())
}

/// Sets what SIGBUS does, returns what it did before, or both.
fn set_action(new: Option<&libc::sigaction>, old: Option<&mut libc::sigaction>) -> Result<()> {
    let new = new.map_or(std::ptr::null(), std::ptr::from_ref);
    let old = old.map_or(null_mut(), std::ptr::from_mut);
    // SAFETY: both are null or valid; the only handler that is ever installed is `on_bus_error`, made for it.
    if unsafe { libc::sigaction(libc::SIGBUS, new, old) } == 0 {
        return Ok(());
    }
    Err(Error::last("sigaction", "SIGBUS"))
}

extern "C" fn on_bus_error(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the calling thread's errno, whose address never changes; `info` is the kernel's, valid until the return.
    unsafe {
        let errno = libc::__errno_location();
        let interrupted = *errno;
        if !is_repaired(&*info) {
            call_previous(signal, info, context);
        }
        *errno = interrupted;
    }
}

/// Puts zeros where memory is missing, if the place is in a guarded arena.
fn is_repaired(info: &libc::siginfo_t) -> bool {
    let Some(loss) = loss(info.si_code) else { return false };
    // SAFETY: with these codes the address is what the kernel filled in.
    let addr = unsafe { info.si_addr() } as usize;
    break_guard_of(addr, loss)
        && match put_zeros(addr, GranuleKind::Base.size()) {
            // In a mapping of huge pages the kernel cannot replace less than one huge page. After any other error, the
            // small pages around the missing one must stay as they are.
            Err(libc::EINVAL) => put_zeros(addr, GranuleKind::Huge.size()).is_ok(),
            result => result.is_ok(),
        }
}

/// What a code of SIGBUS says of the memory that was touched. The other codes name no failed touch, or no place: whoever
/// sends the signal can put any number there.
fn loss(code: c_int) -> Option<Loss> {
    match code {
        libc::BUS_ADRERR => Some(Loss::Missing),
        libc::BUS_MCEERR_AR => Some(Loss::Damaged),
        _ => None,
    }
}

/// Whether the signal came without a touch, and so does not come again by itself: somebody sent it, or the machine has
/// reported damaged memory that nobody has touched yet.
fn is_sent(code: c_int) -> bool {
    code <= 0 || code == libc::BUS_MCEERR_AO
}

/// Maps zeros over the `len` bytes, a power of two, that hold `addr`; or returns the kernel's error number.
fn put_zeros(addr: usize, len: usize) -> std::result::Result<(), c_int> {
    let start = std::ptr::with_exposed_provenance_mut(addr & !(len - 1));
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
    // SAFETY: the address is in an arena, whose bounds are multiples of the largest `len`, so that the range is, too; the
    // arena's addresses are its own, and exist, since somebody touches them. The error number is the calling thread's.
    unsafe {
        let mapped = libc::mmap(start, len, rights, flags, -1, 0);
        if mapped == libc::MAP_FAILED {
            return Err(*libc::__errno_location());
        }
        // As for all of an arena. This cannot fail where a mapping could be made.
        libc::madvise(mapped, len, libc::MADV_DONTFORK);
    }
    Ok(())
}

/// Does what would have happened without this handler.
///
/// # Safety
/// The arguments are those of a signal handler.
unsafe fn call_previous(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: a handler that sigaction returned is called as its flags say; `info` is the kernel's.
    unsafe {
        let is_sent = is_sent((*info).si_code);
        // What it points to is never freed.
        match PREVIOUS.load(Ordering::Acquire).as_ref() {
            Some(old) if old.sa_sigaction != libc::SIG_DFL && old.sa_sigaction != libc::SIG_IGN => {
                if old.sa_flags & libc::SA_SIGINFO == 0 {
                    std::mem::transmute::<usize, OldHandler>(old.sa_sigaction)(signal);
                } else {
                    std::mem::transmute::<usize, Handler>(old.sa_sigaction)(signal, info, context);
                }
            }
            Some(old) if is_sent && old.sa_sigaction == libc::SIG_IGN => {}
            _ => die(signal, is_sent),
        }
    }
}

/// Lets the default action end the process, either when the touch is repeated after the return, or by sending the
/// signal again.
fn die(signal: c_int, is_sent: bool) {
    // SAFETY: both calls are safe in a signal handler; all zeros are the default action.
    unsafe {
        let default: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, &raw const default, null_mut());
        if is_sent {
            libc::raise(signal);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_codes_of_a_touch_that_failed_tell_of_a_loss() {
        assert_eq!(loss(libc::BUS_ADRERR), Some(Loss::Missing));
        assert_eq!(loss(libc::BUS_MCEERR_AR), Some(Loss::Damaged));
        for other in [libc::BUS_MCEERR_AO, libc::BUS_ADRALN, libc::BUS_OBJERR, libc::SI_USER, libc::SI_QUEUE]
        {
            assert_eq!(loss(other), None, "code {other}");
        }
    }

    #[test]
    fn damage_that_nobody_has_touched_does_not_report_itself_again() {
        assert!([libc::BUS_MCEERR_AO, libc::SI_USER, libc::SI_TKILL].into_iter().all(is_sent));
        assert!(![libc::BUS_MCEERR_AR, libc::BUS_ADRERR, libc::BUS_ADRALN].into_iter().any(is_sent));
    }
}
