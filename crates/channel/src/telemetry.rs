//! What the program's own instruments are told of channels: counters for `metrics`, events for `tracing`.
//!
//! How: each function here is empty unless its feature is on, so that its callers need no condition and pay nothing.
//! Invariants: nothing on the data path makes an event, unless a request fails.

#![cfg_attr(
    not(all(feature = "metrics", feature = "tracing")),
    allow(unused_variables, reason = "without their feature, these functions are empty")
)]

use genie_io::{Client, Error, RequestId};

use crate::counts::Counts;

/// How a thread has waited for replies at a channel.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Wait {
    /// It looked until there was one.
    Spun,
    /// It slept.
    Slept,
}

/// How often a thread has waited at a channel. It is told when the thread does not lead any more, since the program's recorder
/// may make requests.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    #[cfg(feature = "metrics")]
    spun: u64,
    #[cfg(feature = "metrics")]
    slept: u64,
}

impl Waits {
    #[inline]
    pub(crate) fn note(&mut self, how: Wait) {
        #[cfg(feature = "metrics")]
        match how {
            Wait::Spun => self.spun += 1,
            Wait::Slept => self.slept += 1,
        }
    }

    #[inline]
    pub(crate) fn tell(self) {
        #[cfg(feature = "metrics")]
        {
            count!("genie_waits_total", self.spun, "how" => "spun");
            count!("genie_waits_total", self.slept, "how" => "slept");
        }
    }
}

/// Counts something that has happened. Labels that are literals allocate nothing.
#[cfg(feature = "metrics")]
macro_rules! count {
    ($name:literal, $count:expr, $($labels:tt)*) => {
        if $count > 0 {
            metrics::counter!($name, $($labels)*).increment($count);
        }
    };
}
#[cfg(feature = "metrics")]
use count;

/// A server of this process is done with a request from another one.
#[inline]
pub(crate) fn served(counts: &Counts) {
    #[cfg(feature = "metrics")]
    {
        metrics::counter!("genie_served_requests_total").increment(counts.requests);
        metrics::counter!("genie_served_failures_total").increment(counts.failures);
        count!("genie_served_bytes_total", counts.out_copied, "direction" => "out", "how" => "copied");
        count!("genie_served_bytes_total", counts.out_passed, "direction" => "out", "how" => "passed");
        count!("genie_served_bytes_total", counts.in_copied, "direction" => "in", "how" => "copied");
        count!("genie_served_bytes_total", counts.in_passed, "direction" => "in", "how" => "passed");
    }
}

/// A client of this process has connected to a server in another one, or could not.
pub(crate) fn connected(server: &str, failure: Option<&Error>) {
    #[cfg(feature = "tracing")]
    match failure {
        None => tracing::info!(server, "connected"),
        Some(error) => tracing::info!(server, %error, "not connected"),
    }
}

/// A channel to a server is over.
pub(crate) fn ended(server: &str, reason: &Error) {
    #[cfg(feature = "tracing")]
    tracing::info!(server, %reason, "channel ended");
}

/// A client in another process has connected to a server of this one.
pub(crate) fn arrived(server: &str, client: &Client) {
    #[cfg(feature = "tracing")]
    tracing::info!(server, client = client.name, pid = client.pid, "client connected");
}

/// A client has left a server of this process; `wrong` is what it did that no honest client does.
pub(crate) fn departed(server: &str, client: &Client, wrong: Option<&str>) {
    #[cfg(feature = "tracing")]
    match wrong {
        None => tracing::info!(server, client = client.name, pid = client.pid, "client left"),
        Some(wrong) => {
            tracing::warn!(server, client = client.name, pid = client.pid, wrong, "client cut off")
        }
    }
}

/// A server of this process is asked to let a request of another process go.
pub(crate) fn evicted(client: &Client, request: RequestId) {
    #[cfg(feature = "tracing")]
    tracing::debug!(client = client.name, pid = client.pid, request = request.number(), "eviction");
}
