//! Members: the processes that share a pool, and what becomes of the pages of those that die.
//!
//! How: the pool's object has a byte for each member's place, and a member holds a lock on its byte for as long as it lives
//! (`genie_sys::record_lock`). Who gets a place's lock is alone with the place: a new member, or a living one that *sweeps*.
//! It repairs the words that the dead member had locked, frees all pages that the dead member had, and closes its ends of
//! channels. Where that cannot be done at once, since a word is locked by a member that is stopped, the place stays taken,
//! and the next sweep tries again.
//! Limits: 64 members at once.
//! Source: SMLI TR-95-39 §5.4.1, §5.5 (a pool per process, or for sets of processes that share a key).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use genie_sys::process::own_pid;
use genie_sys::record_lock::RecordLocks;
use genie_sys::shared::Shared;

use crate::channels;
use crate::error::{Error, Result};
use crate::holder::Holder;
use crate::layout::{Layout, MEMBERS};
use crate::words::Words;

/// Where a member's process number is, behind whether the place is taken: the number as its PID namespace has it, and above that the
/// namespace's own.
const PID: usize = 1;
const NAMESPACE_AT: u32 = 32;
/// How often a word's lock is tried when pages of the dead are freed.
const TRIES: u32 = 16;

/// Makes this process a member, in a place that nobody has.
pub(crate) fn join(shared: Arc<Shared>, layout: Layout) -> Result<(Words, RecordLocks)> {
    let locks = RecordLocks::open(shared.object())?;
    for index in 0..MEMBERS {
        if !locks.try_lock(index as u64)? {
            continue;
        }
        let words = Words { shared: Arc::clone(&shared), layout, me: Holder::member(index) };
        if taken(&words, index).load(Ordering::Acquire) == 0 || reclaim(&words, index) {
            let number = own_pid().as_raw_nonzero().get() as u64 | own_namespace()? << NAMESPACE_AT;
            process(&words, index).store(number, Ordering::Release);
            taken(&words, index).store(1, Ordering::Release);
            return Ok((words, locks));
        }
        locks.unlock(index as u64)?;
    }
    Err(Error::Full { what: "members", most: MEMBERS })
}

/// Takes back what members had that have died, and what is on its way to ends that nobody can take any more; returns the process
/// numbers of those members of whom nothing is left.
///
/// All words are repaired before any page is freed: a word may be another dead member's that holds a page of the first one's.
pub(crate) fn sweep(words: &Words, locks: &RecordLocks) -> Result<Vec<i32>> {
    let mut dead = Vec::new();
    let me = words.me.member_index();
    for index in (0..MEMBERS).filter(|index| Some(*index) != me) {
        let is_taken = || taken(words, index).load(Ordering::Acquire) != 0;
        if is_taken() && locks.try_lock(index as u64)? {
            // A member may have come and gone before the lock was there.
            if is_taken() { dead.push(index) } else { locks.unlock(index as u64)? }
        }
    }
    dead.iter().for_each(|index| repair_all_of(words, *index));
    let mut gone = Vec::new();
    for index in dead {
        if reclaim(words, index) {
            gone.push(pid(words, index));
            taken(words, index).store(0, Ordering::Release);
        }
        locks.unlock(index as u64)?;
    }
    channels::close_lost_offers(words, locks)?;
    Ok(gone)
}

/// Ends this process's membership. If something cannot be freed now, others find that the place is a dead member's.
pub(crate) fn leave(words: &Words) {
    if let Some(index) = words.me.member_index().filter(|index| reclaim(words, *index)) {
        taken(words, index).store(0, Ordering::Release);
    }
}

/// The process numbers of all members.
pub(crate) fn pids(words: &Words) -> Vec<i32> {
    let is_taken = |index: &usize| taken(words, *index).load(Ordering::Acquire) != 0;
    (0..MEMBERS).filter(is_taken).map(|index| pid(words, index)).collect()
}

/// A member's process number; 0 where it is in another PID namespace than this member, which has another process of that number, or none.
fn pid(words: &Words, index: usize) -> i32 {
    let number = |index| process(words, index).load(Ordering::Relaxed);
    let is_of_ours = |own| number(own) >> NAMESPACE_AT == number(index) >> NAMESPACE_AT;
    if words.me.member_index().is_some_and(is_of_ours) { number(index) as i32 } else { 0 }
}

/// The number of this process's PID namespace.
fn own_namespace() -> Result<u64> {
    let path = "/proc/self/ns/pid";
    let found = rustix::fs::stat(path).map_err(|errno| genie_sys::Error::new("stat", path, errno));
    Ok(found?.st_ino & u64::from(u32::MAX))
}

/// The word with the number of a member's process.
fn process(words: &Words, index: usize) -> &AtomicU64 {
    words.at(words.layout.member(index) + PID)
}

/// Frees all that a member had; returns whether that was possible.
fn reclaim(words: &Words, index: usize) -> bool {
    let dead = Holder::member(index);
    repair_all_of(words, index);
    give_all_of(words, |holder| holder == dead) && channels::close_all_of(words, index)
}

/// Repairs the words that a dead member had locked. A new member has the name of the dead one whose place it takes; neither
/// has a lock that the living use.
fn repair_all_of(words: &Words, index: usize) {
    let dead = Holder::member(index);
    let is_locked = |word: &usize| words.locked_by(*word) == Some(dead);
    (0..words.in_use()).filter(is_locked).for_each(|word| words.repair(word, dead));
}

/// Frees all pages of a holder; returns whether no word was locked by somebody else.
pub(crate) fn give_all_of(words: &Words, is_holder: impl Fn(Holder) -> bool + Copy) -> bool {
    let free = |word: usize| words.lock(word, TRIES).map(|locked| locked.give_all_of(is_holder));
    // Where all pages are free there is nothing to look for.
    (0..words.in_use()).filter(|word| words.bits(*word) != !0).map(free).all(|freed| freed.is_some())
}

/// Whether the place of a member is taken.
fn taken(words: &Words, index: usize) -> &AtomicU64 {
    words.at(words.layout.member(index))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, Pool};

    /// Once, `uf_register` took the number of a process in another PID namespace for that of one in its own.
    #[test]
    fn a_process_in_another_pid_namespace_has_no_number_here() {
        let config = Config { limit: 4 << 20, ..Config::default() };
        let one = Pool::new(config).unwrap();
        let other = Pool::join(one.descriptor().unwrap(), config).unwrap();
        let own = std::process::id() as i32;
        assert_eq!(one.members(), [own; 2]);
        let index = other.0.words.me.member_index().unwrap();
        process(&one.0.words, index).fetch_add(1 << NAMESPACE_AT, Ordering::Relaxed);
        assert_eq!((one.members(), other.members()), (vec![own, 0], vec![0, own]));
    }
}
