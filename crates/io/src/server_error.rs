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
    /// If the client's call was wrong, the code is that of `EINVAL`; if it made too little room for the argument, of `EMSGSIZE`.
    fn from(error: Error) -> Self {
        match error {
            // The server's own mistake.
            Error::Unmapped { .. } => Self::new(error.to_string()),
            error @ Error::ArgumentTooLong { .. } => Self { code: error.errno(), message: error.to_string() },
            error if error.is_misuse() => Self::misuse(error.to_string()),
            error => Self::new(error.to_string()),
        }
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
