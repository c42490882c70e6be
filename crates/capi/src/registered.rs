//! The servers of this program: their queues of messages, and the requests that they hold.
//!
//! How: requests of all clients go into one queue, in whatever thread they come. Clients in other processes are attended to by the
//! thread that is in io_server; if there are several, by one of them, while the others wait for the queue.
//! Invariants: a request that io_server has brought is held until it is replied to, and so is the memory of its buffers.
//! Source: thesis §7.2.

use std::collections::{HashMap, VecDeque};
use std::ffi::CString;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, TryLockError};
use std::time::{Duration, Instant};

use genie_io::channel::{Driven, Listener, ServeOptions};
use genie_io::{ClientId, Fragment, Incoming, RequestId, ServerError, ServerHandle, Service, ServiceId};
use genie_memory::Direction;
use genie_passing::Preferred;
use genie_sys::event::Event;
use genie_sys::poll::{self, Poller};

use crate::failure::Failure;
use crate::headers::checked;
use crate::interface::text;
use crate::process::lock;
use crate::server::{IO_REQUEST, Message, ReplyMessage, ServerBuffer};
use crate::types::{IO_IN, IO_OUT, Segment, io_request_t};

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

/// What io_server is to bring.
#[derive(Debug)]
pub(crate) enum Arrived {
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
    /// Makes a server, which clients in other processes find by its name if it has one; and the handle for clients in this process.
    pub(crate) fn open(
        name: Option<&str>,
        services: Vec<Service>,
        preferred: Vec<Option<Preferred>>,
        options: ServeOptions,
    ) -> Result<(Arc<Self>, ServerHandle), Failure> {
        let failure = genie_io::Error::from;
        let registered = Arc::new(Self {
            name: name.unwrap_or("(unnamed)").to_owned(),
            services,
            preferred,
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
        Ok((registered, handle))
    }

    /// Readable when there may be a message, once `next` has found none.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.poller.as_fd().as_raw_fd()
    }

    pub(crate) fn is_aborted(&self, request: io_request_t) -> Result<bool, Failure> {
        self.with(request, |held| Ok(held.incoming.is_aborted()))
    }

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
    pub(crate) fn next(&self, waits: bool) -> Result<Option<Arrived>, Failure> {
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
    pub(crate) fn hold(&self, incoming: Incoming) -> Result<Message, Failure> {
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

    pub(crate) fn ready(&self, request: io_request_t, buffer: usize) -> Result<(), Failure> {
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
    pub(crate) unsafe fn reply(&self, message: &ReplyMessage) -> Result<(), Failure> {
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
    pub(crate) fn end(&self) {
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
    if message.actualc > 0 && message.actualv.is_null() {
        return Err(Failure::misuse("the list of actual lengths is missing: actualv is NULL".to_owned()));
    }
    if message.actualc > count {
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
