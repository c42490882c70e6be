//! Messages by a cache line in shared memory: the control of all baselines that have no socket or pipe.
//!
//! How: one line for each direction, each written by one side alone: seven words of message, then the first word, which
//! counts messages (Release, for the Acquire of the side that waits for it). Waiting is either spinning on that word or
//! sleeping on it; the side that writes wakes one that sleeps, each time.
//! Invariants: the two lines, and the lines that processors fetch along with them, are apart.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use genie_sys::{GranuleKind, futex};

use super::Waiting;
use super::exchange::{Ask, Kept, MESSAGE, Message, WORDS};
use super::memory::SharedMemory;
use genie_lab::peer::Watch;

/// Where the client writes.
const ASKED: usize = 0;
/// Where the peer writes.
const ANSWERED: usize = 4 * MESSAGE;
/// The length of the object.
const PAGE: usize = 4096;
/// How often a spinning side looks whether the other one is still there.
const LOOK_EVERY: u32 = 1 << 20;
/// The same for a sleeping side.
const LOOK_AFTER: Duration = Duration::from_millis(100);

/// One side's end of the two lines.
#[derive(Debug)]
pub(crate) struct Line {
    memory: SharedMemory,
    waiting: Waiting,
    /// Messages so far.
    count: u32,
    /// The client's: whether the peer runs. A peer ends with its client.
    watch: Option<Watch>,
}

impl Line {
    /// Makes both lines; the peer gets the memory's descriptor.
    pub(crate) fn create(waiting: Waiting, watch: Watch) -> io::Result<Self> {
        let memory = SharedMemory::create(GranuleKind::Base, PAGE)?;
        Ok(Self { memory, waiting, count: 0, watch: Some(watch) })
    }

    /// Takes the peer's end.
    pub(crate) fn attach(descriptor: OwnedFd, waiting: Waiting) -> io::Result<Self> {
        Ok(Self { memory: SharedMemory::attach(descriptor)?, waiting, count: 0, watch: None })
    }

    pub(crate) fn memory(&self) -> &SharedMemory {
        &self.memory
    }

    /// Asks the peer, and waits for its answer.
    pub(crate) fn ask(&mut self, message: &Message) -> io::Result<Message> {
        self.count = self.count.wrapping_add(1);
        self.write(ASKED, message);
        self.wait(ANSWERED, self.count)?;
        Ok(self.read(ANSWERED))
    }

    /// Waits for what the client asks next.
    pub(crate) fn next(&mut self) -> io::Result<Message> {
        self.count = self.count.wrapping_add(1);
        self.wait(ASKED, self.count)?;
        Ok(self.read(ASKED))
    }

    /// Answers what was asked last.
    pub(crate) fn answer(&self, found: u64) {
        self.write(ANSWERED, &Message::answer(found, 0));
    }

    /// Serves until the client asks to leave: what is to be done with data is `act`'s, which says what it found.
    pub(crate) fn serve(
        &mut self,
        longest: usize,
        mut act: impl FnMut(Ask, usize, usize) -> io::Result<u64>,
    ) -> io::Result<()> {
        loop {
            let message = self.next()?;
            let (ask, len) = message.asked(longest)?;
            let found = match ask {
                Ask::Nothing | Ask::Leave => 0,
                _ => act(ask, len, message.address())?,
            };
            self.answer(found);
            if ask == Ask::Leave {
                return Ok(());
            }
        }
    }

    fn write(&self, at: usize, message: &Message) {
        let words = message.words();
        for (index, word) in words.iter().enumerate().skip(1) {
            self.memory.long_word(at + 8 * index).store(*word, Ordering::Relaxed);
        }
        let count = self.memory.word(at);
        count.store(self.count, Ordering::Release);
        if self.waiting == Waiting::Blocking {
            wake(count);
        }
    }

    fn read(&self, at: usize) -> Message {
        let mut words = [0; WORDS];
        for (index, word) in words.iter_mut().enumerate().skip(1) {
            *word = self.memory.long_word(at + 8 * index).load(Ordering::Relaxed);
        }
        Message::from_words(&words)
    }

    fn wait(&self, at: usize, count: u32) -> io::Result<()> {
        wait(self.memory.word(at), count, self.waiting, self.watch.as_ref())
    }
}

/// Waits until the word has this value.
pub(crate) fn wait(word: &AtomicU32, value: u32, waiting: Waiting, watch: Option<&Watch>) -> io::Result<()> {
    let look = || watch.map_or(Ok(()), Watch::check);
    let mut spins = 0u32;
    loop {
        let seen = word.load(Ordering::Acquire);
        if seen == value {
            return Ok(());
        }
        match waiting {
            Waiting::Polled => {
                std::hint::spin_loop();
                spins = spins.wrapping_add(1);
                if spins.is_multiple_of(LOOK_EVERY) {
                    look()?;
                }
            }
            Waiting::Blocking => {
                if futex::wait(word, seen, Some(LOOK_AFTER)).map_err(io::Error::other)?
                    == futex::Wait::TimedOut
                {
                    look()?;
                }
            }
        }
    }
}

/// Wakes the other side, if it sleeps.
pub(crate) fn wake(word: &AtomicU32) {
    // This fails only where the memory has gone.
    let _ = futex::wake(word, 1);
}

/// What is done by every peer that gives data from memory that it stores into.
pub(crate) fn fetch(kept: &Kept, ask: Ask, len: usize, give: impl FnOnce(&[u8])) -> io::Result<()> {
    if ask == Ask::Fetch {
        give(kept.of(len)?);
    }
    Ok(())
}
