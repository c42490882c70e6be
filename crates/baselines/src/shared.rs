//! Shared memory: used in place, which nothing that passes data between processes can beat, and with one copy.
//!
//! How: in place, client and peer work in the same bytes, and the side that a message has told that they are its own touches
//! them. With a copy, the client's data is in ordinary memory of its own, and is copied into the shared memory to be passed
//! out, and from there when it has been passed in.

use std::io;
use std::os::fd::OwnedFd;

use super::exchange::{Ask, Kept, Message, nonsense};
use super::line::{Line, fetch};
use super::memory::{Memory, SharedMemory, View};
use super::{Client, Service, Waiting};

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

    fn put(&mut self, ask: Ask, len: usize) -> io::Result<Message> {
        if let Some(own) = &self.own {
            self.memory.part(0, len).copy_from(&own[..len]);
        }
        self.line.ask(&Message::ask(ask, len, 0))
    }

    fn get(&mut self, ask: Ask, len: usize) -> io::Result<()> {
        self.line.ask(&Message::ask(ask, len, 0))?;
        if let Some(own) = &mut self.own {
            self.memory.part(0, len).copy_to(&mut own[..len]);
        }
        Ok(())
    }

    fn finish(&mut self, len: usize, touch: &mut dyn FnMut(View<'_>)) {
        touch(match &self.own {
            Some(own) => View::Bytes(&own[..len]),
            None => View::Shared(self.memory.part(0, len)),
        });
    }

    fn ask(&mut self, ask: Ask) -> io::Result<()> {
        self.line.ask(&Message::ask(ask, 0, 0)).map(drop)
    }
}

/// The peer's side.
#[derive(Debug)]
pub(crate) struct SharedService {
    line: Line,
    memory: SharedMemory,
    longest: usize,
}

impl SharedService {
    pub(crate) fn attach(
        mut descriptors: Vec<OwnedFd>,
        waiting: Waiting,
        longest: usize,
    ) -> io::Result<Self> {
        let (Some(memory), Some(line)) = (descriptors.pop(), descriptors.pop()) else {
            return Err(nonsense());
        };
        Ok(Self { line: Line::attach(line, waiting)?, memory: SharedMemory::attach(memory)?, longest })
    }
}

impl Service for SharedService {
    fn serve(&mut self, kept: &Kept) -> io::Result<()> {
        let memory = &self.memory;
        self.line.serve(self.longest, |ask, len, _| {
            let part = memory.part(0, len);
            fetch(kept, ask, len, |bytes| part.copy_from(bytes))?;
            kept.look(ask, View::Shared(part))
        })
    }
}
