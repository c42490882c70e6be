//! One-way throughput through shared memory, with more or fewer buffers in turn.
//!
//! Why: written by one CPU and read by another, a few buffers that rotate may be much slower than many, or the other way
//! round; whether this machine shows that tells what the order in which system buffers are recycled can gain.
//! How: the client writes every byte of one buffer after the other and counts them up in a word; the peer reads every
//! byte of each, and counts them up in another. The client is never more buffers ahead than there are.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::time::Instant;

use genie_sys::GranuleKind;

use super::exchange::{Ask, Kept, Message, nonsense};
use super::line::Line;
use super::memory::{SharedMemory, View};
use super::{Service, Waiting};
use genie_lab::peer::Watch;

/// The memory of all buffers.
const MEMORY: usize = 16 << 20;
/// How much is passed in one measurement.
const BYTES: usize = 256 << 20;
/// How often a spinning side looks whether the other one is still there.
const LOOK_EVERY: u32 = 1 << 20;
/// The words on the page of the control line: buffers written, and buffers read.
const WRITTEN: usize = 2048;
const READ: usize = 2048 + 256;
/// More buffers than are ever written: there will be no more.
const END: u32 = u32::MAX;

/// The client's side.
#[derive(Debug)]
pub(crate) struct Rotation {
    line: Line,
    memory: SharedMemory,
    watch: Watch,
}

impl Rotation {
    pub(crate) fn create(granules: GranuleKind, watch: Watch) -> io::Result<Self> {
        let line = Line::create(Waiting::Polled, watch.clone())?;
        Ok(Self { line, memory: SharedMemory::create(granules, MEMORY)?, watch })
    }

    pub(crate) fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        [self.line.memory().descriptor(), self.memory.descriptor()]
    }

    /// Whether there is memory for so many buffers.
    pub(crate) fn fits(&self, buffers: usize, len: usize) -> bool {
        len > 0 && buffers.saturating_mul(len) <= MEMORY
    }

    /// Passes 256 MiB, or what `turns` turns pass, through `buffers` of `len` bytes and returns the bytes a second; the peer leaves afterwards.
    pub(crate) fn measure(&mut self, buffers: usize, len: usize, turns: usize) -> io::Result<f64> {
        let count = (BYTES / len).min(turns).max(2 * buffers);
        for word in [WRITTEN, READ] {
            self.line.memory().word(word).store(0, Ordering::Release);
        }
        // The peer answers and then waits for the first buffer; the address is how many buffers there are.
        self.line.ask(&Message::ask(Ask::Sum, len, buffers))?;
        let from = vec![1u8; len];
        let start = Instant::now();
        for turn in 0..count {
            // One buffer is to be free.
            self.wait_until_read(turn + 1 - buffers.min(turn + 1))?;
            self.memory.part(turn % buffers * len, len).copy_from(&from);
            // Release, for the Acquire of the peer.
            self.line.memory().word(WRITTEN).store(turn as u32 + 1, Ordering::Release);
        }
        self.wait_until_read(count)?;
        let time = start.elapsed();
        self.line.memory().word(WRITTEN).store(END, Ordering::Release);
        // Only when the peer has seen the end, which its answer says, may the words be used again.
        self.line.ask(&Message::ask(Ask::Leave, 0, 0))?;
        Ok((count * len) as f64 / time.as_secs_f64())
    }

    /// Waits until the peer has read so many buffers.
    fn wait_until_read(&self, count: usize) -> io::Result<()> {
        let read = self.line.memory().word(READ);
        let mut spins = 0u32;
        while (read.load(Ordering::Acquire) as usize) < count {
            std::hint::spin_loop();
            spins = spins.wrapping_add(1);
            if spins.is_multiple_of(LOOK_EVERY) {
                self.watch.check()?;
            }
        }
        Ok(())
    }
}

/// The peer's side.
#[derive(Debug)]
pub(crate) struct RotationService {
    line: Line,
    memory: SharedMemory,
}

impl RotationService {
    pub(crate) fn attach(mut descriptors: Vec<OwnedFd>) -> io::Result<Self> {
        let (Some(memory), Some(line)) = (descriptors.pop(), descriptors.pop()) else {
            return Err(nonsense());
        };
        Ok(Self { line: Line::attach(line, Waiting::Polled)?, memory: SharedMemory::attach(memory)? })
    }
}

impl Service for RotationService {
    fn serve(&mut self, _kept: &Kept) -> io::Result<()> {
        let message = self.line.next()?;
        let ((_, len), buffers) = (message.asked(MEMORY)?, message.address());
        if len == 0 || buffers == 0 || buffers.saturating_mul(len) > MEMORY {
            return Err(nonsense());
        }
        self.line.answer(0);
        let (written, read) = (self.line.memory().word(WRITTEN), self.line.memory().word(READ));
        let mut done = 0u32;
        loop {
            match written.load(Ordering::Acquire) {
                END => break,
                seen if seen == done => std::hint::spin_loop(),
                _ => {
                    let part = self.memory.part(done as usize % buffers * len, len);
                    std::hint::black_box(View::Shared(part).sum());
                    done += 1;
                    // Release, for the Acquire of the client that waits for room.
                    read.store(done, Ordering::Release);
                }
            }
        }
        self.line.next()?;
        self.line.answer(0);
        Ok(())
    }
}
