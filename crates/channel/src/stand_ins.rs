//! Stand-ins: when a client has back the memory that it added to a server's pool.
//!
//! Why: a burst of requests may take far more than the server lends. The client's memory in that pool is shown to this server
//! alone, and of no other use meanwhile.
//! How: the first shortage starts a thread, which gives back what is free every [`PAUSE`], and ends when all has come back,
//! or the channel is over. So what requests use again and again is made anew once in a while.
//! Limits: memory that is short is given back at once (`genie_memory::Space::with_stand_ins`).

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::remote::Remote;
use crate::primitive::{AtomicBool, Ordering, spawn, thread};

/// How long free memory stays in a pool.
const PAUSE: Duration = Duration::from_secs(2);

/// Whether a thread gives back what is added to one server's pool.
#[derive(Debug, Clone, Default)]
pub(super) struct StandIns(Arc<AtomicBool>);

impl StandIns {
    /// Sees to it that what is about to be added to the pool is given back. Where no thread can be started now, the next
    /// shortage tries again.
    pub(super) fn watch(&self, remote: &Weak<Remote>) {
        if self.0.swap(true, Ordering::AcqRel) {
            return;
        }
        let (watched, remote) = (self.clone(), Weak::clone(remote));
        if spawn("genie-stand-ins", move || watched.run(&remote)).is_err() {
            self.0.store(false, Ordering::Release);
        }
    }

    fn run(&self, remote: &Weak<Remote>) {
        loop {
            thread::sleep(PAUSE);
            // A channel that is over has given back everything, or does so when nobody can touch it any more.
            let Some(remote) = remote.upgrade().filter(|remote| !remote.link.is_gone()) else { return };
            let left = || remote.space.give_back_stand_ins(remote.parties.lender);
            if left() == 0 {
                self.0.store(false, Ordering::Release);
                // What was added meanwhile found a thread that watches.
                if left() == 0 || self.0.swap(true, Ordering::AcqRel) {
                    return;
                }
            }
        }
    }
}
