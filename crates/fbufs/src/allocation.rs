//! Allocation: finding free pages in a row, and giving them back.
//!
//! How: words are looked at from the one on that was used last, so that pages are used again while they are in a cache. A word
//! that is locked is passed over; only after a pass over all words is it tried again. Up to 64 pages come from one word; more
//! begin at a word's start and are taken word after word, of which only one is locked at a time. When a pass finds nothing,
//! more segments come into use; when there are none, members that have died are looked for; then allocation fails.
//! A run that cannot be freed since its word is locked goes to a list of *deferred* runs, for a later call.
//! Source: SMLI TR-95-39 §5.2.2. Differs: there, a buffer lies in one word.

use std::sync::atomic::Ordering;

use genie_sys::shared::{Claim, PAGE};

use crate::bits::{PER_WORD, Run, mask, runs};
use crate::error::{Error, Result};
use crate::holder::Holder;
use crate::pool::Inner;

/// Passes over all words before allocation fails although some words were locked.
const PASSES: u32 = 64;
/// Passes after which the CPU is left to whoever has a lock.
const PATIENT: u32 = 4;

/// What a pass over the words has found.
enum Found {
    Pages(usize),
    /// Nothing, but words were locked.
    Locked,
    Nothing,
}

impl Inner {
    /// Allocates `count` pages, at least one, for this process alone.
    pub(crate) fn allocate(&self, count: usize) -> Result<Claim> {
        self.ensure_own()?;
        self.charge(count)?;
        let claim = self.take(count).inspect_err(|_| self.discharge(count))?;
        self.hand_out(&claim);
        Ok(claim)
    }

    fn take(&self, count: usize) -> Result<Claim> {
        if self.deferrals.load(Ordering::Relaxed) > 0 {
            self.free_deferred();
        }
        loop {
            let first = self.find(count)?;
            let claim = self.words.shared.try_claim(first, count);
            let claim = claim.inspect_err(|_| runs(first, count).for_each(|run| self.free_or_defer(run)))?;
            if let Some(claim) = claim {
                return Ok(claim);
            }
            // These pages are in this process's hands already, although the bit string called them free: some member has
            // spoilt it. They are left alone from now on, so this ends.
        }
    }

    fn find(&self, count: usize) -> Result<usize> {
        let mut is_swept = false;
        for pass in 0..PASSES {
            match self.pass(count) {
                Found::Pages(first) => return Ok(first),
                Found::Locked | Found::Nothing if self.use_more(count) => {}
                Found::Locked if pass < PATIENT => {
                    (0..1u32 << (4 + pass)).for_each(|_| std::hint::spin_loop())
                }
                Found::Locked if is_swept => rustix::thread::sched_yield(),
                Found::Nothing if is_swept => break,
                Found::Locked | Found::Nothing => {
                    self.free_deferred();
                    is_swept = true;
                    self.sweep()?;
                }
            }
        }
        Err(self.exhausted(count))
    }

    fn exhausted(&self, count: usize) -> Error {
        Error::Exhausted { asked: bytes(count), limit: self.words.layout.pages() * PAGE }
    }

    /// Takes more segments into use if there are some: one, or as many as the pages need.
    fn use_more(&self, count: usize) -> bool {
        let all = self.words.layout.words();
        self.words.use_more((self.words.in_use() + count.div_ceil(PER_WORD)).min(all))
    }

    fn pass(&self, count: usize) -> Found {
        if count <= PER_WORD { self.pass_for_few(count) } else { self.pass_for_many(count) }
    }

    fn pass_for_few(&self, count: usize) -> Found {
        let (in_use, hint) = (self.words.in_use(), self.hint.load(Ordering::Relaxed));
        let mut found = Found::Nothing;
        for word in (0..in_use).map(|at| (hint + at) % in_use) {
            if crate::bits::find(self.words.bits(word), count).is_none() {
                continue;
            }
            match self.words.lock(word, 1).map(|locked| locked.take(count)) {
                Some(Some(run)) => {
                    self.hint.store(word, Ordering::Relaxed);
                    return Found::Pages(run.page());
                }
                Some(None) => {}
                None => found = Found::Locked,
            }
        }
        found
    }

    fn pass_for_many(&self, count: usize) -> Found {
        let span = count.div_ceil(PER_WORD);
        let looks_free = |run: Run| self.words.bits(run.word) & run.mask() == run.mask();
        let mut found = Found::Nothing;
        for word in 0..(self.words.in_use() + 1).saturating_sub(span) {
            let first = word * PER_WORD;
            if !runs(first, count).all(looks_free) {
                continue;
            }
            let mut taken = Vec::with_capacity(span);
            let take = |run: Run| self.words.lock(run.word, self.config.tries)?.take_at(run.first, run.count);
            taken.extend(runs(first, count).map_while(take));
            if taken.len() == span {
                return Found::Pages(first);
            }
            taken.into_iter().for_each(|run| self.free_or_defer(run));
            found = Found::Locked;
        }
        found
    }

