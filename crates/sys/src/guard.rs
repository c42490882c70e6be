#![allow(
    unsafe_code,
    reason = "installs a signal handler, which maps zeros only inside guarded arenas and leaves every other signal to the handler before it"
)]
//! Guards: a peer that takes its object's memory away must not kill a process that uses that memory.
//!
//! Why: a peer may punch a hole into a huge-paged object, and use up the huge pages that the machine has: the next touch
//! of the hole is SIGBUS, which ends the process. Seals do not forbid holes, and checking before each touch would be too
//! late.
//! How: the arena's addresses are entered in a table. The handler of SIGBUS, which may only do what is safe at any point of
//! a program, finds the address there, marks the entry broken, and maps a page of zeros in place of the missing one; the
//! touch then goes on. A thread that used the memory looks at [`Guard::is_broken`] before it relies on the data, or replies.
//! Every other SIGBUS goes to the handler that was there before. So does the report that a page was damaged (BUS_MCEERR_AR),
//! unless all of the arena is a peer's: in memory of this process's own, the zeros would look like data, though nobody wrote
//! them.
//! Invariants: an entry names addresses of an arena that exists: the arena takes its entry away before its addresses.
//! Trust: the memory's owner decides when the guard breaks. System calls that use the memory fail with EFAULT instead,
//! and break no guard.
//! Limits: 1024 arenas at once. A handler that is installed later must call this one. At the limit of mappings
//! (vm.max_map_count) zeros cannot be mapped, and SIGBUS kills the process as usual.

mod handler;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Weak};

use crate::{Errno, Error, Result};

/// How many arenas can be guarded at once.
pub const CAPACITY: usize = 1024;

/// Nobody has the entry.
const FREE: usize = 0;
/// The entry is taken, but does not stand for any addresses yet, or any more. No arena starts here.
const RESERVED: usize = 1;

/// How often memory was missing, or damaged, in any guarded arena.
static BREAKS: AtomicU32 = AtomicU32::new(0);

static TABLE: [Entry; CAPACITY] = [const { Entry::new() }; CAPACITY];

/// Which lost memory a guard replaces by zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replaces {
    /// Memory that its owner has taken away. For arenas that show memory of this process's own as well.
    Missing,
    /// Also memory that the machine has reported as damaged. For arenas that show a peer's memory alone, and whose user
    /// relies on nothing there once the guard is broken.
    MissingAndDamaged,
}

/// How the memory that was touched was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Loss {
    /// The memory is not there (BUS_ADRERR).
    Missing,
    /// The machine cannot read it any more (BUS_MCEERR_AR).
    Damaged,
}

/// How many arenas are guarded.
pub fn taken() -> usize {
    TABLE.iter().filter(|entry| entry.start.load(Ordering::Relaxed) != FREE).count()
}

/// The addresses of one guarded arena.
///
/// `start` says whether the rest is valid. A reader that finds the same `start` before and after reading the rest has read
/// values that belong together.
struct Entry {
    start: AtomicUsize,
    end: AtomicUsize,
    replaces_damaged: AtomicBool,
    is_broken: AtomicBool,
}

impl Entry {
    const fn new() -> Self {
        Self {
            start: AtomicUsize::new(FREE),
            end: AtomicUsize::new(0),
            replaces_damaged: AtomicBool::new(false),
            is_broken: AtomicBool::new(false),
        }
    }

    /// Takes the entry if nobody has it.
    fn claim(&self, start: usize, end: usize, replaces: Replaces) -> bool {
        // Acquire: pairs with the Release with which its last owner freed the entry. No thread sees the stores that
        // follow before this one.
        if self.start.compare_exchange(FREE, RESERVED, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return false;
        }
        self.is_broken.store(false, Ordering::Relaxed);
        // Release: a thread that has read one of these values then reads RESERVED, or a later value, as the start.
        self.replaces_damaged.store(replaces == Replaces::MissingAndDamaged, Ordering::Release);
        self.end.store(end, Ordering::Release);
        self.start.store(start, Ordering::Release);
        true
    }

    /// Marks the entry broken. It only stores, and so may be called in a signal handler.
    fn break_it(&self) {
        self.is_broken.store(true, Ordering::Release);
        // None of the counts means that no guard has ever been broken.
        if BREAKS.fetch_add(1, Ordering::Release) == u32::MAX {
            BREAKS.fetch_add(1, Ordering::Release);
        }
    }

    /// Whether the entry guards `addr` against such a loss. It only loads, and so may be called in a signal handler.
    fn holds(&self, addr: usize, loss: Loss) -> bool {
        let start = self.start.load(Ordering::Acquire);
        let end = self.end.load(Ordering::Acquire);
        let replaces = loss == Loss::Missing || self.replaces_damaged.load(Ordering::Acquire);
        start > RESERVED
            && replaces
            && (start..end).contains(&addr)
            && self.start.load(Ordering::Relaxed) == start
    }
}

/// An arena's place in the table, until it is dropped.
#[derive(Debug)]
pub(crate) struct Registration {
    index: usize,
}

impl Registration {
    /// Enters `len` bytes from `start` on, and installs the handler if this is the first entry.
    pub(crate) fn new(start: usize, len: usize, replaces: Replaces) -> Result<Arc<Self>> {
        handler::install()?;
        let free = TABLE.iter().position(|entry| entry.claim(start, start + len, replaces));
        let index = free.ok_or_else(|| {
            Error::new("guard", format!("one arena more than {CAPACITY}"), Errno::NOSPC)
                .with_remedy("serve fewer clients at once in one process")
        })?;
        Ok(Arc::new(Self { index }))
    }

    /// Ends the guarding; whether the guard broke stays known.
    pub(crate) fn retire(&self) {
        self.entry().start.store(RESERVED, Ordering::Release);
    }

    fn entry(&self) -> &'static Entry {
        &TABLE[self.index]
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // Release: pairs with the Acquire of the next claim.
        self.entry().start.store(FREE, Ordering::Release);
    }
}

/// Keeps an arena guarded; see [`Arena::guard`](crate::Arena::guard).
#[derive(Debug, Clone)]
pub struct Guard {
    registration: Arc<Registration>,
}

impl Guard {
    pub(crate) fn of(registration: Arc<Registration>) -> Self {
        Self { registration }
    }

    pub(crate) fn registration(&self) -> Weak<Registration> {
        Arc::downgrade(&self.registration)
    }

    /// Whether memory of the arena was lost when it was touched. If it was, bytes read there since may be zeros, and
    /// bytes stored there may be lost; a broken guard stays broken.
    pub fn is_broken(&self) -> bool {
        // The flag is set before the zeros are mapped: a thread that has read zeros finds it set.
        fence(Ordering::Acquire);
        self.registration.entry().is_broken.load(Ordering::Acquire)
    }
}

/// How often a touch has broken a guard of this process so far; the count wraps, to 1. While it stays the same, no guard
/// breaks.
///
/// Cost: a load.
#[inline]
pub fn breaks() -> u32 {
    // The count is changed before the zeros are mapped, and after the guard is marked: a thread that has read zeros finds both.
    fence(Ordering::Acquire);
    BREAKS.load(Ordering::Acquire)
}

/// Finds the entry that guards `addr` against such a loss and marks it broken; returns false if no entry does. Safe in a
/// signal handler.
fn break_guard_of(addr: usize, loss: Loss) -> bool {
    let found = TABLE.iter().find(|entry| entry.holds(addr, loss));
    found.inspect(|entry| entry.break_it()).is_some()
}

#[cfg(test)]
mod tests;
