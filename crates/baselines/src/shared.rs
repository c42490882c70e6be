//! Shared memory: used in place, which no means of passing data between processes can beat, and with one copy.
//!
//! How: in place, client and peer work in the same bytes; a message tells a side that the bytes are now its own to touch.
//! With a copy, the client's data is in ordinary memory of its own, and is copied into the shared memory to be passed out,
//! and from there when it has been passed in.

use std::io;
use std::os::fd::OwnedFd;

use super::ends::{Client, Peer};
use super::exchange::{Ask, Asked, Kept, Message, nonsense};
use super::line::Line;
use super::means::Waiting;
use super::memory::{Memory, SharedMemory, View};

/// The client's side.
#[derive(Debug)]
pub(crate) struct Shared {
    line: Line,
    memory: SharedMemory,
    /// The client's own memory, where data is copied.
    own: Option<Vec<u8>>,
}

impl Shared {
    pub(crate) fn new(line: Line, memory: SharedMemory, own: Option<Vec<u8>>) -> Self {
        Self { line, memory, own }
    }
}

impl Client for Shared {
    fn prepare(&mut self, len: usize, touch: &mut dyn FnMut(Memory<'_>)) -> io::Result<()> {
        touch(match &mut self.own {
            Some(own) => Memory::Bytes(&mut own[..len]),
            None => Memory::Shared(self.memory.part(0, len)),
        });
        Ok(())
    }

    fn exchange(&mut self, ask: Ask, len: usize) -> io::Result<Message> {
        if let Some(own) = self.own.as_ref().filter(|_| ask.takes()) {
            self.memory.part(0, len).copy_from(&own[..len]);
        }
        let answer = self.line.ask(ask, len, 0)?;
        if let Some(own) = self.own.as_mut().filter(|_| ask.gives()) {
            self.memory.part(0, len).copy_to(&mut own[..len]);
        }
        Ok(answer)
    }

    fn finish(&mut self, len: usize, touch: &mut dyn FnMut(View<'_>)) {
        touch(match &self.own {
            Some(own) => View::Bytes(&own[..len]),
            None => View::Shared(self.memory.part(0, len)),
        });
    }
}

/// The peer's side.
#[derive(Debug)]
pub(crate) struct SharedPeer {
    line: Line,
    memory: SharedMemory,
}

impl SharedPeer {
    pub(crate) fn attach(mut descriptors: Vec<OwnedFd>, waiting: Waiting) -> io::Result<Self> {
        let (Some(memory), Some(line)) = (descriptors.pop(), descriptors.pop()) else {
            return Err(nonsense());
        };
        Ok(Self { line: Line::attach(line, waiting)?, memory: SharedMemory::attach(memory)? })
    }
}

impl Peer for SharedPeer {
    fn next(&mut self) -> io::Result<Message> {
        self.line.next()
    }

    fn taken(&mut self, asked: &Asked) -> io::Result<View<'_>> {
        Ok(View::Shared(self.memory.part(0, asked.len)))
    }

    fn give(&mut self, asked: &Asked, kept: &Kept) -> io::Result<()> {
        if let Some(bytes) = kept.to_write(asked) {
            self.memory.part(0, asked.len).copy_from(bytes);
        }
        self.answer(0)
    }

    fn answer(&mut self, found: u64) -> io::Result<()> {
        self.line.answer(found);
        Ok(())
    }
}
