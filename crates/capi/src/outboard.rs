//! Outboard memory: data that lies in a device's own memory until it is to be transferred.
//!
//! Source: thesis §6.6, §7.4.4.

use std::ffi::{c_int, c_void};
use std::io;
use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use genie_memory::DataMut;
use genie_passing::Outboard;

use crate::failure::{Failure, call};
use crate::given::sized;
use crate::process::process;
use crate::shown::Shown;
use crate::types::{Segment, io_request_t, io_server_t};

/// A flag of outboard data: its transfer never fails. Then emulated copy has it fill the client's own buffer. Otherwise it fills one of the
/// library's, whose pages change places with the client's, since a request that fails leaves the client's buffer as it was.
pub const IO_NEVER_FAILS: u32 = 1;

/// Data in a device's own memory. Set size to sizeof(struct io_outboard_data) and all else to 0, and then what you need.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct OutboardData {
    /// Bytes of this structure, by which later versions of the library know what it has.
    pub size: usize,
    /// How many bytes of data there are.
    pub length: usize,
    /// IO_NEVER_FAILS, or 0.
    pub flags: u32,
    /// What transfer and free are called with.
    pub context: *mut c_void,
    /// Transfers the bytes from offset on to host memory, as many as the segments have; returns 0, or an errno, with which the request fails.
    /// The memory is the device's for the time of the call only. There may be more than one call.
    pub transfer: Option<
        unsafe extern "C" fn(context: *mut c_void, offset: usize, segc: usize, segv: *const Segment) -> c_int,
    >,
    /// Called once, when the data is needed no more; or NULL.
    pub free: Option<unsafe extern "C" fn(context: *mut c_void)>,
}

/// What the library has of it.
#[derive(Debug)]
struct Device {
    data: OutboardData,
    transfer: unsafe extern "C" fn(*mut c_void, usize, usize, *const Segment) -> c_int,
    /// Until then the data is the program's, and is not freed.
    is_linked: Arc<AtomicBool>,
}

// SAFETY: io_outboard tells the program that its functions are called in any thread; nothing else uses the context.
unsafe impl Send for Device {}

impl Outboard for Device {
    fn len(&self) -> usize {
        self.data.length
    }

    fn may_fail(&self) -> bool {
        self.data.flags & IO_NEVER_FAILS == 0
    }

    fn transfer(&mut self, offset: usize, into: DataMut<'_>) -> io::Result<()> {
        let shown = Shown::new(into.segments());
        // SAFETY: the program vouches for the function; the segments are there for the call, to be stored into.
        match unsafe { (self.transfer)(self.data.context, offset, shown.count(), shown.first()) } {
            0 => Ok(()),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if let Some(free) = self.data.free.filter(|_| self.is_linked.load(Ordering::Acquire)) {
            // SAFETY: the program vouches for the function, which is called once.
            unsafe { free(self.data.context) };
        }
    }
}

/// Links data in a device's own memory to an element of an input of a request, in place of io_ready (thesis §7.4.4): it is transferred when
/// the client takes the reply, to where that client gets it, or sooner where the scheme or the client's place demands that. Elements are
/// numbered from 0, as the client has made them; an input of which the client has made one has element 0 alone. The reply has to say how
/// many bytes of the input came.
///
/// *data is copied. Its functions are called in any thread, the client's included, and while the library holds locks: they call no function
/// of the library's, and leave by returning.
///
/// Errors: EBADF (there is no such server or request), ECHILD, EINVAL (it is no input, or has no such element; the element was made ready,
/// overlaid, linked or forwarded before; or a size or flag is wrong, or data or its transfer is NULL), EBUSY (another thread is in
/// io_keep or io_outboard with the request), EIO (the transfer failed), ENOMEM. Then the data is still the program's, and free is not called.
///
/// Pointers: data points to a structure of data->size bytes; its functions and what they use stay until free is called.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn io_outboard(
    server: io_server_t,
    request: io_request_t,
    buffer: usize,
    element: usize,
    data: *const OutboardData,
) -> c_int {
    call(|| {
        // SAFETY: the caller vouches for the pointer.
        let data = unsafe { sized::<OutboardData>(data, offset_of!(OutboardData, free)) }?;
        if data.flags & !IO_NEVER_FAILS != 0 {
            return Err(Failure::misuse(format!("there are no flags {:#x} of outboard data", data.flags)));
        }
        let transfer = data.transfer.ok_or_else(|| Failure::misuse("outboard data without a transfer"))?;
        let is_linked = Arc::new(AtomicBool::new(false));
        let device = Box::new(Device { data, transfer, is_linked: Arc::clone(&is_linked) });
        process().registered(server)?.outboard(request, (buffer, element), device)?;
        is_linked.store(true, Ordering::Release);
        Ok(0)
    })
}
