//! References to data, which the engine passes on and never looks into.
//!
//! How: a reference is cloned where a segment is made of it and kept for being sent again, so that a clone must be cheap: a handle of
//! counted memory, a range of an adapter's ring, a message block.

use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;

/// A reference to some bytes, which stay where they are.
///
/// Shape: one run of bytes, of at most 1 GiB. Whoever makes a reference says what holds the bytes; the engine drops the references that it
/// no longer needs, and gives those back that were sent ([`Connection::poll_released`](crate::Connection::poll_released)).
pub trait Payload: Clone {
    /// How many bytes it refers to. It never changes.
    fn len(&self) -> usize;

    /// A reference to a part of them. `range` lies within the length.
    fn part(&self, range: Range<usize>) -> Self;

    /// Whether it refers to none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The references of a segment's payload, in order; two fit without an allocation.
pub type Pieces<P> = SmallVec<[P; 2]>;

/// How many bytes the pieces have together.
pub(crate) fn len_of<P: Payload>(pieces: &[P]) -> usize {
    pieces.iter().map(Payload::len).sum()
}

/// A range of bytes that are counted: the plainest payload, for programs that have their data on the heap, and for tests.
#[derive(Debug, Clone)]
pub struct Shared {
    bytes: Arc<[u8]>,
    range: Range<usize>,
}

impl Shared {
    /// All of `bytes`.
    pub fn new(bytes: impl Into<Arc<[u8]>>) -> Self {
        let bytes = bytes.into();
        Self { range: 0..bytes.len(), bytes }
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[self.range.clone()]
    }
}

impl Payload for Shared {
    fn len(&self) -> usize {
        self.range.len()
    }

    fn part(&self, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= self.len(), "a part that is not within the whole");
        let start = self.range.start;
        Self { bytes: self.bytes.clone(), range: start + range.start..start + range.end }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_part_refers_to_the_same_bytes() {
        let whole = Shared::new(*b"0123456789");
        let part = whole.part(2..8).part(1..4);
        assert_eq!(part.bytes(), b"345");
        assert!(Arc::ptr_eq(&whole.bytes, &part.bytes));
        assert!(part.part(1..1).is_empty());
    }

    #[test]
    #[should_panic(expected = "not within the whole")]
    fn a_part_beyond_the_whole_is_refused() {
        Shared::new(*b"012").part(1..2).part(0..2);
    }
}
