//! The bit string: which pages are free, a word at a time, each word under a lock of its own.
//!
//! Why: members of a group allocate and free in the same memory, and any of them may be stopped, killed or wrong at any
//! moment. A lock that is held for a few instructions, over one word alone, keeps the others from 256 KiB at most.
//! How: a one in the bit string stands for a free page. Next to the bits there are the *lock*, which names its holder, and
//! the *intent*. At the first page of each run that is not free its *head* says who has it. A word is changed so:
//!
//! 1. lock; 2. the pages concerned are written into the intent; 3. head and bits are changed; 4. the intent is emptied;
//! 5. unlock.
//!
//! If the holder dies on the way, whoever finds that out takes the lock over and frees the pages of the intent: nobody has
//! been given them yet, or they were being freed. A page that is passed on has only its head changed, by one exchange.
//! Invariants: outside locks, a page is in exactly one of: the ones of the bit string, and the run of one head. No thread
//! holds two locks.
//! Trust: members may store anything anywhere. Each word is loaded once and checked; nonsense makes pages useless, or makes
//! two members have the same pages, of this group.
//! Source: SMLI TR-95-39 §5.2.2. Differs: there, the kernel cannot be killed, so the process's death needs no repair.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use genie_sys::shared::Shared;

use crate::bits::{self, PER_WORD, Run};
use crate::holder::{Head, Holder};
use crate::layout::{Layout, WORDS_PER_SEGMENT, segments_in_use};

/// Where the parts of a word of the bit string are, behind its place.
const BITS: usize = 1;
const INTENT: usize = 2;

const UNLOCKED: u64 = 0;

/// A pool's words, as one member uses them.
#[derive(Debug, Clone)]
pub(crate) struct Words {
    pub(crate) shared: Arc<Shared>,
    pub(crate) layout: Layout,
    pub(crate) me: Holder,
}

impl Words {
    pub(crate) fn at(&self, place: usize) -> &AtomicU64 {
        &self.shared.words()[place]
    }

    /// How many words of the bit string are in use; the pages of the others have never been handed out.
    pub(crate) fn in_use(&self) -> usize {
        let segments = segments_in_use(self.shared.words()).load(Ordering::Acquire) as usize;
        segments.min(self.layout.segments()) * WORDS_PER_SEGMENT
    }

    /// Takes more segments into use, until `words` words are; returns whether there were so many more.
    pub(crate) fn use_more(&self, words: usize) -> bool {
        let wanted = words.div_ceil(WORDS_PER_SEGMENT);
        if wanted > self.layout.segments() || words <= self.in_use() {
            return false;
        }
        segments_in_use(self.shared.words()).fetch_max(wanted as u64, Ordering::AcqRel);
        true
    }

    /// The bits of a word, which may change at once.
    pub(crate) fn bits(&self, word: usize) -> u64 {
        self.at(self.layout.word(word) + BITS).load(Ordering::Relaxed)
    }

    /// The holder of a word's lock.
    pub(crate) fn locked_by(&self, word: usize) -> Option<Holder> {
        Holder::of(self.at(self.layout.word(word)).load(Ordering::Relaxed))
    }

    /// Locks a word, in so many tries with a pause between them that grows.
    pub(crate) fn lock(&self, word: usize, tries: u32) -> Option<Locked<'_>> {
        for attempt in 0..tries {
            if let Some(locked) = self.exchange_lock(word, UNLOCKED) {
                return Some(locked);
            }
            (0..1u32 << attempt.min(10)).for_each(|_| std::hint::spin_loop());
        }
        None
    }

    /// Takes the lock of a word over from a member that has died, and repairs the word.
    pub(crate) fn repair(&self, word: usize, dead: Holder) {
        if let Some(locked) = self.exchange_lock(word, dead.word()) {
            locked.repair();
        }
    }

    fn exchange_lock(&self, word: usize, from: u64) -> Option<Locked<'_>> {
        let lock = self.at(self.layout.word(word));
        // Acquire: pairs with the Release that unlocked it. For one who died, the record lock has ordered its stores.
        lock.compare_exchange(from, self.me.word(), Ordering::Acquire, Ordering::Relaxed).ok()?;
        Some(Locked { words: self, word })
    }

    /// Whether a holder has a run now.
    pub(crate) fn has(&self, run: Run, holder: Holder) -> bool {
        self.at(self.layout.head(run.page())).load(Ordering::Acquire)
            == Head { holder, count: run.count }.word()
    }

    /// Passes a run from one holder to another; returns whether the first one had it.
    pub(crate) fn pass(&self, run: Run, from: Holder, to: Holder) -> bool {
        let [from, to] = [from, to].map(|holder| Head { holder, count: run.count }.word());
        let head = self.at(self.layout.head(run.page()));
        head.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

/// A locked word. Dropping this unlocks it.
#[derive(Debug)]
pub(crate) struct Locked<'w> {
    words: &'w Words,
    word: usize,
}

