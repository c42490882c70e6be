//! Messages: chains of blocks that name parts of fbufs, to be put headers in front of, cut and joined without being copied.
//!
//! How: a message's name is a number in the form of a pointer, so that one that is used wrongly is found out. A call takes the
//! message out of the table while it works on it.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use genie_sys::lock::Mutex;
use libc::ssize_t;

use crate::c::failure::{Failure, call};
use crate::c::process::{Process, Target};
use crate::{Block, Message, Pool};

/// The name of a message, by which functions of the library know it. There is nothing at that address.
#[derive(Debug)]
pub struct Mblk(());

/// The name of a message.
#[allow(non_camel_case_types, reason = "its name in C")]
pub type mblk_t = Mblk;

/// All messages, by their names.
#[derive(Debug, Default)]
pub(crate) struct Messages(Mutex<BTreeMap<usize, Message>>);

/// The next name. A child does not give its parent's again.
static NEXT: AtomicUsize = AtomicUsize::new(1);

/// Makes an fbuf, of which nbytes bytes from bufp on are the bytes, a message. The fbuf is not the program's any more.
///
/// Returns the message, or NULL with errno set.
///
/// Errors: EFAULT (bufp is in no fbuf of this process), EINVAL (the fbuf has fewer bytes from there on, or is a mapped file).
#[unsafe(no_mangle)]
pub extern "C" fn uf_esballoc(bufp: *mut c_void, nbytes: usize) -> *mut mblk_t {
    call(std::ptr::null_mut(), || {
        let process = Process::current()?;
        Ok(process.messages.add(process.buffers.take_fbuf(bufp.addr(), nbytes)?.into()))
    })
}

/// Makes a message an fbuf: its only block's, if no other message shares that, else a new one with a copy of all bytes. The message is
/// gone.
///
/// Returns the number of bytes, and stores the fbuf's address at *bufpp; or returns -1 with errno set, and the message is still there.
///
/// Errors: EFAULT (there is no such message, or bufpp is NULL), ENOMEM, EDQUOT.
///
/// Pointers: bufpp points to a pointer, or is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uf_msgbuf(mp: *mut mblk_t, bufpp: *mut *mut c_void) -> ssize_t {
    call(-1, || {
        if bufpp.is_null() {
            return Err(Failure::null("where the fbuf's address is to go"));
        }
        let process = Process::current()?;
        let pool = process.messages.with(mp, |message| pool_of(process, message))?;
        // A duplicate, which copies nothing, is there in case of failure.
        let message = process.messages.take(mp)?;
        let is_shared = message.blocks().count() != 1 || message.blocks().any(|block| block.references() > 1);
        let kept = is_shared.then(|| message.duplicate());
        let fbuf = message
            .into_fbuf(&pool)
            .inspect_err(|_| process.messages.put_back(mp, kept.unwrap_or_default()))?;
        let len = fbuf.len();
        let addr = process.buffers.add(fbuf);
        // SAFETY: the caller's pointer is not null.
        unsafe { bufpp.write(std::ptr::with_exposed_provenance_mut(addr)) };
        Ok(len as ssize_t)
    })
}

/// Frees a message. Fbufs that no other message shares go back to their pool.
///
/// Returns 0, or -1 with errno set.
///
/// Errors: EFAULT (there is no such message).
#[unsafe(no_mangle)]
pub extern "C" fn uf_freemsg(mp: *mut mblk_t) -> c_int {
    call(-1, || Process::current()?.messages.take(mp).map(|_| 0))
}

/// Puts nbytes bytes in front of a message's: in front of its first block's, where there is room and no other message shares the fbuf,
/// else in a block of their own. The bytes are copied.
///
/// Returns 0, or -1 with errno set; then nothing has changed.
///
/// Errors: EFAULT (there is no such message, or bytes is NULL), ENOMEM, EDQUOT.
///
/// Pointers: bytes points to nbytes bytes, or is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uf_prepend(mp: *mut mblk_t, bytes: *const c_void, nbytes: usize) -> c_int {
    // SAFETY: the caller has promised so many bytes.
    call(-1, || unsafe { store(mp, bytes, nbytes, Message::prepend) })
}

