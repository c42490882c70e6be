//! Residence: which buffers are locked into memory.
//!
//! Why: whoever works on a buffer in real time must not wait for a page; but to lock each buffer when it is handed out, and to
//! unlock it later, costs more than what a buffer is for.
//! How: a buffer is locked when it is handed out, and stays so when it is freed: the next owner finds it locked. When more is
//! locked than may be, what was handed out first is unlocked; when too much of it is in the program's hands, what the program
//! was given first. Locks are each process's own.
//! Limits: where the kernel refuses to lock (`ulimit -l`), the buffer is handed out all the same. A buffer costs a look at all
//! that are locked.
//! Source: SMLI TR-95-39 §5.2.3.

use std::collections::VecDeque;

use genie_sys::lock::Mutex;
use genie_sys::shared::{Claim, PAGE, Shared};

use crate::Config;

/// Some pages in a row that are locked.
#[derive(Debug, Clone, Copy)]
struct Locked {
    first: usize,
    count: usize,
    is_held: bool,
}

impl Locked {
    fn meets(self, first: usize, count: usize) -> bool {
        self.first < first + count && first < self.first + self.count
    }
}

/// What is locked, what was handed out first in front.
#[derive(Debug)]
pub(crate) struct Residence {
    most: usize,
    most_held: usize,
    locked: Mutex<VecDeque<Locked>>,
}

impl Residence {
    /// None where nothing is to be locked.
    pub(crate) fn new(config: &Config) -> Option<Self> {
        let most = config.locked / PAGE;
        (most > 0).then(|| Self { most, most_held: config.held_locked / PAGE, locked: Mutex::default() })
    }

    /// Bytes that are locked.
    pub(crate) fn locked(&self) -> usize {
        self.locked.lock().iter().map(|locked| locked.count).sum::<usize>() * PAGE
    }

    /// Locks pages that the program was given, and unlocks what is too much then.
    pub(crate) fn hand_out(&self, claim: &Claim) {
        let (first, count, shared) = (claim.first(), claim.count(), claim.shared());
        let mut all = self.locked.lock();
        let same = all.iter().position(|locked| (locked.first, locked.count) == (first, count));
        let is_locked = match same.and_then(|at| all.remove(at)) {
            Some(_) => true,
            None => {
                unlock(&mut all, shared, |locked| locked.meets(first, count));
                shared.lock(first, count).is_ok()
            }
        };
        if is_locked {
            all.push_back(Locked { first, count, is_held: true });
        }
        self.unlock_excess(&mut all, shared);
    }

    fn unlock_excess(&self, all: &mut VecDeque<Locked>, shared: &Shared) {
        let mut held: usize = all.iter().filter(|locked| locked.is_held).map(|locked| locked.count).sum();
        unlock(all, shared, |locked| {
            let is_excess = locked.is_held && held > self.most_held;
            held -= if is_excess { locked.count } else { 0 };
            is_excess
        });
        let mut total: usize = all.iter().map(|locked| locked.count).sum();
        unlock(all, shared, |locked| {
            let is_excess = total > self.most;
            total -= if is_excess { locked.count } else { 0 };
            is_excess
        });
    }

    /// Enters that pages are not in the program's hands any more.
    pub(crate) fn hand_back(&self, claim: &Claim) {
        let mut all = self.locked.lock();
        let is_same = |locked: &&mut Locked| (locked.first, locked.count) == (claim.first(), claim.count());
        if let Some(locked) = all.iter_mut().find(is_same) {
            locked.is_held = false;
        }
    }

    /// Unlocks pages whose memory is given back.
    pub(crate) fn forget(&self, shared: &Shared, first: usize, count: usize) {
        unlock(&mut self.locked.lock(), shared, |locked| locked.meets(first, count));
    }
}

/// Unlocks those that `which` selects, in order.
fn unlock(all: &mut VecDeque<Locked>, shared: &Shared, mut which: impl FnMut(Locked) -> bool) {
    all.retain(|locked| {
        let goes = which(*locked);
        if goes {
            // It fails for what is not mapped, which these pages are.
            let _ = shared.unlock(locked.first, locked.count);
        }
        !goes
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Pool;

    /// Bytes that the kernel says are locked in the mapping at an address.
    fn locked_by_kernel(addr: usize) -> usize {
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let (mut is_here, mut bytes) = (false, 0);
        for line in maps.lines() {
            let range = line.split(' ').next().and_then(|range| range.split_once('-'));
            let number = |text: &str| usize::from_str_radix(text, 16).ok();
            if let Some((start, end)) = range.and_then(|(start, end)| Some((number(start)?, number(end)?))) {
                is_here = (start..end).contains(&addr);
            } else if let Some(rest) = line.strip_prefix("Locked:").filter(|_| is_here) {
                bytes = rest.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10;
            }
        }
        bytes
    }

    fn pool(locked: usize, held_locked: usize) -> Pool {
        Pool::new(Config { limit: 4 << 20, locked, held_locked, ..Config::default() }).unwrap()
    }

    #[test]
    fn a_buffer_stays_locked_when_it_is_freed_and_the_oldest_are_unlocked() {
        let pool = pool(64 << 10, usize::MAX);
        let addr = |fbuf: &crate::Fbuf| fbuf.as_ptr() as usize;
        let first = pool.allocate(32 << 10).unwrap();
        assert_eq!((pool.locked(), locked_by_kernel(addr(&first))), (32 << 10, 32 << 10));
        let place = addr(&first);
        drop(first);
        assert_eq!((pool.locked(), locked_by_kernel(place)), (32 << 10, 32 << 10));
        let again = pool.allocate(32 << 10).unwrap();
        assert_eq!((addr(&again), pool.locked()), (place, 32 << 10));
        let second = pool.allocate(32 << 10).unwrap();
        let third = pool.allocate(32 << 10).unwrap();
        assert_eq!((pool.locked(), locked_by_kernel(place)), (64 << 10, 0));
        assert_eq!(
            [&second, &third].map(|fbuf| locked_by_kernel(addr(fbuf))),
            [64 << 10; 2],
            "in one mapping"
        );
    }

    #[test]
    fn of_what_the_program_holds_no_more_than_the_threshold_is_locked() {
        let pool = pool(1 << 20, 8 << 10);
        let held: Vec<_> = (0..5).map(|_| pool.allocate(4096).unwrap()).collect();
        assert_eq!(pool.locked(), 8 << 10);
        drop(held);
        assert_eq!(pool.locked(), 8 << 10);
        drop(pool.allocate(2 << 20).unwrap());
        assert_eq!(pool.locked(), 0, "more than may be locked");
    }
}
