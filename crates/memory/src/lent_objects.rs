//! Lent objects: which granules are of objects that a lender has lent, and what becomes of them when their lender is
//! gone.
//!
//! How: granules of an object whose lender is gone are not handed out again: each *retires* when it is freed. When all
//! granules of the object have retired, the object is unmapped, and its numbers are used for the next object. So a
//! program that meets thousands of servers needs addresses and memory only for those that it uses at the time.
//! Limits: numbers for lent granules are a range of their own; when it is used up, nothing more can be lent. An object
//! stays as long as a region or another lender's pool has one of its granules.
//! Source: thesis §5.2 (page swapping directly between client and lender).

use std::collections::BTreeMap;

use crate::LenderId;
use crate::runs::{FreeRuns, Run};
use crate::stock::Stocks;

/// One lent object's granules.
#[derive(Debug)]
struct LentObject {
    len: u32,
    lender: LenderId,
    /// How many have retired.
    retired: u32,
}

/// All lent objects' granules.
#[derive(Debug)]
pub(crate) struct LentObjects {
    bound: u32,
    /// By first granule.
    objects: BTreeMap<u32, LentObject>,
    numbers: FreeRuns,
    /// First granules of lent objects that have retired wholly.
    ended: Vec<u32>,
    /// How many lent objects have a lender that is gone.
    leftovers: usize,
}

impl LentObjects {
    /// None yet; numbers for `room` lent granules begin at `bound`.
    pub(crate) fn new(bound: u32, room: u32) -> Self {
        let mut numbers = FreeRuns::default();
        numbers.give(Run { start: bound, len: room });
        Self { bound, objects: BTreeMap::new(), numbers, ended: Vec::new(), leftovers: 0 }
    }

    /// The first number of lent granules; lower numbers are the space's own granules'.
    pub(crate) fn bound(&self) -> u32 {
        self.bound
    }

    /// Whether no object is left whose lender is gone.
    pub(crate) fn all_have_lenders(&self) -> bool {
        self.leftovers == 0
    }

    /// Puts on record that a lender is gone.
    pub(crate) fn leave(&mut self, lender: LenderId) {
        self.leftovers += self.of(lender).len();
    }

    /// A granule's index among the lent granules.
    pub(crate) fn index(&self, id: u32) -> usize {
        (id - self.bound) as usize
    }

    /// How many more granules can be lent.
    pub(crate) fn room(&self) -> u32 {
        self.numbers.total()
    }

    /// Takes numbers for an object of `len` granules.
    pub(crate) fn take_numbers(&mut self, len: u32) -> Option<Run> {
        self.numbers.take(len, 1)
    }

    /// Gives numbers back that no granule has any more.
    pub(crate) fn give_numbers(&mut self, run: Run) {
        self.numbers.give(run);
    }

    pub(crate) fn add(&mut self, lender: LenderId, run: Run) {
        self.leftovers += usize::from(lender == LenderId::NOBODY);
        self.objects.insert(run.start, LentObject { len: run.len, lender, retired: 0 });
    }

    fn around(&self, id: u32) -> Option<&LentObject> {
        let (start, object) = self.objects.range(..=id).next_back()?;
        (id - start < object.len).then_some(object)
    }

    /// The lender to whose free list a granule of the pool `pool` goes when nobody holds it any more; none if it
    /// retires.
    pub(crate) fn destination(&self, stocks: &Stocks, id: u32, pool: LenderId) -> Option<LenderId> {
        let pool = stocks.owner(pool);
        let is_left = || self.around(id).is_some_and(|object| !stocks.is_live(object.lender));
        (pool != LenderId::OWN || !is_left()).then_some(pool)
    }

    /// Retires granules of one pool. They may be of one object or of several.
    pub(crate) fn retire(&mut self, run: Run) {
        let mut at = run.start;
        while at < run.end() {
            let found = self.objects.range_mut(..=at).next_back();
            let (start, object) = found.expect("a retired granule is of a lent object");
            let end = run.end().min(start + object.len);
            object.retired += end - at;
            if object.retired == object.len {
                self.ended.push(*start);
            }
            at = end;
        }
    }

    /// Takes one object that has retired wholly, to be unmapped and then [forgotten](LentObjects::forget).
    pub(crate) fn take_ended(&mut self) -> Option<Run> {
        let start = self.ended.pop()?;
        Some(Run { start, len: self.objects[&start].len })
    }

    /// Puts an object back that could not be unmapped, to be [taken](LentObjects::take_ended) again later.
    pub(crate) fn put_back(&mut self, object: Run) {
        self.ended.push(object.start);
    }

    /// Forgets an object that is unmapped.
    pub(crate) fn forget(&mut self, run: Run) {
        self.objects.remove(&run.start);
        self.leftovers -= 1;
        self.give_numbers(run);
    }

    /// The granules of a lender's objects.
    pub(crate) fn of(&self, lender: LenderId) -> Vec<Run> {
        let lent = self.objects.iter().filter(|(_, object)| object.lender == lender);
        lent.map(|(start, object)| Run { start: *start, len: object.len }).collect()
    }

    /// The granules of all lent objects.
    pub(crate) fn runs(&self) -> impl Iterator<Item = Run> + '_ {
        self.objects.iter().map(|(start, object)| Run { start: *start, len: object.len })
    }

    /// Each object's granules, lender, and count of granules that have retired.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Run, LenderId, u32)> + '_ {
        self.objects
            .iter()
            .map(|(start, object)| (Run { start: *start, len: object.len }, object.lender, object.retired))
    }

    /// How many objects are on record as left by lenders that are gone.
    pub(crate) fn leftovers(&self) -> usize {
        self.leftovers
    }
}
