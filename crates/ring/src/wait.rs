//! Waiting: spinning for a while, then sleeping.
//!
//! Why: a thread that has not slept notices a quick answer soonest, but waiting for a slow answer must not cost a CPU.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::bell::Mode;
use crate::consumer::Consumer;
use crate::error::{Broken, Error};
use crate::producer::Producer;

/// Time between two looks. A look takes the line away from a peer that is about to write it, and the peer must fetch it
/// back. Where a line takes 30 ns from CPU to CPU, looks every 10 ns made round trips of 270 ns, every 36 ns of 175 ns,
/// every 100 ns of 210 ns (the example `round_trip`).
const LOOK_GAP_NS: u32 = 36;
/// Looks between two readings of the clock.
const LOOKS_PER_READING: u32 = 64;

/// The longest time to spin: a thread that spins notices neither that it is to stop nor that its peer has ended.
const LONGEST: Duration = Duration::from_secs(1);

/// How long to spin before sleeping.
///
/// Spinning for as long as a wake-up takes never costs more than twice as much as knowing beforehand how long to wait
/// (competitive spinning). With one CPU for both sides only zero makes sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spin {
    limit: Duration,
    pauses_per_look: u32,
}

impl Spin {
    /// No spinning: a look, then sleep.
    pub const NONE: Self = Self { limit: Duration::ZERO, pauses_per_look: 1 };

    /// Spins for this long, a second at most, and a few microseconds more.
    ///
    /// # Cost
    /// The first call of a process measures the CPU's pause instruction, in some 10 us.
    pub fn new(limit: Duration) -> Self {
        // Zero until it is known: nobody waits for another thread, which a child made by fork may lack.
        static PAUSES_PER_LOOK: AtomicU32 = AtomicU32::new(0);
        let mut pauses = PAUSES_PER_LOOK.load(Ordering::Relaxed);
        if pauses == 0 {
            pauses = pauses_per_look();
            PAUSES_PER_LOOK.store(pauses, Ordering::Relaxed);
        }
        Self { limit: limit.min(LONGEST), pauses_per_look: pauses }
    }

    /// Looks until there is something or the time is over; returns whether there is.
    #[inline]
    pub fn until(self, mut is_there: impl FnMut() -> bool) -> bool {
        if is_there() {
            return true;
        }
        if self.limit.is_zero() {
            return false;
        }
        let mut start = None;
        loop {
            for _ in 0..LOOKS_PER_READING {
                (0..self.pauses_per_look).for_each(|_| std::hint::spin_loop());
                if is_there() {
                    return true;
                }
            }
            if start.get_or_insert_with(Instant::now).elapsed() >= self.limit {
                return false;
            }
        }
    }
}

/// Pauses that fill the gap between two looks; a pause takes from 1 to 50 ns, depending on the CPU.
fn pauses_per_look() -> u32 {
    const PAUSES: u32 = 100;
    let time = |_| {
        let start = Instant::now();
        (0..PAUSES).for_each(|_| std::hint::spin_loop());
        start.elapsed().as_nanos() as u32
    };
    // The least of a few measurements, since interrupts only add time.
    let least = (0..10).map(time).min().unwrap_or(0).max(1);
    ((LOOK_GAP_NS * PAUSES + least / 2) / least).clamp(1, LOOK_GAP_NS)
}

/// Waits for a record: spins, then sleeps. Returns whether there is one; if not, the time is over.
///
/// # Errors
/// The kernel's; none is expected.
///
/// # Cost
/// One system call for each sleep, and none when the spinning sufficed.
pub fn wait(consumer: &mut Consumer, spin: Spin, timeout: Option<Duration>) -> Result<bool, Error> {
    if spin.until(|| consumer.is_ready()) {
        return Ok(true);
    }
    let deadline = deadline_after(timeout);
    while consumer.arm(Mode::Futex) {
        let left = time_left(deadline);
        let slept = if left == Some(Duration::ZERO) { Ok(()) } else { consumer.sleep(left).map(drop) };
        consumer.disarm();
        slept?;
        if left == Some(Duration::ZERO) {
            return Ok(consumer.is_ready());
        }
    }
    Ok(true)
}

/// Waits, after a push that found the ring full, until the peer has made room or sent something. Returns whether it has
/// done so; if not, the time is over.
///
/// Both ends must be of the same side. What the peer has sent should be taken before this is called again: a peer whose
/// own ring is full consumes nothing.
///
/// # Errors
/// The peer broke the rules, or the kernel's errors, none of which is expected.
pub fn wait_for_room(
    producer: &mut Producer,
    consumer: &mut Consumer,
    timeout: Option<Duration>,
) -> Result<bool, Error> {
    let deadline = deadline_after(timeout);
    while consumer.arm(Mode::Futex) {
        let left = time_left(deadline);
        let slept = sleep_for_room(producer, consumer, left);
        consumer.disarm();
        if !slept? {
            return Ok(true);
        }
        if left == Some(Duration::ZERO) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Sleeps if the producer still has no more room; returns whether it had not.
fn sleep_for_room(
    producer: &mut Producer,
    consumer: &Consumer,
    timeout: Option<Duration>,
) -> Result<bool, Error> {
    let is_full = producer.want_room().map_err(|broken: Broken| Error::Broken(broken))?;
    if is_full && timeout != Some(Duration::ZERO) {
        consumer.sleep(timeout)?;
    }
    Ok(is_full)
}

fn deadline_after(timeout: Option<Duration>) -> Option<Instant> {
    timeout.and_then(|timeout| Instant::now().checked_add(timeout))
}

fn time_left(deadline: Option<Instant>) -> Option<Duration> {
    deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Once, a thread that was told to spin for ever did so: a server's thread noticed neither another client nor that
    /// it was to stop.
    #[test]
    fn spinning_ends_however_long_it_was_to_last() {
        assert_eq!(Spin::new(Duration::MAX), Spin::new(LONGEST));
        assert!(!Spin::new(Duration::MAX).until(|| false));
    }
}
