//! The allocator: a program's large allocations, of whatever library, in regions of one space.
//!
//! Why: data is passed without copying from and to regions only, and most data is in memory that some library has allocated
//! with `Vec` or the like. A program that makes [`Allocator`] its global allocator has all of that in regions.
//!
//! ```text
//!   alloc(length) --- shorter than the threshold --------------------------> the system's allocator
//!        |                                                                       ^
//!        +-- longer: inside Genie? no memory, descriptor, mapping? --- yes ------+
//!                    | no
//!                    v
//!        a block: a region of the heap's space, in memory objects of its own (blocks.rs)
//! ```
//!
//! How:
//! - *Which space.* One for the process, made by the first large allocation (`heap.rs`). `Interface::open` opens its interface
//!   over that space. A block is granules and nothing else: what the system's allocator would keep beside it is in the space's
//!   tables.
//! - *Which way.* A length below the threshold says that memory is the system's, when it is freed, too: `realloc` across the
//!   threshold copies. Above it, the address tells, since all windows are in one range.
//! - *No recursion.* A thread that holds the lock of a space, makes the heap or serves faults is *inside*, and counts that in a
//!   thread-local number (`inside.rs`). What it allocates is the system's. What it frees must be, too; the tables that a lock
//!   guards are allocated under that lock. In a debug build, freeing a block inside is a panic; otherwise the block is lost.
//! - *Whole objects.* A server is shown whole objects. So a block shares none, and a freed block that a server in another
//!   process was shown is given back to the kernel, unless the program has said [`Allocator::keep_shown`].
//! - *Pending requests.* A freed block's granules that a request still references are freed with the last reference.
//! - *Growth.* A block that grows gets an object more, and its page tables move if its addresses cannot be extended.
//! - *Fork.* A child has copies of all blocks (`fork.rs`). New allocations of the child's are the system's.
//! - *Shortage.* Half of the descriptors that the process may have, and an eighth of the mappings, are the most that blocks
//!   take. Where these, addresses or memory run short, memory is the system's: nothing aborts. Where memory must not be
//!   overcommitted, all of it is, since the kernel promises objects none.
//!
//! Limits: pages of blocks change under inputs and replacements, so memory that was registered with a device or with io_uring
//! must not be passed. After an input by page swapping, a block consists of granules of the server's pool, and that
//! server has the block's object in its pool; after a store that replaces a granule under output, of granules of the space's
//! common objects. Alignments beyond 2 MiB are the system's. Under Miri everything is.
//! Source: thesis §1.1.1 (regions), §3.2.2, §3.3.1; a departure from the thesis, whose native buffers are any memory.

mod blocks;
mod fork;
mod heap;
mod inside;

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;

use genie_sys::GranuleKind;

use crate::space::Space;
use heap::Heap;
pub(crate) use inside::Inside;

/// From this length on, allocations are blocks by default.
const THRESHOLD: usize = 256 << 10;
/// The greatest threshold.
const THRESHOLD_MAX: usize = 64 << 20;

/// A global allocator whose large allocations are regions, so that every large `Vec`, `String` or image can be passed without
/// copying; small ones are [`System`]'s.
///
/// ```
/// #[global_allocator]
/// static ALLOCATOR: genie_memory::Allocator = genie_memory::Allocator::new();
///
/// let vec = vec![7u8; 4 << 20];
/// let space = genie_memory::Allocator::space().expect("a space of the process");
/// assert!(space.region_at(vec.as_ptr().addr(), vec.len()).is_some());
/// ```
///
/// # Cost
/// A small allocation costs a comparison more. A large one costs a lock, or, if no freed one of about its length is kept,
/// some system calls and the kernel's page faults; of freed ones, a sixteenth of the memory that the process may use is kept, at most 1 GiB. Each large allocation has one
/// descriptor and two mappings, or more after it has grown; `fork` copies them all.
#[derive(Debug)]
pub struct Allocator {
    threshold: usize,
    granules: GranuleKind,
    keeps_shown: bool,
    kernel_never_stores: bool,
}

impl Allocator {
    /// Blocks of 4 KiB granules, from 256 KiB on.
    pub const fn new() -> Self {
        Self {
            threshold: THRESHOLD,
            granules: GranuleKind::Base,
            keeps_shown: false,
            kernel_never_stores: false,
        }
    }

    /// Makes blocks of allocations of `len` bytes or more; at least a granule, and at most 64 MiB.
    #[must_use]
    pub const fn threshold(mut self, len: usize) -> Self {
        self.threshold = if len < 4096 { 4096 } else { len };
        if self.threshold > THRESHOLD_MAX {
            self.threshold = THRESHOLD_MAX;
        }
        self
    }

    /// Makes blocks of granules of this kind. With [`GranuleKind::Huge`], a block takes whole pages of 2 MiB of the machine's
    /// reserve, and where the reserve is empty, memory is the system's; what else the space has is then of collapsed pages.
    #[must_use]
    pub const fn granules(mut self, kind: GranuleKind) -> Self {
        self.granules = kind;
        self
    }

    /// Keeps freed blocks for reuse although servers in other processes were shown them. Such a server can then read what is
    /// next allocated there, so this is for programs that trust their servers with all of their large data. Passing new
    /// allocations again and again takes much less time.
    #[must_use]
    pub const fn keep_shown(mut self) -> Self {
        self.keeps_shown = true;
        self
    }

    /// Promises what [`Config::kernel_never_stores`](crate::Config::kernel_never_stores) promises, for all blocks.
    #[must_use]
    pub const fn kernel_never_stores(mut self) -> Self {
        self.kernel_never_stores = true;
        self
    }

