//! Loop wakers: how an event loop is told that requests are over.
//!
//! How: a loop arms before it sleeps; then one signal wakes it, however many requests end until it looks again.

use genie_sys::event::Event;

use crate::Error;

/// Wakes an event loop when requests are over: those at servers in this process, or those at one elsewhere.
#[derive(Debug)]
pub struct LoopWaker {
    event: Event,
    /// A request ended since the loop collected last.
    is_told: bool,
    /// The loop may sleep.
    is_armed: bool,
    is_signalled: bool,
}

impl LoopWaker {
    /// One that tells of nothing yet.
    ///
    /// # Errors
    /// The process has no descriptors left.
    pub fn new() -> Result<Self, Error> {
        Ok(Self { event: Event::new()?, is_told: false, is_armed: false, is_signalled: false })
    }

    /// The event that is readable from the time when a sleeping loop is told until that loop looks.
    pub fn event(&self) -> &Event {
        &self.event
    }

    /// Whether the loop may be asleep.
    pub fn is_armed(&self) -> bool {
        self.is_armed
    }

    /// Tells the loop that a request is over.
    pub fn tell(&mut self) {
        self.is_told = true;
        self.wake();
    }

    /// Wakes a loop that sleeps, so that it looks and arms anew.
    pub fn wake(&mut self) {
        if std::mem::take(&mut self.is_armed) {
            // There is no caller to whom a failure could be returned.
            let _ = self.event.signal();
            self.is_signalled = true;
        }
    }

    /// The loop is about to look at what is pending.
    pub fn begin_look(&mut self) {
        (self.is_told, self.is_armed) = (false, false);
        if std::mem::take(&mut self.is_signalled) {
            // A signal that is not cleared costs one more look.
            let _ = self.event.clear();
        }
    }

    /// The loop is about to sleep; returns false when it should look again first.
    pub fn arm(&mut self) -> bool {
        self.is_armed = true;
        !self.is_told
    }
}
