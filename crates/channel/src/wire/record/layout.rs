//! The fixed parts of records, byte for byte as docs/channel.md shows them.

use zerocopy::little_endian::{I32, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::Slot;
use crate::wire::{MAX_OFFSET, TooLarge, U48, fits, parts};

parts! {
    /// The name of a request: the whole of an abort or a done record, and the first part of a request or a reply.
    SlotPart { index: U32, generation: U32 }

    /// The whole of a record that tells of control messages.
    SaidPart { messages: U64 }

    /// The whole of a record that tells of progress.
    ProgressPart { slot: SlotPart, buffer: U16, len: U48 }

    /// The first part of a request; the argument and the buffers follow.
    RequestHead { slot: SlotPart, service: U16, buffers: U16, argument: U32, room: U32 }

    /// The first part of a request's buffer; the elements follow.
    BufferHead { elements: U16, direction: u8, copied: u8 }

    /// The first part of an element; its segments follow.
    ElementHead { segments: U16, len: U48 }

    /// A buffer with one element, which is carried.
    CarriedBuffer { head: BufferHead, element: ElementHead }

    /// The first part of a reply; the detail and the buffers follow.
    ReplyHead { slot: SlotPart, status: u8, anticipated: u8, buffers: U16, code: I32, detail: U32 }

    /// The detail of a reply that refuses.
    RefusalPart { asked: U64, pending: U64, allowed: U64 }

    /// What a reply says of a buffer.
    ReplyBufferPart { actual: U48 }
}

/// A run of bytes in one of the client's arenas.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Segment {
    pub(super) arena: U16,
    pub(super) offset: U48,
    pub(super) len: U48,
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
