//! Servers of this program: `io_server_register`, `io_server` and `io_server_unregister`.
//!
//! How: requests of all clients go into one queue, in whatever thread they come. Clients in other processes are attended to by the
//! thread that is in io_server; if there are several, by one of them, while the others wait for the queue.
//! Invariants: a request that io_server has brought is held until it is replied to, and so is the memory of its buffers.
//! Source: thesis §7.2.

use std::collections::{HashMap, VecDeque};
use std::ffi::{CString, c_char, c_int, c_void};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::null;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, TryLockError};
use std::time::{Duration, Instant};

use genie_io::channel::{Driven, Listener, ServeOptions};
use genie_io::{ClientId, Fragment, Incoming, RequestId, ServerError, ServerHandle, Service, ServiceId};
use genie_memory::Direction;
use genie_passing::Preferred;
use genie_sys::event::Event;
use genie_sys::poll::{self, Poller};

use crate::failure::{Failure, call};
use crate::headers::{checked, set};
use crate::interface::{default_client, ensure_place, text};
use crate::process::{Server, lock, process};
use crate::types::{IO_IN, IO_OUT, Segment, io_request_t, io_server_t};

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
    /// IO_NO_MESSAGE, IO_REQUEST, IO_ABORT or IO_DEPARTURE.
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

/// A server of this program.
#[derive(Debug)]
pub(crate) struct Registered {
    name: String,
    services: Vec<Service>,
    preferred: Vec<Option<Preferred>>,
    queue: Mutex<Queue>,
    changed: Condvar,
    is_over: AtomicBool,
    /// The thread that attends to other processes may be asleep, or the program waits by descriptor.
    is_asleep: AtomicBool,
    event: Event,
    poller: Poller,
    /// None if only this process can ask the server.
    driven: Mutex<Option<Driven>>,
    spin: Duration,
}

#[derive(Debug, Default)]
struct Queue {
    messages: VecDeque<Arrived>,
    held: HashMap<io_request_t, Box<Held>>,
}

#[derive(Debug)]
enum Arrived {
    Request(Incoming),
    Abort(RequestId),
    Departure(ClientId),
}

/// A request that io_server has brought, with what the program was shown of it.
#[derive(Debug)]
struct Held {
    incoming: Incoming,
    client_name: CString,
    buffers: Vec<ServerBuffer>,
    segments: Vec<Vec<Segment>>,
    /// The buffers of which parts were forwarded, by their numbers: others may have filled them.
    forwarded: Vec<usize>,
}

// SAFETY: the pointers are into the same value, or to the request's memory, which may be used in any thread.
unsafe impl Send for Held {}

/// How long a thread sleeps before it looks whether another one has stopped attending to other processes.
const LONGEST: Duration = Duration::from_millis(100);

/// What Genie calls: it only puts messages into the queue.
struct Front(Arc<Registered>);

impl genie_io::Server for Front {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn services(&self) -> &[Service] {
        &self.0.services
    }

    fn request(&self, request: Incoming) {
        self.0.put(Arrived::Request(request));
    }

    fn abort(&self, request: RequestId) {
        let mut queue = lock(&self.0.queue);
        let is_it =
            |message: &Arrived| matches!(message, Arrived::Request(incoming) if incoming.id() == request);
        let waiting = queue.messages.iter().position(is_it).and_then(|index| queue.messages.remove(index));
        let is_held = queue.held.contains_key(&request.number());
        drop(queue);
        // Dropping it is its reply, which takes locks of Genie's.
        drop(waiting);
        if is_held {
            self.0.put(Arrived::Abort(request));
        }
    }

    fn departed(&self, client: ClientId) {
        self.0.put(Arrived::Departure(client));
    }

    fn preferred(&self, service: ServiceId) -> Option<Preferred> {
        *self.0.preferred.get(service.0 as usize)?
    }
}

impl Registered {
    fn put(&self, message: Arrived) {
        let mut queue = lock(&self.queue);
        if self.is_over.load(Ordering::SeqCst) {
            drop(queue);
            return; // dropped, which is the reply to a request
        }
        queue.messages.push_back(message);
        drop(queue);
        self.changed.notify_one();
        // Partner: `may_sleep`.
        if self.is_asleep.swap(false, Ordering::SeqCst) {
            // Where it can't be signalled, it is readable already.
            let _ = self.event.signal();
        }
    }

