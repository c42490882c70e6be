//! Aliases: data in granules that the caller holds, at the addresses where servers work; and data in windows.
//!
//! Why it is sound: servers load and store through aliases, which never move while a granule is in use; Rust references never
//! point there.
#![allow(unsafe_code, reason = "makes data of granules, whose life the space's tables guard")]

use genie_sys::Span;

use crate::DataMut;
use crate::segments::Segments;
use crate::space::Core;
use crate::tables::runs::Run;

/// The alias of one granule.
pub(crate) fn granule(core: &Core, id: u32) -> DataMut<'_> {
    part(core, id, 0, core.granule())
}

/// The alias of `len` bytes that start `offset` bytes into granule `id` and continue in the granules numbered next.
///
/// The caller holds the granules.
pub(crate) fn part(core: &Core, id: u32, offset: usize, len: usize) -> DataMut<'_> {
    // SAFETY: aliases of a granule stay mapped while it is in anybody's hands (`lent_objects`), and no Rust reference points
    // into the alias arena.
    unsafe { DataMut::new(one(alias(core, id, offset, len))) }
}

/// The addresses of the alias of `len` bytes that start `offset` bytes into granule `id` and continue in the granules
/// numbered next.
pub(crate) fn alias(core: &Core, id: u32, offset: usize, len: usize) -> Span {
    core.aliases().span(core.alias_offset(id) + offset, len)
}

/// Client memory in a window. A store there works like one by the client itself: a protected granule faults and is
/// replaced.
///
/// The caller holds the bytes mutably borrowed, or owns them, and does not hold the space's lock.
pub(crate) fn window(core: &Core, addr: usize, len: usize) -> DataMut<'_> {
    // SAFETY: the caller has checked that the bytes are in a region, which is mapped until its owner is dropped, and has the
    // only reference to them, which it does not use meanwhile.
    unsafe { DataMut::new(one(core.windows.span(addr - core.windows.base(), len))) }
}

#[inline]
pub(crate) fn one(span: Span) -> Segments {
    let mut segments = Segments::new();
    segments.push(span);
    segments
}

/// The aliases of `len` bytes in runs of granules, from `offset` bytes into the first on.
pub(crate) fn segments(core: &Core, runs: impl Iterator<Item = Run>, offset: usize, len: usize) -> Segments {
    let mut segments = Segments::new();
    let (mut offset, mut left) = (offset, len);
    for run in runs {
        let here = (core.bytes(run.len) - offset).min(left);
        if here > 0 {
            segments.push(alias(core, run.start, offset, here));
        }
        left -= here;
        offset = 0;
    }
    segments
}
