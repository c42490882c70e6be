//! Interfaces: opening, limits, thresholds, the default scheme, servers in other processes, and event loops.

use std::ffi::{CStr, c_char, c_int};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use genie_io::channel::ConnectOptions;
use genie_io::channel::directory::Directory;
use genie_io::{Interface, Limits, ServiceId};
use genie_memory::{LenderId, Protection};
use genie_passing::model::Allocation;
use genie_passing::{Passing, Scheme};

use crate::failure::{Failure, call};
use crate::headers::set;
use crate::process::{Opened, Server, process};
use crate::receipt;
use crate::request::duration;
use crate::types::{io_interface_t, io_scheme_t, io_server_t};

/// Bytes from which on copying is avoided; 0 for what was measured on this machine.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct Thresholds {
    /// Output that has to be protected.
    pub output: usize,
    /// Output into which nobody can store (IO_HELD).
    pub held: usize,
    /// Input on one granule that it does not fill.
    pub input: usize,
    /// Input on full granules.
    pub input_run: usize,
}

/// How an interface is to be opened. Set size to sizeof(struct io_options) and all else to 0, and then change what you need.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Bytes of this structure, by which later versions of the library know what it has.
    pub size: usize,
    /// Bytes that may be pending; 0 for 1 GiB.
    pub pending_bytes: usize,
    /// Requests that may be pending; 0 for 65,536.
    pub pending_requests: usize,
    /// The longest time that a request may take, in nanoseconds; 0 for no such limit.
    pub timeout: i64,
    /// How long a server may take to let an aborted request go, in nanoseconds; 0 for 100 ms.
    pub abort_timeout: i64,
    /// From which length on copying is avoided.
    pub thresholds: Thresholds,
}

/// Opens an interface of its own: memory that no server of another interface sees, and limits. If options is NULL, it has the
/// defaults. Most programs use interface 0 and need not call this. Close it by io_close.
///
/// The first time on a machine this takes about a second: what copying and protecting cost there is measured, and stored in
/// $GENIE_CACHE_DIR, or ~/.cache/genie.
///
/// Errors: EINVAL (options that are wrong; interfacep is NULL), ENOMEM, EMFILE.
///
/// Pointers: options points to a structure of options->size bytes, or is NULL; interfacep is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn io_open(options: *const Options, interfacep: *mut io_interface_t) -> c_int {
    call(|| {
        ensure_place(interfacep)?;
        let mut limits = Limits::default();
        let mut thresholds = Thresholds::default();
        // SAFETY: the caller vouches for the pointer.
        if let Some(options) = unsafe { options.as_ref() } {
            if options.size != size_of::<Options>() {
                return Err(Failure::misuse(format!(
                    "options of {} bytes, and this library's have {}: set size to sizeof(struct io_options)",
                    options.size,
                    size_of::<Options>()
                )));
            }
            let or = |given: usize, default| if given == 0 { default } else { given };
            limits.pending_bytes = or(options.pending_bytes, limits.pending_bytes);
            limits.pending_requests = or(options.pending_requests, limits.pending_requests);
            limits.timeout = duration(options.timeout).filter(|timeout| !timeout.is_zero());
            let grace = duration(options.abort_timeout).filter(|grace| !grace.is_zero());
            limits.abort_timeout = grace.unwrap_or(limits.abort_timeout);
            thresholds = options.thresholds;
        }
        let interface = match [thresholds.output, thresholds.held, thresholds.input, thresholds.input_run] {
            [0, 0, 0, 0] => Interface::open_with(limits)?,
            _ => {
                let passing = Interface::open_with(limits.clone())?.passing().clone();
                Interface::new(changed(passing, thresholds), limits)
            }
        };
        // SAFETY: the caller vouches for the pointer.
        unsafe { set(interfacep, process().add_interface(Opened::new(interface))) };
        Ok(0)
    })
}

/// The engine with thresholds of the program's.
fn changed(passing: Passing, wanted: Thresholds) -> Passing {
    let mut thresholds = *passing.thresholds(LenderId::OWN);
    let change = |place: &mut usize, wanted: usize| {
        if wanted > 0 {
            *place = wanted;
        }
    };
    change(&mut thresholds.output, wanted.output);
    change(&mut thresholds.held, wanted.held);
    change(&mut thresholds.input, wanted.input);
    change(&mut thresholds.input_run, wanted.input_run);
    passing.with_thresholds(thresholds)
}

/// Closes an interface that io_open has opened. Its buffers and servers stay good until they are freed and disconnected, and its
/// pending requests go on. If interface 0 is closed, the next call that names it opens it anew.
///
/// Errors: EBADF, ECHILD.
#[unsafe(no_mangle)]
pub extern "C" fn io_close(interface: io_interface_t) -> c_int {
    call(|| process().remove_interface(interface).map(|_closed| 0))
}

