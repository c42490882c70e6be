//! Queues of modules: messages in the order of their priority, service procedures that are to run, and flow control.
//!
//! How: a module has two queues side by side, of which the first one reads (upwards), and `q_next` leads to the next module's. A queue
//! whose bytes reach `q_hiwat` is full. Whoever finds it so leaves `QWANTW` there; when the queue has no more than `q_lowat` bytes
//! again, the nearest queue in front that has a service procedure is enabled.
//! Limits: bands have an order, and no flow control of their own.

use std::ffi::{c_int, c_uchar, c_uint};
use std::ptr::null_mut;

use super::blocks::{M_DELAY, QPCTL, chain, fbufs_allocb, fbufs_datamsg, kind, len, mblk_t};
use super::messages::fbufs_freemsg;
use super::modules::{FLUSHALL, Pair, QENAB, QFULL, QNOENB, QREADR, QWANTR, QWANTW, queue_t};

/// Puts a message on a queue, behind all others of its priority and higher ones, and enables the queue if its service procedure has
/// found it empty and noenable was not called; in any case for a message of high priority.
///
/// Returns 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fbufs_putq(q: *mut queue_t, mp: *mut mblk_t) -> c_int {
    // SAFETY: the caller's queue and message.
    unsafe {
        let mut next = null_mut::<mblk_t>();
        while let Some(before) = before(q, next).as_mut()
            && class(before) < class(mp)
        {
            next = before;
        }
        insert(q, next, mp);
        1
    }
}

/// Puts a message back on a queue, in front of all others of its priority.
///
/// Returns 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fbufs_putbq(q: *mut queue_t, mp: *mut mblk_t) -> c_int {
    // SAFETY: the caller's queue and message.
    unsafe {
        let mut next = (*q).q_first;
        while !next.is_null() && class(next) > class(mp) {
            next = (*next).b_next;
        }
        insert(q, next, mp);
        1
    }
}

/// Puts the message mp on a queue in front of emp, a message there, or behind all if emp is NULL.
///
/// Returns 1; or 0 if it has another priority than a message may have there, and then nothing has changed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fbufs_insq(q: *mut queue_t, emp: *mut mblk_t, mp: *mut mblk_t) -> c_int {
    // SAFETY: the caller's queue and messages.
    unsafe {
        let before = before(q, emp);
        let is_early = !before.is_null() && class(before) < class(mp);
        let is_late = !emp.is_null() && class(mp) < class(emp);
        if is_early || is_late {
            return 0;
        }
        insert(q, emp, mp);
        1
    }
}

/// Takes the first message off a queue. When the queue has no more than q_lowat bytes and was found full, the nearest queue with a
/// service procedure that feeds it is enabled.
///
/// Returns the message, or NULL if there is none; then the next one enables the queue.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fbufs_getq(q: *mut queue_t) -> *mut mblk_t {
    // SAFETY: the caller's queue.
    unsafe {
        let mp = (*q).q_first;
        if mp.is_null() {
            (*q).q_flag |= QWANTR;
        } else {
            (*q).q_flag &= !QWANTR;
            fbufs_rmvq(q, mp);
        }
        mp
    }
}

/// Takes a message off a queue on which it is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fbufs_rmvq(q: *mut queue_t, mp: *mut mblk_t) {
    // SAFETY: the caller's queue, and a message of it.
    unsafe {
        let (before, next) = ((*mp).b_prev, (*mp).b_next);
        *(if before.is_null() { &mut (*q).q_first } else { &mut (*before).b_next }) = next;
        *(if next.is_null() { &mut (*q).q_last } else { &mut (*next).b_prev }) = before;
        ((*mp).b_prev, (*mp).b_next) = (null_mut(), null_mut());
        (*q).q_count = (*q).q_count.saturating_sub(size(mp));
        relieve(q);
    }
}

/// Frees the messages of a queue: all (FLUSHALL), or those of data (FLUSHDATA).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fbufs_flushq(q: *mut queue_t, flag: c_int) {
    // SAFETY: the caller's queue.
    unsafe {
        let mut mp = (*q).q_first;
        while !mp.is_null() {
            let next = (*mp).b_next;
            if flag == FLUSHALL || fbufs_datamsg(kind(mp)) != 0 {
                fbufs_rmvq(q, mp);
                fbufs_freemsg(mp);
            }
            mp = next;
        }
    }
}

/// Tells how many messages a queue has.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fbufs_qsize(q: *mut queue_t) -> c_int {
    // SAFETY: the caller's queue.
    unsafe {
        let first = (!(*q).q_first.is_null()).then_some((*q).q_first);
        std::iter::successors(first, |mp| (!(**mp).b_next.is_null()).then_some((**mp).b_next)).count()
            as c_int
    }
}

