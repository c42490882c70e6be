//! What errors are made of, and what is made of them.

use super::{Error, Failed};

impl From<genie_memory::Error> for Error {
    fn from(error: genie_memory::Error) -> Self {
        match error {
            genie_memory::Error::Inherited => Self::Inherited,
            error => Self::Passing(error.into()),
        }
    }
}

impl From<genie_sys::Error> for Error {
    fn from(error: genie_sys::Error) -> Self {
        genie_memory::Error::Kernel(error).into()
    }
}

impl Error {
    /// Refuses `actual` bytes where there are no more than `len`.
    #[inline]
    pub(crate) fn check_len(actual: usize, len: usize) -> Result<(), Self> {
        match actual > len {
            true => Err(genie_passing::Error::TooLong { actual, len }.into()),
            false => Ok(()),
        }
    }
}

/// The same with the kind that fits, for functions that return the standard library's error.
impl From<Error> for std::io::Error {
    fn from(error: Error) -> Self {
        use std::io::ErrorKind as Kind;
        let kind = match &error {
            Error::NoServer { .. } => Kind::NotFound,
            Error::Refused { .. } => Kind::PermissionDenied,
            Error::Gone { .. } | Error::Dropped => Kind::ConnectionReset,
            Error::Aborted => Kind::ConnectionAborted,
            Error::Running { .. } => Kind::AddrInUse,
            Error::TimedOut { .. } | Error::Silent { .. } => Kind::TimedOut,
            Error::Server(error) if error.code != 0 => Self::from_raw_os_error(error.code).kind(),
            error if error.is_misuse() => Kind::InvalidInput,
            error if error.is_congestion() => Kind::WouldBlock,
            _ => Kind::Other,
        };
        Self::new(kind, error)
    }
}

/// Drops the buffers that came back.
impl From<Failed> for std::io::Error {
    fn from(failed: Failed) -> Self {
        failed.error.into()
    }
}

impl From<Failed> for Error {
    /// Drops the buffers that came back.
    fn from(failed: Failed) -> Self {
        failed.error
    }
}
