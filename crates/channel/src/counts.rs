//! Counting what a server passes for a client.
//!
//! How: the thread that sends a reply adds to the counts while it holds the lock of the client's requests, which it takes anyway.

use genie_io::carrier::Work;
use genie_memory::Direction;

/// Requests, and the bytes of those that succeeded: as many as an output had, and as many as the server says that it has passed
/// by an input ([`Incoming::set_actual`](genie_io::Incoming::set_actual)).
///
/// A buffer counts as *copied* if the client says with the request that it copies most of the buffer (to the server's pool or
/// the record, or from there), if the server copied it from a buffer of its own, or if the channel is untrusted. Otherwise it counts as *passed*:
/// it lies in memory that both sides see, or changes places. A client that means to swap an input and then copies it after
/// all, because the server has passed little, is not known here: receipts say what the client's process has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests that are over for the server: replied to, dropped, or refused because of a limit.
    pub requests: u64,
    /// How many of those did not succeed.
    pub failures: u64,
    /// Bytes of outputs that were copied.
    pub out_copied: u64,
    /// Bytes of outputs that were passed without copying.
    pub out_passed: u64,
    /// Bytes of inputs that were copied.
    pub in_copied: u64,
    /// Bytes of inputs that were passed without copying.
    pub in_passed: u64,
}

impl Counts {
    /// A request that has failed, or was refused.
    pub(super) const FAILURE: Self =
        Self { requests: 1, failures: 1, out_copied: 0, out_passed: 0, in_copied: 0, in_passed: 0 };

    /// A request that has succeeded; `buffers` says of each whether it was copied, and how many bytes of it were passed.
    #[inline]
    pub(super) fn of(work: &Work) -> Self {
        let mut counts = Self { requests: 1, ..Self::default() };
        work.each_buffer(|direction, is_copied, len, actual| {
            let (count, bytes) = match (direction, is_copied) {
                (Direction::Out, true) => (&mut counts.out_copied, len),
                (Direction::Out, false) => (&mut counts.out_passed, len),
                (Direction::In, true) => (&mut counts.in_copied, actual),
                (Direction::In, false) => (&mut counts.in_passed, actual),
            };
            *count += bytes as u64;
        });
        counts
    }

    /// Adds up two counts, or takes the second from the first.
    fn with(self, other: Self, with: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            requests: with(self.requests, other.requests),
            failures: with(self.failures, other.failures),
            out_copied: with(self.out_copied, other.out_copied),
            out_passed: with(self.out_passed, other.out_passed),
            in_copied: with(self.in_copied, other.in_copied),
            in_passed: with(self.in_passed, other.in_passed),
        }
    }

    /// The counts of both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        self.with(other, u64::saturating_add)
    }

    /// What has been added since `earlier`.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        self.with(earlier, u64::saturating_sub)
    }
}
