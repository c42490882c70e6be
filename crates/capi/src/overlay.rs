//! Private pools of overlay buffers: a server's own buffers, into which data comes before it is asked for.
//!
//! How: the table of `handles.rs` has the buffers that are out of their pools, and the parts of these, until they are given back or
//! overlaid. `held.rs` keeps the segments of those that are overlaid.
//! Source: thesis §6.1, §7.2, §7.4.3. Differs: the thesis's servers are given their pool when they register.

use std::ffi::c_int;
use std::mem::offset_of;

use genie_passing::{Layout, Overlays};

use crate::failure::{Failure, call};
use crate::given::{ensure_place, set, sized};
use crate::headers::MOST_ELEMENTS;
use crate::process::process;
use crate::taken::{OverlayBuffer, Taken};
use crate::types::{Segment, io_interface_t, io_overlay_t, io_pool_t, io_request_t, io_server_t};

/// How the buffers of a private pool are to be made. Set size to sizeof(struct io_pool_options) and all else to 0, and then what you need.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct PoolOptions {
    /// Bytes of this structure, by which later versions of the library know what it has.
    pub size: usize,
    /// How many buffers there are, at least 1.
    pub count: usize,
    /// How many bytes of data each has, at least 1.
    pub length: usize,
    /// Where the data begins in its first granule: pages change places with those of clients' buffers that begin there, too. In a frame,
    /// how many bytes lie in front of the data, which are the server's alone.
    pub offset: usize,
    /// 0; or if the buffers are to be frames, which lie one behind the other in one memory object and never leave their places there, for a
    /// device that is told of that memory once: how many bytes each takes, offset and length at least. Only frames whose length is a
    /// multiple of the granule size change places with clients' memory.
    pub stride: usize,
    /// Of how many frames clients may have the pages at a time. They come back when the client frees its buffer, or gets other data
    /// there; until then the frame cannot be taken, and data in other frames is copied.
    pub away: usize,
}

/// Allocates a private pool (thesis §7.2) of count buffers of a server's own, into which data comes before a request asks for it, as into
/// a network adapter's (thesis §6.1). io_pool_take takes a buffer, io_overlay puts it in the place of a client's. Free the pool by
/// io_pool_free.
///
/// Pages change places only with those of clients in this program, whose requests are interface 0's; so make the pool of interface 0. All
/// other clients, and all that ask by IO_COPY, get a copy. Tell clients by io_server_prefer, with the offset and length of the pool, how to lay
/// out their buffers. Servers in other processes that this program makes requests of are shown whole memory objects, in which a pool of the same
/// interface may lie, too: where these must not see what comes, make the pool of an interface of its own (io_open), from which all is copied.
///
/// Errors: EBADF, ECHILD, EINVAL (a count or length is 0, a frame is shorter than what it holds, or poolp or options is NULL), ENOMEM, EIO
/// (there are no addresses for so many frames).
///
/// Pointers: options points to a structure of options->size bytes; poolp is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn io_pool_allocate(
    interface: io_interface_t,
    options: *const PoolOptions,
    poolp: *mut io_pool_t,
) -> c_int {
    call(|| {
        ensure_place(poolp)?;
        // SAFETY: the caller vouches for the pointer.
        let PoolOptions { count, length, offset, stride, away, .. } =
            unsafe { sized::<PoolOptions>(options, offset_of!(PoolOptions, away)) }?;
        if count == 0 || length == 0 {
            return Err(Failure::misuse(format!(
                "a pool of {count} buffers of {length} bytes: it has at least one buffer, of at least one byte"
            )));
        }
        let opened = process().interface(interface)?;
        let space = opened.interface.space();
        let failure = |error: genie_passing::Error| Failure::from(genie_io::Error::from(error));
        let pool = if stride == 0 {
            Overlays::reserve(space, offset, length, count).map_err(failure)?
        } else if offset.checked_add(length).is_none_or(|end| end > stride) {
            return Err(Failure::misuse(format!(
                "{length} bytes behind {offset} others do not fit in a frame of {stride}"
            )));
        } else {
            let frames = space.make_frames(stride, count).map_err(|error| failure(error.into()))?;
            Overlays::framed(frames, Layout { headroom: offset, len: length, away })
        };
        // SAFETY: the caller vouches for the pointer.
        unsafe { set(poolp, process().pools.add(pool)) };
        Ok(0)
    })
}

