//! An interface that the program has opened.

use std::sync::atomic::AtomicU32;

use genie_io::Interface;

use crate::types::IO_EMULATED_COPY;

/// An interface.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) interface: Interface,
    /// The scheme of elements that name none.
    pub(crate) scheme: AtomicU32,
}

impl Opened {
    pub(crate) fn new(interface: Interface) -> Self {
        Self { interface, scheme: AtomicU32::new(IO_EMULATED_COPY) }
    }
}
