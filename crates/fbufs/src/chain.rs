//! Messages: chains of blocks, which modules pass on, put headers in front of, cut and join.
//!
//! Why: see [`Block`]. A message's bytes are those of its blocks, in order; to make them lie in one piece would copy them.
//! Source: SMLI TR-95-39 §5.2.5; AT&T's STREAMS (linkb, dupmsg, adjmsg, pullupmsg, msgdsize).

use std::collections::VecDeque;
use std::io::IoSlice;
use std::os::fd::AsFd;

use rustix::io::Errno;

use crate::error::{Error, Result};
use crate::{Block, Channel, Connection, Fbuf, Pool, Unwritten};

/// The headroom of a block that is put in front of a message for a header, for further headers.
const HEADROOM: usize = 256;
/// How many blocks a call of the kernel takes at most.
const AT_ONCE: usize = 64;

/// A chain of blocks.
#[derive(Debug, Default)]
pub struct Message(VecDeque<Block>);

impl Message {
    /// A message of no blocks.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many bytes it has.
    #[doc(alias = "msgdsize")]
    pub fn len(&self) -> usize {
        self.0.iter().map(|block| block.len()).sum()
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|block| block.is_empty())
    }

    /// The blocks, in order.
    pub fn blocks(&self) -> impl Iterator<Item = &Block> {
        self.0.iter()
    }

    /// The blocks, in order, to be changed.
    pub fn blocks_mut(&mut self) -> impl Iterator<Item = &mut Block> {
        self.0.iter_mut()
    }

    /// All bytes, copied.
    pub fn to_vec(&self) -> Vec<u8> {
        self.0.iter().flat_map(|block| block.iter().copied()).collect()
    }

    /// Puts a header in front: into the first block's headroom where there is room and nobody else has the buffer, else into a
    /// block of its own.
    ///
    /// # Errors
    /// As [`Pool::allocate`]; nothing has changed.
    pub fn prepend(&mut self, pool: &Pool, header: &[u8]) -> Result<()> {
        if self.0.front_mut().is_some_and(|first| first.prepend(header)) {
            return Ok(());
        }
        let mut block = Block::allocate(pool, HEADROOM + header.len(), 0)?;
        let is_done = block.prepend(header);
        debug_assert!(is_done, "there is room for it");
        self.0.push_front(block);
        Ok(())
    }

    /// Puts bytes behind, as [`Message::prepend`] puts them in front.
    ///
    /// # Errors
    /// As [`Pool::allocate`]; nothing has changed.
    pub fn append_bytes(&mut self, pool: &Pool, bytes: &[u8]) -> Result<()> {
        if self.0.back_mut().is_some_and(|last| last.append(bytes)) {
            return Ok(());
        }
        let mut block = Block::allocate(pool, 0, bytes.len())?;
        let is_done = block.append(bytes);
        debug_assert!(is_done, "there is room for it");
        self.0.push_back(block);
        Ok(())
    }

    /// Puts another message's blocks behind.
    #[doc(alias = "linkb")]
    pub fn append(&mut self, mut later: Self) {
        self.0.append(&mut later.0);
    }

    /// Cuts the message: this one keeps the first `at` bytes, and the one that is returned has the others. No byte is copied;
    /// at the cut, both share a buffer.
    ///
    /// # Errors
    /// [`Error::TooShort`]: it has fewer; nothing has changed.
    pub fn split_off(&mut self, at: usize) -> Result<Self> {
        let (mut before, mut index) = (0, 0);
        while index < self.0.len() && before + self.0[index].len() <= at {
            before += self.0[index].len();
            index += 1;
        }
        if index == self.0.len() && before < at {
            return Err(Error::TooShort { asked: at, len: before });
        }
        let mut cut = None;
        if before < at {
            cut = Some(self.0[index].split_off(at - before)?);
            index += 1;
        }
        let mut rest = self.0.split_off(index);
        if let Some(cut) = cut {
            rest.push_front(cut);
        }
        Ok(Self(rest))
    }

    /// Leaves out the first `len` bytes, and blocks without any left.
    ///
    /// # Errors
    /// [`Error::TooShort`]: it has fewer; nothing has changed.
    #[doc(alias = "adjmsg")]
    pub fn trim_front(&mut self, len: usize) -> Result<()> {
        *self = self.split_off(len)?;
        Ok(())
    }

    /// Another message of the same bytes, which neither may change while both exist.
    #[doc(alias = "dupmsg")]
    #[must_use]
    pub fn duplicate(&self) -> Self {
        Self(self.0.iter().map(Block::duplicate).collect())
    }

    /// Makes the first `len` bytes lie in the first block; copies them unless they do so already.
    ///
    /// # Errors
    /// [`Error::TooShort`]: it has fewer; as [`Pool::allocate`]. Nothing has changed.
    #[doc(alias = "pullupmsg")]
    pub fn pull_up(&mut self, pool: &Pool, len: usize) -> Result<()> {
        if self.0.front().is_some_and(|first| first.len() >= len) {
            return Ok(());
        }
        let total = self.len();
        if total < len {
            return Err(Error::TooShort { asked: len, len: total });
        }
        let mut first = Block::allocate(pool, 0, len)?;
        let rest = self.split_off(len)?;
        for block in &self.0 {
            let is_done = first.append(block);
            debug_assert!(is_done, "there is room for all of them");
        }
        self.0 = VecDeque::from([first]);
        self.append(rest);
        Ok(())
    }

    /// One buffer with all bytes: the only block's own, if nobody else has it and it is an fbuf, else a copy.
    ///
    /// # Errors
    /// As [`Pool::allocate`].
    pub fn into_fbuf(self, pool: &Pool) -> Result<Fbuf> {
        self.into_only_fbuf().or_else(|shared| shared.copied(pool))
    }

    /// The only block's own buffer, if nobody else has it and it is an fbuf.
    pub(crate) fn into_only_fbuf(mut self) -> Result<Fbuf, Self> {
        match self.0.pop_front() {
            Some(only) if self.0.is_empty() => only.into_fbuf().map_err(Self::from),
            Some(first) => {
                self.0.push_front(first);
                Err(self)
            }
            None => Err(self),
        }
    }

    /// One buffer with a copy of all bytes.
    pub(crate) fn copied(&self, pool: &Pool) -> Result<Fbuf> {
        let mut fbuf = pool.allocate(self.len())?;
        let mut at = 0;
        for block in &self.0 {
            fbuf[at..at + block.len()].copy_from_slice(block);
            at += block.len();
        }
        Ok(fbuf)
    }

    /// The blocks, in order.
    pub(crate) fn into_blocks(self) -> impl Iterator<Item = Block> {
        self.0.into_iter()
    }

    fn trim_written(&mut self, written: usize) {
        // The kernel has not written more than there was.
        let _ = self.trim_front(written);
    }

    /// Passes the blocks' buffers on, one after the other, until one fails; copies those that others have, or that are no fbufs, into
    /// fbufs that `allocate` gives.
    fn pass_on(
        &mut self,
        allocate: impl Fn(usize) -> Result<Fbuf>,
        pass: impl Fn(Fbuf) -> Result<usize, Box<Unwritten>>,
    ) -> Result<usize> {
        let mut written = 0;
        while let Some(block) = self.0.pop_front() {
            let passed = block
                .into_own_fbuf(&allocate)
                .and_then(|fbuf| pass(fbuf).map_err(|unwritten| (unwritten.error, unwritten.fbuf.into())));
            match passed {
                Ok(count) => written += count,
                Err((error, block)) => {
                    self.0.push_front(block);
                    return written_or(written, error);
                }
            }
        }
        Ok(written)
    }
}

