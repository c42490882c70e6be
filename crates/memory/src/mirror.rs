//! Mirrors: another process's aliases, as this process maps them.
//!
//! Why: a server must reach what its clients' requests name, and nothing that they do not. A peer names data by its place
//! in its own alias arena; here the same place of a mirrored arena shows the same granules.
//! How: the peer announces its memory objects, each with the place of its granules. A *cached* mirror maps an object when
//! a request first needs it and keeps it mapped; a *transient* one maps the granules of a request while it is served. The
//! mirror lies at the peer's own addresses where they are free here, so that a buffer has one address in all processes
//! (the thesis's transient virtual address).
//! Invariants: nothing but announced objects is ever shown; a read-only descriptor is mapped read-only.
//! Trust: places and lengths come from a peer, and are checked against the arena and against what was announced. The peer
//! may change contents at any moment, and may punch holes: a load from where memory can't be had finds zeros, and the
//! mirror is broken from then on.
//! Source: thesis §5.1 (selective transient mapping), §3.1.1 (unmapped access). Differs: descriptors grant whole objects,
//! since Linux grants no less; cached is the default, since mapping costs more than the protection it could add.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use genie_sys::arena::Access;
use genie_sys::guard::Guard;
use genie_sys::{Arena, GranuleKind, Object, Span};
use smallvec::SmallVec;

use crate::segments::Segments;
use crate::{Error, Result, views};

/// How long a mirror keeps objects mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mapping {
    /// From the first request that needs them until they are withdrawn.
    #[default]
    Cached,
    /// While a request that names them is served.
    Transient,
}

/// Some bytes in a space, by their place in its alias arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Bytes from the arena's start.
    pub offset: usize,
    /// The number of bytes.
    pub len: usize,
}

/// Extents of some data, in order.
pub type Extents = SmallVec<[Extent; 2]>;

/// Another process's aliases. Cloning makes another handle.
#[derive(Debug, Clone)]
pub struct Mirror(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    guard: Guard,
    arena: Arena,
    granules: GranuleKind,
    mapping: Mapping,
    /// Open as long as anybody here may touch the peer's memory; the peer sees it close.
    lifeline: OwnedFd,
    objects: Mutex<Objects>,
    /// How many [`Mapped`] there are or are being made.
    in_use: AtomicU32,
    /// Changes whenever an object is announced or withdrawn.
    version: AtomicU64,
    /// Dropped last, when nothing is mapped any more and the lifeline is closed.
    ties: Mutex<Vec<Box<dyn Tie>>>,
}

/// What is to be dropped when a mirror is, since it depends on the peer's memory being here.
pub trait Tie: std::fmt::Debug + Send + Sync {}

/// A mirror, as long as others hold it.
#[derive(Debug, Clone)]
pub struct WeakMirror(Weak<Inner>);

/// The peer's objects by their places.
#[derive(Debug, Default)]
struct Objects {
    announced: BTreeMap<usize, Announced>,
    /// Places of withdrawn objects that could not be unmapped, since requests were being served.
    withdrawn: Vec<(usize, usize)>,
}

/// One object of the peer's.
#[derive(Debug)]
struct Announced {
    id: u64,
    object: Arc<Object>,
    is_mapped: bool,
    /// Of a transient mirror: how many requests use each granule that is mapped.
    uses: BTreeMap<usize, u32>,
}

/// What one thread knows of the objects that a mirror shows: (start, end, may be written), as of a version.
#[derive(Debug, Default)]
pub struct Known {
    version: u64,
    ranges: SmallVec<[(usize, usize, bool); 4]>,
}

/// Some of a peer's data, mapped here; dropping it ends a transient mapping.
#[derive(Debug)]
pub struct Mapped {
    mirror: Mirror,
    segments: Segments,
}

impl Mirror {
    /// Reserves addresses for the aliases of a peer whose arena is `len` bytes long and starts at `base` there; nothing
    /// is mapped yet. `lifeline` is held open until the mirror is dropped.
    ///
    /// # Errors
    /// The lengths are no arena's, or the addresses cannot be had.
    pub fn new(
        base: usize,
        len: usize,
        granules: GranuleKind,
        mapping: Mapping,
        lifeline: OwnedFd,
    ) -> Result<Self> {
        if len == 0 || len > 1 << 46 || !len.is_multiple_of(granules.size()) {
            return Err(Error::Announced { start: base, len, what: "this is no arena of granules" });
        }
        let arena = match Arena::reserve_at(base, len)? {
            Some(arena) => arena,
            None => Arena::reserve(len)?,
        };
        Ok(Self(Arc::new(Inner {
            guard: arena.guard()?,
            arena,
            granules,
            mapping,
            lifeline,
            objects: Mutex::default(),
            in_use: AtomicU32::new(0),
            version: AtomicU64::new(0),
            ties: Mutex::default(),
        })))
    }

