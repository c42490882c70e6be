//! Copying by assembly on x86-64: by moves of a size that fits, by a loop, or by the processor's string instruction.
//!
//! How: up to 128 bytes are loaded whole, by moves that overlap in the middle, and then stored: no loop, and the places may
//! overlap. Longer copies are a loop over lines. Long copies are one string instruction, after up to 63 bytes, so that the
//! rest is stored from a line's start on; some processors are many times slower otherwise. It can be interrupted by a fault
//! in the middle and goes on.
//! Why the string instruction: the lines that are copied to here were, as a rule, last read by another processor, which will
//! read them again. An ordinary store into such a line first fetches the line and waits for it, although all of it is about
//! to be overwritten. `rep movsb` says beforehand how much will be stored, so processors with fast string moves only
//! invalidate the other copies of a line.
//! Limits: the string instruction is used on processors that report fast string moves (ERMS), for copies from [`LONG`] on,
//! and not where the target is less than a line ahead of the source modulo 4 KiB ([`is_close_behind`]).
#![allow(unsafe_code, reason = "loads from and stores to addresses that the caller vouches for")]

use std::arch::asm;
use std::arch::x86_64::__m128i;

use super::Line;

/// From this length on the string instruction is used: in shorter copies its start-up cost may show.
pub(super) const LONG: usize = 4 << 10;

/// A cache line.
const LINE: usize = size_of::<Line>();

/// Copies `len` bytes; the two places may overlap.
///
/// # Safety
/// As [`std::ptr::copy`], except that others may load and store meanwhile.
#[inline]
pub(crate) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: by this function's contract; the moves for each length cover `len` bytes, and no more.
    unsafe {
        match len {
            129.. => copy_long(from, to, len),
            65.. => copy_ends::<4>(from, to, len),
            33.. => copy_ends::<2>(from, to, len),
            17.. => copy_ends::<1>(from, to, len),
            8.. => {
                let (head, tail) = (load_word(from), load_word(from.add(len - 8)));
                store_word(to, head);
                store_word(to.add(len - 8), tail);
            }
            4.. => {
                let (head, tail) = (load_half(from), load_half(from.add(len - 4)));
                store_half(to, head);
                store_half(to.add(len - 4), tail);
            }
            1.. => {
                let (head, middle, tail) =
                    (load_byte(from), load_byte(from.add(len / 2)), load_byte(from.add(len - 1)));
                store_byte(to, head);
                store_byte(to.add(len / 2), middle);
                store_byte(to.add(len - 1), tail);
            }
            0 => {}
        }
    }
}

/// Copies bytes that nobody stores into to `to`.
///
/// # Safety
/// `to` is as for [`copy`], and there are as many bytes.
#[inline]
pub(crate) unsafe fn copy_in(bytes: &[u8], to: *mut u8) {
    // SAFETY: by this function's contract.
    unsafe { copy(bytes.as_ptr(), to, bytes.len()) }
}

/// Stores `value` into `len` bytes.
///
/// # Safety
/// As for [`copy`]'s target.
#[inline]
pub(crate) unsafe fn fill(to: *mut u8, value: u8, len: usize) {
    // SAFETY: by this function's contract; the two stores of each size cover `len` bytes, and no more.
    unsafe {
        match len {
            129.. => fill_long(to, value, len),
            65.. => fill_ends::<4>(to, value, len),
            33.. => fill_ends::<2>(to, value, len),
            17.. => fill_ends::<1>(to, value, len),
            8.. => {
                let words = u64::from_ne_bytes([value; 8]);
                store_word(to, words);
                store_word(to.add(len - 8), words);
            }
            _ => (0..len).for_each(|at| store_byte(to.add(at), value)),
        }
    }
}

/// Loads a line from any address.
///
/// # Safety
/// As for [`copy`]'s source.
#[inline(always)]
pub(crate) unsafe fn load_line(at: *const u8) -> Line {
    // SAFETY: by this function's contract; any bytes are words.
    unsafe { std::mem::transmute::<[__m128i; 4], Line>(load(at)) }
}

/// Copies the first and the last N times 16 bytes, having loaded both.
#[inline(always)]
unsafe fn copy_ends<const N: usize>(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the caller's places are at least N times 16 bytes long.
    unsafe {
        let (head, tail) = (load::<N>(from), load::<N>(from.add(len - 16 * N)));
        store(to, head);
        store(to.add(len - 16 * N), tail);
    }
}

