//! Messages about memory: objects and arenas of the client, objects of the server's pool.

use genie_sys::GranuleKind;

use super::bounds::MAX_DESCRIPTORS;
use super::layout::{ArenaPart, ObjectPart, PoolHead};
use super::part::{Part, check_arena, fixed, flag, granule, lens, read_granule, read_head, read_lens};
use crate::wire::cursor::Cursor;
use crate::wire::{MAX_OFFSET, Malformed, TooLarge, count, fits};

/// An object of the client's, and where its granules are in an arena.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectPlace {
    /// The arena's number.
    pub arena: u16,
    /// The object's number, which is never given again.
    pub id: u64,
    /// Where the object begins in the arena, in bytes.
    pub start: u64,
    /// Its length in bytes, from its first byte on.
    pub len: u64,
    /// Whether the server may write to it; if not, the descriptor is read-only.
    pub writable: bool,
}

/// An arena of the client's: where the aliases of some memory are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArenaPlace {
    /// Its number; 0 is the arena of the hello.
    pub number: u16,
    /// The kind of pages that its granules are.
    pub granule: GranuleKind,
    /// Its first address in the client.
    pub base: u64,
    /// Its length in bytes.
    pub len: u64,
}

impl Part for ObjectPlace {
    fn write(&self, bytes: &mut Vec<u8>) -> Result<(), TooLarge> {
        if !fits(self.start, self.len) {
            let count = self.start.saturating_add(self.len);
            return Err(TooLarge { what: "bytes up to an object's end", count, max: MAX_OFFSET });
        }
        let part = ObjectPart {
            arena: self.arena.into(),
            writable: self.writable.into(),
            zero: 0,
            id: self.id.into(),
            start: self.start.into(),
            len: self.len.into(),
        };
        fixed(bytes, part);
        Ok(())
    }

    fn read(cursor: &mut Cursor<'_>) -> Result<Self, Malformed> {
        let (at, part) = read_head::<ObjectPart>(cursor, "an object")?;
        let (start, len) = (part.start.get(), part.len.get());
        if len == 0 || part.zero != 0 || !fits(start, len) {
            let what = format!("no object has {len} bytes at {start} and the spare byte {}", part.zero);
            return Err(at.malformed(what));
        }
        let writable = flag(&at, "writable", part.writable)?;
        Ok(Self { arena: part.arena.get(), id: part.id.get(), start, len, writable })
    }
}

impl Part for ArenaPlace {
    fn write(&self, bytes: &mut Vec<u8>) -> Result<(), TooLarge> {
        let part = ArenaPart {
            number: self.number.into(),
            granule: granule(self.granule),
            zero: 0,
            base: self.base.into(),
            len: self.len.into(),
        };
        fixed(bytes, part);
        Ok(())
    }

    fn read(cursor: &mut Cursor<'_>) -> Result<Self, Malformed> {
        let (at, part) = read_head::<ArenaPart>(cursor, "an arena")?;
        let (number, base, len) = (part.number.get(), part.base.get(), part.len.get());
        if number == 0 || part.zero != 0 {
            let what = format!("no arena is announced with number {number} and the spare byte {}", part.zero);
            return Err(at.malformed(what));
        }
        let granule = read_granule(&at, part.granule)?;
        check_arena(&at, granule, base, len)?;
        Ok(Self { number, granule, base, len })
    }
}

/// The lengths of a pool's objects.
impl Part for Vec<u64> {
    fn write(&self, bytes: &mut Vec<u8>) -> Result<(), TooLarge> {
        let count: u16 = count("objects of a pool", self.len(), MAX_DESCRIPTORS)?;
        fixed(bytes, PoolHead { count: count.into() });
        lens(bytes, self);
        Ok(())
    }

    fn read(cursor: &mut Cursor<'_>) -> Result<Self, Malformed> {
        let (_, head) = read_head::<PoolHead>(cursor, "the head of more pool")?;
        read_lens(cursor, head.count.get())
    }
}
