//! Names of requests, unique in the process.
//!
//! Why: a server keeps its requests by name, and is asked by name to let one go. They come from several interfaces of this
//! process, and from clients in others.
//! How: each interface, and a server for each of its clients, takes numbers from a block of its own, in rising order; blocks are
//! from one counter. So taking a number touches no memory that other interfaces touch.
//! Limits: 2^39 blocks of 2^24 numbers.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// Names a request: no other request of this process, made or served, ever has the same name. Of two requests of one interface,
/// the later one has the greater name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub(crate) u64);

impl RequestId {
    /// The name as a number, for programs in other languages; never 0.
    pub const fn number(self) -> u64 {
        self.0
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "request {}", self.0)
    }
}

/// Names a pending request: its place in the client's table, and how often that place was taken before, so that a late or
/// repeated reply is not taken for the reply to the next request there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Slot {
    /// The place.
    pub index: u32,
    /// How often the place was taken before; the count wraps.
    pub generation: u32,
}

/// The bit of a number that says that its block is used up. So between two blocks, as many numbers as a block has are never
/// given out.
const SPENT: u64 = 1 << 24;

/// The first number of the next block.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// Gives names, each greater than the one before. A carrier takes those of the requests that it brings from one of its own.
#[derive(Debug)]
pub struct RequestIds {
    next: AtomicU64,
}

impl Default for RequestIds {
    fn default() -> Self {
        Self { next: AtomicU64::new(block()) }
    }
}

impl RequestIds {
    /// The next name.
    #[inline]
    pub fn take(&self) -> RequestId {
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            if number & SPENT == 0 {
                return RequestId(number);
            }
            self.renew();
        }
    }

    /// The next name, for whoever has these names alone: without a locked instruction.
    #[inline]
    pub fn take_alone(&mut self) -> RequestId {
        let next = self.next.get_mut();
        if *next & SPENT != 0 {
            *next = block();
        }
        *next += 1;
        RequestId(*next - 1)
    }

    /// A number greater than every name given so far, and no greater than any later name.
    pub(crate) fn bound(&self) -> RequestId {
        RequestId(self.next.load(Ordering::Relaxed))
    }

    /// Begins another block. Threads that find the old block used up at the same time may take several blocks; one of these
    /// blocks counts.
    #[cold]
    fn renew(&self) {
        let spent = self.next.load(Ordering::Relaxed);
        if spent & SPENT != 0 {
            // Where this fails, another thread has begun a block.
            let _ = self.next.compare_exchange(spent, block(), Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

/// The first number of a new block.
fn block() -> u64 {
    NEXT.fetch_add(2 * SPENT, Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_that_are_taken_alone_go_on_in_another_block() {
        let mut ids = RequestIds::default();
        let first = ids.take_alone();
        *ids.next.get_mut() += SPENT - 2;
        let names = [first, ids.take_alone(), ids.take_alone(), ids.take()];
        assert!(names.is_sorted_by(|one, next| one < next), "{names:?}");
        assert!(names.iter().all(|name| name.number() & SPENT == 0), "{names:?}");
    }

    #[test]
    fn names_rise_and_are_unique_beyond_the_end_of_a_block() {
        let (ids, others) = (RequestIds::default(), RequestIds::default());
        let first = ids.take();
        ids.next.fetch_add(SPENT - 10, Ordering::Relaxed);
        let threads: Vec<Vec<_>> = std::thread::scope(|scope| {
            let take = || (0..1000).map(|_| ids.take()).collect();
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(take)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let bound = ids.bound();
        for names in &threads {
            assert!(names.is_sorted() && names.iter().all(|name| first < *name && *name < bound));
        }
        let theirs = (0..1000).map(|_| others.take());
        let all: HashSet<_> = threads.into_iter().flatten().chain(theirs).chain([first]).collect();
        assert_eq!(all.len(), 5001);
        assert!(all.iter().all(|name| name.number() & SPENT == 0 && name.number() > 0));
    }
}
