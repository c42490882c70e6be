//! How a client makes a request: it waits for the reply, or goes on and takes the reply later.

use genie::{Failed, Reply, Request};

/// By which function a client makes a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Call {
    /// `send`: the client waits, and what it outputs is borrowed until the reply.
    Send,
    /// `submit`: the client may store into its output while the server still reads it.
    Submit,
}

impl Call {
    /// Makes the request, and returns its reply.
    ///
    /// # Errors
    /// As `Request::send`.
    pub fn make(self, request: Request<'_, '_, '_>) -> Result<Reply, Failed> {
        match self {
            Self::Send => request.send(),
            Self::Submit => request.submit()?.sync(),
        }
    }

    /// The word for it, in documents.
    pub fn name(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Submit => "submit",
        }
    }
}
