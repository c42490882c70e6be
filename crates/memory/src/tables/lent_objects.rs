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
use crate::tables::runs::{FreeRuns, Run};
use crate::tables::stock::Stocks;

/// Where the memory of a lender's object comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The lender's.
    Lent,
    /// The space's own, made for this lender alone.
    StandIn,
    /// Frames, whose owner has them registered elsewhere (`frames`).
    Frames,
}

/// One lent object's granules.
#[derive(Debug)]
struct LentObject {
    len: u32,
    lender: LenderId,
    origin: Origin,
    /// Whether its granules retire when they are freed into the space's own pool: its lender is gone, or it is a stand-in.
    is_leaving: bool,
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
    /// How many lent objects have a lender that is gone, or are stand-ins.
    leaving: usize,
    /// How many have frames.
    framed: usize,
}

impl LentObjects {
    /// None yet; numbers for `room` lent granules begin at `bound`.
    pub(crate) fn new(bound: u32, room: u32) -> Self {
        let mut numbers = FreeRuns::default();
        numbers.give(Run { start: bound, len: room });
        Self { bound, objects: BTreeMap::new(), numbers, ended: Vec::new(), leaving: 0, framed: 0 }
    }

    /// The first number of lent granules; lower numbers are the space's own granules'.
    pub(crate) fn bound(&self) -> u32 {
        self.bound
    }

    /// Whether all granules go back to the pools that they belong to, and none retires.
    pub(crate) fn all_stay(&self) -> bool {
        self.leaving == 0
    }

    /// Puts on record that a lender is gone.
    pub(crate) fn leave(&mut self, lender: LenderId) {
        for object in self.objects.values_mut().filter(|object| object.lender == lender) {
            self.leaving += usize::from(!std::mem::replace(&mut object.is_leaving, true));
        }
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

    pub(crate) fn add(&mut self, lender: LenderId, run: Run, origin: Origin) {
        let is_leaving = lender == LenderId::NOBODY || origin == Origin::StandIn;
        self.leaving += usize::from(is_leaving);
        self.framed += usize::from(origin == Origin::Frames);
        self.objects.insert(run.start, LentObject { len: run.len, lender, origin, is_leaving, retired: 0 });
    }

    fn around(&self, id: u32) -> Option<&LentObject> {
        let (start, object) = self.objects.range(..=id).next_back()?;
        (id - start < object.len).then_some(object)
    }

    /// The lender of the fixed pool that a granule is of, if it is of one.
    pub(crate) fn home(&self, stocks: &Stocks, id: u32) -> Option<LenderId> {
        let of = || self.around(id).map(|object| object.lender).filter(|lender| stocks.is_fixed(*lender));
        if stocks.any_fixed() { of() } else { None }
    }

    /// Whether granules of a run are of frames, those of pools that are gone included.
    pub(crate) fn any_framed(&self, run: Run) -> bool {
        if self.framed == 0 {
            return false;
        }
        let in_run = |(start, object): &(&u32, &LentObject)| **start + object.len > run.start;
        let mut here = self.objects.range(..run.end()).rev().take_while(in_run);
        here.any(|(_, object)| object.origin == Origin::Frames)
    }

    /// The lender to whose free list a granule of the pool `pool` goes when nobody holds it any more; none if it
    /// retires.
    pub(crate) fn destination(&self, stocks: &Stocks, id: u32, pool: LenderId) -> Option<LenderId> {
        if let Some(home) = self.home(stocks, id) {
            return Some(home);
        }
        let pool = if stocks.is_fixed(pool) { LenderId::OWN } else { stocks.owner(pool) };
        let retires = || self.around(id).is_some_and(|object| object.is_leaving);
        (pool != LenderId::OWN || !retires()).then_some(pool)
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

    /// Forgets an object that is unmapped; returns whose memory it was.
    pub(crate) fn forget(&mut self, run: Run) -> Option<Origin> {
        let object = self.objects.remove(&run.start);
        self.leaving -= 1;
        self.give_numbers(run);
        let origin = object.map(|object| object.origin);
        self.framed -= usize::from(origin == Some(Origin::Frames));
        origin
    }

    /// The granules of a lender's objects.
    pub(crate) fn of(&self, lender: LenderId) -> Vec<Run> {
        let lent = self.objects.iter().filter(|(_, object)| object.lender == lender);
        lent.map(|(start, object)| Run { start: *start, len: object.len }).collect()
    }

    /// The granules of the objects that stand in for a lender's.
    pub(crate) fn stand_ins(&self, lender: LenderId) -> Vec<Run> {
        let stands_in = |object: &LentObject| object.lender == lender && object.origin == Origin::StandIn;
        let found = self.objects.iter().filter(|(_, object)| stands_in(object));
        found.map(|(start, object)| Run { start: *start, len: object.len }).collect()
    }

    /// Whether a granule is of an object that stands in for a lender's.
    pub(crate) fn is_stand_in(&self, id: u32) -> bool {
        self.around(id).is_some_and(|object| object.origin == Origin::StandIn)
    }

    /// How many granules a lender has lent.
    pub(crate) fn lent_by(&self, lender: LenderId) -> u32 {
        let is_lent = |object: &&LentObject| object.lender == lender && object.origin != Origin::StandIn;
        self.objects.values().filter(is_lent).map(|object| object.len).sum()
    }

    /// The granules of all lent objects.
    pub(crate) fn runs(&self) -> impl Iterator<Item = Run> + '_ {
        self.objects.iter().map(|(start, object)| Run { start: *start, len: object.len })
    }

    /// Each object's granules, lender, origin, and count of granules that have retired.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Run, LenderId, Origin, u32)> + '_ {
        self.objects.iter().map(|(start, object)| {
            (Run { start: *start, len: object.len }, object.lender, object.origin, object.retired)
        })
    }

    /// How many objects are on record whose granules retire.
    pub(crate) fn leaving(&self) -> usize {
        self.leaving
    }
}