impl From<Block> for Message {
    fn from(block: Block) -> Self {
        Self(VecDeque::from([block]))
    }
}

impl From<Fbuf> for Message {
    fn from(fbuf: Fbuf) -> Self {
        Block::from(fbuf).into()
    }
}

impl Pool {
    /// Writes a message to a descriptor of the kernel's, which gathers its blocks; what was written is taken out of the
    /// message. Waits as [`Pool::write`] does; returns how many bytes were written: fewer than the message had if the descriptor
    /// does not block, or fails then.
    ///
    /// # Errors
    /// Those of `writev`, and [`Error::WouldBlock`]; nothing was written.
    pub fn write_message(&self, fd: impl AsFd, message: &mut Message) -> Result<usize> {
        self.ensure_own()?;
        let mut written = 0;
        while !message.is_empty() {
            let parts: Vec<_> = message.blocks().take(AT_ONCE).map(|block| IoSlice::new(block)).collect();
            match rustix::io::writev(&fd, &parts) {
                Ok(count) => {
                    written += count;
                    message.trim_written(count);
                }
                Err(Errno::INTR) => {}
                Err(errno) => return written_or(written, Error::io("writev", errno)),
            }
        }
        Ok(written)
    }
}

/// What a call returns that has written so much before an error.
fn written_or(written: usize, error: Error) -> Result<usize> {
    if written > 0 { Ok(written) } else { Err(error) }
}

impl Channel {
    /// Writes a message, a buffer for each block: fbufs that nobody else has are passed, and the others are copied. Returns
    /// how many bytes were written.
    ///
    /// # Errors
    /// As [`Channel::write`]; nothing was written then. The message keeps what was not written.
    pub fn write_message(&self, message: &mut Message) -> Result<usize> {
        message.pass_on(|len| self.pool().allocate(len), |fbuf| self.write(fbuf))
    }

    /// As [`Channel::write_message`], but does not wait: it returns with fewer bytes, or fails with [`Error::WouldBlock`].
    ///
    /// # Errors
    /// As [`Channel::write_message`].
    pub fn try_write_message(&self, message: &mut Message) -> Result<usize> {
        message.pass_on(|len| self.pool().allocate(len), |fbuf| self.try_write(fbuf))
    }
}

impl Connection {
    /// Writes a message, a request for each block: fbufs that nobody else has are passed, and the others are copied. Returns
    /// how many bytes were written.
    ///
    /// # Errors
    /// As [`Connection::write`]; nothing was written then. The message keeps what was not written.
    pub fn write_message(&self, message: &mut Message) -> Result<usize> {
        message.pass_on(|len| self.allocate(len), |fbuf| self.write(fbuf))
    }
}

#[cfg(test)]
mod tests;