/// Puts nbytes bytes behind a message's, as uf_prepend puts them in front.
///
/// Pointers: As uf_prepend.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uf_append(mp: *mut mblk_t, bytes: *const c_void, nbytes: usize) -> c_int {
    // SAFETY: the caller has promised so many bytes.
    call(-1, || unsafe { store(mp, bytes, nbytes, Message::append_bytes) })
}

/// Cuts a message: it keeps the first at bytes, and the others are the message that is returned. No byte is copied; at the cut, both
/// share an fbuf.
///
/// Returns a message, or NULL with errno set; then nothing has changed.
///
/// Errors: EFAULT (there is no such message), EINVAL (it has fewer bytes).
#[unsafe(no_mangle)]
pub extern "C" fn uf_split(mp: *mut mblk_t, at: usize) -> *mut mblk_t {
    call(std::ptr::null_mut(), || {
        let messages = &Process::current()?.messages;
        let rest = messages.with(mp, |message| Ok(message.split_off(at)?))?;
        Ok(messages.add(rest))
    })
}

/// Joins messages: the blocks of later follow those of mp. The message later is gone. No byte is copied.
///
/// Returns 0, or -1 with errno set; then nothing has changed.
///
/// Errors: EFAULT (there is no such message, or both are the same).
#[unsafe(no_mangle)]
pub extern "C" fn uf_linkb(mp: *mut mblk_t, later: *mut mblk_t) -> c_int {
    call(-1, || {
        let messages = &Process::current()?.messages;
        messages.with(mp, |message| {
            message.append(messages.take(later)?);
            Ok(0)
        })
    })
}

/// Makes another message of the same bytes, which neither may change while both exist. No byte is copied.
///
/// Returns a message, or NULL with errno set.
///
/// Errors: EFAULT (there is no such message).
#[unsafe(no_mangle)]
pub extern "C" fn uf_dupmsg(mp: *mut mblk_t) -> *mut mblk_t {
    call(std::ptr::null_mut(), || {
        let messages = &Process::current()?.messages;
        let same = messages.with(mp, |message| Ok(message.duplicate()))?;
        Ok(messages.add(same))
    })
}

/// Leaves out the first len bytes of a message, or the last -len if len is negative.
///
/// Returns 0, or -1 with errno set; then nothing has changed.
///
/// Errors: EFAULT (there is no such message), EINVAL (it has fewer bytes).
#[unsafe(no_mangle)]
pub extern "C" fn uf_adjmsg(mp: *mut mblk_t, len: ssize_t) -> c_int {
    call(-1, || {
        Process::current()?.messages.with(mp, |message| {
            if let Ok(len) = usize::try_from(len) {
                message.trim_front(len)?;
            } else {
                let (all, cut) = (message.len(), len.unsigned_abs());
                let kept = all.checked_sub(cut).ok_or(crate::Error::TooShort { asked: cut, len: all })?;
                drop(message.split_off(kept)?);
            }
            Ok(0)
        })
    })
}

/// Makes the first len bytes of a message lie in its first block; copies them unless they do so already.
///
/// Returns 0, or -1 with errno set; then nothing has changed.
///
/// Errors: EFAULT (there is no such message), EINVAL (it has fewer bytes), ENOMEM, EDQUOT.
#[unsafe(no_mangle)]
pub extern "C" fn uf_pullupmsg(mp: *mut mblk_t, len: usize) -> c_int {
    call(-1, || {
        let process = Process::current()?;
        process.messages.with(mp, |message| {
            message.pull_up(&pool_of(process, message)?, len)?;
            Ok(0)
        })
    })
}

/// Tells how many bytes a message has; -1 with errno set.
///
/// Errors: EFAULT (there is no such message).
#[unsafe(no_mangle)]
pub extern "C" fn uf_msgdsize(mp: *mut mblk_t) -> ssize_t {
    call(-1, || Process::current()?.messages.with(mp, |message| Ok(message.len() as ssize_t)))
}

