//! The memory that a client passes data out of and into, by whatever scheme.
//!
//! How: under native schemes all data goes out of, or into, one buffer, so that schemes differ only in what they do with
//! that buffer. Under migrant schemes each output needs a buffer that was allocated for it, and each input brings a buffer.

use genie::mechanism::model::{Allocation, Integrity};
use genie::{Buffer, Error, Failed, In, Interface, Migrant, Out, Reply, Scheme, ServerHandle, memory};

/// A client's native buffer, if it has one: the buffer is absent while a request has it.
#[derive(Debug, Default)]
pub struct ClientBuffer(Option<Buffer>);

/// Data that is about to be passed out.
#[derive(Debug)]
pub enum Prepared {
    /// The data is in the client's native buffer.
    Native,
    /// The data is in this migrant buffer.
    Migrant(Migrant),
}

impl From<Buffer> for ClientBuffer {
    fn from(buffer: Buffer) -> Self {
        Self(Some(buffer))
    }
}

impl ClientBuffer {
    /// The native buffer's bytes; none before native data was passed.
    pub fn native(&self) -> Option<&[u8]> {
        self.0.as_deref()
    }

    /// The native buffer, which is allocated if there is none of `len` bytes.
    ///
    /// # Errors
    /// No memory.
    pub fn native_mut(&mut self, genie: &Interface, len: usize) -> Result<&mut Buffer, Error> {
        if self.0.as_ref().is_none_or(|buffer| buffer.len() != len) {
            self.0 = None;
        }
        Ok(match &mut self.0 {
            Some(buffer) => buffer,
            none => none.insert(genie.allocate(len)?),
        })
    }

    /// Has `store` store the data that a scheme is to pass out.
    ///
    /// # Errors
    /// No memory.
    #[inline]
    pub fn prepare(
        &mut self,
        genie: &Interface,
        scheme: Scheme,
        len: usize,
        store: impl FnOnce(&mut [u8]),
    ) -> Result<Prepared, Error> {
        if scheme.allocation() == Allocation::Native {
            store(self.native_mut(genie, len)?);
            return Ok(Prepared::Native);
        }
        let mut migrant = genie.allocate_migrant(len, is_strong(scheme))?;
        store(&mut migrant);
        Ok(Prepared::Migrant(migrant))
    }

    /// The element of an output that passes the prepared data.
    ///
    /// # Panics
    /// When the prepared data is in the native buffer, and that buffer is absent.
    #[inline]
    pub fn output(&mut self, scheme: Scheme, prepared: Prepared) -> Out<'_> {
        match prepared {
            Prepared::Native if is_strong(scheme) => Out::borrowed(scheme, self.0.as_ref().expect(PREPARED)),
            prepared => self.output_by_value(scheme, prepared),
        }
    }

    /// The same, with the buffer given by value, whatever the scheme.
    ///
    /// # Panics
    /// As [`ClientBuffer::output`].
    #[inline]
    pub fn output_by_value(&mut self, scheme: Scheme, prepared: Prepared) -> Out<'static> {
        match prepared {
            Prepared::Migrant(migrant) => Out::migrant(scheme, migrant),
            Prepared::Native => Out::owned(scheme, self.0.take().expect(PREPARED)),
        }
    }

    /// The element of an input of `len` bytes.
    ///
    /// # Errors
    /// No memory.
    #[inline]
    pub fn input(&mut self, genie: &Interface, scheme: Scheme, len: usize) -> Result<In<'_>, Error> {
        if scheme.allocation() == Allocation::Migrant {
            return Ok(In::migrant(scheme, len));
        }
        self.native_mut(genie, len)?;
        Ok(match is_strong(scheme) {
            true => In::borrowed(scheme, self.0.as_mut().expect(PREPARED)),
            false => In::owned(scheme, self.0.take().expect(PREPARED)),
        })
    }

    /// Takes back a buffer that a request had.
    pub fn take_back(&mut self, buffer: Option<Buffer>) {
        if buffer.is_some() {
            self.0 = buffer;
        }
    }

    /// Takes back a buffer from a reply, or from the request that failed.
    ///
    /// # Errors
    /// The error of the failed request.
    pub fn settle(&mut self, result: Result<Reply, Failed>) -> Result<Reply, Error> {
        match result {
            Ok(mut reply) => {
                self.take_back(reply.take_buffer());
                Ok(reply)
            }
            Err(mut failed) => {
                self.take_back(failed.take_buffer());
                Err(failed.error)
            }
        }
    }
}

/// Gives a buffer that came by move to a memory server. If it were deallocated, its region would be kept for emulated move, and the kept regions
/// would grow without end.
///
/// # Errors
/// The request failed.
pub fn give_away(genie: &Interface, sink: &ServerHandle, migrant: Migrant) -> Result<(), Error> {
    let removal = genie.request(sink, memory::NULL).out(Out::moved(migrant));
    removal.send().map(drop).map_err(|failed| failed.error)
}

/// The condition that callers of [`ClientBuffer::output`] and [`ClientBuffer::input`] have made sure of.
const PREPARED: &str = "the native buffer is there";

fn is_strong(scheme: Scheme) -> bool {
    scheme.integrity() == Integrity::Strong
}
