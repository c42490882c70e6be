//! The granule table: for each granule its reference counts, its one place and its pool.
//!
//! Invariants: a granule is in exactly one place; it is free only when nothing references it; one that was given up
//! while referenced is *deferred* until the last reference goes (I/O-deferred deallocation). A granule in a region
//! belongs to the space's own pool. A granule from which a protected output is pending is *promised* a replacement: a free
//! granule that can take its place at once when its owner stores. At least as many of the space's own granules are free as
//! replacements are promised.
//! Limits: granules of the space's own objects are numbered from 0 on, those of lent ones from a bound on, so that
//! reusing numbers of lent objects does not fragment the other numbers.
//! Source: thesis §3.2.1 (page referencing), §3.2.2 (I/O-deferred page deallocation), §5.2 (pools of lenders).

use std::ops::Range;

use smallvec::SmallVec;

use crate::tables::lent_objects::{LentObjects, Origin};
use crate::tables::room::reserve;
use crate::tables::runs::Run;
use crate::tables::stock::Stocks;
use crate::{Direction, LenderId, Result};

/// A granule of one of a space's objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GranuleId(pub(crate) u32);

/// Runs of granules, in the order of the data they hold.
pub(crate) type GranuleRuns = SmallVec<[Run; 2]>;

/// Where a granule is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// On its pool's free list.
    Free,
    /// Mapped at this slot, in a region.
    Region { slot: u32 },
    /// In a system buffer, which is in use or pooled.
    System,
    /// In no region or buffer any more, but referenced by a pending request.
    Deferred,
    /// It belongs to a stand-in, or to an object whose lender is gone, and waits until the whole object can be unmapped.
    Retired,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Granule {
    pub(crate) inputs: u32,
    pub(crate) outputs: u32,
    pub(crate) place: Place,
    /// The lender whose pool it belongs to, as long as that lender exists.
    pub(crate) pool: LenderId,
    /// Whether anybody may have stored into it since it was made.
    used: bool,
    /// Whether a free granule is kept for replacing this one.
    promised: bool,
}

impl Granule {
    fn free(pool: LenderId, used: bool) -> Self {
        Self { inputs: 0, outputs: 0, place: Place::Free, pool, used, promised: false }
    }

    /// Whether a pending request uses it.
    pub(crate) fn is_referenced(&self) -> bool {
        self.inputs > 0 || self.outputs > 0
    }

    /// Whether it was given up, and has no reference any more.
    fn is_idle(&self) -> bool {
        self.place == Place::Deferred && !self.is_referenced()
    }

    fn count(&mut self, direction: Direction) -> &mut u32 {
        match direction {
            Direction::In => &mut self.inputs,
            Direction::Out => &mut self.outputs,
        }
    }

    /// Whether a free granule is kept for replacing it.
    pub(crate) fn is_promised(&self) -> bool {
        self.promised
    }

    /// Whether its owner's store would have to replace it while an output is pending, and no replacement is kept for
    /// that yet.
    pub(crate) fn lacks_promise(&self) -> bool {
        !self.promised && matches!(self.place, Place::Region { .. })
    }
}

/// All granules of a space.
#[derive(Debug)]
pub(crate) struct Granules {
    own: Vec<Granule>,
    lent: Vec<Granule>,
    pub(crate) stocks: Stocks,
    pub(crate) lent_objects: LentObjects,
    deferred: u32,
    /// How many granules are promised a replacement.
    promised: u32,
}

impl Granules {
    /// No granules. Those of the space's own objects will have the first `own` numbers, those of lent ones the next
    /// `lent`.
    pub(crate) fn new(own: u32, lent: u32) -> Self {
        Self {
            own: Vec::new(),
            lent: Vec::new(),
            stocks: Stocks::default(),
            lent_objects: LentObjects::new(own, lent),
            deferred: 0,
            promised: 0,
        }
    }

    /// How many granules the space's own objects have.
    pub(crate) fn own(&self) -> u32 {
        self.own.len() as u32
    }

    /// How many wait for their last reference.
    pub(crate) fn deferred(&self) -> u32 {
        self.deferred
    }

    /// Makes room for granules with these numbers, which are then added without fail.
    pub(crate) fn reserve(&mut self, run: Run) -> Result<()> {
        match run.start < self.lent_objects.bound() {
            true => reserve(&mut self.own, run.end() as usize),
            false => reserve(&mut self.lent, self.lent_objects.index(run.end())),
        }
    }

    /// Adds the granules of a new object of the space's own to its free list.
    pub(crate) fn add_object(&mut self, count: u32) {
        let start = self.own();
        self.own.extend(std::iter::repeat_n(Granule::free(LenderId::OWN, false), count as usize));
        self.stocks.own.size += count;
        self.stocks.own.free.give(Run { start, len: count });
    }

