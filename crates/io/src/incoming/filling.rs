//! Filling: how a server brings data into an input, and says how much, all at once or as it comes.

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
        let work = self.prepare(index)?;
        // Whether `fill` fails or panics, nothing that was said before is true any more.
        work.unfill(index);
        let room = work.input(index);
        let (len, actual) = (room.len(), fill(room).filled()?);
        Error::check_len(actual, len)?;
        self.set_actual(index, actual)?;
        Ok(actual)
    }

    /// Tells the client, before the reply, that the first `len` bytes of buffer `index` are final: of an input, they are stored and stay what
    /// they are; of an output, the server is done with them. To be called again with more as more is; the same number again tells nothing.
    /// The client gets the number by [`Pending::progress`](crate::Pending::progress), and by an error if the request fails. When
    /// the client gives the request up, and the server drops it, it succeeds with what is final, and no more: a server that replies with an
    /// error instead throws that part away. Data in buffers of the server's own may be final
    /// only after these were [overlaid](Incoming::overlay).
    ///
    /// What [`Incoming::set_actual`] has said before is no longer true, and it may say no less afterwards.
    ///
    /// A contractor that has forwarded the buffer passes on what it is told, to the last word, which may come with the reply:
    ///
    /// ```
    /// # use genie_io::{Error, Incoming, Pending};
    /// # use std::time::Duration;
    /// fn pass_on(asked: &Pending<'_>, request: &mut Incoming) -> Result<(), Error> {
    ///     loop {
    ///         let is_over = asked.is_replied();
    ///         let come = asked.progress(0);
    ///         request.progress(0, come)?;
    ///         if is_over {
    ///             return Ok(());
    ///         }
    ///         asked.wait_for_progress(0, come, Duration::from_secs(1));
    ///     }
    /// }
    /// ```
    ///
    /// Where the other server fails, what it has stored may not come: the contractor replies with that error. If it dropped the request
    /// instead, a client that gives up would get a success with bytes that nobody has stored.
    ///
    /// One that waits in no thread for that has a [`Completer`](crate::Completer): see the example `contractor` of the crate `genie`.
    ///
    /// # Errors
    /// There is no such buffer, or it is shorter; [`Error::Backwards`]: more was final before.
    ///
    /// # Cost
    /// An allocation and a lock; to another process, a record, which wakes a client that sleeps. So a server tells of steps that take
    /// longer than that, some tens of microseconds. Where the client takes no records, the last word on a buffer waits, for as many
    /// buffers as there are requests; of others the client hears by a later word, or by the reply.
    ///
    /// # Source
    /// Thesis §6.5.
    pub fn progress(&mut self, index: usize, len: usize) -> Result<(), Error> {
        self.ensure_own()?;
        if self.work_mut().progress(index, len)? {
            self.origin().progress(index, len);
        }
        Ok(())
    }
}
