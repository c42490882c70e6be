//! What servers say of a request that they could not serve.

use genie_sys::Errno;

use crate::Error;

/// What a server says when it cannot do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[error("{message}")]
pub struct ServerError {
    /// An errno, where one fits; else 0.
    pub code: i32,
    /// A sentence for an operator.
    pub message: String,
}

impl ServerError {
    /// Makes an error without a code.
    pub fn new(message: impl Into<String>) -> Self {
        Self { code: 0, message: message.into() }
    }

    /// Says that the client's call was wrong, by the code of `EINVAL`: the client finds [`Error::is_misuse`] true.
    pub fn misuse(message: impl Into<String>) -> Self {
        Self { code: Errno::INVAL.raw_os_error(), message: message.into() }
    }
}

impl From<&str> for ServerError {
    fn from(message: &str) -> Self {
        Self::new(message)
    }
}

impl From<String> for ServerError {
    fn from(message: String) -> Self {
        Self::new(message)
    }
}

impl From<Error> for ServerError {
    /// If the client's call was wrong, the code is that of `EINVAL`; if it made too little room for the argument, of `EMSGSIZE`. Of a
    /// server that may keep no more ([`Error::KeptTooMuch`]), the client learns by `EDQUOT`. Of a
    /// server that asks another one, the client learns what came of that by its number ([`Error::errno`]): that the other server is
    /// gone, did not reply in time, or has too much pending; that this one would have waited for it in a continuation that may not wait; and
    /// the other server's own code. What else went wrong has no code.
    fn from(error: Error) -> Self {
        let code = match &error {
            // The server's own mistake.
            Error::Unmapped { .. } | Error::ReadyAlready { .. } | Error::Kept { .. } => 0,
            Error::Server(error) => error.code,
            Error::ArgumentTooLong { .. }
            | Error::KeptTooMuch { .. }
            | Error::Gone { .. }
            | Error::TimedOut { .. }
            | Error::MayNotWait
            | Error::Aborted => error.errno(),
            error if error.is_congestion() => error.errno(),
            error if error.is_misuse() => Errno::INVAL.raw_os_error(),
            _ => 0,
        };
        Self { code, message: error.to_string() }
    }
}

impl From<std::io::Error> for ServerError {
    fn from(error: std::io::Error) -> Self {
        Self { code: error.raw_os_error().unwrap_or_default(), message: error.to_string() }
    }
}

impl From<genie_sys::Error> for ServerError {
    fn from(error: genie_sys::Error) -> Self {
        Self { code: error.errno.raw_os_error(), message: error.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::time::Duration;

    use super::*;

    /// Once, all of these had no code.
    #[test]
    fn a_server_that_asks_another_one_passes_on_what_kind_of_error_came() {
        let full = || ServerError { code: 28, message: "the disk is full".to_owned() };
        for (error, kind) in [
            (Error::gone("letters", "it hung up"), ErrorKind::ConnectionReset),
            (Error::TimedOut { timeout: Duration::from_millis(1) }, ErrorKind::TimedOut),
            (Error::TooMany { pending: 1, limit: 1 }, ErrorKind::WouldBlock),
            (Error::Busy { server: "letters".to_owned(), why: String::new() }, ErrorKind::ResourceBusy),
            (Error::Server(full()), ErrorKind::StorageFull),
            (
                Error::NoSuchBuffer { index: 0, direction: genie_memory::Direction::In, is_other: false },
                ErrorKind::InvalidInput,
            ),
            (Error::Unmapped { service: 0, access: "read" }, ErrorKind::Other),
            (Error::Kept { buffer: 0 }, ErrorKind::Other),
            (
                Error::KeptTooMuch { asked: 2, kept: 0, limit: 1, option: "ServeOptions::kept" },
                ErrorKind::QuotaExceeded,
            ),
            (Error::Dropped, ErrorKind::Other),
        ] {
            let (errno, said) = (error.errno(), error.to_string());
            let at_client = Error::Server(ServerError::from(error));
            assert!(at_client.to_string().contains(&said), "{at_client}");
            if kind != ErrorKind::Other {
                assert_eq!(at_client.errno(), errno, "{said}");
            }
            assert_eq!(std::io::Error::from(at_client).kind(), kind, "{said}");
        }
    }
}
