//! Announced objects: where a peer's objects are, and which of their *pieces* are mapped.
//!
//! How: a piece is what one system call maps. In a transient mirror it is a granule. In a cached mirror it is up to 64
//! MiB long, so that an object of the usual length is one piece, and a request for one byte of a vast object does not
//! map all of it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use genie_sys::{GranuleKind, Object};
use smallvec::SmallVec;

use super::{Extent, Mapping};
use crate::{Error, Result};

/// The longest piece of a cached mirror.
pub(super) const CACHED_PIECE: usize = 64 << 20;

/// The peer's objects by their places.
#[derive(Debug, Default)]
pub(super) struct Objects {
    pub(super) announced: BTreeMap<usize, Announced>,
    /// Places of withdrawn objects that could not be unmapped, since requests were being served: (start, length, bytes
    /// mapped of it).
    pub(super) withdrawn: Vec<(usize, usize, usize)>,
}

/// One object of the peer's.
#[derive(Debug)]
pub(super) struct Announced {
    pub(super) id: u64,
    pub(super) object: Arc<Object>,
    /// How long its pieces are; the last one may be shorter.
    piece: usize,
    /// The pieces that are mapped, by their starts, and how many requests use each; those of a cached mirror stay
    /// mapped.
    pub(super) uses: BTreeMap<usize, u32>,
}

/// Parts of objects: (object's start, from, to), as places in the arena.
pub(super) type Parts = SmallVec<[(usize, usize, usize); 1]>;

impl Announced {
    pub(super) fn new(id: u64, object: Object, granules: GranuleKind, mapping: Mapping) -> Self {
        let piece = match mapping {
            Mapping::Cached => CACHED_PIECE,
            Mapping::Transient => granules.size().max(object.kind().size()),
        };
        Self { id, object: Arc::new(object), piece, uses: BTreeMap::new() }
    }

    /// The piece that holds the byte at `at`, if the object begins at `start`.
    pub(super) fn piece(&self, start: usize, at: usize) -> Range<usize> {
        let from = start + (at - start) / self.piece * self.piece;
        from..(from + self.piece).min(start + self.object.len())
    }

    /// Bytes mapped.
    pub(super) fn mapped(&self, start: usize) -> usize {
        self.uses.keys().map(|at| self.piece(start, *at).len()).sum()
    }
}

impl Objects {
    /// The object that holds the byte at `at`, and its start.
    pub(super) fn holding(&self, at: usize) -> Option<(usize, &Announced)> {
        let (start, found) = self.announced.range(..=at).next_back()?;
        (at < start + found.object.len()).then_some((*start, found))
    }

    /// The object that is mapped at the byte at `at`, and its start.
    pub(super) fn mapped_at(&self, at: usize) -> Option<(usize, &Object)> {
        let (start, found) = self.holding(at)?;
        found.uses.contains_key(&found.piece(start, at).start).then_some((start, &*found.object))
    }

    /// The parts of announced objects that make up `extent`, which may be written if `writes`.
    pub(super) fn parts(&self, extent: Extent, writes: bool) -> Result<Parts> {
        let Extent { offset, len } = extent;
        let refuse = |what| Error::Announced { start: offset, len, what };
        let end = offset.checked_add(len).ok_or_else(|| refuse("its end overflows"))?;
        let mut parts = Parts::new();
        let mut at = offset;
        while at < end {
            let found = self.holding(at);
            let (start, found) = found.ok_or_else(|| refuse("no object was announced there"))?;
            if writes && !found.object.is_writable() {
                return Err(refuse("the object there was announced for reading only"));
            }
            let stop = start + found.object.len();
            parts.push((start, at, stop.min(end)));
            at = stop;
        }
        Ok(parts)
    }
}
