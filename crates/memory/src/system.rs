//! System buffers: the memory between client and server when data is not passed in place.
//!
//! How: `pool` keeps them. Each comes from the pool of a lender, the space itself or another party, and goes back there.
//! Source: thesis §3.1, §7.4.2; server-aligned buffering §4.1; lenders §5.2.

use std::ops::Range;
use std::sync::Arc;

use crate::segments::{Segments, part};
use crate::space::{Core, Space, State};
use crate::tables::chunks::{Chunk, chunk_class, chunk_len};
use crate::tables::granule::runs_of;
use crate::tables::pools::Whole;
use crate::tables::runs::Run;
use crate::{DataMut, Error, LenderId, Recycling, Result, aliases};

/// What a system buffer has taken of a pool.
#[derive(Debug)]
enum Taken {
    Whole(Whole),
    /// A chunk, and the server that is shown the chunk's granule.
    Chunk(Chunk, LenderId),
    /// A part of memory that several buffers have, and where it begins there.
    Part(Arc<SystemBuffer>, usize),
}

/// Memory for `len` bytes that no client sees; dropping it deallocates it.
#[derive(Debug)]
pub struct SystemBuffer {
    space: Space,
    lender: LenderId,
    taken: Taken,
    offset: usize,
    len: usize,
}

impl Space {
    /// Allocates a system buffer for data that will be copied: the cheapest that holds `len` bytes.
    ///
    /// # Errors
    /// [`Error::Limit`], or the kernel's reason.
    pub fn system_buffer(&self, len: usize) -> Result<SystemBuffer> {
        self.system_buffer_shown(LenderId::OWN, LenderId::OWN, len)
    }

    /// As [`Space::system_buffer`], from a lender's pool, for data that `server` is shown. The server is named by the
    /// pool that it lends.
    ///
    /// Shape: short data is in a part of a granule, beside other data. Where the server is not the lender, the granule was
    /// zeroed, and all other data in it is shown to the same server. Beside the data, the part itself may hold data of that
    /// server's earlier requests, until [`SystemBuffer::zero_around`] is called.
    ///
    /// # Errors
    /// [`Error::Lender`] when the lender's pool is exhausted, which [`Space::on_shortage`] reports, or the lender is
    /// gone; for the space's own pool, [`Error::Limit`] or the kernel's reason.
    pub fn system_buffer_shown(
        &self,
        lender: LenderId,
        server: LenderId,
        len: usize,
    ) -> Result<SystemBuffer> {
        let here = |space: &Self| space.system_buffer_here(lender, server, len);
        let tell = |space: &Self, error| space.core().tell_shortage(lender, error);
        match (here(self), self.small()) {
            (Err(error @ (Error::Limit { .. } | Error::Kernel(_) | Error::Lender { .. })), Some(small)) => {
                // It is a shortage where neither size is left: of the size that buffers of this length have.
                let is_long = self.for_len(len).has_tables_of(self);
                here(small)
                    .map_err(|of_small| if is_long { tell(self, error) } else { tell(small, of_small) })
            }
            (result, _) => result.map_err(|error| tell(self, error)),
        }
    }

    fn system_buffer_here(&self, lender: LenderId, server: LenderId, len: usize) -> Result<SystemBuffer> {
        let core = self.core();
        core.ensure_own()?;
        let class = chunk_class(len).filter(|class| chunk_len(*class) < core.granule());
        let Some(class) = class else { return self.aligned_buffer_here(lender, 0, len) };
        let chunk = core.lock().take_chunk(core, lender, server, class)?;
        let taken = Taken::Chunk(chunk, server);
        Ok(SystemBuffer { space: self.clone(), lender, taken, offset: 0, len })
    }

    /// Allocates a system buffer of whole granules whose data starts `offset` bytes into the first one, aligned with a
    /// client's buffer, so that pages can be swapped between the two.
    ///
    /// # Errors
    /// [`Error::Limit`], or the kernel's reason.
    pub fn aligned_buffer(&self, offset: usize, len: usize) -> Result<SystemBuffer> {
        self.by_len(len, |space| space.aligned_buffer_from(LenderId::OWN, offset, len))
    }

