//! The limits between two processes: how quickly control goes there and back, and how much data goes one way.
//!
//! How, control: the two sides alternate in adding one to a word, on which both spin or both sleep. A sample is the mean of
//! a batch, since one round trip is too short for the clock's precision.
//! How, data: the client writes every byte of each buffer of shared memory, one buffer after the other, and counts the
//! written buffers in a word; the peer reads every byte of each buffer, and counts the read buffers in another word. The
//! client is never further ahead than there are buffers.
//! Why, data: when one CPU writes and another reads, a few buffers that rotate may be much slower than many, or much faster.
//! This machine's figures show how much the order in which system buffers are recycled can gain.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use genie_sys::GranuleKind;

use super::ends::Service;
use super::exchange::{Ask, Asked, Kept, nonsense};
use super::line::Line;
use super::means::Waiting;
use super::memory::{SharedMemory, View};
use genie_lab::peer::Watch;

/// The memory of all buffers.
const MEMORY: usize = 16 << 20;
/// How many bytes are passed in one measurement.
const BYTES: usize = 256 << 20;
/// The words on the page of the control line, far from the lines of messages: the word that is handed over, the count of
/// buffers written, and the count of buffers read.
const WORD: usize = 2048;
const WRITTEN: usize = WORD;
const READ: usize = WORD + 256;
/// More buffers than are ever written; this count says that no more come.
const END: u32 = u32::MAX;

/// Either side.
#[derive(Debug)]
pub(crate) struct Limits {
    line: Line,
    /// The buffers; none unless both sides spin.
    memory: Option<SharedMemory>,
}

impl Limits {
    /// Makes the client's side.
    pub(crate) fn create(waiting: Waiting, granules: GranuleKind, watch: Watch) -> io::Result<Self> {
        let spins = waiting == Waiting::Polled;
        let memory = spins.then(|| SharedMemory::create(granules, MEMORY)).transpose()?;
        Ok(Self { line: Line::create(waiting, watch)?, memory })
    }

    /// The descriptors that the peer needs.
    pub(crate) fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        [self.line.memory()].into_iter().chain(&self.memory).map(SharedMemory::descriptor).collect()
    }

    /// Takes the peer's side.
    pub(crate) fn attach(descriptors: Vec<OwnedFd>, waiting: Waiting) -> io::Result<Self> {
        let mut descriptors = descriptors.into_iter();
        let line = Line::attach(descriptors.next().ok_or_else(nonsense)?, waiting)?;
        Ok(Self { line, memory: descriptors.next().map(SharedMemory::attach).transpose()? })
    }

    /// The memory, where it is long enough for `count` buffers of `len` bytes.
    fn buffers(&self, count: usize, len: usize) -> Option<&SharedMemory> {
        self.memory.as_ref().filter(|_| len > 0 && count > 0 && count.saturating_mul(len) <= MEMORY)
    }

    /// Times `rounds` round trips together; returns their mean.
    pub(crate) fn hand_over(&mut self, rounds: u32) -> io::Result<Duration> {
        // The peer learns how many round trips there will be, answers, and both begin at zero.
        self.line.memory().word(WORD).store(0, Ordering::Release);
        self.line.ask(Ask::HandOver, 0, rounds as usize)?;
        let word = self.line.memory().word(WORD);
        let start = Instant::now();
        for round in 0..rounds {
            self.line.set(word, 2 * round + 1);
            self.line.wait(word, 2 * round + 2)?;
        }
        Ok(start.elapsed() / rounds)
    }

    /// Passes 256 MiB, or as much as `turns` turns pass, through `buffers` buffers of `len` bytes; returns the bytes a
    /// second, or none where there is no memory for the buffers.
    pub(crate) fn rotate(&mut self, buffers: usize, len: usize, turns: usize) -> io::Result<Option<f64>> {
        if self.buffers(buffers, len).is_none() {
            return Ok(None);
        }
        for word in [WRITTEN, READ] {
            self.line.memory().word(word).store(0, Ordering::Release);
        }
        // The peer answers and then waits for the first buffer.
        self.line.ask(Ask::Rotate, len, buffers)?;
        let Some(memory) = self.buffers(buffers, len) else { return Ok(None) };
        let (written, read) = (self.line.memory().word(WRITTEN), self.line.memory().word(READ));
        let count = (BYTES / len).min(turns).max(2 * buffers);
        let wait_until_read =
            |count: usize| self.line.spin(|| (read.load(Ordering::Acquire) as usize >= count).then_some(()));
        let from = vec![1u8; len];
        let start = Instant::now();
        for turn in 0..count {
            // One buffer must be free.
            wait_until_read(turn + 1 - buffers.min(turn + 1))?;
            memory.part(turn % buffers * len, len).copy_from(&from);
            // Release, for the Acquire of the peer.
            written.store(turn as u32 + 1, Ordering::Release);
        }
        wait_until_read(count)?;
        let time = start.elapsed();
        // The words may be used again only when the peer has seen the end; only then does it answer the next message.
        written.store(END, Ordering::Release);
        Ok(Some((count * len) as f64 / time.as_secs_f64()))
    }

    /// Has the peer stop serving.
    pub(crate) fn leave(&mut self) -> io::Result<()> {
        self.line.ask(Ask::Leave, 0, 0).map(drop)
    }

    /// The peer's part of the round trips.
    fn hand_back(&self, rounds: u32) -> io::Result<()> {
        let word = self.line.memory().word(WORD);
        (0..rounds).try_for_each(|round| {
            self.line.wait(word, 2 * round + 1)?;
            self.line.set(word, 2 * round + 2);
            Ok(())
        })
    }

    /// Reads buffers until there will be no more.
    fn read(&self, Asked { len, argument: buffers, .. }: Asked) -> io::Result<()> {
        let memory = self.buffers(buffers, len).ok_or_else(nonsense)?;
        let (written, read) = (self.line.memory().word(WRITTEN), self.line.memory().word(READ));
        let mut done = 0u32;
        let more = |done| {
            let seen = written.load(Ordering::Acquire);
            (seen != done).then_some(seen)
        };
        while self.line.spin(|| more(done))? != END {
            let part = memory.part(done as usize % buffers * len, len);
            std::hint::black_box(View::Shared(part).sum());
            done += 1;
            // Release, for the Acquire of the client that waits for room.
            read.store(done, Ordering::Release);
        }
        Ok(())
    }
}

impl Service for Limits {
    fn serve(&mut self, _kept: &Kept) -> io::Result<()> {
        loop {
            let asked = self.line.next()?.asked(MEMORY)?;
            self.line.answer(0);
            match asked.ask {
                Ask::HandOver => self.hand_back(asked.argument as u32)?,
                Ask::Rotate => self.read(asked)?,
                Ask::Leave => return Ok(()),
                _ => return Err(nonsense()),
            }
        }
    }
}