    /// Gives pages back to the pool.
    pub(crate) fn deallocate(&self, claim: Claim) {
        let (first, count) = (claim.first(), claim.count());
        if !self.maker.is_this_process() {
            return;
        }
        // Before other threads can find the pages in the bit string.
        self.hand_back(claim);
        runs(first, count).for_each(|run| self.free_or_defer(run));
        if count <= PER_WORD {
            self.hint.store(first / PER_WORD, Ordering::Relaxed);
        }
    }

    fn free_or_defer(&self, run: Run) {
        if !self.free_now(run) {
            let mut deferred = self.deferred.lock();
            deferred.push(run);
            self.deferrals.store(deferred.len(), Ordering::Relaxed);
        }
    }

    /// Frees a run; returns false where its word is locked.
    fn free_now(&self, run: Run) -> bool {
        let Some(locked) = self.words.lock(run.word, self.config.tries) else { return false };
        let bits = locked.give(run, self.words.me);
        drop(locked);
        if bits == Some(!0) && run.word * PER_WORD * PAGE >= self.config.keep {
            self.give_memory_back(run.word);
        }
        true
    }

    /// Frees those of the runs that a holder has, and whose words are not locked by others.
    pub(crate) fn free_if_held(&self, runs: impl Iterator<Item = Run>, holder: Holder) {
        for run in runs {
            let locked = self.words.lock(run.word, self.config.tries);
            let _ = locked.and_then(|locked| locked.give(run, holder));
        }
    }

    fn free_deferred(&self) {
        let mut deferred = self.deferred.lock();
        deferred.retain(|run| !self.free_now(*run));
        self.deferrals.store(deferred.len(), Ordering::Relaxed);
    }

    /// Gives the memory of a word's pages back to the kernel, if all of them are free.
    fn give_memory_back(&self, word: usize) {
        let all = self.words.lock(word, 1).and_then(|locked| locked.take_at(0, PER_WORD));
        let Some(all) = all else { return };
        if let Some(mut claim) = self.words.shared.claim(all.page(), all.count) {
            if let Some(residence) = &self.residence {
                residence.forget(&self.words.shared, all.page(), all.count);
            }
            // If the kernel refuses, the pages keep their memory.
            let _ = claim.discard();
        }
        match self.words.lock(word, self.config.tries) {
            Some(locked) => drop(locked.give(all, self.words.me)),
            None => self.free_or_defer(all),
        }
    }

    /// Bytes that this process may hold beyond those that it holds.
    pub(crate) fn allowance(&self) -> usize {
        (self.config.quota / PAGE).saturating_sub(self.held.load(Ordering::Relaxed)) * PAGE
    }

    /// Enters that this process holds so many pages more.
    fn charge(&self, count: usize) -> Result<()> {
        let (quota, pages) = (self.config.quota / PAGE, self.words.layout.pages());
        let more = |held: usize| held.checked_add(count).filter(|held| *held <= quota);
        let refused = |held| match quota < pages {
            true => Error::Quota { asked: bytes(count), held: held * PAGE, quota: self.config.quota },
            false => self.exhausted(count),
        };
        self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).map_err(refused)?;
        Ok(())
    }

    /// Enters that this process was given pages by another one. What has come is not refused for the quota's sake.
    pub(crate) fn adopt(&self, claim: &Claim) {
        self.held.fetch_add(claim.count(), Ordering::Relaxed);
        self.hand_out(claim);
    }

    fn hand_out(&self, claim: &Claim) {
        if let Some(residence) = &self.residence {
            residence.hand_out(claim);
        }
    }

    /// Enters that this process does not hold pages any more.
    pub(crate) fn hand_back(&self, claim: Claim) {
        if let Some(residence) = &self.residence {
            residence.hand_back(&claim);
        }
        self.discharge(claim.count());
    }

    fn discharge(&self, count: usize) {
        self.held.fetch_sub(count, Ordering::Relaxed);
    }

    /// Gives back to the kernel the memory of all free pages, 256 KiB at a time; returns how many bytes that concerned.
    pub(crate) fn trim(&self) -> usize {
        let before = |word: &usize| self.words.bits(*word) == mask(0, PER_WORD);
        let idle: Vec<usize> = (0..self.words.in_use()).filter(before).collect();
        idle.iter().for_each(|word| self.give_memory_back(*word));
        idle.len() * PER_WORD * PAGE
    }
}

/// The length of so many pages; anybody may ask for more than there are addresses.
fn bytes(count: usize) -> usize {
    count.saturating_mul(PAGE)
}