#[inline(always)]
unsafe fn fill_ends<const N: usize>(to: *mut u8, value: u8, len: usize) {
    // SAFETY: the caller's place is at least N times 16 bytes long; any bytes are a vector.
    unsafe {
        let values = [std::mem::transmute::<[u8; 16], __m128i>([value; 16]); N];
        store(to, values);
        store(to.add(len - 16 * N), values);
    }
}

#[inline(never)]
unsafe fn copy_long(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: by the contract of `copy`; there are more than 128 bytes, and each of these is called where it may be.
    unsafe {
        if from.addr().abs_diff(to.addr()) < len {
            match to.addr() < from.addr() {
                true => copy_upwards(from, to, len),
                false => copy_downwards(from, to, len),
            }
        } else if len >= LONG && has_fast_strings() && !is_close_behind(from, to) {
            copy_string(from, to, len);
        } else if std::arch::is_x86_feature_detected!("avx") {
            copy_wide(from, to, len);
        } else {
            copy_upwards(from, to, len);
        }
    }
}

#[inline(never)]
unsafe fn fill_long(to: *mut u8, value: u8, len: usize) {
    // SAFETY: by the contract of `fill`; there are more than 128 bytes.
    unsafe {
        if len >= LONG && has_fast_strings() {
            fill_string(to, value, len);
        } else if std::arch::is_x86_feature_detected!("avx") {
            fill_wide(to, value, len);
        } else {
            (0..len - LINE).step_by(LINE).for_each(|at| fill_ends::<4>(to.add(at), value, LINE));
            fill_ends::<4>(to, value, len);
        }
    }
}

/// Whether the processor has fast string moves.
fn has_fast_strings() -> bool {
    std::arch::is_x86_feature_detected!("ermsb")
}

/// Whether the target is less than a line ahead of the source, whatever their pages: processors compare only the low twelve
/// bits when they look whether a load has to wait for a store before it, and the string instruction is then tens of times
/// slower.
fn is_close_behind(from: *const u8, to: *mut u8) -> bool {
    (1..LINE).contains(&(to.addr().wrapping_sub(from.addr()) % 4096))
}

/// Copies more than a line, from the first byte to the last: right where the target is before the source, or apart from it.
unsafe fn copy_upwards(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: inside the caller's places. Where they overlap, a line is stored before the place from which the next one is
    // loaded, and the last bytes were loaded first.
    unsafe {
        let tail = load::<4>(from.add(len - LINE));
        (0..len - LINE).step_by(LINE).for_each(|at| store(to.add(at), load::<4>(from.add(at))));
        store(to.add(len - LINE), tail);
    }
}

/// Copies more than a line, from the last byte to the first: right where the target is behind the source.
unsafe fn copy_downwards(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: as above, the other way round.
    unsafe {
        let head = load::<4>(from);
        let last = (len - 1) % LINE + 1;
        (last..=len - LINE).rev().step_by(LINE).for_each(|at| store(to.add(at), load::<4>(from.add(at))));
        store(to, head);
    }
}

/// Copies more than 128 bytes to a place that is apart from theirs, by the wide registers that the processor has.
unsafe fn copy_wide(from: *const u8, to: *mut u8, len: usize) {
    let end = to.wrapping_add(len - 2 * LINE);
    // SAFETY: the loop copies two lines at a time while more than two are left, at least once, and the last two lines are copied
    // on their own. Each load and store is inside the caller's places. The processor has the wide registers, as the caller has
    // found, and all of them count as changed.
    unsafe {
        asm!(
            "2:",
            "vmovdqu ymm0, [rsi]",
            "vmovdqu ymm1, [rsi + 32]",
            "vmovdqu ymm2, [rsi + 64]",
            "vmovdqu ymm3, [rsi + 96]",
            "vmovdqu [rdi], ymm0",
            "vmovdqu [rdi + 32], ymm1",
            "vmovdqu [rdi + 64], ymm2",
            "vmovdqu [rdi + 96], ymm3",
            "add rsi, 128",
            "add rdi, 128",
            "cmp rdi, rdx",
            "jb 2b",
            "sub rsi, rdi",
            "vmovdqu ymm0, [rsi + rdx]",
            "vmovdqu ymm1, [rsi + rdx + 32]",
            "vmovdqu ymm2, [rsi + rdx + 64]",
            "vmovdqu ymm3, [rsi + rdx + 96]",
            "vmovdqu [rdx], ymm0",
            "vmovdqu [rdx + 32], ymm1",
            "vmovdqu [rdx + 64], ymm2",
            "vmovdqu [rdx + 96], ymm3",
            "vzeroupper",
            inout("rsi") from => _,
            inout("rdi") to => _,
            inout("rdx") end => _,
            clobber_abi("sysv64"),
            options(nostack),
        );
    }
}

