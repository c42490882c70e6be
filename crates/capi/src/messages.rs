//! What `io_server` brings, and what it takes.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::null;

use crate::types::{Segment, io_request_t};

/// There is no message.
pub const IO_NO_MESSAGE: u32 = 0;
/// A request, to be replied to.
pub const IO_REQUEST: u32 = 1;
/// A request that is held is to be let go: reply to it soon, with success if it is done, else with ECANCELED. After io_abort, what
/// io_progress has said is final passes then.
pub const IO_ABORT: u32 = 2;
/// A client has left: no more of its requests come.
pub const IO_DEPARTURE: u32 = 3;

/// Replies have come to requests of an interface that the server watches (io_server_watch): look at the pending ones by io_sync with
/// timeout 0. There may be none.
pub const IO_REPLIES: u32 = 4;

/// A buffer of a request, as its server sees it.
#[repr(C)]
#[derive(Debug)]
pub struct ServerBuffer {
    /// IO_OUT: the server reads it. IO_IN: the server fills it.
    pub direction: u32,
    /// Its bytes, or for an input, for how many there is room.
    pub length: usize,
    /// How many segments it lies in; 0 for an input before io_ready, and for an output after io_keep or if the service has no IO_READ.
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
    /// For each buffer how many bytes were really passed. An input that was made ready, pinned, overlaid, linked to outboard data, or
    /// forwarded in part, has to have one here, if only 0: a success without it is refused with EINVAL. SIZE_MAX is as good as none.
    pub actualv: *const usize,
}
