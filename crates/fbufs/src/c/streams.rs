//! Streams: the C library's input and output (stdio) over this library's descriptors.
//!
//! Why: a program that reads lines and prints needs no change but the call that opens its stream.
//! How: the C library has a buffer of its own in front of each stream. What it wants to have written is copied into an fbuf, which
//! is passed on; what it wants to read is copied from the fbuf that has come. Over a channel, that one copy on each side is all:
//! no system call unless somebody has to be woken.
//! Source: SMLI TR-95-39 §7 (stdio over fbufs, planned there).

use std::ffi::{c_char, c_int, c_void};

use libc::{FILE, off64_t, ssize_t};

use crate::Fbuf;
use crate::c::calls::{pass_on, read};
use crate::c::channels::uf_close;
use crate::c::failure::{Failure, call, fail};
use crate::c::process::{Process, kernels};

/// The longest fbuf that is written at once.
const MOST: usize = 256 << 10;

/// What a stream has.
#[derive(Debug)]
struct Stream {
    /// The stream's from `uf_fdopen` to `fclose`, by the program's promise.
    fd: c_int,
    /// What was read and not yet taken.
    rest: Option<Fbuf>,
    taken: usize,
}

/// As the C library declares it.
#[repr(C)]
struct CookieFunctions {
    read: Option<unsafe extern "C" fn(*mut c_void, *mut c_char, usize) -> ssize_t>,
    write: Option<unsafe extern "C" fn(*mut c_void, *const c_char, usize) -> ssize_t>,
    seek: Option<unsafe extern "C" fn(*mut c_void, *mut off64_t, c_int) -> c_int>,
    close: Option<unsafe extern "C" fn(*mut c_void) -> c_int>,
}

unsafe extern "C" {
    fn fopencookie(cookie: *mut c_void, mode: *const c_char, functions: CookieFunctions) -> *mut FILE;
}

/// Opens a stream of the C library's over a descriptor, of this library or of the kernel's, as fdopen does: reading from it takes fbufs,
/// and writing to it passes fbufs on. fclose closes the descriptor. The stream cannot be sought in, and fileno has no number for it. A
/// pipe that was taken over before (uf_take_over) passes fbufs, too; uf_fdopen takes none over by itself.
/// Let the descriptor wait: where it does not, what has no room is lost from the stream's buffer, as from those of fdopen, and fwrite and
/// fflush fail (EAGAIN); fwrite without a buffer (setvbuf) says how much was written.
///
/// Returns the stream, or NULL with errno set.
///
/// Errors: EINVAL (mode is none of fopen's), EFAULT (it is NULL), EBADF, ENOMEM.
///
/// Pointers: mode points to a string, or is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uf_fdopen(fd: c_int, mode: *const c_char) -> *mut FILE {
    call(std::ptr::null_mut(), || {
        if mode.is_null() {
            return Err(Failure::null("the mode"));
        }
        let process = Process::current()?;
        if process.descriptor(fd)?.is_none() {
            // SAFETY: the caller's descriptor.
            crate::explain(unsafe { kernels(fd) }?)?;
        }
        let stream = Box::into_raw(Box::new(Stream { fd, rest: None, taken: 0 })).cast();
        let functions =
            CookieFunctions { read: Some(take), write: Some(put), seek: None, close: Some(close) };
        // SAFETY: a stream of this file's, functions for such, and the caller's string.
        let file = unsafe { fopencookie(stream, mode, functions) };
        if file.is_null() {
            let error = std::io::Error::last_os_error();
            // SAFETY: made above, and nobody has it.
            drop(unsafe { Box::from_raw(stream.cast::<Stream>()) });
            return Err(Failure::new(
                error.raw_os_error().unwrap_or(libc::EIO),
                format!("no stream: {error}; the mode is one of fopen's"),
            ));
        }
        Ok(file)
    })
}

/// # Safety
/// The C library calls this, one call at a time, with a stream of this file's and room for `size` bytes.
unsafe extern "C" fn take(stream: *mut c_void, bytes: *mut c_char, size: usize) -> ssize_t {
    call(-1, || {
        // SAFETY: the C library's promise.
        let stream = unsafe { &mut *stream.cast::<Stream>() };
        let Some(rest) = stream.rest()? else { return Ok(0) };
        let count = size.min(rest.len());
        // SAFETY: the C library's promise; its room is in no fbuf.
        unsafe { bytes.cast::<u8>().copy_from_nonoverlapping(rest.as_ptr(), count) };
        stream.take(count);
        Ok(count as ssize_t)
    })
}

/// # Safety
/// As [`take`], with `size` bytes to be written.
unsafe extern "C" fn put(stream: *mut c_void, bytes: *const c_char, size: usize) -> ssize_t {
    // A failure is fewer bytes, or none.
    call(0, || {
        // SAFETY: the C library's promise.
        let (stream, bytes) =
            unsafe { (&*stream.cast::<Stream>(), std::slice::from_raw_parts(bytes.cast::<u8>(), size)) };
        let process = Process::current()?;
        let mut written = 0;
        while written < size {
            // SAFETY: the stream's descriptor.
            match unsafe { pass_on(process, stream.fd, &bytes[written..size.min(written + MOST)]) } {
                Ok(count) => written += count,
                // With errno, too: the bytes before are written.
                Err(failure) => {
                    fail(&failure);
                    break;
                }
            }
        }
        Ok(written as ssize_t)
    })
}

/// # Safety
/// As [`take`], once, as the last call.
unsafe extern "C" fn close(stream: *mut c_void) -> c_int {
    // SAFETY: the C library's promise; it was made by `uf_fdopen`.
    let stream = unsafe { Box::from_raw(stream.cast::<Stream>()) };
    // SAFETY: the stream's descriptor.
    unsafe { uf_close(stream.fd) }
}

impl Stream {
    /// What there is to read; nothing at the end.
    fn rest(&mut self) -> Result<Option<&[u8]>, Failure> {
        if self.rest.is_none() {
            // SAFETY: the stream's descriptor.
            (self.rest, self.taken) = (unsafe { read(Process::current()?, self.fd, usize::MAX) }?, 0);
        }
        let Some(rest) = &self.rest else { return Ok(None) };
        // A child has zeros there.
        rest.ensure_own()?;
        Ok(Some(&rest[self.taken..]))
    }

    fn take(&mut self, count: usize) {
        self.taken += count;
        self.rest = self.rest.take().filter(|rest| self.taken < rest.len());
    }
}
