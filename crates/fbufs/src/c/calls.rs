//! Input and output by exchange of buffers (SMLI TR-95-39, table 1).

use std::ffi::{c_char, c_int, c_void};

use libc::{off_t, ssize_t};

use crate::c::buffers::{Taken, Whole};
use crate::c::failure::{Failure, call};
use crate::c::process::{Process, Target, kernels};
use crate::{Error, Fbuf, Unwritten};

/// Allocates an fbuf of size bytes, which are whatever they were. It begins at a page; it is the program's until uf_deallocate or
/// uf_write takes it.
///
/// Returns its address, or NULL with errno set.
///
/// Errors: ENOMEM (the pool is used up), EDQUOT (the process has as much of it as uf_configure allows).
#[unsafe(no_mangle)]
pub extern "C" fn uf_allocate(size: usize) -> *mut c_void {
    call(std::ptr::null_mut(), || {
        let process = Process::current()?;
        Ok(pointer(process.buffers.add(process.pool()?.allocate(size)?)))
    })
}

/// Allocates an fbuf of size bytes, as uf_allocate does, of the kind that uf_write passes without a copy to a descriptor: of the
/// channel's pool for a channel, of memory that Genie servers are shown for a server (uf_open), and as uf_allocate for others. It may
/// be written to other descriptors, too: see uf_explain.
///
/// Returns its address, or NULL with errno set.
///
/// Errors: ENOMEM, EDQUOT, EINVAL (fd is a listener, or a duplicate), ESTALE (it is the parent process's), EBADF.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uf_allocate_for(fd: c_int, size: usize) -> *mut c_void {
    call(std::ptr::null_mut(), || {
        let process = Process::current()?;
        let descriptor = process.descriptor(fd)?;
        // SAFETY: the caller's descriptor.
        let fbuf = unsafe { Target::of(descriptor.as_deref(), fd) }?.allocate(process, size)?;
        Ok(pointer(process.buffers.add(fbuf)))
    })
}

/// Returns an fbuf to its pool: all of it, whatever part of it ptr and size name. The program must not touch it any more.
///
/// Returns NULL, or UF_FAILED with errno set; then nothing has changed.
///
/// Errors: EFAULT (ptr is in no fbuf of this process), EINVAL (the fbuf has fewer than size bytes from there on, or is a mapped file).
#[unsafe(no_mangle)]
pub extern "C" fn uf_deallocate(ptr: *mut c_void, size: usize) -> *mut c_void {
    call(failed(), || {
        drop(Process::current()?.buffers.take_fbuf(ptr.addr(), size)?);
        Ok(std::ptr::null_mut())
    })
}

/// Reads at most nbytes bytes of what there is to read, and gives an fbuf with them, which is the program's: its address is stored at
/// *bufpp. Waits for something to read, unless the descriptor does not block.
///
/// From a channel the fbuf itself comes that the other end has written; if it has more than nbytes bytes, the first of them are
/// copied, and the others come next. A Genie server (uf_open) fills the fbuf, of at most 1 MiB, in place. From all other descriptors the
/// bytes are copied by the kernel.
///
/// Returns the number of bytes; 0 at the end, and then *bufpp is NULL; or -1 with errno set.
///
/// Errors: EAGAIN, EFAULT (bufpp is NULL), ENOMEM and EDQUOT (as uf_allocate), EBADMSG (another process of the group has spoilt the
/// channel), ESTALE (fd is the parent process's), EINVAL (it is a listener, or a duplicate), and those of read. Of a Genie server:
/// EBADF (it was opened without a service that gives input), what the server says, EREMOTEIO (its code failed), ECONNRESET and EPIPE (it
/// has ended), and others; uf_error_text says which it is.
///
/// Pointers: bufpp points to a pointer, or is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uf_read(fd: c_int, bufpp: *mut *mut c_void, nbytes: usize) -> ssize_t {
    call(-1, || {
        if bufpp.is_null() {
            return Err(Failure::null("where the fbuf's address is to go"));
        }
        let process = Process::current()?;
        // SAFETY: the caller's descriptor.
        let fbuf = unsafe { read(process, fd, nbytes) }?;
        let len = fbuf.as_ref().map_or(0, |fbuf| fbuf.len());
        let addr = fbuf.filter(|_| len > 0).map_or(0, |fbuf| process.buffers.add(fbuf));
        // SAFETY: the caller's pointer is not null.
        unsafe { bufpp.write(pointer(addr)) };
        Ok(len as ssize_t)
    })
}

