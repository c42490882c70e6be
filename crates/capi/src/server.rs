//! Servers of this program: `io_server_register`, `io_server` and `io_server_unregister`.
//!
//! How: `registered.rs` has what is behind these calls.
//! Source: thesis §7.2.

use std::ffi::{c_char, c_int, c_void};

use genie_channel::ServeOptions;
use genie_io::Service;
use genie_passing::Preferred;

use crate::connect::Layout;
use crate::failure::{Failure, call};
use crate::given::{ensure_place, set, text};
use crate::messages::{IO_ABORT, IO_DEPARTURE, IO_NO_MESSAGE, IO_REPLIES, Message, ReplyMessage};
use crate::process::{Server, process};
use crate::registered::{Arrived, Registered};
use crate::types::{io_interface_t, io_request_t, io_server_t};

/// The service reads outputs.
pub const IO_READ: u32 = 1;
/// The service fills inputs.
pub const IO_WRITE: u32 = 2;

/// One of a server's services.
#[repr(C)]
#[derive(Debug)]
pub struct ServiceMapping {
    /// Its name, of at most 64 bytes, by which clients find its number.
    pub name: *const c_char,
    /// IO_READ, IO_WRITE, or both, or 0.
    pub flags: u32,
    /// Where clients should let the data of inputs begin in its first granule; it counts if preferred_length does.
    pub preferred_offset: usize,
    /// How many bytes of input come at once; 0 if clients may lay out their buffers as they like.
    pub preferred_length: usize,
}

/// Makes this program a server (thesis §7.2), with number_services services, which are numbered from 0. If name is not NULL, clients
/// in other processes find the server by it (io_connect). This program can make requests of it by *serverp in any case.
///
/// pool_size is how many bytes of the server's memory each client is lent at first, for inputs and for data that is copied; 0 for 16 MiB.
/// Give as much as one client has in flight at once.
///
/// The server's messages come by io_server. A device, as the thesis has it, is not among the arguments, since Genie drives none; the
/// server's private pool is made by io_pool_allocate.
///
/// Errors: EINVAL (a name, flag or size is wrong, there are more than 256 services, or serverp is NULL), EADDRINUSE (the name is taken),
/// EACCES (the run-time directory cannot be used), ENOMEM, EMFILE.
///
/// Pointers: so many services are there as number_services says; strings end with zeros; serverp is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn io_server_register(
    name: *const c_char,
    number_services: usize,
    service_mappingv: *const ServiceMapping,
    pool_size: usize,
    serverp: *mut io_server_t,
) -> c_int {
    call(|| {
        ensure_place(serverp)?;
        if service_mappingv.is_null() {
            return Err(Failure::misuse(
                "the list of services is missing: service_mappingv is NULL".to_owned(),
            ));
        }
        if number_services == 0 || number_services > 256 {
            return Err(Failure::misuse(format!("{number_services} services: a server has 1 to 256")));
        }
        // SAFETY: the caller vouches for so many.
        let mappings = unsafe { std::slice::from_raw_parts(service_mappingv, number_services) };
        let mut services = Vec::new();
        for mapping in mappings {
            if mapping.flags & !(IO_READ | IO_WRITE) != 0 {
                return Err(Failure::misuse(format!("there are no service flags {:#x}", mapping.flags)));
            }
            // SAFETY: the caller vouches for the strings.
            let name = unsafe { text(mapping.name) }?.to_owned();
            let (reads, writes) = (mapping.flags & IO_READ != 0, mapping.flags & IO_WRITE != 0);
            services.push(Service { name: name.into(), reads, writes });
        }
        let prefers = |mapping: &ServiceMapping| {
            let (offset, len) = (mapping.preferred_offset, mapping.preferred_length);
            (len > 0).then_some(Preferred { offset, len, ..Preferred::default() })
        };
        // SAFETY: the caller vouches for the string.
        let name = if name.is_null() { None } else { Some(unsafe { text(name) }?) };
        let defaults = ServeOptions::default();
        let pool = if pool_size == 0 { defaults.pool } else { pool_size };
        let options = ServeOptions { pool, ..defaults };
        let preferred = mappings.iter().map(prefers).collect();
        let (registered, handle) = Registered::open(name, services, preferred, options)?;
        let server = Server::new(process().interface(0)?, handle, Some(registered));
        // SAFETY: the caller vouches for the pointer.
        unsafe { set(serverp, process().add_server(server)) };
        Ok(0)
    })
}

/// Ends a server of this program. Its clients see it hang up. Requests that no message has brought fail, and threads that wait in
/// io_server return with ECANCELED. Requests that messages have brought stay held, since threads may be at work in their buffers: reply to
/// each of them, as before, by io_server, which then returns with ECANCELED. Clients in this program wait for that reply.
///
/// Errors: EBADF, ECHILD, EINVAL (it is a server in another process: call io_disconnect).
#[unsafe(no_mangle)]
pub extern "C" fn io_server_unregister(server: io_server_t) -> c_int {
    call(|| {
        let registered = process().registered(server)?;
        process().unregister(server)?;
        registered.end();
        if registered.is_done() {
            process().forget(server);
        }
        Ok(0)
    })
}

