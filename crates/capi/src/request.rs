//! `io_request`: requests, synchronous and not.

use std::ffi::c_int;
use std::time::Duration;

use genie_io::{Pending, Plan, ServiceId};

use crate::batch::submitted;
use crate::compose::{arguments, compose};
use crate::failure::{Failure, call};
use crate::given::{duration, set};
use crate::headers::Headers;
use crate::process::{Process, Server, process};
use crate::requested::{Begun, Requested};
use crate::types::{BufferHeader, IO_PENDING, io_request_t, io_server_t};

/// Makes a request of a server (thesis §7.1): asks for one of its services, with the buffers whose headers bufv points to.
///
/// timeout is in nanoseconds; IO_FOREVER (or any negative time) is for as long as the interface's limits allow. A request that has
/// no reply by then is aborted and fails with ETIMEDOUT; one for which the limits have left no room until then fails with EAGAIN.
///
/// If requestp is NULL, the request is synchronous: the call waits for the reply, and while the limits leave no room, for room.
/// Otherwise the call returns at once with IO_PENDING, and *requestp is the request's name, for io_sync or io_abort, one of which
/// has to follow. Where the limits leave no room then, it fails with EAGAIN.
///
/// Until the request is over (a synchronous one when this call returns, another one when io_sync or io_abort says so):
/// - headers, lists, receipts, and what else they point to but for data and out_arg, stay where they are, and are the library's;
/// - data of outputs by IO_COPY and IO_EMULATED_COPY may be stored into and freed as soon as this call returns; the server gets what
///   was there when the request was made. With IO_HELD nobody may store into it before the call returns, and with IO_OWNED
///   nobody may touch it until the request is over;
/// - data of inputs may not be touched, and what is there before success is what was there when the request was made;
/// - data under IO_SHARE and IO_EMULATED_SHARE may not be touched. After a failure an input's is undefined, and a server that is late may
///   still store there: free the buffer, and allocate another one;
/// - buffers that are given by value (IO_OWNED) may not be touched, and are the caller's again afterwards: see there;
/// - migrant buffers of outputs are gone. After a failure they are back, and their segments say where.
///
/// io_free refuses buffers that the request still uses. One buffer may be output and input of the same request, by copy and emulated copy.
///
/// Returns 0 (success), IO_PENDING, or -1 with errno set; then nothing was passed, and io_error_text says why.
///
/// The arguments for a server in another process have about 128 KiB; longer ones are EINVAL.
///
/// Errors: EBADF and ECHILD (there is no such server, or it is the parent process's), EINVAL (a header, list or scheme is wrong, the
/// server has no such service, or the service needs access to a buffer that it has not declared), EFAULT (a null address; or a migrant
/// element names no migrant buffer, or one with IO_OWNED no buffer of io_allocate), EBUSY (another request uses the migrant buffer, or the
/// one that is given by value, or was given it), EAGAIN, ETIMEDOUT, ECONNRESET and EPIPE (the
/// server has ended; with EPIPE it was never asked), EMSGSIZE (the reply's argument is longer than its room), ENOMEM, EREMOTEIO, or
/// the errno with which the server has replied: then io_error_text says so.
///
/// Pointers: as above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn io_request(
    server: io_server_t,
    service: u32,
    bufc: usize,
    bufv: *const *mut BufferHeader,
    timeout: i64,
    requestp: *mut io_request_t,
) -> c_int {
    call(|| {
        let process = process();
        // SAFETY: the caller vouches for the headers.
        let headers = unsafe { Headers::new(bufc, bufv) }?;
        // SAFETY: and for all that they point to.
        let ask = || unsafe { ask(process, server, service, headers, timeout, requestp) };
        match ask() {
            Err(failure)
                if failure.is_unasked
                    && process.server(server).is_ok_and(|found| found.is_reconnecting()) =>
            {
                ask()
            }
            done => done,
        }
    })
}

/// Makes the request. After a failure the headers say what the caller has, so that it can be made again.
///
/// # Safety
/// As [`io_request`].
#[inline]
unsafe fn ask(
    process: &Process,
    server: io_server_t,
    service: u32,
    headers: Headers<'_>,
    timeout: i64,
    requestp: *mut io_request_t,
) -> Result<c_int, Failure> {
    let found = process.connected(server)?;
    // SAFETY: the caller vouches for the arguments.
    let (argument, room) = unsafe { arguments(headers) }?;
    let (interface, handle) = (&found.client.interface, &found.handle);
    let mut plan = Plan::new(ServiceId(service));
    plan.set_argument(argument);
    plan.set_room(room);
    if let Some(timeout) = duration(timeout) {
        plan.set_timeout(timeout);
    }
    let mut begun = Begun::default();
    // SAFETY: and for the lists and the data.
    let is_held = unsafe { compose(process, &found, headers, &mut plan, &mut begun) }?;
    // While a request is sent its data counts as borrowed. Here another thread may store into it, unless the caller has said that none
    // does; so the data is protected, as for a request that is submitted.
    let result = match (requestp.is_null(), is_held) {
        (true, true) => plan.send(interface, handle),
        (true, false) => plan.submit_when_room(interface, handle).and_then(Pending::sync),
        (false, _) => match submitted(&mut plan, interface, handle) {
            Ok(pending) => {
                begun.users.end_brief();
                let number = pending.id().number();
                let requested = Requested::new(pending, headers.keep(), begun);
                process.add_request(number, requested);
                // SAFETY: the caller's pointer is not null.
                unsafe { set(requestp, number) };
                return Ok(IO_PENDING);
            }
            Err(failed) => Err(failed),
        },
    };
    // SAFETY: the headers are the library's until this call returns.
    unsafe { begun.end(process, headers, result) }.map(|()| 0)
}

/// Waits until the server has completed all earlier requests of this program to it, those that it has replied to in anticipation
/// included: then their output buffers can be reused without faults. Returns 0, or -1 with ETIMEDOUT when the time is over.
///
/// Errors: EBADF, ECHILD, ETIMEDOUT.
#[unsafe(no_mangle)]
pub extern "C" fn io_flush(server: io_server_t, timeout: i64) -> c_int {
    call(|| {
        let found = process().server(server)?;
        let Server { client, handle, .. } = &*found;
        match client.interface.flush(handle, duration(timeout).unwrap_or(Duration::MAX)) {
            true => Ok(0),
            false => Err(Failure::new(libc::ETIMEDOUT, "requests are still under way")),
        }
    })
}
