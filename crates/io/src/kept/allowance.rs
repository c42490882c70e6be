//! How much servers may keep of a client's outputs: each kept buffer has a share of the client's allowance.
//!
//! Limits: what is kept counts for at least [`LEAST`] bytes, and holds the private memory of at most [`MOST_LEFT`] clients that have left.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize as Count;

use crate::Error;
use crate::primitive::{AtomicBool, AtomicUsize, Ordering};

/// What the shortest kept buffer counts for, in bytes: so much the holder needs to know where it is.
const LEAST: usize = 128;

/// Of how many clients that have left this process holds private memory at most: each such memory has descriptors and addresses.
const MOST_LEFT: usize = 64;

/// Of how many it does.
static LEFT: Count = Count::new(0);

/// How much servers keep of one client's outputs, and how much they may.
#[derive(Debug)]
pub struct Allowance {
    kept: AtomicUsize,
    limit: usize,
    /// The option that sets the limit.
    option: &'static str,
    /// What the server has spent on all of its clients, and the most that it may.
    together: Option<(Arc<AtomicUsize>, usize)>,
    has_ended: AtomicBool,
    /// How many kept buffers are the client's private memory.
    held: AtomicUsize,
    /// Whether [`LEFT`] counts the client.
    is_left: AtomicBool,
}

/// One kept buffer's share.
#[derive(Debug)]
pub(super) struct Share {
    allowance: Arc<Allowance>,
    bytes: usize,
}

/// What a kept buffer has that is its client's private memory.
#[derive(Debug)]
pub(super) struct Hold(Arc<Allowance>);

impl Allowance {
    /// For a client of this process.
    pub(crate) fn here(limit: usize) -> Arc<Self> {
        Self::new(limit, "Limits::kept_bytes", None)
    }

    /// For a client elsewhere, of which `limit` bytes may be kept. With that the count of what the server has spent on all of its clients
    /// `together` may become so much; the carrier may count other things there, too.
    pub fn elsewhere(limit: usize, together: (Arc<AtomicUsize>, usize)) -> Arc<Self> {
        Self::new(limit, "ServeOptions::kept", Some(together))
    }

    fn new(limit: usize, option: &'static str, together: Option<(Arc<AtomicUsize>, usize)>) -> Arc<Self> {
        Arc::new(Self {
            kept: AtomicUsize::new(0),
            limit,
            option,
            together,
            has_ended: AtomicBool::new(false),
            held: AtomicUsize::new(0),
            is_left: AtomicBool::new(false),
        })
    }

    /// Says that the client has left, and that none of its requests is being served any more: private memory that is kept goes back to the
    /// kernel when it is dropped. Returns whether something is kept. A carrier with private buffers calls this, and then
    /// [`Space::discard_free`](genie_memory::Space::discard_free).
    pub fn end(&self) -> bool {
        self.has_ended.store(true, Ordering::SeqCst);
        if self.held.load(Ordering::SeqCst) > 0 {
            LEFT.fetch_add(1, Ordering::Relaxed);
            self.is_left.store(true, Ordering::SeqCst);
            // The last may have been let go just now.
            self.leave();
        }
        self.kept.load(Ordering::SeqCst) > 0
    }

    /// Counts the client no more, once nothing is held.
    fn leave(&self) {
        if self.held.load(Ordering::SeqCst) == 0 && self.is_left.swap(false, Ordering::SeqCst) {
            LEFT.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Holds the client's private memory; none where the memory of too many clients that have left is held.
    pub(super) fn hold(self: &Arc<Self>) -> Option<Hold> {
        let has_room = LEFT.load(Ordering::Relaxed) < MOST_LEFT;
        has_room.then(|| {
            self.held.fetch_add(1, Ordering::SeqCst);
            Hold(Arc::clone(self))
        })
    }

    pub(super) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::SeqCst)
    }

    pub(super) fn share(self: &Arc<Self>, bytes: usize) -> Result<Share, Error> {
        let bytes = bytes.max(LEAST);
        let take = |count: &AtomicUsize, limit: usize, option| {
            let more = |kept: usize| kept.checked_add(bytes).filter(|kept| *kept <= limit);
            let taken = count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
            taken.map(drop).map_err(|kept| Error::KeptTooMuch { asked: bytes, kept, limit, option })
        };
        take(&self.kept, self.limit, self.option)?;
        if let Some((spent, most)) = &self.together {
            take(spent, *most, "ServeOptions::pools").inspect_err(|_| {
                self.kept.fetch_sub(bytes, Ordering::Relaxed);
            })?;
        }
        Ok(Share { allowance: Arc::clone(self), bytes })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.allowance.kept.fetch_sub(self.bytes, Ordering::Relaxed);
        if let Some((spent, _)) = &self.allowance.together {
            spent.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}

impl Hold {
    pub(super) fn has_ended(&self) -> bool {
        self.0.has_ended()
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.held.fetch_sub(1, Ordering::SeqCst);
        self.0.leave();
    }
}

#[cfg(all(test, not(interleaved)))]
mod tests {
    use super::*;

    #[test]
    fn empty_buffers_are_bounded_too() {
        let allowance = Allowance::here(10 * LEAST);
        let mut kept: Vec<_> = (0..10).map(|_| allowance.share(0).unwrap()).collect();
        let option = "Limits::kept_bytes";
        let full = Error::KeptTooMuch { asked: LEAST, kept: 10 * LEAST, limit: 10 * LEAST, option };
        assert_eq!(allowance.share(1).unwrap_err().to_string(), full.to_string());
        kept.pop();
        allowance.share(1).unwrap();
    }

    /// A client that came, had a page kept, left, and came again used up its server's descriptors.
    #[test]
    fn the_private_memory_of_few_clients_that_have_left_is_held() {
        let client = || Allowance::elsewhere(1 << 20, (Arc::default(), usize::MAX));
        let leave = |client: &Arc<Allowance>| {
            let holds = [client.hold(), client.hold()].map(Option::unwrap);
            client.end();
            holds
        };
        let mut left: Vec<_> = (0..MOST_LEFT).map(|_| leave(&client())).collect();
        let here = client();
        assert!(here.hold().is_none());
        let [first, last] = left.pop().unwrap();
        drop(first);
        assert!(here.hold().is_none(), "the client's memory is held still");
        drop(last);
        drop(here.hold().unwrap());
        here.end();
        assert!(client().hold().is_some(), "who has left nothing does not count");
    }
}
