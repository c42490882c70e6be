//! Pending requests: `io_sync`, `io_wait_for_progress` and `io_abort`.

use std::ffi::c_int;
use std::time::Duration;

use genie_io::Pending;

use crate::compose::ensure_apart;
use crate::failure::{Failure, call, fail};
use crate::given::{duration, set};
use crate::headers::Headers;
use crate::process::process;
use crate::regions::Users;
use crate::requested::Begun;
use crate::types::{BufferHeader, IO_PENDING, Segment, io_request_t};

/// The data goes where the request said.
pub const IO_NORMAL: u32 = 0;
/// The data is copied elsewhere, and the request stays pending.
pub const IO_PEEKED: u32 = 1;
/// The data goes elsewhere.
pub const IO_REDIRECTED: u32 = 2;

/// Waits for the reply to a request, at most for timeout nanoseconds (0 looks only, IO_FOREVER waits as long as it takes), and
/// delivers its data (thesis §7.1). delivery is one of
/// - IO_NORMAL: data goes to the buffers of the request; bufc and bufv are ignored.
/// - IO_PEEKED: data of each native input element is copied to the corresponding native element of bufv's input headers, as much as
///   fits, and the headers' actual lengths say how much. The request stays pending.
/// - IO_REDIRECTED: native input elements by copy or emulated copy are replaced by those of bufv's input headers, in order. Where there
///   are fewer of those, the rest goes where the request said. The request's own headers say how much came.
///
/// Returns IO_PENDING if there is no reply yet; the request then goes on. Returns 0 if the request has succeeded, or -1 if it has
/// failed (or was named wrongly): unless data was peeked at, its name is of no more use, and its headers and buffers are the caller's.
/// If several threads wait for one request, one of them gets its result, and the others EBADF.
///
/// Errors: EBADF, ECHILD; EINVAL (no such delivery; an input element of bufv that is not native; or a buffer to which data is redirected is
/// shorter than the data, which is lost); as for io_request.
///
/// Pointers: the headers, lists and buffers are as io_request says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn io_sync(
    request: io_request_t,
    delivery: u32,
    bufc: usize,
    bufv: *const *mut BufferHeader,
    timeout: i64,
) -> c_int {
    call(|| {
        let process = process();
        let requested = process.requested(request)?;
        let mut elsewhere = Headers::default();
        match delivery {
            IO_NORMAL => {}
            // SAFETY: the caller vouches for the headers.
            IO_PEEKED | IO_REDIRECTED => elsewhere = unsafe { Headers::new(bufc, bufv) }?,
            other => return Err(Failure::misuse(format!("there is no delivery {other}"))),
        }
        // SAFETY: the caller vouches for the lists.
        let others = unsafe { elsewhere.inputs() }?;
        let places =
            if delivery == IO_REDIRECTED { redirected(&requested.begun, &others) } else { others.clone() };
        // Nobody may free them while this waits.
        let mut targets = Targets::default();
        others.iter().try_for_each(|place| process.regions.begin_use(*place, false, None, &mut targets.0))?;
        let stored: Vec<_> = places.iter().map(|place| (*place, true)).collect();
        ensure_apart(&stored)?;
        if !requested.with(|pending| pending.wait(duration(timeout).unwrap_or(Duration::MAX)))? {
            return Ok(IO_PENDING);
        }
        if delivery == IO_PEEKED {
            // SAFETY: the caller vouches for the memory.
            let mut peeks: Vec<&mut [u8]> = places.iter().map(|segment| unsafe { segment.store() }).collect();
            let lens = requested.with(|pending| pending.peek(&mut peeks))??;
            // SAFETY: the caller vouches for the headers.
            unsafe { elsewhere.set_peeked(&lens) };
            return Ok(0);
        }
        let pending = process.take(&requested)?;
        let result = match delivery {
            // SAFETY: the caller vouches for the memory.
            IO_REDIRECTED => pending.redirect(places.into_iter().map(|segment| unsafe { segment.store() })),
            _ => pending.sync(),
        };
        // SAFETY: the headers have stayed where they were, as io_request says.
        unsafe { requested.begun.end(process, requested.headers.headers(), result) }.map(|()| 0)
    })
}

