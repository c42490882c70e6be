//! Outboard memory: data that lies in a device's own memory until a driver is asked to transfer it.
//!
//! Source: thesis §6.6, §7.4.4.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

use genie_memory::{DataMut, TellLater};

use crate::{Error, Result};

/// A buffer in a device's own memory; dropping it deallocates it.
pub trait Outboard: Send + std::fmt::Debug {
    /// How many bytes it holds.
    fn len(&self) -> usize;

    /// Whether it holds none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a transfer can fail after it has stored something. If it cannot, emulated copy transfers the data into the
    /// client's own buffer. If it can, emulated copy transfers the data into a buffer of the interface's and swaps pages,
    /// since a failed request leaves the client's buffer as it was.
    fn may_fail(&self) -> bool {
        true
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
