//! Interfaces: opening, limits, thresholds, the default scheme, and event loops.

use std::ffi::{c_char, c_int};
use std::mem::offset_of;
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;

use genie_io::{Interface, Limits};
use genie_memory::{Config, LenderId, Protection};
use genie_passing::model::Allocation;
use genie_passing::{Passing, Scheme};

use crate::failure::{Failure, call};
use crate::given::{duration, ensure_place, or, set, sized};
use crate::opened::Opened;
use crate::process::process;
use crate::receipt;
use crate::types::{io_interface_t, io_scheme_t};

/// A flag of an interface: the program promises that no system call ever stores into its buffers (no read, recv and the like)
/// while output from them is pending; such a call fails with EFAULT then. Where the kernel lets an ordinary user catch only
/// the program's own stores, which is common, asynchronous output is protected with this promise, and copied without it.
pub const IO_KERNEL_NEVER_STORES: u32 = 1;

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
    /// IO_KERNEL_NEVER_STORES, or 0.
    pub flags: u32,
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
        // SAFETY: the caller vouches for the pointer.
        let options = unsafe { sized::<Options>(options, offset_of!(Options, flags)) }?;
        if options.flags & !IO_KERNEL_NEVER_STORES != 0 {
            return Err(Failure::misuse(format!("there are no interface flags {:#x}", options.flags)));
        }
        let mut limits = Limits::default();
        limits.pending_bytes = or(options.pending_bytes, limits.pending_bytes);
        limits.pending_requests = or(options.pending_requests, limits.pending_requests);
        limits.timeout = duration(options.timeout).filter(|timeout| !timeout.is_zero());
        let grace = duration(options.abort_timeout).filter(|grace| !grace.is_zero());
        limits.abort_timeout = grace.unwrap_or(limits.abort_timeout);
        let interface = match options.flags {
            0 => Interface::open_with(limits)?,
            _ => {
                let config = Config { kernel_never_stores: true, ..Config::default() };
                Interface::open_configured(config, limits)?
            }
        };
        adjust(interface.passing(), &options.thresholds);
        // SAFETY: the caller vouches for the pointer.
        unsafe { set(interfacep, process().add_interface(Opened::new(interface))) };
        Ok(0)
    })
}

/// Has the engine heed thresholds of the program's, if there are any.
fn adjust(passing: &Passing, wanted: &Thresholds) {
    passing.adjust_thresholds(|thresholds| {
        thresholds.output = or(wanted.output, thresholds.output);
        thresholds.held = or(wanted.held, thresholds.held);
        thresholds.input = or(wanted.input, thresholds.input);
        thresholds.input_run = or(wanted.input_run, thresholds.input_run);
    });
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

/// Changes the thresholds of an interface, for requests that are made from now on (thesis §13.1): to those of thresholds, where
/// 0 is for what was measured on this machine, or all to that if it is NULL. They hold for servers in other processes, too.
///
/// Errors: EBADF, ECHILD.
///
/// Pointers: thresholds is valid or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn io_set_thresholds(
    interface: io_interface_t,
    thresholds: *const Thresholds,
) -> c_int {
    call(|| {
        // SAFETY: the caller vouches for the pointer.
        let wanted = unsafe { thresholds.as_ref() }.copied().unwrap_or_default();
        adjust(process().interface(interface)?.interface.passing(), &wanted);
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
