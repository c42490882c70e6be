//! Outboard memory: data that lies in a device's own memory until a driver is asked to transfer it.
//!
//! Source: thesis §6.5, §7.4.4.

use genie_memory::Span;

/// A buffer in a device's own memory; dropping it deallocates it.
pub trait Outboard: Send + std::fmt::Debug {
    /// How many bytes it holds.
    fn len(&self) -> usize;

    /// Whether it holds none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Transfers the bytes from `offset` on into host memory, filling `into`.
    fn transfer(&mut self, offset: usize, into: Span);
}
