//! Bells: waking a consumer that sleeps, and only then.
//!
//! Why: a wake-up is a system call of a microsecond or more, which is too long for a request whose sides are both
//! awake.
//! How: before it sleeps, a consumer says so in its `sleeper` word, and then looks once more for what it waits for. A
//! side that publishes something looks at the word afterwards. A SeqCst fence stands between the two steps on either
//! side, so that at least one side sees what the other side did. The side that finds a sleeper sets the word back to 0
//! and wakes the sleeper.
//! Cost: a fence and a load of a line that stays in the cache, while the consumer is awake.

use std::sync::Arc;

use crate::direction::Direction;
use crate::primitive::{Event, Ordering, fence};

/// How a consumer sleeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Mode {
    /// On the sleeper word itself: [`crate::Consumer::sleep`], or `genie_sys::futex::wait_any` for several channels.
    Futex = 1,
    /// With `poll` or `epoll` on the consumer's descriptor.
    Descriptor = 2,
}

/// The event that a side signals to wake its peer, and the event that the peer signals to wake this side.
#[derive(Debug, Clone)]
pub struct Bells {
    pub(crate) peer: Arc<Event>,
    pub(crate) own: Arc<Event>,
}

impl Bells {
    /// One end of a pair of events; this side both signals it and waits for it. Fit for a peer that is not trusted.
    pub fn end(end: Event) -> Self {
        let end = Arc::new(end);
        Self { peer: Arc::clone(&end), own: end }
    }

    /// Both events from elsewhere; several channels may share this side's event.
    pub fn shared(peer: Arc<Event>, own: Arc<Event>) -> Self {
        Self { peer, own }
    }
}

/// Wakes the consumer of this side from another thread, if it sleeps: for news that is not on the ring. The consumer looks for such
/// news between [`crate::Consumer::arm`] and its sleep.
#[derive(Debug, Clone)]
pub struct Waker(pub(crate) Bell);

impl Waker {
    /// Wakes the consumer; to be called after what it should see is published.
    pub fn wake(&self) {
        self.0.ring();
    }
}

/// Wakes the consumer of one direction.
#[derive(Debug, Clone)]
pub(crate) struct Bell {
    direction: Direction,
    event: Arc<Event>,
}

impl Bell {
    /// The bell of the side that consumes `direction` and waits for `event`.
    pub(crate) fn new(direction: Direction, event: Arc<Event>) -> Self {
        Self { direction, event }
    }

    /// Wakes the consumer if it sleeps; to be called after what the consumer waits for is published.
    #[inline]
    pub(crate) fn ring(&self) {
        // Partner: the fence in `Consumer::arm`.
        fence(Ordering::SeqCst);
        if self.direction.control().sleeper.0.0.load(Ordering::Relaxed) != 0 {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        let sleeper = &self.direction.control().sleeper.0;
        let mode = sleeper.0.swap(0, Ordering::AcqRel);
        if mode == Mode::Futex as u32 {
            sleeper.wake();
        } else if mode == Mode::Descriptor as u32 && self.event.signal().is_err() {
            // The kernel is out of memory for the moment. The next ring tries again, unless the consumer is awake by
            // then.
            let _ = sleeper.0.compare_exchange(0, mode, Ordering::AcqRel, Ordering::Relaxed);
        }
        // Any other value means that somebody else was faster, or that the peer does not want to be woken.
    }
}