    /// Where the mirror's addresses start: where the peer's do, if they were free here.
    pub fn base(&self) -> usize {
        self.0.arena.base()
    }

    /// The arena's length in bytes.
    #[expect(clippy::len_without_is_empty, reason = "an arena is never empty")]
    pub fn len(&self) -> usize {
        self.0.arena.len()
    }

    /// The peer's lifeline, for another process to hold that is to touch the peer's memory, too.
    ///
    /// # Errors
    /// No descriptor can be had.
    pub fn lifeline(&self) -> Result<OwnedFd> {
        let duplicate = self.0.lifeline.try_clone();
        Ok(duplicate.map_err(|error| {
            let errno = genie_sys::Errno::from_io_error(&error).unwrap_or(genie_sys::Errno::MFILE);
            genie_sys::Error::new("dup", "a lifeline", errno)
        })?)
    }

    /// What the peer's granules are made of.
    pub fn granules(&self) -> GranuleKind {
        self.0.granules
    }

    /// A handle that holds neither the mirror nor its lifeline.
    pub fn downgrade(&self) -> WeakMirror {
        WeakMirror(Arc::downgrade(&self.0))
    }

    /// Keeps something until the mirror is dropped, by whatever thread drops its last handle.
    pub fn tie(&self, tie: impl Tie + 'static) {
        self.0.ties.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(tie));
    }

    /// Enters an object whose granules' aliases start at `start`. Announcing the same object at the same place again
    /// changes the rights to it.
    ///
    /// # Errors
    /// It leaves the arena, is not aligned, or lies where another one does.
    pub fn announce(&self, id: u64, start: usize, object: Object) -> Result<()> {
        let len = object.len();
        let refuse = |what| Err(Error::Announced { start, len, what });
        if !start.is_multiple_of(self.granule().max(object.kind().size()))
            || !len.is_multiple_of(self.granule())
        {
            return refuse("it is not aligned to granules");
        }
        if start.checked_add(len).is_none_or(|end| end > self.len()) {
            return refuse("it leaves the arena");
        }
        let mut guard = self.objects();
        let objects = &mut guard.announced;
        let overlaps = |(at, other): (&usize, &Announced)| {
            *at < start + len && start < at + other.object.len() && (other.id, *at) != (id, start)
        };
        if objects.range(..start + len).any(overlaps) {
            return refuse("another object is there");
        }
        if let Some(before) = objects.get(&start)
            && (before.object.len(), before.object.kind()) != (len, object.kind())
        {
            return refuse("it is not the object that was announced there before");
        }
        if objects.get(&start).is_some_and(|before| before.object.is_writable() && !object.is_writable()) {
            return refuse("rights are not taken back from whoever may be using them");
        }
        let mut announced =
            Announced { id, object: Arc::new(object), is_mapped: false, uses: BTreeMap::new() };
        if let Some(before) = objects.remove(&start) {
            // Whoever works in what is mapped goes on; the rights change in place.
            announced.uses = before.uses;
            if before.is_mapped {
                self.show(start, &announced.object, 0, len)?;
                announced.is_mapped = true;
            }
            let size = self.granule().max(announced.object.kind().size());
            for offset in announced.uses.keys() {
                self.show(start, &announced.object, offset - start, size)?;
            }
        }
        objects.insert(start, announced);
        self.0.version.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Forgets an object: requests may not name it any more. [`Mirror::sweep`] unmaps it. Returns whether there was one.
    pub fn withdraw(&self, id: u64) -> bool {
        let mut guard = self.objects();
        let objects = &mut guard.announced;
        let found = objects.iter().find(|(_, object)| object.id == id).map(|(start, _)| *start);
        let Some((start, object)) = found.and_then(|start| Some((start, objects.remove(&start)?))) else {
            return false;
        };
        guard.withdrawn.push((start, object.object.len()));
        self.0.version.fetch_add(1, Ordering::Release);
        true
    }

    /// Unmaps what was withdrawn, unless there is a [`Mapped`]. The caller sees to it that nobody works any more in what
    /// [`Mirror::span`] gave out.
    ///
    /// # Errors
    /// The kernel can't unmap.
    pub fn sweep(&self) -> Result<()> {
        let mut guard = self.objects();
        let objects = &mut *guard;
        if self.0.in_use.load(Ordering::Acquire) > 0 {
            return Ok(());
        }
        while let Some((start, len)) = objects.withdrawn.pop() {
            // Other objects may have been announced there meanwhile.
            let mut at = start;
            for (other, announced) in objects.announced.range(..start + len) {
                let stop = other + announced.object.len();
                if stop > at {
                    self.unmap(at, (*other).max(at))?;
                    at = stop;
                }
            }
            self.unmap(at, (start + len).max(at))?;
        }
        Ok(())
    }

    fn unmap(&self, from: usize, to: usize) -> Result<()> {
        if from < to { Ok(self.0.arena.unmap(from, to - from)?) } else { Ok(()) }
    }

    /// Whether all of `extents` lies in announced objects, which may be written if `writes`.
    ///
    /// # Errors
    /// The first extent that does not.
    pub fn check(&self, extents: &[Extent], writes: bool) -> Result<()> {
        let objects = self.objects();
        extents.iter().try_for_each(|extent| parts(&objects.announced, *extent, writes, |_, _, _| {}))
    }

    /// Where `extent` is, mapped until its object is withdrawn and [`Mirror::sweep`] comes; for stores, too, if `writes`.
    /// What is found is noted in `known`, so that the next look costs no lock.
    ///
    /// # Errors
    /// As [`Mirror::map`].
    ///
    /// # Panics
    /// When the mirror is transient.
    pub fn span(&self, known: &mut Known, extent: Extent, writes: bool) -> Result<Span> {
        assert_eq!(self.0.mapping, Mapping::Cached, "spans of a transient mirror end with a `Mapped`");
        let version = self.version();
        if known.version != version {
            known.version = version;
            known.ranges.clear();
        }
        let end = extent.offset.saturating_add(extent.len);
        let holds =
            |range: &(usize, usize, bool)| range.0 <= extent.offset && end <= range.1 && (range.2 || !writes);
        if !known.ranges.iter().any(holds) {
            drop(self.map(&[extent], writes)?);
            if let Some((_, start, len, is_writable)) = self.object_at(extent.offset) {
                known.ranges.push((start, start + len, is_writable));
            }
        }
        Ok(views::mirrored(&self.0.arena, extent.offset, extent.len))
    }

    /// Maps `extents`, for stores, too, if `writes`.
    ///
    /// # Errors
    /// An extent that is not announced, or not for writing; or the kernel can't map.
    ///
    /// # Cost
    /// Cached: a look-up, once the objects are mapped. Transient: a system call for each extent, and another later.
    pub fn map(&self, extents: &[Extent], writes: bool) -> Result<Mapped> {
        self.0.in_use.fetch_add(1, Ordering::Relaxed);
        // Dropped after the lock is released, on failure.
        let mut mapped = Mapped { mirror: self.clone(), segments: Segments::new() };
        let mut guard = self.objects();
        let objects = &mut guard.announced;
        for extent in extents.iter().filter(|extent| extent.len > 0) {
            let mut starts: SmallVec<[(usize, usize, usize); 1]> = SmallVec::new();
            parts(objects, *extent, writes, |start, from, to| starts.push((start, from, to)))?;
            for (start, from, to) in starts {
                let announced = objects.get_mut(&start).expect("found just now");
                self.map_part(start, announced, from, to)?;
            }
            mapped.segments.push(views::mirrored(&self.0.arena, extent.offset, extent.len));
        }
        Ok(mapped)
    }

    /// Whether memory that the peer had announced could not be had when it was touched: it punched a hole.
    pub fn is_broken(&self) -> bool {
        self.0.guard.is_broken()
    }

    /// A number that changes whenever an object is announced or withdrawn.
    pub fn version(&self) -> u64 {
        self.0.version.load(Ordering::Acquire)
    }

    /// The object that holds the byte at `offset`, to be announced to others: its number, its place, its length and
    /// whether it may be written.
    pub fn object_at(&self, offset: usize) -> Option<(u64, usize, usize, bool)> {
        let objects = self.objects();
        let (start, found) = objects.announced.range(..=offset).next_back()?;
        let len = found.object.len();
        (offset < start + len).then(|| (found.id, *start, len, found.object.is_writable()))
    }

    /// A descriptor of object `id` for another process, read-only unless `writes`.
    ///
    /// # Errors
    /// There is no such object, it may not be written, or no descriptor can be had.
    pub fn share(&self, id: u64, writes: bool) -> Result<OwnedFd> {
        let objects = self.objects();
        let found = objects.announced.values().find(|object| object.id == id);
        let Some(found) = found.filter(|found| !writes || found.object.is_writable()) else {
            return Err(Error::Announced {
                start: 0,
                len: 0,
                what: "there is no such object, or not for writing",
            });
        };
        Ok(if writes { found.object.duplicate()? } else { found.object.read_only()? })
    }

    /// How many bytes are mapped at the moment.
    pub fn mapped_bytes(&self) -> usize {
        let objects = self.objects();
        let bytes = |object: &Announced| match object.is_mapped {
            true => object.object.len(),
            false => object.uses.len() * self.granule(),
        };
        objects.announced.values().map(bytes).sum()
    }

    fn granule(&self) -> usize {
        self.0.granules.size()
    }

    fn map_part(&self, start: usize, announced: &mut Announced, from: usize, to: usize) -> Result<()> {
        match self.0.mapping {
            Mapping::Cached if announced.is_mapped => {}
            Mapping::Cached => {
                self.show(start, &announced.object, 0, announced.object.len())?;
                announced.is_mapped = true;
            }
            Mapping::Transient => {
                let size = self.granule().max(announced.object.kind().size());
                for granule in from / size..to.div_ceil(size) {
                    let offset = granule * size;
                    if !announced.uses.contains_key(&offset) {
                        self.show(start, &announced.object, offset - start, size)?;
                    }
                    *announced.uses.entry(offset).or_default() += 1;
                }
            }
        }
        Ok(())
    }

    fn show(&self, start: usize, object: &Object, offset: usize, len: usize) -> Result<()> {
        let access = if object.is_writable() { Access::ReadWrite } else { Access::Read };
        Ok(self.0.arena.map_for(start + offset, object, offset, len, access)?)
    }

    fn unuse(&self, segments: &Segments) {
        let mut guard = self.objects();
        let objects = &mut guard.announced;
        for segment in segments {
            let from = segment.addr() - self.base();
            let mut at = from;
            while at < from + segment.len().max(1) {
                let Some((start, announced)) = objects.range_mut(..=at).next_back() else { break };
                let size = self.granule().max(announced.object.kind().size());
                let offset = at / size * size;
                if offset >= start + announced.object.len() {
                    break;
                }
                if let Some(uses) = announced.uses.get_mut(&offset) {
                    *uses -= 1;
                    if *uses == 0 {
                        announced.uses.remove(&offset);
                        // Where the kernel can't unmap, the granule stays mapped until it is used again.
                        let _ = self.0.arena.unmap(offset, size);
                    }
                }
                at = offset + size;
            }
        }
    }

    fn objects(&self) -> MutexGuard<'_, Objects> {
        self.0.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WeakMirror {
    /// Whether it is to this mirror.
    pub fn is(&self, mirror: &Mirror) -> bool {
        self.0.as_ptr() == Arc::as_ptr(&mirror.0)
    }
}

impl Mapped {
    /// The data, as this process sees it.
    pub fn segments(&self) -> &Segments {
        &self.segments
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        if self.mirror.0.mapping == Mapping::Transient {
            self.mirror.unuse(&self.segments);
        }
        // Release: what the request's server did there happens before the unmapping that sees zero.
        self.mirror.0.in_use.fetch_sub(1, Ordering::Release);
    }
}

/// Calls `part` with (object's start, from, to) for each announced object that holds a part of `extent`.
fn parts(
    objects: &BTreeMap<usize, Announced>,
    extent: Extent,
    writes: bool,
    mut part: impl FnMut(usize, usize, usize),
) -> Result<()> {
    let Extent { offset, len } = extent;
    let refuse = |what| Err(Error::Announced { start: offset, len, what });
    let Some(end) = offset.checked_add(len) else { return refuse("its end overflows") };
    let mut at = offset;
    while at < end {
        let Some((start, found)) = objects.range(..=at).next_back() else {
            return refuse("no object was announced there");
        };
        let stop = start + found.object.len();
        if at >= stop {
            return refuse("no object was announced there");
        }
        if writes && !found.object.is_writable() {
            return refuse("the object there was announced for reading only");
        }
        part(*start, at, stop.min(end));
        at = stop;
    }
    Ok(())
}
