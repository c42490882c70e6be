//! What is done with messages, which are chains of blocks.

use std::ffi::c_int;
use std::ptr::{null_mut, without_provenance_mut};

use libc::ssize_t;

use super::blocks::{
    M_DATA, allocate_like, append, chain, empty, fbufs_copyb, fbufs_dupb, fbufs_freeb, kind, len, mblk_t,
    replace, take_kind,
};
use crate::c::failure::call;

/// Frees all blocks of a message. NULL is no message, and nothing is done.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fbufs_freemsg(mp: *mut mblk_t) {
    // SAFETY: the caller's message, which nobody uses any more.
    unsafe { chain(mp).for_each(|bp| fbufs_freeb(bp)) };
}

/// Makes another message of the same bytes, which shares the buffers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fbufs_dupmsg(mp: *mut mblk_t) -> *mut mblk_t {
    // SAFETY: the caller's message.
    unsafe { linked(chain(mp).map(|bp| fbufs_dupb(bp))) }
}

/// Makes another message with a copy of the bytes.
///
/// Returns NULL if there is no room in the pool.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fbufs_copymsg(mp: *mut mblk_t) -> *mut mblk_t {
    // SAFETY: the caller's message.
    unsafe { linked(chain(mp).map(|bp| fbufs_copyb(bp))) }
}

/// Joins messages: the blocks of bp follow those of mp.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fbufs_linkb(mp: *mut mblk_t, bp: *mut mblk_t) {
    // SAFETY: the caller's messages.
    unsafe {
        if let Some(last) = chain(mp).last() {
            (*last).b_cont = bp;
        }
    }
}

/// Takes the first block out of a message; it becomes a message of one block, which is not freed.
///
/// Returns the other blocks, or NULL if there are none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fbufs_unlinkb(mp: *mut mblk_t) -> *mut mblk_t {
    // SAFETY: the caller's message.
    unsafe { std::mem::replace(&mut (*mp).b_cont, null_mut()) }
}

/// Takes the block bp out of a message; it becomes a message of one block, which is not freed.
///
/// Returns the message, or NULL if nothing is left of it; or (mblk_t *)-1 if it has no such block, and then nothing has changed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fbufs_rmvb(mp: *mut mblk_t, bp: *mut mblk_t) -> *mut mblk_t {
    // SAFETY: the caller's message; the block is one of it where it is touched.
    unsafe {
        if mp == bp {
            return fbufs_unlinkb(mp);
        }
        let Some(before) = chain(mp).find(|before| (**before).b_cont == bp && !bp.is_null()) else {
            return without_provenance_mut(usize::MAX);
        };
        (*before).b_cont = fbufs_unlinkb(bp);
        mp
    }
}

/// Tells how many bytes of data a message has: those of its blocks of type M_DATA.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fbufs_msgdsize(mp: *mut mblk_t) -> usize {
    // SAFETY: the caller's message.
    unsafe { chain(mp).filter(|bp| c_int::from(kind(*bp)) == M_DATA).map(|bp| len(bp)).sum() }
}

/// Leaves out the first length bytes of a message, or the last -length if length is negative, of those blocks in front that are of
/// the first one's type. Blocks that have no bytes left stay.
///
/// Returns 1; or 0 if these blocks have fewer bytes, and then nothing has changed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fbufs_adjmsg(mp: *mut mblk_t, length: ssize_t) -> c_int {
    // SAFETY: the caller's message; no pointer leaves its block's bytes.
    unsafe {
        let all: usize = alike(mp).map(|bp| len(bp)).sum();
        let Some(kept) = all.checked_sub(length.unsigned_abs()) else { return 0 };
        let mut left = if length < 0 { kept } else { length.unsigned_abs() };
        for bp in alike(mp) {
            let part = left.min(len(bp));
            left -= part;
            let end = (*bp).b_rptr.add(part);
            *(if length < 0 { &mut (*bp).b_wptr } else { &mut (*bp).b_rptr }) = end;
        }
        1
    }
}

