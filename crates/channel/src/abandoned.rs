//! Abandoned requests: they are pending at a server, or have an anticipated reply, and no thread waits for them any more.
//!
//! Why: the threads that wait for replies take them off the ring. For requests that a client has given up or forgotten, and
//! for those with anticipated replies, no thread waits: they would hold their memory until the client's next request, and
//! whatever waits for that memory would wait for ever.
//! How: while there are abandoned requests, a thread looks at the ring now and then. It never sleeps on the ring: only
//! threads that wait for replies do. It also sends the aborts for which the ring had no room.

use std::sync::{Arc, Weak};
use std::time::Duration;

use genie_io::carrier::{have_left_run, run_waiting};

use super::remote::Remote;
use crate::primitive::{Ordering, spawn, thread};

/// The first pause between two looks at the ring. Each further pause is twice as long, and at most [`LONGEST`].
const SHORTEST: Duration = Duration::from_millis(1);
/// The longest pause.
const LONGEST: Duration = Duration::from_millis(32);

impl Remote {
    /// Starts a thread that takes the replies for which no thread waits. If none can be started, the next request takes
    /// them.
    pub(super) fn tend(self: &Arc<Self>) {
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

    /// Whether nothing is left to be done; if so, another thread may start from then on.
    fn is_tended_to(&self) -> bool {
        if self.has_abandoned() {
            return false;
        }
        self.is_tended.store(false, Ordering::SeqCst);
        // If a request was abandoned before the flag was cleared, no other thread was started for it.
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
        have_left_run();
        if remote.is_tended_to() {
            break;
        }
        drop(remote);
        thread::sleep(pause);
        pause = (pause * 2).min(LONGEST);
    }
    run_waiting();
}
