//! Time, as the caller tells it.

/// A time: how long after an origin of the caller's choice, the same for all calls of one connection or table, and never going back.
pub type Time = std::time::Duration;
