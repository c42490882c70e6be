//! System buffers: the memory between client and server when data is not passed in place.
//!
//! How: a *whole* buffer consists of whole granules, so that its pages can be swapped into a client's buffer or become
//! a region; a *chunk* is a part of a granule, for data that will be copied anyway. Both are kept for reuse when they
//! are deallocated, most recently used first, since their memory is then still in the cache.
//! With small pages, whole buffers also have a window of their own, populated, whose page tables a swap exchanges with
//! the client's.
//! Invariants: a pooled buffer's granules are referenced by nobody.
//! Limits: `Config::pool` bytes are kept.
//! Source: thesis §3.1, §7.4.2; server-aligned buffering §4.1.

use std::collections::BTreeMap;

use smallvec::SmallVec;

use genie_sys::GranuleKind;

use crate::granule::{GranuleRuns, push};
use crate::reference::segments;
use crate::runs::Run;
use crate::segments::Segments;
use crate::space::{Core, Space, State};
use crate::{Error, Result, views};

/// From this many granules on exchanging page tables beats mapping page by page.
const WINDOWED: u32 = 16;
/// The smallest chunk: 4 KiB.
const SMALLEST_CHUNK: u32 = 12;
/// Chunk sizes are powers of four times the smallest.
const CHUNK_CLASSES: usize = 5;

/// What backs a system buffer.
#[derive(Debug)]
enum Backing {
    Whole(Whole),
    Chunk(Chunk),
}

/// Whole granules, with the window at which they are mapped, if any.
#[derive(Debug, Default)]
struct Whole {
    granules: Vec<u32>,
    window: Option<Run>,
}

#[derive(Debug, Clone, Copy)]
struct Chunk {
    granule: u32,
    offset: u32,
    class: u8,
}

/// Buffers kept for reuse.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    /// By number of granules.
    whole: BTreeMap<u32, Vec<Whole>>,
    /// Granules in `whole`.
    pooled: u32,
    chunks: [Vec<Chunk>; CHUNK_CLASSES],
    /// Granules cut into chunks.
    cut: Vec<u32>,
}

impl Pool {
    /// Granules in pooled buffers, in ascending order of buffer length.
    pub(crate) fn granules(&self) -> impl Iterator<Item = u32> + '_ {
        self.whole.values().flatten().flat_map(|whole| whole.granules.iter().copied())
    }

    /// Granules cut into chunks.
    pub(crate) fn cut(&self) -> &[u32] {
        &self.cut
    }
}

/// Memory for `len` bytes that no client sees; dropping it deallocates it.
pub struct SystemBuffer {
    space: Space,
    backing: Backing,
    offset: usize,
    len: usize,
}

impl Space {
    /// Allocates a system buffer for data that will be copied: the cheapest that holds `len` bytes.
    ///
    /// # Errors
    /// [`Error::Limit`], or the kernel's reason.
    pub fn system_buffer(&self, len: usize) -> Result<SystemBuffer> {
        let core = self.core();
        let class = chunk_class(len).filter(|class| chunk_len(*class) < core.granule());
        let Some(class) = class else { return self.aligned_buffer(0, len) };
        let chunk = core.lock().take_chunk(core, class)?;
        Ok(SystemBuffer { space: self.clone(), backing: Backing::Chunk(chunk), offset: 0, len })
    }

    /// Allocates a system buffer of whole granules whose data starts `offset` bytes into the first one, aligned with a
    /// client's buffer, so that pages can be swapped between the two.
    ///
    /// # Errors
    /// [`Error::Limit`], or the kernel's reason.
    pub fn aligned_buffer(&self, offset: usize, len: usize) -> Result<SystemBuffer> {
        let core = self.core();
        let offset = core.misalignment(offset);
        let whole = core.lock().take_whole(core, core.whole_granules(offset, len)?)?;
        Ok(SystemBuffer { space: self.clone(), backing: Backing::Whole(whole), offset, len })
    }
}

impl SystemBuffer {
    /// The number of data bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no data bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How far into its first granule the data starts; `None` for memory that cannot be swapped.
    pub fn alignment(&self) -> Option<usize> {
        matches!(self.backing, Backing::Whole(_)).then_some(self.offset)
    }

    /// The data, through the server's mapping.
    pub fn segments(&self) -> Segments {
        let core = self.space.core();
        match &self.backing {
            Backing::Whole(whole) => {
                segments(core, runs_of(&whole.granules).into_iter(), self.offset, self.len)
            }
            Backing::Chunk(chunk) => {
                SmallVec::from_iter([views::alias(core, chunk.granule, chunk.offset as usize, self.len)])
            }
        }
    }

