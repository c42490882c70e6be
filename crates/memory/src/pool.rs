//! Pools: system buffers kept for reuse, one pool for each lender.
//!
//! How: a *whole* buffer consists of whole granules, so that its pages can be swapped into a client's buffer or become
//! a region; a *chunk* is a part of a granule, for data that will be copied anyway (`chunks`). Both are kept for reuse when
//! they are deallocated; [`Recycling`](crate::Recycling) says which one is handed out next. Where a server is not the
//! pool's lender, chunks for it are cut from separate granules, in which that server finds nobody else's data. With small
//! pages, whole buffers also have a window of their own, populated, whose page tables are swapped with the client's.
//! Invariants: a kept buffer's granules are referenced by nobody, and belong to its pool.
//! Limits: the space's own pool keeps `Config::pool` bytes; a lender's keeps all that it has, since its memory has no
//! other use.
//! Source: thesis §3.1, §5.2, §7.4.2.

use std::collections::{BTreeMap, VecDeque};

use genie_sys::GranuleKind;

use crate::chunks::{Chunk, Chunks, chunk_len};
use crate::granule::GranuleRuns;
use crate::runs::Run;
use crate::space::{Core, State};
use crate::{Error, LenderId, Result, views};

/// From this many granules on swapping page tables beats mapping page by page.
const WINDOWED: u32 = 16;
/// Whole granules, with the window at which they are mapped, if any.
#[derive(Debug, Default)]
pub(crate) struct Whole {
    pub(crate) granules: Vec<u32>,
    pub(crate) window: Option<Run>,
}

impl Whole {
    fn count(&self) -> u32 {
        self.granules.len() as u32
    }
}

/// Buffers of one length.
#[derive(Debug)]
pub(crate) struct Shelf<T> {
    /// The buffers kept for reuse; the last one is the one freed last.
    pub(crate) kept: VecDeque<T>,
    /// How many there are, in use or kept.
    pub(crate) exist: u32,
    /// How many more times not to ask for memory for another one, since there was none lately.
    short: u8,
}

impl<T> Default for Shelf<T> {
    fn default() -> Self {
        Self { kept: VecDeque::new(), exist: 0, short: 0 }
    }
}

impl<T> Shelf<T> {
    /// Takes a kept buffer; none when none is kept, or while fewer buffers exist than are to be rotated over.
    pub(crate) fn take(&mut self, rotation: u16) -> Option<T> {
        if rotation <= 1 {
            return self.kept.pop_back();
        }
        if self.exist < rotation.into() && self.short == 0 {
            return None;
        }
        self.short = self.short.saturating_sub(1);
        self.kept.pop_front()
    }

    /// Takes the buffer that has been free longest, because there is no memory for another one.
    pub(crate) fn take_oldest(&mut self) -> Option<T> {
        self.short = u8::MAX;
        self.kept.pop_front()
    }
}

