//! Overlay buffers: a device's or server's own buffers, into which input goes before, or without, being asked for.
//!
//! How: as [`Overlays`] says.
//! Invariants: a granule that two parts in use share stays where it is; so do the addresses of a part's data, until that part is
//! passed.
//! Source: thesis §6.1 (pooled in-host buffering), §7.4.3, table 7.3; §4.1 for preferred alignment and length.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use genie_memory::{DataMut, Frames, Part, Segments, Space, SystemBuffer, TellLater, part};
use genie_sys::lock::{Mutex, MutexGuard};
use smallvec::SmallVec;

use crate::recorder::Watch;
use crate::{Recorder, Result};

/// How many frames that are away a delivery looks for at most, where no more may go away.
const LOOKS: usize = 8;

/// A pool of overlay buffers: a device's or server's own, which it fills before it is asked for the data, and then passes in place of
/// memory that is made for the request (`Incoming::overlay`).
///
/// Shape: a fixed number of buffers of one length and one offset in their granules, that of headers which stay in front, say. Data that came in
/// several buffers, packet by packet, is passed as a [`Chain`]. A buffer with data for several requests is [cut](Overlay::cut). It
/// returns to its pool with the last of its parts, when that part's request is over.
///
/// Semantics: by all schemes but copy, data changes places with a client's buffer of the same offset if it is long enough for that to pay,
/// and otherwise is copied; [`Overlays::preferred`] is what a server tells its clients of this. A client of another space than the pool's, and
/// any client in another process, gets a copy: pages are passed within one space's tables only. Where buffers have to stay at their
/// places in one memory object, they are [`Frames`] ([`Overlays::framed`]).
///
/// Limits: when all buffers are in use, [`Overlays::allocate`] returns none, and the owner must wait or drop data.
///
/// # Examples
/// ```
/// # mod genie { pub mod mechanism { pub use genie_passing::*; } }
/// use genie::mechanism::{Layout, Overlays, Passing};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let passing = Passing::open(&Default::default())?; // a program has an interface, and its `space()`
/// let frames = passing.space().make_frames(8192, 4)?;
/// let overlays = Overlays::framed(frames, Layout { headroom: 256, len: 6000, away: 2 });
/// let packet = overlays.allocate().expect("no other frame is in use");
/// let at = packet.place().expect("it is a frame"); // a device stores this far into the object
/// assert_eq!(at % 8192, 256);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Overlays {
    pool: Arc<Pool>,
    offset: usize,
    len: usize,
    recorder: Option<&'static Recorder>,
}

/// How data lies in frames ([`Overlays::framed`]), and how many of these clients may have.
///
/// A frame whose granules were swapped is *away* until the client has let go of them, as when it frees its buffer, or gets the next input
/// there; it is then taken back, at the same place in the object. Choose fewer `away` than there are frames, so that the device has some.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// How many bytes lie in front of it, for the frame's owner alone.
    pub headroom: usize,
    /// Its length. What is left of the frame behind it is the owner's alone, too.
    pub len: usize,
    /// How many frames clients may have at a time, in place of their own memory; data in others is copied then
    /// ([`Reason::Irreplaceable`](crate::Reason::Irreplaceable)).
    pub away: usize,
}

#[derive(Debug)]
struct Pool {
    space: Space,
    lists: Mutex<Lists>,
    framed: Option<(Frames, Layout)>,
}

/// A pool's buffers; those of a pool of frames by the frames' numbers.
#[derive(Debug)]
struct Lists {
    free: Vec<(usize, SystemBuffer)>,
    /// Frames that may have been swapped, and are in use no more.
    away: VecDeque<usize>,
    /// How many may have been swapped, and were not found here again.
    left: usize,
}

/// One overlay buffer, or the part of it that holds data; dropping it, and all other parts of it, returns it to its pool.
#[derive(Debug)]
pub struct Overlay {
    /// None only while it is dropped.
    taken: Option<Arc<Taken>>,
    /// The part that is passed.
    range: Range<usize>,
    /// How long taking it from the pool took, where that is recorded.
    allocation: Option<u64>,
}

/// A buffer out of its pool.
#[derive(Debug)]
struct Taken {
    pool: Overlays,
    space: Space,
    /// Which frame it is.
    index: usize,
    shared: Mutex<Shared>,
}

/// What the parts of a buffer share.
#[derive(Debug)]
struct Shared {
    buffer: SystemBuffer,
    /// Whether granules of it, which is a frame, may have been swapped.
    has_left: bool,
    /// Those in use.
    parts: SmallVec<[Range<usize>; 1]>,
}