    fn pop(&self) -> Option<Arrived> {
        lock(&self.queue).messages.pop_front()
    }

    /// The next message. If there is none, this waits, or makes the descriptor readable when there is one.
    fn next(&self, waits: bool) -> Result<Option<Arrived>, Failure> {
        loop {
            if self.is_over.load(Ordering::SeqCst) {
                return Err(ended());
            }
            if let Some(message) = self.pop() {
                return Ok(Some(message));
            }
            match self.driven.try_lock() {
                Ok(mut driven) => {
                    let found = self.attend(driven.as_mut(), waits)?;
                    drop(driven);
                    // Another thread may attend now.
                    self.changed.notify_one();
                    if found.is_some() || !waits {
                        return Ok(found);
                    }
                }
                Err(TryLockError::WouldBlock) if !waits => return Ok(None),
                Err(_) => {
                    let queue = lock(&self.queue);
                    if queue.messages.is_empty() {
                        drop(self.changed.wait_timeout(queue, LONGEST));
                    }
                }
            }
        }
    }

    /// Attends to clients in other processes until there is a message; if there is none, sleeps once, if the caller waits.
    fn attend(&self, driven: Option<&mut Driven>, waits: bool) -> Result<Option<Arrived>, Failure> {
        let mut driven = driven;
        let mut serve = || {
            if let Some(driven) = driven.as_deref_mut() {
                driven.serve();
            }
            self.pop()
        };
        let since = Instant::now();
        loop {
            if let Some(message) = serve() {
                return Ok(Some(message));
            }
            if !waits || since.elapsed() >= self.spin {
                break;
            }
            std::hint::spin_loop();
        }
        // A message, or the server's end, that comes from here on makes the descriptor readable. Partners: `put` and `end`.
        self.event.clear().map_err(genie_io::Error::from)?;
        self.is_asleep.store(true, Ordering::SeqCst);
        let message = self.pop();
        if message.is_some() || self.is_over.load(Ordering::SeqCst) {
            return Ok(message);
        }
        let may_sleep = driven.is_none_or(Driven::arm);
        if !may_sleep {
            // It is readable, so that a program that waits by descriptor comes back at once.
            self.event.signal().map_err(genie_io::Error::from)?;
        } else if waits {
            let slept = poll::readable(&self.poller, None);
            slept.map_err(genie_io::Error::from)?;
        }
        Ok(None)
    }

    /// Keeps a request until it is replied to, and says what the program is to see of it.
    fn hold(&self, incoming: Incoming) -> Result<Message, Failure> {
        let client = incoming.client().clone();
        let mut held = Box::new(Held {
            client_name: CString::new(client.name).unwrap_or_default(),
            buffers: Vec::new(),
            segments: Vec::new(),
            forwarded: Vec::new(),
            incoming,
        });
        for index in 0..held.incoming.buffers() {
            let segments =
                held.incoming.output(index).map(|data| segments(data.places())).unwrap_or_default();
            let is_input = held.incoming.direction(index).is_ok_and(|direction| direction == Direction::In);
            held.buffers.push(ServerBuffer {
                direction: if is_input { IO_IN } else { IO_OUT },
                length: held.incoming.len(index),
                segc: segments.len(),
                segv: segments.as_ptr(),
            });
            held.segments.push(segments);
        }
        let message = Message {
            what: IO_REQUEST,
            service: held.incoming.service().0,
            request: held.incoming.id().number(),
            client: client.id.number(),
            pid: client.pid,
            uid: client.uid,
            client_name: held.client_name.as_ptr(),
            argument: held.incoming.argument().as_ptr().cast(),
            argument_length: held.incoming.argument().len(),
            room: held.incoming.room(),
            bufc: held.buffers.len(),
            bufv: held.buffers.as_ptr(),
        };
        let (id, is_aborted) = (held.incoming.id(), held.incoming.is_aborted());
        let mut queue = lock(&self.queue);
        if self.is_over.load(Ordering::SeqCst) {
            drop(queue);
            return Err(ended()); // and drop the request, which fails
        }
        queue.held.insert(message.request, held);
        drop(queue);
        if is_aborted {
            // `Front::abort` may have found it neither in the queue nor held.
            self.put(Arrived::Abort(id));
        }
        Ok(message)
    }

