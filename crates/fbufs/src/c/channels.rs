//! Channels by their descriptors, and what calls on a descriptor do.

use std::cell::RefCell;
use std::ffi::{CStr, CString, OsStr, c_char, c_int};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use genie_channel::Connect;
use genie_channel::directory::Claim;
use rustix::fs::OFlags;

use crate::c::failure::{Failure, call, text};
use crate::c::process::{Kind, Process, Server, Target, kernels};
use crate::{Connection, Error, Passing};

/// In the result of uf_explain: uf_write of an fbuf passes it without a copy, if uf_allocate_for allocates such fbufs for the descriptor.
pub const UF_PASSES_FBUFS: c_int = 1;
/// In the result of uf_explain: uf_write of a mapped file passes its pages without a copy.
pub const UF_PASSES_FILES: c_int = 2;
/// In the result of uf_explain: uf_read gives the pages that were written, or that a server has filled, without a copy.
pub const UF_PASSES_INPUT: c_int = 4;

/// Makes a channel, both of whose ends are this process's: what is written to one is read from the other.
///
/// Channels are named by descriptors, for the calls of this library, uf_close among them, and for poll and epoll: POLLIN when the other
/// end has written after uf_read failed with EAGAIN, POLLRDHUP when it is closed, and POLLOUT always. So an event loop makes the
/// descriptor non-blocking, reads until EAGAIN, and then waits for POLLIN, or for EPOLLIN with EPOLLET; it may be woken once too often.
/// For room, see uf_room. The descriptors are not passed to other calls, nor duplicated, nor used by children made by fork.
///
/// Returns 0, or -1 with errno set.
///
/// Errors: EUSERS (the pool has its 128 channels), EMFILE, EFAULT (fdv is NULL).
///
/// Pointers: fdv points to two ints, or is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uf_pair(fdv: *mut c_int) -> c_int {
    call(-1, || {
        if fdv.is_null() {
            return Err(Failure::null("where the descriptors are to go"));
        }
        let process = Process::current()?;
        let pool = process.pool()?;
        let (one, offer) = pool.channel()?;
        let other = pool.take(offer)?;
        let numbers = [process.add_channel(one)?, process.add_channel(other)?];
        // SAFETY: the caller's pointer is not null.
        unsafe { fdv.cast::<[c_int; 2]>().write_unaligned(numbers) };
        Ok(0)
    })
}

/// Makes a socket at a path, at which other processes ask for channels by uf_connect: those of the same group (uf_join). A path at which
/// a process has listened that is gone is taken over. uf_close removes the path, and a lock file beside it, whose name ends in .lock.
///
/// Returns a descriptor, for uf_accept, uf_close and poll (POLLIN: somebody asks), or -1 with errno set.
///
/// Errors: EADDRINUSE (another process listens at the path, or is a child made by fork of one that did; or there is something else than a
/// socket), ENAMETOOLONG (it has more than 107 bytes), EFAULT (it is NULL), and those of open and bind.
///
/// Pointers: path points to a string, or is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uf_listen(path: *const c_char) -> c_int {
    call(-1, || {
        // SAFETY: the caller has promised a string.
        let path = unsafe { path_of(&path) }?;
        Process::current()?.add(Kind::Listener(Claim::at(path).map_err(Error::from)?))
    })
}

/// Makes a channel with the process that has waited longest at a listener. Waits for one, unless the listener does not block. Processes
/// that have gone meanwhile are passed over. A process of another group cannot take its end: it is told so, and here the channel is at
/// its end at once.
///
/// Returns a descriptor, or -1 with errno set.
///
/// Errors: EINVAL (it is no listener), EAGAIN, EUSERS (the pool has its 128 channels), ESTALE (it is the parent process's), EMFILE.
#[unsafe(no_mangle)]
pub extern "C" fn uf_accept(listener: c_int) -> c_int {
    call(-1, || {
        let process = Process::current()?;
        let descriptor = process.descriptor(listener)?.ok_or_else(not_a_listener)?;
        let Kind::Listener(claim) = &descriptor.kind else { return Err(not_a_listener()) };
        let (listener, pool) = (claim.listener(), process.pool()?);
        loop {
            if let Some(channel) = pool.accept(listener)? {
                return process.add_channel(channel);
            }
            if !descriptor.waits.load(Ordering::Relaxed) {
                return Err(Error::WouldBlock.into());
            }
            genie_sys::poll::readable(listener, None)?;
        }
    })
}

/// Makes a channel with the process that listens at a path, which must be of the same group (uf_join). Waits until that accepts.
///
/// Returns a descriptor, or -1 with errno set.
///
/// Errors: ENOENT and ECONNREFUSED (nobody listens there), EACCES, EINVAL (the process is of another group), EPIPE (it has given up),
/// EFAULT (path is NULL), EMFILE.
///
/// Pointers: path points to a string, or is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uf_connect(path: *const c_char) -> c_int {
    call(-1, || {
        // SAFETY: the caller has promised a string.
        let path = unsafe { path_of(&path) }?;
        let process = Process::current()?;
        process.add_channel(process.pool()?.connect(path)?)
    })
}

