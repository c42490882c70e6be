//! Message blocks: parts of buffers, several of which may be of one buffer.
//!
//! Why: a stack of modules puts headers in front of data, cuts messages into packets and joins packets to messages. If each
//! step had a buffer of its own, each would copy.
//! How: a block names a part of a data block, which is a buffer with a count of the blocks that name parts of it. Whoever
//! has the only block may store, also beside the part: in its headroom and tailroom. The buffer is an fbuf, or memory of any other
//! kind, such as a system buffer: a message passes both by reference, and what takes fbufs alone is given copies of the latter.
//!
//! | STREAMS | here |
//! | --- | --- |
//! | `b_datap`, `db_ref` | a counted buffer, [`Block::references`] |
//! | `b_rptr`, `b_wptr` | [`Block::read_at`], [`Block::write_at`]; the bytes between them are the block's |
//! | `db_base`, `db_lim` | 0 and [`Block::capacity`] |
//! | `b_cont`, `b_next` | the order of the blocks in a [`Message`](crate::Message); of messages in any collection |
//! | `allocb`, `esballoc`, `freeb` | [`Block::allocate`], `Block::from(fbuf)` and [`Block::of`], drop |
//! | `dupb`, `copyb` | [`Block::duplicate`], [`Block::copied`] |
//!
//! Source: SMLI TR-95-39 §5.2.5, §5.4.2 (uf_allocb); AT&T's STREAMS.

use std::fmt::Debug;
use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::{Fbuf, Pool};

/// A part of a buffer.
#[derive(Debug)]
pub struct Block {
    data: Arc<Data>,
    read: usize,
    write: usize,
}

/// A buffer.
#[derive(Debug)]
enum Data {
    /// All of its pages are its data.
    Fbuf(Fbuf),
    Other(Box<dyn Bytes>),
}

/// Memory that a block can be made of.
trait Bytes: DerefMut<Target = [u8]> + Debug + Send + Sync {}

impl<B: DerefMut<Target = [u8]> + Debug + Send + Sync> Bytes for B {}

impl Block {
    /// Allocates a block of no bytes, with `headroom` bytes in front of it and `tailroom` behind it.
    ///
    /// # Errors
    /// As [`Pool::allocate`].
    #[doc(alias = "uf_allocb")]
    pub fn allocate(pool: &Pool, headroom: usize, tailroom: usize) -> Result<Self> {
        let mut fbuf = pool.allocate(headroom.saturating_add(tailroom))?;
        fbuf.set_data(headroom, 0)?;
        Ok(fbuf.into())
    }

    /// A block of all bytes of a buffer that is no [`Fbuf`]: of a system buffer ([`SystemBytes`](genie_memory::SystemBytes)), of a
    /// device's memory, or of the program's own. The buffer is dropped with the last block that names a part of it.
    pub fn of(buffer: impl DerefMut<Target = [u8]> + Debug + Send + Sync + 'static) -> Self {
        let write = buffer.len();
        Self { data: Arc::new(Data::Other(Box::new(buffer))), read: 0, write }
    }

    /// Where the block's bytes start in its buffer.
    pub fn read_at(&self) -> usize {
        self.read
    }

    /// Where they end.
    pub fn write_at(&self) -> usize {
        self.write
    }

    /// The buffer's length.
    pub fn capacity(&self) -> usize {
        self.data.len()
    }

    /// How many blocks name parts of the buffer.
    pub fn references(&self) -> usize {
        Arc::strong_count(&self.data)
    }

    /// Another block of the same bytes, which neither may change while both exist.
    #[must_use]
    pub fn duplicate(&self) -> Self {
        Self { data: Arc::clone(&self.data), ..*self }
    }

    /// A block of a buffer of its own, with the same bytes, headroom and tailroom: of an fbuf where this one is, else of the heap.
    ///
    /// # Errors
    /// As [`Pool::allocate`].
    pub fn copied(&self) -> Result<Self> {
        let mut data = match &*self.data {
            Data::Fbuf(fbuf) => Data::Fbuf(fbuf.allocate_alike(self.capacity())?),
            Data::Other(bytes) => Data::Other(Box::new(vec![0; bytes.len()])),
        };
        data[self.range()].copy_from_slice(self);
        Ok(Self { data: Arc::new(data), ..*self })
    }

