//! Messages (`sysv`) made of fbufs, made fbufs, and written.
//!
//! How: while a message is written it is one of the Rust interface: blocks that have their fbufs alone give them, and others lend their
//! bytes. What was not written goes back into its blocks.

use std::ffi::{c_int, c_void};
use std::ops::{Deref, DerefMut};

use libc::ssize_t;

use crate::c::failure::{Failure, call};
use crate::c::process::{Process, Target};
use crate::c::sysv::blocks::{chain, ensure_sound, is_taken, len, mblk_t, of_fbuf, put_back, take_fbuf};
use crate::c::sysv::messages::fbufs_freemsg;
use crate::{Block, Message};

/// Makes an fbuf, of which nbytes bytes from bufp on are the bytes, a message of one block. The fbuf is not the program's any more. It
/// begins and ends where db_base and db_lim say.
///
/// Returns the message, or NULL with errno set.
///
/// Errors: EFAULT (bufp is in no fbuf of this process), EINVAL (the fbuf has fewer bytes from there on, or is a mapped file).
#[unsafe(no_mangle)]
pub extern "C" fn uf_esballoc(bufp: *mut c_void, nbytes: usize) -> *mut mblk_t {
    call(std::ptr::null_mut(), || Ok(of_fbuf(Process::current()?.buffers.take_fbuf(bufp.addr(), nbytes)?)))
}

/// Makes a message an fbuf: its only block's, if no other block shares that, else a new one with a copy of all bytes. The message is
/// gone.
///
/// Returns the number of bytes, and stores the fbuf's address at *bufpp; or returns -1 with errno set, and the message is still there.
///
/// Errors: EFAULT (mp or bufpp is NULL), EINVAL (a block's bytes are not in its buffer), ESTALE (a buffer is the parent process's), ENOMEM,
/// EDQUOT.
///
/// Pointers: mp is a message, or NULL; bufpp points to a pointer, or is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uf_msgbuf(mp: *mut mblk_t, bufpp: *mut *mut c_void) -> ssize_t {
    call(-1, || {
        if bufpp.is_null() {
            return Err(Failure::null("where the fbuf's address is to go"));
        }
        let process = Process::current()?;
        // SAFETY: the caller's message, which is gone when it is an fbuf.
        let fbuf = unsafe {
            lending(mp, |message| {
                let fbuf = match std::mem::take(message).into_only_fbuf() {
                    Ok(fbuf) => fbuf,
                    Err(shared) => {
                        *message = shared;
                        message.copied(&process.pool()?)?
                    }
                };
                Ok(fbuf)
            })?
        };
        // SAFETY: the caller's message, whose bytes are in the fbuf now.
        unsafe { fbufs_freemsg(mp) };
        let len = fbuf.len();
        let addr = process.buffers.add(fbuf);
        // SAFETY: the caller's pointer is not null.
        unsafe { bufpp.write(std::ptr::with_exposed_provenance_mut(addr)) };
        Ok(len as ssize_t)
    })
}

/// Writes a message, all blocks of whatever type. When all is written, the message is gone. To a channel, or to a Genie server (uf_open),
/// the fbufs of its blocks go, one after the other, if no other block shares them, else copies, as of memory that is no fbuf; which of
/// them are passed without a copy is as for uf_write. To other descriptors the kernel copies.
///
/// Returns the number of bytes written, which is all unless the descriptor does not block or fails, or -1 with errno set. After fewer
/// bytes than the message had, and after -1, the message is still there, with all its blocks, which have left the bytes that were not written.
///
/// Errors: EFAULT (mp is NULL), EINVAL (a block's bytes are not in its buffer), ESTALE (a buffer is the parent process's), and those of
/// uf_write.
///
/// Pointers: mp is a message, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uf_putmsg(fd: c_int, mp: *mut mblk_t) -> ssize_t {
    call(-1, || {
        let process = Process::current()?;
        let descriptor = process.descriptor(fd)?;
        // SAFETY: the caller's descriptor.
        let target = unsafe { Target::of(descriptor.as_deref(), fd) }?;
        let write = |message: &mut Message| {
            let written = match target {
                Target::Channel(channel, true) => channel.write_message(message)?,
                Target::Channel(channel, false) => channel.try_write_message(message)?,
                Target::Server(connection) => connection.write_message(message)?,
                Target::Kernel(fd) => process.pool()?.write_message(fd, message)?,
                Target::Pipe(pipe) => pipe.write_message(process, message)?,
            };
            Ok((written, message.is_empty()))
        };
        // SAFETY: the caller's message; if it is written, nobody uses it any more.
        unsafe {
            let (written, is_over) = lending(mp, write)?;
            if is_over {
                fbufs_freemsg(mp);
            }
            Ok(written as ssize_t)
        }
    })
}

/// Does something with a message's blocks that takes some of them away, from the front, or a part of the first one that is left.
///
/// # Safety
/// A message that only the caller has, or null.
unsafe fn lending<T>(
    mp: *mut mblk_t,
    act: impl FnOnce(&mut Message) -> Result<T, Failure>,
) -> Result<T, Failure> {
    if mp.is_null() {
        return Err(Failure::null("the message"));
    }
    let mut message = Message::new();
    // SAFETY: the caller's promise.
    unsafe {
        chain(mp).try_for_each(|bp| ensure_sound(bp))?;
        for bp in chain(mp) {
            let block =
                take_fbuf(bp).map_or_else(|| Block::of(Lent { at: (*bp).b_rptr, len: len(bp) }), Block::from);
            message.append(block.into());
        }
        let result = act(&mut message);
        let gone = chain(mp).count() - message.blocks().count();
        for bp in chain(mp).take(gone) {
            (*bp).b_rptr = (*bp).b_wptr;
        }
        for (bp, left) in chain(mp).skip(gone).zip(message.into_blocks()) {
            (*bp).b_rptr = (*bp).b_wptr.wrapping_sub(left.len());
            if is_taken(bp)
                && let Ok(fbuf) = left.into_fbuf()
            {
                put_back(bp, fbuf);
            }
        }
        result
    }
}

/// A block's bytes, while a call writes them.
#[derive(Debug)]
struct Lent {
    at: *mut u8,
    len: usize,
}

// SAFETY: it is the bytes' only name while there is one, like a mutable reference. Duplicates of a block only read.
unsafe impl Send for Lent {}
// SAFETY: as above.
unsafe impl Sync for Lent {}

impl Deref for Lent {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `lending` has made it of a sound block, which outlives it; no bytes may be nowhere.
        if self.len == 0 { &[] } else { unsafe { std::slice::from_raw_parts(self.at, self.len) } }
    }
}

impl DerefMut for Lent {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`.
        if self.len == 0 { &mut [] } else { unsafe { std::slice::from_raw_parts_mut(self.at, self.len) } }
    }
}