/// Replies to a request, and brings the server's next message (thesis §7.2). First out_msg is sent, if it is not NULL. Then the next
/// message is stored in in_msg, if that is not NULL. If there is none, the call waits for one if blocking is not 0, and says
/// IO_NO_MESSAGE otherwise. A signal does not end the wait. Requests of clients in other processes are taken by this call alone: while a
/// program does something else, they wait. Clients connect and leave meanwhile. Several threads may call it at the same time.
///
/// A request that came may be replied to at once or later, in any order, by any thread; until then its buffers are the server's. A
/// server that wants to make requests of its own calls io_request.
///
/// Returns 0, or -1. If out_msg was refused, nothing was sent, no message was taken, and the request is still held; but with EMSGSIZE the
/// client was told that its room is too short, and the request is over.
///
/// Errors: EBADF (no such server, or it holds no such request), ECHILD, EINVAL (an actual length or direction is wrong, or an input that
/// was made ready has no actual length; or the server is in another process), EMSGSIZE, ECANCELED (the server has been unregistered;
/// out_msg was sent all the same).
///
/// Pointers: the messages, and what out_msg points to, are valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn io_server(
    server: io_server_t,
    out_msg: *const ReplyMessage,
    in_msg: *mut Message,
    blocking: c_int,
) -> c_int {
    call(|| {
        let registered = process().registered(server)?;
        // SAFETY: the caller vouches for the message.
        if let Some(reply) = unsafe { out_msg.as_ref() } {
            // SAFETY: and for what it points to.
            let replied = unsafe { registered.reply(reply) };
            if registered.is_done() {
                process().forget(server);
            }
            replied?;
        }
        if in_msg.is_null() {
            return Ok(0);
        }
        let message = match registered.next(blocking != 0)? {
            None => Message::of(IO_NO_MESSAGE),
            Some(Arrived::Request(incoming)) => registered.hold(incoming)?,
            Some(Arrived::Abort(request)) => Message { request, ..Message::of(IO_ABORT) },
            Some(Arrived::Departure(client)) => {
                Message { client: client.number(), ..Message::of(IO_DEPARTURE) }
            }
            Some(Arrived::Replies) => Message::of(IO_REPLIES),
        };
        // SAFETY: the caller vouches for the pointer.
        unsafe { set(in_msg, message) };
        Ok(0)
    })
}

/// Replies to a request with success in anticipation: its client goes on, while the server still reads the outputs (thesis §1.1.2).
/// The message says what it says to io_server. The request stays held, for its outputs alone, until io_server gets a reply to it,
/// of which nothing else counts. Until then stores by the client are not seen; io_flush waits for that at the client's.
///
/// Returns 0, or -1; then nothing was sent, and the request is held as before.
///
/// Errors: EBADF (no such server, or it holds no such request), ECHILD, EINVAL (the client awaits inputs, or buffers that it gave by value;
/// the request was replied to in anticipation before; error is not 0; or an actual length is wrong), EMSGSIZE.
///
/// Pointers: reply, and what it points to, are valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn io_anticipate(server: io_server_t, reply: *const ReplyMessage) -> c_int {
    call(|| {
        // SAFETY: the caller vouches for the message.
        let reply = unsafe { reply.as_ref() }.ok_or_else(|| Failure::misuse("there is no reply: NULL"))?;
        // SAFETY: and for what it points to.
        unsafe { process().registered(server)?.anticipate(reply) }.map(|()| 0)
    })
}

/// Has a server of this program wait for an interface's replies, too: for a program that is server and client in one loop. From now on,
/// when replies to requests of the interface come, io_server brings IO_REPLIES, even if it waits, and the descriptor of
/// io_server_descriptor becomes readable. io_collect and io_arm need not be called for the interface then. To watch the same
/// interface again does nothing.
///
/// Errors: EBADF, ECHILD, EINVAL (the server is in another process), EMFILE.
#[unsafe(no_mangle)]
pub extern "C" fn io_server_watch(server: io_server_t, interface: io_interface_t) -> c_int {
    call(|| {
        let process = process();
        process.registered(server)?.watch(process.interface(interface)?).map(|()| 0)
    })
}