    /// Adds the granules of an object that `lender` has lent, numbered by [`LentObjects::take_numbers`], to its pool.
    pub(crate) fn add_lent_object(&mut self, lender: LenderId, run: Run, origin: Origin) {
        self.enter(lender, run, Granule::free(lender, origin != Origin::StandIn), origin);
        let stock = self.stocks.of(lender);
        stock.size += run.len;
        stock.free.give(run);
    }

    /// Adds the granules of an object for one region alone, numbered as those of lent objects are. They are the caller's; when
    /// they are freed, they retire.
    #[cfg(feature = "allocator")]
    pub(crate) fn add_separate_object(&mut self, run: Run) {
        let granule = Granule { place: Place::System, ..Granule::free(LenderId::OWN, true) };
        self.enter(LenderId::NOBODY, run, granule, Origin::Lent);
        self.stocks.own.size += run.len;
    }

    fn enter(&mut self, lender: LenderId, run: Run, granule: Granule, origin: Origin) {
        let first = self.lent_objects.index(run.start);
        let end = first + run.len as usize;
        if self.lent.len() < end {
            self.lent.resize(end, granule);
        }
        self.lent[first..end].fill(granule);
        self.lent_objects.add(lender, run, origin);
    }

    /// Whether a pending request uses a granule of a run.
    #[cfg(feature = "allocator")]
    pub(crate) fn any_referenced(&self, run: Run) -> bool {
        self.run(run).any(Granule::is_referenced)
    }

    pub(crate) fn get(&self, id: u32) -> &Granule {
        if id < self.lent_objects.bound() {
            &self.own[id as usize]
        } else {
            &self.lent[self.lent_objects.index(id)]
        }
    }

    fn get_mut(&mut self, id: u32) -> &mut Granule {
        if id < self.lent_objects.bound() {
            &mut self.own[id as usize]
        } else {
            &mut self.lent[self.lent_objects.index(id)]
        }
    }

    /// Takes `count` granules off a pool's free list, or none at all: one run where `fit` finds it in a run of free
    /// granules, else as few runs as the list allows.
    pub(crate) fn take(
        &mut self,
        lender: LenderId,
        count: u32,
        fit: impl Fn(Run) -> Option<u32>,
    ) -> Option<GranuleRuns> {
        if self.available(lender) < count {
            return None;
        }
        let free = &mut self.stocks.get_mut(lender)?.free;
        let mut runs = GranuleRuns::new();
        runs.extend(free.take_chosen(count, fit));
        let mut left = if runs.is_empty() { count } else { 0 };
        while left > 0 {
            let run = free.take_up_to(left)?;
            let taken = Run { len: run.len.min(left), ..run };
            free.give(Run { start: taken.end(), len: run.len - taken.len });
            left -= taken.len;
            runs.push(taken);
        }
        for id in runs.iter().flat_map(|run| run.numbers()) {
            self.get_mut(id).place = Place::System;
        }
        Some(runs)
    }

    /// Takes the granules of this run off their fixed pool's free list, if all of them are there.
    pub(crate) fn take_home(&mut self, lender: LenderId, run: Run) -> bool {
        let is_home = self.run(run).all(|granule| granule.place == Place::Free);
        if is_home {
            self.stocks.of(lender).free.take_within(run);
            self.run_mut(run).for_each(|granule| granule.place = Place::System);
        }
        is_home
    }

    /// How many granules of a pool are free for any buffer, and not promised as replacements.
    pub(crate) fn available(&self, lender: LenderId) -> u32 {
        let promised = if lender == LenderId::OWN { self.promised } else { 0 };
        let stock = self.stocks.get(lender).filter(|stock| !stock.is_fixed);
        stock.map_or(0, |stock| stock.free.total().saturating_sub(promised))
    }

    /// How many replacements are promised.
    pub(crate) fn promised(&self) -> u32 {
        self.promised
    }

    /// Ends the promise of a replacement, if there is one. Returns whether there was.
    fn end_promise(&mut self, id: u32) -> bool {
        let promised = std::mem::replace(&mut self.get_mut(id).promised, false);
        self.promised -= u32::from(promised);
        promised
    }

    /// Takes the granule that is kept for replacing `id`, if one is.
    pub(crate) fn take_promised(&mut self, id: u32) -> Option<u32> {
        self.end_promise(id).then(|| self.take(LenderId::OWN, 1, |_| None))?.map(|runs| runs[0].start)
    }

    /// After a lender has left and taken free granules along, breaks as many promises as there are granules missing.
    pub(crate) fn break_promises(&mut self) {
        let broken = self.promised.saturating_sub(self.stocks.own.free.total());
        let promised = self.iter().filter(|(_, granule)| granule.promised).map(|(id, _)| id);
        let chosen: Vec<u32> = promised.take(broken as usize).collect();
        for id in chosen {
            self.end_promise(id);
        }
    }

