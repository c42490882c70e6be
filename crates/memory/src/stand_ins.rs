//! Stand-ins: memory of the space's own that joins a lender's pool where the pool has too little.
//!
//! Why: a descriptor shows a server the whole of a memory object. If a system buffer for the server came from the space's
//! other memory, the server could read, and for inputs overwrite, whatever else lies in the same object, now or later.
//! How: the space makes an object for the lender alone, and takes it in as if the lender had lent it. A stand-in's granule
//! never joins another pool: when a region or a buffer that got it by page swapping lets go of it, the granule retires, as
//! those of lenders that are gone do. What a pool has beyond what its lender has lent can be given back as soon as it is free.
//! Limits: all stand-ins together are at most as long as the space's limit, and do not count towards the limit on its other
//! memory, as lent memory does not. Each is at least [`STAND_IN_LEN`] long where there is room.
//! Source: thesis §5.2 (lender mechanism). Differs: its pools never run short.

use std::sync::atomic::Ordering;

use genie_sys::Span;

use crate::space::{Core, Space, State};
use crate::tables::granule::{Granules, Place};
use crate::tables::lent_objects::Origin;
use crate::tables::runs::Run;
use crate::{Error, LenderId, Result};

/// Stand-ins are at least this long, so that a run of short requests takes few of them.
const STAND_IN_LEN: usize = 256 << 10;

impl Space {
    /// Makes a system buffer by `allocate`, which allocates it from the lender's pool, in granules of this space's size.
    /// Where the pool has too little memory, the space adds some of its own, which only this lender is ever shown.
    ///
    /// # Errors
    /// As `allocate`; [`Error::Limit`] or the kernel's reason where the space has no memory to add;
    /// [`Error::NoLender`] when the lender is gone.
    ///
    /// # Cost
    /// Where the pool has too little: a memory object is made and mapped, and all of its memory taken.
    pub fn with_stand_ins<T>(&self, lender: LenderId, allocate: impl Fn() -> Result<T>) -> Result<T> {
        loop {
            match allocate() {
                // Another thread may take what was added, so this may have to be done again.
                Err(Error::Lender { asked, .. }) => self.core().stand_in(lender, asked)?,
                result => return result,
            }
        }
    }

    /// Gives back what the lender's pool has beyond what the lender has lent, as far as it is free. Returns how many
    /// granules are still to be given back, when those who use them have let go of them.
    pub fn give_back_stand_ins(&self, lender: LenderId) -> u32 {
        let give_back = |core: &Core| {
            if core.is_own() { core.lock().give_back_stand_ins(core, lender) } else { 0 }
        };
        self.each().map(|space| give_back(space.core())).sum()
    }

    /// Whether these are addresses of aliases.
    pub fn is_alias(&self, span: Span) -> bool {
        span.addr().wrapping_sub(self.aliases_base()) < self.aliases_len()
    }

    /// Whether the server that lends as `lender` may be shown what lies at these addresses, which are of one buffer: they are of
    /// a system buffer of this lender's, or, if `in_place`, of a region, and in no [`Frames`](crate::Frames).
    ///
    /// Cost: the space's lock.
    pub fn may_show(&self, span: Span, lender: LenderId, in_place: bool) -> bool {
        if !self.is_alias(span) || self.is_inherited() {
            return false;
        }
        let offset = span.addr() - self.aliases_base();
        let found = self.each().filter_map(|space| Some((space.core(), space.core().granule_at(offset)?)));
        let Some((core, granule)) = found.last() else { return false };
        let state = core.lock();
        let run = Run { start: granule, len: core.granules(core.misalignment(offset), span.len()) };
        let in_place = in_place && !state.granules.lent_objects.any_framed(run);
        match state.objects.get(granule).map(|_| *state.granules.get(granule)) {
            Some(granule) => match granule.place {
                Place::Region { .. } | Place::Deferred => in_place,
                Place::System => granule.pool == lender,
                Place::Free | Place::Retired => false,
            },
            None => false,
        }
    }
}

impl Core {
    /// Adds an object to the lender's pool in which `asked` bytes are lacking.
    fn stand_in(&self, lender: LenderId, asked: usize) -> Result<()> {
        self.ensure_own()?;
        let whole = |len: usize| len.next_multiple_of(self.granule());
        let add = |len: usize| self.add_stand_in(lender, whole(len));
        add(asked.max(STAND_IN_LEN)).or_else(|error| match error {
            Error::Limit { .. } | Error::Kernel(_) => {
                self.lock().give_back_all(self);
                add(asked)
            }
            error => Err(error),
        })
    }

    fn add_stand_in(&self, lender: LenderId, len: usize) -> Result<()> {
        self.lock().check_lent_object(self, lender, len)?;
        self.count(&self.common.standing_in, len)?;
        let mut added = Err(Error::Limit { asked: len, used: 0, limit: self.limit() });
        for kind in self.kinds() {
            let object = Self::new_object(*kind, len);
            added = object.and_then(|object| self.lock().take_in(self, lender, object, Origin::StandIn));
            if added.is_ok() {
                break;
            }
        }
        added.inspect_err(|_| {
            self.common.standing_in.fetch_sub(len, Ordering::Relaxed);
        })
    }
}

impl State {
    /// As [`Space::give_back_stand_ins`].
    fn give_back_stand_ins(&mut self, core: &Core, lender: LenderId) -> u32 {
        if !self.granules.stocks.is_live(lender) || self.granules.surplus(lender) == 0 {
            return 0;
        }
        self.flush_pool(core, lender, |_| true);
        self.granules.give_back_surplus(lender);
        self.unmap_retired(core);
        self.granules.surplus(lender)
    }

    /// The same for all lenders, since memory is short.
    fn give_back_all(&mut self, core: &Core) {
        for lender in self.pools.lenders().into_iter().filter(|lender| *lender != LenderId::OWN) {
            self.give_back_stand_ins(core, lender);
        }
    }
}

impl Granules {
    /// How many granules a pool has beyond those that its lender has lent.
    fn surplus(&self, lender: LenderId) -> u32 {
        let size = self.stocks.get(lender).map_or(0, |stock| stock.size);
        size.saturating_sub(self.lent_objects.lent_by(lender))
    }

    /// Retires the free granules of stand-ins. The space's own granules that the pool has adopted in exchange for others
    /// of its stand-ins go back to the space's own pool, as far as they are free.
    fn give_back_surplus(&mut self, lender: LenderId) {
        let mut in_use = 0;
        for run in self.lent_objects.stand_ins(lender) {
            for free in self.stocks.of(lender).free.take_within(run) {
                self.send(free, None);
            }
            in_use += run.numbers().filter(|id| self.get(*id).pool == lender).count() as u32;
        }
        let mut left = self.surplus(lender).saturating_sub(in_use);
        let own = Run { start: 0, len: self.lent_objects.bound() };
        for free in self.stocks.of(lender).free.take_within(own) {
            let back = Run { len: free.len.min(left), ..free };
            left -= back.len;
            self.stocks.of(lender).free.give(Run { start: back.end(), len: free.len - back.len });
            self.send(back, Some(LenderId::OWN));
        }
    }
}
