//! Quotas: how many of its addresses a process gives to one peer.
//!
//! Why: a peer alone says how long its arenas and objects are, and great lengths cost it nothing: an object may have
//! holes, which get memory only as they are mapped elsewhere. Without a bound one peer could use up the addresses that
//! others need.
//! How: all mirrors of a peer's share a quota. They take from it before they reserve or map addresses, and give back to it
//! when they undo that.
//! Limits: besides the quota's own limits, transient mirrors have at most 1024 runs of pieces mapped at once: each run
//! may be a mapping of its own, and a process may have 65,530 mappings (`vm.max_map_count`).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::{Error, Result};

/// How many pieces in a row a peer's requests may have mapped at once in transient mirrors.
const RUNS: usize = 1024;

/// What is left for a peer's mirrors. Cloning makes another handle.
#[derive(Debug, Clone)]
pub struct Quota(Arc<Left>);

#[derive(Debug)]
struct Left {
    /// Bytes of addresses that may still be reserved.
    addresses: AtomicUsize,
    /// Bytes that may still be mapped.
    mapped: AtomicUsize,
    /// Bytes that may be mapped at once.
    limit: usize,
    /// Runs that may still be mapped.
    runs: AtomicUsize,
}

impl Quota {
    /// For mirrors that reserve at most `addresses` bytes in all, and have at most `mapped` bytes mapped at once.
    pub fn new(addresses: usize, mapped: usize) -> Self {
        let (addresses, left) = (AtomicUsize::new(addresses), AtomicUsize::new(mapped));
        Self(Arc::new(Left { addresses, mapped: left, limit: mapped, runs: AtomicUsize::new(RUNS) }))
    }

    /// Bytes that are mapped.
    pub fn mapped(&self) -> usize {
        self.0.limit - self.0.mapped.load(Ordering::Relaxed)
    }

    pub(super) fn reserve(&self, start: usize, len: usize) -> Result<()> {
        let what = "it leaves less than that of the addresses that a peer may take here";
        take(&self.0.addresses, len).map_err(|_| Error::Announced { start, len, what })
    }

    pub(super) fn release(&self, len: usize) {
        self.0.addresses.fetch_add(len, Ordering::Relaxed);
    }

    pub(super) fn map(&self, len: usize) -> Result<()> {
        let limit = self.0.limit;
        take(&self.0.mapped, len).map_err(|left| Error::Limit { asked: len, used: limit - left, limit })
    }

    pub(super) fn run(&self) -> Result<()> {
        take(&self.0.runs, 1).map_err(|_| Error::Pieces { limit: RUNS })
    }

    pub(super) fn end_runs(&self, count: usize) {
        self.0.runs.fetch_add(count, Ordering::Relaxed);
    }

    pub(super) fn unmap(&self, len: usize) {
        self.0.mapped.fetch_add(len, Ordering::Relaxed);
    }
}

/// Takes `len` from what is left, or returns what is left. This orders no other memory access.
fn take(left: &AtomicUsize, len: usize) -> std::result::Result<(), usize> {
    left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(len)).map(drop)
}
