//! Services: what a server offers, and what its code may touch for each of them.
//!
//! Source: thesis §7.2.

use std::borrow::Cow;

/// The number of one of a server's services.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServiceId(pub u32);

/// One service that a server offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// Its name, for people. For clients in other processes: at most 64 bytes, and no control characters.
    pub name: Cow<'static, str>,
    /// Mapping flag *read*: whether the server reads output buffers.
    pub reads: bool,
    /// Mapping flag *write*: whether the server writes input buffers.
    pub writes: bool,
}

impl Service {
    /// A service with its mapping flags.
    pub const fn new(name: &'static str, reads: bool, writes: bool) -> Self {
        Self { name: Cow::Borrowed(name), reads, writes }
    }

    pub(crate) fn access(&self) -> Access {
        Access { reads: self.reads, writes: self.writes }
    }
}

/// What a service's mapping flags allow.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Access {
    pub(crate) reads: bool,
    pub(crate) writes: bool,
}
