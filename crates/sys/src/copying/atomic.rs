//! Copying by atomic loads and stores, which may race with each other.
#![allow(
    unsafe_code,
    reason = "makes atomics of addresses that the caller vouches for, for the time of one load or store"
)]

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

use super::Line;

const WORD: usize = size_of::<u64>();

/// Copies `len` bytes; the two places may overlap.
///
/// # Safety
/// As [`std::ptr::copy`], except that others may load and store meanwhile.
pub(crate) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    let (from, upwards) = (from.cast_mut(), to.addr() <= from.addr());
    let words = words(to, len, (from.addr() ^ to.addr()) % WORD == 0);
    each(len, words, upwards, |at, is_word| {
        // SAFETY: inside both places, by this function's contract; `words` has found that words are aligned in both.
        unsafe {
            match is_word {
                true => word(to.add(at)).store(word(from.add(at)).load(Relaxed), Relaxed),
                false => byte(to.add(at)).store(byte(from.add(at)).load(Relaxed), Relaxed),
            }
        }
    });
}

/// Copies bytes that nobody stores into to `to`.
///
/// # Safety
/// `to` is as for [`copy`], and there are as many bytes.
pub(crate) unsafe fn copy_in(bytes: &[u8], to: *mut u8) {
    each(bytes.len(), words(to, bytes.len(), true), true, |at, is_word| {
        // SAFETY: inside the place that the caller vouches for; `words` has found that words are aligned there.
        unsafe {
            match is_word {
                true => {
                    word(to.add(at)).store(bytes.as_ptr().add(at).cast::<u64>().read_unaligned(), Relaxed)
                }
                false => byte(to.add(at)).store(bytes[at], Relaxed),
            }
        }
    });
}

/// Stores `value` into `len` bytes.
///
/// # Safety
/// As for [`copy`]'s target.
pub(crate) unsafe fn fill(to: *mut u8, value: u8, len: usize) {
    each(len, words(to, len, true), true, |at, is_word| {
        // SAFETY: inside the place that the caller vouches for; `words` has found that words are aligned there.
        unsafe {
            match is_word {
                true => word(to.add(at)).store(u64::from_ne_bytes([value; WORD]), Relaxed),
                false => byte(to.add(at)).store(value, Relaxed),
            }
        }
    });
}

/// Loads a line from any address.
///
/// # Safety
/// As for [`copy`]'s source.
pub(crate) unsafe fn load_line(at: *const u8) -> Line {
    let mut line = [0; 8];
    // SAFETY: the line here is this function's own, the other is the caller's to vouch for.
    unsafe { copy(at, line.as_mut_ptr().cast(), size_of::<Line>()) };
    line
}

/// Which of the `len` bytes at `to` go by words, if words are `allowed`. Under Miri all go by bytes: atomic accesses of
/// different sizes may not race.
fn words(to: *mut u8, len: usize, allowed: bool) -> std::ops::Range<usize> {
    if cfg!(miri) || !allowed {
        return len..len;
    }
    let first = (to.addr().wrapping_neg() % WORD).min(len);
    first..first + (len - first) / WORD * WORD
}

/// Calls `step` for each byte outside `words` and each word in it, with its offset, upwards or downwards.
fn each(len: usize, words: std::ops::Range<usize>, upwards: bool, mut step: impl FnMut(usize, bool)) {
    let (before, after) = (0..words.start, words.end..len);
    let in_words = words.step_by(WORD);
    if upwards {
        before.for_each(|at| step(at, false));
        in_words.for_each(|at| step(at, true));
        after.for_each(|at| step(at, false));
    } else {
        after.rev().for_each(|at| step(at, false));
        in_words.rev().for_each(|at| step(at, true));
        before.rev().for_each(|at| step(at, false));
    }
}

unsafe fn byte<'a>(at: *mut u8) -> &'a AtomicU8 {
    // SAFETY: mapped and used by atomic accesses alone during the call, as the caller vouches. Memory that is mapped for loads
    // alone is only loaded from, relaxed and at most 8 bytes at once, which needs no right to store.
    unsafe { AtomicU8::from_ptr(at) }
}

unsafe fn word<'a>(at: *mut u8) -> &'a AtomicU64 {
    // SAFETY: as for `byte`, and aligned.
    unsafe { AtomicU64::from_ptr(at.cast()) }
}
