#![allow(unsafe_code, reason = "maps only where the kernel has found that nothing is mapped")]
//! Arenas at addresses that another process has chosen.
//!
//! Why: a system buffer that has one address in all processes can hold pointers (thesis §5.1, TVA).
//! Trust: a peer chooses the address and the length. It gets addresses that are free, but never those that the first
//! thread's stack may still grow to: a process whose stack grows into a mapping crashes.
//! Source: thesis §5.1. Differs: the address is equal where it is free; no part of the address space is set apart for
//! system buffers here.

use std::ops::Range;

use rustix::process::Resource;

use super::{ALIGN, Arena};
use crate::mmap::{self, RESERVED};
use crate::{Errno, Error, Result, inspect};

/// How far a stack without a limit is taken to grow.
const UNLIMITED_STACK: usize = 1 << 30;
/// What the kernel leaves free below a stack (its stack_guard_gap), generously.
const STACK_GAP: usize = 2 << 20;

impl Arena {
    /// Reserves `len` bytes of addresses from `addr` on. Returns none if that cannot be done: `addr` is not aligned to
    /// 2 MiB, something is mapped there, the first thread's stack may grow there, or no process may have these
    /// addresses.
    ///
    /// # Errors
    /// What reading /proc/self/maps fails with.
    #[doc(alias = "MAP_FIXED_NOREPLACE")]
    pub fn reserve_at(addr: usize, len: usize) -> Result<Option<Self>> {
        let Some(range) = aligned(addr, len) else { return Ok(None) };
        if overlap(&range, &stack_room()?) {
            return Ok(None);
        }
        let (at, flags) = (std::ptr::without_provenance_mut(addr), RESERVED | libc::MAP_FIXED_NOREPLACE);
        // SAFETY: MAP_FIXED_NOREPLACE maps where nothing is mapped, or nowhere.
        match unsafe { mmap::map(at, range.len(), libc::PROT_NONE, flags, None) } {
            Ok(start) => {
                let reservation = (start.expose_provenance(), range.len());
                Ok(Some(Self::of_reservation(addr, range.len(), reservation)))
            }
            Err(Errno::EXIST | Errno::NOMEM | Errno::PERM | Errno::INVAL) => Ok(None),
            Err(errno) => Err(Error::new("mmap", format!("{len} bytes of addresses at {addr:#x}"), errno)),
        }
    }
}

/// The addresses, if they are aligned and their end fits a `usize`.
fn aligned(addr: usize, len: usize) -> Option<Range<usize>> {
    let end = addr.checked_add(len.checked_next_multiple_of(ALIGN)?)?;
    (addr.is_multiple_of(ALIGN) && addr > 0 && len > 0).then_some(addr..end)
}

/// Where the first thread's stack is, and where it may grow to. Other threads' stacks do not grow.
fn stack_room() -> Result<Range<usize>> {
    let limit = rustix::process::getrlimit(Resource::Stack).current;
    let limit = limit.map_or(UNLIMITED_STACK, |limit| limit.min(UNLIMITED_STACK as u64) as usize);
    let stack = inspect::mapping_named("[stack]")?.unwrap_or(0..0);
    let start = stack.start.min(stack.end.saturating_sub(limit));
    Ok(start.saturating_sub(STACK_GAP)..stack.end)
}

fn overlap(one: &Range<usize>, other: &Range<usize>) -> bool {
    one.start < other.end && other.start < one.end
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn free_addresses_are_had_and_taken_ones_are_not() {
        let first = Arena::reserve(64 * MIB).unwrap();
        let (base, len) = (first.base(), first.len());
        assert!(Arena::reserve_at(base, len).unwrap().is_none());
        assert!(Arena::reserve_at(base + len - 2 * MIB, len).unwrap().is_none(), "a part is taken");
        drop(first);
        // Other tests map memory meanwhile, where the kernel first finds room.
        let free = base - (64 << 30);
        let arena = Arena::reserve_at(free, 3 * MIB).unwrap().expect("nothing is mapped there");
        assert_eq!((arena.base(), arena.len()), (free, 4 * MIB));
        let mapping = crate::proc::mapping_at(free).unwrap();
        assert_eq!((mapping.start, mapping.end), (free, free + 4 * MIB));
        assert!(mapping.has_flag("dc"), "no child inherits it");
        drop(arena);
        assert!(crate::proc::mapping_at(free).is_none());
    }

    #[test]
    fn addresses_that_no_process_has_are_refused() {
        let hostile = [
            (0, 2 * MIB),
            (4096, 2 * MIB),
            (1 << 40 | 4096, 2 * MIB),
            (1 << 40, 0),
            (1 << 40, usize::MAX),
            (1 << 40, usize::MAX - (1 << 40) + 1),
            ((1 << 47) - 2 * MIB, 4 * MIB),
            (1 << 62, 2 * MIB),
            (usize::MAX - 2 * MIB + 1, 2 * MIB),
        ];
        for (addr, len) in hostile {
            assert!(Arena::reserve_at(addr, len).unwrap().is_none(), "{len:#x} bytes at {addr:#x}");
        }
    }

    #[test]
    fn a_stack_keeps_the_room_to_grow() {
        let stack = inspect::mapping_named("[stack]").unwrap().expect("the first thread has a stack");
        let below = (stack.start - 2 * MIB) / ALIGN * ALIGN;
        assert!(crate::proc::mapping_at(below).is_none(), "it is free");
        assert!(Arena::reserve_at(below, 2 * MIB).unwrap().is_none());
    }
}
