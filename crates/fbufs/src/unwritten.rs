//! What a write that failed gives back.

use crate::{Error, Fbuf};

/// A buffer that could not be written away, or not all of it.
///
/// Dropping it deallocates the buffer, as if it had been written.
#[derive(Debug, thiserror::Error)]
#[error("{written} bytes were written, and then: {error}")]
pub struct Unwritten {
    /// Why.
    pub error: Error,
    /// The buffer; its data is what was not written.
    pub fbuf: Fbuf,
    /// How many bytes were written.
    pub written: usize,
}

impl From<Unwritten> for Error {
    fn from(unwritten: Unwritten) -> Self {
        unwritten.error
    }
}

impl Unwritten {
    pub(crate) fn nothing(error: impl Into<Error>, fbuf: Fbuf) -> Box<Self> {
        Box::new(Self { error: error.into(), fbuf, written: 0 })
    }
}

impl From<Box<Unwritten>> for Error {
    fn from(unwritten: Box<Unwritten>) -> Self {
        unwritten.error
    }
}