impl Locked<'_> {
    fn part(&self, part: usize) -> &AtomicU64 {
        self.words.at(self.words.layout.word(self.word) + part)
    }

    fn head(&self, first: usize) -> &AtomicU64 {
        self.words.at(self.words.layout.head(self.word * PER_WORD + first))
    }

    /// Takes `count` pages wherever they are free; `count` is 1 to 64.
    pub(crate) fn take(&self, count: usize) -> Option<Run> {
        let first = bits::find(self.part(BITS).load(Ordering::Acquire), count)?;
        self.take_at(first, count)
    }

    /// Takes `count` pages from `first` on, if they are free.
    pub(crate) fn take_at(&self, first: usize, count: usize) -> Option<Run> {
        let (bits, mask) = (self.part(BITS).load(Ordering::Acquire), bits::mask(first, count));
        if bits & mask != mask {
            return None;
        }
        // Release, each of these: they are done in this order, so that a death between two of them can be repaired.
        self.part(INTENT).store(mask, Ordering::Release);
        self.head(first).store(Head { holder: self.words.me, count }.word(), Ordering::Release);
        self.part(BITS).store(bits & !mask, Ordering::Release);
        self.part(INTENT).store(0, Ordering::Release);
        Some(Run { word: self.word, first, count })
    }

    /// Frees a run that `holder` has; returns the bits afterwards, or nothing where that holder does not have it.
    pub(crate) fn give(&self, run: Run, holder: Holder) -> Option<u64> {
        let has_it = self.head(run.first).load(Ordering::Acquire) == Head { holder, count: run.count }.word();
        has_it.then(|| self.free(run.mask(), &[run.first]))
    }

    /// Frees all that a holder has; returns how many pages.
    pub(crate) fn give_all_of(&self, is_holder: impl Fn(Holder) -> bool) -> usize {
        let (mut mask, mut firsts, mut at) = (0, Vec::new(), 0);
        while at < PER_WORD {
            let head = Head::of(self.head(at).load(Ordering::Acquire), at);
            if let Some(head) = head.filter(|head| is_holder(head.holder)) {
                mask |= bits::mask(at, head.count);
                firsts.push(at);
            }
            at += 1;
        }
        if mask != 0 {
            self.free(mask, &firsts);
        }
        mask.count_ones() as usize
    }

    fn free(&self, mask: u64, firsts: &[usize]) -> u64 {
        self.part(INTENT).store(mask, Ordering::Release);
        firsts.iter().for_each(|first| self.head(*first).store(0, Ordering::Release));
        self.end_intent(mask)
    }

    /// Marks the pages free and empties the intent.
    fn end_intent(&self, mask: u64) -> u64 {
        let bits = self.part(BITS).load(Ordering::Acquire) | mask;
        self.part(BITS).store(bits, Ordering::Release);
        self.part(INTENT).store(0, Ordering::Release);
        bits
    }

    /// Ends what a member that died had begun.
    fn repair(&self) {
        let mask = self.part(INTENT).load(Ordering::Acquire);
        let in_mask = |first: &usize| mask >> first & 1 == 1;
        (0..PER_WORD).filter(in_mask).for_each(|first| self.head(first).store(0, Ordering::Release));
        self.end_intent(mask);
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        let (lock, me) = (self.part(0), self.words.me.word());
        // It is another's only where a member has spoilt it.
        let _ = lock.compare_exchange(me, UNLOCKED, Ordering::Release, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
