//! Mirrors: another process's aliases, as this process maps them.
//!
//! Why: a server must reach what its clients' requests name, and nothing else. A peer names data by its place in its own
//! alias arena; here the same place of a mirrored arena shows the same granules.
//! How: the peer announces its memory objects, each with the place of its granules. A *cached* mirror maps an object when
//! a request first needs it and keeps it mapped; a *transient* one maps the granules of a request while it is served. The
//! mirror lies at the peer's own addresses where they are free here, so that a buffer has one address in all processes
//! (the thesis's transient virtual address).
//! Invariants: nothing but announced objects is ever shown; a read-only descriptor is mapped read-only.
//! Trust: places and lengths come from a peer, and are checked against the arena and against the announced objects. The
//! peer may change contents at any moment, and may punch holes: a load from where memory can't be had finds zeros, and
//! the mirror is broken from then on.
//! Source: thesis §5.1 (selective transient mapping), §3.1.1 (unmapped access). Differs: descriptors grant whole objects,
//! since Linux grants no less; cached is the default, since mapping costs more than the protection it could add.
//! Limits: the peer's [`Quota`] of addresses, reserved and mapped.

mod announced;
mod mapped;
mod quota;

use std::fmt;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use genie_sys::arena::Access;
use genie_sys::guard::{Guard, Replaces};
use genie_sys::lock::{Mutex, MutexGuard};
use genie_sys::{Arena, GranuleKind, Inode, Object, Span};
use smallvec::SmallVec;

use crate::backing::{MappedAt, Owner};
use crate::{Error, Result, backing};
use announced::{Announced, Objects};

pub use mapped::Mapped;
pub use quota::Quota;

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
    /// Bytes of addresses that the quota has been charged with.
    reserved: usize,
    granules: GranuleKind,
    mapping: Mapping,
    quota: Quota,
    /// Open as long as anybody here may touch the peer's memory; the peer sees it close.
    lifeline: OwnedFd,
    objects: Mutex<Objects>,
    /// How many [`Mapped`] there are or are being made.
    in_use: AtomicU32,
    /// Changes whenever an object is announced or withdrawn.
    version: AtomicU64,
    /// Dropped last, when nothing is mapped any more and the lifeline is closed.
    ties: Mutex<Vec<Box<dyn fmt::Debug + Send + Sync>>>,
}

/// A mirror, as long as others hold it.
#[derive(Debug, Clone)]
pub struct WeakMirror(Weak<Inner>);

/// What one thread knows of a mirror's mappings: (start, end, may be written), as of a version.
#[derive(Debug, Default)]
pub struct Known {
    version: u64,
    ranges: SmallVec<[(usize, usize, bool); 4]>,
}

