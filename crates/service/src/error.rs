//! Why a call failed.

use std::fmt;

use genie_io::ReplyBuffer;
use serde::{Deserialize, Serialize};

/// Why a call failed. `E` is the error that the method itself returns; [`Never`] for methods that return none, and for
/// connecting.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error<E = Never> {
    /// The method returned this error. Nothing was passed to buffers that were to be filled.
    #[error("{0}")]
    Method(E),
    /// The server does not have this method, or has it with other types. Nothing was asked of it.
    #[error(transparent)]
    Mismatch(Mismatch),
    /// An argument can't be encoded: its type's `Serialize` says why. Nothing was asked of the server.
    #[error("the arguments of method {method} cannot be encoded: {why}")]
    Unencodable {
        /// The method.
        method: &'static str,
        /// What serde or postcard says.
        why: String,
    },
    /// The server sent a result that is none of the method's. Buffers that were to be filled hold what the server passed.
    #[error("the result of method {method} cannot be decoded: {why}; the server is at fault")]
    Undecodable {
        /// The method.
        method: &'static str,
        /// What serde or postcard says.
        why: String,
    },
    /// The request failed, before or after the server had it.
    #[error(transparent)]
    Genie(#[from] genie_io::Error),
}

/// Why a method of a server can't be called.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// The server has a service of this name, which no trait has made: it says nothing of its types.
    #[error(
        "service {method} of server {server} is not typed: ask for it by `Interface::request`, or make the server of a trait"
    )]
    Untyped {
        /// The server's name.
        server: String,
        /// The method that the client knows.
        method: &'static str,
    },
    /// The server has no method of this name.
    #[error("server {server} has no method {method}; its services are: {services}")]
    Absent {
        /// The server's name.
        server: String,
        /// The method that the client knows.
        method: &'static str,
        /// The names of what the server has.
        services: String,
    },
    /// The server has the method with other types.
    #[error("method {method} differs: server {server} has `{servers}`, and this client has `{clients}`")]
    Signature {
        /// The server's name.
        server: String,
        /// The method.
        method: &'static str,
        /// The server's signature, as the server tells it.
        servers: String,
        /// The client's signature.
        clients: String,
    },
}

/// An error that does not happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Never {}

impl fmt::Display for Never {
    fn fmt(&self, _f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {}
    }
}

/// A call that did not succeed: why, and the buffers that come back, as in [`genie_io::Failed`].
#[derive(Debug)]
pub struct Failed<E = Never> {
    /// Why.
    pub error: Error<E>,
    /// The buffers that were given by value and come back, in the order of the arguments.
    pub buffers: Vec<ReplyBuffer>,
    /// Whether the server still has buffers that were given by value: they do not come back.
    pub kept: bool,
}

impl<E> Failed<E> {
    /// The next native buffer that comes back.
    pub fn take_buffer(&mut self) -> Option<genie_memory::Buffer> {
        self.untyped(genie_io::Failed::take_buffer)
    }

    /// The next migrant buffer that comes back.
    pub fn take_migrant(&mut self) -> Option<genie_memory::Migrant> {
        self.untyped(genie_io::Failed::take_migrant)
    }

    fn untyped<T>(&mut self, take: impl FnOnce(&mut genie_io::Failed) -> T) -> T {
        let buffers = std::mem::take(&mut self.buffers);
        let mut failed = genie_io::Failed { error: genie_io::Error::Aborted, buffers, kept: self.kept };
        let taken = take(&mut failed);
        self.buffers = failed.buffers;
        taken
    }
}

impl<E: fmt::Display> fmt::Display for Failed<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)?;
        match self.kept {
            true => f.write_str("; the server still has the buffers that were given by value"),
            false => Ok(()),
        }
    }
}

impl<E: fmt::Debug + fmt::Display> std::error::Error for Failed<E> {}

impl<E> From<Failed<E>> for Error<E> {
    /// Drops the buffers that came back.
    fn from(failed: Failed<E>) -> Self {
        failed.error
    }
}

impl<E> From<genie_io::Error> for Failed<E> {
    fn from(error: genie_io::Error) -> Self {
        genie_io::Failed::from(error).into()
    }
}

impl<E> From<genie_io::Failed> for Failed<E> {
    fn from(failed: genie_io::Failed) -> Self {
        Self { error: failed.error.into(), buffers: failed.buffers, kept: failed.kept }
    }
}