    /// Whether the server has ended and holds no request: nobody can use it any more.
    pub(crate) fn is_done(&self) -> bool {
        let queue = lock(&self.queue);
        self.is_over.load(Ordering::SeqCst) && queue.held.is_empty()
    }

    fn missing(&self, request: io_request_t) -> Failure {
        let name = &self.name;
        Failure::new(libc::EBADF, format!("server {name} holds no request {request}, or has replied to it"))
    }

    /// Does something with a request that is held.
    fn with<T>(
        &self,
        request: io_request_t,
        act: impl FnOnce(&mut Held) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let mut queue = lock(&self.queue);
        act(queue.held.get_mut(&request).ok_or_else(|| self.missing(request))?)
    }

    /// A part of a buffer of a request that is held, to be forwarded.
    pub(crate) fn fragment(
        &self,
        request: io_request_t,
        buffer: usize,
        range: Range<usize>,
    ) -> Result<Fragment, Failure> {
        self.with(request, |held| {
            let fragment = held.incoming.fragment(buffer, range)?;
            held.forwarded.push(buffer);
            Ok(fragment)
        })
    }

    fn ready(&self, request: io_request_t, buffer: usize) -> Result<(), Failure> {
        self.with(request, |held| {
            let is_input = |shown: &&ServerBuffer| shown.direction == IO_IN;
            if held.buffers.get(buffer).filter(is_input).is_some_and(|shown| shown.segc > 0) {
                return Ok(()); // another thread may be at work by what it was shown
            }
            let found = segments(held.incoming.ready(buffer)?.places());
            let shown = &mut held.buffers[buffer];
            (shown.segc, shown.segv) = (found.len(), found.as_ptr());
            held.segments[buffer] = found;
            Ok(())
        })
    }

    /// # Safety
    /// The message's pointers are valid.
    unsafe fn reply(&self, message: &ReplyMessage) -> Result<(), Failure> {
        let mut queue = lock(&self.queue);
        let held = queue.held.get_mut(&message.request).ok_or_else(|| self.missing(message.request))?;
        // SAFETY: the caller vouches for them.
        let result = unsafe { completed(held, message) }?;
        let held = queue.held.remove(&message.request);
        drop(queue);
        let is_too_long = message.error == 0 && result.is_err();
        if let Some(held) = held {
            held.incoming.reply(result);
        }
        match is_too_long {
            true => Err(Failure::new(
                libc::EMSGSIZE,
                "the client has made too little room for the argument, and is told so",
            )),
            false => Ok(()),
        }
    }

    /// Ends the server: its clients see it hang up, and threads in io_server return. Requests that are held stay: threads may be at
    /// work in their memory.
    fn end(&self) {
        let mut queue = lock(&self.queue);
        self.is_over.store(true, Ordering::SeqCst);
        let left = std::mem::take(&mut queue.messages);
        drop(queue);
        let _ = self.event.signal();
        self.changed.notify_all();
        // A thread that attends lets go soon.
        let driven = lock(&self.driven).take();
        drop((driven, left));
    }
}

fn ended() -> Failure {
    Failure::new(libc::ECANCELED, "the server has been unregistered")
}

fn segments(places: impl Iterator<Item = (usize, usize)>) -> Vec<Segment> {
    let segment = |(addr, length)| Segment { addr: std::ptr::with_exposed_provenance_mut(addr), length };
    places.map(segment).collect()
}