    /// As [`Space::aligned_buffer`], from a lender's pool. No other data is in its granules.
    ///
    /// # Errors
    /// As [`Space::system_buffer_shown`].
    pub fn aligned_buffer_from(&self, lender: LenderId, offset: usize, len: usize) -> Result<SystemBuffer> {
        let buffer = self.aligned_buffer_here(lender, offset, len);
        buffer.map_err(|error| self.core().tell_shortage(lender, error))
    }

    fn aligned_buffer_here(&self, lender: LenderId, offset: usize, len: usize) -> Result<SystemBuffer> {
        let core = self.core();
        core.ensure_own()?;
        let offset = core.misalignment(offset);
        let count = core.whole_granules(lender, offset, len)?;
        let whole = core.lock().take_whole(core, lender, count, len)?;
        Ok(SystemBuffer { space: self.clone(), lender, taken: Taken::Whole(whole), offset, len })
    }

    /// Sets which system buffer kept for reuse is handed out next, by length, for all pools.
    pub fn set_recycling(&self, recycling: Recycling) {
        if self.is_inherited() {
            return;
        }
        self.each().for_each(|space| space.core().lock().recycling = recycling);
    }
}

impl SystemBuffer {
    /// A buffer that begins where its granules do.
    pub(crate) fn of_whole(space: &Space, lender: LenderId, whole: Whole, len: usize) -> Self {
        Self { space: space.clone(), lender, taken: Taken::Whole(whole), offset: 0, len }
    }

    /// A buffer that is a part of `all`, which cannot be swapped.
    pub(crate) fn part_of(all: &Arc<Self>, from: usize, len: usize) -> Self {
        let taken = Taken::Part(Arc::clone(all), from);
        Self { space: all.space.clone(), lender: all.lender, taken, offset: 0, len }
    }

    /// Whether none of the granules was lost, as far as is known.
    ///
    /// # Errors
    /// [`Error::Lost`].
    ///
    /// # Cost
    /// As [`Space::ensure_kept`].
    #[inline]
    pub fn ensure_kept(&self) -> Result<()> {
        let core = self.space.core();
        match &self.taken {
            Taken::Whole(whole) => core.ensure_granules(whole.granules.iter().copied()),
            Taken::Chunk(chunk, _) => core.ensure_granules(std::iter::once(chunk.granule)),
            Taken::Part(all, _) => all.ensure_kept(),
        }
    }

    /// The number of data bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no data bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whose pool the buffer is from.
    pub fn lender(&self) -> LenderId {
        self.lender
    }

    /// The space that the buffer is of.
    pub fn space(&self) -> &Space {
        &self.space
    }

    /// How far into its first granule the data starts; `None` for memory that cannot be swapped.
    pub fn alignment(&self) -> Option<usize> {
        matches!(self.taken, Taken::Whole(_)).then_some(self.offset)
    }

    /// Where the data is, in the server's mapping.
    pub fn segments(&self) -> Segments {
        let core = self.space.core();
        let one = |granule, offset| aliases::one(aliases::alias(core, granule, offset, self.len));
        match &self.taken {
            Taken::Whole(whole) => match whole.granules[..] {
                [granule] if self.len > 0 => one(granule, self.offset),
                _ => aliases::segments(
                    core,
                    runs_of(whole.granules.iter().copied()).into_iter(),
                    self.offset,
                    self.len,
                ),
            },
            Taken::Chunk(chunk, _) => one(chunk.granule, chunk.offset as usize),
            Taken::Part(all, from) => part(&all.segments(), *from..*from + self.len),
        }
    }

    /// Makes sure that nobody else is shown the memory: returns false if another process was. A mapping that the buffer has besides its
    /// alias, for swaps, ends.
    pub(crate) fn conceal(&mut self) -> bool {
        let space = self.space.clone();
        let Some((granules, window)) = self.granules_mut() else { return false };
        let core = space.core();
        if !core.is_own() {
            return false;
        }
        let mut state = core.lock();
        let is_concealed =
            runs_of(granules.iter().copied()).into_iter().all(|run| state.objects.conceal(run));
        if is_concealed {
            state.give_up_window(core, window);
        }
        is_concealed
    }