/// Reads as uf_read does, as much as there is to read now; from the kernel's descriptors, no more than a quarter of the pool, and no
/// more than the process may still allocate (uf_configure). The rest comes next.
///
/// Pointers: As uf_read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uf_get(fd: c_int, bufpp: *mut *mut c_void) -> ssize_t {
    // SAFETY: the caller has promised the same.
    unsafe { uf_read(fd, bufpp, usize::MAX) }
}

/// Writes nbytes bytes from bufp on, which are in an fbuf, or in a file that uf_mmap has mapped.
///
/// When all are written, the fbuf is gone, all of it: the program must not touch it any more. What a touch finds is undefined; it is
/// trapped (SIGSEGV) where uf_configure or the environment (GENIE_FBUFS_TRAPS=1) asks for that. A mapped file stays mapped.
///
/// To a channel the fbuf itself goes, without a copy; it is copied if it is of another pool than the channel is, or a file. To a Genie
/// server (uf_open) fbufs go without a copy that uf_allocate_for gave, or that were read from a Genie server, and others are copied; the
/// call waits until the server has replied. To other descriptors the kernel copies the bytes of an fbuf, but passes the pages of a
/// mapped file to pipes and sockets; what is stored into the file before it is read there may be seen there. See uf_explain.
///
/// Returns the number of bytes written, which is nbytes unless the descriptor does not block or fails, or -1 with errno set. After
/// fewer bytes than nbytes the fbuf is the program's still, from the first byte on that was not written; after -1, all of it.
///
/// Errors: EFAULT (bufp is in no fbuf of this process; other memory is never written), EINVAL (the fbuf has fewer bytes from there
/// on; fd is a listener, or a duplicate), EAGAIN, EPIPE (the other end is closed; of a kernel's descriptor, with SIGPIPE), EBADMSG,
/// ESTALE, ENOMEM (no buffer for a copy), those of write and sendfile, and of a Genie server those of uf_read. If a server has ended
/// or was given up with the fbuf in its hands (ECONNRESET, ETIMEDOUT), the fbuf may be gone: calls then refuse it (EFAULT).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uf_write(fd: c_int, bufp: *const c_void, nbytes: usize) -> ssize_t {
    call(-1, || {
        let process = Process::current()?;
        let descriptor = process.descriptor(fd)?;
        // SAFETY: the caller's descriptor.
        let target = unsafe { Target::of(descriptor.as_deref(), fd) }?;
        let written = match (process.buffers.take(bufp.addr(), nbytes)?, target.kernels()) {
            (Taken::Mapped(mapped, range), Some(fd)) => mapped.write(fd, range)?,
            (Taken::Mapped(mapped, range), None) => {
                let mut copy = target.allocate(process, range.len())?;
                mapped.copy_to(range.start, &mut copy)?;
                target.write(copy)?
            }
            (Taken::Fbuf(fbuf, whole), _) if target.channel().is_some_and(|to| !to.pool().has(&fbuf)) => {
                pass_copy(process, target, fbuf, whole)?
            }
            (Taken::Fbuf(fbuf, whole), _) => finish(process, whole, target.write(fbuf))?,
        };
        Ok(written as ssize_t)
    })
}

