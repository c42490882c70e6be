//! Message blocks, the data blocks that they name, and what data blocks own.

use std::ffi::{c_char, c_int, c_uchar, c_uint, c_ushort};
use std::ptr::{null_mut, with_exposed_provenance_mut};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::Fbuf;
use crate::c::failure::{Failure, call};
use crate::c::process::Process;

// Types of messages, in db_type.

/// Data.
pub const M_DATA: c_int = 0x00;
/// Control information, perhaps with data behind it.
pub const M_PROTO: c_int = 0x01;
/// A request to a driver to send a break.
pub const M_BREAK: c_int = 0x08;
/// A request to send a signal.
pub const M_SIG: c_int = 0x0b;
/// A request for a delay on output.
pub const M_DELAY: c_int = 0x0c;
/// Control between modules.
pub const M_CTL: c_int = 0x0d;
/// A request by ioctl.
pub const M_IOCTL: c_int = 0x0e;
/// Options of the stream head.
pub const M_SETOPTS: c_int = 0x10;
/// The first type of high priority.
pub const QPCTL: c_int = 0x80;
/// An ioctl was done.
pub const M_IOCACK: c_int = 0x81;
/// An ioctl was refused.
pub const M_IOCNAK: c_int = 0x82;
/// Control information of high priority.
pub const M_PCPROTO: c_int = 0x83;
/// A request to send a signal, of high priority.
pub const M_PCSIG: c_int = 0x84;
/// The program reads.
pub const M_READ: c_int = 0x85;
/// A request to flush queues; the first byte says which.
pub const M_FLUSH: c_int = 0x86;
/// A request to stop output.
pub const M_STOP: c_int = 0x87;
/// A request to start output.
pub const M_START: c_int = 0x88;
/// The line is gone.
pub const M_HANGUP: c_int = 0x89;
/// An error for all later calls.
pub const M_ERROR: c_int = 0x8a;
/// A request to copy from the program.
pub const M_COPYIN: c_int = 0x8b;
/// A request to copy to the program.
pub const M_COPYOUT: c_int = 0x8c;
/// Data of an ioctl.
pub const M_IOCDATA: c_int = 0x8d;

/// Priorities of allocation, which make no difference here.
pub const BPRI_LO: c_int = 1;
/// The same.
pub const BPRI_MED: c_int = 2;
/// The same.
pub const BPRI_HI: c_int = 3;

/// How memory of the program's is freed.
#[allow(non_camel_case_types, reason = "its name in C")]
#[repr(C)]
#[derive(Debug)]
pub struct free_rtn {
    /// What frees it.
    pub free_func: Option<unsafe extern "C" fn(*mut c_char)>,
    /// With what it is called.
    pub free_arg: *mut c_char,
}

/// How memory of the program's is freed.
#[allow(non_camel_case_types, reason = "its name in C")]
pub type frtn_t = free_rtn;

/// A data block: a buffer.
#[allow(non_camel_case_types, reason = "its name in C")]
#[repr(C)]
#[derive(Debug)]
pub struct datab {
    /// How the buffer is freed, if it is the program's.
    pub db_frtnp: *mut free_rtn,
    /// Where it begins.
    pub db_base: *mut c_uchar,
    /// Where it ends.
    pub db_lim: *mut c_uchar,
    /// How many message blocks name it.
    pub db_ref: c_uint,
    /// The type of the message.
    pub db_type: c_uchar,
}

/// A data block: a buffer.
#[allow(non_camel_case_types, reason = "its name in C")]
pub type dblk_t = datab;

/// A message block: a part of a buffer.
#[allow(non_camel_case_types, reason = "its name in C")]
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct msgb {
    /// The next message on a queue.
    pub b_next: *mut msgb,
    /// The one in front on a queue.
    pub b_prev: *mut msgb,
    /// The next block of the message.
    pub b_cont: *mut msgb,
    /// Where the block's bytes begin.
    pub b_rptr: *mut c_uchar,
    /// Where they end.
    pub b_wptr: *mut c_uchar,
    /// The buffer.
    pub b_datap: *mut datab,
    /// The message's priority band.
    pub b_band: c_uchar,
    /// Flags of the message, for modules.
    pub b_flag: c_ushort,
}