/// Tells where the bytes of a message's block lie; blocks are counted from 0. They stay there until a call changes or frees the message.
/// The program may store into them only while no other message shares them.
///
/// Returns the number of bytes, and stores their address at *bytesp; or -1 with errno set.
///
/// Errors: EFAULT (there is no such message, or bytesp is NULL), EINVAL (it has no such block).
///
/// Pointers: bytesp points to a pointer, or is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uf_block(mp: *mut mblk_t, index: c_int, bytesp: *mut *mut c_void) -> ssize_t {
    call(-1, || {
        if bytesp.is_null() {
            return Err(Failure::null("where the address is to go"));
        }
        Process::current()?.messages.with(mp, |message| {
            let found = usize::try_from(index).ok().and_then(|index| message.blocks().nth(index));
            let block: &Block =
                found.ok_or_else(|| Failure::misuse(format!("the message has no block {index}")))?;
            let addr = block.as_ptr().addr();
            // SAFETY: the caller's pointer is not null.
            unsafe { bytesp.write(std::ptr::with_exposed_provenance_mut(addr)) };
            Ok(block.len() as ssize_t)
        })
    })
}

/// Writes a message. When all is written, the message is gone. To a channel, or to a Genie server (uf_open), the fbufs of its blocks go,
/// one after the other, if no other message shares them, else copies; which of them are passed without a copy is as for uf_write. To
/// other descriptors the kernel copies.
///
/// Returns the number of bytes written, which is all unless the descriptor does not block or fails, or -1 with errno set. After fewer
/// bytes than the message had, and after -1, the message is still there, without what was written.
///
/// Errors: EFAULT (there is no such message), and those of uf_write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uf_putmsg(fd: c_int, mp: *mut mblk_t) -> ssize_t {
    call(-1, || {
        let process = Process::current()?;
        let descriptor = process.descriptor(fd)?;
        // SAFETY: the caller's descriptor.
        let target = unsafe { Target::of(descriptor.as_deref(), fd) }?;
        let (written, is_over) = process.messages.with(mp, |message| {
            let written = match target {
                Target::Channel(channel, true) => channel.write_message(message)?,
                Target::Channel(channel, false) => channel.try_write_message(message)?,
                Target::Server(connection) => connection.write_message(message)?,
                Target::Kernel(fd) => process.pool()?.write_message(fd, message)?,
                Target::Pipe(pipe) => pipe.write_message(process, message)?,
            };
            Ok((written, message.is_empty()))
        })?;
        if is_over {
            drop(process.messages.take(mp)?);
        }
        Ok(written as ssize_t)
    })
}

/// # Safety
/// There are so many bytes, or the pointer is null.
unsafe fn store(
    mp: *mut mblk_t,
    bytes: *const c_void,
    nbytes: usize,
    put: impl FnOnce(&mut Message, &Pool, &[u8]) -> crate::Result<()>,
) -> Result<c_int, Failure> {
    if bytes.is_null() {
        return Err(Failure::null("the bytes"));
    }
    if isize::try_from(nbytes).is_err() {
        return Err(Failure::new(libc::ENOMEM, format!("no pool has {nbytes} bytes")));
    }
    // SAFETY: the caller's promise, and not more than there can be.
    let bytes = unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), nbytes) };
    let process = Process::current()?;
    process.messages.with(mp, |message| {
        put(message, &pool_of(process, message)?, bytes)?;
        Ok(0)
    })
}

/// The pool that further blocks of a message are of.
fn pool_of(process: &Process, message: &Message) -> Result<Pool, Failure> {
    message.blocks().next().and_then(Block::pool).map_or_else(|| process.pool(), |pool| Ok(pool.clone()))
}

impl Messages {
    pub(crate) fn add(&self, message: Message) -> *mut mblk_t {
        let name = std::ptr::without_provenance_mut(NEXT.fetch_add(1, Ordering::Relaxed));
        self.put_back(name, message);
        name
    }

    fn put_back(&self, mp: *mut mblk_t, message: Message) {
        self.0.lock().insert(mp.addr(), message);
    }

    fn take(&self, mp: *mut mblk_t) -> Result<Message, Failure> {
        let sentence =
            || format!("there is no message {:#x}: it was freed, joined, written or never there", mp.addr());
        self.0.lock().remove(&mp.addr()).ok_or_else(|| Failure::new(libc::EFAULT, sentence()))
    }

    fn with<T>(
        &self,
        mp: *mut mblk_t,
        act: impl FnOnce(&mut Message) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let mut message = self.take(mp)?;
        let result = act(&mut message);
        self.put_back(mp, message);
        result
    }
}
