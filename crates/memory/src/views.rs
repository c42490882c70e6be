//! Views: the one file of this floor that turns addresses into memory.
//!
//! Why it is sound: a region's window is mapped accessibly from its creation to its removal, and its removal is the
//! drop of its only owner. While an owner can be borrowed, the library changes which granule a window shows only
//! - by a replacement (TCOW), which shows the same bytes, or
//! - by a delivery, for which the caller has given up or lent mutably the bytes delivered to; the other bytes of the
//!   granules concerned are write-protected and copied along (`swap`).
//!
//! Servers load and store through aliases, which never move while a granule is in use; Rust references never point there.
#![allow(
    unsafe_code,
    reason = "hands out references to regions and spans of granules, whose life the books guard"
)]

use genie_sys::Span;

use crate::region::Owned;
use crate::space::Core;

/// The bytes of an owned region.
pub(crate) fn bytes(owned: &Owned) -> &[u8] {
    // SAFETY: see the module's header; `addr..addr + len` lies inside the region's window, and the bytes are
    // initialized, since objects start as zeros.
    unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance(owned.addr), owned.len) }
}

/// The bytes of an owned region, exclusively.
pub(crate) fn bytes_mut(owned: &mut Owned) -> &mut [u8] {
    // SAFETY: as in `bytes`; a region has one owner, borrowed mutably here.
    unsafe { std::slice::from_raw_parts_mut(std::ptr::with_exposed_provenance_mut(owned.addr), owned.len) }
}

/// The alias of one granule.
pub(crate) fn granule(core: &Core, id: u32) -> Span {
    alias(core, id, 0, core.granule())
}

/// The alias of `len` bytes that start `offset` bytes into granule `id` and continue in the granules numbered next.
pub(crate) fn alias(core: &Core, id: u32, offset: usize, len: usize) -> Span {
    // SAFETY: aliases of a granule stay mapped while it is in anybody's hands (`loan`) and the space exists, which whoever
    // holds a span sees to by holding a reference or a system buffer; no Rust reference points into the alias arena.
    unsafe { core.aliases().span(core.alias_offset(id) + offset, len) }
}

/// Client memory in a window, to be stored into as the client itself would: a protected granule faults and is replaced.
///
/// The caller holds the bytes mutably borrowed, or owns them, and does not hold the space's lock.
pub(crate) fn window(core: &Core, addr: usize, len: usize) -> Span {
    // SAFETY: the caller has checked that the bytes are in a region, and may store into them.
    unsafe { core.windows.span(addr - core.windows.base(), len) }
}

/// Bytes of a mirrored arena that were mapped for a request.
pub(crate) fn mirrored(arena: &genie_sys::Arena, offset: usize, len: usize) -> Span {
    // SAFETY: the caller has mapped the bytes and keeps them mapped while a `Mapped` that holds the span exists; no Rust
    // reference points into a mirrored arena, and touching what its owner has punched out is caught by the arena's guard.
    unsafe { arena.span(offset, len) }
}
