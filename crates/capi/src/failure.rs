//! Failures: what a call returns, `errno`, and the sentence that says what was wrong.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use genie_io::{Error, Failed};

/// Why a call fails.
#[derive(Debug)]
pub(crate) struct Failure {
    errno: c_int,
    sentence: String,
    /// The server has gone, and was never asked.
    pub(crate) is_unasked: bool,
}

impl Failure {
    /// Cold, so that what leads here is out of the way of calls that succeed.
    #[cold]
    pub(crate) fn new(errno: c_int, sentence: impl Into<String>) -> Self {
        Self { errno, sentence: sentence.into(), is_unasked: false }
    }

    /// The caller has used the interface wrongly.
    #[cold]
    pub(crate) fn misuse(sentence: impl Into<String>) -> Self {
        Self::new(libc::EINVAL, sentence)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let is_unasked = matches!(error, Error::Gone { asked: false, .. });
        Self { errno: error.errno(), sentence: error.to_string(), is_unasked }
    }
}

impl From<Failed> for Failure {
    fn from(failed: Failed) -> Self {
        failed.error.into()
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Runs a call; makes its result what C gets.
pub(crate) fn call(act: impl FnOnce() -> Result<c_int, Failure>) -> c_int {
    let result = catch_unwind(AssertUnwindSafe(act)).unwrap_or_else(|_| {
        Err(Failure::new(libc::ENOTRECOVERABLE, "a defect of Genie's, reported on standard error"))
    });
    result.unwrap_or_else(|failure| fail(&failure))
}

/// Sets `errno` and the sentence; returns -1.
#[cold]
pub(crate) fn fail(failure: &Failure) -> c_int {
    let sentence: Vec<u8> = failure.sentence.bytes().filter(|byte| *byte != 0).collect();
    let sentence = CString::new(sentence).unwrap_or_default();
    // A thread that is ending has no sentence any more.
    let _ = LAST.try_with(|last| last.replace(sentence));
    // SAFETY: the C library gives each thread its own errno.
    unsafe { *libc::__errno_location() = failure.errno };
    -1
}

/// Gives the sentence about this thread's last failure: what was wrong, and what to do about it. It is valid until the thread's next
/// failure, and empty if there was none.
#[unsafe(no_mangle)]
pub extern "C" fn io_error_text() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// What an errno means when a call of this library has set it, in some words that are always valid. `strerror` says what it means
/// elsewhere, and io_error_text says more.
#[unsafe(no_mangle)]
pub extern "C" fn io_strerror(error: c_int) -> *const c_char {
    let text: &CStr = match error {
        0 => c"no error",
        libc::ENOENT => c"there is no server or service of that name",
        libc::EACCES => c"the server refuses: rights, limits or versions are in the way",
        libc::EBUSY => c"the server has no room for another client, or a request still uses the buffer",
        libc::EADDRINUSE => c"another process serves under that name",
        libc::EHOSTDOWN => c"the server does not answer; it may be stopped",
        libc::ETIMEDOUT => c"no reply came in time, and the request was aborted",
        libc::ECANCELED => c"the request was aborted",
        libc::ECONNRESET => c"the server has ended; whether it has done what was asked is not known",
        libc::EPIPE => c"the server has ended; it was not asked",
        libc::ECHILD => c"the handle is that of the parent process; open and connect anew after fork",
        libc::EMSGSIZE => c"the reply's argument is longer than the room that was made for it",
        libc::EREMOTEIO => c"the server's code failed",
        libc::EAGAIN => c"too much is pending; the same may succeed later",
        libc::EINVAL => c"the call was wrong",
        libc::EBADF => {
            c"there is no such interface, server, request, pool, buffer or pin; perhaps it is over"
        }
        libc::EFAULT => c"the address is not that of a buffer of the library's",
        libc::ENOMEM => c"there is no memory",
        libc::EMFILE => c"there are no descriptors left: raise the limit on open files",
        libc::ENOTRECOVERABLE => c"a defect of the library's",
        _ => c"another error: see io_error_text",
    };
    text.as_ptr()
}
