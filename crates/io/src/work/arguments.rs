//! A request's arguments: the client's, and the one that goes back with the reply.
//!
//! Why: most requests have no arguments, and these are to cost such a request nothing: what is empty is not touched.
//! How: an argument that the client has made too little room for is remembered by its length, so that a server which replies
//! with that error blames the client, not itself.

use genie_sys::Errno;
use smallvec::SmallVec;

use crate::{Error, ServerError};

/// The most bytes of memory that are kept for the next argument.
const MOST_KEPT: usize = 1024;

#[derive(Debug, Default)]
pub(crate) struct Arguments {
    pub(crate) request: SmallVec<[u8; 32]>,
    /// How long the reply's argument may be.
    pub(crate) room: usize,
    pub(crate) reply: SmallVec<[u8; 16]>,
    /// The length of the reply's argument that was last refused; 0 if none was.
    refused: usize,
}

impl Arguments {
    #[inline]
    pub(crate) fn begin(&mut self, request: &[u8], room: usize) {
        if !request.is_empty() {
            self.request.extend_from_slice(request);
        }
        self.room = room;
    }

    /// Lets both go, with their memory if they were long.
    #[inline]
    pub(crate) fn end(&mut self) {
        if !self.request.is_empty() {
            clear(&mut self.request);
        }
        if !self.reply.is_empty() {
            clear(&mut self.reply);
        }
        (self.room, self.refused) = (0, 0);
    }

    /// Sets the reply's argument, if there is room for it.
    #[inline]
    pub(crate) fn set_reply(&mut self, argument: &[u8]) -> Result<(), Error> {
        match argument.is_empty() && self.reply.is_empty() {
            true => Ok(()),
            false => self.replace_reply(argument),
        }
    }

    fn replace_reply(&mut self, argument: &[u8]) -> Result<(), Error> {
        if argument.len() > self.room {
            self.refused = argument.len();
            return Err(self.too_long());
        }
        clear(&mut self.reply);
        self.reply.extend_from_slice(argument);
        Ok(())
    }

    /// The error of [`Arguments::set_reply`], if that, by its code, is what the server replies with.
    pub(crate) fn refusal(&self, error: &ServerError) -> Option<Error> {
        let is_it = self.refused > 0 && error.code == Errno::MSGSIZE.raw_os_error();
        is_it.then(|| self.too_long())
    }

    fn too_long(&self) -> Error {
        Error::ArgumentTooLong { len: self.refused, room: self.room }
    }
}

/// Empties a vector, and frees its memory if that is much.
#[inline]
fn clear<const N: usize>(argument: &mut SmallVec<[u8; N]>)
where
    [u8; N]: smallvec::Array<Item = u8>,
{
    match argument.capacity() > MOST_KEPT {
        true => *argument = SmallVec::new(),
        false => argument.clear(),
    }
}
