//! Sleeping on a word of shared memory until another thread or process changes it.
//!
//! Why: the cheapest wake-up that Linux has between processes, and it costs nothing while nobody sleeps.
//! Invariants: words are never FUTEX_PRIVATE, so threads of other processes that map the same memory are
//! reached.
//! Trust: a peer may wake without reason or not at all; callers check their condition again, and set a
//! timeout where the peer isn't trusted.

use std::sync::atomic::AtomicU32;
use std::time::Duration;

use rustix::io::Errno;
use rustix::thread::futex::{self, Flags};
use rustix::time::Timespec;

use crate::{Error, Result};

/// Why [`wait`] returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Someone called [`wake`], or a signal interrupted the sleep: look at the word again.
    Woken,
    /// The word did not have the expected value, so there was no sleep.
    Changed,
    /// The time is over.
    TimedOut,
}

/// Sleeps while `word` has the value `expected`, for at most `timeout`.
///
/// The comparison and the falling asleep are one step against [`wake`]: a change followed by a wake is never
/// missed. A timeout too long for the kernel's clock (centuries) counts as none.
///
/// # Errors
/// EFAULT where the word's memory has gone.
#[doc(alias = "FUTEX_WAIT")]
pub fn wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>) -> Result<Wait> {
    let timeout = timeout.and_then(|time| Timespec::try_from(time).ok());
    match futex::wait(word, Flags::empty(), expected, timeout.as_ref()) {
        Ok(()) | Err(Errno::INTR) => Ok(Wait::Woken),
        Err(Errno::AGAIN) => Ok(Wait::Changed),
        Err(Errno::TIMEDOUT) => Ok(Wait::TimedOut),
        Err(errno) => Err(failed("futex wait", word, errno)),
    }
}

/// Wakes at most `count` sleepers of `word`, in any process, and returns how many there were.
///
/// # Errors
/// EFAULT where the word's memory has gone.
#[doc(alias = "FUTEX_WAKE")]
pub fn wake(word: &AtomicU32, count: u32) -> Result<usize> {
    // The kernel reads the count as a signed number.
    let count = count.min(i32::MAX as u32);
    futex::wake(word, Flags::empty(), count).map_err(|errno| failed("futex wake", word, errno))
}

fn failed(call: &'static str, word: &AtomicU32, errno: Errno) -> Error {
    Error::new(call, format!("the word at {:#x}", word.as_ptr() as usize), errno)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_changed_word_does_not_sleep() {
        let word = AtomicU32::new(1);
        assert_eq!(wait(&word, 0, None).unwrap(), Wait::Changed);
    }

    #[test]
    fn an_unchanged_word_sleeps_until_the_timeout() {
        let word = AtomicU32::new(0);
        let start = Instant::now();
        assert_eq!(wait(&word, 0, Some(Duration::from_millis(20))).unwrap(), Wait::TimedOut);
        assert!(start.elapsed() >= Duration::from_millis(20));
    }

    #[test]
    fn waking_nobody_counts_nobody() {
        assert_eq!(wake(&AtomicU32::new(0), u32::MAX).unwrap(), 0);
    }

    #[test]
    fn a_sleeper_is_woken_and_counted() {
        let word = AtomicU32::new(0);
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| wait(&word, 0, Some(Duration::from_secs(10))).unwrap());
            let mut woken = 0;
            while woken == 0 && !sleeper.is_finished() {
                woken = wake(&word, 1).unwrap();
            }
            assert_eq!((woken, sleeper.join().unwrap()), (1, Wait::Woken));
        });
    }

    #[test]
    fn a_change_followed_by_a_wake_is_never_missed() {
        let word = AtomicU32::new(0);
        const TURNS: u32 = 2000;
        std::thread::scope(|scope| {
            for parity in 0..2 {
                let word = &word;
                scope.spawn(move || {
                    for turn in (parity..TURNS).step_by(2) {
                        while word.load(Ordering::Acquire) != turn {
                            let seen = word.load(Ordering::Acquire);
                            if seen != turn {
                                let out = wait(word, seen, Some(Duration::from_secs(10))).unwrap();
                                assert_ne!(out, Wait::TimedOut, "turn {turn}");
                            }
                        }
                        word.store(turn + 1, Ordering::Release);
                        wake(word, 1).unwrap();
                    }
                });
            }
        });
        assert_eq!(word.load(Ordering::Relaxed), TURNS);
    }
}