/// Overlay buffers that make up one element of an input: the data of the first, then that of the second, and so on.
///
/// Shape: the parts may be of any lengths, begin anywhere in their buffers, and come from several pools. A part's granules are
/// swapped where they lie in its buffer as they are to lie in the client's; a granule of the client's that several parts share
/// is swapped with the one that has the most data there, and what the others have there is copied. What else is in these granules
/// is zeroed, unless it makes room for the client's own bytes.
#[derive(Debug, Default)]
pub struct Chain(SmallVec<[Overlay; 1]>);

/// How a client should lay out input buffers, so that a server's data can be swapped in: [`Preferred::header`] bytes, then
/// [`Preferred::len`] bytes of data that start [`Preferred::offset`] bytes into a granule, then [`Preferred::trailer`] bytes, and so on
/// for as much as is to come. A client that has other use for headers and trailers than for data makes elements of their own for them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Preferred {
    /// Where data starts in its first granule.
    pub offset: usize,
    /// How much data comes at once: of a network, what a packet holds besides its header and its trailer.
    pub len: usize,
    /// How many bytes come in front of the data each time, and are passed to the client; 0 where the server takes headers off.
    pub header: usize,
    /// How many bytes come behind the data each time, in the same way.
    pub trailer: usize,
}

impl Overlays {
    /// Reserves `count` buffers of `len` bytes that start `offset` bytes into their first granule.
    ///
    /// # Errors
    /// No memory.
    pub fn reserve(space: &Space, offset: usize, len: usize, count: usize) -> Result<Self> {
        let buffers: genie_memory::Result<_> =
            (0..count).map(|_| space.aligned_buffer(offset, len)).collect();
        Ok(Self::of(space.clone(), buffers?, None, offset, len))
    }

    /// A pool of all frames that have not been taken yet.
    ///
    /// # Panics
    /// When headroom and data are longer than a frame.
    pub fn framed(mut frames: Frames, layout: Layout) -> Self {
        let Layout { headroom, len, .. } = layout;
        let fits = headroom.checked_add(len).is_some_and(|end| end <= frames.stride());
        assert!(
            fits,
            "{len} bytes of data behind {headroom} of headroom do not fit in frames of {} bytes",
            frames.stride()
        );
        let space = frames.space().clone();
        let offset = if frames.is_swapped() { headroom % space.granule() } else { 0 };
        Self::of(space, frames.buffers(), Some((frames, layout)), offset, len)
    }

    fn of(
        space: Space,
        buffers: Vec<SystemBuffer>,
        framed: Option<(Frames, Layout)>,
        offset: usize,
        len: usize,
    ) -> Self {
        let free = buffers.into_iter().enumerate().collect();
        let lists = Mutex::new(Lists { free, away: VecDeque::new(), left: 0 });
        Self { pool: Arc::new(Pool { space, lists, framed }), offset, len, recorder: None }
    }

    /// The addresses of all frames, one after the other: see [`Frames::addresses`].
    pub fn addresses(&self) -> Option<Range<usize>> {
        self.pool.framed.as_ref().map(|(frames, _)| frames.addresses())
    }

    /// Has the time of each allocation recorded, with the input that the buffer is overlaid on.
    #[must_use]
    pub fn with_recorder(mut self, recorder: &'static Recorder) -> Self {
        self.recorder = Some(recorder);
        self
    }

    /// Takes the buffer that was returned last, if one is free.
    pub fn allocate(&self) -> Option<Overlay> {
        let mut watch = Watch::start(self.recorder);
        let (index, buffer) = self.pool.take()?;
        let start = self.pool.framed.as_ref().map_or(0, |(_, layout)| layout.headroom);
        let (range, space) = (start..start + self.len, buffer.space().clone());
        let parts = SmallVec::from_iter([range.clone()]);
        let shared = Mutex::new(Shared { buffer, has_left: false, parts });
        let taken = Some(Arc::new(Taken { pool: self.clone(), space, index, shared }));
        Some(Overlay { taken, range, allocation: watch.lap() })
    }

    /// The layout that lets clients receive without copying.
    pub fn preferred(&self) -> Preferred {
        Preferred { offset: self.offset, len: self.len, ..Preferred::default() }
    }

    /// How many buffers are free. Frames that clients have let go are looked for. In a child made by fork, it may be none.
    pub fn free(&self) -> usize {
        let _later = TellLater::begin();
        let Some(mut lists) = self.pool.lists() else { return 0 };
        for _ in 0..lists.away.len() {
            self.pool.look(&mut lists, 1);
        }
        lists.free.len()
    }
}

