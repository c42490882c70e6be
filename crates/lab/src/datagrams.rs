//! Numbered datagrams, by whatever sends and takes them: whether they arrive as they were sent, and how fast.
//!
//! Shape: a datagram's data begins with its number, eight bytes, little-endian. Behind it all bytes may be the same, known one.
//! How: the receiver has a CPU of its own, and looks again and again. Its rate counts: from what came first to what came last.

mod socket;

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{panic, thread};

use genie_sys::machine;

use crate::error::Result;

pub use socket::{Calls, Socket};

/// For how long nothing must have come when all was sent, for the rest to be lost.
const SILENCE: Duration = Duration::from_millis(50);

/// One end of the traffic.
pub trait End: Send {
    /// Sends the datagrams of these numbers to the other end.
    ///
    /// # Errors
    /// None can be sent.
    fn send(&mut self, numbers: Range<u64>) -> Result<()>;

    /// Notes what has come, if anything has.
    ///
    /// # Errors
    /// None can be received.
    fn take(&mut self, arrivals: &mut Arrivals) -> Result<()>;
}

/// Which datagrams are to come, and what has come.
#[derive(Debug)]
pub struct Arrivals {
    numbers: Range<u64>,
    len: usize,
    byte: Option<u8>,
    count: u64,
    /// One more than the last one's number.
    next: u64,
    is_wrong: bool,
    /// When the first ones were there, how many those were, and when the last ones were.
    times: Option<(Instant, u64, Instant)>,
}

impl Arrivals {
    /// Datagrams of these numbers and of `len` bytes. If `byte` is known, all bytes behind the number are compared.
    pub fn of(numbers: Range<u64>, len: usize, byte: Option<u8>) -> Self {
        let next = numbers.start;
        Self { numbers, len, byte, count: 0, next, is_wrong: false, times: None }
    }

    /// Whether all of a datagram's data is to be shown.
    pub fn are_compared(&self) -> bool {
        self.byte.is_some()
    }

    /// Notes a datagram of `len` bytes: the first ones, and all if they [are compared](Arrivals::are_compared). What has none of the numbers,
    /// as what is late from another turn, does not count.
    #[inline]
    pub fn note(&mut self, data: &[u8], len: usize) {
        let Some((number, data)) = data.split_first_chunk() else { return };
        let number = u64::from_le_bytes(*number);
        if !self.numbers.contains(&number) {
            return;
        }
        self.count += 1;
        self.is_wrong |= len != self.len || number < self.next;
        if let Some(byte) = self.byte {
            self.is_wrong |= data.len() + size_of_val(&number) != len || data.iter().any(|one| *one != byte);
        }
        self.next = number + 1;
    }

    /// How many have come.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The number of the datagram that came last, if one has come.
    pub fn last(&self) -> Option<u64> {
        (self.count > 0).then(|| self.next - 1)
    }

    /// Whether one had another length, number or byte than it should.
    pub fn is_wrong(&self) -> bool {
        self.is_wrong
    }

    /// The time from one datagram to the next, on average; none if all came at once.
    pub fn each(&self) -> Option<Duration> {
        let (first, count, last) = self.times?;
        let count = u32::try_from(self.count - count).ok().filter(|count| *count > 0)?;
        Some((last - first) / count)
    }
}

/// Takes datagrams until all have come, or `all_sent` says that no more will.
///
/// # Errors
/// None can be received.
pub fn receive(end: &mut dyn End, arrivals: &mut Arrivals, all_sent: &AtomicBool) -> Result<()> {
    let expected = arrivals.numbers.end - arrivals.numbers.start;
    let mut latest = Instant::now();
    while arrivals.count < expected {
        // Known before the look: what was sent while this thread had no CPU is still taken.
        let (before, is_over) = (arrivals.count, all_sent.load(Ordering::Acquire));
        end.take(arrivals)?;
        if arrivals.count > before {
            latest = Instant::now();
            arrivals.times.get_or_insert((latest, arrivals.count, latest)).2 = latest;
        } else if is_over && latest.elapsed() > SILENCE {
            break;
        } else {
            rest();
        }
    }
    Ok(())
}

/// Runs `there` in a thread on another CPU, and `here` in this one meanwhile; `there` is told when this is over.
///
/// # Errors
/// Those of either.
pub fn beside<T: Send, U>(
    cpu: usize,
    there: impl FnOnce(&AtomicBool) -> Result<T> + Send,
    here: impl FnOnce() -> Result<U>,
) -> Result<(T, U)> {
    let [is_ready, is_over] = [const { AtomicBool::new(false) }; 2];
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            let _pinned = machine::pin_thread(cpu);
            is_ready.store(true, Ordering::Release);
            there(&is_over)
        });
        while !is_ready.load(Ordering::Acquire) {
            thread::yield_now();
        }
        let found = here();
        is_over.store(true, Ordering::Release);
        let other = other.join().unwrap_or_else(|panic| panic::resume_unwind(panic));
        let found = found?;
        Ok((other?, found))
    })
}

/// What a thread does that looks again and again: where there is one CPU, the other end needs it.
pub fn rest() {
    match crate::probe::cpus() {
        Ok([_, _, ..]) => std::hint::spin_loop(),
        _ => thread::yield_now(),
    }
}