/// Maps len bytes of the file fd from off on, a multiple of the page's size, so that parts of them can be written by uf_write like
/// fbufs. They can be loaded and not stored into: prot is PROT_READ. flags is MAP_SHARED or MAP_PRIVATE, and addr a hint, which is
/// not taken. Where the file ends, or is shortened later, zeros are loaded.
///
/// Returns the first address, or MAP_FAILED with errno set.
///
/// Errors: EINVAL (len is 0, off is not a multiple of the page's size, or flags are others), EACCES (prot is not PROT_READ), EBADF,
/// and those of mmap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uf_mmap(
    addr: *mut c_char,
    len: usize,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    off: off_t,
) -> *mut c_char {
    let _ = addr;
    call(failed().cast(), || {
        if prot != libc::PROT_READ {
            return Err(Failure::new(libc::EACCES, "mapped files can be read only: pass PROT_READ"));
        }
        if ![libc::MAP_SHARED, libc::MAP_PRIVATE].contains(&(flags & !libc::MAP_FILE)) {
            return Err(Failure::misuse(
                "pass MAP_SHARED or MAP_PRIVATE alone: the library chooses addresses",
            ));
        }
        if len == 0 {
            return Err(Failure::misuse("no bytes cannot be mapped: pass the length"));
        }
        let off = u64::try_from(off).map_err(|_| Failure::misuse("a file has no negative offsets"))?;
        let process = Process::current()?;
        // SAFETY: the caller's descriptor.
        let mapped = process.pool()?.map(unsafe { kernels(fd) }?, off, len)?;
        Ok(pointer(process.buffers.add_mapped(mapped)).cast())
    })
}

/// Unmaps what uf_mmap has mapped: all of it. What was written of it stays where it went.
///
/// Returns 0, or -1 with errno set.
///
/// Errors: EFAULT (addr is not the address of a mapped file), EINVAL (another length was mapped, or it is an fbuf).
#[unsafe(no_mangle)]
pub extern "C" fn uf_unmap(addr: *mut c_void, len: usize) -> c_int {
    call(-1, || Process::current()?.buffers.remove_mapped(addr.addr(), len).map(|()| 0))
}

/// Reads from a descriptor.
///
/// # Safety
/// As [`kernels`], where it is none of the library's.
pub(crate) unsafe fn read(process: &Process, fd: c_int, len: usize) -> Result<Option<Fbuf>, Failure> {
    let descriptor = process.descriptor(fd)?;
    // SAFETY: the caller's promise.
    let target = unsafe { Target::of(descriptor.as_deref(), fd) }?;
    if len == 0 {
        return Ok(None);
    }
    Ok(match target {
        Target::Channel(channel, true) => channel.read(len)?,
        Target::Channel(channel, false) => channel.try_read(len)?,
        Target::Server(connection) => connection.read(len)?,
        Target::Kernel(fd) => process.pool()?.read(fd, len)?,
        Target::Pipe(pipe) => pipe.read(process, len)?,
    })
}

/// Writes a copy of a buffer to a channel that cannot pass it, so that the buffer keeps its address if that fails.
fn pass_copy(process: &Process, target: Target<'_>, fbuf: Fbuf, whole: Whole) -> Result<usize, Failure> {
    let sent = target.allocate(process, fbuf.len()).and_then(|mut copy| {
        copy.copy_from_slice(&fbuf);
        Ok(target.write(copy)?)
    });
    if sent.is_err() {
        process.buffers.put_back(fbuf, whole, 0);
    }
    sent
}

/// Writes bytes in a new buffer; returns how many were written, at least one.
///
/// # Safety
/// As [`kernels`], where it is none of the library's.
pub(crate) unsafe fn pass_on(process: &Process, fd: c_int, bytes: &[u8]) -> Result<usize, Failure> {
    let descriptor = process.descriptor(fd)?;
    // SAFETY: the caller's promise.
    let target = unsafe { Target::of(descriptor.as_deref(), fd) }?;
    let mut fbuf = target.allocate(process, bytes.len())?;
    fbuf.copy_from_slice(bytes);
    target.write(fbuf).or_else(|unwritten| {
        if unwritten.written > 0 { Ok(unwritten.written) } else { Err(unwritten.into()) }
    })
}

/// Gives back to the program what was not written.
fn finish(process: &Process, whole: Whole, result: Result<usize, Box<Unwritten>>) -> Result<usize, Failure> {
    result.or_else(|unwritten| {
        let Unwritten { error, fbuf, written } = *unwritten;
        process.buffers.put_back(fbuf, whole, written);
        if written > 0 { Ok(written) } else { Err(Error::into(error)) }
    })
}

fn pointer(addr: usize) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(addr)
}

/// UF_FAILED, and MAP_FAILED.
fn failed() -> *mut c_void {
    std::ptr::without_provenance_mut(usize::MAX)
}