    /// The space in which the process's large allocations are. None if the program has another global allocator, or the space
    /// could not be made; in a child made by fork, none of its own.
    pub fn space() -> Option<Space> {
        if Heap::get().is_none() {
            // An allocation shows whether `Allocator` is the global one, and makes the space if it is; where there is no memory
            // for it, there is none for the space.
            let _ = black_box(Vec::<u8>::new().try_reserve_exact(THRESHOLD_MAX));
        }
        Heap::get().filter(|heap| heap.is_own()).map(|heap| heap.space().clone())
    }

    /// The heap, if an allocation of this length may be in it.
    #[inline]
    fn heap_for(&self, len: usize) -> Option<&'static Heap> {
        if cfg!(miri) || len < self.threshold { None } else { self.heap_outside() }
    }

    fn heap_outside(&self) -> Option<&'static Heap> {
        if Inside::is_here() { None } else { Heap::get_or_make(self).filter(|heap| heap.is_own()) }
    }

    /// The heap, if the memory of an allocation is in it.
    #[inline]
    fn heap_of(&self, memory: *mut u8, layout: Layout) -> Option<&'static Heap> {
        if layout.size() < self.threshold {
            None
        } else {
            Heap::get().filter(|heap| heap.holds(memory.addr()))
        }
    }

    /// Copies an allocation into a new one.
    ///
    /// # Safety
    /// As for [`GlobalAlloc::realloc`].
    #[allow(unsafe_code, reason = "part of the implementation of an unsafe trait")]
    unsafe fn copy_over(&self, memory: *mut u8, layout: Layout, len: usize) -> *mut u8 {
        // SAFETY: the caller's promise; a new allocation overlaps no other one.
        unsafe {
            let new = self.alloc(Layout::from_size_align_unchecked(len, layout.align()));
            if !new.is_null() {
                new.copy_from_nonoverlapping(memory, layout.size().min(len));
                self.dealloc(memory, layout);
            }
            new
        }
    }
}

impl Default for Allocator {
    fn default() -> Self {
        Self::new()
    }
}

// SAFETY: a block's window is mapped, and nobody else's, from its allocation until it is freed (`views.rs`), and is at least
// as long and as aligned as was asked for; all else is `System`'s. `heap_of` tells the two apart: blocks are never shorter than
// the threshold, and nothing but blocks and buffers of the heap's space is in its windows.
#[allow(unsafe_code, reason = "the trait of global allocators is unsafe")]
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match self.heap_for(layout.size()).and_then(|heap| heap.take(layout)) {
            Some(taken) => std::ptr::with_exposed_provenance_mut(taken.addr),
            // SAFETY: the caller's promise.
            None => unsafe { System.alloc(layout) },
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let Some(taken) = self.heap_for(layout.size()).and_then(|heap| heap.take(layout)) else {
            // SAFETY: the caller's promise.
            return unsafe { System.alloc_zeroed(layout) };
        };
        let memory: *mut u8 = std::ptr::with_exposed_provenance_mut(taken.addr);
        if !taken.is_zero {
            // SAFETY: the new block is at least as long.
            unsafe { memory.write_bytes(0, layout.size()) };
        }
        memory
    }

    #[inline]
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        match self.heap_of(memory, layout) {
            // SAFETY: the caller's promise; it was `System` that allocated this.
            None => unsafe { System.dealloc(memory, layout) },
            Some(_) if Inside::is_here() => debug_assert!(false, "a block is freed by Genie's memory code"),
            Some(heap) => heap.give(memory.expose_provenance(), layout),
        }
    }

    #[inline]
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, len: usize) -> *mut u8 {
        let heap = self.heap_of(memory, layout);
        if heap.is_none() && self.heap_for(len).is_none() {
            // SAFETY: the caller's promise; it was `System` that allocated this.
            return unsafe { System.realloc(memory, layout, len) };
        }
        let heap = heap.filter(|_| len >= self.threshold && !Inside::is_here());
        match heap.and_then(|heap| heap.resize(memory.expose_provenance(), layout, len)) {
            Some(addr) => std::ptr::with_exposed_provenance_mut(addr),
            // SAFETY: the caller's promise.
            None => unsafe { self.copy_over(memory, layout, len) },
        }
    }
}

#[cfg(test)]
#[allow(unsafe_code, reason = "calls the allocator by hand")]
mod tests {
    use super::*;

    #[test]
    fn memory_keeps_its_bytes_when_it_becomes_a_block_and_back() {
        let allocator = Allocator::new().threshold(4096);
        let layout = |len| Layout::from_size_align(len, 16).expect("a layout");
        let nth = |at: usize| (at % 251) as u8;
        let mut len = 1000;
        // SAFETY: no layout is empty; memory is used, and freed, within its layout.
        unsafe {
            let mut memory = allocator.alloc(layout(len));
            (0..len).for_each(|at| memory.add(at).write(nth(at)));
            for next in [5_000, 13_000, 6_000, 4_500, 500] {
                memory = allocator.realloc(memory, layout(len), next);
                assert_eq!(memory.addr() % 16, 0);
                assert!((0..len.min(next)).all(|at| memory.add(at).read() == nth(at)), "{len} to {next}");
                (len..next).for_each(|at| memory.add(at).write(nth(at)));
                len = next;
                let is_block = Heap::get().is_some_and(|heap| heap.holds(memory.addr()));
                assert_eq!(is_block, len > 4096 && !cfg!(miri), "{len} bytes");
            }
            allocator.dealloc(memory, layout(len));
        }
    }
}
