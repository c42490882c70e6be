//! Followers: of the threads that wait for one server's replies, one (the leader) takes them off the ring; the others sleep.
//!
//! How: a thread that is about to sleep says so in one word. The leader looks at the word whenever it has taken replies or
//! stops leading; while no thread sleeps, it does nothing else for its followers.

use std::time::{Duration, Instant};

use crate::primitive::{AtomicU32, Condvar, Mutex, Ordering};

/// The longest time that a thread sleeps before it looks again whether its reply has come.
const LONGEST: Duration = Duration::from_millis(100);

/// The bit of [`Followers::waiting`] that says that an event loop waits by descriptor. The other bits count threads.
const WATCHED: u32 = 1 << 31;

/// The threads that sleep while another one leads, and whether an event loop waits.
#[derive(Debug, Default)]
pub struct Followers {
    waiting: AtomicU32,
    lock: Mutex<()>,
    woken: Condvar,
}

impl Followers {
    /// Sleeps until the leader wakes its followers, unless `is_over` already; at most until `deadline`.
    pub fn sleep(&self, is_over: impl Fn() -> bool, deadline: Option<Instant>) {
        // Partner: the compare-exchange in `wake`.
        self.waiting.fetch_add(1, Ordering::AcqRel);
        let guard = self.lock.lock();
        if !is_over() {
            let longest = Instant::now() + LONGEST;
            drop(self.woken.wait(guard, Some(deadline.map_or(longest, |deadline| deadline.min(longest)))));
        }
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    /// From now on [`Followers::wake`] says that an event loop waits. The caller then checks once more for what it waits
    /// for.
    pub fn watch(&self) {
        // Partner: the compare-exchange in `wake`.
        self.waiting.fetch_or(WATCHED, Ordering::AcqRel);
    }

    /// Wakes the threads that sleep, after something was taken for them, or when no thread leads any more; returns whether an
    /// event loop waits.
    #[inline]
    pub fn wake(&self) -> bool {
        // All changes of the word are in one order. If a thread announces itself before this compare-exchange, it is seen
        // here. If it does so afterwards, it reads the word that this wrote, and so sees what this thread did before. A mere
        // load here would need a fence on both sides.
        match self.waiting.compare_exchange(0, 0, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => false,
            Err(waiting) => self.wake_these(waiting),
        }
    }

    #[cold]
    fn wake_these(&self, waiting: u32) -> bool {
        if waiting & !WATCHED > 0 {
            // A sleeper holds the lock from its last look until it sleeps. Taking the lock puts this wake-up before that
            // look or after the sleep has begun.
            drop(self.lock.lock());
            self.woken.notify_all();
        }
        waiting & WATCHED != 0
    }
}
