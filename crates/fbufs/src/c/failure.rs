//! Failures: what a call returns, `errno`, and the sentence that says what was wrong.

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::{Error, Unwritten};

/// Why a call fails.
#[derive(Debug)]
pub(crate) struct Failure {
    errno: c_int,
    sentence: String,
}

impl Failure {
    pub(crate) fn new(errno: c_int, sentence: impl Into<String>) -> Self {
        Self { errno, sentence: sentence.into() }
    }

    /// The caller has used the interface wrongly.
    pub(crate) fn misuse(sentence: impl Into<String>) -> Self {
        Self::new(libc::EINVAL, sentence)
    }

    /// A pointer to what the call needs is null.
    pub(crate) fn null(what: &str) -> Self {
        Self::new(libc::EFAULT, format!("the pointer to {what} is null"))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self { errno: error.errno().raw_os_error(), sentence: error.to_string() }
    }
}

impl From<genie_sys::Error> for Failure {
    fn from(error: genie_sys::Error) -> Self {
        Error::from(error).into()
    }
}

impl From<Box<Unwritten>> for Failure {
    fn from(unwritten: Box<Unwritten>) -> Self {
        unwritten.error.into()
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Runs a call; returns `failed`, and sets `errno` and the sentence, where it fails.
pub(crate) fn call<T>(failed: T, act: impl FnOnce() -> Result<T, Failure>) -> T {
    let result = catch_unwind(AssertUnwindSafe(act)).unwrap_or_else(|_| {
        Err(Failure::new(libc::ENOTRECOVERABLE, "a defect of libfbufs, reported on standard error"))
    });
    result.unwrap_or_else(|failure| {
        fail(&failure);
        failed
    })
}

/// Sets `errno` and the sentence.
#[cold]
pub(crate) fn fail(failure: &Failure) {
    // A thread that is ending has no sentence any more.
    let _ = LAST.try_with(|last| last.replace(text(&failure.sentence)));
    // SAFETY: the C library gives each thread its own errno.
    unsafe { *libc::__errno_location() = failure.errno };
}

/// A sentence for C, without zeros inside.
pub(crate) fn text(sentence: &str) -> CString {
    CString::new(sentence.replace('\0', "")).unwrap_or_default()
}

/// Gives the sentence about this thread's last failure: what was wrong, and what to do about it. It is valid until the thread's next
/// failure, and empty if there was none.
#[unsafe(no_mangle)]
pub extern "C" fn uf_error_text() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}
