//! The buffers of each pool: those kept for reuse, and how many there are.
//!
//! Invariants: a kept buffer's granules are referenced by nobody, and belong to its pool.
//! Source: thesis §3.1, §5.2, §7.4.2.

use std::collections::{BTreeMap, VecDeque};

use crate::LenderId;
use crate::tables::chunks::Chunks;
use crate::tables::runs::Run;
use crate::tables::shelf::Shelf;

/// Whole granules, with the window at which they are mapped, if any.
#[derive(Debug, Default)]
pub(crate) struct Whole {
    pub(crate) granules: Vec<u32>,
    pub(crate) window: Option<Run>,
}

impl Whole {
    pub(crate) fn count(&self) -> u32 {
        self.granules.len() as u32
    }
}

/// One pool's buffers.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    /// By number of granules.
    whole: BTreeMap<u32, Shelf<Whole>>,
    /// Granules in whole buffers, and of these, in kept ones.
    held: u32,
    pub(crate) kept: u32,
    /// Chunks that only the lender is shown.
    chunks: Chunks,
    /// Chunks that another server is shown, by that server's name as a lender.
    shown: BTreeMap<LenderId, Chunks>,
}

impl Pool {
    fn shelf(&mut self, count: u32) -> &mut Shelf<Whole> {
        self.whole.entry(count).or_default()
    }

    /// Puts on record that a whole buffer of `from` granules now has `to` granules; zero stands for no buffer.
    pub(crate) fn resize(&mut self, from: u32, to: u32) {
        if from > 0 {
            self.shelf(from).exist -= 1;
            if self.shelf(from).exist == 0 {
                self.whole.remove(&from);
            }
        }
        if to > 0 {
            self.shelf(to).exist += 1;
        }
        self.held = self.held + to - from;
    }

    /// Takes a kept buffer of `count` granules.
    pub(crate) fn take_whole(
        &mut self,
        count: u32,
        take: impl Fn(&mut Shelf<Whole>) -> Option<Whole>,
    ) -> Option<Whole> {
        let whole = take(self.whole.get_mut(&count)?)?;
        self.kept -= count;
        Some(whole)
    }

    pub(crate) fn keep_whole(&mut self, whole: Whole) {
        self.kept += whole.count();
        self.shelf(whole.count()).kept.push_back(whole);
    }

    pub(crate) fn has_kept(&self, count: u32) -> bool {
        self.whole.get(&count).is_some_and(|shelf| !shelf.kept.is_empty())
    }

    /// The chunks of this pool, which is `lender`'s, that `server` is shown.
    #[inline]
    pub(crate) fn chunks(&mut self, lender: LenderId, server: LenderId) -> &mut Chunks {
        if server == lender { &mut self.chunks } else { self.shown.entry(server).or_default() }
    }

    /// Takes out the kept whole buffers that hold any of the granules that `of` selects.
    pub(crate) fn take_kept(&mut self, of: impl Fn(u32) -> bool) -> Vec<Whole> {
        let mut taken = Vec::new();
        for shelf in self.whole.values_mut() {
            let (out, stay) = std::mem::take(&mut shelf.kept)
                .into_iter()
                .partition::<VecDeque<_>, _>(|whole| whole.granules.iter().any(|id| of(*id)));
            shelf.kept = stay;
            taken.extend(out);
        }
        for whole in &taken {
            self.kept -= whole.count();
            self.resize(whole.count(), 0);
        }
        taken
    }

    /// Of the granules that `of` selects, takes out those whose chunks are all free. A granule is `len` bytes long.
    pub(crate) fn take_uncut(&mut self, len: usize, of: impl Fn(u32) -> bool) -> Vec<u32> {
        let mut uncut = self.chunks.take_uncut(len, &of);
        self.shown.values_mut().for_each(|chunks| uncut.extend(chunks.take_uncut(len, &of)));
        self.shown.retain(|_, chunks| !chunks.is_empty());
        uncut
    }

    /// As [`Pool::take_uncut`], of all granules that `server` is shown.
    pub(crate) fn take_shown(&mut self, len: usize, server: LenderId) -> Vec<u32> {
        let Some(chunks) = self.shown.get_mut(&server) else { return Vec::new() };
        let uncut = chunks.take_uncut(len, |_| true);
        self.shown.retain(|_, chunks| !chunks.is_empty());
        uncut
    }

    fn is_empty(&self) -> bool {
        self.held == 0 && self.chunks.is_empty() && self.shown.is_empty()
    }

    /// Granules in whole buffers in use.
    pub(crate) fn in_use(&self) -> u32 {
        self.held - self.kept
    }

    /// Granules in kept buffers, in ascending order of buffer length, and those cut into chunks.
    pub(crate) fn granules(&self) -> impl Iterator<Item = u32> + '_ {
        let whole = self.whole.values().flat_map(|shelf| &shelf.kept);
        let chunks = std::iter::once(&self.chunks).chain(self.shown.values());
        whole.flat_map(|whole| whole.granules.iter()).chain(chunks.flat_map(Chunks::granules)).copied()
    }
}

/// All pools of a space.
#[derive(Debug, Default)]
pub(crate) struct Pools {
    own: Pool,
    lenders: BTreeMap<LenderId, Pool>,
}

impl Pools {
    pub(crate) fn add(&mut self, lender: LenderId) {
        self.lenders.insert(lender, Pool::default());
    }

    /// The pool of a lender that exists, or of a lender that is gone but whose buffers are in use.
    pub(crate) fn of(&mut self, lender: LenderId) -> &mut Pool {
        if lender == LenderId::OWN { &mut self.own } else { self.lenders.entry(lender).or_default() }
    }

    pub(crate) fn lenders(&self) -> Vec<LenderId> {
        std::iter::once(LenderId::OWN).chain(self.lenders.keys().copied()).collect()
    }

    /// Forgets the pool of a lender that is gone, once no buffer of the pool is left.
    pub(crate) fn forget_if_empty(&mut self, lender: LenderId) {
        if self.lenders.get(&lender).is_some_and(Pool::is_empty) {
            self.lenders.remove(&lender);
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (LenderId, &Pool)> {
        std::iter::once((LenderId::OWN, &self.own)).chain(self.lenders.iter().map(|(id, pool)| (*id, pool)))
    }
}
