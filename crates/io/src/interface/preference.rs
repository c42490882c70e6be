//! Preferences of servers, as clients keep them: see `server/preferences.rs`.

use std::fmt;

use genie_passing::Preferred;

use crate::ServerHandle;

/// What a server prefers, as long as it prefers the same: see [`Interface::preferred`](crate::Interface::preferred). It holds a handle of
/// the server.
#[derive(Clone)]
pub struct Preference {
    preferred: Option<Preferred>,
    server: ServerHandle,
    changes: u64,
}

impl Preference {
    pub(crate) fn new(server: &ServerHandle, preferred: Option<Preferred>, changes: u64) -> Self {
        Self { preferred, server: server.clone(), changes }
    }

    /// The layout; none where it makes no difference.
    pub fn preferred(&self) -> Option<Preferred> {
        self.preferred
    }

    /// How often the server had said that it prefers other layouts when it answered, as [`ServerHandle::changes`] counts.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Whether the server may prefer something else by now: it has said that something has changed, or is gone. What it prefers for
    /// other services and arguments may be what has changed. Buffers that were laid out before can be used all the same.
    ///
    /// # Cost
    /// Two loads; no call of the server's code.
    pub fn is_stale(&self) -> bool {
        self.changes != self.server.changes() || self.server.is_gone()
    }
}

impl fmt::Debug for Preference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Preference").field("preferred", &self.preferred).finish_non_exhaustive()
    }
}
