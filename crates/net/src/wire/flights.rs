//! The frames in flight, in the order in which they will arrive. Time is an argument.

use std::collections::VecDeque;
use std::time::Duration;

use fastrand::Rng;

use super::fate::Fate;
use super::options::Options;
use crate::rate::Line;

/// How long a frame that is to arrive behind later ones waits for these.
const PATIENCE: Duration = Duration::from_millis(20);

/// What has become of the frames so far. Of those that were sent, some are in flight; the others have been delivered, some of them twice,
/// or were lost, dropped or let go.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames that senders have sent.
    pub sent: u64,
    /// Frames that have arrived; those that came twice count twice.
    pub delivered: u64,
    /// The bytes that have arrived.
    pub bytes: u64,
    /// Frames that were lost.
    pub lost: u64,
    /// Frames that came a second time.
    pub duplicated: u64,
    /// Frames that came after one that was sent later.
    pub reordered: u64,
    /// Frames that came with their end cut off.
    pub truncated: u64,
    /// Frames that came with bits turned over.
    pub damaged: u64,
    /// Frames that were refused since too many were in flight.
    pub dropped: u64,
    /// Frames whose senders gave them up, or were gone, before they arrived.
    pub let_go: u64,
}

/// The frames in flight, and what decides about them.
#[derive(Debug)]
pub(super) struct Flights<T> {
    options: Options,
    random: Rng,
    line: Line,
    queue: VecDeque<Flight<T>>,
    /// The number of the latest frame that has arrived, or was lost.
    latest: u64,
    /// What has become of the frames so far.
    pub(super) counters: Counters,
    /// Whether a thread is delivering: it goes on until nothing is due.
    pub(super) is_delivering: bool,
    /// Until when the wire's thread sleeps, if it is there; for ever while another thread delivers.
    pub(super) attended: Option<Duration>,
}

/// A frame in flight.
#[derive(Debug)]
pub(super) struct Flight<T> {
    /// What was sent.
    pub(super) sent: T,
    /// What becomes of it.
    pub(super) fate: Fate,
    /// The how manieth frame it is.
    number: u64,
    /// When it arrives, if the frames do that it comes behind.
    due: Duration,
}

impl<T> Flight<T> {
    /// Its place in the order of arrival: that of its number, or right behind a later number's.
    fn place(&self) -> (u64, bool) {
        (self.number.saturating_add(self.fate.displacement), self.fate.displacement > 0)
    }
}

impl<T> Flights<T> {
    /// No frames yet.
    pub(super) fn new(options: Options) -> Self {
        Self {
            random: Rng::with_seed(options.seed),
            line: Line::new(options.rate),
            options,
            queue: VecDeque::new(),
            latest: 0,
            counters: Counters::default(),
            is_delivering: false,
            attended: None,
        }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    /// A frame of `len` bytes is sent. It comes back if too many are in flight.
    pub(super) fn send(&mut self, sent: T, len: usize, now: Duration) -> Option<T> {
        self.counters.sent += 1;
        // One that is refused has a fate, too: that of the next ones does not depend on it.
        let fate = Fate::of(len, &self.options, self.random.fork());
        if self.queue.len() >= self.options.in_flight {
            self.counters.dropped += 1;
            return Some(sent);
        }
        let due = self.line.send(len as u64, now).saturating_add(self.options.delay);
        let flight = Flight { sent, fate, number: self.counters.sent, due };
        let at = self.queue.partition_point(|before| before.place() <= flight.place());
        self.queue.insert(at, flight);
        None
    }

    /// When the next frame arrives.
    pub(super) fn next_due(&self) -> Option<Duration> {
        let next = self.queue.front()?;
        let waits = next.place().0 > self.counters.sent;
        Some(if waits { next.due.saturating_add(PATIENCE) } else { next.due })
    }

    /// Whether the wire's thread sleeps for too long.
    pub(super) fn is_overslept(&self) -> bool {
        self.attended.is_some_and(|until| self.next_due().is_none_or(|due| due < until))
    }

    /// Takes the next frame, which arrives now.
    ///
    /// # Panics
    /// When there is none.
    pub(super) fn take(&mut self) -> Flight<T> {
        let flight = self.queue.pop_front().expect("a frame that is due");
        let (fate, counters) = (&flight.fate, &mut self.counters);
        counters.delivered += u64::from(fate.copies);
        counters.bytes += u64::from(fate.copies) * fate.len as u64;
        if fate.copies == 0 {
            counters.lost += 1;
        } else {
            counters.duplicated += u64::from(fate.copies - 1);
            counters.reordered += u64::from(flight.number < self.latest);
            counters.truncated += u64::from(fate.is_truncated);
            counters.damaged += u64::from(!fate.flips.is_empty());
            self.latest = self.latest.max(flight.number);
        }
        flight
    }

    /// Takes those frames out whose senders have given them up.
    pub(super) fn remove(&mut self, is_gone: impl Fn(&T) -> bool) -> Vec<T> {
        let mut gone = Vec::new();
        for at in (0..self.queue.len()).rev() {
            if is_gone(&self.queue[at].sent) {
                gone.extend(self.queue.remove(at).map(|flight| flight.sent));
            }
        }
        self.counters.let_go += gone.len() as u64;
        gone
    }
}

#[cfg(test)]
mod tests;
