//! Deadlines: when the time that something may take is over.

use std::time::{Duration, Instant};

/// When `timeout` from now is over. `None`, which is never, where the clock cannot count that far: `Duration::MAX` is a
/// timeout that never ends.
pub(crate) fn deadline_after(timeout: Duration) -> Option<Instant> {
    Instant::now().checked_add(timeout)
}
