//! Abandoned requests: they are pending at a server, or anticipated, while nobody waits for a reply any more.
//!
//! Why: a reply is taken off its ring by a thread that waits for one. Where a client has given its requests up, or forgotten
//! them, or has its replies before the server is done, what they hold would be held until its next request, and what
//! waits for that memory, for ever.
//! How: as long as there are any, a thread looks at the ring now and then. It never sleeps on the ring: that is for those
//! who wait. It also sends what had to be said of them and found no room.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::remote::Remote;

use crate::primitive::{Ordering, spawn, thread};

/// The first pause between two looks; each is twice as long as the one before.
const SHORTEST: Duration = Duration::from_millis(1);
/// The longest.
const LONGEST: Duration = Duration::from_millis(32);

impl Remote {
    /// Sees to it that replies are taken which nobody waits for. Where no thread can be had, the next request takes them.
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
        // One that came before the flag was cleared has nobody else.
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