/// What a reply says; the outer error is the caller's.
///
/// # Safety
/// The message's pointers are valid.
unsafe fn completed(held: &mut Held, message: &ReplyMessage) -> Result<Result<(), ServerError>, Failure> {
    if message.error < 0 {
        return Err(Failure::misuse(format!("the error {} is no errno", message.error)));
    }
    if message.error != 0 {
        let text = match message.error_text.is_null() {
            true => std::io::Error::from_raw_os_error(message.error).to_string(),
            // SAFETY: the caller vouches for the string.
            false => unsafe { text(message.error_text) }?.to_owned(),
        };
        return Ok(Err(ServerError { code: message.error, message: text }));
    }
    let count = held.buffers.len();
    if message.actualc > count || (message.actualc > 0 && message.actualv.is_null()) {
        return Err(Failure::misuse(format!("{} actual lengths for {count} buffers", message.actualc)));
    }
    let actual = |index| match index < message.actualc {
        // SAFETY: the caller vouches for so many lengths.
        true => unsafe { message.actualv.add(index).read() },
        false => 0,
    };
    // All is looked at before any of it counts.
    for (index, buffer) in held.buffers.iter().enumerate() {
        let actual = actual(index);
        if actual > buffer.length {
            let length = buffer.length;
            return Err(Failure::misuse(format!("{actual} bytes of buffer {index}, which has {length}")));
        }
        let is_unfilled = buffer.direction == IO_IN && buffer.segc == 0 && !held.forwarded.contains(&index);
        if actual > 0 && is_unfilled {
            return Err(Failure::misuse(format!(
                "buffer {index} is an input: call io_ready and fill it first"
            )));
        }
    }
    // SAFETY: the caller vouches for the argument.
    let argument = unsafe { checked(message.argument.cast_mut(), message.argument_length)?.read() };
    for index in 0..count {
        held.incoming.set_actual(index, actual(index))?;
    }
    Ok(held.incoming.set_argument(argument).map_err(ServerError::from))
}

/// Makes this program a server (thesis §7.2), with number_services services, which are numbered from 0. If name is not NULL, clients
/// in other processes find the server by it (io_connect). This program can make requests of it by *serverp in any case.
///
/// pool_size is how many bytes of the server's memory each client is lent at first, for data that is copied; 0 for 16 MiB.
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
        if number_services == 0 || number_services > 256 || service_mappingv.is_null() {
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
        let failure = genie_io::Error::from;
        let registered = Arc::new(Registered {
            name: name.unwrap_or("(unnamed)").to_owned(),
            services,
            preferred: mappings.iter().map(prefers).collect(),
            queue: Mutex::default(),
            changed: Condvar::new(),
            is_over: AtomicBool::new(false),
            is_asleep: AtomicBool::new(false),
            event: Event::new().map_err(failure)?,
            poller: Poller::new().map_err(failure)?,
            driven: Mutex::default(),
            spin: options.spin,
        });
        registered.poller.add(&registered.event, 0).map_err(failure)?;
        if let Some(name) = name {
            let driven = Listener::bind(name, Front(Arc::clone(&registered)), options)?.drive()?;
            registered.poller.add(driven.descriptor(), 1).map_err(failure)?;
            *lock(&registered.driven) = Some(driven);
        }
        let handle = ServerHandle::new(Front(Arc::clone(&registered)));
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
        let empty = Message {
            what: IO_NO_MESSAGE,
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
        };
        let message = match registered.next(blocking != 0)? {
            None => empty,
            Some(Arrived::Request(incoming)) => registered.hold(incoming)?,
            Some(Arrived::Abort(request)) => Message { what: IO_ABORT, request: request.number(), ..empty },
            Some(Arrived::Departure(client)) => {
                Message { what: IO_DEPARTURE, client: client.number(), ..empty }
            }
        };
        // SAFETY: the caller vouches for the pointer.
        unsafe { set(in_msg, message) };
        Ok(0)
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
    call(|| process().registered(server)?.with(request, |held| Ok(c_int::from(held.incoming.is_aborted()))))
}

/// A descriptor for poll or epoll: once io_server has said IO_NO_MESSAGE, it is readable when there may be a message. It is the
/// library's: do not read or close it.
///
/// Errors: EBADF, ECHILD, EINVAL.
#[unsafe(no_mangle)]
pub extern "C" fn io_server_descriptor(server: io_server_t) -> c_int {
    call(|| Ok(process().registered(server)?.poller.as_fd().as_raw_fd()))
}