/// Makes a channel as uf_connect does, with a process that may not listen yet: waits for that, and until it accepts, for at most
/// timeout_ms milliseconds, or without a limit if that is negative.
///
/// Returns a descriptor, or -1 with errno set.
///
/// Errors: ENOENT and ECONNREFUSED (nobody has listened there in that time), ETIMEDOUT (the process that listens has not accepted in that
/// time), and the others of uf_connect.
///
/// Pointers: path points to a string, or is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uf_connect_timeout(path: *const c_char, timeout_ms: c_int) -> c_int {
    call(-1, || {
        // SAFETY: the caller has promised a string.
        let path = unsafe { path_of(&path) }?;
        let timeout = u64::try_from(timeout_ms).map_or(Duration::MAX, Duration::from_millis);
        let process = Process::current()?;
        process.add_channel(process.pool()?.connect_timeout(path, timeout)?)
    })
}

/// Opens a Genie server, in another process, as a descriptor: server is its name in the run-time directory ($GENIE_RUNTIME_DIR, or
/// $XDG_RUNTIME_DIR/genie, or /tmp/genie-UID), read_service names the service that is asked for input by uf_read, and write_service the
/// one that is given output by uf_write. One of the two may be NULL: that call fails then (EBADF).
///
/// Each uf_read is a request with one input, and each uf_write a request with one output, without an argument; a reply without bytes is
/// the end. The calls wait for the server's reply, so poll reports the descriptor ready at all times, as it does files. What holds for
/// channels' descriptors holds for this one: it is passed to calls of this library and to poll alone, and closed by uf_close.
///
/// Returns a descriptor, or -1 with errno set.
///
/// Errors: ENOENT (nobody serves under that name, or has such a service), EACCES, EBUSY, EHOSTDOWN, EINVAL (no name, or none that a
/// server can have), EFAULT (server is NULL), ENOMEM, EMFILE.
///
/// Pointers: server, read_service and write_service point to strings, or are NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uf_open(
    server: *const c_char,
    read_service: *const c_char,
    write_service: *const c_char,
) -> c_int {
    call(-1, || {
        // SAFETY: the caller has promised strings.
        let [server, read, write] =
            unsafe { [text_of(&server)?, text_of(&read_service)?, text_of(&write_service)?] };
        let server = server.ok_or_else(|| Failure::null("the server's name"))?;
        let process = Process::current()?;
        let traps = process.pool()?.0.config.traps;
        let interface = Process::interface()?;
        let handle = interface.connect(server).map_err(Error::from)?;
        let service = |name: Option<&str>| name.map(|name| handle.service(name)).transpose();
        let [read, write] = [service(read), service(write)].map(|found| found.map_err(Error::from));
        let connection = Connection::new(interface, &handle, read?, write?).with_traps(traps);
        process.add(Kind::Server(Box::new(Server::new(connection)?)))
    })
}

/// Gives a descriptor that poll and epoll report readable (POLLIN) when there is room in a channel, after uf_write or uf_putmsg on the
/// channel failed with EAGAIN, or wrote less than all: when 64 fbufs have been read, so that a writer is not woken for each. It is reported
/// when the other end is closed, too. It is for waiting alone, and the library's: uf_close of the channel closes it.
///
/// Returns a descriptor, or -1 with errno set.
///
/// Errors: EINVAL (fd is no channel's; for one of the kernel's, wait for POLLOUT), ESTALE (it is the parent process's), EBADF.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uf_room(fd: c_int) -> c_int {
    call(-1, || {
        let descriptor = Process::current()?.descriptor(fd)?;
        // SAFETY: the caller's descriptor.
        match unsafe { Target::of(descriptor.as_deref(), fd) }? {
            Target::Channel(channel, _) => Ok(channel.room().as_raw_fd()),
            _ => Err(Failure::misuse("it is no channel's descriptor: wait for the descriptor itself")),
        }
    })
}

/// Closes a descriptor, of this library or of the kernel's. What was written to a channel can still be read at the other end, even by
/// a process whose uf_connect has not returned yet; so it can when this process ends.
///
/// A channel or a Genie server is closed by this call alone, never by close. If another thread's call uses it, it is closed when that
/// returns, which this call does not bring about; until then, further calls on it fail.
///
/// The writing end of a pipe that was taken over (uf_take_over) waits until no more is unread than a pipe holds, and leaves that in the
/// pipe.
///
/// Returns 0, or -1 with errno set. A pipe is closed then, too.
///
/// Errors: EBADF (also after uf_close), EINVAL (uf_room gave it), EPIPE (nobody reads what was written), and those of close.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uf_close(fd: c_int) -> c_int {
    call(-1, || {
        let process = Process::current()?;
        let settled = match process.descriptor(fd).ok().flatten().as_deref().map(|found| &found.kind) {
            Some(Kind::Pipe(pipe)) => pipe.settle(),
            _ => Ok(()),
        };
        if process.close(fd)? {
            return settled.map(|()| 0);
        }
        process.ensure_no_room(fd)?;
        // SAFETY: the program says that it uses the descriptor no more, and the library has none of this number.
        match unsafe { libc::close(fd) } {
            0 => Ok(0),
            _ => {
                let error = std::io::Error::last_os_error();
                Err(Failure::new(error.raw_os_error().unwrap_or(libc::EIO), format!("close failed: {error}")))
            }
        }
    })
}

