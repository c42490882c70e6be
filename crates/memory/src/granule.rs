//! The granule table: for each granule its reference counts and its one place.
//!
//! Invariants: a granule is in exactly one place; it is free only when nothing references it; one that was given up
//! while referenced is *deferred* until the last reference goes (I/O-deferred deallocation).
//! Source: thesis §3.2.1 (page referencing), §3.2.2 (I/O-deferred page deallocation).

use smallvec::SmallVec;

use crate::Direction;
use crate::runs::{FreeRuns, Run};

/// A granule of one of a space's objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GranuleId(pub(crate) u32);

/// Runs of granules, in the order of the data they hold.
pub(crate) type GranuleRuns = SmallVec<[Run; 2]>;

/// Where a granule is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// On the free list.
    Free,
    /// Mapped at this slot, in a region.
    Region { slot: u32 },
    /// In a system buffer, be it in use or pooled.
    System,
    /// In no region or buffer any more, but referenced by a pending request.
    Deferred,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Granule {
    pub(crate) inputs: u32,
    pub(crate) outputs: u32,
    pub(crate) place: Place,
    /// The object that holds it.
    object: u32,
    /// Whether anybody may have stored into it since it was made.
    used: bool,
}

impl Granule {
    /// Whether a pending request uses it.
    pub(crate) fn is_referenced(&self) -> bool {
        self.inputs > 0 || self.outputs > 0
    }
}

/// All granules of a space.
#[derive(Debug, Default)]
pub(crate) struct Granules {
    table: Vec<Granule>,
    free: FreeRuns,
    objects: u32,
    deferred: u32,
}

impl Granules {
    /// How many granules there are.
    pub(crate) fn len(&self) -> u32 {
        self.table.len() as u32
    }

    /// How many are on the free list.
    pub(crate) fn free(&self) -> u32 {
        self.free.total()
    }

    /// How many wait for their last reference.
    pub(crate) fn deferred(&self) -> u32 {
        self.deferred
    }

    /// Adds the granules of a new object to the free list.
    pub(crate) fn add_object(&mut self, count: u32) {
        let granule =
            Granule { inputs: 0, outputs: 0, place: Place::Free, object: self.objects, used: false };
        let start = self.len();
        self.table.extend(std::iter::repeat_n(granule, count as usize));
        self.objects += 1;
        self.free.give(Run { start, len: count });
    }

    pub(crate) fn get(&self, id: u32) -> &Granule {
        &self.table[id as usize]
    }

    /// Takes `count` granules off the free list, in as few runs as it allows, or none; `home` says where each goes.
    pub(crate) fn take(&mut self, count: u32) -> Option<GranuleRuns> {
        if self.free.total() < count {
            return None;
        }
        let mut runs = GranuleRuns::new();
        let mut left = count;
        while left > 0 {
            let run = self.free.take_up_to(left)?;
            let taken = Run { len: run.len.min(left), ..run };
            self.free.give(Run { start: taken.end(), len: run.len - taken.len });
            for id in taken.numbers() {
                self.table[id as usize].place = Place::System;
            }
            left -= taken.len;
            runs.push(taken);
        }
        Some(runs)
    }

    /// Moves a granule to a place that is neither the free list nor deferral.
    pub(crate) fn put(&mut self, id: u32, place: Place) {
        let granule = &mut self.table[id as usize];
        debug_assert!(
            !matches!(granule.place, Place::Free | Place::Deferred),
            "granule {id} comes from nowhere"
        );
        granule.place = place;
    }

    /// Notes that a granule's bytes may no longer be zero; returns whether they were zero before.
    pub(crate) fn use_up(&mut self, id: u32) -> bool {
        !std::mem::replace(&mut self.table[id as usize].used, true)
    }

    /// Gives granules up: frees each now, or when its last reference goes.
    pub(crate) fn release(&mut self, ids: impl IntoIterator<Item = u32>) {
        let mut free = Run { start: 0, len: 0 };
        for id in ids {
            let granule = &mut self.table[id as usize];
            if granule.is_referenced() {
                granule.place = Place::Deferred;
                self.deferred += 1;
                continue;
            }
            granule.place = Place::Free;
            if free.len > 0 && free.end() == id {
                free.len += 1;
            } else {
                self.free.give(std::mem::replace(&mut free, Run { start: id, len: 1 }));
            }
        }
        self.free.give(free);
    }

