//! Outboard memory: data that lies in a device's own memory until a driver is asked to transfer it.
//!
//! Source: thesis §6.6 to §6.8, §7.4.4.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

use genie_memory::{Data, DataMut, TellLater};

use crate::{Error, Result};

/// A buffer in a device's own memory; dropping it deallocates it.
///
/// It is for devices whose transfers the host makes, or waits for: [`Outboard::transfer`] holds up the thread that needs the data. By
/// emulated copy that is the client's, which takes the reply; by other schemes, the server's that links the buffer; in another process than
/// the client's, the one that replies. A device that transfers by itself is given a `Transfer` by `Incoming::begin_transfer`, and holds up
/// nobody.
pub trait Outboard: Send + std::fmt::Debug {
    /// How many bytes it holds.
    fn len(&self) -> usize;

    /// Whether it holds none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a transfer can fail after it has stored something. If it cannot, emulated copy transfers the data into the
    /// client's own buffer. That is so for a device that sums its data as it comes from the wire (WCAB, §6.8). If it can, as where the device
    /// sums the data while it transfers it (Medusa, Afterburner), emulated copy transfers the data into a buffer of the
    /// interface's and swaps pages, since a failed request leaves the client's buffer as it was. By share, which a client asks for if it
    /// can bear that, the data goes to the client's buffer, and what was stored before an error stays there. The receipt says which scheme
    /// took effect, and how many granules were swapped.
    fn may_fail(&self) -> bool {
        true
    }

    /// The bytes where they lie, if the host and other devices can load them there. A client that peeks at them has none transferred then.
    fn data(&self) -> Option<Data<'_>> {
        None
    }

    /// Transfers the bytes from `offset` on into host memory, filling `into`, which is there for the time of the call only.
    /// May be called more than once.
    ///
    /// Registrars have been told of the objects in which `into` lies, so the device may look for it among what it has registered with
    /// `Space::register`. The request may be locked: the call must not use it, nor requests to which its input was forwarded, and no call
    /// of a registrar may meanwhile.
    ///
    /// ```compile_fail
    /// # use genie_memory::DataMut;
    /// #[derive(Debug)]
    /// struct Device {
    ///     kept: Option<DataMut<'static>>,
    /// }
    ///
    /// impl genie_passing::Outboard for Device {
    ///     fn len(&self) -> usize {
    ///         1
    ///     }
    ///     fn transfer(&mut self, _offset: usize, into: DataMut<'_>) -> std::io::Result<()> {
    ///         self.kept = Some(into); // the memory is the client's after this call
    ///         Ok(())
    ///     }
    /// }
    /// ```
    ///
    /// # Errors
    /// The device's error, with which the request fails.
    fn transfer(&mut self, offset: usize, into: DataMut<'_>) -> io::Result<()>;
}

impl dyn Outboard {
    /// Has bytes transferred to `into`, from the beginning on and as many as both have. A panic of the device's code is
    /// an error.
    ///
    /// # Errors
    /// [`Error::Outboard`].
    pub fn fill(&mut self, into: &DataMut<'_>) -> Result<()> {
        let len = into.len().min(self.len());
        if len == 0 {
            return Ok(());
        }
        // A panic must not leave this call: the thread is the client's, or is one of the server's that is replying. The
        // panic hook has reported the panic.
        let transfer = || catch_unwind(AssertUnwindSafe(|| self.transfer(0, into.part(0..len))));
        // The device may look for the memory among what a registrar knows.
        let transferred = TellLater::except(transfer);
        let message = match transferred {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => error.to_string(),
            Err(panic) => {
                // The panic's payload may panic when it is dropped.
                std::mem::forget(panic);
                "its code panicked".to_owned()
            }
        };
        Err(Error::Outboard { message })
    }
}