/// Tells the thresholds of an interface for servers in this process.
///
/// Errors: EBADF, ECHILD.
///
/// Pointers: thresholdsp is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn io_get_thresholds(interface: io_interface_t, thresholdsp: *mut Thresholds) -> c_int {
    call(|| {
        let opened = process().interface(interface)?;
        let passing = opened.interface.passing();
        let found = passing.thresholds(LenderId::OWN);
        let told = Thresholds {
            output: found.output,
            held: found.held,
            input: found.input,
            input_run: found.input_run,
        };
        // SAFETY: the caller vouches for the pointer.
        unsafe { set(thresholdsp, told) };
        Ok(0)
    })
}

/// Changes how many bytes and requests of an interface may be pending. Unlike in io_open, 0 means none. A request that alone has more
/// bytes than that is EINVAL from then on.
///
/// Errors: EBADF, ECHILD.
#[unsafe(no_mangle)]
pub extern "C" fn io_set_limits(
    interface: io_interface_t,
    pending_bytes: usize,
    pending_requests: usize,
) -> c_int {
    call(|| {
        process().interface(interface)?.interface.adjust(pending_bytes, pending_requests)?;
        Ok(0)
    })
}

/// Sets the scheme of elements with IO_DEFAULT, one of the native ones; returns the one that it was. So a program whose elements
/// name no scheme can be switched, to IO_EMULATED_SHARE say (thesis §13.1).
///
/// Errors: EBADF, ECHILD, EINVAL (no native scheme).
#[unsafe(no_mangle)]
pub extern "C" fn io_set_scheme(interface: io_interface_t, scheme: io_scheme_t) -> c_int {
    call(|| {
        let opened = process().interface(interface)?;
        let wanted = receipt::scheme(scheme)?;
        if wanted == Scheme::Fragment || wanted.allocation() != Allocation::Native {
            return Err(Failure::misuse(format!(
                "{wanted} cannot be the default: its elements name no addresses"
            )));
        }
        Ok(opened.scheme.swap(scheme, Ordering::Relaxed) as c_int)
    })
}

/// Writes a sentence or two to text, of length bytes: what the interface's memory is made of, and whether output can be protected. It
/// ends with a zero, and is cut if it is longer. `genie doctor` says more of the machine. Returns the length of the whole text.
///
/// Errors: EBADF, ECHILD.
///
/// Pointers: so many bytes are at text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn io_doctor(interface: io_interface_t, text: *mut c_char, length: usize) -> c_int {
    call(|| {
        let opened = process().interface(interface)?;
        let space = opened.interface.space();
        let protection = match space.protection() {
            Protection::Full => {
                "output is protected against stores by the program and by the kernel".to_owned()
            }
            Protection::StoresOnly => "output is protected against stores by the program".to_owned(),
            Protection::None(why) => format!("output is copied, unless it is held (IO_HELD): {why}"),
        };
        let told = format!("memory in granules of {} bytes; {protection}", space.granule());
        if length > 0 && !text.is_null() {
            let len = told.len().min(length - 1);
            // SAFETY: the caller vouches for so many bytes, one more than are copied.
            unsafe {
                std::ptr::copy_nonoverlapping(told.as_ptr(), text.cast(), len);
                text.add(len).write(0);
            }
        }
        Ok(told.len() as c_int)
    })
}

/// Connects an interface to a server in another process, by its name in the run-time directory ($GENIE_RUNTIME_DIR, or
/// $XDG_RUNTIME_DIR/genie, or /tmp/genie-UID). Waits up to timeout nanoseconds for a server that is not there yet; with 0 it does not
/// wait for that; but a server that is there, and stopped, is given 5 s to answer. Disconnect by io_disconnect.
///
/// Errors: ENOENT (nobody serves under that name), EACCES (the server refuses; or the run-time directory cannot be used), EBUSY,
/// EHOSTDOWN, EBADF, ECHILD, EINVAL (no name, or one that no server can have; serverp is NULL), ENOMEM, EMFILE.
///
/// Pointers: name is a string, and serverp is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn io_connect(
    interface: io_interface_t,
    name: *const c_char,
    timeout: i64,
    serverp: *mut io_server_t,
) -> c_int {
    call(|| {
        ensure_place(serverp)?;
        // SAFETY: the caller vouches for the string.
        let name = unsafe { text(name) }?;
        let client = process().interface(interface)?;
        let wait = duration(timeout).unwrap_or(Duration::MAX);
        let options = ConnectOptions { wait, ..ConnectOptions::default() };
        let handle = client.interface.connect_with(
            &Directory::open().map_err(genie_io::Error::from)?,
            name,
            &options,
        )?;
        let number = process().add_server(Server::new(client, handle, None));
        // SAFETY: the caller vouches for the pointer.
        unsafe { set(serverp, number) };
        Ok(0)
    })
}