/// One pool's buffers.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    /// By number of granules.
    whole: BTreeMap<u32, Shelf<Whole>>,
    /// Granules in whole buffers, and of these, in kept ones.
    held: u32,
    kept: u32,
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
    fn take_whole(&mut self, count: u32, take: impl Fn(&mut Shelf<Whole>) -> Option<Whole>) -> Option<Whole> {
        let whole = take(self.whole.get_mut(&count)?)?;
        self.kept -= count;
        Some(whole)
    }

    fn keep_whole(&mut self, whole: Whole) {
        self.kept += whole.count();
        self.shelf(whole.count()).kept.push_back(whole);
    }

    fn has_kept(&self, count: u32) -> bool {
        self.whole.get(&count).is_some_and(|shelf| !shelf.kept.is_empty())
    }

    /// The chunks of this pool, which is `lender`'s, that `server` is shown.
    #[inline]
    fn chunks(&mut self, lender: LenderId, server: LenderId) -> &mut Chunks {
        if server == lender { &mut self.chunks } else { self.shown.entry(server).or_default() }
    }

    /// Takes out the kept whole buffers that hold any of the granules that `of` selects.
    fn take_kept(&mut self, of: impl Fn(u32) -> bool) -> Vec<Whole> {
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
    fn take_uncut(&mut self, len: usize, of: impl Fn(u32) -> bool) -> Vec<u32> {
        let mut uncut = self.chunks.take_uncut(len, &of);
        self.shown.values_mut().for_each(|chunks| uncut.extend(chunks.take_uncut(len, &of)));
        self.shown.retain(|_, chunks| !chunks.is_empty());
        uncut
    }

    /// As [`Pool::take_uncut`], of all granules that `server` is shown.
    fn take_shown(&mut self, len: usize, server: LenderId) -> Vec<u32> {
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

impl State {
    /// Refuses to allocate from the pool of a lender that was removed.
    fn require_pool(&self, core: &Core, lender: LenderId, count: u32) -> Result<()> {
        let live = self.granules.stocks.is_live(lender);
        if live { Ok(()) } else { Err(Error::Lender { asked: core.bytes(count), free: 0 }) }
    }

    /// Takes a buffer of `count` granules for `len` bytes.
    pub(crate) fn take_whole(
        &mut self,
        core: &Core,
        lender: LenderId,
        count: u32,
        len: usize,
    ) -> Result<Whole> {
        self.require_pool(core, lender, count)?;
        let rotation = self.recycling.rotation(len);
        let pool = self.pools.of(lender);
        if let Some(whole) = pool.take_whole(count, |shelf| shelf.take(rotation)) {
            return Ok(whole);
        }
        // A buffer that is there already is not given up for the sake of rotation.
        let runs = if pool.has_kept(count) {
            self.take_spare(core, lender, count)
        } else {
            self.take_granules(core, lender, count)
        };
        match runs {
            Ok(runs) => Ok(self.new_whole(core, lender, &runs)),
            Err(error) => self.pools.of(lender).take_whole(count, Shelf::take_oldest).ok_or(error),
        }
    }

    fn new_whole(&mut self, core: &Core, lender: LenderId, runs: &GranuleRuns) -> Whole {
        let granules: Vec<u32> = runs.iter().flat_map(|run| run.numbers()).collect();
        for id in &granules {
            self.granules.use_up(*id);
        }
        let count = granules.len() as u32;
        self.pools.of(lender).resize(0, count);
        // Without a window the buffer works as well: swaps then map page by page.
        let window = if core.kind == GranuleKind::Base && count >= WINDOWED {
            self.new_window(core, runs).ok()
        } else {
            None
        };
        Whole { granules, window }
    }

    /// Maps granules at addresses of their own.
    fn new_window(&mut self, core: &Core, runs: &GranuleRuns) -> Result<Run> {
        let window = self.take_slots(core, runs.iter().map(|run| run.len).sum())?;
        if let Err(error) = self.map_unregistered(core, window.start, runs) {
            self.give_window(core, window)?;
            return Err(error);
        }
        Ok(window)
    }

    /// Adds granules in front of those that a buffer still has.
    pub(crate) fn top_up(
        &mut self,
        core: &Core,
        lender: LenderId,
        whole: &mut Whole,
        count: u32,
    ) -> Result<()> {
        let missing = count - whole.count();
        if missing == 0 {
            return Ok(());
        }
        let runs = self.take_granules(core, lender, missing)?;
        self.pools.of(lender).resize(whole.count(), count);
        self.give_up_window(core, &mut whole.window);
        let fresh: Vec<u32> = runs.iter().flat_map(|run| run.numbers()).collect();
        for id in &fresh {
            self.granules.use_up(*id);
        }
        whole.granules.splice(0..0, fresh);
        Ok(())
    }

    /// Deallocates a whole buffer: keeps it for reuse, or gives its granules up.
    pub(crate) fn give_whole(&mut self, core: &Core, lender: LenderId, whole: Whole) {
        let count = whole.count();
        if count == 0 {
            return;
        }
        let pool = self.pools.of(lender);
        let room = lender != LenderId::OWN || pool.kept + count <= core.pool_limit;
        if room && self.granules.may_be_kept(&whole.granules, lender) {
            self.pools.of(lender).keep_whole(whole);
            return;
        }
        self.pools.of(lender).resize(count, 0);
        self.dissolve(core, whole);
        if !self.granules.stocks.is_live(lender) {
            self.pools.forget_if_empty(lender);
        }
    }

    fn dissolve(&mut self, core: &Core, mut whole: Whole) {
        self.give_up_window(core, &mut whole.window);
        self.release(core, whole.granules);
    }

    /// Takes a chunk of a class, from a granule in which `server` is shown nobody else's data.
    pub(crate) fn take_chunk(
        &mut self,
        core: &Core,
        lender: LenderId,
        server: LenderId,
        class: usize,
    ) -> Result<Chunk> {
        self.require_pool(core, lender, 1)?;
        let rotation = self.recycling.rotation(chunk_len(class));
        let chunks = self.pools.of(lender).chunks(lender, server);
        if let Some(chunk) = chunks.take(class, rotation) {
            return Ok(chunk);
        }
        let runs = if chunks.has_kept(class) {
            self.take_spare(core, lender, 1)
        } else {
            self.take_granules(core, lender, 1)
        };
        // Taking one may have given up what was kept.
        let granule = match runs {
            Ok(runs) => runs[0].start,
            Err(error) => {
                let chunks = self.pools.of(lender).chunks(lender, server);
                return chunks.take_oldest(class).ok_or(error);
            }
        };
        if !self.granules.use_up(granule) && server != lender {
            views::granule(core, granule).fill(0);
        }
        let chunks = self.pools.of(lender).chunks(lender, server);
        chunks.cut(granule, core.granule());
        Ok(chunks.take_fresh(class).expect("a granule holds at least one chunk"))
    }

    /// Deallocates a chunk: keeps it for reuse, unless its granule is not to be used any more.
    pub(crate) fn give_chunk(&mut self, core: &Core, lender: LenderId, server: LenderId, chunk: Chunk) {
        self.pools.of(lender).chunks(lender, server).keep(chunk);
        if !self.granules.belongs(chunk.granule, lender) || !self.granules.stocks.is_live(server) {
            self.flush_pool(core, lender, |id| id == chunk.granule);
            if !self.granules.stocks.is_live(lender) {
                self.pools.forget_if_empty(lender);
            }
        }
    }

    /// Gives up the kept chunks that `server`, which is not their lender, was shown.
    pub(crate) fn flush_shown(&mut self, core: &Core, lender: LenderId, server: LenderId) {
        let uncut = self.pools.of(lender).take_shown(core.granule(), server);
        self.release(core, uncut);
    }

    /// Gives back to the free list what is kept of the granules that `of` selects: whole buffers that hold one of them,
    /// and granules whose chunks are all free.
    pub(crate) fn flush_pool(&mut self, core: &Core, lender: LenderId, of: impl Fn(u32) -> bool) {
        let pool = self.pools.of(lender);
        let (whole, uncut) = (pool.take_kept(&of), pool.take_uncut(core.granule(), &of));
        whole.into_iter().for_each(|whole| self.dissolve(core, whole));
        self.release(core, uncut);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_shortage_memory_for_one_more_is_asked_for_now_and_then() {
        let mut shelf = Shelf { kept: VecDeque::from([1, 2]), exist: 2, short: 0 };
        assert_eq!(shelf.take(3), None);
        assert_eq!(shelf.take_oldest(), Some(1));
        let mut last = 1;
        let taken = std::iter::from_fn(|| {
            shelf.kept.push_back(last);
            last = shelf.take(3)?;
            Some(last)
        });
        let taken: Vec<_> = taken.collect();
        assert_eq!(taken.len(), u8::MAX.into());
        assert_eq!(taken[..4], [2, 1, 2, 1]);
    }
}