/// Makes the first length bytes of a message, or all if length is -1, lie in its first block, from a word's boundary on. Copies them, and
/// the rest of the first block, into another buffer unless they do so already. Only those blocks in front count that are of the first
/// one's type.
///
/// Returns 1; or 0 if these blocks have fewer bytes, or there is no room in the pool, and then nothing has changed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fbufs_pullupmsg(mp: *mut mblk_t, length: ssize_t) -> c_int {
    // SAFETY: the caller's message. Blocks are freed that are no part of it any more.
    unsafe {
        let Some(length) = pulled(mp, length) else { return 0 };
        if length <= len(mp) && (*mp).b_rptr.cast::<usize>().is_aligned() {
            return 1;
        }
        let length = length.max(len(mp));
        let first = call(null_mut(), || Ok(empty(allocate_like(mp, length)?)));
        if first.is_null() {
            return 0;
        }
        take_kind(first, mp);
        let mut left = length;
        for bp in chain(mp) {
            let part = left.min(len(bp));
            append(first, bp, part);
            (*bp).b_rptr = (*bp).b_rptr.add(part);
            left -= part;
            if left == 0 {
                break;
            }
        }
        while !(*mp).b_cont.is_null() && len((*mp).b_cont) == 0 && kind((*mp).b_cont) == kind(mp) {
            let emptied = (*mp).b_cont;
            (*mp).b_cont = fbufs_unlinkb(emptied);
            fbufs_freeb(emptied);
        }
        replace(mp, first);
        1
    }
}

/// Makes another message of the same bytes, copied, the first length of which, or all if length is -1, lie in the first block, from a
/// word's boundary on. Only those blocks in front count that are of the first one's type; those behind are copied as they are.
///
/// Returns NULL if these blocks have fewer bytes, or there is no room in the pool.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fbufs_msgpullup(mp: *mut mblk_t, length: ssize_t) -> *mut mblk_t {
    // SAFETY: the caller's message, which stays as it is.
    unsafe {
        let Some(mut left) = pulled(mp, length) else { return null_mut() };
        let first = call(null_mut(), || Ok(empty(allocate_like(mp, left)?)));
        if first.is_null() {
            return first;
        }
        take_kind(first, mp);
        let rest = chain(mp).filter_map(|bp| {
            let part = left.min(len(bp));
            append(first, bp, part);
            left -= part;
            let mut rest = *bp;
            rest.b_rptr = rest.b_rptr.add(part);
            (len(&raw mut rest) > 0 || kind(bp) != kind(mp)).then(|| fbufs_copyb(&raw mut rest))
        });
        linked(std::iter::once(first).chain(rest))
    }
}

/// The blocks in front that are of the first one's type.
///
/// # Safety
/// As [`chain`].
unsafe fn alike(mp: *mut mblk_t) -> impl Iterator<Item = *mut mblk_t> {
    // SAFETY: the caller's promise.
    unsafe { chain(mp).take_while(move |bp| kind(*bp) == kind(mp)) }
}

/// How many bytes are to lie in one block, if those in front that are of one type have so many.
///
/// # Safety
/// A message that only the caller has.
unsafe fn pulled(mp: *mut mblk_t, length: ssize_t) -> Option<usize> {
    // SAFETY: the caller's promise.
    let all: usize = unsafe { alike(mp).map(|bp| len(bp)).sum() };
    if length == -1 { Some(all) } else { usize::try_from(length).ok().filter(|length| *length <= all) }
}

/// A message of blocks; NULL, and the others are freed, if one is NULL.
///
/// # Safety
/// The blocks are the caller's, each in one piece.
unsafe fn linked(blocks: impl Iterator<Item = *mut mblk_t>) -> *mut mblk_t {
    let (mut mp, mut last) = (null_mut::<mblk_t>(), null_mut::<mblk_t>());
    for bp in blocks {
        // SAFETY: the caller's promise.
        unsafe {
            if bp.is_null() {
                fbufs_freemsg(mp);
                return bp;
            }
            if last.is_null() { mp = bp } else { (*last).b_cont = bp }
        }
        last = bp;
    }
    mp
}
