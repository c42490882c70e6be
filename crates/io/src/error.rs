//! Why a request did not succeed.

use std::path::PathBuf;
use std::time::Duration;

use genie_memory::Direction;
use genie_sys::Errno;

use crate::ServerError;

mod conversions;
mod failed;
pub(crate) mod server_error;

pub use failed::Failed;

/// Why a request, or another operation, failed.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A child made by fork has the handle from its parent.
    #[error("this handle belongs to the process that made it; open an interface of your own after fork")]
    Inherited,
    /// The server has no such service.
    #[error("server {server} has no service number {service}; it has {count}, numbered from 0")]
    NoSuchService {
        /// The server's name.
        server: String,
        /// The number asked for.
        service: u32,
        /// How many services there are.
        count: usize,
    },
    /// The server has no service of this name.
    #[error("server {server} has no service {service:?}; it has {services}")]
    UnknownService {
        /// The server's name.
        server: String,
        /// The name asked for.
        service: String,
        /// The names that there are.
        services: String,
    },
    /// The server is in another process, and another interface was connected to it: the server does not see this interface's
    /// memory. Or the request was made by another interface than the one that is to wait for the reply.
    #[error(
        "the request to server {server} mixes two interfaces; connect, make the request and wait for its reply by the same one"
    )]
    OtherInterface {
        /// The server's name.
        server: String,
    },
    /// A continuation that named a cost of no more than [`HIJACK_LIMIT`](crate::HIJACK_LIMIT) would wait, or a server in this process that it
    /// calls: others wait for its thread. A request by `send` was not sent; one that was submitted goes on, unobserved.
    #[error(
        "a continuation of so little cost may not wait, as others wait for its thread; submit the request, and name a continuation for it, or name a cost beyond HIJACK_LIMIT (`Pending::then`)"
    )]
    MayNotWait,
    /// The request alone is larger than the limit on pending bytes, the interface's or the one that the server granted.
    #[error(
        "a request of {asked} bytes exceeds the limit of {limit} pending bytes; raise the limit (`adjust`) or cut it"
    )]
    TooLarge {
        /// Bytes in the request's buffers.
        asked: usize,
        /// The limit.
        limit: usize,
    },
    /// An asynchronous request would exceed the limit on pending bytes (buffer exhaustion).
    #[error(
        "{asked} more bytes would exceed the limit: {pending} of {limit} bytes are pending; wait for replies, or raise the limit (`adjust`)"
    )]
    Exhausted {
        /// Bytes in the request's buffers.
        asked: usize,
        /// Bytes pending.
        pending: usize,
        /// The limit.
        limit: usize,
    },
    /// As many requests are pending as may be, by the interface's limit or the server's.
    #[error(
        "{pending} requests are pending, and no more than {limit} may be; wait for replies, or raise the limit (`adjust`)"
    )]
    TooMany {
        /// Requests pending.
        pending: usize,
        /// The limit.
        limit: usize,
    },
    /// The channel can carry no more to the server now, though the limits allow more pending requests: the ring is full, or
    /// the server has not yet taken the announcements of memory.
    #[error(
        "the channel to the server is full with {pending} requests pending; wait for replies, or have it make larger rings (`ServeOptions::rings`)"
    )]
    ChannelFull {
        /// Requests pending there.
        pending: usize,
    },
    /// The server, in another process, may not map or copy any more of this client's memory.
    #[error(
        "the server has room for {limit} {unit} of this client, of which {used} are taken; {asked} more do not fit; wait for replies, or have the server allow more"
    )]
    NoRoom {
        /// How much more the request needs.
        asked: usize,
        /// How much other requests have.
        used: usize,
        /// How much all may have.
        limit: usize,
        /// "bytes of data" or "pieces of data".
        unit: &'static str,
    },
    /// A limit was to be raised beyond the hard limit.
    #[error("{asked} pending {what} exceed the hard limit of {hard}")]
    HardLimit {
        /// Bytes or requests.
        what: &'static str,
        /// The limit asked for.
        asked: usize,
        /// The hard limit.
        hard: usize,
    },
    /// The request was not replied to in time, and was aborted. A later reply, even of success, is not reported: whether the
    /// server has done what was asked is not known.
    #[error(
        "no reply within {timeout:?}; the request was aborted, and whether it has been done is not known"
    )]
    TimedOut {
        /// The time allowed.
        timeout: Duration,
    },
    /// The client or the server aborted the request, or one of which this one forwards a part.
    #[error("the request was aborted")]
    Aborted,
    /// The server gave the request up without a reply.
    #[error("the server dropped the request without a reply")]
    Dropped,
    /// The server's code panicked with the request in its hands.
    #[error("the server panicked: {message}")]
    Panicked {
        /// The panic's message, which the panic hook has reported where the server runs.
        message: String,
    },
    /// The server replied with success, and had made an input ready without saying how much of it came: a mistake of the server's
    /// code. Nothing was passed.
    #[error(
        "the server made buffer {buffer} ready, an input, and never said how many bytes came, so none did; let its code fill inputs by \
         `fill`, or call `set_actual` before it replies"
    )]
    Untold {
        /// The buffer's index.
        buffer: usize,
    },
    /// The server says that less of a buffer was passed than it had said before was final ([`Incoming::progress`](crate::Incoming::progress)).
    #[error(
        "{come} bytes of the buffer were said to be final, and now it is said that {actual} came; never say less than before"
    )]
    Backwards {
        /// How many bytes were final.
        come: usize,
        /// How many are said to have come.
        actual: usize,
    },
    /// The server replied with an error.
    #[error("the server replied with an error: {0}")]
    Server(#[from] ServerError),
    /// A service was asked to access a buffer in a way that it is not registered for.
    #[error(
        "service number {service} may not {access} buffers: the server has not declared it so by `Service::new(name, reads, writes)`"
    )]
    Unmapped {
        /// The service's number.
        service: u32,
        /// "read" or "write".
        access: &'static str,
    },
    /// The argument that the server gave back is longer than the room that the client has made for it.
    #[error(
        "the reply's argument has {len} bytes, and the request made room for {room}: let the client make room by `.room({len})`, or by in_arg_length in C"
    )]
    ArgumentTooLong {
        /// The argument's length.
        len: usize,
        /// The room.
        room: usize,
    },
    /// A server asked for an output that it has kept.
    #[error(
        "the server has kept buffer {buffer} by `keep`, and the request has its data no more; use what `keep` has returned"
    )]
    Kept {
        /// The buffer's index.
        buffer: usize,
    },
    /// A server was to keep more than may be kept, of one client's outputs or of all clients'.
    #[error(
        "{asked} more bytes of outputs cannot be kept, where {kept} are and {limit} may be; let the server drop some of them, or raise \
         `{option}`"
    )]
    KeptTooMuch {
        /// Bytes to be kept.
        asked: usize,
        /// Bytes kept already; where `option` is `ServeOptions::pools`, those that clients are lent included.
        kept: usize,
        /// The limit.
        limit: usize,
        /// What sets the limit: `Limits::kept_bytes`, `ServeOptions::kept` or `ServeOptions::pools`.
        option: &'static str,
    },
    /// A buffer was named that the request does not have, or one of the other direction.
    #[error(
        "{}: its service uses it as an {direction}; the client adds it by `{}`, and buffers are numbered from 0, outputs and inputs together",
        if *.is_other { format!("buffer {index} of the request is of the other direction") } else { format!("the request has no buffer {index}") },
        match direction { Direction::In => ".input(..)", Direction::Out => ".out(..)" }
    )]
    NoSuchBuffer {
        /// The index.
        index: usize,
        /// The direction.
        direction: Direction,
        /// Whether the request has a buffer of this number, of the other direction.
        is_other: bool,
    },
    /// An element was named that the buffer does not have.
    #[error("buffer {buffer} of the request has no element {element}; it has {count}, numbered from 0")]
    NoSuchElement {
        /// The buffer's index.
        buffer: usize,
        /// The element's index.
        element: usize,
        /// How many elements the buffer has.
        count: usize,
    },
    /// A server was to overlay an element of an input, or to link a device's data to it, and has memory for that element already.
    #[error(
        "element {element} of buffer {buffer} was made ready, overlaid, linked or forwarded before; a server overlays or links an \
         element in place of all else, and once"
    )]
    ReadyAlready {
        /// The buffer's index.
        buffer: usize,
        /// The element's index.
        element: usize,
    },
    /// No process serves under this name: it was never started, or has gone. Nothing was asked of it.
    #[error("no server {server}: {why}")]
    NoServer {
        /// The name.
        server: String,
        /// What the kernel says, and what to do.
        why: String,
    },
    /// The server does not let this client in, or the client does not accept what it offers. Nothing was asked of it.
    #[error("no channel to server {server}: {why}")]
    Refused {
        /// The server's name.
        server: String,
        /// Which rights, limits or versions are in the way.
        why: String,
    },
    /// The server has no room for another client, or does not accept clients now. Nothing was asked of it.
    #[error("server {server} is busy: {why}")]
    Busy {
        /// The server's name.
        server: String,
        /// What it lacks.
        why: String,
    },
    /// A server in another process is not there any more.
    #[error("server {server} is gone: {why}; {}", if *.asked { "whether it has done what was asked is not known" } else { "it was not asked" })]
    Gone {
        /// The server's name.
        server: String,
        /// What happened.
        why: String,
        /// Whether the server may have done what was asked. If not, the request was never sent.
        asked: bool,
    },
    /// A server of this process was stopped, and serves no more.
    #[error("server {server} was stopped in this process; to serve on, claim its name again")]
    Stopped {
        /// The server's name.
        server: String,
    },
    /// Too many servers of this process, one after the other, have forwarded parts of a request: no part is forwarded
    /// further.
    #[error(
        "parts of {limit} requests have been forwarded one after the other, and no more can be; let fewer servers forward them"
    )]
    TooDeep {
        /// How many there may be.
        limit: u32,
    },
    /// A server in another process has not answered in time; it may be stopped, and answer later.
    #[error("server {server} has not answered within {timeout:?}; it may be stopped")]
    Silent {
        /// The server's name.
        server: String,
        /// How long it was waited for.
        timeout: Duration,
    },
    /// Data is in memory that the interface cannot name to another process: that of another interface, say.
    #[error(
        "{len} bytes at {addr:#x} are not in memory of this interface; pass them by copy, or by the interface that has them"
    )]
    Elsewhere {
        /// Where, as an address or from an arena's start.
        addr: usize,
        /// How many bytes.
        len: usize,
    },
    /// A part of a request cannot be forwarded to a server in another process: this process has it in memory that it cannot name to
    /// that server.
    #[error(
        "{len} bytes of a request cannot be forwarded to server {server}: {why}; copy them to memory of the interface that asks it, and \
         pass that"
    )]
    Unforwardable {
        /// The server's name.
        server: String,
        /// How many bytes.
        len: usize,
        /// Why not.
        why: &'static str,
    },
    /// A request with all its parts is longer than the channel carries.
    #[error(
        "the request's argument and parts take {len} bytes on a channel that carries {max}; pass long data in a buffer, or have the \
         server make larger rings (`ServeOptions::rings`)"
    )]
    TooManyParts {
        /// Bytes of the record.
        len: usize,
        /// Bytes allowed.
        max: usize,
    },
    /// Data was redirected to more buffers than the request has native inputs.
    #[error(
        "data was redirected to {given} buffers, and the request has {inputs} native inputs; migrant inputs and fragments are \
         not redirected"
    )]
    TooManyDestinations {
        /// To how many.
        given: usize,
        /// How many there are.
        inputs: usize,
    },
    /// The run-time directory, or a file in it, cannot be used.
    #[error("the run-time directory: {path:?} {why}; {remedy}")]
    Directory {
        /// The directory or file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
        /// What to do about it.
        remedy: &'static str,
    },
    /// No server can have this name.
    #[error(
        "{name:?} cannot be a server's name: {why}; use up to 64 of A-Z a-z 0-9 . _ - and no dot in front"
    )]
    BadName {
        /// The name.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Another process serves under this name.
    #[error(
        "server {server} is running already, {}; stop it, or serve under another name",
        pid.map_or_else(|| "in a process that does not say its number".to_owned(), |pid| format!("process {pid}"))
    )]
    Running {
        /// The server's name.
        server: String,
        /// The number of its process, where that is known.
        pid: Option<u32>,
    },
    /// A server was to be made reachable to other processes, but its services or its options exceed what a channel can have,
    /// so that no client could be told of them.
    #[error("no client could connect to this server: {part}: {why}")]
    Unservable {
        /// The option, as `ServeOptions::pool`, or the service.
        part: String,
        /// What is wrong with it, with the numbers.
        why: String,
    },
    /// There is more of something than one message or record of a channel can say.
    #[error("{count} {what} are more than the {max} that a channel carries at once; shorten or split them")]
    Uncarriable {
        /// What there is too much of.
        what: &'static str,
        /// How much.
        count: u64,
        /// How much there may be.
        max: u64,
    },
    /// Data passing failed.
    #[error(transparent)]
    Passing(#[from] genie_passing::Error),
}

