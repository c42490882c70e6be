//! Filling: how a server brings data into an input, and says how much.

use genie_memory::DataMut;

use super::Incoming;
use crate::Error;

/// What a closure returns that fills an input: how many bytes it has filled, or why it has failed.
pub trait Filled {
    /// Why it has failed.
    type Error: From<Error>;

    /// The number of bytes.
    ///
    /// # Errors
    /// Why there are none.
    fn filled(self) -> Result<usize, Self::Error>;
}

impl Filled for usize {
    type Error = Error;

    fn filled(self) -> Result<usize, Error> {
        Ok(self)
    }
}

impl<E: From<Error>> Filled for Result<usize, E> {
    type Error = E;

    fn filled(self) -> Self {
        self
    }
}

impl Incoming {
    /// Makes input buffer `index` ready, has `fill` store data into it, from its beginning on, and tells the client how many
    /// bytes came, as `fill` says. Returns that number.
    ///
    /// ```
    /// # use genie_io::{Incoming, ServerError};
    /// fn greet(request: &mut Incoming) -> Result<(), ServerError> {
    ///     request.fill(0, |room| room.copy_from(b"hello"))?;
    ///     Ok(())
    /// }
    /// ```
    ///
    /// `fill` may fail or panic, and the input is unfilled then, whatever was stored. The error comes back, for the server to reply with:
    ///
    /// ```
    /// # use genie_io::{Incoming, ServerError};
    /// fn load(request: &mut Incoming, file: &std::fs::File) -> Result<usize, ServerError> {
    ///     request.fill(0, |room| room.read_file(file, 0).map_err(ServerError::from))
    /// }
    /// ```
    ///
    /// `fill` has to store each byte that it counts. A byte that it counts and does not store passes as it was: where the server overlays
    /// buffers of its own, it may be another client's.
    ///
    /// # Errors
    /// As [`Incoming::ready`]; what `fill` returns; or `fill` says more than there is. Once `fill` was called, a server
    /// that replies with success all the same says first by [`Incoming::set_actual`] how many bytes came, such as 0.
    pub fn fill<F: Filled>(
        &mut self,
        index: usize,
        fill: impl FnOnce(DataMut<'_>) -> F,
    ) -> Result<usize, F::Error> {
        self.ready(index)?;
        let work = self.work_mut();
        // Whether `fill` fails or panics, nothing that was said before is true any more.
        work.unfill(index);
        let room = work.input(index);
        let (len, actual) = (room.len(), fill(room).filled()?);
        Error::check_len(actual, len)?;
        self.set_actual(index, actual)?;
        Ok(actual)
    }
}
