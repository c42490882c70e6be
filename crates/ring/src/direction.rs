//! Directions: the shared memory that one producer and one consumer work on, as atomics.
#![allow(
    unsafe_code,
    reason = "turns mapped or allocated memory into references to atomics, and keeps the memory for as long as they are"
)]
//!
//! Invariants: the pointers lie in `memory`, which is neither moved nor given up while a copy of the direction exists.
//! Trust: a peer stores what it likes at any moment. Behind the pointers there are only atomics, of which every bit
//! pattern is a valid value. So a peer's stores are no undefined behaviour here, and this file need not check them.

use std::any::Any;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::layout::{Control, Layout};
use crate::line::Line;

/// One direction of a channel. A copy names the same memory.
#[derive(Debug, Clone)]
pub(crate) struct Direction {
    layout: Layout,
    control: NonNull<Control>,
    lines: NonNull<[Line]>,
    area: NonNull<[Line]>,
    _memory: Arc<dyn Any + Send + Sync>,
}

// SAFETY: the pointers are only ever borrowed as `&Control` and `&[Line]`, which are made of atomics and may be shared;
// whichever thread owns the pointers also owns the memory that they point to.
unsafe impl Send for Direction {}
// SAFETY: as for Send; no method needs exclusive access.
unsafe impl Sync for Direction {}

impl Direction {
    /// The layout of the memory, which both directions share.
    #[inline]
    pub(crate) fn layout(&self) -> Layout {
        self.layout
    }

    #[inline]
    pub(crate) fn control(&self) -> &Control {
        // SAFETY: the module's invariant.
        unsafe { self.control.as_ref() }
    }

    /// The line that records at `position` use.
    #[inline]
    pub(crate) fn line(&self, position: u64) -> &Line {
        // SAFETY: the module's invariant.
        let lines = unsafe { self.lines.as_ref() };
        &lines[position as usize & (lines.len() - 1)]
    }

    /// Has the processor fetch a line, if it is not there, without waiting for it.
    #[inline]
    pub(crate) fn prefetch(&self, position: u64) {
        #[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: a hint, which loads nothing.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(self.line(position)).cast()) }
        }
    }

    /// The argument area; its lines have no headers.
    pub(crate) fn area(&self) -> &[Line] {
        // SAFETY: the module's invariant.
        unsafe { self.area.as_ref() }
    }
}

#[cfg(not(loom))]
mod mapped {
    use genie_sys::{Arena, Object};

    use super::*;
    use crate::error::Error;

    impl Direction {
        /// Maps a channel object: its two directions, requests first.
        pub(crate) fn map(object: &Object, layout: Layout) -> Result<[Self; 2], Error> {
            layout.check()?;
            let (found, needed) = (object.len(), layout.bytes());
            if found != needed {
                return Err(Error::Size { found, needed });
            }
            let arena = Arena::reserve(needed)?;
            arena.map(0, object, 0, needed)?;
            let arena = Arc::new(arena);
            Ok([0, layout.direction_bytes()].map(|start| Self::within(&arena, start, layout)))
        }

        /// The direction at `start` of an arena in which a whole object of this layout is mapped.
        fn within(arena: &Arc<Arena>, start: usize, layout: Layout) -> Self {
            let at = |offset, len| {
                // The object stays mapped as long as the arena exists, and the direction owns a share of the arena. The
                // only references there are those to atomics that a direction gives out.
                let span = arena.span(start + offset, len);
                let pointer = std::ptr::with_exposed_provenance_mut::<u8>(span.addr());
                NonNull::new(pointer).expect("no arena starts at address 0")
            };
            let lines = |offset: usize, len: usize| {
                let first = at(offset, len).cast::<Line>();
                NonNull::slice_from_raw_parts(first, len / size_of::<Line>())
            };
            Self {
                layout,
                control: at(0, size_of::<Control>()).cast(),
                lines: lines(layout.lines_offset(), layout.lines as usize * size_of::<Line>()),
                area: lines(layout.area_offset(), layout.area as usize),
                _memory: Arc::clone(arena) as _,
            }
        }
    }
}

/// A direction's parts in memory of this process alone.
struct Parts {
    control: Control,
    lines: Box<[Line]>,
    area: Box<[Line]>,
}

impl Direction {
    /// Takes memory of this process for a direction and fills lines and area, in this order, with the words of
    /// `image`, and the rest with zeros. The layout must have been checked.
    pub(crate) fn allocate(layout: Layout, image: &[u64]) -> Self {
        let mut words = image.iter().copied().chain(std::iter::repeat(0));
        let mut lines = |count| {
            (0..count).map(|_| Line::new(std::array::from_fn(|_| words.next().unwrap_or(0)))).collect()
        };
        let parts = Arc::new(Parts {
            lines: lines(layout.lines as usize),
            area: lines(layout.area as usize / crate::line::LINE),
            control: Control::new(),
        });
        Self {
            layout,
            control: NonNull::from(&parts.control),
            lines: NonNull::from(&*parts.lines),
            area: NonNull::from(&*parts.area),
            _memory: parts,
        }
    }
}