impl Error {
    /// A server elsewhere is gone, and the request may have reached it.
    pub fn gone(server: &str, why: impl Into<String>) -> Self {
        Self::Gone { server: server.to_owned(), why: why.into(), asked: true }
    }

    /// The same for a request that was never sent.
    #[must_use]
    pub fn unasked(self) -> Self {
        match self {
            Self::Gone { server, why, .. } => Self::Gone { server, why, asked: false },
            error => error,
        }
    }

    /// The same for something of which a part was sent.
    #[must_use]
    pub fn asked(self) -> Self {
        match self {
            Self::Gone { server, why, .. } => Self::Gone { server, why, asked: true },
            error => error,
        }
    }

    /// Whether the call was wrong: the same would fail again. A server says so by the code `EINVAL`, as one does that asks for a
    /// buffer that the request does not have.
    pub fn is_misuse(&self) -> bool {
        let is_refused = matches!(self, Self::Server(error) if error.code == Errno::INVAL.raw_os_error());
        is_refused
            || matches!(
                self,
                Self::NoSuchService { .. }
                    | Self::UnknownService { .. }
                    | Self::OtherInterface { .. }
                    | Self::TooLarge { .. }
                    | Self::HardLimit { .. }
                    | Self::ArgumentTooLong { .. }
                    | Self::NoSuchBuffer { .. }
                    | Self::NoSuchElement { .. }
                    | Self::ReadyAlready { .. }
                    | Self::Unmapped { .. }
                    | Self::Kept { .. }
                    | Self::Backwards { .. }
                    | Self::Elsewhere { .. }
                    | Self::Unforwardable { .. }
                    | Self::TooManyParts { .. }
                    | Self::TooManyDestinations { .. }
                    | Self::BadName { .. }
                    | Self::Unservable { .. }
                    | Self::Uncarriable { .. }
                    | Self::Inherited
            )
    }

    /// Whether only too many requests, or clients, were in the way: the same may succeed when some are over. A server says so by the
    /// code of `EAGAIN`, `ENOBUFS` or `EMFILE`.
    pub fn is_congestion(&self) -> bool {
        use genie_passing::Error::Memory;
        match self {
            Self::Passing(Memory(genie_memory::Error::Lender { .. }))
            | Self::Exhausted { .. }
            | Self::TooMany { .. }
            | Self::ChannelFull { .. }
            | Self::NoRoom { .. }
            | Self::Busy { .. } => true,
            Self::Server(error) => {
                [Errno::AGAIN, Errno::NOBUFS, Errno::MFILE].map(Errno::raw_os_error).contains(&error.code)
            }
            _ => false,
        }
    }
}
