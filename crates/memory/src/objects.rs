//! Objects: the memory objects whose pages are a space's granules, and what a peer has to know of them.
//!
//! How: the space makes objects of its own as it grows, each of the best pages to be had then, and takes in those that
//! lenders lend. Each object is mapped once in the alias arena, granule n at n times the granule size; a peer that maps
//! an object at the same place of an arena of its own finds each granule by the same offset.
//! Invariants: an object stays mapped as long as one of its granules may be used.
//! Limits: the alias arena has as many bytes of addresses as the space's limit, and for lent objects as many again, at
//! least 1 GiB.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use genie_sys::{Access, GranuleKind, Inode, Object};

use crate::backing::{MappedAt, Owner};
use crate::registrars::{Registrar, Registration};
use crate::space::{Core, Space, State};
use crate::tables::granule::{GranuleRuns, runs_of};
use crate::tables::lent_objects::Origin;
use crate::tables::objects::{Entry, OBJECT_LEN, first_len};
use crate::tables::runs::Run;
use crate::{Error, LenderId, ObjectId, Result, SharedObject};

impl Space {
    /// The first address of the aliases, from which offsets of segments are counted.
    pub fn aliases_base(&self) -> usize {
        self.core().aliases().base()
    }

    /// How many bytes of addresses aliases may have.
    pub fn aliases_len(&self) -> usize {
        self.core().aliases().len()
    }

    /// Has a registrar told of the space's memory objects, as long as the registration exists. First it is told of those that there
    /// are, and which of them were shown: when this returns, it has been, unless the thread tells later ([`TellLater`](crate::TellLater)) or
    /// is in a registrar's call.
    ///
    /// A handle that is one granule size alone ([`Space::alone`], [`Space::small`]) tells of objects of that size alone. In a child made by
    /// fork, the registrar is told of nothing.
    ///
    /// # Cost
    /// Each use of the space costs a load when the space's lock is let go. When an object is made, shown or let go, each registrar
    /// is called. An object that is let go keeps its descriptor, and memory that a lender has lent, until each has been.
    ///
    /// # Examples
    /// ```
    /// use std::sync::{Arc, Mutex};
    /// use genie_memory::{Config, Registrar, SharedObject, Space};
    ///
    /// #[derive(Default)]
    /// struct Table(Mutex<Vec<SharedObject>>);
    ///
    /// impl Registrar for Table {
    ///     fn added(&self, object: &SharedObject) {
    ///         self.0.lock().unwrap().push(*object);
    ///     }
    ///
    ///     fn removed(&self, object: &SharedObject) {
    ///         self.0.lock().unwrap().retain(|known| known.id != object.id);
    ///     }
    /// }
    ///
    /// let space = Space::new(&Config::default())?;
    /// let table = Arc::new(Table::default());
    /// let _registration = space.register(table.clone());
    /// let buffer = space.system_buffer(5000)?;
    /// for backing in buffer.data().backings() {
    ///     let (inode, offset) = backing.object().expect("memory of the space's is in an object");
    ///     let known = table.0.lock().unwrap().iter().any(|known| known.inode == inode && offset < known.len);
    ///     assert!(known);
    /// }
    /// # Ok::<(), genie_memory::Error>(())
    /// ```
    pub fn register(&self, registrar: Arc<dyn Registrar>) -> Registration {
        let spaces = self.each().filter(|space| !space.is_inherited());
        Registration::new(spaces.map(|space| space.core().lock().objects.seat(&registrar)).collect())
    }

    /// Has registrars told of all that any thread has changed in the space so far. For code that gives out memory which another thread
    /// may have taken from the space just now, to tell of it later ([`TellLater`](crate::TellLater)): whoever uses the space need not
    /// call this.
    ///
    /// # Cost
    /// A load for each granule size, if there is nothing to tell.
    #[inline]
    pub fn tell(&self) {
        self.each().for_each(|space| space.core().registrars.tell());
    }

    /// The object that is mapped at `offset` among the aliases.
    ///
    /// Cost: the space's lock, and a search among its objects.
    pub fn object_at(&self, offset: usize) -> Option<SharedObject> {
        let (core, granule) =
            self.each().filter_map(|space| Some((space.core(), space.core().granule_at(offset)?))).last()?;
        core.ensure_own().ok()?;
        let state = core.lock();
        state.objects.get(granule).map(Entry::shared)
    }