    /// Takes a deferred granule out of deferral, into its holder's hands.
    pub(crate) fn adopt_deferred(&mut self, id: u32) {
        let granule = &mut self.table[id as usize];
        assert_eq!(granule.place, Place::Deferred, "granule {id} was not given up");
        granule.place = Place::System;
        self.deferred -= 1;
    }

    /// Counts one more reference.
    pub(crate) fn reference(&mut self, id: u32, direction: Direction) {
        *self.count(id, direction) += 1;
    }

    /// Counts one reference less; frees a deferred granule with its last one. Returns whether none of that direction is
    /// left.
    pub(crate) fn unreference(&mut self, id: u32, direction: Direction) -> bool {
        let count = self.count(id, direction);
        *count = count.checked_sub(1).expect("a reference is counted before it is dropped");
        let none_left = *count == 0;
        let granule = &mut self.table[id as usize];
        if granule.place == Place::Deferred && !granule.is_referenced() {
            granule.place = Place::Free;
            self.deferred -= 1;
            self.free.give(Run { start: id, len: 1 });
        }
        none_left
    }

    fn count(&mut self, id: u32, direction: Direction) -> &mut u32 {
        let granule = &mut self.table[id as usize];
        match direction {
            Direction::In => &mut granule.inputs,
            Direction::Out => &mut granule.outputs,
        }
    }

    /// Cuts a run where it passes from one object to the next; `cut` sees (object, run).
    pub(crate) fn by_object(&self, run: Run, mut cut: impl FnMut(u32, Run)) {
        let mut start = run.start;
        while start < run.end() {
            let object = self.get(start).object;
            let end = (start..run.end()).find(|id| self.get(*id).object != object).unwrap_or(run.end());
            cut(object, Run { start, len: end - start });
            start = end;
        }
    }

    /// The granules, in order of their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Granule)> {
        (0..).zip(&self.table)
    }

    /// The free list's numbers.
    pub(crate) fn free_numbers(&self) -> impl Iterator<Item = u32> + '_ {
        self.free.numbers()
    }
}

/// Adds granule `id` at the end of `runs`.
pub(crate) fn push(runs: &mut GranuleRuns, id: u32) {
    match runs.last_mut() {
        Some(run) if run.end() == id => run.len += 1,
        _ => runs.push(Run { start: id, len: 1 }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_referenced_granule_is_freed_by_its_last_reference_only() {
        let mut granules = Granules::default();
        granules.add_object(2);
        let runs = granules.take(1).unwrap();
        let id = runs[0].start;
        granules.reference(id, Direction::Out);
        granules.reference(id, Direction::In);
        granules.release([id]);
        assert_eq!((granules.free(), granules.deferred()), (1, 1));
        assert!(granules.unreference(id, Direction::Out));
        assert_eq!((granules.free(), granules.deferred()), (1, 1));
        assert!(granules.unreference(id, Direction::In));
        assert_eq!((granules.free(), granules.deferred()), (2, 0));
    }

    #[test]
    fn take_gives_all_or_nothing_in_few_runs() {
        let mut granules = Granules::default();
        granules.add_object(4);
        granules.add_object(4);
        assert_eq!(granules.take(9), None);
        assert_eq!(granules.take(6).unwrap().as_slice(), [Run { start: 0, len: 6 }]);
        assert_eq!(granules.free(), 2);
    }

    #[test]
    fn runs_are_cut_where_objects_meet() {
        let mut granules = Granules::default();
        granules.add_object(4);
        granules.add_object(4);
        let mut cuts = Vec::new();
        granules.by_object(Run { start: 2, len: 5 }, |object, run| cuts.push((object, run.start, run.len)));
        assert_eq!(cuts, [(0, 2, 2), (1, 4, 3)]);
    }
}
