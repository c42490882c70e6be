//! Fork: a child inherits no region, unless it is given a physical copy; where regions were, it has zeros.
//!
//! Why: objects are shared mappings; a child that inherited one would store into granules of its parent, even while output
//! from them is pending. So windows and aliases are not inherited (MADV_DONTFORK), and memory that a child must keep is
//! copied for it, as by the thesis's input-disabled copy-on-write. Elsewhere the child finds zeros of its own, so that
//! reading a buffer does not kill it. The space itself is of no use to the child: see
//! [`Space::is_inherited`](crate::Space::is_inherited).
//! Limits: those of [`genie_sys::fork`]. A child that was not made by the C library's `fork` has nothing where regions were.
//! Source: thesis §3.2.4.
#![allow(
    unsafe_code,
    reason = "moves private copies over the addresses at which a forked child expects its buffers"
)]

use std::mem::ManuallyDrop;

use crate::{Buffer, Result};

/// Physical copies of buffers, for one child to take over after a fork.
pub struct Inheritance {
    parts: Vec<Part>,
}

struct Part {
    /// Where the child will expect the bytes: whole pages around the buffer.
    to: usize,
    copy: *mut u8,
    len: usize,
}

const PAGE: usize = 4096;

impl Inheritance {
    /// Copies `buffers` as they are now. The program then forks; the child calls [`Inheritance::take_over`], and the
    /// parent drops its `Inheritance`.
    ///
    /// # Errors
    /// No memory for the copies.
    pub fn prepare(buffers: &[&Buffer]) -> Result<Self> {
        let parts = buffers.iter().map(|buffer| Part::copy(buffer)).collect::<Result<_>>()?;
        Ok(Self { parts })
    }

    /// Puts the copies at the buffers' addresses. Makes system calls and nothing else, so that it may be called between
    /// fork and exec of a process with several threads.
    ///
    /// # Errors
    /// The kernel's; buffers not yet taken over are zeros.
    ///
    /// # Safety
    /// The caller is a child of the process that prepared the copies, and has touched none of the buffers yet. The
    /// child never calls into the buffers' space, because it has no fault thread.
    pub unsafe fn take_over(mut self) -> Result<()> {
        // The copies are neither unmapped nor freed: the mappings move, and the allocator's locks may be held by threads
        // that the child does not have.
        let parts = ManuallyDrop::new(std::mem::take(&mut self.parts));
        for part in parts.iter() {
            let to = std::ptr::with_exposed_provenance_mut(part.to);
            // SAFETY: in the child nothing but zeros is mapped at the buffers' addresses (`genie_sys::fork`), to which the
            // caller uses no reference, and `copy` is a mapping of its own, made by `Part::copy`.
            unsafe { genie_sys::arena::move_private(part.copy, part.len, to) }?;
        }
        Ok(())
    }
}

impl Part {
    fn copy(buffer: &Buffer) -> Result<Self> {
        let addresses = buffer.addresses();
        let to = addresses.start & !(PAGE - 1);
        let len = addresses.end.next_multiple_of(PAGE) - to;
        let copy = genie_sys::arena::map_private(len)?;
        // SAFETY: a fresh private mapping of `len` bytes, which contains the buffer's place in its pages.
        let place = unsafe { std::slice::from_raw_parts_mut(copy.add(addresses.start - to), buffer.len()) };
        place.copy_from_slice(buffer);
        Ok(Self { to, copy, len })
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // SAFETY: made by `map_private` with this length, and not moved.
        unsafe { genie_sys::arena::unmap_private(self.copy, self.len) }
    }
}
