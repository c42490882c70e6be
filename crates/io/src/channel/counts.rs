//! Counting what a server passes for a client.
//!
//! How: the thread that sends a reply adds to the counts while it holds the lock of the client's requests, which it takes anyway.

use genie_memory::Direction;

use super::wire::control::Counts;
use crate::work::Work;

impl Counts {
    /// A request that has failed, or was refused.
    pub(super) const FAILURE: Self =
        Self { requests: 1, failures: 1, out_copied: 0, out_passed: 0, in_copied: 0, in_passed: 0 };

    /// A request that has succeeded.
    #[inline]
    pub(super) fn of(work: &Work) -> Self {
        let mut counts = Self { requests: 1, ..Self::default() };
        for buffer in &work.buffers {
            let (count, bytes) = match (buffer.direction, buffer.is_copied()) {
                (Direction::Out, true) => (&mut counts.out_copied, buffer.len()),
                (Direction::Out, false) => (&mut counts.out_passed, buffer.len()),
                (Direction::In, true) => (&mut counts.in_copied, buffer.actual),
                (Direction::In, false) => (&mut counts.in_passed, buffer.actual),
            };
            *count += bytes as u64;
        }
        counts
    }
}
