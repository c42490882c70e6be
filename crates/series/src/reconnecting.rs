//! Servers that may go and come again: a name that is connected to anew.

use std::fmt;

use genie_channel::directory::Directory;
use genie_channel::{Connect, ConnectOptions};
use genie_io::{Error, Failed, Interface, ServerHandle};
use genie_sys::primitive::Mutex;

/// A server in another process, by its name: connected to when it is first needed, and again after it has gone.
///
/// Requests that were in flight when the server went fail with [`Error::Gone`]; nobody knows whether they have been done, so
/// they are not sent again. Requests that were never sent (`asked` is false) are sent to the next server by
/// [`Reconnecting::with`].
///
/// ```no_run
/// # mod genie { pub use genie_channel as channel; pub use genie_io::*; pub use genie_series::Reconnecting; }
/// use std::time::Duration;
///
/// use genie::channel::ConnectOptions;
/// use genie::{Error, Interface, Out, Reconnecting};
///
/// # fn main() -> Result<(), Error> {
/// let genie = Interface::open()?;
/// let options = ConnectOptions { wait: Duration::from_secs(10), ..ConnectOptions::default() };
/// let bits = Reconnecting::new(&genie, "bits", options)?;
/// let reply = bits.with(|server| {
///     // A server that was started again may number its services otherwise.
///     let service = server.service("zeros")?;
///     genie.request(server, service).out(Out::copy(b"text")).room(8).send()
/// });
/// match reply {
///     Ok(reply) => println!("{:?}", reply.argument()),
///     Err(failed) if matches!(failed.error, Error::Gone { asked: true, .. }) => println!("done or not"),
///     Err(failed) => return Err(failed.error),
/// }
/// # Ok(())
/// # }
/// ```
pub struct Reconnecting {
    genie: Interface,
    directory: Directory,
    name: String,
    options: ConnectOptions,
    current: Mutex<Option<ServerHandle>>,
}

impl Reconnecting {
    /// A server of this name in the run-time directory. It need not be there yet: [`ConnectOptions::wait`] says how long each
    /// connecting waits for it.
    ///
    /// # Errors
    /// The directory cannot be used.
    pub fn new(genie: &Interface, name: &str, options: ConnectOptions) -> Result<Self, Error> {
        Ok(Self::new_in(genie, &Directory::open()?, name, options))
    }

    /// The same in another directory.
    pub fn new_in(genie: &Interface, directory: &Directory, name: &str, options: ConnectOptions) -> Self {
        let (genie, directory, name) = (genie.clone(), directory.clone(), name.to_owned());
        Self { genie, directory, name, options, current: Mutex::default() }
    }

    /// The handle of the server that is there now; connects if there is none or it has gone. Other threads that ask wait
    /// meanwhile.
    ///
    /// # Errors
    /// As [`Connect::connect_with`].
    pub fn handle(&self) -> Result<ServerHandle, Error> {
        // In a child made by fork, a thread of the parent's may hold the lock.
        if self.genie.space().is_inherited() {
            return Err(Error::Inherited);
        }
        let mut current = self.current.lock();
        if let Some(server) = current.as_ref().filter(|server| !server.is_gone()) {
            return Ok(server.clone());
        }
        let server = self.genie.connect_with(&self.directory, &self.name, &self.options)?;
        Ok(current.insert(server).clone())
    }

    /// Does something with the server, connecting first if need be. If the server has gone before a request was sent, this
    /// connects again and calls `act` once more. Buffers that `act` has given by value to the request that was not sent are freed: a
    /// program that needs them back sends by [`Reconnecting::handle`], and looks at [`Failed`] itself.
    ///
    /// # Errors
    /// As [`Reconnecting::handle`] and `act`.
    pub fn with<T>(&self, mut act: impl FnMut(&ServerHandle) -> Result<T, Failed>) -> Result<T, Failed> {
        match act(&self.handle()?) {
            Err(Failed { error: Error::Gone { asked: false, .. }, .. }) => act(&self.handle()?),
            done => done,
        }
    }
}

impl fmt::Debug for Reconnecting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Reconnecting").field(&self.name).finish()
    }
}
