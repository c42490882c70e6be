//! Listening: how a server becomes reachable from other processes.
//!
//! How: [`Listener::bind`] claims a name; a control thread accepts clients, answers their messages and notices when they
//! hang up; worker threads take requests off the clients' rings and hand them to the server's code, which may reply from
//! any thread.
//! Limits: [`ServeOptions`]; a worker attends to at most 127 clients.
//! Source: thesis §7.2 (`io_server_register`, `io_server`).

use std::sync::{Arc, OnceLock};

use genie_io::carrier::Code;
use genie_io::{Error, Server};
use genie_memory::Space;

use super::directory::{Claim, Directory};
use super::options::ServeOptions;
use super::private;
use super::serving::Serving;
use super::shared::Shared;

/// A name that was claimed for a server that is not made yet. Clients that connect meanwhile wait.
///
/// Most servers need no more than [`Listener::bind`]. A server that fills buffers of its own before it is asked (pooled
/// in-host buffering) needs the private pool, and so is made between the claim and the serving:
///
/// ```no_run
/// # mod genie { pub use genie_channel as channel; pub use genie_io::servers::memory; }
/// use genie::channel::{Listener, ServeOptions};
/// use genie::memory::Memory;
///
/// let listener = Listener::claim("letters", ServeOptions::default())?;
/// let letters = Memory::pooled(listener.private_pool()?, 0, 1 << 20, 16)?;
/// listener.serve(letters)?.run()?;
/// # Ok::<(), genie_io::Error>(())
/// ```
#[derive(Debug)]
pub struct Listener {
    name: String,
    claim: Arc<Claim>,
    options: ServeOptions,
    /// Made when it is first asked for.
    private_pool: OnceLock<Space>,
}

impl Listener {
    /// Claims `name` in the run-time directory for a server.
    ///
    /// # Errors
    /// The name is taken or can't be used, the directory is unsafe, or the kernel refuses. [`Error::Unservable`]: the
    /// options, or the services, of which there may be 256, can't be told to clients.
    pub fn bind(name: &str, server: impl Server, options: ServeOptions) -> Result<Serving, Error> {
        Self::claim(name, options)?.serve(server)
    }

    /// The same in another directory.
    ///
    /// # Errors
    /// As [`Listener::bind`].
    pub fn bind_in(
        directory: &Directory,
        name: &str,
        server: impl Server,
        options: ServeOptions,
    ) -> Result<Serving, Error> {
        Self::claim_in(directory, name, options)?.serve(server)
    }

    /// Claims `name` in the run-time directory for a server that is yet to be made. Dropping the listener gives the name up.
    ///
    /// # Errors
    /// As [`Listener::bind`].
    pub fn claim(name: &str, options: ServeOptions) -> Result<Self, Error> {
        Self::claim_in(&Directory::open()?, name, options)
    }

    /// The same in another directory.
    ///
    /// # Errors
    /// As [`Listener::bind`].
    pub fn claim_in(directory: &Directory, name: &str, options: ServeOptions) -> Result<Self, Error> {
        options.check()?;
        let claim = Arc::new(directory.claim(name)?);
        Ok(Self { name: name.to_owned(), claim, options, private_pool: OnceLock::new() })
    }

    /// Memory of the server's own, of [`ServeOptions::private_pool`] bytes, for buffers that it fills before it is asked.
    /// When the server overlays such a buffer, the data is copied into memory of the client's channel, since no client may
    /// see another's data.
    ///
    /// # Errors
    /// There is no memory.
    pub fn private_pool(&self) -> Result<&Space, Error> {
        match self.private_pool.get() {
            Some(space) => Ok(space),
            None => {
                let space = private::space(self.options.private_pool, self.options.private_pool / 2)?;
                Ok(self.private_pool.get_or_init(|| space))
            }
        }
    }

    /// Gives the name to a server, which other processes can reach as soon as it runs.
    ///
    /// # Errors
    /// The kernel refuses, or [`Error::Unservable`]; [`Error::Inherited`] in a child made by fork since the name was claimed.
    pub fn serve(self, server: impl Server) -> Result<Serving, Error> {
        let shared = Shared::new(self.name, Code::new(server), self.options, self.claim.maker())?;
        Ok(Serving::new(shared, self.claim))
    }
}

#[cfg(test)]
mod tests;