    /// Moves a granule to a place that is neither the free list nor deferral.
    pub(crate) fn put(&mut self, id: u32, place: Place) {
        self.end_promise(id);
        let granule = self.get_mut(id);
        debug_assert!(
            matches!(granule.place, Place::Region { .. } | Place::System),
            "granule {id} comes from nowhere"
        );
        granule.place = place;
    }

    /// Makes a granule one of `lender`'s pool.
    pub(crate) fn set_pool(&mut self, id: u32, lender: LenderId) {
        let before = std::mem::replace(&mut self.get_mut(id).pool, lender);
        if before != lender {
            self.stocks.of(before).size -= 1;
            self.stocks.of(lender).size += 1;
        }
    }

    /// Swaps the pools that two granules belong to: each pool adopts the other pool's granule, and keeps its size.
    pub(crate) fn swap_pools(&mut self, a: u32, b: u32) {
        let (of_a, of_b) = (self.get(a).pool, self.get(b).pool);
        if of_a != of_b {
            self.get_mut(a).pool = of_b;
            self.get_mut(b).pool = of_a;
        }
    }

    /// Notes that a granule's bytes may no longer be zero; returns whether they were zero before.
    pub(crate) fn use_up(&mut self, id: u32) -> bool {
        !std::mem::replace(&mut self.get_mut(id).used, true)
    }

    /// Gives granules up: each goes back to its pool now, or when its last reference goes.
    pub(crate) fn release(&mut self, ids: impl IntoIterator<Item = u32>) {
        let (mut run, mut to) = (Run { start: 0, len: 0 }, None);
        for id in ids {
            self.end_promise(id);
            if self.get(id).is_referenced() {
                self.get_mut(id).place = Place::Deferred;
                self.deferred += 1;
                continue;
            }
            let next = self.destination(id);
            if run.len > 0 && run.end() == id && next == to {
                run.len += 1;
            } else {
                self.send(std::mem::replace(&mut run, Run { start: id, len: 1 }), to);
                to = next;
            }
        }
        self.send(run, to);
    }

    /// The lender to whose free list a granule goes when nobody holds it any more; none if the granule retires.
    fn destination(&self, id: u32) -> Option<LenderId> {
        let pool = self.get(id).pool;
        if pool == LenderId::OWN && id < self.lent_objects.bound() {
            return Some(pool);
        }
        self.lent_objects.destination(&self.stocks, id, pool)
    }

    /// Whether a granule is of another fixed pool than `lender`'s, in whose buffers it must not stay.
    pub(crate) fn is_strange(&self, id: u32, lender: LenderId) -> bool {
        self.lent_objects.home(&self.stocks, id).is_some_and(|home| home != lender)
    }

    /// Whether all granules go back to the pools that they belong to, and none retires or goes home.
    pub(crate) fn all_stay(&self) -> bool {
        self.lent_objects.all_stay() && !self.stocks.any_fixed()
    }

    /// Whether a granule would go back to the free list of `lender`'s pool.
    pub(crate) fn belongs(&self, id: u32, lender: LenderId) -> bool {
        self.destination(id) == Some(lender)
    }

    /// Whether a buffer from `lender`'s pool with these granules may be kept for reuse.
    pub(crate) fn may_be_kept(&self, ids: &[u32], lender: LenderId) -> bool {
        let all_stay = self.all_stay();
        self.stocks.get(lender).is_some_and(|stock| !stock.is_fixed)
            && ids.iter().all(|id| {
                let granule = self.get(*id);
                let belongs = if all_stay { granule.pool == lender } else { self.belongs(*id, lender) };
                belongs && !granule.is_referenced()
            })
    }

    /// Puts granules that nobody holds on the free list of `to`, or retires them if there is none.
    pub(crate) fn send(&mut self, run: Run, to: Option<LenderId>) {
        let place = if to.is_some() { Place::Free } else { Place::Retired };
        for id in run.numbers() {
            self.set_pool(id, to.unwrap_or(LenderId::OWN));
            self.get_mut(id).place = place;
        }
        if let Some(pool) = to {
            self.stocks.of(pool).free.give(run);
        } else {
            self.stocks.own.size -= run.len;
            self.lent_objects.retire(run);
        }
    }

