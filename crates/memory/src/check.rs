//! The checker: every granule is in exactly one place and one pool, and every count adds up.
//!
//! Source: thesis §3.2.2. Tests run the checker after each step.

use std::collections::BTreeMap;
use std::fmt;

use smallvec::SmallVec;

use crate::LenderId;
use crate::space::{Space, State};
use crate::tables::granule::{Granule, Place};
use crate::tables::lent_objects::Origin;

/// Where a space's granules are, those of both sizes counted together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// In regions, queued ones included.
    pub regions: u32,
    /// Of these, in emigrant and weak emigrant regions that wait for reuse.
    pub queued: u32,
    /// In system buffers in use.
    pub system: u32,
    /// Of all pools, in system buffers kept for reuse, and in granules cut into chunks.
    pub pooled: u32,
    /// Given up, but referenced by a pending request.
    pub deferred: u32,
    /// On the free lists of all pools.
    pub free: u32,
    /// Granules of stand-ins, and of lent objects whose lender is gone; they wait until the other granules of their objects are free,
    /// too.
    pub retired: u32,
    /// Of all these, granules of lent objects.
    pub lent: u32,
    /// Of all these, granules of objects that stand in for lent ones.
    pub stand_ins: u32,
    /// References by pending inputs and outputs.
    pub references: u32,
    /// Memory objects, lent ones included.
    pub objects: u32,
}

/// What the checker found wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckFailed(pub Vec<String>);

impl fmt::Display for CheckFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the granule tables do not add up: {}", self.0.join("; "))
    }
}

impl std::error::Error for CheckFailed {}