/// A message block: a part of a buffer. A message is known by its first one.
#[allow(non_camel_case_types, reason = "its name in C")]
pub type mblk_t = msgb;

/// A data block with what it owns.
#[repr(C)]
#[derive(Debug)]
struct Owning {
    shown: datab,
    /// None if the buffer is the program's, or was written away.
    fbuf: Option<Fbuf>,
}

/// Allocates a block without bytes, in an fbuf with room for size bytes or more.
///
/// Returns NULL if there is no room in the pool.
#[unsafe(no_mangle)]
pub extern "C" fn fbufs_allocb(size: usize, pri: c_uint) -> *mut mblk_t {
    let _ = pri;
    call(null_mut(), || Ok(empty(Process::current()?.pool()?.allocate(size)?)))
}

/// Makes a block without bytes, with room for size bytes: those of the program's own from base on. When the last block that names them
/// is freed, free_func is called with free_arg, both of *frtnp, which stays there until then.
///
/// Returns NULL if base or frtnp is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fbufs_esballoc(
    base: *mut c_uchar,
    size: usize,
    pri: c_uint,
    frtnp: *mut frtn_t,
) -> *mut mblk_t {
    let _ = pri;
    if base.is_null() || frtnp.is_null() {
        return null_mut();
    }
    block(base..base.wrapping_add(size), frtnp, None)
}

/// Makes another block of the same bytes, which shares the buffer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fbufs_dupb(bp: *mut mblk_t) -> *mut mblk_t {
    // SAFETY: the caller's block, and its buffer, which has a count.
    unsafe {
        count((*bp).b_datap).fetch_add(1, Ordering::Relaxed);
        Box::into_raw(Box::new(msgb { b_next: null_mut(), b_prev: null_mut(), b_cont: null_mut(), ..*bp }))
    }
}

/// Makes another block of a buffer of its own, with a copy of the bytes, and as much room on either side.
///
/// Returns NULL if there is no room in the pool.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fbufs_copyb(bp: *mut mblk_t) -> *mut mblk_t {
    // SAFETY: the caller's block, whose bytes are in its buffer; the copy's buffer is as long.
    unsafe {
        let data = (*bp).b_datap;
        let (size, at) = (distance((*data).db_base, (*data).db_lim), distance((*data).db_base, (*bp).b_rptr));
        let copy = call(null_mut(), || Ok(empty(allocate_like(bp, size)?)));
        if !copy.is_null() {
            (*copy).b_rptr = (*copy).b_rptr.add(at);
            (*copy).b_wptr = (*copy).b_rptr;
            append(copy, bp, len(bp));
            take_kind(copy, bp);
        }
        copy
    }
}

/// Frees a block, and its buffer if no other block names that.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fbufs_freeb(bp: *mut mblk_t) {
    // SAFETY: the caller's block, made by `block` or `dupb`, which nobody uses any more.
    unsafe { release(Box::from_raw(bp).b_datap) };
}