    /// Adds the pool of a lender that is gone to the space's own. Granules that are left of the lender's own objects
    /// retire instead.
    pub(crate) fn take_over(&mut self, lender: LenderId) {
        let Some(mut stock) = self.stocks.remove(lender) else { return };
        self.lent_objects.leave(lender);
        self.stocks.own.size += stock.size;
        let mut back = stock.free.take_all();
        for run in self.lent_objects.of(lender) {
            back.extend(self.stocks.own.free.take_within(run));
        }
        for id in back.into_iter().flat_map(Run::numbers) {
            self.send(Run { start: id, len: 1 }, self.destination(id));
        }
    }

    /// Takes a deferred granule out of deferral, into its holder's hands.
    pub(crate) fn adopt_deferred(&mut self, id: u32) {
        let granule = self.get_mut(id);
        assert_eq!(granule.place, Place::Deferred, "granule {id} was not given up");
        granule.place = Place::System;
        self.deferred -= 1;
    }

    /// The granules of a run: those that are the space's own, and those that were lent.
    fn run(&self, run: Run) -> impl Iterator<Item = &Granule> {
        let (own, lent) = self.places(run);
        self.own[own].iter().chain(&self.lent[lent])
    }

    fn run_mut(&mut self, run: Run) -> impl Iterator<Item = &mut Granule> {
        let (own, lent) = self.places(run);
        self.own[own].iter_mut().chain(&mut self.lent[lent])
    }

    /// Where a run's granules are in the two tables.
    fn places(&self, run: Run) -> (Range<usize>, Range<usize>) {
        let bound = self.lent_objects.bound();
        let own = run.start.min(bound) as usize..run.end().min(bound) as usize;
        let lent =
            self.lent_objects.index(run.start.max(bound))..self.lent_objects.index(run.end().max(bound));
        // If a run is all lent, or all the space's own, its other part is empty, and it does not matter where that
        // begins.
        (if own.is_empty() { 0..0 } else { own }, if lent.is_empty() { 0..0 } else { lent })
    }

    /// How many granules of a run lack the promise of a replacement; none if an input is pending in one of them.
    pub(crate) fn lacking(&self, run: Run) -> Option<u32> {
        let (mut lacking, mut inputs) = (0, 0);
        for granule in self.run(run) {
            lacking += u32::from(granule.lacks_promise());
            inputs |= granule.inputs;
        }
        (inputs == 0).then_some(lacking)
    }

    /// Promises replacements to the granules of a run that lack them. At least as many granules must be
    /// [available](Granules::available).
    pub(crate) fn promise(&mut self, run: Run) {
        let mut promised = 0;
        for granule in self.run_mut(run) {
            let lacks = granule.lacks_promise();
            granule.promised |= lacks;
            promised += u32::from(lacks);
        }
        self.promised += promised;
    }

    /// Counts one more reference of each granule of a run.
    pub(crate) fn reference(&mut self, run: Run, direction: Direction) {
        self.run_mut(run).for_each(|granule| *granule.count(direction) += 1);
    }

    /// Counts one reference less of each granule of a run; a deferred granule goes back to its pool with its last
    /// reference. Returns whether no granule of the run has a reference of that direction left.
    pub(crate) fn unreference(&mut self, run: Run, direction: Direction) -> bool {
        let (mut none_left, mut idle, mut ended) = (true, false, 0);
        for granule in self.run_mut(run) {
            let count = granule.count(direction);
            *count = count.checked_sub(1).expect("a reference is counted before it is dropped");
            let last = *count == 0;
            none_left &= last;
            let ends = granule.promised && last && direction == Direction::Out;
            granule.promised &= !ends;
            ended += u32::from(ends);
            idle |= granule.is_idle();
        }
        self.promised -= ended;
        for id in run.numbers().filter(|_| idle) {
            if self.get(id).is_idle() {
                self.deferred -= 1;
                self.send(Run { start: id, len: 1 }, self.destination(id));
            }
        }
        none_left
    }

    /// How many numbers granules have had; for [`Granules::dense`].
    pub(crate) fn numbers(&self) -> usize {
        self.own.len() + self.lent.len()
    }

    /// A granule's place in a list without the gap between own and lent numbers.
    pub(crate) fn dense(&self, id: u32) -> usize {
        if id < self.lent_objects.bound() {
            id as usize
        } else {
            self.own.len() + self.lent_objects.index(id)
        }
    }

    /// The granules of all objects, in order of their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Granule)> {
        let lent = self.lent_objects.runs().flat_map(Run::numbers);
        (0..self.own()).chain(lent).map(|id| (id, self.get(id)))
    }
}

/// Granules as runs.
#[inline]
pub(crate) fn runs_of(ids: impl IntoIterator<Item = u32>) -> GranuleRuns {
    let mut runs = GranuleRuns::new();
    for id in ids {
        match runs.last_mut() {
            Some(run) if run.end() == id => run.len += 1,
            _ => runs.push(Run { start: id, len: 1 }),
        }
    }
    runs
}

#[cfg(test)]
mod tests;
