//! Granules of two sizes in one space: 4 KiB for short buffers, 2 MiB for long ones.
//!
//! Why: a short buffer in a granule of 2 MiB wastes the rest of it, and moving the buffer zeroes that rest; a long buffer in
//! granules of 4 KiB costs a fault for each. And there are few reserved huge pages, but much other memory.
//! How: a space whose granules are large has a second one inside it, the *small* space, whose granules are 4 KiB. The two
//! have one limit, one range of aliases and one set of object names, so that whoever knows the space by these sees one; each
//! has its own tables and its own lock. A buffer is allocated from the space that suits its length, and from the other one
//! where that has no memory. From then on its address says of which space it is.
//!
//! ```text
//!   aliases   | G0       | G1       | G2       | ...      | g0 g1 g2 g3 g4 g5 ... |
//!             the space's own granules and lent ones        those of its small space
//! ```
//!
//! Limits: a buffer is of one size of granules; a swap between buffers of unlike sizes is a copy.
//! Source: none in the thesis, whose machines have one page size.

use crate::space::Space;
use crate::{Error, Result};

/// Buffers shorter than this part of a granule come from the small space.
const LONG: usize = 4;

impl Space {
    /// The space of 4 KiB granules for short buffers, if this one has larger granules and is no such space itself.
    pub fn small(&self) -> Option<&Self> {
        self.inner.small.as_ref()
    }

    /// The same space without its small one, for callers that want memory of this granule size whatever the length.
    #[must_use]
    pub fn alone(&self) -> Self {
        self.of(None)
    }

    /// The spaces of each granule size: this one, and its small one if it has one.
    pub(crate) fn each(&self) -> impl Iterator<Item = &Self> {
        std::iter::once(self).chain(self.small())
    }

    /// The space, of this one and its small one, whose windows have an address; this one for an address in neither.
    #[inline]
    pub fn at(&self, addr: usize) -> &Self {
        self.small().filter(|small| small.core().windows.offset_of(addr).is_some()).unwrap_or(self)
    }

    /// The space from which a buffer of `len` bytes is allocated while there is memory.
    pub fn for_len(&self, len: usize) -> &Self {
        self.small().filter(|_| len < self.granule() / LONG).unwrap_or(self)
    }

    /// Allocates from the space that suits `len` bytes, or from the other one where that one has no memory.
    pub(crate) fn by_len<T>(&self, len: usize, allocate: impl Fn(&Self) -> Result<T>) -> Result<T> {
        let first = self.for_len(len);
        let Some(small) = self.small() else { return allocate(first) };
        match allocate(first) {
            Err(error @ (Error::Limit { .. } | Error::Addresses { .. } | Error::Kernel(_))) => {
                // The reason that concerns memory of the buffer's own size is told.
                allocate(if first.has_tables_of(small) { self } else { small }).map_err(|_| error)
            }
            result => result,
        }
    }
}
