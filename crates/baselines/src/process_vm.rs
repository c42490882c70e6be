//! process_vm_readv and process_vm_writev: the peer copies straight from and to the client's memory, once.
//!
//! How: the client says by a cache line where its buffer is; the peer does the copying.
//! Limits: the peer must be allowed to trace the client, see ptrace(2); the client asks the Yama module to allow it.

use std::io;
use std::os::fd::OwnedFd;

use genie_sys::process::{self, Pid};
use rustix::process::{PTracer, getppid, set_ptracer};

use super::exchange::{Ask, Kept, Message, nonsense};
use super::line::{Line, fetch};
use super::memory::{Memory, View};
use super::{Client, Service, Waiting};

/// The client's side.
#[derive(Debug)]
pub(crate) struct ProcessVm {
    line: Line,
    buffer: Vec<u8>,
}

impl ProcessVm {
    pub(crate) fn new(line: Line, longest: usize, peer: Pid) -> Self {
        // Where there is no Yama, this fails, and is not needed.
        let _ = set_ptracer(PTracer::ProcessID(peer));
        Self { line, buffer: vec![0; longest] }
    }

    pub(crate) fn line(&self) -> &Line {
        &self.line
    }

    /// Where the buffer is. The peer loads from it or stores into it while the client waits for the peer's answer.
    fn address(&mut self) -> usize {
        self.buffer.as_mut_ptr().expose_provenance()
    }
}

impl Client for ProcessVm {
    fn prepare(&mut self, len: usize, touch: &mut dyn FnMut(Memory<'_>)) -> io::Result<()> {
        touch(Memory::Bytes(&mut self.buffer[..len]));
        Ok(())
    }

    fn put(&mut self, ask: Ask, len: usize) -> io::Result<Message> {
        let address = self.address();
        self.line.ask(&Message::ask(ask, len, address))
    }

    fn get(&mut self, ask: Ask, len: usize) -> io::Result<()> {
        let address = self.address();
        self.line.ask(&Message::ask(ask, len, address)).map(drop)
    }

    fn finish(&mut self, len: usize, touch: &mut dyn FnMut(View<'_>)) {
        touch(View::Bytes(&std::hint::black_box(&mut self.buffer)[..len]));
    }

    fn ask(&mut self, ask: Ask) -> io::Result<()> {
        self.line.ask(&Message::ask(ask, 0, 0)).map(drop)
    }
}

/// The peer's side.
#[derive(Debug)]
pub(crate) struct ProcessVmService {
    line: Line,
    client: Pid,
    buffer: Vec<u8>,
}

impl ProcessVmService {
    /// Takes the line, and tries whether the client's memory can be read.
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

impl Service for ProcessVmService {
    fn serve(&mut self, kept: &Kept) -> io::Result<()> {
        let (client, buffer) = (self.client, &mut self.buffer);
        self.line.serve(buffer.len(), |ask, len, address| {
            let buffer = &mut buffer[..len];
            let moved = match ask {
                Ask::Give | Ask::Fetch => {
                    fetch(kept, ask, len, |bytes| buffer.copy_from_slice(bytes))?;
                    process::write_memory(client, address, buffer)
                }
                _ => process::read_memory(client, address, buffer),
            };
            if moved.map_err(io::Error::other)? != len {
                return Err(nonsense());
            }
            kept.look(ask, View::Bytes(buffer))
        })
    }
}