    /// The bytes, to be changed, unless another block names parts of the same buffer.
    pub fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        let range = self.range();
        Some(&mut Arc::get_mut(&mut self.data)?[range])
    }

    /// Puts bytes in front, in the headroom; returns false, and does nothing, where there is too little room, or another block
    /// names parts of the same buffer.
    pub fn prepend(&mut self, bytes: &[u8]) -> bool {
        let Some(read) = self.read.checked_sub(bytes.len()) else { return false };
        let is_done = self.store(read, bytes);
        self.read = if is_done { read } else { self.read };
        is_done
    }

    /// Puts bytes behind, in the tailroom; returns false as [`Block::prepend`] does.
    pub fn append(&mut self, bytes: &[u8]) -> bool {
        let is_done = bytes.len() <= self.capacity() - self.write && self.store(self.write, bytes);
        self.write += if is_done { bytes.len() } else { 0 };
        is_done
    }

    fn store(&mut self, at: usize, bytes: &[u8]) -> bool {
        let place = Arc::get_mut(&mut self.data).map(|data| &mut data[at..at + bytes.len()]);
        place.map(|place| place.copy_from_slice(bytes)).is_some()
    }

    /// Leaves out bytes at both ends; bytes that are left out on the way become headroom and tailroom.
    ///
    /// # Errors
    /// [`Error::TooShort`]: it has fewer; nothing has changed.
    pub fn narrow(&mut self, range: Range<usize>) -> Result<()> {
        if range.start > range.end || range.end > self.len() {
            return Err(Error::TooShort { asked: range.end, len: self.len() });
        }
        (self.read, self.write) = (self.read + range.start, self.read + range.end);
        Ok(())
    }

    /// Cuts the block: this one keeps the first `at` bytes, and the one that is returned has the others. No byte is copied.
    ///
    /// # Errors
    /// [`Error::TooShort`]: it has fewer; nothing has changed.
    pub fn split_off(&mut self, at: usize) -> Result<Self> {
        let (mut rest, len) = (self.duplicate(), self.len());
        rest.narrow(at..len)?;
        self.narrow(0..at)?;
        Ok(rest)
    }

    /// The buffer, with the block's bytes as its data; the block, where another one names parts of the same buffer, or that is
    /// no fbuf.
    pub fn into_fbuf(self) -> Result<Fbuf, Self> {
        if let Data::Other(_) = *self.data {
            return Err(self);
        }
        let (read, write) = (self.read, self.write);
        match Arc::try_unwrap(self.data) {
            Ok(Data::Fbuf(mut fbuf)) => {
                // Inside, since the block's part always is.
                let _ = fbuf.set_data(read, write - read);
                Ok(fbuf)
            }
            Ok(other) => Err(Self { data: Arc::new(other), read, write }),
            Err(data) => Err(Self { data, read, write }),
        }
    }

    fn range(&self) -> Range<usize> {
        self.read..self.write
    }

    /// The buffer as [`Block::into_fbuf`] gives it, or a copy of the block's bytes in one that `allocate` gives.
    pub(crate) fn into_own_fbuf(
        self,
        allocate: impl FnOnce(usize) -> Result<Fbuf>,
    ) -> Result<Fbuf, (Error, Self)> {
        self.into_fbuf().or_else(|shared| match allocate(shared.len()) {
            Ok(mut copy) => {
                copy.copy_from_slice(&shared);
                Ok(copy)
            }
            Err(error) => Err((error, shared)),
        })
    }
}

impl From<Fbuf> for Block {
    fn from(mut fbuf: Fbuf) -> Self {
        let (read, write) = (fbuf.headroom(), fbuf.headroom() + fbuf.len());
        let capacity = fbuf.capacity();
        let _ = fbuf.set_data(0, capacity);
        Self { data: Arc::new(Data::Fbuf(fbuf)), read, write }
    }
}

impl Deref for Block {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.data[self.range()]
    }
}

impl Deref for Data {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Fbuf(fbuf) => fbuf,
            Self::Other(bytes) => bytes,
        }
    }
}

impl DerefMut for Data {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Fbuf(fbuf) => fbuf,
            Self::Other(bytes) => bytes,
        }
    }
}
