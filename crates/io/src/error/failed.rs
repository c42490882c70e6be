//! What a client gets back of a request that did not succeed.

use std::fmt;

use crate::{Error, ReplyBuffer};

/// A request that did not succeed. The client's native buffers are as they were; buffers that were given by value are
/// in `buffers`, unless the server still has them (`kept`).
pub struct Failed {
    /// Why.
    pub error: Error,
    /// An entry for each buffer of the request, if the request was made and the server has let it go; what comes back is in the
    /// elements' `returned`, and [`Failed::take_buffer`] finds it. While the server still has the request, there are only entries
    /// that say how far it had come.
    pub buffers: Vec<ReplyBuffer>,
    /// Whether the server still has buffers that were given by value: they do not come back, and are freed when the server
    /// lets go of them.
    pub kept: bool,
}

impl Failed {
    /// How many bytes of buffer `index` the server had said were final ([`Incoming::progress`](crate::Incoming::progress)), or were passed,
    /// before the request failed; 0 if it had said nothing. With these bytes of an output the server is done. Of an input, nothing was
    /// delivered all the same, but for what was passed in place.
    pub fn actual(&self, index: usize) -> usize {
        self.buffers.get(index).map_or(0, |buffer| buffer.actual)
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)?;
        match self.kept {
            true => f.write_str("; the server still has the buffers that were given by value"),
            false => Ok(()),
        }
    }
}

/// The same sentence: it is what a program prints whose `main` returns this.
impl fmt::Debug for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Failed {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self { error, buffers: Vec::new(), kept: false }
    }
}