/// Fills more than 128 bytes by the wide registers that the processor has.
unsafe fn fill_wide(to: *mut u8, value: u8, len: usize) {
    let end = to.wrapping_add(len - 2 * LINE);
    // SAFETY: as in `copy_wide`, without loads; any bytes are a vector.
    unsafe {
        asm!(
            "vinsertf128 ymm0, ymm0, xmm0, 1",
            "2:",
            "vmovdqu [rdi], ymm0",
            "vmovdqu [rdi + 32], ymm0",
            "vmovdqu [rdi + 64], ymm0",
            "vmovdqu [rdi + 96], ymm0",
            "add rdi, 128",
            "cmp rdi, rdx",
            "jb 2b",
            "vmovdqu [rdx], ymm0",
            "vmovdqu [rdx + 32], ymm0",
            "vmovdqu [rdx + 64], ymm0",
            "vmovdqu [rdx + 96], ymm0",
            "vzeroupper",
            inout("xmm0") std::mem::transmute::<[u8; 16], __m128i>([value; 16]) => _,
            inout("rdi") to => _,
            in("rdx") end,
            clobber_abi("sysv64"),
            options(nostack),
        );
    }
}

/// Copies at least a line to a place that is apart from its own.
unsafe fn copy_string(from: *const u8, to: *mut u8, len: usize) {
    let head = to.addr().wrapping_neg() % LINE;
    // SAFETY: the head is shorter than a line, and so shorter than `len`; the line stored for it is copied again. The
    // instruction stores to the `len - head` bytes behind it, and changes no more than the three registers: Rust keeps the
    // direction flag clear.
    unsafe {
        store(to, load::<4>(from));
        asm!(
            "rep movsb",
            inout("rcx") len - head => _,
            inout("rsi") from.add(head) => _,
            inout("rdi") to.add(head) => _,
            options(nostack, preserves_flags),
        );
    }
}

/// Fills at least a line.
unsafe fn fill_string(to: *mut u8, value: u8, len: usize) {
    let head = to.addr().wrapping_neg() % LINE;
    // SAFETY: as in `copy_string`.
    unsafe {
        fill_ends::<4>(to, value, LINE);
        asm!(
            "rep stosb",
            inout("rcx") len - head => _,
            inout("rdi") to.add(head) => _,
            in("al") value,
            options(nostack, preserves_flags),
        );
    }
}

#[inline(always)]
unsafe fn load<const N: usize>(at: *const u8) -> [__m128i; N] {
    std::array::from_fn(|index| {
        let vector;
        // SAFETY: loads 16 bytes that the caller vouches for into a register, and does nothing else.
        unsafe {
            asm!("movdqu {}, [{}]", out(xmm_reg) vector, in(reg) at.add(16 * index), options(readonly, nostack, preserves_flags));
        }
        vector
    })
}

#[inline(always)]
unsafe fn store<const N: usize>(at: *mut u8, vectors: [__m128i; N]) {
    for (index, vector) in vectors.into_iter().enumerate() {
        // SAFETY: stores to 16 bytes that the caller vouches for.
        unsafe {
            asm!("movdqu [{}], {}", in(reg) at.add(16 * index), in(xmm_reg) vector, options(nostack, preserves_flags));
        }
    }
}

/// Functions that load and store a value by one instruction each.
macro_rules! moves {
    ($load:ident, $store:ident, $type:ty, $class:ident, $loading:literal, $storing:literal) => {
        #[inline(always)]
        unsafe fn $load(at: *const u8) -> $type {
            let value;
            // SAFETY: loads what the caller vouches for into a register, and does nothing else.
            unsafe { asm!($loading, out($class) value, in(reg) at, options(readonly, nostack, preserves_flags)) };
            value
        }

        #[inline(always)]
        unsafe fn $store(at: *mut u8, value: $type) {
            // SAFETY: stores to what the caller vouches for.
            unsafe { asm!($storing, in($class) value, in(reg) at, options(nostack, preserves_flags)) };
        }
    };
}

moves!(load_word, store_word, u64, reg, "mov {}, [{}]", "mov [{1}], {0}");
moves!(load_half, store_half, u32, reg, "mov {:e}, [{}]", "mov [{1}], {0:e}");
moves!(load_byte, store_byte, u8, reg_byte, "mov {}, [{}]", "mov [{1}], {0}");