/// Buffers to which data goes in place of those of the request. Dropping this ends their use.
#[derive(Debug, Default)]
struct Targets(Users);

impl Drop for Targets {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Where the native inputs' data goes, if the first of it goes to `others`.
fn redirected(begun: &Begun, others: &[Segment]) -> Vec<Segment> {
    let mut others = others.iter();
    let replace = |(own, is_share): &(Segment, bool)| match is_share {
        true => *own,
        false => *others.next().unwrap_or(own),
    };
    begun.inputs.iter().map(replace).collect()
}

/// Waits until more than beyond bytes of a buffer of a pending request are final, as its server tells by io_progress, or the reply is
/// there; at most for timeout nanoseconds (0 looks only, IO_FOREVER waits as long as it takes). *lengthp, if lengthp is not NULL, is how
/// many are final then; with the reply, how many were passed, or if the request has failed, how far it had come. Buffers are numbered
/// from 0, as the server sees them: headers without elements do not count.
///
/// This is a number, and brings no data: the request's buffers stay the library's until io_sync or io_abort ends it. Only where the server
/// works in the client's buffer (IO_SHARE and IO_EMULATED_SHARE, in memory of io_allocate, at a server that was not connected to by
/// IO_UNTRUSTED) do the final bytes of an input lie there already, where the client may read them.
///
/// Returns IO_PENDING if there is no reply yet, or 0 if there is: then io_sync does not wait. A client that has enough of what is final
/// gives up the rest by io_abort.
///
/// Errors: EBADF, ECHILD, EINVAL (the request has no such buffer).
///
/// Pointers: lengthp is valid or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn io_wait_for_progress(
    request: io_request_t,
    buffer: usize,
    beyond: usize,
    timeout: i64,
    lengthp: *mut usize,
) -> c_int {
    call(|| {
        let requested = process().requested(request)?;
        let count = requested.begun.buffers;
        if buffer >= count {
            return Err(Failure::misuse(format!("there is no buffer {buffer}: the request has {count}")));
        }
        let timeout = duration(timeout).unwrap_or(Duration::MAX);
        let wait = |pending: &Pending<'_>| {
            (pending.wait_for_progress(buffer, beyond, timeout), pending.is_replied())
        };
        let (length, is_replied) = requested.with(wait)?;
        // SAFETY: the caller vouches for the pointer.
        unsafe { set(lengthp, length) };
        Ok(if is_replied { 0 } else { IO_PENDING })
    })
}

/// Aborts a request: asks its server to let it go, and waits until the server has, at most for the interface's abort_timeout. The
/// request's name is of no more use then, and its headers and buffers are the caller's; if other threads wait for it in io_sync, one
/// of these gets the result in this call's place.
///
/// Returns 0 if the request was aborted, or had failed. Then errno and io_error_text say why, as after io_sync: ECANCELED if it was aborted,
/// EBADF if another thread gets the result. Returns 1 if the request has succeeded, and its data has been delivered: all of it if the
/// reply was on its way, or what was final (io_wait_for_progress), where its server has let the rest go in time. The actual lengths say
/// how much. Or returns -1.
///
/// Errors: EBADF, ECHILD.
///
/// Pointers: as for io_sync.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn io_abort(request: io_request_t) -> c_int {
    call(|| {
        let process = process();
        let requested = process.requested(request)?;
        requested.with(Pending::give_up)?;
        let ended = process.take(&requested).and_then(|pending| {
            // SAFETY: the headers have stayed where they were, as io_request says.
            unsafe { requested.begun.end(process, requested.headers.headers(), pending.sync()) }
        });
        Ok(match ended {
            Ok(()) => 1,
            Err(failure) => {
                fail(&failure);
                0
            }
        })
    })
}