/// Frees a private pool. Its buffers that are out, or overlaid, stay good, and are freed when they would come back.
///
/// Errors: EBADF (there is no such pool, or it was freed), ECHILD.
#[unsafe(no_mangle)]
pub extern "C" fn io_pool_free(pool: io_pool_t) -> c_int {
    call(|| process().pools.remove(pool).map(|_freed| 0))
}

/// How many buffers of a pool are free. It may be fewer than were given back: of some, clients have the pages (io_pool_options, away).
///
/// Errors: EBADF, ECHILD.
#[unsafe(no_mangle)]
pub extern "C" fn io_pool_available(pool: io_pool_t) -> c_int {
    call(|| {
        let pool = process().pools.with(pool, |pool| Ok(pool.clone()))?;
        Ok(c_int::try_from(pool.free()).unwrap_or(c_int::MAX))
    })
}

/// Where the memory of a pool of frames is, the whole object from its first frame on: to be told to a device, or to the kernel. Whoever has
/// been told of it sees what a client stores into pages that it has got from a frame.
///
/// Errors: EBADF, ECHILD, EINVAL (the pool is none of frames, or memoryp is NULL).
///
/// Pointers: memoryp is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn io_pool_memory(pool: io_pool_t, memoryp: *mut Segment) -> c_int {
    call(|| {
        ensure_place(memoryp)?;
        let found = process().pools.with(pool, |pool| Ok(pool.addresses()))?;
        let all =
            found.ok_or_else(|| Failure::misuse("the pool's buffers are no frames: set stride for that"))?;
        let addr = std::ptr::with_exposed_provenance_mut(all.start);
        // SAFETY: the caller vouches for the pointer.
        unsafe { set(memoryp, Segment { addr, length: all.len() }) };
        Ok(0)
    })
}

/// Takes a buffer out of a pool, the one that came back last, to be filled: *bufferp says where its bytes are. Then pass it by io_overlay, or
/// give it back by io_overlay_return.
///
/// Errors: EBADF, ECHILD, EAGAIN (no buffer is free), EINVAL (bufferp is NULL).
///
/// Pointers: bufferp is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn io_pool_take(pool: io_pool_t, bufferp: *mut OverlayBuffer) -> c_int {
    call(|| {
        ensure_place(bufferp)?;
        let taken = process().pools.with(pool, |pool| Ok(pool.clone()))?.allocate();
        let taken = Taken::new(taken.ok_or_else(|| {
            Failure::new(libc::EAGAIN, "no buffer of the pool is free: wait until one comes back")
        })?);
        let mut told = taken.told(0);
        told.overlay = process().overlays.add(taken);
        // SAFETY: the caller vouches for the pointer.
        unsafe { set(bufferp, told) };
        Ok(0)
    })
}

/// Makes a buffer, or a part of one, its length bytes from byte offset on, which are all that is passed: what came behind a packet's header,
/// say. *bufferp, of which only the name counts, is changed to say what is left.
///
/// Errors: EBADF (there is no such buffer, or it was given back, or overlaid), ECHILD, EINVAL (it has fewer bytes; or bufferp is NULL).
///
/// Pointers: bufferp is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn io_overlay_part(bufferp: *mut OverlayBuffer, offset: usize, length: usize) -> c_int {
    call(|| {
        ensure_place(bufferp)?;
        // SAFETY: the caller vouches for the pointer.
        let number = unsafe { (*bufferp).overlay };
        let told = process().overlays.with(number, |taken| {
            let end = offset.checked_add(length).filter(|end| *end <= taken.len());
            let end = end.ok_or_else(|| too_short(taken, offset.saturating_add(length)))?;
            taken.divide(|overlay| (overlay.part(offset..end), ()));
            Ok(taken.told(number))
        })?;
        // SAFETY: as above.
        unsafe { set(bufferp, told) };
        Ok(0)
    })
}

