//! What errors are made of, and what is made of them.

use genie_sys::Errno;

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
    /// The number by which a C program learns of the error: `EAGAIN` where only too much is pending, say, and a server's own code.
    pub fn errno(&self) -> i32 {
        let errno = match self {
            Self::NoServer { .. } | Self::UnknownService { .. } => Errno::NOENT,
            Self::Refused { .. } | Self::Directory { .. } => Errno::ACCESS,
            Self::Busy { .. } => Errno::BUSY,
            Self::Running { .. } => Errno::ADDRINUSE,
            Self::Silent { .. } => Errno::HOSTDOWN,
            Self::TimedOut { .. } => Errno::TIMEDOUT,
            Self::Aborted | Self::Stopped { .. } => Errno::CANCELED,
            Self::Gone { asked: true, .. } => Errno::CONNRESET,
            Self::Gone { asked: false, .. } => Errno::PIPE,
            Self::Inherited => Errno::CHILD,
            Self::ArgumentTooLong { .. } => Errno::MSGSIZE,
            Self::KeptTooMuch { .. } => Errno::DQUOT,
            Self::Server(error) if error.code > 0 => return error.code,
            Self::MayNotWait => Errno::DEADLK,
            Self::Server(_) | Self::Dropped | Self::Panicked { .. } | Self::Untold { .. } => Errno::REMOTEIO,
            error if error.is_congestion() => Errno::AGAIN,
            error if error.is_misuse() => Errno::INVAL,
            Self::Passing(genie_passing::Error::TooLong { .. } | genie_passing::Error::Integrity { .. }) => {
                Errno::INVAL
            }
            Self::Passing(genie_passing::Error::Memory(error)) => match error {
                genie_memory::Error::Kernel(error) | genie_memory::Error::AddressLimit(error) => error.errno,
                genie_memory::Error::Limit { .. } | genie_memory::Error::Addresses { .. } => Errno::NOMEM,
                _ => Errno::IO,
            },
            _ => Errno::IO,
        };
        errno.raw_os_error()
    }

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
            Error::Aborted | Error::Stopped { .. } => Kind::ConnectionAborted,
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

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::time::Duration;

    use super::*;
    use crate::ServerError;

    #[test]
    fn errors_have_the_kinds_of_the_standard_library() {
        let server = || "letters".to_owned();
        let timeout = Duration::from_millis(1);
        let no_entry = ServerError { code: 2, message: "no such page".to_owned() };
        for (error, kind) in [
            (Error::NoServer { server: server(), why: String::new() }, ErrorKind::NotFound),
            (Error::Refused { server: server(), why: String::new() }, ErrorKind::PermissionDenied),
            (Error::gone("letters", "it hung up"), ErrorKind::ConnectionReset),
            (Error::TimedOut { timeout }, ErrorKind::TimedOut),
            (Error::TooMany { pending: 1, limit: 1 }, ErrorKind::WouldBlock),
            (Error::Busy { server: server(), why: String::new() }, ErrorKind::WouldBlock),
            (Error::ArgumentTooLong { len: 2, room: 1 }, ErrorKind::InvalidInput),
            (
                Error::Server(Error::HardLimit { what: "bytes", asked: 2, hard: 1 }.into()),
                ErrorKind::InvalidInput,
            ),
            (Error::Server(no_entry), ErrorKind::NotFound),
            (Error::Server("it is closed".into()), ErrorKind::Other),
        ] {
            let of_std = std::io::Error::from(error.clone());
            assert_eq!((of_std.kind(), of_std.to_string()), (kind, error.to_string()));
        }
    }

    #[test]
    fn a_failed_request_can_be_returned_as_its_error() {
        let send = || Err::<(), _>(Failed::from(Error::Aborted));
        let client = || -> Result<(), Error> { Ok(send()?) };
        assert_eq!(client(), Err(Error::Aborted));
        let client = || -> std::io::Result<()> { Ok(send()?) };
        assert_eq!(client().unwrap_err().kind(), ErrorKind::ConnectionAborted);
    }

    #[test]
    fn errors_have_numbers_for_c() {
        let limit = genie_memory::Error::Limit { asked: 2, used: 0, limit: 1 };
        for (error, errno) in [
            (limit.into(), Errno::NOMEM),
            (Error::gone("letters", "it hung up").unasked(), Errno::PIPE),
            (Error::TooMany { pending: 1, limit: 1 }, Errno::AGAIN),
            (Error::ArgumentTooLong { len: 2, room: 1 }, Errno::MSGSIZE),
            (Error::Running { server: "letters".to_owned(), pid: None }, Errno::ADDRINUSE),
            (Error::Uncarriable { what: "buffers", count: 2, max: 1 }, Errno::INVAL),
            (Error::Server("it is closed".into()), Errno::REMOTEIO),
            (Error::MayNotWait, Errno::DEADLK),
            (Error::Untold { buffer: 1 }, Errno::REMOTEIO),
            (Error::Kept { buffer: 1 }, Errno::INVAL),
            (Error::Server(ServerError { code: 28, message: String::new() }), Errno::NOSPC),
        ] {
            assert_eq!(error.errno(), errno.raw_os_error(), "{error}");
        }
    }
}
