//! Which pool this process's buffers are of, and what that is like.

use std::ffi::{CStr, c_char, c_int};

use crate::c::failure::{Failure, call};
use crate::c::process::Process;
use crate::{Config, Pool};

/// What a pool is to be like. A zero stands for the usual value.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// The most bytes of fbufs of all processes that share the pool; 256 MiB. It counts for whoever makes the pool.
    pub limit: usize,
    /// The most bytes of fbufs that this process may hold; as many as the limit.
    pub quota: usize,
    /// Bytes of free fbufs that keep their memory; 32 MiB.
    pub keep: usize,
    /// The most bytes of fbufs that are locked into memory for this process; none.
    pub locked: usize,
    /// The most bytes of fbufs held by this process that are locked; as many as may be locked.
    pub held_locked: usize,
    /// Whether a touch of an fbuf that the program does not have any more is trapped (SIGSEGV): 1, or 0. For debugging: it costs two
    /// system calls for each fbuf. GENIE_FBUFS_TRAPS=1 in the environment does the same.
    pub traps: c_int,
}

/// Says what this process's pool is to be like; before the first call that needs the pool. A pool that is not configured has the
/// usual values.
///
/// Returns 0, or -1 with errno set.
///
/// Errors: EBUSY (the process has its pool already), EFAULT (settings is NULL).
///
/// Pointers: settings points to the settings, or is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uf_configure(settings: *const Settings) -> c_int {
    call(-1, || {
        // SAFETY: null, or the caller's settings.
        let settings = unsafe { settings.as_ref() }.ok_or_else(|| Failure::null("the settings"))?;
        let process = Process::current()?;
        let _deciding = process.deciding.lock();
        if process.has_pool() {
            return Err(Failure::new(
                libc::EBUSY,
                "the process has its pool already: configure before the first call",
            ));
        }
        let usual = Config::of_environment();
        let or_usual = |asked: usize, usual: usize| if asked == 0 { usual } else { asked };
        Pool::configure_process(Config {
            limit: or_usual(settings.limit, usual.limit),
            quota: or_usual(settings.quota, usual.quota),
            keep: or_usual(settings.keep, usual.keep),
            locked: settings.locked,
            held_locked: or_usual(settings.held_locked, usual.held_locked),
            traps: settings.traps != 0 || usual.traps,
            ..usual
        });
        Ok(0)
    })
}

/// Joins the group of this name, of processes of the same user, or founds it: this process's fbufs are of the group's pool from now
/// on, and uf_listen and uf_connect make channels with its other processes. Fbufs that the process has already stay what they are.
/// A process that exits leaves its groups, and its fbufs go back to the pool.
///
/// A group that the process is in already is not joined again; its fbufs are of that group's pool from now on.
///
/// Returns 0, or -1 with errno set.
///
/// Errors: EINVAL (the name is not 1 to 64 of A-Z a-z 0-9 . _ - with no dot in front; the directory of names is not the user's alone;
/// members do not answer for 10 seconds, since they are stopped or lack descriptors), ENAMETOOLONG (directory and name have more than
/// 107 bytes), EUSERS (the group has its 64 processes), EFAULT (name is NULL), EAGAIN (no thread can be made), ENOMEM, EMFILE.
///
/// Pointers: name points to a string, or is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uf_join(name: *const c_char) -> c_int {
    call(-1, || {
        if name.is_null() {
            return Err(Failure::null("the group's name"));
        }
        // SAFETY: not null, and the caller has promised a string.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
        Process::current()?.join(&name).map(|()| 0)
    })
}