/// Whether a message of this type holds data: M_DATA, M_PROTO, M_PCPROTO or M_DELAY.
#[unsafe(no_mangle)]
pub extern "C" fn fbufs_datamsg(r#type: c_uchar) -> c_int {
    c_int::from([M_DATA, M_PROTO, M_PCPROTO, M_DELAY].contains(&r#type.into()))
}

/// A block of a buffer, without bytes.
fn block(buffer: std::ops::Range<*mut c_uchar>, db_frtnp: *mut free_rtn, fbuf: Option<Fbuf>) -> *mut mblk_t {
    let (db_base, db_lim) = (buffer.start, buffer.end);
    let shown = datab { db_frtnp, db_base, db_lim, db_ref: 1, db_type: M_DATA as c_uchar };
    let b_datap = Box::into_raw(Box::new(Owning { shown, fbuf })).cast();
    let [b_next, b_prev, b_cont] = [null_mut(); 3];
    let (b_rptr, b_wptr) = (db_base, db_base);
    Box::into_raw(Box::new(msgb { b_next, b_prev, b_cont, b_rptr, b_wptr, b_datap, b_band: 0, b_flag: 0 }))
}

/// A block of an fbuf, without bytes.
pub(crate) fn empty(mut fbuf: Fbuf) -> *mut mblk_t {
    let pages = pages(&mut fbuf);
    block(pages, null_mut(), Some(fbuf))
}

/// A block of an fbuf, whose data is the block's bytes.
pub(crate) fn of_fbuf(fbuf: Fbuf) -> *mut mblk_t {
    let (start, len) = (fbuf.headroom(), fbuf.len());
    let bp = empty(fbuf);
    // SAFETY: made just now; the data is inside.
    unsafe {
        (*bp).b_rptr = (*bp).b_rptr.add(start);
        (*bp).b_wptr = (*bp).b_rptr.add(len);
    }
    bp
}

/// All bytes of an fbuf's pages, which become its data.
fn pages(fbuf: &mut Fbuf) -> std::ops::Range<*mut c_uchar> {
    // It has so many.
    let _ = fbuf.set_data(0, fbuf.capacity());
    let (start, len) = (fbuf.as_mut_ptr(), fbuf.len());
    // By its address, since the fbuf is moved.
    let start = with_exposed_provenance_mut::<c_uchar>(start.expose_provenance());
    start..start.wrapping_add(len)
}

/// The count of a buffer's blocks, which may be in several threads' hands.
///
/// # Safety
/// The buffer exists, and is not freed while the count is used.
unsafe fn count<'c>(data: *mut datab) -> &'c AtomicU32 {
    // SAFETY: the caller's promise; where the library is concerned, the field is used as an atomic alone.
    unsafe { AtomicU32::from_ptr(&raw mut (*data).db_ref) }
}

/// # Safety
/// The buffer exists, and the caller uses it no more.
unsafe fn release(data: *mut datab) {
    // AcqRel: whoever is the last one frees what all others have stored.
    // SAFETY: the caller's promise.
    if unsafe { count(data) }.fetch_sub(1, Ordering::AcqRel) != 1 {
        return;
    }
    // SAFETY: it was made by `block`, and no other block names it.
    let data = unsafe { Box::from_raw(data.cast::<Owning>()) };
    // SAFETY: null, or of the program's, where it stays until free_func is called.
    let Some(routine) = (unsafe { data.shown.db_frtnp.as_ref() }) else { return };
    let (free, argument) = (routine.free_func, routine.free_arg);
    drop(data);
    if let Some(free) = free {
        // SAFETY: the program's function, as it has asked.
        unsafe { free(argument) };
    }
}

/// The blocks of a message, or none. A block may be freed when the next one is asked for.
///
/// # Safety
/// A message, or null, which only the caller has.
pub(crate) unsafe fn chain(mp: *mut mblk_t) -> impl Iterator<Item = *mut mblk_t> {
    let first = (!mp.is_null()).then_some(mp);
    // SAFETY: the caller's promise.
    std::iter::successors(first, |bp| unsafe { (!(**bp).b_cont.is_null()).then_some((**bp).b_cont) })
}

/// How many bytes a block has.
///
/// # Safety
/// A block that the caller has.
pub(crate) unsafe fn len(bp: *mut mblk_t) -> usize {
    // SAFETY: the caller's promise.
    unsafe { distance((*bp).b_rptr, (*bp).b_wptr) }
}

fn distance(from: *mut c_uchar, to: *mut c_uchar) -> usize {
    to.addr().saturating_sub(from.addr())
}

/// The message's type.
///
/// # Safety
/// A block that the caller has.
pub(crate) unsafe fn kind(bp: *mut mblk_t) -> c_uchar {
    // SAFETY: the caller's promise.
    unsafe { (*(*bp).b_datap).db_type }
}

/// Gives a block another one's type, band and flags.
///
/// # Safety
/// Blocks that the caller has.
pub(crate) unsafe fn take_kind(to: *mut mblk_t, from: *mut mblk_t) {
    // SAFETY: the caller's promise.
    unsafe {
        (*(*to).b_datap).db_type = kind(from);
        ((*to).b_band, (*to).b_flag) = ((*from).b_band, (*from).b_flag);
    }
}

/// Copies the first `len` bytes of a block behind those of another one.
///
/// # Safety
/// Blocks that the caller has; there are so many bytes, and there is room for them, in a buffer that no other block names.
pub(crate) unsafe fn append(to: *mut mblk_t, from: *mut mblk_t, len: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        (*to).b_wptr.copy_from_nonoverlapping((*from).b_rptr, len);
        (*to).b_wptr = (*to).b_wptr.add(len);
    }
}

/// An fbuf of the same kind as a block's, or of this process's pool.
///
/// # Safety
/// A block that the caller has.
pub(crate) unsafe fn allocate_like(bp: *mut mblk_t, len: usize) -> Result<Fbuf, Failure> {
    // SAFETY: the caller's promise; every data block is an owning one.
    match unsafe { &(*(*bp).b_datap.cast::<Owning>()).fbuf } {
        Some(fbuf) => Ok(fbuf.allocate_alike(len)?),
        None => Ok(Process::current()?.pool()?.allocate(len)?),
    }
}

/// Has a block name another one's buffer and bytes instead of its own; the other one is gone.
///
/// # Safety
/// Blocks that the caller has.
pub(crate) unsafe fn replace(bp: *mut mblk_t, by: *mut mblk_t) {
    // SAFETY: the caller's promise; the other block was made by this file.
    unsafe {
        let by = Box::from_raw(by);
        release(std::mem::replace(&mut (*bp).b_datap, by.b_datap));
        ((*bp).b_rptr, (*bp).b_wptr) = (by.b_rptr, by.b_wptr);
    }
}

/// Makes sure that a block's bytes are in its buffer, and that the buffer is this process's.
///
/// # Safety
/// A block that the caller has.
pub(crate) unsafe fn ensure_sound(bp: *mut mblk_t) -> Result<(), Failure> {
    // SAFETY: the caller's promise.
    let (block, data) = unsafe { (&*bp, &*(*bp).b_datap.cast::<Owning>()) };
    let order = [data.shown.db_base, block.b_rptr, block.b_wptr, data.shown.db_lim];
    if !order.is_sorted() {
        return Err(Failure::misuse("b_rptr and b_wptr of a block are not in order, or outside its buffer"));
    }
    Ok(data.fbuf.as_ref().map_or(Ok(()), Fbuf::ensure_own)?)
}

/// The fbuf of a block that nobody else names, with the block's bytes as its data. The block has no buffer from now on.
///
/// # Safety
/// A block that the caller has.
pub(crate) unsafe fn take_fbuf(bp: *mut mblk_t) -> Option<Fbuf> {
    // SAFETY: the caller's promise.
    unsafe {
        let data = (*bp).b_datap;
        // Acquire: what those stored that had it before.
        if count(data).load(Ordering::Acquire) != 1 {
            return None;
        }
        let mut fbuf = (*data.cast::<Owning>()).fbuf.take()?;
        // It succeeds for sound blocks.
        let _ = fbuf.set_data(distance((*data).db_base, (*bp).b_rptr), len(bp));
        ((*data).db_base, (*data).db_lim) = (null_mut(), null_mut());
        ((*bp).b_rptr, (*bp).b_wptr) = (null_mut(), null_mut());
        Some(fbuf)
    }
}

/// Whether the block's buffer was taken.
///
/// # Safety
/// A block that the caller has.
pub(crate) unsafe fn is_taken(bp: *mut mblk_t) -> bool {
    // SAFETY: the caller's promise.
    unsafe { (*(*bp).b_datap).db_base.is_null() }
}

/// Gives a block whose buffer was taken a buffer again, whose data is the block's bytes.
///
/// # Safety
/// A block that the caller has, and no other one names its data block.
pub(crate) unsafe fn put_back(bp: *mut mblk_t, mut fbuf: Fbuf) {
    let (start, len) = (fbuf.headroom(), fbuf.len());
    let pages = pages(&mut fbuf);
    // SAFETY: the caller's promise; the data is inside the pages.
    unsafe {
        let data = (*bp).b_datap;
        ((*data).db_base, (*data).db_lim) = (pages.start, pages.end);
        ((*bp).b_rptr, (*bp).b_wptr) = (pages.start.add(start), pages.start.add(start + len));
        (*data.cast::<Owning>()).fbuf = Some(fbuf);
    }
}