impl Mirror {
    /// Reserves addresses for the aliases of a peer whose arena is `len` bytes long and starts at `base` there; nothing
    /// is mapped yet. `lifeline` is held open until the mirror is dropped.
    ///
    /// # Errors
    /// No arena has such lengths, the quota is too small, or the addresses cannot be had.
    pub fn new(
        base: usize,
        len: usize,
        granules: GranuleKind,
        mapping: Mapping,
        lifeline: OwnedFd,
        quota: &Quota,
    ) -> Result<Self> {
        if len == 0 || len > 1 << 46 || !len.is_multiple_of(granules.size()) {
            return Err(Error::Announced { start: base, len, what: "this is no arena of granules" });
        }
        quota.reserve(base, len)?;
        let reserved = Arena::reserve_at(base, len).and_then(|arena| match arena {
            Some(arena) => Ok(arena),
            None => Arena::reserve(len),
        });
        let guarded = reserved.and_then(|arena| Ok((arena.guard(Replaces::MissingAndDamaged)?, arena)));
        let (guard, arena) = guarded.inspect_err(|_| quota.release(len))?;
        let inner = Arc::new(Inner {
            guard,
            arena,
            reserved: len,
            granules,
            mapping,
            quota: quota.clone(),
            lifeline,
            objects: Mutex::default(),
            in_use: AtomicU32::new(0),
            version: AtomicU64::new(0),
            ties: Mutex::default(),
        });
        backing::enter(inner.arena.base(), &inner);
        Ok(Self(inner))
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

    /// The peer's lifeline, for another process that is to touch the peer's memory, too, and must hold the lifeline for
    /// that.
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

    /// Keeps `tie`, which depends on the peer's memory being mapped here, until the mirror is dropped. The thread that drops
    /// the mirror's last handle drops `tie`, too, whatever thread that is.
    pub fn tie(&self, tie: impl fmt::Debug + Send + Sync + 'static) {
        self.0.ties.lock().push(Box::new(tie));
    }

    /// Enters an object whose granules' aliases start at `start`. Announcing the same object at the same place again
    /// changes the rights to it.
    ///
    /// # Errors
    /// The object leaves the arena, is not aligned, or lies where another object does.
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
        let mut announced = Announced::new(id, object, self.0.granules, self.0.mapping);
        if let Some(before) = objects.remove(&start) {
            // A server that uses the mapped memory goes on; the rights change in place.
            announced.uses = before.uses;
            for at in announced.uses.keys() {
                self.show(start, &announced, announced.piece(start, *at))?;
            }
        }
        objects.insert(start, announced);
        self.0.version.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Forgets an object: requests may not name it any more. [`Mirror::sweep`] unmaps it. Returns whether there was one.
    ///
    /// # Errors
    /// The mirror is transient, and there is a [`Mapped`] of the object, so that nothing else may be mapped there.
    pub fn withdraw(&self, id: u64) -> Result<bool> {
        let mut guard = self.objects();
        let objects = &mut guard.announced;
        let Some((start, found)) = objects.iter().find(|(_, object)| object.id == id) else {
            return Ok(false);
        };
        let (start, len, mapped) = (*start, found.object.len(), found.mapped(*start));
        if self.0.mapping == Mapping::Transient && !found.uses.is_empty() {
            let what = "it is withdrawn, but requests that use it are being served";
            return Err(Error::Announced { start, len, what });
        }
        objects.remove(&start);
        guard.withdrawn.push((start, len, mapped));
        self.0.version.fetch_add(1, Ordering::Release);
        Ok(true)
    }

    /// Unmaps withdrawn objects, unless there is a [`Mapped`]. The caller makes sure that nobody uses memory from
    /// [`Mirror::span`] any more.
    ///
    /// # Errors
    /// The kernel can't unmap.
    pub fn sweep(&self) -> Result<()> {
        let mut guard = self.objects();
        let objects = &mut *guard;
        if self.0.in_use.load(Ordering::Acquire) > 0 {
            return Ok(());
        }
        while let Some((start, len, mapped)) = objects.withdrawn.pop() {
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
            self.0.quota.unmap(mapped);
        }
        Ok(())
    }

    /// Unmaps everything that a cached mirror keeps mapped, unless there is a [`Mapped`]: it is mapped again when a request
    /// needs it. The caller makes sure that nobody uses memory from [`Mirror::span`] any more.
    ///
    /// # Errors
    /// The kernel can't unmap.
    pub fn clear(&self) -> Result<()> {
        self.sweep()?;
        let mut guard = self.objects();
        if self.0.in_use.load(Ordering::Acquire) > 0 {
            return Ok(());
        }
        for (start, announced) in &mut guard.announced {
            while let Some((at, uses)) = announced.uses.pop_first() {
                let piece = announced.piece(*start, at);
                if let Err(error) = self.unmap(piece.start, piece.end) {
                    announced.uses.insert(at, uses);
                    return Err(error);
                }
                self.0.quota.unmap(piece.len());
            }
        }
        self.0.version.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// How many objects there are, including those that were withdrawn and are not unmapped yet.
    pub fn objects_count(&self) -> usize {
        let objects = self.objects();
        objects.announced.len() + objects.withdrawn.len()
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
        extents.iter().try_for_each(|extent| objects.parts(*extent, writes).map(drop))
    }

    /// Where `extent` is mapped, for stores, too, if `writes`. It stays mapped until its object is withdrawn and
    /// [`Mirror::sweep`] is called. The mapping is noted in `known`, so that the next look-up takes no lock.
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
            known.ranges.extend(self.shown_from(extent));
        }
        Ok(self.0.arena.span(extent.offset, extent.len))
    }

    /// The range of pieces that hold `extent`, as far as the object in which it begins reaches: (start, end, may be
    /// written).
    fn shown_from(&self, extent: Extent) -> Option<(usize, usize, bool)> {
        let objects = self.objects();
        let (start, found) = objects.holding(extent.offset)?;
        let last = (extent.offset + extent.len).min(start + found.object.len()).checked_sub(1)?;
        let (from, to) = (found.piece(start, extent.offset).start, found.piece(start, last).end);
        Some((from, to, found.object.is_writable()))
    }

    /// Whether memory that the peer had announced was lost when it was touched: the peer punched a hole, or the machine has
    /// reported damage.
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
        let (start, found) = objects.holding(offset)?;
        Some((found.id, start, found.object.len(), found.object.is_writable()))
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

    fn granule(&self) -> usize {
        self.0.granules.size()
    }

    fn show(&self, start: usize, announced: &Announced, piece: Range<usize>) -> Result<()> {
        let object = &announced.object;
        let access = if object.is_writable() { Access::ReadWrite } else { Access::Read };
        Ok(self.0.arena.map_for(piece.start, object, piece.start - start, piece.len(), access)?)
    }

    fn objects(&self) -> MutexGuard<'_, Objects> {
        self.0.objects.lock()
    }
}

impl WeakMirror {
    /// Whether this is a handle to `mirror`.
    pub fn is(&self, mirror: &Mirror) -> bool {
        self.0.as_ptr() == Arc::as_ptr(&mirror.0)
    }
}

impl Owner for Inner {
    fn mapped_at(&self, addr: usize) -> Option<MappedAt> {
        let at = self.arena.offset_of(addr)?;
        let objects = self.objects.lock();
        let (start, object) = objects.mapped_at(at)?;
        let offset = at - start;
        Some(MappedAt { inode: object.inode(), offset, rest: object.len() - offset })
    }

    fn share_at(&self, addr: usize, inode: Inode) -> Result<OwnedFd> {
        let objects = self.objects.lock();
        let found = self.arena.offset_of(addr).and_then(|at| objects.mapped_at(at));
        let found = found.filter(|(_, object)| object.inode() == inode);
        found.map_or(Err(Error::NoObject), |(_, object)| Ok(object.read_only()?))
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        backing::leave(self.arena.base());
        let objects = self.objects.get_mut();
        let withdrawn = objects.withdrawn.iter().map(|(_, _, mapped)| mapped);
        let announced = objects.announced.iter().map(|(start, object)| object.mapped(*start));
        self.quota.unmap(announced.sum::<usize>() + withdrawn.sum::<usize>());
        self.quota.release(self.reserved);
    }
}
