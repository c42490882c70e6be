//! Connections: Genie servers, read from and written to as streams of buffers.
//!
//! Why: a server's services take and give buffers by requests. A program that reads and writes buffers should not have to
//! compose requests.
//! How: to write is one request, whose output is the buffer, by emulated weak move: the server reads the buffer's pages, which are
//! kept for the next buffer when it replies. To read is one request, whose input is a buffer that was kept so, which the server
//! fills. So the buffers are migrant buffers of the interface's, and a pool's are passed as the interface passes all other memory: it
//! copies them.
//! Invariants: a buffer whose write failed comes back, unless the server still has it.
//! Trust: as the interface trusts the server. A server that has filled or read a buffer could still store into it, or read it.
//! Limits: a read gives at most 1 MiB. A call waits for the server's reply.
//! Source: thesis §3.3, §7.4 (region caching); SMLI TR-95-39 §3.3 (devices that know fbufs).

use genie_io::{In, Interface, Out, ServerHandle, ServiceId};
use genie_passing::{Receipt, Scheme};

use crate::error::{Error, Result};
use crate::{Fbuf, Unwritten};

/// One read asks for no more, however long a buffer may be.
const MOST: usize = 1 << 20;

/// A Genie server, in this process or in another, as a stream: one of its services gives input, and one takes output.
///
/// Each read is a request of the one service with one input, and each write a request of the other with one output, without an
/// argument. No bytes as input are the end.
///
/// ```
/// use genie_fbufs::Connection;
/// use genie_io::servers::memory::{Memory, SINK, SOURCE};
/// use genie_io::{Interface, ServerHandle};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (genie, server) = (Interface::open()?, ServerHandle::new(Memory::customized()));
/// let connection = Connection::new(&genie, &server, Some(SOURCE), Some(SINK));
///
/// let mut fbuf = connection.allocate(100_000)?;
/// fbuf.fill(b'a');
/// assert_eq!(connection.write(fbuf)?, 100_000);
///
/// let fbuf = connection.read(100_000)?.expect("this service gives as many zeros as are asked for");
/// assert!(fbuf.len() == 100_000 && fbuf.iter().all(|byte| *byte == 0));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Connection {
    interface: Interface,
    server: ServerHandle,
    reads: Option<ServiceId>,
    writes: Option<ServiceId>,
    /// Whether what was given away is hidden.
    traps: bool,
}

impl Connection {
    /// Makes a connection of a server that `interface` can make requests of: `read` is the service that fills an input, and `write`
    /// the one that takes an output. What is named none cannot be done.
    pub fn new(
        interface: &Interface,
        server: &ServerHandle,
        read: Option<ServiceId>,
        write: Option<ServiceId>,
    ) -> Self {
        let (interface, server) = (interface.clone(), server.clone());
        Self { interface, server, reads: read, writes: write, traps: false }
    }

    /// The same for debugging: a touch of a buffer that was given away traps (SIGSEGV). Buffers are allocated and read for emulated
    /// move then, which hides them, instead of emulated weak move. It costs a system call for each buffer that is given away or
    /// comes.
    #[must_use]
    pub fn with_traps(self, traps: bool) -> Self {
        Self { traps, ..self }
    }

    /// Allocates a buffer of `len` bytes, which are whatever they were: [`Connection::write`] passes it without a copy, to this
    /// server and all others of the interface's memory.
    ///
    /// # Errors
    /// The interface's memory is used up; [`Error::Inherited`].
    pub fn allocate(&self, len: usize) -> Result<Fbuf> {
        Fbuf::allocate_migrant(&self.interface, len, self.traps)
    }

    /// Reads the next bytes, at most `len` of them and at most 1 MiB; nothing at the end. Waits until the server replies.
    ///
    /// # Errors
    /// [`Error::NoService`], [`Error::Inherited`]; [`Error::Server`]: what the server said, or that it is gone.
    ///
    /// # Cost
    /// That of a request; no byte is copied but by the server.
    #[doc(alias = "uf_read")]
    pub fn read(&self, len: usize) -> Result<Option<Fbuf>> {
        if len == 0 { self.allocate(0).map(Some) } else { Ok(self.take(len)?.0) }
    }

    /// Writes a buffer away: the server has its data until it replies, which this waits for. A migrant buffer of the interface's memory
    /// is passed without a copy, and any other one copied.
    ///
    /// # Errors
    /// As [`Connection::read`]. The buffer comes back, unless the server still has it.
    ///
    /// # Cost
    /// That of a request.
    #[doc(alias = "uf_write")]
    pub fn write(&self, fbuf: Fbuf) -> Result<usize, Box<Unwritten>> {
        let len = fbuf.len();
        if len > 0 {
            self.pass(fbuf)?;
        }
        Ok(len)
    }

    pub(crate) fn can_read(&self) -> bool {
        self.reads.is_some()
    }

    pub(crate) fn can_write(&self) -> bool {
        self.writes.is_some()
    }

    pub(crate) fn is_untrusted(&self) -> bool {
        self.server.is_untrusted()
    }

    /// As [`Connection::read`]; says what was done, too.
    fn take(&self, len: usize) -> Result<(Option<Fbuf>, Receipt)> {
        let service = self.reads.ok_or(Error::NoService { does: "gives input" })?;
        let scheme = scheme(self.traps);
        let request = self.interface.request(&self.server, service);
        let mut reply = request.input(In::migrant(scheme, len.min(MOST))).send()?;
        let migrant = reply.take_migrant().filter(|migrant| !migrant.is_empty());
        Ok((
            migrant.map(|migrant| Fbuf::of_migrant(migrant, &self.interface)),
            reply.buffers[0].elements[0].receipt,
        ))
    }

    /// As [`Connection::write`]; says what was done.
    fn pass(&self, fbuf: Fbuf) -> Result<Receipt, Box<Unwritten>> {
        let Some(service) = self.writes else {
            return Err(Unwritten::nothing(Error::NoService { does: "takes output" }, fbuf));
        };
        if let Err(error) = fbuf.ensure_own() {
            return Err(Unwritten::nothing(error, fbuf));
        }
        let request = self.interface.request(&self.server, service);
        let (start, len) = (fbuf.headroom(), fbuf.len());
        let migrant = match fbuf.into_migrant(self.interface.space()) {
            Ok(migrant) => migrant,
            Err(fbuf) => {
                return match request.out(Out::emulated_copy(&fbuf)).send() {
                    Ok(reply) => Ok(reply.buffers[0].elements[0].receipt),
                    Err(failed) => Err(Unwritten::nothing(failed, fbuf)),
                };
            }
        };
        let (scheme, capacity) = (scheme(migrant.is_strong()), migrant.len());
        match request.out(Out::migrant(scheme, migrant.part(start..start + len))).send() {
            Ok(reply) => Ok(reply.buffers[0].elements[0].receipt),
            Err(mut failed) => {
                let fbuf = failed.take_migrant().map_or_else(Fbuf::gone, |migrant| {
                    let mut fbuf = Fbuf::of_migrant(migrant.widened(start, capacity), &self.interface);
                    // Inside, as before.
                    let _ = fbuf.set_data(start, len);
                    fbuf
                });
                Err(Unwritten::nothing(failed, fbuf))
            }
        }
    }
}

fn scheme(is_strong: bool) -> Scheme {
    if is_strong { Scheme::EmulatedMove } else { Scheme::EmulatedWeakMove }
}

#[cfg(test)]
mod tests;