    /// Gives the memory of whole granules back to the kernel: they hold zeros from now on.
    pub(crate) fn discard(&self) {
        let core = self.space.core();
        if let Taken::Whole(whole) = &self.taken
            && core.is_own()
        {
            core.lock().discard(core, runs_of(whole.granules.iter().copied()));
        }
    }

    /// The granules and the window, when they are whole.
    pub(crate) fn granules_mut(&mut self) -> Option<(&mut [u32], &mut Option<Run>)> {
        match &mut self.taken {
            Taken::Whole(whole) => Some((&mut whole.granules, &mut whole.window)),
            Taken::Chunk(..) | Taken::Part(..) => None,
        }
    }

    /// Zeroes all bytes of the buffer's granules (of a part of one: the part's bytes) but the data bytes `filled`, before a
    /// party that did not lend them sees them; returns how many bytes were zeroed.
    ///
    /// # Panics
    /// When there are fewer data bytes.
    pub fn zero_around(&self, filled: Range<usize>) -> usize {
        match &self.taken {
            Taken::Whole(whole) => self.zero_granules_around(filled, whole.granules.len() as u32),
            Taken::Chunk(chunk, _) => {
                self.check_filled(&filled);
                let all = aliases::part(self.space.core(), chunk.granule, chunk.offset as usize, chunk.len());
                zero_outside(&all, filled)
            }
            Taken::Part(..) => {
                self.check_filled(&filled);
                zero_outside(&self.data(), filled)
            }
        }
    }

    /// As [`SystemBuffer::zero_around`], in the buffer's first `count` granules, which hold the filled data.
    pub(crate) fn zero_granules_around(&self, filled: Range<usize>, count: u32) -> usize {
        self.check_filled(&filled);
        let Taken::Whole(whole) = &self.taken else { return 0 };
        let core = self.space.core();
        let granule = core.granule();
        let filled = self.offset + filled.start..self.offset + filled.end;
        let within =
            |at: usize, index: usize| at.clamp(index * granule, (index + 1) * granule) - index * granule;
        let granules = whole.granules.iter().take(count as usize).enumerate();
        granules
            .map(|(index, id)| {
                zero_outside(
                    &aliases::granule(core, *id),
                    within(filled.start, index)..within(filled.end, index),
                )
            })
            .sum()
    }

    /// The granules of one space mean nothing in the tables of another.
    #[track_caller]
    pub(crate) fn assert_of(&self, space: &Space) {
        assert!(self.space.is(space), "a system buffer of another space was to be delivered");
    }

    fn check_filled(&self, filled: &Range<usize>) {
        assert!(
            filled.start <= filled.end && filled.end <= self.len,
            "bytes {filled:?} of a system buffer of {}",
            self.len
        );
    }

    /// Takes out the first `count` granules, which are about to fill a region, and the window, if it shows exactly
    /// these. The buffer keeps its other granules, if it has any, and no data.
    pub(crate) fn surrender(
        &mut self,
        core: &Core,
        state: &mut State,
        count: u32,
    ) -> (Vec<u32>, Option<Run>) {
        self.len = 0;
        let Taken::Whole(whole) = &mut self.taken else {
            unreachable!("parts of granules never fill regions")
        };
        assert!(
            count as usize <= whole.granules.len(),
            "a system buffer without memory was to fill a region"
        );
        let rest = whole.granules.split_off(count as usize);
        state.pools.of(self.lender).resize(count + rest.len() as u32, rest.len() as u32);
        let granules = std::mem::replace(&mut whole.granules, rest);
        if whole.granules.is_empty() {
            return (granules, whole.window.take());
        }
        state.give_up_window(core, &mut whole.window);
        (granules, None)
    }