impl Pool {
    /// The lists; in a child made by fork, none if a thread of the parent's held the lock.
    fn lists(&self) -> Option<MutexGuard<'_, Lists>> {
        if self.space.is_inherited() { self.lists.try_lock() } else { Some(self.lists.lock()) }
    }

    /// Takes a buffer that is free; where there is none, a frame that a client has let go.
    fn take(&self) -> Option<(usize, SystemBuffer)> {
        let free = self.lists()?.free.pop();
        if free.is_some() {
            return free;
        }
        let _later = TellLater::begin();
        let mut lists = self.lists()?;
        let away = lists.away.len();
        self.look(&mut lists, away);
        lists.free.pop()
    }

    /// Looks for a frame that is here again, among `most` of those that are away, the one that has been looked for longest ago first.
    fn look(&self, lists: &mut Lists, most: usize) -> bool {
        let Some((frames, _)) = &self.framed else { return false };
        for _ in 0..most {
            let Some(index) = lists.away.pop_front() else { return false };
            if let Some(buffer) = frames.take_back(index) {
                lists.free.push((index, buffer));
                lists.left -= 1;
                return true;
            }
            lists.away.push_back(index);
        }
        false
    }

    /// Counts one more frame as away, if one more may be.
    fn let_leave(&self, most: usize) -> bool {
        let mut lists = self.lists.lock();
        let may = lists.left < most || self.look(&mut lists, LOOKS);
        lists.left += usize::from(may);
        may
    }
}

impl Overlay {
    /// Narrows the buffer to a part of it, which is all that is passed: what came without a packet's header, say. The client is
    /// shown nothing else of it.
    ///
    /// # Panics
    /// When the part leaves the buffer.
    #[must_use]
    pub fn part(mut self, part: Range<usize>) -> Self {
        assert!(
            part.start <= part.end && part.end <= self.len(),
            "bytes {part:?} of an overlay buffer of {}",
            self.len()
        );
        let narrowed = self.range.start + part.start..self.range.start + part.end;
        self.become_parts([narrowed.clone()]);
        self.range = narrowed;
        self
    }

    /// Cuts it in two, the first `at` bytes and the rest, for different elements or requests.
    ///
    /// Shape: a granule that both share is copied for the part that is passed while the other is in use, and may be swapped for
    /// the other. No client is shown bytes of the other part.
    ///
    /// # Panics
    /// When it has fewer bytes.
    #[must_use]
    pub fn cut(mut self, at: usize) -> (Self, Self) {
        assert!(at <= self.len(), "an overlay buffer of {} bytes was to be cut at {at}", self.len());
        let middle = self.range.start + at;
        let (first, rest) = (self.range.start..middle, middle..self.range.end);
        self.become_parts([first.clone(), rest.clone()]);
        self.range = first;
        let rest = Self { taken: self.taken.clone(), range: rest, allocation: None };
        (self, rest)
    }

    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// Whether it holds no bytes.
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// Where its bytes begin in the memory object of its pool; none if that is no pool of frames.
    pub fn place(&self) -> Option<usize> {
        let taken = self.taken();
        let (frames, _) = taken.pool.pool.framed.as_ref()?;
        Some(taken.index * frames.stride() + self.range.start)
    }

    /// Whether its granules may be swapped: those of a frame may not where too many are away.
    pub(crate) fn may_leave(&self) -> bool {
        let taken = self.taken();
        let Some((_, Layout { away, .. })) = &taken.pool.pool.framed else { return true };
        let _later = TellLater::begin();
        let mut shared = taken.shared.lock();
        shared.has_left = shared.has_left || taken.pool.pool.let_leave(*away);
        shared.has_left
    }

    fn taken(&self) -> &Taken {
        self.taken.as_ref().expect("taken only when it is dropped")
    }

