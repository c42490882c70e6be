//! Frames: system buffers of one length that lie in one memory object, one after the other, for whoever registers that object with the
//! kernel or a device.
//!
//! Why: as [`Frames`] says.
//! How: the object is lent by a lender of its own, whose pool is *fixed*. The client's granules that change places with a frame's are then
//! the space's own. The frame's go home, wherever they were freed.
//! Invariants: a region with granules of a frame is not kept for reuse, and no buffer of another pool keeps one.
//! Trust: the crates above show no server in another process a page of a frame ([`Reference::is_framed`](crate::Reference::is_framed)).
//! Source: thesis §6.1 (pooled in-host buffering). Differs: there, the client's pages refill the pool.

use std::ops::Range;
use std::sync::Arc;

use genie_sys::Object;

use crate::space::Space;
use crate::system::SystemBuffer;
use crate::tables::lent_objects::Origin;
use crate::tables::runs::Run;
use crate::{Error, LenderId, Result, SharedObject};

/// A memory object that is divided into frames, made by [`Space::make_frames`] or, of an object that is there, by [`Space::frames`].
/// Dropping it ends the pool; the object stays until all buffers are dropped and clients have let all of its memory go.
///
/// Why: a UMEM of AF_XDP, registered buffers of io_uring and the rings of devices want all buffers in one object, at places that do not
/// change. By page swapping, the pages of a pool of any other kind change places with clients'.
///
/// Shape: a frame's granules may become a client's by a swap like any others, and the frame is away until the client has let all of
/// them go. No other granule takes their place, so a frame is whole and where it was, or away.
///
/// Trust: whoever has the object registered or mapped sees what a client stores into a page that it got from a frame, and can change it,
/// as a lender can.
///
/// Limits: only frames whose length is a multiple of the granule size are swapped; others share granules, and are copied. The memory
/// does not count towards the space's limit.
#[derive(Debug)]
pub struct Frames {
    /// The space of the frames' granules alone.
    space: Space,
    lender: LenderId,
    /// The object's.
    granules: Run,
    stride: usize,
    /// All frames, until they are taken.
    buffers: Vec<SystemBuffer>,
}

impl Space {
    /// Makes an object of `count` frames of `stride` bytes each, of the granules whose size divides the stride, if there are such.
    ///
    /// # Errors
    /// [`Error::Empty`] for no frames, [`Error::Room`] where no more can be lent, or the kernel's reason.
    ///
    /// # Cost
    /// All of the memory is taken now.
    pub fn make_frames(&self, stride: usize, count: usize) -> Result<Frames> {
        let core = self.for_stride(stride).core();
        core.ensure_own()?;
        let len = stride.saturating_mul(count).checked_next_multiple_of(core.granule()).unwrap_or(usize::MAX);
        if len == 0 {
            return Err(Error::Empty);
        }
        if len > core.aliases().len() {
            return Err(core.lock().no_room(core, len));
        }
        let (best, others) = core.kinds().split_first().expect("a space's granules are of some kind");
        let made = Object::create(*best, len);
        let made = others.iter().fold(made, |made, kind| made.or_else(|_| Object::create(*kind, len)));
        self.take_in_frames(made?, stride)
    }

    /// Does what [`Space::frames`] says.
    pub(crate) fn take_in_frames(&self, object: Object, stride: usize) -> Result<Frames> {
        let count = object.len().checked_div(stride).unwrap_or(0);
        if count == 0 {
            return Err(Error::Empty);
        }
        let fits = |space: &&Self| {
            object.kind().size() <= space.granule() && object.len().is_multiple_of(space.granule())
        };
        let space = Some(self.for_stride(stride)).filter(fits).or_else(|| self.each().find(fits));
        let space = space.unwrap_or(self).alone();
        let (core, lender) = (space.core(), space.add_lender());
        let len = object.len();
        // Removes the lender where something fails.
        let mut frames =
            Frames { space: space.clone(), lender, granules: Run::default(), stride, buffers: Vec::new() };
        core.ensure_own()?;
        core.lock().granules.stocks.fix(lender);
        core.take_in_lent(lender, object, Origin::Frames)?;
        frames.granules = core.lock().granules.lent_objects.of(lender)[0];
        frames.buffers = if stride.is_multiple_of(core.granule()) {
            (0..count).filter_map(|index| frames.take_back(index)).collect()
        } else {
            let all = frames.take(frames.granules, len).map(Arc::new);
            let part = |index: usize| Some(SystemBuffer::part_of(all.as_ref()?, index * stride, stride));
            (0..count).filter_map(part).collect()
        };
        Ok(frames)
    }

    /// The space, of this one and its small one, whose granules frames of this length consist of, if there is one.
    fn for_stride(&self, stride: usize) -> &Self {
        let divides = |space: &&Self| stride.is_multiple_of(space.granule());
        self.each().find(divides).or(self.small()).unwrap_or(self)
    }
}

impl Frames {
    /// All frames, in order, the first time that this is called.
    pub fn buffers(&mut self) -> Vec<SystemBuffer> {
        std::mem::take(&mut self.buffers)
    }

    /// A frame whose buffer was dropped, if all of its memory is here again.
    ///
    /// # Cost
    /// The space's lock, and a look at each of its granules.
    pub fn take_back(&self, index: usize) -> Option<SystemBuffer> {
        let each = self.space.core().granules(0, self.stride);
        if !self.is_swapped() || index >= (self.granules.len / each) as usize {
            return None;
        }
        let start = self.granules.start + index as u32 * each;
        self.take(Run { start, len: each }, self.stride)
    }

    fn take(&self, run: Run, len: usize) -> Option<SystemBuffer> {
        let core = self.space.core();
        core.ensure_own().ok()?;
        let whole = core.lock().take_frame(self.lender, run)?;
        Some(SystemBuffer::of_whole(&self.space, self.lender, whole, len))
    }

    /// Whether frames consist of whole granules, and so can be swapped.
    pub fn is_swapped(&self) -> bool {
        self.stride.is_multiple_of(self.space.granule())
    }

    /// How long each is.
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// The space of their granules.
    pub fn space(&self) -> &Space {
        &self.space
    }

    /// The object, in which the frames lie from its beginning on; none in a child made by fork. [`Frames::space`] has its descriptor:
    /// [`Space::share_writable`] makes the one that a device needs.
    pub fn object(&self) -> Option<SharedObject> {
        self.space.object_at(self.addresses().start - self.space.aliases_base())
    }

    /// The addresses of the whole object, one frame after the other, to be registered with the kernel or a device. They keep no memory:
    /// frames that are away are clients' memory, and when the frames are dropped, other memory may come to lie there.
    pub fn addresses(&self) -> Range<usize> {
        let core = self.space.core();
        let start = core.aliases().base() + core.alias_offset(self.granules.start);
        start..start + core.bytes(self.granules.len)
    }
}

impl Drop for Frames {
    fn drop(&mut self) {
        self.buffers.clear();
        self.space.remove_lender(self.lender);
    }
}
