//! The object table: which granules are of which memory object, who lent it, and who can store into it.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use genie_sys::{GranuleKind, Object};

use crate::registrars::{Change, Registrar, Registrars, Seat};
use crate::tables::runs::Run;
use crate::{Error, LenderId, ObjectId, Result, SharedObject};

/// A space grows by objects of this length or more, once it has grown to that, so that buffers seldom span two.
pub(crate) const OBJECT_LEN: usize = 32 << 20;

/// How long the first object of granules of a kind is. Reserved pages lie ready. Other memory is taken when an object is made,
/// and a program that passes little is to take little: such a space begins small, and doubles until its objects are
/// [`OBJECT_LEN`] long.
pub(crate) const fn first_len(kind: GranuleKind) -> usize {
    match kind {
        GranuleKind::Huge => OBJECT_LEN,
        GranuleKind::Collapsed => 8 << 20,
        GranuleKind::Base => 1 << 20,
    }
}

/// All objects of a space.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    /// By first granule.
    objects: BTreeMap<u32, Entry>,
    /// How many are not of reserved huge pages; may be read without the space's lock.
    unreserved: Arc<AtomicU32>,
    /// Counts objects, and so names them.
    count: Arc<AtomicU64>,
    registrars: Arc<Registrars>,
    /// Objects that are not here any more, and have their descriptors until registrars have heard of that.
    leaving: Vec<Weak<Object>>,
}

#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) id: ObjectId,
    pub(crate) granules: Run,
    /// Where its aliases start.
    start: usize,
    pub(crate) object: Arc<Object>,
    pub(crate) lender: Option<LenderId>,
    /// Whether a peer may have a descriptor of it.
    pub(crate) shown: bool,
    /// Whether no peer may get one, since a holder has memory of it alone.
    pub(crate) concealed: bool,
    /// Whether it was made for one region alone.
    pub(crate) is_separate: bool,
    /// Other lenders that can store into it, since they were given a descriptor.
    entrusted: Vec<LenderId>,
}

impl Entry {
    /// What others are told of the object.
    pub(crate) fn shared(&self) -> SharedObject {
        let Self { id, start, ref object, lender, .. } = *self;
        SharedObject { id, start, len: object.len(), lender, inode: object.inode() }
    }

    fn show(&mut self, registrars: &Registrars) {
        if !std::mem::replace(&mut self.shown, true) {
            registrars.note(Change::Shown, self.shared(), &self.object);
        }
    }

    /// Whether the object stays when this entry goes, since registrars have not heard of that.
    fn is_held(&self) -> bool {
        Arc::strong_count(&self.object) > 1
    }

    /// Whether the object's memory stays when this entry goes: a peer may have mapped it.
    pub(crate) fn stays(&self) -> bool {
        self.shown || self.is_held()
    }

    /// The lenders that can punch holes into the object.
    pub(crate) fn could_have_taken_it(&self) -> impl Iterator<Item = LenderId> + '_ {
        self.lender.into_iter().chain(self.entrusted.iter().copied())
    }
}

impl Objects {
    /// None yet; objects are counted in `count`, and `registrars` are told of them.
    pub(crate) fn new(count: Arc<AtomicU64>, registrars: Arc<Registrars>) -> Self {
        Self { count, registrars, ..Self::default() }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.objects.len()
    }

    /// How many of the process's descriptors they take, with those that were let go and that registrars have yet to hear of.
    #[cfg(feature = "allocator")]
    pub(crate) fn descriptors(&self) -> usize {
        self.len() + self.leaving.iter().filter(|object| object.strong_count() > 0).count()
    }

    /// Adds an object, whose aliases are at `start`; nobody has lent it if it was made for one region alone.
    pub(crate) fn add(&mut self, granules: Run, start: usize, object: Object, lender: Option<LenderId>) {
        let is_separate = lender == Some(LenderId::NOBODY);
        let lender = lender.filter(|_| !is_separate);
        self.count_unreserved(&object, 1);
        let id = ObjectId(self.count.fetch_add(1, Ordering::Relaxed) + 1);
        let (object, entrusted) = (Arc::new(object), Vec::new());
        let (shown, concealed) = (false, false);
        let entry = Entry { id, granules, start, object, lender, shown, concealed, is_separate, entrusted };
        self.registrars.note(Change::Added, entry.shared(), &entry.object);
        self.objects.insert(granules.start, entry);
    }

    /// Forgets the object whose first granule is `start`.
    pub(crate) fn remove(&mut self, start: u32) -> Option<Entry> {
        let entry = self.objects.remove(&start)?;
        self.count_unreserved(&entry.object, 1_u32.wrapping_neg());
        self.registrars.note(Change::Removed, entry.shared(), &entry.object);
        self.leaving.retain(|object| object.strong_count() > 0);
        if entry.is_held() {
            self.leaving.push(Arc::downgrade(&entry.object));
        }
        Some(entry)
    }

    /// Forgets all objects, since the space is over.
    pub(crate) fn end(&mut self) {
        while let Some(start) = self.objects.keys().next().copied() {
            self.remove(start);
        }
    }

    /// A descriptor of an object for a peer, as `describe` makes it.
    ///
    /// # Errors
    /// [`Error::NoObject`] when there is no such object here, or memory of it is somebody's alone; the kernel's reason.
    pub(crate) fn describe(
        &mut self,
        id: ObjectId,
        describe: impl Fn(&Object) -> genie_sys::Result<OwnedFd>,
    ) -> Result<OwnedFd> {
        let Self { objects, registrars, .. } = self;
        let entry = objects.values_mut().find(|entry| entry.id == id && !entry.concealed);
        let entry = entry.ok_or(Error::NoObject)?;
        entry.show(registrars);
        Ok(describe(&entry.object)?)
    }

