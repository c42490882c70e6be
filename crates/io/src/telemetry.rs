//! What the program's own instruments are told: counters for `metrics`, events for `tracing`.
//!
//! Why: whoever runs a program sees what it passes, and how its requests end, without a change of the program.
//! How: each function here is empty unless its feature is on, so that its callers need no condition and pay nothing.
//! Invariants: nothing on the data path makes an event, unless a request fails.

#![cfg_attr(
    not(all(feature = "metrics", feature = "tracing")),
    allow(unused_variables, reason = "without their feature, these functions are empty")
)]

#[cfg(feature = "metrics")]
mod counters;

use std::time::Duration;

use genie_memory::Direction;
use genie_passing::Receipt;

use crate::{Client, Error, RequestId, ServiceId};

/// A request of this process has its reply; `elements` says of each how it was passed, and how many bytes of it.
#[inline]
pub(crate) fn replied(elements: impl Iterator<Item = (Direction, Receipt, usize)>) {
    #[cfg(feature = "metrics")]
    counters::replied(elements);
}

/// A request of this process has failed, or was refused.
#[inline]
pub(crate) fn failed(error: &Error) {
    #[cfg(feature = "metrics")]
    {
        metrics::counter!("genie_requests_total").increment(1);
        metrics::counter!("genie_failures_total").increment(1);
    }
    #[cfg(feature = "tracing")]
    tracing::debug!(%error, "request failed");
}

/// A server of this process has made a mistake with a client's request, which fails by it.
pub(crate) fn mistaken(client: &Client, service: ServiceId, error: &Error) {
    #[cfg(feature = "tracing")]
    tracing::warn!(client = client.name, pid = client.pid, service = service.0, %error, "server's mistake");
}

/// A continuation has taken longer than it said, in a thread for which others wait.
pub(crate) fn overran(cost: Duration, took: Duration) {
    #[cfg(feature = "metrics")]
    metrics::counter!("genie_overruns_total").increment(1);
    #[cfg(feature = "tracing")]
    tracing::warn!(?cost, ?took, "a continuation took longer than it said");
}

/// A client of this process asks a server to let a request go.
pub(crate) fn aborted(server: &str, request: RequestId, reason: &Error) {
    #[cfg(feature = "tracing")]
    tracing::debug!(server, request = request.0, %reason, "abort");
}
