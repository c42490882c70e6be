//! The fixed parts of records, byte for byte as docs/channel.md shows them.

use zerocopy::little_endian::{I32, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::Slot;
use crate::channel::wire::{MAX_OFFSET, TooLarge, U48, fits};

/// The name of a request: the whole of an abort or a done record, and the first part of a request or a reply.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct SlotPart {
    pub(super) index: U32,
    pub(super) generation: U32,
}

/// The whole of a record that tells of control messages.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct SaidPart {
    pub(super) messages: U64,
}

/// The first part of a request.
#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct RequestHead {
    pub(super) slot: SlotPart,
    pub(super) service: U16,
    pub(super) buffers: U16,
}

/// The first part of a request's buffer; the argument and the elements follow.
#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct BufferHead {
    pub(super) argument: U32,
    pub(super) room: U32,
    pub(super) elements: U16,
    pub(super) direction: u8,
    pub(super) zero: u8,
}

/// The first part of an element; its segments follow.
#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct ElementHead {
    pub(super) segments: U16,
    pub(super) len: U48,
}

/// A run of bytes in one of the client's arenas.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Segment {
    pub(super) arena: U16,
    pub(super) offset: U48,
    pub(super) len: U48,
}

/// The first part of a reply; the detail and the buffers follow.
#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct ReplyHead {
    pub(super) slot: SlotPart,
    pub(super) status: u8,
    pub(super) anticipated: u8,
    pub(super) buffers: U16,
    pub(super) code: I32,
    pub(super) detail: U32,
}

/// The detail of a reply that refuses.
#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct RefusalPart {
    pub(super) asked: U64,
    pub(super) pending: U64,
    pub(super) allowed: U64,
}

/// The first part of a reply's buffer; the argument follows.
#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct ReplyBufferHead {
    pub(super) actual: U48,
    pub(super) argument: U32,
}

impl SlotPart {
    #[inline]
    pub(super) fn get(self) -> Slot {
        Slot { index: self.index.get(), generation: self.generation.get() }
    }
}

impl From<Slot> for SlotPart {
    #[inline]
    fn from(slot: Slot) -> Self {
        Self { index: slot.index.into(), generation: slot.generation.into() }
    }
}

impl Segment {
    /// The `len` bytes from `offset` on of the client's arena number `arena`.
    ///
    /// # Errors
    /// The bytes would end beyond [`MAX_OFFSET`].
    #[inline]
    pub fn new(arena: u16, offset: u64, len: u64) -> Result<Self, TooLarge> {
        match (U48::new(offset), U48::new(len)) {
            (Some(offset48), Some(len48)) if fits(offset, len) => {
                Ok(Self { arena: arena.into(), offset: offset48, len: len48 })
            }
            _ => Err(TooLarge {
                what: "bytes up to a segment's end",
                count: offset.saturating_add(len),
                max: MAX_OFFSET,
            }),
        }
    }

    /// The arena's number: 0 is the arena of the client's own space; others are announced.
    #[inline]
    pub fn arena(&self) -> u16 {
        self.arena.get()
    }

    /// Where the segment begins in the arena.
    #[inline]
    pub fn offset(&self) -> u64 {
        self.offset.get()
    }

    /// How many bytes the segment has; a decoded one has at least one.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "a segment that travels is never empty")]
    pub fn len(&self) -> u64 {
        self.len.get()
    }
}