/// Says whether calls on a descriptor, of this library or of the kernel's, wait (nonblocking is 0, as for new ones), or fail with
/// EAGAIN.
///
/// Returns 0, or -1 with errno set.
///
/// Errors: EBADF, ESTALE (it is the parent process's), EINVAL (it is a duplicate of one of the library's, or uf_room gave it), EOPNOTSUPP
/// (it is a Genie server's: calls wait for the server's reply; or a pipe that uf_take_over has taken over).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uf_set_nonblocking(fd: c_int, nonblocking: c_int) -> c_int {
    call(-1, || {
        if let Some(descriptor) = Process::current()?.descriptor(fd)? {
            if nonblocking != 0 && matches!(descriptor.kind, Kind::Server(_) | Kind::Pipe(_)) {
                let why = "calls on a Genie server, and on a pipe that was taken over (uf_take_over), wait";
                return Err(Failure::new(libc::EOPNOTSUPP, why));
            }
            descriptor.waits.store(nonblocking == 0, Ordering::Relaxed);
            return Ok(0);
        }
        // SAFETY: the caller's descriptor.
        let (fd, failed) = (unsafe { kernels(fd) }?, |errno| Error::Io { call: "fcntl", errno });
        let mut flags = rustix::fs::fcntl_getfl(fd).map_err(failed)?;
        flags.set(OFlags::NONBLOCK, nonblocking != 0);
        rustix::fs::fcntl_setfl(fd, flags).map_err(failed)?;
        Ok(0)
    })
}

/// Says whether data is passed without being copied by calls on a descriptor, and why not.
///
/// Returns which of UF_PASSES_FBUFS, UF_PASSES_FILES and UF_PASSES_INPUT holds, or -1 with errno set. If textp is not NULL, *textp is
/// a sentence with the reasons, which is valid until the thread's next call of uf_explain.
///
/// Errors: EBADF, ESTALE (it is the parent process's), EINVAL (it is a listener, a duplicate of one of the library's, or
/// uf_room gave it).
///
/// Pointers: textp points to a pointer, or is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uf_explain(fd: c_int, textp: *mut *const c_char) -> c_int {
    thread_local! {
        static LAST: RefCell<CString> = RefCell::default();
    }
    call(-1, || {
        let process = Process::current()?;
        let explanation = match process.descriptor(fd)? {
            Some(descriptor) => match &descriptor.kind {
                Kind::Channel(channel) => process.explain(channel)?,
                Kind::Pipe(pipe) => pipe.explain(process)?,
                Kind::Server(server) => server.connection.explain(),
                Kind::Listener(_) => {
                    return Err(Failure::misuse("nothing is read from or written to a listener"));
                }
            },
            // SAFETY: the caller's descriptor.
            None => crate::explain(unsafe { kernels(fd) }?)?,
        };
        if !textp.is_null() {
            LAST.with(|last| {
                last.replace(text(&explanation.to_string()));
                // SAFETY: the caller's pointer is not null.
                unsafe { textp.write(last.borrow().as_ptr()) };
            });
        }
        let bit = |passing, bit| if matches!(passing, Passing::Passed(_)) { bit } else { 0 };
        Ok(bit(explanation.write, UF_PASSES_FBUFS)
            | bit(explanation.write_mapped, UF_PASSES_FILES)
            | bit(explanation.read, UF_PASSES_INPUT))
    })
}

fn not_a_listener() -> Failure {
    Failure::misuse("uf_accept takes what uf_listen gives")
}

/// # Safety
/// The pointer is null, or points to a string that is there as long as the pointer.
unsafe fn path_of(path: &*const c_char) -> Result<&Path, Failure> {
    if path.is_null() {
        return Err(Failure::null("the path"));
    }
    // SAFETY: not null, and the caller's promise.
    Ok(Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(*path) }.to_bytes())))
}

/// # Safety
/// The pointer is null, or points to a string that is there as long as the pointer.
unsafe fn text_of(text: &*const c_char) -> Result<Option<&str>, Failure> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: not null, and the caller's promise.
    let text = unsafe { CStr::from_ptr(*text) }.to_str();
    text.map(Some).map_err(|_| Failure::misuse("a name is not UTF-8"))
}
