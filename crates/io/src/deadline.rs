//! Deadlines: when the time that something may take is over.

use std::time::{Duration, Instant};

/// The instant when `timeout` from now is over; `None`, which means never, where the clock cannot count that far. So
/// `Duration::MAX` is a timeout that never ends.
pub fn deadline_after(timeout: Duration) -> Option<Instant> {
    Instant::now().checked_add(timeout)
}

/// How long a request may wait for room.
#[derive(Debug, Clone, Copy)]
pub enum Patience {
    /// Not at all: the request is asynchronous.
    None,
    /// Until this time, or for ever.
    Until(Option<Instant>),
}
