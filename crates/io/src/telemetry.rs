//! What the program's own instruments are told: counters for `metrics`, events for `tracing`.
//!
//! Why: whoever runs a program sees what it passes, and its connections come and go, without a change of the program.
//! How: each function here is empty unless its feature is on, so that its callers need no condition and pay nothing.
//! Invariants: nothing on the data path makes an event, unless a request fails.

#![cfg_attr(
    not(all(feature = "metrics", feature = "tracing")),
    allow(unused_variables, reason = "without their feature, these functions are empty")
)]

#[cfg(feature = "metrics")]
mod counters;

use genie_memory::Direction;
use genie_passing::Receipt;

use crate::counts::Counts;
use crate::{Client, Error, RequestId, ServiceId};

/// How a thread has waited for replies at a channel.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Wait {
    /// It looked until there was one.
    Spun,
    /// It slept.
    Slept,
}

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
        // Labels that are literals allocate nothing.
        #[cfg(feature = "metrics")]
        {
            if self.spun > 0 {
                metrics::counter!("genie_waits_total", "how" => "spun").increment(self.spun);
            }
            if self.slept > 0 {
                metrics::counter!("genie_waits_total", "how" => "slept").increment(self.slept);
            }
        }
    }
}

/// A server of this process is done with a request from another one.
#[inline]
pub(crate) fn served(counts: &Counts) {
    #[cfg(feature = "metrics")]
    counters::served(counts);
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

/// A server of this process has made a mistake with a client's request, which fails by it.
pub(crate) fn mistaken(client: &Client, service: ServiceId, error: &Error) {
    #[cfg(feature = "tracing")]
    tracing::warn!(client = client.name, pid = client.pid, service = service.0, %error, "server's mistake");
}

/// A client of this process asks a server to let a request go.
pub(crate) fn aborted(server: &str, request: RequestId, reason: &Error) {
    #[cfg(feature = "tracing")]
    tracing::debug!(server, request = request.0, %reason, "abort");
}

/// A server of this process is asked to let a request of another process go.
pub(crate) fn evicted(client: &Client, request: RequestId) {
    #[cfg(feature = "tracing")]
    tracing::debug!(client = client.name, pid = client.pid, request = request.0, "eviction");
}
