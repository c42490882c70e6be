//! Abandoned requests: those pending at a server, or anticipated, whose replies no thread waits for any more.
//!
//! Why: the threads that wait for replies take them off the ring. Where a client has given its requests up, or forgotten them, or
//! has anticipated replies, no thread waits: the requests would hold their memory until the client's next request, and whatever
//! waits for that memory would wait for ever.
//! How: while there are abandoned requests, a thread looks at the ring now and then. It never sleeps on the ring, which is for
//! threads that wait for replies. It also sends the aborts for which the ring had no room.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::remote::Remote;

use crate::primitive::{Ordering, spawn, thread};

/// The first pause between two looks; each is twice as long as the one before.
const SHORTEST: Duration = Duration::from_millis(1);
/// The longest.
const LONGEST: Duration = Duration::from_millis(32);

impl Remote {
    /// Has replies taken that no thread waits for. Where no thread can be started, the next request takes them.
    pub(crate) fn tend(self: &Arc<Self>) {
        if self.is_tended.swap(true, Ordering::AcqRel) {
            return;
        }
        let remote = Arc::downgrade(self);
        if spawn("genie-abandoned", move || tend(&remote)).is_err() {
            self.is_tended.store(false, Ordering::Release);
        }
    }

    fn has_abandoned(&self) -> bool {
        !self.link.is_gone() && self.sending.lock().table.has_abandoned()
    }

    /// Whether nothing is left to be done; from then on, another thread may begin.
    fn is_tended_to(&self) -> bool {
        if self.has_abandoned() {
            return false;
        }
        self.is_tended.store(false, Ordering::SeqCst);
        // A request that was abandoned before the flag was cleared has no other thread to tend it.
        !self.has_abandoned() || self.is_tended.swap(true, Ordering::SeqCst)
    }
}

fn tend(remote: &Weak<Remote>) {
    let mut pause = SHORTEST;
    while let Some(remote) = remote.upgrade() {
        if remote.collect() > 0 {
            pause = SHORTEST;
        }
        remote.send_aborts();
        if remote.is_tended_to() {
            return;
        }
        drop(remote);
        thread::sleep(pause);
        pause = (pause * 2).min(LONGEST);
    }
}
