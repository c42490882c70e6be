//! Lenders: the parties whose memory system buffers are made of, and their pools.
//!
//! Why: data that is copied anyway is best copied into memory that its server sees already. That takes one copy, where
//! two processes without common memory need two. Besides, a server in another process then sees only memory that was
//! meant for it.
//! How: a space has a pool of its own and one for each lender. A lender lends whole objects; their granules become
//! system buffers for requests to that lender. By page swapping they change places with a client's granules; each side
//! then *adopts* the other side's granule, so that pools keep their sizes. A region filled by move takes its granules
//! from a pool for good, so they had better come from the space's own pool.
//! Trust: a lender can change its lent memory at any moment as long as its process lives, even after a swap has made that
//! memory a client's. So a lender is removed only when its process can store no more; until then the crate above keeps all
//! memory that the process may touch. A lender that punches holes into its lent memory can make huge pages vanish: see
//! `losses.rs`.
//! Limits: when a lender goes, regions may still hold granules of its objects. Such granules stay mapped until they are
//! freed, and so do the objects that they are of.
//! Source: thesis §5.2.

use std::sync::atomic::{AtomicU32, Ordering};

use genie_sys::Object;
use genie_sys::guard::{Guard, Replaces};

use crate::space::{Core, Space, State};
use crate::tables::lent_objects::Origin;
use crate::{Error, LenderId, ObjectId, Result};

/// The name of the next lender.
static NEXT: AtomicU32 = AtomicU32::new(1);

/// What a lender's pool has, in granules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PoolSize {
    /// Granules of the pool, wherever they are.
    pub granules: u32,
    /// Of these, on its free list.
    pub free: u32,
}

impl Space {
    /// Adds a lender, whose pool is empty.
    pub fn add_lender(&self) -> LenderId {
        let lender = LenderId(NEXT.fetch_add(1, Ordering::Relaxed));
        if self.is_inherited() {
            return lender;
        }
        for space in self.each() {
            let mut state = space.core().lock();
            state.granules.stocks.add(lender);
            state.pools.add(lender);
        }
        lender
    }

    /// Does what [`Space::lend`] says.
    pub(crate) fn take_in_lent(&self, lender: LenderId, object: Object) -> Result<()> {
        let small = self.small().filter(|_| !object.len().is_multiple_of(self.granule()));
        small.unwrap_or(self).core().take_in_lent(lender, object, Origin::Lent)
    }

    /// Whether a lender has taken memory away while this space used it: some bytes are zeros that should not be.
    pub fn is_broken(&self) -> bool {
        self.each().any(|space| space.core().is_broken())
    }

    /// Puts on record that a lender can store into one of the space's objects, and so can take its memory away. The lender's
    /// function from [`Space::on_loss`] is then called for losses of that object, too.
    pub fn entrust(&self, id: ObjectId, lender: LenderId) {
        for core in self.each().map(Self::core).filter(|core| core.is_own()) {
            core.lock().objects.entrust(id, lender);
        }
    }

    /// The size of a lender's pool; `None` when the lender was removed.
    pub fn pool_size(&self, lender: LenderId) -> Option<PoolSize> {
        self.core().ensure_own().ok()?;
        let state = self.core().lock();
        let stock = state.granules.stocks.get(lender)?;
        Some(PoolSize { granules: stock.size, free: stock.free.total() })
    }

    /// Removes a lender whose process can store no more into memory that it has mapped. Granules that its pool has adopted
    /// become the space's own again, and its objects are unmapped as soon as none of their granules is in use; granules of
    /// buffers in use follow when those are dropped.
    ///
    /// A lender that was removed already is left as it is.
    ///
    /// # Panics
    /// When the space itself is to be removed.
    pub fn remove_lender(&self, lender: LenderId) {
        assert_ne!(lender, LenderId::OWN, "a space lends to itself as long as it lives");
        self.each().for_each(|space| space.core().remove_lender(lender));
    }
}

impl Core {
    /// Whether memory of this core's was missing when it was touched.
    pub(crate) fn is_broken(&self) -> bool {
        [&self.guard, &*self.common.guard].into_iter().any(|guard| guard.get().is_some_and(Guard::is_broken))
    }

    /// Sets guards where lent memory is mapped, since its lender may take it away.
    pub(crate) fn guard_lent(&self) -> Result<()> {
        for (guard, arena) in [(&self.guard, &self.windows), (&*self.common.guard, self.aliases())] {
            if guard.get().is_none() {
                // The arena shows the space's own memory, too. Where another thread has just set a guard, this one goes.
                let _ = guard.set(arena.guard(Replaces::Missing)?);
            }
        }
        Ok(())
    }

    /// Takes in an object that is lent to this core's granules.
    pub(crate) fn take_in_lent(&self, lender: LenderId, object: Object, origin: Origin) -> Result<()> {
        self.ensure_own()?;
        if object.kind().size() > self.granule() || !object.len().is_multiple_of(self.granule()) {
            return Err(Error::Kind { lent: object.kind(), own: self.kind });
        }
        self.lock().check_lent_object(self, lender, object.len())?;
        object.allocate()?;
        self.lock().take_in(self, lender, object, origin)
    }

    fn remove_lender(&self, lender: LenderId) {
        let core = self;
        if !core.is_own() {
            return;
        }
        let mut state = core.lock();
        if !state.granules.stocks.is_live(lender) {
            return;
        }
        state.objects.distrust(lender);
        state.let_go(core, lender);
        state.granules.take_over(lender);
        state.pools.forget_if_empty(lender);
        state.unmap_retired(core);
        state.keep_promises(core);
    }
}

impl State {
    /// Gives up whatever is kept for reuse in the lender's pool, and all granules of the lender's objects that are kept
    /// for reuse elsewhere.
    fn let_go(&mut self, core: &Core, lender: LenderId) {
        self.flush_pool(core, lender, |_| true);
        let lent = self.granules.lent_objects.of(lender);
        let is_lent = |id: u32| lent.iter().any(|run| run.numbers().contains(&id));
        for other in self.pools.lenders() {
            self.flush_pool(core, other, is_lent);
            self.flush_shown(core, other, lender);
        }
        if self.is_queued(is_lent) {
            self.flush_queues(core);
        }
    }
}
