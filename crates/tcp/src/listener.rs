//! Listeners: what waits at a port for peers to open connections.
//!
//! How: a SYN makes a connection, up to as many as the backlog has room for; beyond that it is answered by a cookie, and nothing is kept. When
//! too many connections wait to be accepted, SYNs are dropped, and the peers try again.
//! Source: RFC 9293 §3.10.7.2, RFC 4987.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::config::Config;
use crate::table::Id;
use crate::timers::Time;

/// How many connections may wait at a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backlog {
    /// Those whose handshake is under way. Beyond them, SYNs are answered by cookies.
    pub half_open: usize,
    /// Those that are established and not accepted. Beyond them, SYNs are dropped.
    pub ready: usize,
}

impl Default for Backlog {
    fn default() -> Self {
        Self { half_open: 256, ready: 128 }
    }
}

/// A listener.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) config: Arc<Config>,
    pub(crate) backlog: Backlog,
    pub(crate) half_open: usize,
    pub(crate) ready: VecDeque<Id>,
    /// When a cookie was sent last.
    pub(crate) baked: Option<Time>,
}

impl Listener {
    pub(crate) fn new(config: Arc<Config>, backlog: Backlog) -> Self {
        Self { config, backlog, half_open: 0, ready: VecDeque::new(), baked: None }
    }

    /// Whether another established connection may wait.
    pub(crate) fn has_room(&self) -> bool {
        self.ready.len() < self.backlog.ready
    }

    /// Whether cookies may come back now.
    pub(crate) fn expects_cookies(&self, now: Time) -> bool {
        self.baked.is_some_and(|at| now.saturating_sub(at) <= 2 * crate::cookie::PERIOD)
    }
}
