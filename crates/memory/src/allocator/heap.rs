//! The one space of the program's large allocations.
//!
//! How: it is made by the first large allocation that a thread makes outside Genie's memory code. Nobody waits for that: what
//! other threads allocate meanwhile is the system's, and so is everything if it cannot be made.
//! Invariants: it lasts until the process ends, and its addresses with it.

use std::alloc::Layout;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use genie_sys::{GranuleKind, inspect, machine};

use super::blocks::{Bounds, Taken};
use super::{Allocator, Inside, fork};
use crate::space::Space;
use crate::{Config, Granularity};

static HEAP: OnceLock<Heap> = OnceLock::new();
/// Whether a thread makes the heap, or has made it, or could not. So no thread ever waits at `HEAP`.
static IS_BEGUN: AtomicBool = AtomicBool::new(false);

/// The most bytes of freed blocks that are kept, and the part of the usable memory that they may be.
const KEPT: usize = 1 << 30;
const KEPT_PART: u64 = 16;

pub(super) struct Heap {
    space: Space,
    bounds: Bounds,
}

impl Heap {
    /// The heap, if it was made.
    #[inline]
    pub(super) fn get() -> Option<&'static Self> {
        HEAP.get()
    }

    /// The heap, which is made now if nobody has begun to make it.
    pub(super) fn get_or_make(allocator: &Allocator) -> Option<&'static Self> {
        Self::get().or_else(|| Self::make(allocator))
    }

    #[cold]
    fn make(allocator: &Allocator) -> Option<&'static Self> {
        if IS_BEGUN.swap(true, Ordering::Relaxed) {
            return None;
        }
        let _inside = Inside::enter();
        let heap = Self::new(allocator)?;
        let is_ready = fork::prepare_for_children();
        if is_ready { Some(HEAP.get_or_init(|| heap)) } else { None }
    }

    fn new(allocator: &Allocator) -> Option<Self> {
        // Huge pages are set aside for each object.
        if allocator.granules != GranuleKind::Huge && inspect::is_overcommit_forbidden() {
            return None;
        }
        // The space's own objects, which hold everything but blocks, are of the best pages there are. Only blocks are of huge
        // pages or not at all: the system has memory for the others.
        let config = Config {
            granularity: Granularity::Best,
            // Blocks take memory where they are touched, as other allocations do; this is for their addresses.
            limit: machine::total_memory() as usize / 2,
            kernel_never_stores: allocator.kernel_never_stores,
            ..Config::default()
        };
        let space = Space::without_objects(&config, allocator.granules).ok()?;
        let core = space.core();
        let mappings = inspect::max_map_count().unwrap_or(usize::MAX);
        let lent = core.aliases().len() - core.limit();
        let kept = KEPT.min((machine::usable_memory() / KEPT_PART) as usize);
        let bounds = Bounds {
            objects: (machine::descriptors_max() / 2).min(mappings / 8),
            left: core.granules(0, lent / 8),
            kept: core.granules(0, kept),
            keeps_shown: allocator.keeps_shown,
        };
        Some(Self { space, bounds })
    }

    pub(super) fn space(&self) -> &Space {
        &self.space
    }

    /// Whether an address is a block's.
    #[inline]
    pub(super) fn holds(&self, addr: usize) -> bool {
        self.space.may_hold(addr)
    }

    /// Whether this process has made the heap. A child made by fork has copies of its blocks.
    pub(super) fn is_own(&self) -> bool {
        !self.space.is_inherited()
    }

    /// Allocates a block.
    pub(super) fn take(&self, layout: Layout) -> Option<Taken> {
        let fits = layout.align() <= GranuleKind::Huge.size();
        if fits { self.space.take_block(&self.bounds, layout.size(), layout.align()) } else { None }
    }

    /// Frees a block.
    pub(super) fn give(&self, addr: usize, layout: Layout) {
        if self.is_own() {
            return self.space.give_block(&self.bounds, addr);
        }
        let core = self.space.core();
        let whole = layout.size().next_multiple_of(core.granule());
        // Memory that cannot be freed is the child's until it ends.
        let _ = core.windows.free_private(addr - core.windows.base(), whole);
    }

    /// Changes a block's length without copying, where that can be done; returns its new address.
    pub(super) fn resize(&self, addr: usize, layout: Layout, len: usize) -> Option<usize> {
        if !self.is_own() {
            return None;
        }
        self.space.resize_block(&self.bounds, addr, len, layout.align())
    }
}
