//! Mapping what a request names, for as long as it is served.

use std::ops::Range;
use std::sync::atomic::Ordering;

use smallvec::SmallVec;

use super::announced::Announced;
use super::{Extent, Mapping, Mirror};
use crate::Result;
use crate::segments::Segments;

/// Some of a peer's data, mapped here; dropping it ends a transient mapping.
#[derive(Debug)]
pub struct Mapped {
    mirror: Mirror,
    segments: Segments,
    /// Of a transient mirror: the starts of the pieces that it uses.
    pieces: SmallVec<[usize; 2]>,
    /// How many runs the quota has been charged with.
    runs: usize,
}

impl Mirror {
    /// Maps `extents`, for stores, too, if `writes`.
    ///
    /// # Errors
    /// An extent that is not announced, or not for writing; [`Error::Limit`](crate::Error::Limit): the quota is used up; or
    /// the kernel can't map.
    ///
    /// # Cost
    /// Cached: a look-up, once the objects are mapped. Transient: a system call for each extent, and another later.
    pub fn map(&self, extents: &[Extent], writes: bool) -> Result<Mapped> {
        self.0.in_use.fetch_add(1, Ordering::Relaxed);
        // Dropped after the lock is released, on failure.
        let mut mapped =
            Mapped { mirror: self.clone(), segments: Segments::new(), pieces: SmallVec::new(), runs: 0 };
        let mut objects = self.objects();
        for extent in extents.iter().filter(|extent| extent.len > 0) {
            for (start, from, to) in objects.parts(*extent, writes)? {
                if self.0.mapping == Mapping::Transient {
                    self.0.quota.run()?;
                    mapped.runs += 1;
                }
                let announced = objects.announced.get_mut(&start).expect("found just now");
                let mut at = from;
                while at < to {
                    let piece = announced.piece(start, at);
                    self.map_piece(start, announced, piece.clone())?;
                    let end = piece.end.min(to);
                    if self.0.mapping == Mapping::Transient {
                        mapped.pieces.push(piece.start);
                    }
                    at = end;
                }
            }
            mapped.segments.push(self.0.arena.span(extent.offset, extent.len));
        }
        Ok(mapped)
    }

    /// Maps a piece that is not mapped yet; of a transient mirror, notes one more use of it.
    fn map_piece(&self, start: usize, announced: &mut Announced, piece: Range<usize>) -> Result<()> {
        if let Some(uses) = announced.uses.get_mut(&piece.start) {
            if self.0.mapping == Mapping::Transient {
                *uses += 1;
            }
            return Ok(());
        }
        self.0.quota.map(piece.len())?;
        let shown = self.show(start, announced, piece.clone());
        shown.inspect_err(|_| self.0.quota.unmap(piece.len()))?;
        announced.uses.insert(piece.start, 1);
        Ok(())
    }

    fn unuse(&self, pieces: &[usize]) {
        let mut objects = self.objects();
        for at in pieces {
            let Some((start, announced)) = objects.announced.range_mut(..=*at).next_back() else { continue };
            let Some(uses) = announced.uses.get_mut(at) else { continue };
            *uses -= 1;
            if *uses == 0 {
                announced.uses.remove(at);
                let piece = announced.piece(*start, *at);
                // Where the kernel can't unmap, the piece stays mapped until it is used again.
                let _ = self.0.arena.unmap(piece.start, piece.len());
                self.0.quota.unmap(piece.len());
            }
        }
    }
}

impl Mapped {
    /// Where the data is in this process.
    pub fn segments(&self) -> &Segments {
        &self.segments
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        if self.mirror.0.mapping == Mapping::Transient {
            self.mirror.unuse(&self.pieces);
            self.mirror.0.quota.end_runs(self.runs);
        }
        // Release: what the request's server did there happens before the unmapping that sees zero.
        self.mirror.0.in_use.fetch_sub(1, Ordering::Release);
    }
}
