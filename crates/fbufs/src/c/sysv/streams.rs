//! Streams: a driver, modules above it, and a head at which the program puts messages in and takes them out.
//!
//! How: the program's thread is the scheduler, too: it runs service procedures when it calls `uf_stream_run`. So a stream needs no
//! lock, and what a message costs is in the hands of whoever waits for it.
//! Limits: there are no multiplexors, and nothing reaches from one stream into another but what a driver passes on itself.

use std::ffi::{c_int, c_uchar, c_uint};
use std::ptr::null_mut;

use libc::dev_t;

use super::blocks::{M_FLUSH, kind, len, mblk_t};
use super::messages::fbufs_freemsg;
use super::modules::{
    Enabled, FLUSHALL, FLUSHR, FLUSHW, INFPSZ, MODOPEN, Pair, QREADR, QWANTR, module_info, qinit, queue,
    queue_t, streamtab,
};
use super::queues::{fbufs_OTHERQ, fbufs_WR, fbufs_flushq, fbufs_putq, fbufs_qenable, fbufs_qreply, pair};
use crate::c::failure::{Failure, call};

/// From how many bytes on a head is full, and with how many it takes more.
const MARKS: (usize, usize) = (64 << 10, 16 << 10);

/// A module is opened for reading and writing.
const BOTH: c_int = 3;

/// What a stream has besides its modules, behind its head's queues.
#[repr(C)]
#[derive(Debug)]
struct Head {
    pair: Pair,
    enabled: Enabled,
    read: qinit,
    write: qinit,
    info: module_info,
}

/// Opens a stream: a head above the driver. The program puts messages in by putnext of the head's write queue (WR), where canputnext
/// tells whether there is room, and takes out by getq of its read queue what has come up; M_FLUSH flushes the head's queue and is
/// sent down again for the write queues. A head is full from 64 KiB on; q_hiwat and q_lowat of its read queue can be changed.
///
/// One thread at a time uses a stream and its queues; modules of one stream do not touch another's.
///
/// Returns the head's read queue, by which the stream is known, or NULL with errno set.
///
/// Errors: EINVAL (the driver lacks a put procedure, or what it is like), and what qi_qopen says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uf_stream_open(driver: *mut streamtab, dev: dev_t) -> *mut queue_t {
    call(null_mut(), || {
        // SAFETY: the head is built in place: it names parts of itself, and stays there until it is closed.
        unsafe {
            let info = module_info {
                mi_idnum: 0,
                mi_idname: null_mut(),
                mi_minpsz: 0,
                mi_maxpsz: INFPSZ as isize,
                mi_hiwat: MARKS.0,
                mi_lowat: MARKS.1,
            };
            let [mut read, write] = [(); 2].map(|()| procedures());
            read.qi_putp = Some(arrive);
            let pair = Pair {
                queues: [queue_of(&read, &info, QREADR), queue_of(&write, &info, 0)],
                enabled: null_mut(),
            };
            let enabled = Enabled { first: null_mut(), last: null_mut() };
            let head = Box::into_raw(Box::new(Head { pair, enabled, read, write, info }));
            (*head).pair.enabled = &raw mut (*head).enabled;
            (*head).pair.queues[0].q_qinfo = &raw mut (*head).read;
            (*head).pair.queues[1].q_qinfo = &raw mut (*head).write;
            for procedures in [&raw mut (*head).read, &raw mut (*head).write] {
                (*procedures).qi_minfo = &raw mut (*head).info;
            }
            let q = head.cast::<queue>();
            push(q, driver, dev, 0).inspect_err(|_| free(q))?;
            Ok(q)
        }
    })
}

/// Pushes a module on a stream, below its head.
///
/// Returns 0, or -1 with errno set.
///
/// Errors: EFAULT (head is NULL), EINVAL (the module lacks a put procedure, or what it is like), and what qi_qopen says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uf_stream_push(head: *mut queue_t, module: *mut streamtab) -> c_int {
    call(-1, || {
        ensure_head(head)?;
        // SAFETY: the caller's stream and module.
        unsafe { push(head, module, 0, MODOPEN) }
    })
}

/// Closes the module below a stream's head, and takes it out. The messages on its queues are freed.
///
/// Returns 0, or -1 with errno set.
///
/// Errors: EFAULT (head is NULL), EINVAL (there is none but the driver).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uf_stream_pop(head: *mut queue_t) -> c_int {
    call(-1, || {
        ensure_head(head)?;
        // SAFETY: the caller's stream.
        unsafe {
            let top = (*fbufs_WR(head)).q_next;
            if (*top).q_next.is_null() {
                return Err(Failure::misuse("the stream has no module but its driver: use uf_stream_close"));
            }
            remove(head, true);
        }
        Ok(0)
    })
}

/// Runs the service procedures of a stream's queues that are enabled, each once, in the order in which they were. Those that are enabled
/// meanwhile run by the next call. Procedures of modules do not push, pop or close.
///
/// Returns how many there were, 0 if none; or -1 with errno set.
///
/// Errors: EFAULT (head is NULL).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uf_stream_run(head: *mut queue_t) -> c_int {
    call(-1, || {
        ensure_head(head)?;
        // SAFETY: the caller's stream. Between two procedures nothing of its list is borrowed.
        unsafe {
            let enabled = (*pair(head)).enabled;
            let last = (*enabled).last;
            let mut count = 0;
            while let Some(q) = (*enabled).take() {
                count += 1;
                if let Some(serve) = (*(*q).q_qinfo).qi_srvp {
                    serve(q);
                }
                if q == last {
                    break;
                }
            }
            Ok(count)
        }
    })
}

