//! Sleeping on a word of shared memory until another thread or process changes it.
//!
//! Why: this is the cheapest wake-up that Linux has between processes, and it costs nothing while nobody sleeps.
//! Invariants: words are never FUTEX_PRIVATE, so threads of other processes that map the same memory are
//! reached.
//! Trust: a peer may wake without reason or not at all; callers check their condition again, and set a
//! timeout where the peer isn't trusted.

use std::sync::atomic::AtomicU32;
use std::time::Duration;

use rustix::io::Errno;
use rustix::thread::futex::{self, Flags, WaitFlags, WaitPtr, WaitvFlags};
use rustix::time::{ClockId, Timespec};

use crate::{Error, Result};

/// How many words [`wait_any`] can sleep on.
pub const WAIT_ANY_MAX: usize = 128;

/// Why [`wait`] or [`wait_any`] returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Someone called [`wake`], or a signal interrupted the sleep: look at the word again.
    Woken,
    /// A word did not have the expected value, so there was no sleep.
    Changed,
    /// The time is over.
    TimedOut,
}

/// Sleeps while `word` has the value `expected`, for at most `timeout`.
///
/// For [`wake`], the comparison and the falling asleep are one step: a change followed by a wake is never missed. A
/// timeout too long for the kernel's clock (centuries) counts as none.
///
/// # Errors
/// EFAULT where the word's memory has gone.
#[doc(alias = "FUTEX_WAIT")]
pub fn wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>) -> Result<Wait> {
    // In tests of interleavings a thread that sleeps lets others go on, and a timeout is over at some time.
    #[cfg(interleaved)]
    for looks in 0.. {
        if word.load(std::sync::atomic::Ordering::SeqCst) != expected {
            break;
        }
        if timeout.is_some() && looks == 100 {
            return Ok(Wait::TimedOut);
        }
        shuttle::thread::yield_now();
    }
    let timeout = timeout.and_then(|time| Timespec::try_from(time).ok());
    match futex::wait(word, Flags::empty(), expected, timeout.as_ref()) {
        Ok(()) | Err(Errno::INTR) => Ok(Wait::Woken),
        Err(Errno::AGAIN) => Ok(Wait::Changed),
        Err(Errno::TIMEDOUT) => Ok(Wait::TimedOut),
        Err(errno) => Err(failed("futex wait", word, errno)),
    }
}

/// Sleeps while each word has the value that comes with it, for at most `timeout`.
///
/// As with [`wait`], a change followed by a wake is never missed. The result does not say which word it was: look at
/// all of them.
///
/// # Errors
/// EINVAL: no word, or more than [`WAIT_ANY_MAX`]. EFAULT where a word's memory has gone.
#[doc(alias = "futex_waitv")]
pub fn wait_any(words: &[(&AtomicU32, u32)], timeout: Option<Duration>) -> Result<Wait> {
    if words.is_empty() || words.len() > WAIT_ANY_MAX {
        return Err(Error::new("futex_waitv", format!("{} words", words.len()), Errno::INVAL)
            .with_remedy("wait for 1 to 128 words at once, and for more by descriptors"));
    }
    // As in `wait`; no test needs this to time out.
    #[cfg(interleaved)]
    while words.iter().all(|(word, expected)| word.load(std::sync::atomic::Ordering::SeqCst) == *expected) {
        shuttle::thread::yield_now();
    }
    let mut waits = [futex::Wait::new(); WAIT_ANY_MAX];
    for (wait, (word, expected)) in waits.iter_mut().zip(words) {
        wait.val = u64::from(*expected);
        wait.uaddr = WaitPtr::new(word.as_ptr().cast());
        wait.flags = WaitFlags::SIZE_U32;
    }
    let deadline = timeout.and_then(deadline_after);
    let waits = &waits[..words.len()];
    match futex::waitv(waits, WaitvFlags::empty(), deadline.as_ref(), ClockId::Monotonic) {
        Ok(_) | Err(Errno::INTR) => Ok(Wait::Woken),
        Err(Errno::AGAIN) => Ok(Wait::Changed),
        Err(Errno::TIMEDOUT) => Ok(Wait::TimedOut),
        Err(errno) => Err(failed("futex_waitv", words[0].0, errno)),
    }
}

/// The time `timeout` from now, by the clock that [`wait_any`] uses; none where the clock does not go that far.
fn deadline_after(timeout: Duration) -> Option<Timespec> {
    rustix::time::clock_gettime(ClockId::Monotonic).checked_add(Timespec::try_from(timeout).ok()?)
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
    fn waiting_for_any_sees_a_change_of_each() {
        let words: Vec<AtomicU32> = (0..WAIT_ANY_MAX).map(|_| AtomicU32::new(7)).collect();
        let expect = |value| words.iter().map(|word| (word, value)).collect::<Vec<_>>();
        let soon = Some(Duration::from_millis(1));
        assert_eq!(wait_any(&expect(7), soon).unwrap(), Wait::TimedOut);
        for changed in [0, WAIT_ANY_MAX - 1] {
            words[changed].store(8, Ordering::Relaxed);
            assert_eq!(wait_any(&expect(7), None).unwrap(), Wait::Changed);
            words[changed].store(7, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_wake_of_any_word_ends_the_sleep() {
        let words = [AtomicU32::new(0), AtomicU32::new(0), AtomicU32::new(0)];
        for word in &words {
            std::thread::scope(|scope| {
                let expected = words.each_ref().map(|word| (word, 0));
                let sleeper = scope.spawn(move || wait_any(&expected, Some(Duration::from_secs(10))));
                while wake(word, 1).unwrap() == 0 && !sleeper.is_finished() {}
                assert_eq!(sleeper.join().unwrap().unwrap(), Wait::Woken);
            });
        }
    }

    #[test]
    fn waiting_for_no_word_or_too_many_is_refused() {
        let word = AtomicU32::new(0);
        for count in [0, WAIT_ANY_MAX + 1] {
            let error = wait_any(&vec![(&word, 0); count], None).unwrap_err();
            assert_eq!(error.errno, Errno::INVAL);
            assert!(error.to_string().contains(&format!("{count} words")), "{error}");
        }
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