/// Where a granule was found, and the lender whose pool that place belongs to.
type Found = SmallVec<[(&'static str, LenderId); 1]>;

/// Where each granule was found; in the order of `Granules::dense`.
type Places = Vec<Found>;

impl Space {
    /// Verifies that each granule is in exactly one of a region, a system buffer, a pool's buffers, deferral, a free list or
    /// retirement, and belongs to the pool where it is.
    ///
    /// # Errors
    /// Every contradiction found, as a sentence.
    ///
    /// # Cost
    /// Looks at every granule and slot under the lock; for tests.
    pub fn check(&self) -> Result<Usage, CheckFailed> {
        self.core().ensure_own().map_err(|error| CheckFailed(vec![error.to_string()]))?;
        let (mut usage, mut wrong) = (Usage::default(), Vec::new());
        for space in self.each() {
            let state = space.core().lock();
            let found = state.found(&mut wrong);
            usage = usage.and(state.count(&found, &mut wrong));
            state.check_pools(&mut wrong);
            state.check_promises(&mut wrong);
            state.check_lent_objects(&mut wrong);
        }
        if wrong.is_empty() { Ok(usage) } else { Err(CheckFailed(wrong)) }
    }
}

impl State {
    /// Finds each granule that any table or list names.
    fn found(&self, wrong: &mut Vec<String>) -> Places {
        let mut found = vec![Found::new(); self.granules.numbers()];
        let mut enter = |id: u32, place, pool| found[self.granules.dense(id)].push((place, pool));
        for (number, slot) in self.slots.iter() {
            let Some(id) = slot.granule else { continue };
            enter(id, "region", LenderId::OWN);
            if self.granules.get(id).place != (Place::Region { slot: number }) {
                wrong.push(format!("slot {number} shows granule {id}: {:?}", self.granules.get(id)));
            }
        }
        for (lender, stock) in self.granules.stocks.iter() {
            stock.free.numbers().for_each(|id| enter(id, "free list", lender));
        }
        for (lender, pool) in self.pools.iter() {
            pool.granules().for_each(|id| enter(id, "pool", self.granules.stocks.owner(lender)));
        }
        found
    }

    /// Counts the granules by place, and compares the counts with the places found and with the counts on record.
    fn count(&self, found: &Places, wrong: &mut Vec<String>) -> Usage {
        let recorded = self.pools.iter().map(|(_, pool)| pool.in_use()).sum::<u32>() + self.replacing;
        let mut usage = Usage { objects: self.objects.len() as u32, system: recorded, ..Usage::default() };
        let (mut in_use, mut granules) = (0, 0);
        for (id, granule) in self.granules.iter() {
            granules += 1;
            usage.references += granule.inputs + granule.outputs;
            if id >= self.granules.lent_objects.bound() {
                let is_stand_in = self.granules.lent_objects.is_stand_in(id);
                *if is_stand_in { &mut usage.stand_ins } else { &mut usage.lent } += 1;
            }
            let places = found[self.granules.dense(id)].as_slice();
            match usage.of(granule, places, self.granules.stocks.owner(granule.pool), &mut in_use) {
                Some(count) => *count += 1,
                None => wrong.push(format!("granule {id} is found in {places:?}: {granule:?}")),
            }
        }
        for region in self.queues.iter() {
            usage.queued += self.regions.get(region).map_or(0, |region| region.slots.len);
        }
        let mapped: u32 = self.regions.iter().map(|(_, region)| region.slots.len).sum();
        let named = found.iter().filter(|places| !places.is_empty()).count() as u32;
        let named = named + usage.deferred + usage.retired + in_use;
        for (what, count, expected) in [
            ("granules of system buffers in use", in_use, recorded),
            ("deferred granules", usage.deferred, self.granules.deferred()),
            ("granules of regions", usage.regions, mapped),
            ("granules with a place", named, granules),
        ] {
            differ(wrong, what, count, expected);
        }
        usage
    }

    /// Compares each pool's size with the granules that belong to it.
    fn check_pools(&self, wrong: &mut Vec<String>) {
        let mut sizes: BTreeMap<LenderId, u32> = BTreeMap::new();
        for (_, granule) in self.granules.iter().filter(|(_, granule)| granule.place != Place::Retired) {
            *sizes.entry(self.granules.stocks.owner(granule.pool)).or_default() += 1;
        }
        for (lender, stock) in self.granules.stocks.iter() {
            let size = sizes.get(&lender).copied().unwrap_or(0);
            differ(wrong, &format!("granules of the pool of {lender}"), size, stock.size);
        }
    }

    /// Compares the count of promised replacements with the granules that have a promise, and with the free granules.
    fn check_promises(&self, wrong: &mut Vec<String>) {
        let (mut promised, recorded) = (0, self.granules.promised());
        for (id, granule) in self.granules.iter().filter(|(_, granule)| granule.is_promised()) {
            promised += 1;
            if granule.outputs == 0 || !matches!(granule.place, Place::Region { .. }) {
                wrong.push(format!("granule {id} needs no replacement: {granule:?}"));
            }
        }
        differ(wrong, "granules with a promise", promised, recorded);
        let free = self.granules.stocks.own.free.total();
        if free < recorded {
            wrong.push(format!("{free} granules are free, but {recorded} are promised"));
        }
    }

    /// Compares each lent object's count of retired granules with the granules' places, and verifies that its granules
    /// are those of one object.
    fn check_lent_objects(&self, wrong: &mut Vec<String>) {
        let mut leaving = 0;
        for (run, lender, origin, recorded) in self.granules.lent_objects.iter() {
            let is_left = !self.granules.stocks.is_live(lender);
            leaving += u32::from(is_left || origin == Origin::StandIn);
            let retired =
                run.numbers().filter(|id| self.granules.get(*id).place == Place::Retired).count() as u32;
            differ(wrong, &format!("retired granules of those from {} on", run.start), retired, recorded);
            if self.objects.parts(run).collect::<Vec<_>>() != [run] {
                wrong.push(format!("granules {run:?} are not one object's"));
            }
        }
        differ(wrong, "objects whose granules retire", leaving, self.granules.lent_objects.leaving() as u32);
    }
}

impl Usage {
    /// The counts of both.
    fn and(self, other: Self) -> Self {
        Self {
            regions: self.regions + other.regions,
            queued: self.queued + other.queued,
            system: self.system + other.system,
            pooled: self.pooled + other.pooled,
            deferred: self.deferred + other.deferred,
            free: self.free + other.free,
            retired: self.retired + other.retired,
            lent: self.lent + other.lent,
            stand_ins: self.stand_ins + other.stand_ins,
            references: self.references + other.references,
            objects: self.objects + other.objects,
        }
    }

    /// The count for a granule's place, if the granule was found there, in its own pool, and nowhere else.
    fn of<'u>(
        &'u mut self,
        granule: &Granule,
        found: &[(&str, LenderId)],
        pool: LenderId,
        in_use: &'u mut u32,
    ) -> Option<&'u mut u32> {
        let at_home = found.iter().all(|(_, of)| *of == pool);
        let (place, referenced) = (found.first().map(|(place, _)| *place), granule.is_referenced());
        if found.len() > 1 || !at_home {
            return None;
        }
        match (granule.place, place) {
            (Place::Region { .. }, Some("region")) => Some(&mut self.regions),
            (Place::Free, Some("free list")) if !referenced => Some(&mut self.free),
            (Place::System, Some("pool")) => Some(&mut self.pooled),
            (Place::System, None) => Some(in_use),
            (Place::Deferred, None) if referenced => Some(&mut self.deferred),
            (Place::Retired, None) if !referenced => Some(&mut self.retired),
            _ => None,
        }
    }
}

fn differ(wrong: &mut Vec<String>, what: &str, count: u32, expected: u32) {
    if count != expected {
        wrong.push(format!("{count} {what}, but {expected} are on record"));
    }
}
