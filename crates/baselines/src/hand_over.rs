//! The limits of control between two processes: a cache line that goes there and back, and a word that each side sleeps on
//! until the other one wakes it.
//!
//! How: the two sides take turns at adding one to a word, the polled pair spinning and the blocking pair asleep in futex.
//! A sample is the mean of a batch, since one round trip is shorter than the clock is exact.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::exchange::{Ask, Kept, Message, nonsense};
use super::line::{Line, wait, wake};
use super::memory::SharedMemory;
use super::{Service, Waiting};
use genie_lab::peer::Watch;

/// The word, far from the lines of messages.
const WORD: usize = 2048;

/// The client's side.
#[derive(Debug)]
pub(crate) struct HandOver {
    line: Line,
    waiting: Waiting,
    watch: Watch,
}

impl HandOver {
    pub(crate) fn create(waiting: Waiting, watch: Watch) -> io::Result<Self> {
        Ok(Self { line: Line::create(waiting, watch.clone())?, waiting, watch })
    }

    pub(crate) fn line(&self) -> &Line {
        &self.line
    }

    /// Times so many round trips together; the peer leaves afterwards.
    pub(crate) fn measure(&mut self, rounds: u32) -> io::Result<Duration> {
        // The peer learns how many round trips there will be, answers, and both begin at zero.
        self.line.ask(&Message::ask(Ask::Take, rounds as usize, 0))?;
        let word = self.line.memory().word(WORD);
        let start = Instant::now();
        for round in 0..rounds {
            turn(word_of(self.line.memory()), 2 * round + 1, self.waiting);
            wait(word, 2 * round + 2, self.waiting, Some(&self.watch))?;
        }
        let time = start.elapsed();
        word.store(0, Ordering::Release);
        self.line.ask(&Message::ask(Ask::Leave, 0, 0))?;
        Ok(time / rounds)
    }
}

fn word_of(memory: &SharedMemory) -> &std::sync::atomic::AtomicU32 {
    memory.word(WORD)
}

fn turn(word: &std::sync::atomic::AtomicU32, value: u32, waiting: Waiting) {
    // Release, for the Acquire in `wait`.
    word.store(value, Ordering::Release);
    if waiting == Waiting::Blocking {
        wake(word);
    }
}

/// The peer's side.
#[derive(Debug)]
pub(crate) struct HandOverService {
    line: Line,
    waiting: Waiting,
}

impl HandOverService {
    pub(crate) fn attach(mut descriptors: Vec<OwnedFd>, waiting: Waiting) -> io::Result<Self> {
        let line = Line::attach(descriptors.pop().ok_or_else(nonsense)?, waiting)?;
        Ok(Self { line, waiting })
    }
}

impl Service for HandOverService {
    fn serve(&mut self, _kept: &Kept) -> io::Result<()> {
        loop {
            let (ask, rounds) = self.line.next()?.asked(i32::MAX as usize)?;
            self.line.answer(0);
            if ask == Ask::Leave {
                return Ok(());
            }
            let word = word_of(self.line.memory());
            for round in 0..rounds as u32 {
                wait(word, 2 * round + 1, self.waiting, None)?;
                turn(word, 2 * round + 2, self.waiting);
            }
        }
    }
}