    /// Gives the memory of all small pages that nothing uses back to the kernel, those that are kept for reuse included. They hold
    /// zeros when they are used again, and still count as taken.
    pub fn discard_free(&self) {
        if self.is_inherited() {
            return;
        }
        for space in self.each().filter(|space| space.core().kind == GranuleKind::Base) {
            let core = space.core();
            let mut guard = core.lock();
            let state = &mut *guard;
            state.flush(core, LenderId::OWN);
            let free = runs_of(state.granules.stocks.own.free.numbers());
            state.discard(core, free);
        }
    }

    /// Has registrars told that a peer is about to be shown the objects in which `len` bytes from `offset` on among the aliases lie. For
    /// code that shares them ([`Space::share`]) when it can tell nobody ([`TellLater`](crate::TellLater)).
    pub fn show(&self, offset: usize, len: usize) {
        let found = self.each().filter_map(|space| Some((space.core(), space.core().granule_at(offset)?)));
        if let Some((core, start)) = found.last().filter(|(core, _)| core.is_own()) {
            let granules = Run { start, len: core.granules(core.misalignment(offset), len) };
            core.lock().objects.show(granules);
        }
    }

    /// A descriptor of an object, for a peer: one that can be mapped for loads only.
    ///
    /// # Errors
    /// [`Error::NoObject`] when the object is gone, or memory of it is somebody's alone ([`SystemBuffer::into_bytes`](crate::SystemBuffer::into_bytes));
    /// [`Error::Inherited`], or the kernel's reason.
    ///
    /// # Cost
    /// A system call, under the lock; for each object and peer once.
    pub fn share(&self, id: ObjectId) -> Result<OwnedFd> {
        self.describe(id, Object::read_only)
    }

    /// A descriptor of an object, as `describe` makes it.
    pub(crate) fn describe(
        &self,
        id: ObjectId,
        describe: impl Fn(&Object) -> genie_sys::Result<OwnedFd>,
    ) -> Result<OwnedFd> {
        self.core().ensure_own()?;
        for space in self.each() {
            match space.core().lock().objects.describe(id, &describe) {
                Err(Error::NoObject) => {}
                result => return result,
            }
        }
        Err(Error::NoObject)
    }
}

impl Owner for Core {
    fn mapped_at(&self, addr: usize) -> Option<MappedAt> {
        let (offset, granule) = self.granule_shown_at(addr)?;
        let state = self.lock();
        let Entry { granules, object, .. } = state.objects.get(granule)?;
        let offset = offset - self.alias_offset(granules.start);
        Some(MappedAt { inode: object.inode(), offset, rest: object.len() - offset })
    }

    fn share_at(&self, addr: usize, inode: Inode) -> Result<OwnedFd> {
        let (_, granule) = self.granule_shown_at(addr).ok_or(Error::NoObject)?;
        let mut state = self.lock();
        let entry = state.objects.get(granule).filter(|entry| entry.object.inode() == inode);
        let id = entry.ok_or(Error::NoObject)?.id;
        state.objects.describe(id, Object::read_only)
    }
}

impl Core {
    /// Where an address lies among the aliases, and the granule there.
    fn granule_shown_at(&self, addr: usize) -> Option<(usize, u32)> {
        let offset = self.aliases().offset_of(addr)?;
        Some((offset, self.granule_at(offset)?))
    }

    /// Makes an object, and takes all of its memory.
    pub(crate) fn new_object(kind: GranuleKind, len: usize) -> Result<Object> {
        let made = Object::create(kind, len).and_then(|object| object.allocate().map(|()| object));
        made.map_err(Error::from)
    }

    /// Counts `len` more bytes as taken, within the limit.
    pub(crate) fn count(&self, taken: &AtomicUsize, len: usize) -> Result<()> {
        let more = |taken: usize| taken.checked_add(len).filter(|taken| *taken <= self.limit());
        let bounded = |used| Error::Limit { asked: len, used, limit: self.limit() };
        taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).map(drop).map_err(bounded)
    }
}

impl State {
    /// Takes granules of a pool for a buffer. If the space's own pool has too few free ones, the space grows. If that
    /// does not suffice, or the pool is a lender's, what the pool keeps for reuse is given up.
    pub(crate) fn take_granules(&mut self, core: &Core, lender: LenderId, count: u32) -> Result<GranuleRuns> {
        self.take_spare(core, lender, count).or_else(|_| {
            self.flush(core, lender);
            self.take_spare(core, lender, count)
        })
    }

