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
    /// The code is the error's number ([`Error::errno`]), so that the client of a server that asks another one learns what came of that.
    /// It is 0 for this server's own mistakes, as `EINVAL` would call the client's call wrong, and where the server's code, or the other
    /// server's, has failed without a number: the client gets `EREMOTEIO` for 0.
    fn from(error: Error) -> Self {
        use genie_passing::Error::{Integrity, TooLong};
        // What another server says is passed on as it is.
        if let Error::Server(error) = error {
            return error;
        }
        let code = match &error {
            Error::Unmapped { .. }
            | Error::ReadyAlready { .. }
            | Error::Kept { .. }
            | Error::Backwards { .. } => 0,
            Error::Passing(TooLong { .. } | Integrity { .. }) => 0,
            Error::Dropped | Error::Panicked { .. } | Error::Untold { .. } => 0,
            error => error.errno(),
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

    /// Errors of all kinds that have a number of their own.
    fn numbered() -> Vec<Error> {
        let (server, why, timeout) = (|| "letters".to_owned(), String::new, Duration::from_millis(1));
        let memory = genie_memory::Error::Limit { asked: 2, used: 0, limit: 1 };
        let direction = genie_memory::Direction::In;
        vec![
            Error::Inherited,
            Error::NoSuchService { server: server(), service: 1, count: 1 },
            Error::UnknownService { server: server(), service: why(), services: why() },
            Error::OtherInterface { server: server() },
            Error::MayNotWait,
            Error::TooLarge { asked: 2, limit: 1 },
            Error::Exhausted { asked: 2, pending: 0, limit: 1 },
            Error::TooMany { pending: 1, limit: 1 },
            Error::ChannelFull { pending: 1 },
            Error::NoRoom { asked: 2, used: 0, limit: 1, unit: "bytes of data" },
            Error::HardLimit { what: "bytes", asked: 2, hard: 1 },
            Error::TimedOut { timeout },
            Error::Aborted,
            Error::ArgumentTooLong { len: 2, room: 1 },
            Error::KeptTooMuch { asked: 2, kept: 0, limit: 1, option: "ServeOptions::kept" },
            Error::NoSuchBuffer { index: 0, direction, is_other: false },
            Error::NoSuchElement { buffer: 0, element: 1, count: 1 },
            Error::NoServer { server: server(), why: why() },
            Error::Refused { server: server(), why: why() },
            Error::Busy { server: server(), why: why() },
            Error::gone("letters", "it hung up"),
            Error::gone("letters", "it hung up").unasked(),
            Error::Stopped { server: server() },
            Error::TooDeep { limit: 1 },
            Error::Silent { server: server(), timeout },
            Error::Elsewhere { addr: 0, len: 1 },
            Error::Unforwardable { server: server(), len: 1, why: "it is elsewhere" },
            Error::TooManyParts { len: 2, max: 1 },
            Error::TooManyDestinations { given: 2, inputs: 1 },
            Error::Directory { path: std::path::PathBuf::new(), why: why(), remedy: "" },
            Error::BadName { name: why(), why: "it is empty" },
            Error::Running { server: server(), pid: None },
            Error::Unservable { part: why(), why: why() },
            Error::Uncarriable { what: "buffers", count: 2, max: 1 },
            memory.into(),
            genie_sys::Error::new("open", "a file", Errno::MFILE).into(),
            genie_passing::Error::Outboard { message: why() }.into(),
            Error::Server(ServerError { code: 28, message: why() }),
        ]
    }

    /// Once, a client could not tell that the server behind was away (`NoServer`), or silent, from a panic.
    #[test]
    fn a_client_gets_the_number_of_each_error_that_a_server_replies_with() {
        for error in numbered() {
            let errno = error.errno();
            let sent = ServerError::from(error.clone());
            assert_eq!((sent.code, Error::Server(sent).errno()), (errno, errno), "{error}");
        }
    }

    #[test]
    fn a_servers_own_failures_have_no_code() {
        for error in [
            Error::Unmapped { service: 0, access: "read" },
            Error::ReadyAlready { buffer: 0, element: 0 },
            Error::Kept { buffer: 0 },
            Error::Backwards { come: 2, actual: 1 },
            genie_passing::Error::TooLong { actual: 2, len: 1 }.into(),
            Error::Dropped,
            Error::Panicked { message: String::new() },
            Error::Untold { buffer: 0 },
            Error::Server("it is closed".into()),
        ] {
            let sent = ServerError::from(error.clone());
            let remote = Errno::REMOTEIO.raw_os_error();
            assert_eq!((sent.code, Error::Server(sent).errno()), (0, remote), "{error}");
        }
    }

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
