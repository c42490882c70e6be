//! Presence: when a client of this process leaves, and which servers are told.
//!
//! How: a client in another process leaves with its channel. One in this process leaves when its interface is dropped, and all of
//! its pending requests with it; the interface remembers the servers of this process that it has asked, and tells them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use genie_sys::fork::Maker;

use crate::Client;
use crate::primitive::Mutex;
use crate::server::code::{Code, WeakCode};

/// How many servers an interface remembers without a lock.
const REMEMBERED: usize = 16;

/// Held by a client of this process: by its interface and by its pending requests. When the last holder drops it, the
/// servers that the client has asked are told that the client has left.
#[derive(Debug)]
pub(crate) struct Presence {
    client: Client,
    maker: Maker,
    /// The numbers of servers that have been asked. A server's number determines its place here, where another server's
    /// number may have replaced it.
    remembered: [AtomicU64; REMEMBERED],
    asked: Mutex<Vec<WeakCode>>,
}

impl Presence {
    pub(crate) fn new(client: &Client) -> Arc<Self> {
        let remembered = [const { AtomicU64::new(0) }; REMEMBERED];
        Arc::new(Self {
            client: client.clone(),
            maker: Maker::this_process(),
            remembered,
            asked: Mutex::default(),
        })
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Notes that a server is asked.
    #[inline]
    pub(crate) fn asks(&self, server: &Code) {
        let place = &self.remembered[server.number() as usize % REMEMBERED];
        // The thread that drops the last handle sees what was done through all others.
        if place.load(Ordering::Relaxed) != server.number() {
            self.remember(server);
            place.store(server.number(), Ordering::Relaxed);
        }
    }

    #[cold]
    fn remember(&self, server: &Code) {
        let mut asked = self.asked.lock();
        if asked.iter().all(|known| !known.is(server)) {
            asked.retain(WeakCode::is_there);
            asked.push(server.downgrade());
        }
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        // The servers of a forked child are copies, whose locks may be held for ever.
        if !self.maker.is_this_process() {
            return;
        }
        let asked = std::mem::take(self.asked.get_mut());
        asked.iter().filter_map(WeakCode::upgrade).for_each(|server| server.departed(self.client.id));
    }
}