    /// The granules and the window, when they are whole.
    pub(crate) fn granules_mut(&mut self) -> Option<(&mut [u32], &mut Option<Run>)> {
        match &mut self.backing {
            Backing::Whole(whole) => Some((&mut whole.granules, &mut whole.window)),
            Backing::Chunk(_) => None,
        }
    }

    /// Zeroes all bytes of its first `count` granules but the first `filled` data bytes, before another party sees them.
    pub(crate) fn zero_complete(&self, filled: usize, count: u32) -> usize {
        let Backing::Whole(whole) = &self.backing else { return 0 };
        let core = self.space.core();
        let (granule, end) = (core.granule(), self.offset + filled);
        let mut zeroed = 0;
        for (index, id) in whole.granules.iter().take(count as usize).enumerate() {
            let start = index * granule;
            for (from, to) in [(start, start.max(self.offset)), (end.max(start), start + granule)] {
                let to = to.min(start + granule);
                if from < to {
                    views::alias(core, *id, from - start, to - from).fill(0);
                    zeroed += to - from;
                }
            }
        }
        zeroed
    }

    /// Takes the first `count` granules out, which are about to fill a region, and the window, if that shows just them.
    /// The buffer is left without data, and with the other granules, if there are any.
    pub(crate) fn surrender(
        &mut self,
        core: &Core,
        state: &mut State,
        count: u32,
    ) -> (Vec<u32>, Option<Run>) {
        self.len = 0;
        let Backing::Whole(whole) = &mut self.backing else { unreachable!("chunks never fill regions") };
        assert!(
            count as usize <= whole.granules.len(),
            "a system buffer without memory was to fill a region"
        );
        let rest = whole.granules.split_off(count as usize);
        state.in_use -= count;
        let granules = std::mem::replace(&mut whole.granules, rest);
        if whole.granules.is_empty() {
            return (granules, whole.window.take());
        }
        state.give_up_window(core, &mut whole.window);
        (granules, None)
    }

    /// Fills a surrendered buffer up with newly allocated granules (overlay refill).
    ///
    /// # Errors
    /// As [`Space::aligned_buffer`]; the buffer stays as it is.
    pub fn refill(&mut self, len: usize) -> Result<()> {
        let core = self.space.core();
        let count = core.whole_granules(self.offset, len)?;
        let mut guard = core.lock();
        let state = &mut *guard;
        match &mut self.backing {
            Backing::Whole(whole) if (1..=count).contains(&(whole.granules.len() as u32)) => {
                state.top_up(core, whole, count)?;
            }
            old => {
                let whole = state.take_whole(core, count)?;
                let old = std::mem::replace(old, Backing::Whole(whole));
                state.give(core, old);
            }
        }
        self.len = len;
        Ok(())
    }

    /// Lets go of granules that a pending request uses, which a delivery has brought in from the client: they are freed
    /// when it completes, and fresh ones take their places, since the buffer's owner may store into it next. Where there
    /// are none, the buffer is left without memory, like a surrendered one.
    pub(crate) fn renew_referenced(&mut self) {
        let core = self.space.core();
        let Backing::Whole(whole) = &mut self.backing else { return };
        let mut guard = core.lock();
        let state = &mut *guard;
        state.give_up_window(core, &mut whole.window);
        for id in &mut whole.granules {
            if !state.granules.get(*id).is_referenced() {
                continue;
            }
            let Ok(fresh) = state.take_granules(core, 1) else {
                state.give_whole(core, std::mem::take(whole));
                self.len = 0;
                return;
            };
            state.granules.use_up(fresh[0].start);
            state.granules.release([std::mem::replace(id, fresh[0].start)]);
        }
    }
}

impl Core {
    /// Whole granules for `len` bytes, at least one.
    fn whole_granules(&self, offset: usize, len: usize) -> Result<u32> {
        if len > self.limit() {
            return Err(Error::Limit { asked: len, used: 0, limit: self.limit() });
        }
        Ok(self.granules(offset, len).max(1))
    }
}

impl Drop for SystemBuffer {
    fn drop(&mut self) {
        let core = self.space.core();
        let backing = std::mem::replace(&mut self.backing, Backing::Whole(Whole::default()));
        core.lock().give(core, backing);
    }
}

impl std::fmt::Debug for SystemBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SystemBuffer({} bytes, {:?})", self.len, self.backing)
    }
}

impl State {
    fn take_whole(&mut self, core: &Core, count: u32) -> Result<Whole> {
        self.in_use += count;
        if let Some(whole) = self.pool.whole.get_mut(&count).and_then(Vec::pop) {
            self.pool.pooled -= count;
            return Ok(whole);
        }
        self.new_whole(core, count).inspect_err(|_| self.in_use -= count)
    }

