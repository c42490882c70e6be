//! Deadlines: when the time that something may take is over.

use std::time::{Duration, Instant};

/// The instant when `timeout` from now is over; `None`, which means never, where the clock cannot count that far. So
/// `Duration::MAX` is a timeout that never ends.
pub(crate) fn deadline_after(timeout: Duration) -> Option<Instant> {
    Instant::now().checked_add(timeout)
}
