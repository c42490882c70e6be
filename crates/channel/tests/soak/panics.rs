//! Ordered panics: servers panic with a request in their hands, or when they are asked to let a request go.
//!
//! Why: a server's mistake must end one request and no other, and be reported once.

use std::panic::PanicHookInfo;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::tally::Tally;

/// What these panics say.
const MESSAGE: &str = "a panic that was ordered";

/// How many panics there were, how many the panic hook was told of, and how many are in a tally.
static ORDERED: AtomicU64 = AtomicU64::new(0);
static REPORTED: AtomicU64 = AtomicU64::new(0);
static COUNTED: AtomicU64 = AtomicU64::new(0);

/// Panics.
pub(crate) fn panic_as_ordered() -> ! {
    ORDERED.fetch_add(1, Ordering::Relaxed);
    panic!("{MESSAGE}")
}

/// Whether this is an ordered panic; if so, it is counted.
pub(crate) fn is_ordered(info: &PanicHookInfo<'_>) -> bool {
    let is_ordered = info.payload_as_str() == Some(MESSAGE);
    REPORTED.fetch_add(is_ordered.into(), Ordering::Relaxed);
    is_ordered
}

/// Whether this is the error that a client gets for an ordered panic.
pub(crate) fn is_message(message: &str) -> bool {
    message == MESSAGE
}

/// Counts the panics since it was called last.
pub(crate) fn count(tally: &mut Tally) {
    let ordered = ORDERED.load(Ordering::Relaxed);
    tally.add("panics of servers", ordered - COUNTED.swap(ordered, Ordering::Relaxed));
}

/// Verifies, while the server has no requests, that each panic was reported once.
pub(crate) fn check() {
    let (ordered, reported) = (ORDERED.load(Ordering::Relaxed), REPORTED.load(Ordering::Relaxed));
    assert_eq!(ordered, reported, "panics are reported once each");
}