/// Makes sure that the caller will know what is made: nobody else could end it.
pub(crate) fn ensure_place<T>(place: *mut T) -> Result<(), Failure> {
    if place.is_null() { Err(Failure::misuse("there is no place for the result: NULL")) } else { Ok(()) }
}

/// A string of the caller's.
///
/// # Safety
/// It is NULL, or ends with a zero and stays as it is while it is used.
pub(crate) unsafe fn text<'t>(text: *const c_char) -> Result<&'t str, Failure> {
    if text.is_null() {
        return Err(Failure::misuse("a string is missing"));
    }
    // SAFETY: the caller vouches for the string.
    let text = unsafe { CStr::from_ptr(text) }.to_str();
    text.map_err(|_| Failure::misuse("a string is not UTF-8"))
}

/// Lets a server go that io_connect has connected to. Its pending requests go on.
///
/// Errors: EBADF, ECHILD; EINVAL (it is served by this program: call io_server_unregister).
#[unsafe(no_mangle)]
pub extern "C" fn io_disconnect(server: io_server_t) -> c_int {
    call(|| {
        if process().server(server)?.registered.is_some() {
            return Err(Failure::misuse("this program serves the server: call io_server_unregister"));
        }
        process().remove_server(server).map(|_gone| 0)
    })
}

/// Whether a server in another process has ended: 1 or 0.
///
/// Errors: EBADF, ECHILD.
#[unsafe(no_mangle)]
pub extern "C" fn io_is_gone(server: io_server_t) -> c_int {
    call(|| Ok(c_int::from(process().server(server)?.handle.is_gone())))
}

/// The number of a server's service of this name, for io_request.
///
/// Errors: ENOENT (the server has no such service), EBADF, ECHILD, EINVAL.
///
/// Pointers: name is a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn io_service(server: io_server_t, name: *const c_char) -> c_int {
    call(|| {
        // SAFETY: the caller vouches for the string.
        let name = unsafe { text(name) }?;
        let server = process().server(server)?;
        Ok(server.handle.service(name)?.0 as c_int)
    })
}

/// How a service wants clients to lay out input buffers: data begins *offsetp bytes into a granule, and *lengthp bytes come at once.
/// Allocate such buffers by io_allocate_at. Returns 1, or 0 if the layout makes no difference.
///
/// Errors: EBADF, ECHILD.
///
/// Pointers: the pointers are valid or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn io_preferred(
    server: io_server_t,
    service: u32,
    offsetp: *mut usize,
    lengthp: *mut usize,
) -> c_int {
    call(|| match process().server(server)?.handle.preferred(ServiceId(service)) {
        Some(preferred) => {
            // SAFETY: the caller vouches for the pointers.
            unsafe {
                set(offsetp, preferred.offset);
                set(lengthp, preferred.len);
            }
            Ok(1)
        }
        None => Ok(0),
    })
}

/// A descriptor for poll or epoll: after io_arm has returned 1, it is readable when a reply comes. It is the library's: do not read or
/// close it.
///
/// Errors: EBADF, ECHILD, EMFILE.
#[unsafe(no_mangle)]
pub extern "C" fn io_descriptor(interface: io_interface_t) -> c_int {
    call(|| Ok(process().interface(interface)?.interface.descriptor()?.as_raw_fd()))
}

/// Makes the descriptor become readable when the next reply comes. Returns 1, or 0 if there may be replies already: look for them by
/// io_collect first.
///
/// Errors: EBADF, ECHILD.
#[unsafe(no_mangle)]
pub extern "C" fn io_arm(interface: io_interface_t) -> c_int {
    call(|| Ok(c_int::from(process().interface(interface)?.interface.arm())))
}

/// Takes the replies that have come, for all threads; io_sync then finds them without waiting. Call it when the descriptor is
/// readable. Returns how many requests were completed.
///
/// Errors: EBADF, ECHILD.
#[unsafe(no_mangle)]
pub extern "C" fn io_collect(interface: io_interface_t) -> c_int {
    call(|| Ok(process().interface(interface)?.interface.collect() as c_int))
}

/// The interface of a server that this program serves.
pub(crate) fn default_client() -> Result<Arc<Opened>, Failure> {
    process().interface(0)
}
