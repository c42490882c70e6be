//! Messages by a cache line in shared memory, which control all baselines that have no socket or pipe.
//!
//! How: one line for each direction, each written by one side alone: the writer stores seven words of message, and then the
//! first word, which counts messages (Release, for the Acquire of the side that waits for it). A side waits by spinning on
//! that word or by sleeping on it; where sides sleep, each write wakes the other side.
//! Invariants: the two lines, and the lines that processors fetch along with each, are apart.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use genie_sys::{GranuleKind, futex};

use super::exchange::{Ask, MESSAGE, Message, WORDS};
use super::means::Waiting;
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
    /// How many messages there were so far.
    count: u32,
    /// On the client's side, tells whether the peer runs. A peer ends with its client.
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
    pub(crate) fn ask(&mut self, ask: Ask, len: usize, argument: usize) -> io::Result<Message> {
        self.count = self.count.wrapping_add(1);
        self.write(ASKED, &Message::ask(ask, len, argument));
        self.read(ANSWERED)
    }

    /// Waits for the client's next request.
    pub(crate) fn next(&mut self) -> io::Result<Message> {
        self.count = self.count.wrapping_add(1);
        self.read(ASKED)
    }

    /// Answers what was asked last.
    pub(crate) fn answer(&self, found: u64) {
        self.write(ANSWERED, &Message::answer(found, 0));
    }

    fn write(&self, at: usize, message: &Message) {
        let words = message.words();
        for (index, word) in words.iter().enumerate().skip(1) {
            self.memory.long_word(at + 8 * index).store(*word, Ordering::Relaxed);
        }
        self.set(self.memory.word(at), self.count);
    }

    fn read(&self, at: usize) -> io::Result<Message> {
        self.wait(self.memory.word(at), self.count)?;
        let mut words = [0; WORDS];
        for (index, word) in words.iter_mut().enumerate().skip(1) {
            *word = self.memory.long_word(at + 8 * index).load(Ordering::Relaxed);
        }
        Ok(Message::from_words(&words))
    }

    /// Gives a word this value, and wakes the other side, which may sleep on it.
    pub(crate) fn set(&self, word: &AtomicU32, value: u32) {
        // Release, for the Acquire in `wait`.
        word.store(value, Ordering::Release);
        if self.waiting == Waiting::Blocking {
            // This fails only where the memory is gone.
            let _ = futex::wake(word, 1);
        }
    }

    /// Waits until a word has this value.
    pub(crate) fn wait(&self, word: &AtomicU32, value: u32) -> io::Result<()> {
        if self.waiting == Waiting::Polled {
            return self.spin(|| (word.load(Ordering::Acquire) == value).then_some(()));
        }
        loop {
            let seen = word.load(Ordering::Acquire);
            if seen == value {
                return Ok(());
            }
            if futex::wait(word, seen, Some(LOOK_AFTER)).map_err(io::Error::other)? == futex::Wait::TimedOut {
                self.watch.as_ref().map_or(Ok(()), Watch::check)?;
            }
        }
    }

    /// Spins until `look` finds something.
    pub(crate) fn spin<T>(&self, mut look: impl FnMut() -> Option<T>) -> io::Result<T> {
        spin(self.watch.as_ref(), || Ok(look()))
    }
}

/// Spins until `look` finds something, or the peer has ended, where it is watched.
pub(crate) fn spin<T>(
    watch: Option<&Watch>,
    mut look: impl FnMut() -> io::Result<Option<T>>,
) -> io::Result<T> {
    let mut spins = 0u32;
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        std::hint::spin_loop();
        spins = spins.wrapping_add(1);
        if spins.is_multiple_of(LOOK_EVERY) {
            watch.map_or(Ok(()), Watch::check)?;
        }
    }
}
