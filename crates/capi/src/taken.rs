//! Overlay buffers that are out of their pools.

use genie_passing::Overlay;

use crate::shown::Shown;
use crate::types::{Segment, io_overlay_t};

/// An overlay buffer that is out of its pool, or a part of one.
#[repr(C)]
#[derive(Debug)]
pub struct OverlayBuffer {
    /// Its name, by which it is overlaid or given back; never given twice.
    pub overlay: io_overlay_t,
    /// Its bytes, of whose values nothing is known: they may be other clients'.
    pub length: usize,
    /// Where the bytes of a frame begin in the memory of io_pool_memory; SIZE_MAX if the buffer is no frame.
    pub place: usize,
    /// How many segments the bytes lie in.
    pub segc: usize,
    /// The segments. They stay where they are until the buffer is given back, cut, or made a part; and if it is overlaid, until that request is
    /// replied to.
    pub segv: *const Segment,
}

/// An overlay buffer that the program has.
#[derive(Debug)]
pub(crate) struct Taken {
    /// None only while it is divided.
    overlay: Option<Overlay>,
    shown: Shown,
}

impl Taken {
    pub(crate) fn new(overlay: Overlay) -> Self {
        let shown = Shown::new(overlay.data().segments());
        Self { overlay: Some(overlay), shown }
    }

    pub(crate) fn len(&self) -> usize {
        self.overlay.as_ref().map_or(0, Overlay::len)
    }

    /// What the program is told of it.
    pub(crate) fn told(&self, overlay: io_overlay_t) -> OverlayBuffer {
        OverlayBuffer {
            overlay,
            length: self.len(),
            place: self.overlay.as_ref().and_then(Overlay::place).unwrap_or(usize::MAX),
            segc: self.shown.count(),
            segv: self.shown.first(),
        }
    }

    /// Makes it what `act` makes of it, beside something else.
    pub(crate) fn divide<T>(&mut self, act: impl FnOnce(Overlay) -> (Overlay, T)) -> Option<T> {
        let (part, other) = act(self.overlay.take()?);
        *self = Self::new(part);
        Some(other)
    }

    /// What is passed, and what the program was shown of it.
    pub(crate) fn into_parts(self) -> (Option<Overlay>, Shown) {
        (self.overlay, self.shown)
    }
}
