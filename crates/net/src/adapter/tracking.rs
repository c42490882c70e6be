//! MTU tracking: how long the packets are that come to a port.
//!
//! Why: buffering for several packets is laid out by the length of the longest ones, which nobody tells.
//! How: the longest packet counts at once. It counts until twice [`WINDOW`] packets came that were all shorter, since networks' routes change; of
//! those the longest counts then. So one burst of short datagrams changes little, and a path that lets less through is found out.
//! Source: thesis §6.4. Differs: there, the estimate only grows.

/// How many packets make up a window.
pub const WINDOW: u32 = 16;

/// The longest packet of late.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tracking {
    /// The longest of the window before, and of this one.
    before: usize,
    now: usize,
    /// How many came in this window.
    count: u32,
}

impl Tracking {
    /// Notes a packet of `len` bytes; returns whether the estimate changed.
    pub fn note(&mut self, len: usize) -> bool {
        let estimate = self.longest();
        if self.count == WINDOW {
            *self = Self { before: self.now, now: 0, count: 0 };
        }
        self.now = self.now.max(len);
        self.count += 1;
        self.longest() != estimate
    }

    /// How long the longest one is taken to be; 0 before any came.
    pub fn longest(&self) -> usize {
        self.before.max(self.now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longer_packets_count_at_once_and_shorter_ones_after_two_windows() {
        let mut tracking = Tracking::default();
        assert!(tracking.note(9180) && !tracking.note(100));
        assert!(tracking.note(18_360));
        let shorter = (1..).find(|_| tracking.note(9180)).expect("a change");
        assert_eq!(tracking.longest(), 9180);
        assert!((WINDOW..=2 * WINDOW).contains(&shorter), "after {shorter}");
    }

    #[test]
    fn short_packets_among_long_ones_change_nothing() {
        let mut tracking = Tracking::default();
        tracking.note(9180);
        for number in 0..1000 {
            assert!(!tracking.note(if number % WINDOW == 0 { 9180 } else { 64 }));
        }
    }
}
