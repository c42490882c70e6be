//! Outboard memory: data that lies in a device's own memory until a driver is asked to transfer it.
//!
//! Source: thesis §6.5, §7.4.4.

use std::io;

use genie_memory::DataMut;

use crate::{Error, Result};

/// A buffer in a device's own memory; dropping it deallocates it.
pub trait Outboard: Send + std::fmt::Debug {
    /// How many bytes it holds.
    fn len(&self) -> usize;

    /// Whether it holds none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a transfer can fail when it has stored something. Data of a device whose transfers cannot is transferred into
    /// the client's own buffer by emulated copy; other data by way of a buffer of the interface's, of which pages are swapped,
    /// since a failed request leaves the client's buffer as it was.
    fn may_fail(&self) -> bool {
        true
    }

    /// Transfers the bytes from `offset` on into host memory, filling `into`, which is there for the time of the call only.
    /// May be asked for more than once.
    ///
    /// ```compile_fail,E0521
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
    /// The device's: the request fails for it.
    fn transfer(&mut self, offset: usize, into: DataMut<'_>) -> io::Result<()>;
}

impl dyn Outboard {
    /// Has the first bytes transferred to `into`, as many as both have.
    ///
    /// # Errors
    /// [`Error::Outboard`].
    pub fn fill(&mut self, into: &DataMut<'_>) -> Result<()> {
        let len = into.len().min(self.len());
        if len == 0 {
            return Ok(());
        }
        let transferred = self.transfer(0, into.part(0..len));
        transferred.map_err(|error| Error::Outboard { message: error.to_string() })
    }
}