    /// What all parts share; in a child made by fork, none if a thread of the parent's held the lock.
    fn shared(&self) -> Option<MutexGuard<'_, Shared>> {
        let taken = self.taken();
        if taken.space.is_inherited() { taken.shared.try_lock() } else { Some(taken.shared.lock()) }
    }

    /// Where the bytes are.
    pub(crate) fn segments(&self) -> Segments {
        let of = |shared: MutexGuard<'_, Shared>| part(&shared.buffer.segments(), self.range.clone());
        self.shared().map_or_else(Segments::new, of)
    }

    /// Where the bytes in front of these are, in a frame of which nothing else is in use.
    pub(crate) fn segments_in_front(&self) -> Segments {
        let is_framed = self.taken().pool.pool.framed.is_some();
        let shared = self.shared().filter(|shared| is_framed && shared.parts.len() == 1);
        shared.map_or_else(Segments::new, |shared| part(&shared.buffer.segments(), 0..self.range.start))
    }

    /// Calls `act` with the buffer, which is locked meanwhile: `act` must not store into client memory, where it could wait for an
    /// output of another part. The granules that this part shares with another one must stay. Never in a child made by fork.
    pub(crate) fn with<R>(&self, act: impl FnOnce(&mut SystemBuffer) -> R) -> R {
        // A registrar's call may drop another part.
        let _later = TellLater::begin();
        act(&mut self.taken().shared.lock().buffer)
    }

    /// Puts other parts on record in place of this one.
    fn become_parts<const N: usize>(&self, others: [Range<usize>; N]) {
        let Some(mut shared) = self.shared() else { return };
        if let Some(index) = shared.parts.iter().position(|part| *part == self.range) {
            shared.parts.swap_remove(index);
        }
        shared.parts.extend(others);
    }

    /// Leaves out of the granules that the `len` bytes from `from` on are to swap what this part shares with another one: the first granule, or the last.
    pub(crate) fn leave_shared(&self, swaps: &mut Range<u32>, Part { from, len, .. }: Part) {
        let shared = self.taken().shared.lock();
        let (granule, offset) =
            (shared.buffer.space().granule(), shared.buffer.alignment().unwrap_or_default());
        let of = |byte: usize| (offset + byte) / granule;
        let others = || shared.parts.iter().filter(|other| **other != self.range && !other.is_empty());
        let is_shared =
            |number: usize| others().any(|other| (of(other.start)..=of(other.end - 1)).contains(&number));
        let (first, last) = (of(from), of(from + len - 1));
        let count = (last - first) as u32;
        if is_shared(first) {
            swaps.start = swaps.start.max(1);
        }
        if is_shared(last) {
            swaps.end = swaps.end.min(count);
        }
        swaps.end = swaps.end.max(swaps.start);
    }
}

impl Chain {
    /// Adds the buffer that holds the data behind what there is already.
    pub fn push(&mut self, later: Overlay) {
        self.0.push(later);
    }

    /// The data, for the buffers' owner to fill.
    pub fn data(&self) -> DataMut<'_> {
        let mut all = DataMut::default();
        self.0.iter().for_each(|overlay| all.append(overlay.data()));
        all
    }

    /// The number of bytes.
    pub fn len(&self) -> usize {
        self.0.iter().map(Overlay::len).sum()
    }

    /// Whether it holds no bytes.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(Overlay::is_empty)
    }

    pub(crate) fn segments(&self) -> Segments {
        self.data().segments().clone()
    }

    /// How long taking the buffers from their pools took, where that is recorded.
    pub(crate) fn allocation(&self) -> Option<u64> {
        self.0.iter().filter_map(|overlay| overlay.allocation).reduce(|all, more| all + more)
    }

    /// Whether its pages can be passed to a client of `space`.
    pub(crate) fn is_of(&self, space: &Space) -> bool {
        self.0.iter().all(|overlay| overlay.taken().space.is(space))
    }

    /// Its only buffer, if the data begins where that buffer does, and nothing else in that is in use.
    pub(crate) fn whole_mut(&mut self) -> Option<&mut SystemBuffer> {
        match &mut self.0[..] {
            [Overlay { taken: Some(taken), range, .. }]
                if range.start == 0 && taken.pool.pool.framed.is_none() =>
            {
                Arc::get_mut(taken).map(|taken| &mut taken.shared.get_mut().buffer)
            }
            _ => None,
        }
    }

    /// The buffers that hold the first `actual` bytes, with their parts of these.
    pub(crate) fn parts(&self, actual: usize) -> impl Iterator<Item = (Part, &Overlay)> {
        let mut at = 0;
        self.0.iter().filter_map(move |overlay| {
            let len = overlay.len().min(actual - at);
            let part = Part { from: overlay.range.start, at, len };
            at += len;
            (len > 0).then_some((part, overlay))
        })
    }
}

impl From<Overlay> for Chain {
    fn from(overlay: Overlay) -> Self {
        Self::from_iter([overlay])
    }
}

impl FromIterator<Overlay> for Chain {
    fn from_iter<I: IntoIterator<Item = Overlay>>(overlays: I) -> Self {
        Self(overlays.into_iter().collect())
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        let Some(taken) = &self.taken else { return };
        // In a child made by fork, the locks may be held by a thread of its parent's.
        if taken.space.is_inherited() {
            return;
        }
        self.become_parts([]);
        let Some(Taken { pool, index, shared, .. }) = self.taken.take().and_then(Arc::into_inner) else {
            return;
        };
        let Shared { mut buffer, has_left, .. } = shared.into_inner();
        if has_left {
            // What is here of the frame goes home, and what has come in its place goes to the client's space.
            drop(buffer);
            pool.pool.lists.lock().away.push_back(index);
            return;
        }
        // A buffer whose granules became a client's region is refilled; where there is no memory for that, the pool has
        // one buffer less.
        if buffer.is_empty() && pool.len > 0 && buffer.refill(pool.len).is_err() {
            return;
        }
        pool.pool.lists.lock().free.push((index, buffer));
    }
}
