//! Alarms: waking a thread that sleeps, and only then.

use std::sync::atomic::{AtomicBool, Ordering, fence};

use genie_sys::event::Event;

/// Wakes one thread.
#[derive(Debug)]
pub(super) struct Alarm {
    sleeps: AtomicBool,
    pub(super) event: Event,
}

impl Alarm {
    pub(super) fn new() -> genie_sys::Result<Self> {
        Ok(Self { sleeps: AtomicBool::new(false), event: Event::new()? })
    }

    /// Wakes the thread if it sleeps; to be called after what it is to see was stored.
    pub(super) fn wake(&self) {
        // Partner: the fence in `arm`. Either this finds the sleeper, or the sleeper finds what was stored.
        fence(Ordering::SeqCst);
        if self.sleeps.load(Ordering::Relaxed) && self.sleeps.swap(false, Ordering::Relaxed) {
            // It fails only where the kernel has no memory.
            let _ = self.event.signal();
        }
    }

    /// The thread is about to sleep on the event; it looks once more after this.
    pub(super) fn arm(&self) {
        self.sleeps.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// The thread is awake.
    pub(super) fn disarm(&self) {
        if !self.sleeps.swap(false, Ordering::Relaxed) {
            let _ = self.event.clear();
        }
    }
}
