//! Losses: memory that a peer has taken away from a space.
//!
//! Why: a peer that may store into an object may also punch holes into it, and use up the huge pages that this frees. A
//! program that then touches a hole finds zeros, which a guard has mapped; nobody may take these zeros for data.
//! How: guards count how often memory was missing when it was touched. A thread that begins or ends a request looks at the
//! count. Where it has grown, the thread puts on record the granules in whose place a guard's zeros are mapped. Once the
//! lock is free again, it calls the functions that [`Space::on_loss`] has set for the peers that could have taken the memory
//! away. A request that uses a granule on record fails.
//! Invariants: a granule stays on record as long as its object exists: nothing that is read or stored there can be relied
//! on.
//! Trust: where the kernel has memory for a hole, as it always has with small pages, the hole reads as zeros and no guard
//! notices it. With this a peer can do no more than by storing zeros, which it may do as long as it lends. A peer also goes
//! unnoticed if it takes memory away and gives it back between a client's touch and the look at the count, unless the zeros
//! are still mapped.
//! Limits: granules on record are lost to the space if they are its own. A loss is noticed only where somebody has touched
//! the memory, and only with the next request.
//! Source: none in the thesis, whose kernel maps and unmaps for all.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use genie_sys::{guard, inspect};

use crate::space::{Core, Space, State};
use crate::tables::stock::Tell;
use crate::{Error, LenderId, Result};

impl Space {
    /// Has `tell` called when memory was taken away that this lender had lent, or was [entrusted with](Space::entrust),
    /// until the lender is removed. The thread that notices the loss calls `tell` and goes on when it returns, so `tell` had
    /// better not wait.
    pub fn on_loss(&self, lender: LenderId, tell: impl Fn() + Send + Sync + 'static) {
        if self.is_inherited() {
            return;
        }
        let tell: Arc<dyn Fn() + Send + Sync> = Arc::new(tell);
        for space in self.each() {
            if let Some(stock) = space.core().lock().granules.stocks.lender(lender) {
                stock.on_loss = Some(Tell(Arc::clone(&tell)));
            }
        }
    }

    /// Whether the contents of any of the `len` bytes at `addr` were lost, as far as is known. Foreign memory is never lost.
    ///
    /// # Errors
    /// [`Error::Lost`]: they were.
    ///
    /// # Cost
    /// A load or two while nothing is lost; else the space's lock.
    pub fn ensure_kept(&self, addr: usize, len: usize) -> Result<()> {
        let core = self.at(addr).core();
        let Some(slots) = core.may_have_lost().then(|| core.slots_of(addr, len)).flatten() else {
            return Ok(());
        };
        let state = core.lock();
        let is_lost = |slot: u32| {
            let granule = state.slots.get(slot).granule;
            granule.is_some_and(|granule| state.lost.contains(&granule))
        };
        if slots.numbers().any(is_lost) { Err(Error::Lost) } else { Ok(()) }
    }

    /// Whether the space has lost memory; what was read meanwhile may be zeros.
    ///
    /// # Cost
    /// A load as long as nobody has taken memory away from this process.
    #[inline]
    pub fn has_losses(&self) -> bool {
        // Only what a guard replaces is ever lost.
        guard::breaks() != 0 && self.each().any(|space| space.core().may_have_lost())
    }
}

impl Core {
    /// Whether none of these granules was lost.
    #[inline]
    pub(crate) fn ensure_granules(&self, granules: impl Iterator<Item = u32>) -> Result<()> {
        if self.may_have_lost() { self.look_for(granules) } else { Ok(()) }
    }

    #[cold]
    fn look_for(&self, mut granules: impl Iterator<Item = u32>) -> Result<()> {
        let state = self.lock();
        match granules.any(|granule| state.lost.contains(&granule)) {
            true => Err(Error::Lost),
            false => Ok(()),
        }
    }

    /// Puts all losses so far on record, and says whether any loss is on record. The caller must not hold the lock.
    #[inline]
    fn may_have_lost(&self) -> bool {
        let missing = guard::breaks();
        if missing != self.missing_seen.load(Ordering::Acquire) {
            self.look_for_losses(missing);
        }
        self.has_losses.load(Ordering::Acquire)
    }

    /// Puts on record the granules in whose place a guard's zeros are mapped, and tells those concerned.
    #[cold]
    fn look_for_losses(&self, missing: u32) {
        if !self.is_own() {
            return;
        }
        let told = match self.is_broken() {
            true => self.lock().record_losses(self),
            false => Vec::new(),
        };
        // Stored after the losses are on record: a thread that sees this count need not look itself.
        self.missing_seen.store(missing, Ordering::Release);
        told.iter().for_each(|tell| tell());
    }
}

impl State {
    /// Puts the lost granules on record; returns the functions to call.
    fn record_losses(&mut self, core: &Core) -> Vec<Arc<dyn Fn() + Send + Sync>> {
        // While the space's lock is held, nobody but a guard changes mappings. Where /proc cannot be read, all memory is
        // taken for lost.
        let zeros = inspect::anonymous_mappings().ok();
        let is_zeros = |addr| zeros.as_ref().is_none_or(|zeros| is_in(zeros, addr));
        let mut blamed = BTreeSet::new();
        for (entry, granule) in self.objects.granules() {
            let alias = core.aliases().base() + core.alias_offset(granule);
            if is_zeros(alias) && self.lost.insert(granule) {
                blamed.extend(entry.could_have_taken_it());
            }
        }
        for slot in self.slots.used() {
            let Some(granule) = self.slots.get(slot).granule else { continue };
            if is_zeros(core.slot_addr(slot)) && self.lost.insert(granule) {
                blamed.extend(
                    self.objects.get(granule).into_iter().flat_map(|entry| entry.could_have_taken_it()),
                );
            }
        }
        core.has_losses.store(!self.lost.is_empty(), Ordering::Release);
        let tell = |lender| Some(Arc::clone(&self.granules.stocks.get(lender)?.on_loss.as_ref()?.0));
        blamed.into_iter().filter_map(tell).collect()
    }
}

fn is_in(ranges: &[Range<usize>], addr: usize) -> bool {
    let after = ranges.partition_point(|range| range.start <= addr);
    after > 0 && ranges[after - 1].contains(&addr)
}
