//! Pools: system buffers kept for reuse, one pool for each lender.
//!
//! How: a *whole* buffer consists of whole granules, so that its pages can be swapped into a client's buffer or become
//! a region; a *chunk* is a part of a granule, for data that will be copied anyway (`chunks`). Both are kept for reuse when
//! they are deallocated; [`Recycling`](crate::Recycling) says which one is handed out next. Where a server is not the
//! pool's lender, chunks for it are cut from separate granules, in which that server finds nobody else's data. With small
//! pages, whole buffers also have a window of their own, populated, whose page tables are swapped with the client's.
//! Limits: the space's own pool keeps `Config::pool` bytes; a lender's keeps all that it has, since its memory has no
//! other use.
//! Source: thesis §3.1, §5.2, §7.4.2.

use genie_sys::GranuleKind;

use crate::space::{Core, State};
use crate::tables::chunks::{Chunk, chunk_len};
use crate::tables::granule::GranuleRuns;
use crate::tables::pools::Whole;
use crate::tables::runs::Run;
use crate::tables::shelf::Shelf;
use crate::{Error, LenderId, Result, aliases};

/// From this many granules on swapping page tables beats mapping page by page.
const WINDOWED: u32 = 16;

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

    /// Takes the buffer of a fixed pool that consists of these granules, if all of them are free. Nothing is taken
    /// for a lender that was removed, since its granules' numbers may be another object's.
    pub(crate) fn take_frame(&mut self, lender: LenderId, run: Run) -> Option<Whole> {
        if !self.granules.stocks.is_fixed(lender) || !self.granules.take_home(lender, run) {
            return None;
        }
        for id in run.numbers() {
            self.granules.use_up(id);
        }
        self.pools.of(lender).resize(0, run.len);
        Some(Whole { granules: run.numbers().collect(), window: None })
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
            aliases::granule(core, granule).fill(0);
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