    /// Puts on record that a peer is about to have descriptors of the objects of these granules, but for those that nobody may have.
    pub(crate) fn show(&mut self, granules: Run) {
        let Self { objects, registrars, .. } = self;
        let is_among = |entry: &&mut Entry| {
            entry.granules.start < granules.end() && granules.start < entry.granules.end() && !entry.concealed
        };
        objects.values_mut().filter(is_among).for_each(|entry| entry.show(registrars));
    }

    fn count_unreserved(&self, object: &Object, more: u32) {
        if object.kind() != GranuleKind::Huge {
            // Relaxed: a thread that uses a granule of the object has synchronized with the one that added it.
            self.unreserved.fetch_add(more, Ordering::Relaxed);
        }
    }

    /// Whether all of these granules are reserved huge pages.
    pub(crate) fn are_reserved(&self, mut granules: impl Iterator<Item = u32>) -> bool {
        let reserved = |entry: &Entry| entry.object.kind() == GranuleKind::Huge;
        self.unreserved.load(Ordering::Relaxed) == 0
            || granules.all(|granule| self.get(granule).is_some_and(reserved))
    }

    /// The space's own objects.
    pub(crate) fn own(&self) -> impl Iterator<Item = &Object> {
        self.objects.values().filter(|entry| entry.lender.is_none()).map(|entry| &*entry.object)
    }

    /// Seats a registrar, and notes for it what there is.
    pub(crate) fn seat(&self, registrar: &Arc<dyn Registrar>) -> Seat {
        let seat = self.registrars.seat(registrar);
        for entry in self.objects.values() {
            seat.note(Change::Added, entry.shared(), &entry.object);
            if entry.shown {
                seat.note(Change::Shown, entry.shared(), &entry.object);
            }
        }
        seat
    }

    /// Each granule of every object.
    pub(crate) fn granules(&self) -> impl Iterator<Item = (&Entry, u32)> + '_ {
        self.objects.values().flat_map(|entry| entry.granules.numbers().map(move |granule| (entry, granule)))
    }

    /// Puts on record that a lender can store into an object.
    pub(crate) fn entrust(&mut self, id: ObjectId, lender: LenderId) {
        let entry = self.objects.values_mut().find(|entry| entry.id == id);
        if let Some(entry) = entry.filter(|entry| !entry.could_have_taken_it().any(|known| known == lender)) {
            entry.entrusted.push(lender);
        }
    }

    /// Has a run's objects never be shown; returns false if one was, or is a lender's.
    pub(crate) fn conceal(&mut self, run: Run) -> bool {
        let is_open = |entry: &Entry| entry.shown || entry.lender.is_some();
        if self.entries(run).any(|(entry, _)| is_open(entry)) {
            return false;
        }
        let starts: Vec<u32> = self.entries(run).map(|(entry, _)| entry.granules.start).collect();
        for start in starts {
            if let Some(entry) = self.objects.get_mut(&start) {
                entry.concealed = true;
            }
        }
        true
    }

    /// Forgets a lender that is gone.
    pub(crate) fn distrust(&mut self, lender: LenderId) {
        self.objects.values_mut().for_each(|entry| entry.entrusted.retain(|known| *known != lender));
    }

    pub(crate) fn get(&self, granule: u32) -> Option<&Entry> {
        let (_, entry) = self.objects.range(..=granule).next_back()?;
        (granule < entry.granules.end()).then_some(entry)
    }

    /// Where objects that are not of reserved huge pages are counted.
    pub(crate) fn unreserved(&self) -> Arc<AtomicU32> {
        Arc::clone(&self.unreserved)
    }

    /// Cuts a run of granules where one object ends and the next begins.
    pub(crate) fn parts(&self, run: Run) -> impl Iterator<Item = Run> + '_ {
        self.entries(run).map(|(_, part)| part)
    }

    /// The objects that a run's granules are of, with the part of the run in each.
    pub(crate) fn entries(&self, run: Run) -> impl Iterator<Item = (&Entry, Run)> + '_ {
        let mut start = run.start;
        std::iter::from_fn(move || {
            let entry = self.get(start).filter(|_| start < run.end())?;
            let part = Run { start, len: entry.granules.end().min(run.end()) - start };
            start = part.end();
            Some((entry, part))
        })
    }

    /// Where in a run of free granules `count` granules of one object start.
    pub(crate) fn fit(&self, run: Run, count: u32) -> Option<u32> {
        if run.len < count {
            return None;
        }
        self.parts(run).find(|part| part.len >= count).map(|part| part.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn objects() -> Objects {
        let mut objects = Objects::default();
        for start in [0, 4] {
            let object = Object::create(GranuleKind::Base, 4 * 4096).unwrap();
            objects.add(Run { start, len: 4 }, 4096 * start as usize, object, None);
        }
        objects
    }

    #[test]
    fn runs_are_cut_where_objects_meet() {
        let objects = objects();
        let cuts: Vec<_> = objects.parts(Run { start: 2, len: 5 }).collect();
        assert_eq!(cuts, [Run { start: 2, len: 2 }, Run { start: 4, len: 3 }]);
    }

    #[test]
    fn granules_of_one_object_are_found_beyond_a_part_that_is_too_short() {
        let objects = objects();
        let free = Run { start: 2, len: 6 };
        assert_eq!(objects.fit(free, 2), Some(2));
        assert_eq!(objects.fit(free, 3), Some(4));
        assert_eq!(objects.fit(free, 5), None);
    }
}
