//! How much servers may keep of a client's outputs: each kept buffer has a share of the client's allowance.

use std::sync::Arc;

use crate::Error;
use crate::primitive::{AtomicBool, AtomicUsize, Ordering};

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
}

/// One kept buffer's share.
#[derive(Debug)]
pub(super) struct Share {
    allowance: Arc<Allowance>,
    bytes: usize,
}

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
        })
    }

    /// Says that the client has left, and that none of its requests is being served any more: private memory that is kept goes back to the
    /// kernel when it is dropped. Returns whether something is kept. A carrier with private buffers calls this, and then
    /// [`Space::discard_free`](genie_memory::Space::discard_free).
    pub fn end(&self) -> bool {
        self.has_ended.store(true, Ordering::SeqCst);
        self.kept.load(Ordering::SeqCst) > 0
    }

    pub(super) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::SeqCst)
    }

    pub(super) fn share(self: &Arc<Self>, bytes: usize) -> Result<Share, Error> {
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