/// Has the service procedure of a queue run, if it has one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fbufs_qenable(q: *mut queue_t) {
    // SAFETY: the caller's queue, of a stream whose list this thread alone uses.
    unsafe {
        if !has_service(q) || (*q).q_flag & QENAB != 0 {
            return;
        }
        (*q).q_flag |= QENAB;
        let enabled = (*pair(q)).enabled;
        if (*enabled).first.is_null() {
            (*enabled).first = q
        } else {
            (*(*enabled).last).q_link = q
        }
        (*enabled).last = q;
    }
}

/// Keeps messages from enabling a queue, but those of high priority.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fbufs_noenable(q: *mut queue_t) {
    // SAFETY: the caller's queue.
    unsafe { (*q).q_flag |= QNOENB };
}

/// Lets messages enable a queue again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fbufs_enableok(q: *mut queue_t) {
    // SAFETY: the caller's queue.
    unsafe { (*q).q_flag &= !QNOENB };
}

/// Tells whether there is room in the nearest queue from q on that has a service procedure, or in the last one of the stream.
///
/// Returns 1; or 0 if it is full, and then the caller's queue is enabled when it is not any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fbufs_canput(q: *mut queue_t) -> c_int {
    // SAFETY: the caller's queue.
    unsafe {
        let mut q = q;
        while !has_service(q) && !(*q).q_next.is_null() {
            q = (*q).q_next;
        }
        let is_full = (*q).q_flag & QFULL != 0;
        (*q).q_flag |= if is_full { QWANTW } else { 0 };
        c_int::from(!is_full)
    }
}

/// As canput, from the next module's queue on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fbufs_canputnext(q: *mut queue_t) -> c_int {
    // SAFETY: the caller's queue.
    unsafe { if (*q).q_next.is_null() { 1 } else { fbufs_canput((*q).q_next) } }
}

/// Gives a message to the next module's put procedure, and returns what that returns. Where there is no next module, the message is freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fbufs_putnext(q: *mut queue_t, mp: *mut mblk_t) -> c_int {
    // SAFETY: the caller's queue and message.
    unsafe { put((*q).q_next, mp) }
}

/// Gives a message to the next module in the other direction: putnext of the other queue.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fbufs_qreply(q: *mut queue_t, mp: *mut mblk_t) -> c_int {
    // SAFETY: the caller's queue and message.
    unsafe { fbufs_putnext(fbufs_OTHERQ(q), mp) }
}