/// Cuts a buffer, or a part of one, in two, for different elements or requests: the first at bytes keep its name, and *restp says what the rest
/// is. *bufferp, of which only the name counts, is changed. The buffer is back in its pool when all parts are.
///
/// Errors: EBADF, ECHILD, EINVAL (it has fewer bytes; or a pointer is NULL).
///
/// Pointers: bufferp and restp are valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn io_overlay_cut(
    bufferp: *mut OverlayBuffer,
    at: usize,
    restp: *mut OverlayBuffer,
) -> c_int {
    call(|| {
        ensure_place(bufferp)?;
        ensure_place(restp)?;
        let process = process();
        // SAFETY: the caller vouches for the pointer.
        let number = unsafe { (*bufferp).overlay };
        let (first, rest) = process.overlays.with(number, |taken| {
            if at > taken.len() {
                return Err(too_short(taken, at));
            }
            let rest = taken.divide(|overlay| overlay.cut(at)).map(Taken::new);
            Ok((taken.told(number), rest))
        })?;
        if let Some(rest) = rest {
            let mut told = rest.told(0);
            told.overlay = process.overlays.add(rest);
            // SAFETY: the caller vouches for the pointers.
            unsafe { (set(bufferp, first), set(restp, told)) };
        }
        Ok(0)
    })
}

#[cold]
fn too_short(taken: &Taken, end: usize) -> Failure {
    Failure::misuse(format!("byte {end} of an overlay buffer of {}", taken.len()))
}

/// Gives an overlay buffer, or a part of one, back to its pool without passing it.
///
/// Errors: EBADF (there is no such buffer, or it was given back before, or overlaid), ECHILD.
#[unsafe(no_mangle)]
pub extern "C" fn io_overlay_return(overlay: io_overlay_t) -> c_int {
    call(|| process().overlays.remove(overlay).map(|_returned| 0))
}

/// How many elements a buffer of a request has, as the client has made them. *lengthp, if lengthp is not NULL, is how long the one with this
/// number is, from 0 on; 0 if there is none: for a server that overlays each with buffers of its own.
///
/// Errors: EBADF, ECHILD, EINVAL (there is no such buffer, or the request was replied to in anticipation), EBUSY (another thread is in io_keep or
/// io_outboard with the request).
///
/// Pointers: lengthp is valid or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn io_elements(
    server: io_server_t,
    request: io_request_t,
    buffer: usize,
    element: usize,
    lengthp: *mut usize,
) -> c_int {
    call(|| {
        let (count, length) = process().registered(server)?.elements(request, buffer, element)?;
        // SAFETY: the caller vouches for the pointer.
        unsafe { set(lengthp, length) };
        Ok(c_int::try_from(count).unwrap_or(c_int::MAX))
    })
}

/// Overlays buffers of the server's own on an element of an input of a request, in place of io_ready (thesis §7.4.3): the client gets their
/// data, that of the first, then that of the second, and so on. Elements are numbered from 0, as the client has
/// made them; an input of which the client has made one has element 0 alone. The reply has to say how many bytes of the input came.
///
/// The buffers' names are of no use afterwards. Their bytes may still be stored until the reply, io_ready for the input, or io_progress that
/// calls them final. When the request is over, they are back in their pools.
///
/// Errors: EBADF (there is no such server, request or buffer, or a buffer is named twice), ECHILD, EINVAL (it is no input, or has no such
/// element; the element was made ready, overlaid, linked or forwarded before; or there are no buffers, or too many), EBUSY (another
/// thread is in io_keep or io_outboard with the request). Then nothing has changed, and the buffers are still the program's.
///
/// Pointers: so many names are there as overlayc says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn io_overlay(
    server: io_server_t,
    request: io_request_t,
    buffer: usize,
    element: usize,
    overlayc: usize,
    overlayv: *const io_overlay_t,
) -> c_int {
    call(|| {
        if overlayv.is_null() || overlayc == 0 || overlayc > MOST_ELEMENTS {
            return Err(Failure::misuse(format!(
                "{overlayc} overlay buffers at {overlayv:?}: there are 1 to {MOST_ELEMENTS}"
            )));
        }
        // SAFETY: the caller vouches for so many.
        let numbers = unsafe { std::slice::from_raw_parts(overlayv, overlayc) };
        let process = process();
        let take = || process.overlays.remove_all(numbers);
        process.registered(server)?.overlay(request, (buffer, element), take).map(|()| 0)
    })
}
