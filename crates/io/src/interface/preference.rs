//! Preferences of servers, as clients keep them: see `server/preferences.rs`.

use std::fmt;

use genie_passing::Preferred;

use crate::{Error, Interface, ServerHandle, ServiceId};

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

impl Interface {
    /// Asks a server how to lay out input buffers for requests of a service with this argument, when that makes a difference
    /// (client-aligned buffering): with buffers of [`Interface::allocate_at`] of the preferred length, or several elements of it, data can
    /// change places with the server's where it would be copied. Ask when a buffer is about to be laid out, and keep the answer until
    /// [`Preference::is_stale`]. Data passes as well, only more slowly, into buffers of another layout, or of one that is stale.
    ///
    /// The numbers are the server's word: check them before you allocate so much.
    ///
    /// # Errors
    /// The server has no such service, or is reached by another interface; [`Error::Inherited`]. In another process, the server is gone,
    /// or does not answer within 5 seconds, or the argument is longer than 32 KiB; [`Error::MayNotWait`].
    ///
    /// # Cost
    /// A call of the server's code in this process, a message to another process and one back: too dear for each request.
    pub fn preferred(
        &self,
        server: &ServerHandle,
        service: ServiceId,
        argument: &[u8],
    ) -> Result<Preference, Error> {
        self.ensure_own()?;
        if server.is_inherited() {
            return Err(Error::Inherited);
        }
        server.access(service)?;
        if !server.is_of(self.space()) {
            return Err(Error::OtherInterface { server: server.name().to_owned() });
        }
        let (preferred, changes) = server.preferred(&self.0.presence, service, argument)?;
        Ok(Preference::new(server, preferred, changes))
    }
}

impl fmt::Debug for Preference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Preference").field("preferred", &self.preferred).finish_non_exhaustive()
    }
}