/// Gives the put procedure of q a message of this type, which is none of data but M_DELAY, without bytes.
///
/// Returns 1; or 0 if the type is one of data, or there is no memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fbufs_putctl(q: *mut queue_t, r#type: c_int) -> c_int {
    // SAFETY: the caller's queue.
    unsafe { control(q, r#type, None) }
}

/// As putctl, with a byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fbufs_putctl1(q: *mut queue_t, r#type: c_int, param: c_int) -> c_int {
    // SAFETY: the caller's queue.
    unsafe { control(q, r#type, Some(param as c_uchar)) }
}

/// As putctl, to the next module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fbufs_putnextctl(q: *mut queue_t, r#type: c_int) -> c_int {
    // SAFETY: the caller's queue.
    unsafe { control((*q).q_next, r#type, None) }
}

/// As putctl1, to the next module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fbufs_putnextctl1(q: *mut queue_t, r#type: c_int, param: c_int) -> c_int {
    // SAFETY: the caller's queue.
    unsafe { control((*q).q_next, r#type, Some(param as c_uchar)) }
}

/// The read queue of a module.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "its name in C")]
pub unsafe extern "C" fn fbufs_RD(q: *mut queue_t) -> *mut queue_t {
    // SAFETY: the caller's queue, which has the other one beside it.
    unsafe { if (*q).q_flag & QREADR != 0 { q } else { q.sub(1) } }
}

/// The write queue of a module.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "its name in C")]
pub unsafe extern "C" fn fbufs_WR(q: *mut queue_t) -> *mut queue_t {
    // SAFETY: the caller's queue, which has the other one beside it.
    unsafe { fbufs_RD(q).add(1) }
}

/// The other queue of a module.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "its name in C")]
pub unsafe extern "C" fn fbufs_OTHERQ(q: *mut queue_t) -> *mut queue_t {
    // SAFETY: the caller's queue.
    unsafe { if fbufs_RD(q) == q { fbufs_WR(q) } else { fbufs_RD(q) } }
}

/// The queue that feeds q, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fbufs_backq(q: *mut queue_t) -> *mut queue_t {
    // SAFETY: the caller's queue; the modules of a stream are next to each other in both directions.
    unsafe {
        let beside = (*fbufs_OTHERQ(q)).q_next;
        if beside.is_null() { beside } else { fbufs_OTHERQ(beside) }
    }
}

/// A message's place in the order: high priority, then bands, from the highest on.
///
/// # Safety
/// A message that the caller has.
unsafe fn class(mp: *mut mblk_t) -> c_uint {
    // SAFETY: the caller's promise.
    unsafe { if c_int::from(kind(mp)) >= QPCTL { 256 } else { (*mp).b_band.into() } }
}

/// # Safety
/// A message that the caller has.
unsafe fn size(mp: *mut mblk_t) -> usize {
    // SAFETY: the caller's promise.
    unsafe { chain(mp).map(|bp| len(bp)).sum() }
}

/// The message in front of another one of the queue, or the last one.
///
/// # Safety
/// A queue, and a message of it or null.
unsafe fn before(q: *mut queue_t, mp: *mut mblk_t) -> *mut mblk_t {
    // SAFETY: the caller's promise.
    unsafe { if mp.is_null() { (*q).q_last } else { (*mp).b_prev } }
}

/// Puts a message in front of another one of the queue, or behind all.
///
/// # Safety
/// A queue, a message of it or null, and a message of no queue.
unsafe fn insert(q: *mut queue_t, next: *mut mblk_t, mp: *mut mblk_t) {
    // SAFETY: the caller's promise.
    unsafe {
        let before = before(q, next);
        ((*mp).b_prev, (*mp).b_next) = (before, next);
        *(if before.is_null() { &mut (*q).q_first } else { &mut (*before).b_next }) = mp;
        *(if next.is_null() { &mut (*q).q_last } else { &mut (*next).b_prev }) = mp;
        (*q).q_count += size(mp);
        (*q).q_flag |= if (*q).q_count >= (*q).q_hiwat { QFULL } else { 0 };
        if class(mp) == 256 || (*q).q_flag & (QWANTR | QNOENB) == QWANTR {
            fbufs_qenable(q);
        }
    }
}

/// Notes that a queue has fewer bytes.
///
/// # Safety
/// A queue.
unsafe fn relieve(q: *mut queue_t) {
    // SAFETY: the caller's promise.
    unsafe {
        if (*q).q_count == 0 || (*q).q_count < (*q).q_hiwat {
            (*q).q_flag &= !QFULL;
        }
        if (*q).q_flag & QWANTW == 0 || (*q).q_count > (*q).q_lowat {
            return;
        }
        (*q).q_flag &= !QWANTW;
        let mut feeding = fbufs_backq(q);
        while !feeding.is_null() && !has_service(feeding) {
            feeding = fbufs_backq(feeding);
        }
        if !feeding.is_null() {
            fbufs_qenable(feeding);
        }
    }
}

/// # Safety
/// A queue.
unsafe fn has_service(q: *mut queue_t) -> bool {
    // SAFETY: the caller's promise.
    unsafe { (*(*q).q_qinfo).qi_srvp.is_some() }
}

/// # Safety
/// A queue or null, and a message.
unsafe fn put(q: *mut queue_t, mp: *mut mblk_t) -> c_int {
    // SAFETY: the caller's promise; the module's procedure takes such.
    unsafe {
        match q.as_ref().and_then(|q| (*q.q_qinfo).qi_putp) {
            Some(procedure) => procedure(q, mp),
            None => {
                fbufs_freemsg(mp);
                0
            }
        }
    }
}

/// # Safety
/// A queue or null.
unsafe fn control(q: *mut queue_t, r#type: c_int, byte: Option<c_uchar>) -> c_int {
    if r#type != M_DELAY && fbufs_datamsg(r#type as c_uchar) != 0 {
        return 0;
    }
    let mp = fbufs_allocb(1, 0);
    if mp.is_null() {
        return 0;
    }
    // SAFETY: the caller's promise, and a message of one block with room for a byte.
    unsafe {
        (*(*mp).b_datap).db_type = r#type as c_uchar;
        if let Some(byte) = byte {
            (*mp).b_wptr.write(byte);
            (*mp).b_wptr = (*mp).b_wptr.add(1);
        }
        put(q, mp);
        1
    }
}

/// The pair that a queue is of.
///
/// # Safety
/// A queue of a pair.
pub(crate) unsafe fn pair(q: *mut queue_t) -> *mut Pair {
    // SAFETY: the caller's promise.
    unsafe { fbufs_RD(q).cast() }
}