    /// As [`State::take_granules`], but leaves alone what is kept for reuse.
    pub(crate) fn take_spare(&mut self, core: &Core, lender: LenderId, count: u32) -> Result<GranuleRuns> {
        loop {
            if let Some(runs) = self.granules.take(lender, count, |run| self.objects.fit(run, count)) {
                return Ok(runs);
            }
            if lender != LenderId::OWN {
                let free = core.bytes(self.granules.available(lender));
                return Err(Error::Lender { asked: core.bytes(count), free });
            }
            self.grow(core, count)?;
        }
    }

    /// Makes sure that `count` more of the space's own granules are free than are promised. Where too few are free, the
    /// space grows, or gives up what is kept for reuse.
    pub(crate) fn make_available(&mut self, core: &Core, count: u32) -> Result<()> {
        if self.granules.available(LenderId::OWN) >= count || self.grow(core, count).is_ok() {
            return Ok(());
        }
        self.flush(core, LenderId::OWN);
        if self.granules.available(LenderId::OWN) >= count { Ok(()) } else { self.grow(core, count) }
    }

    /// Keeps the promises of replacements although a lender has left and taken granules along. Promises that cannot be
    /// kept are broken, and stores wait instead.
    pub(crate) fn keep_promises(&mut self, core: &Core) {
        let short = self.granules.promised() > self.granules.stocks.own.free.total();
        if short && self.grow(core, 0).is_err() {
            self.flush(core, LenderId::OWN);
            self.granules.break_promises();
        }
    }

    /// Gives the memory of granules back to the kernel. Where it refuses, the memory stays until the space is over.
    pub(crate) fn discard(&self, core: &Core, granules: GranuleRuns) {
        for (entry, part) in granules.into_iter().flat_map(|run| self.objects.entries(run)) {
            let within = core.bytes(part.start - entry.granules.start);
            let _ = entry.object.discard_part(within, core.bytes(part.len));
        }
    }

    /// Gives back to a pool's free list what is kept only for reuse.
    fn flush(&mut self, core: &Core, lender: LenderId) {
        self.flush_pool(core, lender, |_| true);
        if lender == LenderId::OWN {
            self.flush_queues(core);
        }
    }

    /// Adds an object so that at least `count` granules are free besides those promised.
    fn grow(&mut self, core: &Core, count: u32) -> Result<()> {
        let own = &self.granules.stocks.own;
        let missing = core.bytes((count + self.granules.promised()).saturating_sub(own.free.total()));
        let room = core.limit().saturating_sub(core.common.taken.load(Ordering::Relaxed));
        let room = room & !(core.granule() - 1);
        if missing > room {
            let free = core.bytes(self.granules.available(LenderId::OWN));
            let used = core.common.taken.load(Ordering::Relaxed).saturating_sub(free);
            return Err(Error::Limit { asked: core.bytes(count), used, limit: core.limit() });
        }
        let mut result = Err(Error::Limit { asked: core.bytes(count), used: 0, limit: core.limit() });
        for kind in core.kinds() {
            let generous = self.usual_len(core, *kind, count).max(missing).min(room);
            let lens = if generous > missing { [generous, missing] } else { [missing, 0] };
            for len in lens.into_iter().filter(|len| *len > 0) {
                result = self.add_object(core, *kind, len);
                if result.is_ok() {
                    return result;
                }
            }
        }
        result
    }

    /// How long the next object is to be where there is memory: as long as all that there are, and so that buffers of `count`
    /// granules fill it, since what is left could only be a part of another one.
    fn usual_len(&self, core: &Core, kind: GranuleKind, count: u32) -> usize {
        if kind == GranuleKind::Huge {
            return OBJECT_LEN;
        }
        let first = if self.granules.own() == 0 { first_len(kind) } else { 0 };
        let doubled = core.bytes(self.granules.own()).max(first).min(OBJECT_LEN);
        let filled = doubled.next_multiple_of(core.bytes(count.max(1)));
        if filled <= OBJECT_LEN { filled } else { doubled }
    }

    fn add_object(&mut self, core: &Core, kind: GranuleKind, len: usize) -> Result<()> {
        core.count(&core.common.taken, len)?;
        let added = Core::new_object(kind, len).and_then(|object| self.adopt(core, object));
        added.inspect_err(|_| {
            core.common.taken.fetch_sub(len, Ordering::Relaxed);
        })
    }

    /// Maps a new object's aliases and adds its granules to the free list.
    pub(crate) fn adopt(&mut self, core: &Core, object: Object) -> Result<()> {
        let granules = Run { start: self.granules.own(), len: core.granules(0, object.len()) };
        self.granules.reserve(granules)?;
        let start = core.alias_offset(granules.start);
        core.aliases().map(start, &object, 0, object.len())?;
        self.granules.add_object(granules.len);
        self.objects.add(granules, start, object, None);
        Ok(())
    }

