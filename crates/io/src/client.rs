//! Clients, as servers know them.
//!
//! Invariants: a client's name is never given again in this process.

pub(crate) mod presence;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use genie_sys::machine;

use crate::name;

/// Names a client: a channel from another process, or an interface of this one. No other client that this process ever has gets
/// the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientId(u64);

impl ClientId {
    fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// The name as a number, for programs in other languages; never 0.
    pub const fn number(self) -> u64 {
        self.0
    }
}

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "client {}", self.0)
    }
}

/// A client, as servers are told of it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Client {
    /// Its name.
    pub id: ClientId,
    /// Its process, as the kernel says when it connects.
    pub pid: u32,
    /// Its user, as the kernel says when it connects.
    pub uid: u32,
    /// The name that it gives itself, for people: any text without control characters.
    pub name: String,
}

impl Client {
    /// A client that a carrier brings, with a name that no other one has. What the carrier does not know for sure, such as the
    /// process and the user of a peer on another machine, it does not take from the peer.
    pub fn new(pid: u32, uid: u32, name: String) -> Self {
        Self { id: ClientId::next(), pid, uid, name }
    }

    /// A client in this process.
    pub fn here() -> Self {
        Self::new(std::process::id(), machine::effective_uid(), name::program_name())
    }
}
