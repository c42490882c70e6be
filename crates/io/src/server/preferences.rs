//! Preferences: how a server would like its clients' input buffers to be laid out, from when on that is something else, and how its
//! clients hear of it.
//!
//! Why: data of a layout that the client's buffer does not have is copied where pages could change places. The best layout may depend
//! on the client and on what it asks for (a connection, say), and change (the length of the packets that come).
//! How: a client asks when it is about to lay out a buffer, which over a channel is a question on the control socket, and keeps the
//! answer until that is stale. A server says that its answers have changed by its [`Preferences`]: these count changes. A client in the
//! server's process compares the count; a client elsewhere that has an answer is sent one message, after which it is sent no more
//! before it has asked again.
//! Invariants: a preference is advice. Buffers of any other layout are filled with the same bytes, by copying.
//! Source: thesis §4.1 (client-aligned buffering), §6.1, §6.4 (MTU tracking), §13.1.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use genie_sys::fork::Maker;

use crate::primitive::Mutex;

/// Tells a server's clients that it prefers other layouts from now on: see [`Server::preferences`](crate::Server::preferences). Cloning
/// makes another handle.
#[derive(Clone)]
pub struct Preferences(Arc<Inner>);

struct Inner {
    maker: Maker,
    changes: AtomicU64,
    /// What tells clients elsewhere; each returns false once there are none any more.
    watchers: Mutex<Vec<Box<Watcher>>>,
}

/// Has clients be told of a change; returns whether it wants to hear of the next one.
type Watcher = dyn Fn() -> bool + Send;

impl Preferences {
    /// The preferences of a server that has told nobody yet.
    pub fn new() -> Self {
        let (changes, watchers) = (AtomicU64::new(0), Mutex::default());
        Self(Arc::new(Inner { maker: Maker::this_process(), changes, watchers }))
    }

    /// Makes the answers stale that clients have so far. Call it when [`Server::preferred`](crate::Server::preferred) would return
    /// something new already, from any thread.
    ///
    /// # Cost
    /// If the server has clients in other processes, a system call, which wakes a thread of Genie's. That thread sends a message to
    /// each client that has an answer and was not told yet.
    pub fn changed(&self) {
        // The clients are the parent's of a process made by fork.
        if !self.0.maker.is_this_process() {
            return;
        }
        // Release: a client that sees the count, and asks, gets what the server prefers from now on.
        self.0.changes.fetch_add(1, Ordering::Release);
        self.0.watchers.lock().retain(|watcher| watcher());
    }

    /// How often they have changed.
    pub fn changes(&self) -> u64 {
        self.0.changes.load(Ordering::Acquire)
    }

    /// Has `watcher` called with each change, until it returns false: what carries requests elsewhere tells the clients
    /// there. It is called with a lock held, and must not wait.
    pub fn watch(&self, watcher: impl Fn() -> bool + Send + 'static) {
        self.0.watchers.lock().push(Box::new(watcher));
    }
}

impl Default for Preferences {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Preferences {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Preferences").field("changes", &self.changes()).finish_non_exhaustive()
    }
}
