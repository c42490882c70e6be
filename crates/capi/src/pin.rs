//! Pins: parts of a request's buffers that a server holds apart from the request.
//!
//! How: the table of `handles.rs` has them until they are let go.

use std::ffi::c_int;

use crate::failure::call;
use crate::given::{ensure_place, set};
use crate::pinned::PinnedBytes;
use crate::process::process;
use crate::types::{io_pin_t, io_request_t, io_server_t};

/// Pins length bytes of a buffer of a request, from byte offset on, to be used apart from the request: an output's to be read, an input's
/// to be filled, by another thread or an operation in flight. *pinnedp says where they are. An input is made ready, as by io_ready.
///
/// The server may reply first, and the client may give up, or end: until io_unpin the bytes stay where they are. The client gets the
/// reply when the last pin of its request has been let go. The reply has to say how many bytes of an input came.
///
/// Errors: EBADF (no such server, or it holds no such request), ECHILD, EINVAL (there is no such buffer, or it is shorter, or was kept; the
/// service may not access it; the request was replied to in anticipation; or pinnedp is NULL), EBUSY (another thread is in io_keep or
/// io_outboard with the request), ENOMEM.
///
/// Pointers: pinnedp is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn io_pin(
    server: io_server_t,
    request: io_request_t,
    buffer: usize,
    offset: usize,
    length: usize,
    pinnedp: *mut PinnedBytes,
) -> c_int {
    call(|| {
        ensure_place(pinnedp)?;
        let range = offset..offset.saturating_add(length);
        let pin = process().registered(server)?.pin(request, buffer, range)?;
        let (segc, segv) = (pin.shown.count(), pin.shown.first());
        let pin = process().pins.add(pin);
        // SAFETY: the caller vouches for the pointer.
        unsafe { set(pinnedp, PinnedBytes { pin, segc, segv }) };
        Ok(0)
    })
}

/// Lets pinned bytes go, which may not be used any more. If the server has replied, and this was the last pin of the request, the client gets
/// the reply now.
///
/// Errors: EBADF (there is no such pin, or it was let go before), ECHILD.
#[unsafe(no_mangle)]
pub extern "C" fn io_unpin(pin: io_pin_t) -> c_int {
    call(|| process().pins.remove(pin).map(|_let_go| 0))
}