    fn new_whole(&mut self, core: &Core, count: u32) -> Result<Whole> {
        let runs = self.take_granules(core, count)?;
        let granules: Vec<u32> = runs.iter().flat_map(|run| run.numbers()).collect();
        for id in &granules {
            self.granules.use_up(*id);
        }
        // Without a window the buffer works as well: swaps then map page by page.
        let window = if core.kind != GranuleKind::Huge && count >= WINDOWED {
            self.new_window(core, &runs).ok()
        } else {
            None
        };
        Ok(Whole { granules, window })
    }

    /// Maps granules at addresses of their own.
    fn new_window(&mut self, core: &Core, runs: &GranuleRuns) -> Result<Run> {
        let window = self.take_slots(core, runs.iter().map(|run| run.len).sum())?;
        if let Err(error) = self.map(core, window.start, runs) {
            self.give_window(core, window)?;
            return Err(error);
        }
        Ok(window)
    }

    fn give(&mut self, core: &Core, backing: Backing) {
        match backing {
            Backing::Whole(whole) => self.give_whole(core, whole),
            Backing::Chunk(chunk) => self.pool.chunks[chunk.class as usize].push(chunk),
        }
    }

    /// Adds granules in front of those that a buffer still has.
    fn top_up(&mut self, core: &Core, whole: &mut Whole, count: u32) -> Result<()> {
        let missing = count - whole.granules.len() as u32;
        if missing == 0 {
            return Ok(());
        }
        let runs = self.take_granules(core, missing)?;
        self.in_use += missing;
        self.give_up_window(core, &mut whole.window);
        let fresh: Vec<u32> = runs.iter().flat_map(|run| run.numbers()).collect();
        for id in &fresh {
            self.granules.use_up(*id);
        }
        whole.granules.splice(0..0, fresh);
        Ok(())
    }

    fn give_whole(&mut self, core: &Core, whole: Whole) {
        let count = whole.granules.len() as u32;
        if count == 0 {
            return;
        }
        self.in_use -= count;
        let referenced = |id: &u32| self.granules.get(*id).is_referenced();
        if self.pool.pooled + count <= core.pool_limit && !whole.granules.iter().any(referenced) {
            self.pool.pooled += count;
            self.pool.whole.entry(count).or_default().push(whole);
            return;
        }
        self.dissolve(core, whole);
    }

    fn dissolve(&mut self, core: &Core, whole: Whole) {
        if let Some(window) = whole.window {
            // When the kernel cannot unmap, the addresses stay reserved; the granules are free all the same.
            let _ = self.give_window(core, window);
        }
        self.granules.release(whole.granules);
    }

    fn take_chunk(&mut self, core: &Core, class: usize) -> Result<Chunk> {
        if let Some(chunk) = self.pool.chunks[class].pop() {
            return Ok(chunk);
        }
        let granule = self.take_granules(core, 1)?[0].start;
        self.granules.use_up(granule);
        self.pool.cut.push(granule);
        let len = chunk_len(class);
        let chunks = (0..core.granule()).step_by(len);
        self.pool.chunks[class].extend(chunks.rev().map(|offset| Chunk {
            granule,
            offset: offset as u32,
            class: class as u8,
        }));
        Ok(self.pool.chunks[class].pop().expect("a granule holds at least one chunk"))
    }

    /// Gives pooled buffers, and granules all of whose chunks are free, back to the free list.
    pub(crate) fn flush_pool(&mut self, core: &Core) {
        self.pool.pooled = 0;
        for whole in std::mem::take(&mut self.pool.whole).into_values().flatten() {
            self.dissolve(core, whole);
        }
        let mut free = BTreeMap::<u32, usize>::new();
        for chunk in self.pool.chunks.iter().flatten() {
            *free.entry(chunk.granule).or_default() += chunk_len(chunk.class as usize);
        }
        free.retain(|_, bytes| *bytes == core.granule());
        for chunks in &mut self.pool.chunks {
            chunks.retain(|chunk| !free.contains_key(&chunk.granule));
        }
        self.pool.cut.retain(|granule| !free.contains_key(granule));
        self.granules.release(free.into_keys());
    }
}

/// The class of the smallest chunk that holds `len` bytes.
fn chunk_class(len: usize) -> Option<usize> {
    (0..CHUNK_CLASSES).find(|class| len <= chunk_len(*class))
}

fn chunk_len(class: usize) -> usize {
    1 << (SMALLEST_CHUNK as usize + 2 * class)
}

/// A list of granules as runs.
pub(crate) fn runs_of(granules: &[u32]) -> GranuleRuns {
    let mut runs = GranuleRuns::new();
    granules.iter().for_each(|id| push(&mut runs, *id));
    runs
}