    /// Fills a surrendered buffer up with newly allocated granules of its lender's pool (overlay refill).
    ///
    /// # Errors
    /// As [`Space::aligned_buffer_from`]; the buffer stays as it is.
    pub fn refill(&mut self, len: usize) -> Result<()> {
        let core = self.space.core();
        core.ensure_own()?;
        let count = core.whole_granules(self.lender, self.offset, len)?;
        let mut guard = core.lock();
        let state = &mut *guard;
        match &mut self.taken {
            Taken::Whole(whole) if (1..=count).contains(&(whole.granules.len() as u32)) => {
                state.top_up(core, self.lender, whole, count)?;
            }
            old => {
                let whole = state.take_whole(core, self.lender, count, len)?;
                let old = std::mem::replace(old, Taken::Whole(whole));
                state.give(core, self.lender, old);
            }
        }
        self.len = len;
        Ok(())
    }
}

impl State {
    /// Makes sure that there are fresh granules for [`State::renew`], should the granules at `slots` come into a system buffer from
    /// `lender`'s pool. The replacement that is promised for a granule is for that, too: with the swap, the promise ends.
    pub(crate) fn can_renew(&mut self, core: &Core, lender: LenderId, slots: Run) -> bool {
        let lacks = |id: u32| {
            let granule = self.granules.get(id);
            !granule.is_promised() && (granule.is_referenced() || self.granules.is_strange(id, lender))
        };
        let lacking = self.slots.run(slots).filter(|slot| slot.granule.is_some_and(lacks)).count();
        self.make_available(core, lacking as u32).is_ok()
    }

    /// Lets go of those of a system buffer's granules that a delivery has brought in from the client and that a pending request
    /// uses, or that are of another pool that is fixed. They are freed now, or when that request completes. Fresh granules take their
    /// places, since the buffer's owner may store into the buffer next.
    pub(crate) fn renew(
        &mut self,
        core: &Core,
        lender: LenderId,
        window: &mut Option<Run>,
        granules: &mut [u32],
    ) {
        for id in granules {
            if self.granules.get(*id).is_referenced() || self.granules.is_strange(*id, lender) {
                self.give_up_window(core, window);
                let fresh = self.replacement(core, lender, *id).expect("made available before the swap");
                self.granules.use_up(fresh);
                self.release(core, [std::mem::replace(id, fresh)]);
            }
        }
    }

    /// Takes a granule in place of `old`: one of the lender's, unless `old` does not come back to that pool, or one of the space's
    /// own, which the lender's pool then adopts for `old`.
    fn replacement(&mut self, core: &Core, lender: LenderId, old: u32) -> Result<u32> {
        if !self.granules.is_strange(old, lender)
            && let Ok(runs) = self.take_granules(core, lender, 1)
        {
            return Ok(runs[0].start);
        }
        let fresh = self.take_granules(core, LenderId::OWN, 1)?[0].start;
        self.granules.swap_pools(fresh, old);
        Ok(fresh)
    }

    fn give(&mut self, core: &Core, lender: LenderId, taken: Taken) {
        match taken {
            Taken::Whole(whole) => self.give_whole(core, lender, whole),
            Taken::Chunk(chunk, server) => self.give_chunk(core, lender, server, chunk),
            Taken::Part(..) => unreachable!("parts are dropped without the lock, which their memory takes"),
        }
    }
}

impl Core {
    /// Whole granules for `len` bytes, at least one.
    fn whole_granules(&self, lender: LenderId, offset: usize, len: usize) -> Result<u32> {
        if lender == LenderId::OWN && len > self.limit() {
            return Err(Error::Limit { asked: len, used: 0, limit: self.limit() });
        }
        if len > self.aliases().len() {
            return Err(Error::Lender { asked: len, free: 0 });
        }
        Ok(self.granules(offset, len).max(1))
    }
}

impl Drop for SystemBuffer {
    fn drop(&mut self) {
        let core = self.space.core();
        if !core.is_own() {
            return;
        }
        let taken = std::mem::replace(&mut self.taken, Taken::Whole(Whole::default()));
        match taken {
            // Where it was the last one, this drops what the parts were of.
            Taken::Part(..) => {}
            taken => core.lock().give(core, self.lender, taken),
        }
    }
}

/// Zeroes the bytes outside `kept`; returns how many.
fn zero_outside(data: &DataMut<'_>, kept: Range<usize>) -> usize {
    for range in [0..kept.start, kept.end..data.len()] {
        data.part(range).fill(0);
    }
    data.len() - kept.len()
}
