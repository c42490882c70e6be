//! Copying: bytes from one place to another; long copies use the processor's string instruction.
//!
//! Why: the lines that are copied to here were, as a rule, last read by another processor, which will read them again. An
//! ordinary store into such a line first fetches the line and waits for it, although all of it is about to be overwritten.
//! `rep movsb` says beforehand how much will be stored, so processors with fast string moves only invalidate the other
//! copies of a line. The C library knows the instruction, but not what a copy is for: depending on its version, the
//! processor and the cache sizes, it uses the instruction for the longest copies only, for copies below the size of a cache,
//! or for none.
//! How: up to 63 bytes are copied first, so that the rest is stored from a line's start on; some processors are many
//! times slower otherwise. Then one instruction copies the rest. It can be interrupted by a fault in the middle and goes
//! on.
//! Limits: x86-64 processors that report fast string moves (ERMS), copies from [`LONG`] on. All other copies go to the C
//! library, and so do all copies under Miri and the sanitizers (`cfg(sanitized)`), which don't see what the instruction
//! does.
#![allow(
    unsafe_code,
    reason = "copies between addresses that the caller vouches for, by an instruction that Rust has no name for"
)]

/// From this length on the string instruction is used: in shorter copies its start-up cost may show.
pub(crate) const LONG: usize = 4 << 10;

/// Copies `len` bytes; the two places may overlap.
///
/// # Safety
/// As [`std::ptr::copy`], except that others may store meanwhile: that makes the copied bytes unpredictable, but is no
/// undefined behaviour.
#[inline]
pub(crate) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    if len >= LONG && string::is_fast() && from.addr().abs_diff(to.addr()) >= len {
        // SAFETY: by this function's contract; the places are as far apart as they are long, and there are `LONG` bytes.
        unsafe { string::copy(from, to, len) }
    } else {
        // SAFETY: by this function's contract.
        unsafe { std::ptr::copy(from, to, len) }
        settle(to);
    }
}

/// Keeps the compiler from loading from the source in place of the copy: by now, the source may hold other bytes.
#[inline(always)]
fn settle(copied: *mut u8) {
    #[cfg(not(miri))]
    // SAFETY: no instruction; for all that the compiler knows, it has changed the bytes.
    unsafe {
        std::arch::asm!("/* {0} */", in(reg) copied, options(nostack, preserves_flags));
    }
    #[cfg(miri)]
    let _ = copied;
}

#[cfg(all(target_arch = "x86_64", not(miri), not(sanitized)))]
mod string {
    /// A cache line.
    const LINE: usize = 64;

    /// Whether the processor has fast string moves.
    pub(super) fn is_fast() -> bool {
        std::arch::is_x86_feature_detected!("ermsb")
    }

    /// Copies `len` bytes, at least [`LINE`].
    ///
    /// # Safety
    /// As [`std::ptr::copy_nonoverlapping`].
    pub(super) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
        let head = to.align_offset(LINE);
        // SAFETY: the head is shorter than a line, and so shorter than `len`. The instruction stores to the `len - head`
        // bytes behind it, and changes no more than the three registers: Rust keeps the direction flag clear.
        unsafe {
            std::ptr::copy_nonoverlapping(from, to, head);
            std::arch::asm!(
                "rep movsb",
                inout("rcx") len - head => _,
                inout("rsi") from.add(head) => _,
                inout("rdi") to.add(head) => _,
                options(nostack, preserves_flags),
            );
        }
    }
}

#[cfg(not(all(target_arch = "x86_64", not(miri), not(sanitized))))]
mod string {
    pub(super) fn is_fast() -> bool {
        false
    }

    pub(super) unsafe fn copy(_from: *const u8, _to: *mut u8, _len: usize) {
        unreachable!("nothing is fast here");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that differ from their neighbours, and from those a page or a line further on.
    fn pattern(len: usize) -> Vec<u8> {
        (0..len).map(|at| (at ^ at >> 6 ^ at >> 12).wrapping_mul(167) as u8).collect()
    }

    /// Copies with every alignment of interest, and looks at the bytes around, too.
    fn copies_exactly(len: usize, copy: unsafe fn(*const u8, *mut u8, usize)) {
        let from = pattern(len + 128);
        for (skip, at) in [(0, 0), (1, 0), (0, 1), (63, 64), (64, 63), (17, 49)] {
            let mut to = vec![0xaa; len + 128];
            let (head, rest) = to.split_at_mut(at);
            let (here, tail) = rest.split_at_mut(len);
            // SAFETY: `skip + len` bytes are there, and `len` of them from `at` on.
            unsafe { copy(from[skip..].as_ptr(), here.as_mut_ptr(), len) };
            assert!(here == &from[skip..skip + len], "{len} bytes from {skip} to {at}");
            assert!(head.iter().chain(&*tail).all(|byte| *byte == 0xaa), "{len} bytes from {skip} to {at}");
        }
    }

    #[test]
    fn copies_of_any_length_are_exact() {
        for len in [0, 1, 100, LONG - 1, LONG, LONG + 1, 3 * LONG + 77, (1 << 20) + 5] {
            copies_exactly(len, copy);
        }
    }

    #[test]
    fn the_string_instruction_copies_exactly() {
        if !string::is_fast() {
            return crate::skip::skip(
                "the_string_instruction_copies_exactly",
                "the processor has no fast string moves, or the sanitizers are to see copies",
            );
        }
        for len in [64, 65, 127, 4096, LONG + 1, (1 << 20) + 5] {
            copies_exactly(len, string::copy);
        }
    }

    #[test]
    fn places_that_overlap_are_copied_as_if_by_way_of_a_third() {
        for distance in [1, 64, 1000, LONG, 2 * LONG] {
            let len = 2 * LONG;
            let before = pattern(len + distance);
            let mut bytes = before.clone();
            let start = bytes.as_mut_ptr();
            // SAFETY: both places are inside the vector.
            unsafe { copy(start, start.add(distance), len) };
            assert!(bytes[distance..] == before[..len], "{distance} up");
            bytes.copy_from_slice(&before);
            let start = bytes.as_mut_ptr();
            // SAFETY: as above.
            unsafe { copy(start.add(distance), start, len) };
            assert!(bytes[..len] == before[distance..], "{distance} down");
        }
    }
}
