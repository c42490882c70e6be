//! A child made by fork has a copy of its parent's heap.
//!
//! Why: what the program allocates is its own, before fork and after. Objects are shared mappings, which a child must not
//! inherit (`fork.rs` of this crate), so native regions of the heap's space are copied for it.
//! How: before fork, the bytes of all native regions that were ever touched are copied to private memory, which the child
//! inherits. In the child, the copies are moved over the regions' addresses.
//! Cost: a copy of every large allocation at every `fork`, in the parent, about a second for 1 GiB, and as much memory for that
//! time. `vfork` and `posix_spawn`, by which `std::process::Command` starts most programs, call no handlers and copy nothing.
//! Limits: what other threads store while fork runs, the child may have or not. A child for which there is no memory ends at
//! once, with a message, since it would find zeros in its heap.
//! Source: thesis §3.2.4 (input-disabled copy-on-write).
#![allow(unsafe_code, reason = "moves private copies of regions over the regions' addresses, in a child")]

use std::cell::Cell;

use super::Inside;
use super::heap::Heap;
use crate::registrars::quiet;
use crate::space::Space;
use crate::tables::granule::runs_of;
use crate::{Result, aliases};

thread_local! {
    /// The copies for the child that this thread is about to make. It has no destructor, as `Inside` has none.
    static FOR_CHILD: Cell<*mut Copies> = const { Cell::new(std::ptr::null_mut()) };
}

/// Copies of regions; `None` if there was no memory for them.
struct Copies(Option<Vec<Copied>>);

/// Private memory with the bytes of one region.
struct Copied {
    to: usize,
    copy: *mut u8,
    len: usize,
}

/// Has `fork` copy the heap. Returns whether it will.
pub(super) fn prepare_for_children() -> bool {
    genie_sys::fork::on_fork(before, in_parent, in_child)
}

extern "C" fn before() {
    // The copies of a process that is a child itself are private memory, which its children inherit.
    let Some(heap) = Heap::get().filter(|heap| heap.is_own()) else { return };
    let _inside = Inside::enter();
    let copies = Box::new(Copies(heap.space().copy_native().ok()));
    FOR_CHILD.set(Box::into_raw(copies));
}

extern "C" fn in_parent() {
    let copies = FOR_CHILD.replace(std::ptr::null_mut());
    if copies.is_null() {
        return;
    }
    let _inside = Inside::enter();
    // SAFETY: made by `before` in this thread, of a box.
    drop(unsafe { Box::from_raw(copies) });
}

extern "C" fn in_child() {
    // The list is neither dropped nor freed: the mappings move.
    let copies = FOR_CHILD.replace(std::ptr::null_mut());
    // SAFETY: made by `before` in the thread that has forked, which is this one.
    let Some(Copies(copies)) = (unsafe { copies.as_ref() }) else { return };
    let moved = copies.as_ref().is_some_and(|copies| copies.iter().all(Copied::take_over));
    if !moved {
        genie_sys::fork::end_child("genie: no memory to copy the heap for a child made by fork\n");
    }
}

impl Copied {
    fn take_over(&self) -> bool {
        let to = std::ptr::with_exposed_provenance_mut(self.to);
        // SAFETY: fork has not returned; at the regions' addresses there is nothing but the child's own zeros, and `copy` is a
        // mapping that `copy_native` has made for this.
        unsafe { genie_sys::arena::move_private(self.copy, self.len, to) }.is_ok()
    }
}

impl Drop for Copied {
    fn drop(&mut self) {
        // SAFETY: made by `map_private` with this length, and not moved: a child drops none.
        unsafe { genie_sys::arena::unmap_private(self.copy, self.len) }
    }
}

impl Space {
    /// Copies all native regions, but those of blocks that are kept for reuse.
    fn copy_native(&self) -> Result<Vec<Copied>> {
        let _quiet = quiet();
        let core = self.core();
        let state = core.lock();
        let mut copies = Vec::new();
        for slots in state.native_in_use() {
            let (to, len) = (core.slot_addr(slots.start), core.bytes(slots.len));
            let copied = Copied { to, copy: genie_sys::arena::map_private(len)?, len };
            let mut at = 0;
            for run in runs_of(state.slots.granules(slots)) {
                for (offset, len) in state.objects.touched(core, run) {
                    // SAFETY: within the fresh private mapping, to which there is no other reference.
                    let place = unsafe { std::slice::from_raw_parts_mut(copied.copy.add(at + offset), len) };
                    aliases::part(core, run.start, offset, len).copy_to(place);
                }
                at += core.bytes(run.len);
            }
            copies.push(copied);
        }
        Ok(copies)
    }
}