/// Changes how a server of this program wants clients to lay out input buffers for a service: as *layoutp says, of which changes does
/// not count, or if layoutp is NULL or its length is 0, as they like. Clients that have asked (io_preferred) are told that their answers
/// are stale.
///
/// Errors: EBADF, ECHILD, EINVAL (there is no such service, or the server is in another process).
///
/// Pointers: layoutp is valid or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn io_server_prefer(
    server: io_server_t,
    service: u32,
    layoutp: *const Layout,
) -> c_int {
    call(|| {
        // SAFETY: the caller vouches for the pointer.
        let layout = unsafe { layoutp.as_ref() }.filter(|layout| layout.length > 0);
        let preferred = layout.map(|layout| Preferred {
            offset: layout.offset,
            len: layout.length,
            header: layout.header_length,
            trailer: layout.trailer_length,
        });
        process().registered(server)?.prefer(service, preferred).map(|()| 0)
    })
}

/// Makes an input buffer of a request ready to be filled: from now on the message's bufv has its segments. Until then a request holds no
/// memory for its input. The reply has to say how many bytes of it came.
///
/// Errors: EBADF, ECHILD, EINVAL (it is no input, or the service has no IO_WRITE), ENOMEM.
#[unsafe(no_mangle)]
pub extern "C" fn io_ready(server: io_server_t, request: io_request_t, buffer: usize) -> c_int {
    call(|| process().registered(server)?.ready(request, buffer).map(|()| 0))
}

/// Tells the client of a request that is held, before the reply, that the first length bytes of a buffer are final (thesis §6.5): of an
/// input, they are stored and stay what they are; of an output, the server is done with them. To be called again with more as more is;
/// the same number again tells nothing. Stores into the rest of an input go on as before.
///
/// The client gets the number by io_wait_for_progress. If it gives the request up by io_abort, and the server replies to IO_ABORT with
/// ECANCELED, the request succeeds with what is final; one whose time is over fails all the same. A reply of success may say no less in
/// its actual lengths; where it says nothing of the buffer, what is final passes. A server that has forwarded a part of an input
/// (IO_FRAGMENT) replies with success to pass what has come, if the request that it made of the part has succeeded: its ECANCELED may be
/// that request's error, and passes nothing.
///
/// This costs a lock, and a message to a client in another process: tell of steps that take some tens of microseconds or more.
///
/// Errors: EBADF, ECHILD, EINVAL (there is no such buffer, or it is shorter; it is an input that was not made ready; more of it was
/// final before; or the request was replied to in anticipation), EBUSY (another thread is in io_keep or io_outboard with the request).
#[unsafe(no_mangle)]
pub extern "C" fn io_progress(
    server: io_server_t,
    request: io_request_t,
    buffer: usize,
    length: usize,
) -> c_int {
    call(|| process().registered(server)?.progress(request, buffer, length).map(|()| 0))
}

/// Makes an output of a request memory of the server's own, which nobody else sees or changes, and which the server may change: after
/// the reply, too, and when the client has left. *keptp says where it is, as many bytes as the buffer has; NULL if it has none. Free it by
/// io_free. It can be passed in requests, but not by IO_OWNED or the schemes of migrant buffers. From now on the message's bufv has no
/// segments of the output, and what they pointed to may not be used any more.
///
/// Data that the kernel has copied already, on an untrusted channel, stays where it is, unless it is short. All other data is copied once.
/// A server may keep 256 MiB of each client's data at a time, and of a client in this program 1 GiB.
///
/// Returns 1 if the data was copied, 0 if it was not; or -1, and then nothing has changed.
///
/// Errors: EBADF, ECHILD, EINVAL (it is no output, it was kept before, keptp is NULL, or the service has no IO_READ), EDQUOT (the server
/// keeps too much of this client's data, or of all clients'), EBUSY (another thread is in io_keep or io_outboard with the request), ENOMEM.
///
/// Pointers: keptp is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn io_keep(
    server: io_server_t,
    request: io_request_t,
    buffer: usize,
    keptp: *mut *mut c_void,
) -> c_int {
    call(|| {
        ensure_place(keptp)?;
        let kept = process().registered(server)?.keep(request, buffer)?;
        let is_copied = kept.copied() > 0;
        let place = process().regions.add_kept(kept);
        // SAFETY: the caller vouches for the pointer.
        unsafe { set(keptp, place.cast()) };
        Ok(c_int::from(is_copied))
    })
}

/// Whether a request that is held is being aborted: 1 or 0.
///
/// Errors: EBADF, ECHILD, EINVAL.
#[unsafe(no_mangle)]
pub extern "C" fn io_is_aborted(server: io_server_t, request: io_request_t) -> c_int {
    call(|| Ok(c_int::from(process().registered(server)?.is_aborted(request)?)))
}

/// A descriptor for poll or epoll: once io_server has said IO_NO_MESSAGE, it is readable when there may be a message. It is the
/// library's: do not read or close it.
///
/// Errors: EBADF, ECHILD, EINVAL.
#[unsafe(no_mangle)]
pub extern "C" fn io_server_descriptor(server: io_server_t) -> c_int {
    call(|| Ok(process().registered(server)?.descriptor()))
}