    /// How many granules a lender's object of `asked` bytes has, unless it can't be taken in.
    pub(crate) fn check_lent_object(&self, core: &Core, lender: LenderId, asked: usize) -> Result<u32> {
        if lender == LenderId::OWN || !self.granules.stocks.is_live(lender) {
            return Err(Error::NoLender { lender });
        }
        let count = u32::try_from(asked / core.granule()).ok();
        count
            .filter(|count| *count <= self.granules.lent_objects.room())
            .ok_or_else(|| self.no_room(core, asked))
    }

    pub(crate) fn no_room(&self, core: &Core, asked: usize) -> Error {
        Error::Room { asked, free: core.bytes(self.granules.lent_objects.room()) }
    }

    /// Maps a lent object's aliases and adds its granules to the lender's pool.
    pub(crate) fn take_in(
        &mut self,
        core: &Core,
        lender: LenderId,
        object: Object,
        origin: Origin,
    ) -> Result<()> {
        let asked = object.len();
        let count = self.check_lent_object(core, lender, asked)?;
        core.guard_lent()?;
        let granules =
            self.granules.lent_objects.take_numbers(count).ok_or_else(|| self.no_room(core, asked))?;
        let offset = core.alias_offset(granules.start);
        // The lender may be punching holes into it at this moment.
        let map = || Ok(core.aliases().map_for(offset, &object, 0, asked, Access::ReadWrite)?);
        if let Err(error) = self.granules.reserve(granules).and_then(|()| map()) {
            self.granules.lent_objects.give_numbers(granules);
            return Err(error);
        }
        self.granules.add_lent_object(lender, granules, origin);
        self.objects.add(granules, offset, object, Some(lender));
        Ok(())
    }

    /// Gives granules up, and unmaps lent objects whose last granule is among them.
    pub(crate) fn release(&mut self, core: &Core, granules: impl IntoIterator<Item = u32>) {
        self.granules.release(granules);
        self.unmap_retired(core);
    }

    /// Unmaps lent objects whose granules have all retired. An object that the kernel cannot unmap stays mapped until this
    /// is called again; nobody uses it. An object of the space's own, of which nothing is used any more, gives its memory
    /// back even where peers have mapped it, and before registrars have heard of that.
    pub(crate) fn unmap_retired(&mut self, core: &Core) {
        while let Some(object) = self.granules.lent_objects.take_ended() {
            if core.aliases().unmap(core.alias_offset(object.start), core.bytes(object.len)).is_err() {
                return self.granules.lent_objects.put_back(object);
            }
            let is_stand_in = self.granules.lent_objects.forget(object) == Some(Origin::StandIn);
            if is_stand_in {
                core.common.standing_in.fetch_sub(core.bytes(object.len), Ordering::Relaxed);
            }
            let entry = self.objects.remove(object.start);
            if let Some(entry) = entry.filter(|entry| entry.stays() && (entry.is_separate || is_stand_in)) {
                // The kernel may refuse; then the peers' mappings keep the memory until they end.
                let _ = entry.object.discard();
            }
            self.lost.retain(|granule| !object.numbers().contains(granule));
        }
    }

    /// Maps runs of granules at consecutive slots from `slot` on, in place of what is there, populated and registered
    /// for faults. The caller enters them in the tables.
    ///
    /// # Errors
    /// The kernel's. Of several parts the first ones may be mapped. A part that was not mapped is as it was before, or
    /// inaccessible, if a lender has taken its memory away.
    pub(crate) fn map(&self, core: &Core, slot: u32, runs: &[Run]) -> Result<()> {
        self.map_unregistered(core, slot, runs)?;
        self.register(core, slot, runs.iter().map(|run| run.len).sum());
        Ok(())
    }

    /// As [`State::map`], but not registered for faults: for windows into which no client stores.
    ///
    /// # Errors
    /// As [`State::map`].
    pub(crate) fn map_unregistered(&self, core: &Core, slot: u32, runs: &[Run]) -> Result<()> {
        let mut at = slot;
        for (entry, part) in runs.iter().flat_map(|run| self.objects.entries(*run)) {
            let within = core.bytes(part.start - entry.granules.start);
            core.windows.map(core.bytes(at), &entry.object, within, core.bytes(part.len))?;
            at += part.len;
        }
        Ok(())
    }
}