/// Closes a stream: its modules from the head on, then its driver. Messages on queues are freed; to have them served first, call
/// uf_stream_run until it returns 0.
///
/// Returns 0, or -1 with errno set.
///
/// Errors: EFAULT (head is NULL).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uf_stream_close(head: *mut queue_t) -> c_int {
    call(-1, || {
        ensure_head(head)?;
        // SAFETY: the caller's stream, which nobody uses any more.
        unsafe {
            while !(*fbufs_WR(head)).q_next.is_null() {
                remove(head, true);
            }
            free(head);
        }
        Ok(0)
    })
}

fn ensure_head(head: *mut queue_t) -> Result<(), Failure> {
    if head.is_null() { Err(Failure::null("the stream's head")) } else { Ok(()) }
}

/// No procedures.
fn procedures() -> qinit {
    qinit {
        qi_putp: None,
        qi_srvp: None,
        qi_qopen: None,
        qi_qclose: None,
        qi_qadmin: None,
        qi_minfo: null_mut(),
        qi_mstat: null_mut(),
    }
}

/// An empty queue.
fn queue_of(procedures: *const qinit, info: &module_info, side: c_uint) -> queue {
    queue {
        q_qinfo: procedures.cast_mut(),
        q_first: null_mut(),
        q_last: null_mut(),
        q_next: null_mut(),
        q_link: null_mut(),
        q_ptr: null_mut(),
        q_count: 0,
        q_flag: side | QWANTR,
        q_minpsz: info.mi_minpsz,
        q_maxpsz: info.mi_maxpsz,
        q_hiwat: info.mi_hiwat,
        q_lowat: info.mi_lowat,
    }
}

/// Puts a module below the head, and opens it.
///
/// # Safety
/// A stream's head; a module or null, which stays there as long as the stream.
unsafe fn push(
    head: *mut queue_t,
    module: *mut streamtab,
    mut dev: dev_t,
    how: c_int,
) -> Result<c_int, Failure> {
    let misuse = || Failure::misuse("a module has qinit structures with put procedures and a module_info");
    // SAFETY: the caller's promise.
    unsafe {
        let table = module.as_ref().ok_or_else(misuse)?;
        let queue = |init: *mut qinit, side| {
            let init = init.as_ref().filter(|init| init.qi_putp.is_some())?;
            Some(queue_of(init, init.qi_minfo.as_ref()?, side))
        };
        let read = queue(table.st_rdinit, QREADR).ok_or_else(misuse)?;
        let write = queue(table.st_wrinit, 0).ok_or_else(misuse)?;
        let made = Box::new(Pair { queues: [read, write], enabled: (*pair(head)).enabled });
        let q = Box::into_raw(made).cast::<queue>();
        let below = std::mem::replace(&mut (*fbufs_WR(head)).q_next, fbufs_WR(q));
        ((*q).q_next, (*fbufs_WR(q)).q_next) = (head, below);
        if !below.is_null() {
            (*fbufs_OTHERQ(below)).q_next = q;
        }
        let error =
            (*table.st_rdinit).qi_qopen.map_or(0, |open| open(q, &raw mut dev, BOTH, how, null_mut()));
        if error != 0 {
            remove(head, false);
            return Err(Failure::new(error, "the module's open procedure has failed"));
        }
        Ok(0)
    }
}

/// Takes the module below the head out of the stream, and closes it where it is open.
///
/// # Safety
/// A stream's head with a module below.
unsafe fn remove(head: *mut queue_t, is_open: bool) {
    // SAFETY: the caller's promise.
    unsafe {
        let write = (*fbufs_WR(head)).q_next;
        let read = fbufs_OTHERQ(write);
        if let Some(close) = (*(*read).q_qinfo).qi_qclose.filter(|_| is_open) {
            close(read, BOTH, null_mut());
        }
        // This enables the queues that wait for room in them.
        fbufs_flushq(read, FLUSHALL);
        fbufs_flushq(write, FLUSHALL);
        let below = (*write).q_next;
        (*fbufs_WR(head)).q_next = below;
        if !below.is_null() {
            (*fbufs_OTHERQ(below)).q_next = head;
        }
        let enabled = (*pair(head)).enabled;
        let mut others = enabled.replace(Enabled { first: null_mut(), last: null_mut() });
        while let Some(q) = others.take() {
            if pair(q) != pair(read) {
                fbufs_qenable(q);
            }
        }
        drop(Box::from_raw(pair(read)));
    }
}

/// Frees a head, and what has come up to it.
///
/// # Safety
/// A stream's head without a module below, which nobody uses any more.
unsafe fn free(head: *mut queue_t) {
    // SAFETY: the caller's promise; it was made by `uf_stream_open`.
    unsafe {
        fbufs_flushq(head, FLUSHALL);
        drop(Box::from_raw(head.cast::<Head>()));
    }
}

/// The put procedure of a head's read queue.
unsafe extern "C" fn arrive(q: *mut queue_t, mp: *mut mblk_t) -> c_int {
    // SAFETY: a module below has given the message.
    unsafe {
        if c_int::from(kind(mp)) != M_FLUSH {
            return fbufs_putq(q, mp);
        }
        let which: c_uchar = if len(mp) > 0 { (*mp).b_rptr.read() } else { 0 };
        if which & FLUSHR != 0 {
            fbufs_flushq(q, FLUSHALL);
        }
        if which & FLUSHW != 0 {
            (*mp).b_rptr.write(which & !FLUSHR);
            fbufs_qreply(q, mp)
        } else {
            fbufs_freemsg(mp);
            0
        }
    }
}
