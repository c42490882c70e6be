//! Stand-ins: when a client has back the memory that it added to a server's pool.
//!
//! Why: a burst of requests may take far more than the server lends. The client's memory in that pool is shown to this server
//! alone, and of no other use meanwhile.
//! How: the first shortage starts a thread, which gives back what is free every [`PAUSE`], and ends when all has come back and
//! nothing was short for a whole pause, or the channel is over. So what requests use again and again is made anew once in a
//! while.
//! Limits: memory that is short is given back at once (`genie_memory::Space::with_stand_ins`). Memory that takes longer than a
//! pause to be added may stay until the next shortage.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::remote::Remote;
use crate::primitive::{AtomicU32, Ordering, spawn, thread};

/// How long free memory stays in a pool.
const PAUSE: Duration = Duration::from_secs(2);

/// What the thread knows that gives back what is added to one server's pool: one of the constants below.
#[derive(Debug, Clone, Default)]
pub(super) struct StandIns(Arc<AtomicU32>);

/// There is no thread.
const UNWATCHED: u32 = 0;
/// Nothing was short since the thread's pause began.
const QUIET: u32 = 1;
/// Something is about to be added.
const SHORT: u32 = 2;

impl StandIns {
    /// Sees to it that what is about to be added to the pool is given back. Where no thread can be started now, the next
    /// shortage tries again.
    pub(super) fn watch(&self, remote: &Weak<Remote>) {
        if self.0.swap(SHORT, Ordering::AcqRel) != UNWATCHED {
            return;
        }
        let (watched, remote) = (self.clone(), Weak::clone(remote));
        if spawn("genie-stand-ins", move || watched.run(&remote)).is_err() {
            self.0.store(UNWATCHED, Ordering::Release);
        }
    }

    fn run(&self, remote: &Weak<Remote>) {
        loop {
            self.0.store(QUIET, Ordering::Release);
            thread::sleep(PAUSE);
            // A channel that is over has given back everything, or does so when nobody can touch it any more.
            let Some(remote) = remote.upgrade().filter(|remote| !remote.link.is_gone()) else { return };
            let end = || self.0.compare_exchange(QUIET, UNWATCHED, Ordering::AcqRel, Ordering::Relaxed);
            if remote.space.give_back_stand_ins(remote.parties.lender) == 0 && end().is_ok() {
                return;
            }
        }
    }
}
