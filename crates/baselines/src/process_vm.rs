//! process_vm_readv and process_vm_writev: the peer copies straight from and to the client's memory, once.
//!
//! How: a message on a cache line says where the client's buffer is; the peer copies.
//! Limits: the peer must be allowed to trace the client, see ptrace(2); the client asks the Yama module to allow it.

use std::io;
use std::os::fd::OwnedFd;

use genie_sys::process::{self, Pid};
use rustix::process::{PTracer, getppid, set_ptracer};

use super::ends::{Client, Peer};
use super::exchange::{Ask, Asked, Kept, Message, nonsense};
use super::line::Line;
use super::means::Waiting;
use super::memory::{Memory, View};

/// The client's side.
#[derive(Debug)]
pub(crate) struct ProcessVm {
    line: Line,
    buffer: Vec<u8>,
}

impl ProcessVm {
    pub(crate) fn new(line: Line, longest: usize, peer: Pid) -> Self {
        // Where there is no Yama, this call fails, and is not needed.
        let _ = set_ptracer(PTracer::ProcessID(peer));
        Self { line, buffer: vec![0; longest] }
    }

    pub(crate) fn line(&self) -> &Line {
        &self.line
    }
}

impl Client for ProcessVm {
    fn prepare(&mut self, len: usize, touch: &mut dyn FnMut(Memory<'_>)) -> io::Result<()> {
        touch(Memory::Bytes(&mut self.buffer[..len]));
        Ok(())
    }

    fn exchange(&mut self, ask: Ask, len: usize) -> io::Result<Message> {
        // The peer loads from the buffer or stores into it while this thread waits for the peer's answer.
        let address = self.buffer.as_mut_ptr().expose_provenance();
        self.line.ask(ask, len, address)
    }

    fn finish(&mut self, len: usize, touch: &mut dyn FnMut(View<'_>)) {
        touch(View::Bytes(&std::hint::black_box(&mut self.buffer)[..len]));
    }
}

/// The peer's side.
#[derive(Debug)]
pub(crate) struct ProcessVmPeer {
    line: Line,
    client: Pid,
    buffer: Vec<u8>,
}

impl ProcessVmPeer {
    /// Takes the line's other end, and tests whether the client's memory can be read.
    pub(crate) fn attach(
        mut descriptors: Vec<OwnedFd>,
        waiting: Waiting,
        longest: usize,
        address: usize,
    ) -> io::Result<Self> {
        let line = Line::attach(descriptors.pop().ok_or_else(nonsense)?, waiting)?;
        let client = getppid().ok_or_else(nonsense)?;
        let mut buffer = vec![0; longest];
        process::read_memory(client, address, &mut buffer[..1]).map_err(io::Error::other)?;
        Ok(Self { line, client, buffer })
    }
}

impl Peer for ProcessVmPeer {
    fn next(&mut self) -> io::Result<Message> {
        self.line.next()
    }

    fn taken(&mut self, asked: &Asked) -> io::Result<View<'_>> {
        let buffer = &mut self.buffer[..asked.len];
        whole(process::read_memory(self.client, asked.argument, buffer), asked.len)?;
        Ok(View::Bytes(buffer))
    }

    fn give(&mut self, asked: &Asked, kept: &Kept) -> io::Result<()> {
        let buffer = &mut self.buffer[..asked.len];
        if let Some(bytes) = kept.to_write(asked) {
            buffer.copy_from_slice(bytes);
        }
        whole(process::write_memory(self.client, asked.argument, buffer), asked.len)?;
        self.answer(0)
    }

    fn answer(&mut self, found: u64) -> io::Result<()> {
        self.line.answer(found);
        Ok(())
    }
}

/// Checks that `len` bytes were moved.
fn whole(moved: genie_sys::Result<usize>, len: usize) -> io::Result<()> {
    if moved.map_err(io::Error::other)? == len { Ok(()) } else { Err(nonsense()) }
}
