//! Servers of this program: `io_server_register`, `io_server` and `io_server_unregister`.
//!
//! How: `registered.rs` has what is behind these calls.
//! Source: thesis §7.2.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::null;

use genie_io::Service;
use genie_io::channel::ServeOptions;
use genie_passing::Preferred;

use crate::failure::{Failure, call};
use crate::headers::set;
use crate::interface::{default_client, ensure_place, text};
use crate::process::{Server, process};
use crate::registered::{Arrived, Registered};
use crate::types::{Segment, io_interface_t, io_request_t, io_server_t};

/// The service reads outputs.
pub const IO_READ: u32 = 1;
/// The service fills inputs.
pub const IO_WRITE: u32 = 2;

/// There is no message.
pub const IO_NO_MESSAGE: u32 = 0;
/// A request, to be replied to.
pub const IO_REQUEST: u32 = 1;
/// A request that is held is to be let go: reply to it soon, with success if it is done, else with ECANCELED.
pub const IO_ABORT: u32 = 2;
/// A client has left: no more of its requests come.
pub const IO_DEPARTURE: u32 = 3;

/// Replies have come to requests of an interface that the server watches (io_server_watch): look at the pending ones by io_sync with
/// timeout 0. There may be none.
pub const IO_REPLIES: u32 = 4;

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

/// A buffer of a request, as its server sees it.
#[repr(C)]
#[derive(Debug)]
pub struct ServerBuffer {
    /// IO_OUT: the server reads it. IO_IN: the server fills it.
    pub direction: u32,
    /// Its bytes, or for an input, for how many there is room.
    pub length: usize,
    /// How many segments it lies in; 0 for an input before io_ready, and for an output if the service has no IO_READ.
    pub segc: usize,
    /// The segments. Outputs may not be stored into: that ends the program with SIGSEGV if the client is in another process.
    pub segv: *const Segment,
}

/// What io_server brings.
#[repr(C)]
#[derive(Debug)]
pub struct Message {
    /// IO_NO_MESSAGE, IO_REQUEST, IO_ABORT, IO_DEPARTURE or IO_REPLIES.
    pub what: u32,
    /// The service that is asked for.
    pub service: u32,
    /// The request, for IO_REQUEST and IO_ABORT.
    pub request: io_request_t,
    /// The client, for IO_REQUEST and IO_DEPARTURE; no other client ever has the same number.
    pub client: u64,
    /// The client's process, as the kernel says; for IO_REQUEST, like all that follows.
    pub pid: u32,
    /// The client's user, as the kernel says.
    pub uid: u32,
    /// The name that the client gives itself.
    pub client_name: *const c_char,
    /// The client's argument.
    pub argument: *const c_void,
    /// Its bytes.
    pub argument_length: usize,
    /// For how long an argument the client has room in the reply.
    pub room: usize,
    /// How many buffers there are.
    pub bufc: usize,
    /// The buffers. They, and all else that this structure points to, stay where they are until the request is replied to.
    pub bufv: *const ServerBuffer,
}

impl Message {
    /// A message that only says what it is.
    pub(crate) fn of(what: u32) -> Self {
        Self {
            what,
            service: 0,
            request: 0,
            client: 0,
            pid: 0,
            uid: 0,
            client_name: null(),
            argument: null(),
            argument_length: 0,
            room: 0,
            bufc: 0,
            bufv: null(),
        }
    }
}

/// A reply.
#[repr(C)]
#[derive(Debug)]
pub struct ReplyMessage {
    /// The request.
    pub request: io_request_t,
    /// 0 for success, else an errno; then nothing is passed to the client's buffers.
    pub error: c_int,
    /// A sentence about the failure, or NULL.
    pub error_text: *const c_char,
    /// The argument that goes back, if this is a success. To another process about 128 KiB can go; a longer one fails the request there,
    /// with EMSGSIZE.
    pub argument: *const c_void,
    /// Its bytes.
    pub argument_length: usize,
    /// How many actual lengths follow: at most as many as there are buffers.
    pub actualc: usize,
    /// For each buffer how many bytes were really passed; of an input that has none here, the client gets nothing.
    pub actualv: *const usize,
}

/// Makes this program a server (thesis §7.2), with number_services services, which are numbered from 0. If name is not NULL, clients
/// in other processes find the server by it (io_connect). This program can make requests of it by *serverp in any case.
///
/// pool_size is how many bytes of the server's memory each client is lent at first, for inputs and for data that is copied; 0 for 16 MiB.
/// Give as much as one client has in flight at once.
///
/// The server's messages come by io_server. A device, as the thesis has it, is not among the arguments, since Genie drives none; for
/// buffers of its own the server has io_allocate.
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
            let preferred = Preferred { offset: mapping.preferred_offset, len: mapping.preferred_length };
            (mapping.preferred_length > 0).then_some(preferred)
        };
        // SAFETY: the caller vouches for the string.
        let name = if name.is_null() { None } else { Some(unsafe { text(name) }?) };
        let defaults = ServeOptions::default();
        let pool = if pool_size == 0 { defaults.pool } else { pool_size };
        let options = ServeOptions { pool, ..defaults };
        let preferred = mappings.iter().map(prefers).collect();
        let (registered, handle) = Registered::open(name, services, preferred, options)?;
        let server = Server::new(default_client()?, handle, Some(registered));
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
/// IO_NO_MESSAGE otherwise. A signal does not end the wait. Clients in other processes are attended to by this call alone: a program that does something else for long
/// keeps them waiting. Several threads may call it at the same time.
///
/// A request that came may be replied to at once or later, in any order, by any thread; until then its buffers are the server's. A
/// server that wants to make requests of its own calls io_request.
///
/// Returns 0, or -1. If out_msg was refused, nothing was sent, no message was taken, and the request is still held; but with EMSGSIZE the
/// client was told that its room is too short, and the request is over.
///
/// Errors: EBADF (no such server, or it holds no such request), ECHILD, EINVAL (an actual length or direction is wrong, or the server is
/// in another process), EMSGSIZE, ECANCELED (the server has been unregistered; out_msg was sent all the same).
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

/// Makes an input buffer of a request ready to be filled: from now on the message's bufv has its segments. Until then a request holds no
/// memory for its input.
///
/// Errors: EBADF, ECHILD, EINVAL (it is no input, or the service has no IO_WRITE), ENOMEM.
#[unsafe(no_mangle)]
pub extern "C" fn io_ready(server: io_server_t, request: io_request_t, buffer: usize) -> c_int {
    call(|| process().registered(server)?.ready(request, buffer).map(|()| 0))
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
