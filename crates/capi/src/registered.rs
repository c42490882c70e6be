//! The servers of this program: their queues of messages, and the requests that they hold.
//!
//! How: requests of all clients go into one queue, in whatever thread they come. Those of clients in other processes are taken off their
//! rings by the thread that is in io_server; if there are several, by one of them, while the others wait for the queue. A thread of
//! Genie's lets these clients in, and notices when they go.
//! Invariants: a request that io_server has brought is held until it is replied to, and so is the memory of its buffers.
//! Source: thesis §7.2.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use genie_channel::{Driven, Listener, ServeOptions};
use genie_io::{
    Client, ClientId, Fragment, Incoming, Kept, Preferences, RequestId, ServerHandle, Service, ServiceId,
};
use genie_passing::{Outboard, Preferred};
use genie_sys::Condvar;
use genie_sys::event::Event;
use genie_sys::lock::{Mutex, RwLock};
use genie_sys::poll::{self, Poller};

use crate::failure::Failure;
use crate::held::Held;
use crate::messages::{Message, ReplyMessage};
use crate::opened::Opened;
use crate::pinned::Pin;
use crate::taken::Taken;
use crate::types::io_request_t;

/// A server of this program.
#[derive(Debug)]
pub(crate) struct Registered {
    name: String,
    services: Vec<Service>,
    /// For each service, how clients are to lay out input buffers.
    preferred: Mutex<Vec<Option<Preferred>>>,
    preferences: Preferences,
    queue: Mutex<Queue>,
    changed: Condvar,
    is_over: AtomicBool,
    /// The thread that takes requests of other processes may be asleep, or the program waits by descriptor.
    is_asleep: AtomicBool,
    event: Event,
    poller: Poller,
    /// None if only this process can ask the server.
    driven: Mutex<Option<Driven>>,
    spin: Duration,
    /// The interfaces to whose requests' replies waits end, too.
    watched: RwLock<Vec<Arc<Opened>>>,
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
    Abort(io_request_t),
    Departure(ClientId),
    /// Replies to requests of an interface that is watched.
    Replies,
}

/// How long a thread sleeps before it looks whether another one has stopped taking requests of other processes.
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
        let mut queue = self.0.queue.lock();
        let is_it =
            |message: &Arrived| matches!(message, Arrived::Request(incoming) if incoming.id() == request);
        let waiting = queue.messages.iter().position(is_it).and_then(|index| queue.messages.remove(index));
        let is_held = queue.held.contains_key(&request.number());
        drop(queue);
        // Dropping it is its reply, which takes locks of Genie's.
        drop(waiting);
        if is_held {
            self.0.put(Arrived::Abort(request.number()));
        }
    }

    fn departed(&self, client: ClientId) {
        self.0.put(Arrived::Departure(client));
    }

    fn preferred(&self, _client: &Client, service: ServiceId, _argument: &[u8]) -> Option<Preferred> {
        *self.0.preferred.lock().get(service.0 as usize)?
    }

    fn preferences(&self) -> Option<&Preferences> {
        Some(&self.0.preferences)
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
            preferred: Mutex::new(preferred),
            preferences: Preferences::new(),
            queue: Mutex::default(),
            changed: Condvar::new(),
            is_over: AtomicBool::new(false),
            is_asleep: AtomicBool::new(false),
            event: Event::new().map_err(failure)?,
            poller: Poller::new().map_err(failure)?,
            driven: Mutex::default(),
            spin: options.spin,
            watched: RwLock::default(),
        });
        registered.poller.add(&registered.event, 0).map_err(failure)?;
        if let Some(name) = name {
            let driven = Listener::bind(name, Front(Arc::clone(&registered)), options)?.drive()?;
            registered.poller.add(driven.descriptor(), 1).map_err(failure)?;
            *registered.driven.lock() = Some(driven);
        }
        let handle = ServerHandle::new(Front(Arc::clone(&registered)));
        Ok((registered, handle))
    }

    /// Has clients lay out input buffers for a service like this from now on.
    pub(crate) fn prefer(&self, service: u32, preferred: Option<Preferred>) -> Result<(), Failure> {
        let missing = || Failure::misuse(format!("the server has no service number {service}"));
        *self.preferred.lock().get_mut(service as usize).ok_or_else(missing)? = preferred;
        self.preferences.changed();
        Ok(())
    }

    /// Readable when there may be a message, once `next` has found none.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.poller.as_fd().as_raw_fd()
    }

    pub(crate) fn is_aborted(&self, request: io_request_t) -> Result<bool, Failure> {
        self.with(request, |held| Ok(held.is_aborted()))
    }

    fn put(&self, message: Arrived) {
        let mut queue = self.queue.lock();
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
        self.queue.lock().messages.pop_front()
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
                Some(mut driven) => {
                    let found = self.attend(driven.as_mut(), waits)?;
                    drop(driven);
                    // Another thread may attend now.
                    self.changed.notify_one();
                    if found.is_some() || !waits {
                        return Ok(found);
                    }
                }
                None if !waits => return Ok(None),
                None => {
                    let queue = self.queue.lock();
                    if queue.messages.is_empty() {
                        drop(self.changed.wait(queue, Some(Instant::now() + LONGEST)));
                    }
                }
            }
        }
    }

    /// Takes requests of clients in other processes until there is a message; if there is none, sleeps once, if the caller waits.
    fn attend(&self, driven: Option<&mut Driven>, waits: bool) -> Result<Option<Arrived>, Failure> {
        let mut driven = driven;
        let since = Instant::now();
        loop {
            if let Some(driven) = driven.as_deref_mut() {
                driven.attend(Duration::ZERO)?;
            }
            let message = self.pop();
            if message.is_some() {
                return Ok(message);
            }
            if self.has_replies() {
                return Ok(Some(Arrived::Replies));
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
        let id = incoming.id();
        let held = Held::new(incoming);
        let message = held.message();
        let mut queue = self.queue.lock();
        if self.is_over.load(Ordering::SeqCst) {
            drop(queue);
            return Err(ended()); // and drop the request, which fails
        }
        // Asked under the lock: an abort that has come by now may have found the request neither in the queue nor held, and a later
        // one finds it held.
        let is_aborted = held.is_aborted();
        queue.held.insert(message.request, held);
        drop(queue);
        if is_aborted {
            self.put(Arrived::Abort(id.number()));
        }
        Ok(message)
    }

    /// Whether the server has ended and holds no request: nobody can use it any more.
    pub(crate) fn is_done(&self) -> bool {
        let queue = self.queue.lock();
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
        let mut queue = self.queue.lock();
        act(queue.held.get_mut(&request).ok_or_else(|| self.missing(request))?)
    }

    /// A part of a buffer of a request that is held, to be forwarded.
    pub(crate) fn fragment(
        &self,
        request: io_request_t,
        buffer: usize,
        range: Range<usize>,
    ) -> Result<Fragment, Failure> {
        self.with(request, |held| held.fragment(buffer, range))
    }

    pub(crate) fn ready(&self, request: io_request_t, buffer: usize) -> Result<(), Failure> {
        self.with(request, |held| held.ready(buffer))
    }

    /// How many elements a buffer has, and how long one of them is.
    pub(crate) fn elements(
        &self,
        request: io_request_t,
        buffer: usize,
        element: usize,
    ) -> Result<(usize, usize), Failure> {
        self.with(request, |held| held.elements(buffer, element))
    }

    pub(crate) fn overlay(
        &self,
        request: io_request_t,
        on: (usize, usize),
        take: impl FnOnce() -> Result<Vec<Taken>, Failure>,
    ) -> Result<(), Failure> {
        self.with(request, |held| held.overlay(on, take))
    }

    pub(crate) fn pin(
        &self,
        request: io_request_t,
        buffer: usize,
        range: Range<usize>,
    ) -> Result<Pin, Failure> {
        self.with(request, |held| held.pin(buffer, range))
    }

    pub(crate) fn progress(
        &self,
        request: io_request_t,
        buffer: usize,
        length: usize,
    ) -> Result<(), Failure> {
        self.with(request, |held| held.progress(buffer, length))
    }

    /// Keeps an output.
    pub(crate) fn keep(&self, request: io_request_t, buffer: usize) -> Result<Kept, Failure> {
        self.apart(request, |incoming| incoming.keep(buffer), |held| held.note_kept(buffer))
    }

    /// Links a device's data to an element of an input.
    pub(crate) fn outboard(
        &self,
        request: io_request_t,
        (buffer, element): (usize, usize),
        device: Box<dyn Outboard>,
    ) -> Result<(), Failure> {
        let link = |incoming: &mut Incoming| incoming.outboard(buffer, element, device);
        self.apart(request, link, |held| held.note_supplied(buffer, Vec::new()))
    }

    /// Does what may take long with a request, and then notes it. Other requests are not held up meanwhile.
    fn apart<T>(
        &self,
        request: io_request_t,
        act: impl FnOnce(&mut Incoming) -> Result<T, genie_io::Error>,
        note: impl FnOnce(&mut Held),
    ) -> Result<T, Failure> {
        let mut incoming = self.with(request, Held::part_with)?;
        let done = act(&mut incoming);
        self.with(request, |held| {
            held.take_back(incoming);
            if done.is_ok() {
                note(held);
            }
            Ok(())
        })?;
        Ok(done?)
    }

    /// # Safety
    /// The message's pointers are valid.
    pub(crate) unsafe fn reply(&self, message: &ReplyMessage) -> Result<(), Failure> {
        let mut queue = self.queue.lock();
        let held = queue.held.get_mut(&message.request).ok_or_else(|| self.missing(message.request))?;
        // SAFETY: the caller vouches for them.
        let result = unsafe { held.complete(message) }?;
        let held = queue.held.remove(&message.request);
        drop(queue);
        let is_too_long = message.error == 0 && result.is_err();
        if let Some(held) = held {
            held.end(result);
        }
        match is_too_long {
            true => Err(Failure::new(
                libc::EMSGSIZE,
                "the client has made too little room for the argument, and is told so",
            )),
            false => Ok(()),
        }
    }

    /// Replies with success, and keeps the request for its outputs.
    ///
    /// # Safety
    /// The message's pointers are valid.
    pub(crate) unsafe fn anticipate(&self, message: &ReplyMessage) -> Result<(), Failure> {
        if message.error != 0 {
            return Err(Failure::misuse(
                "an anticipated reply is a success: reply with an error by io_server",
            ));
        }
        let mut queue = self.queue.lock();
        let held = queue.held.get_mut(&message.request).ok_or_else(|| self.missing(message.request))?;
        held.ensure_anticipable()?;
        // SAFETY: the caller vouches for them.
        if let Err(error) = unsafe { held.complete(message) }? {
            return Err(Failure::new(libc::EMSGSIZE, error.message));
        }
        let Some(mut held) = queue.held.remove(&message.request) else { return Ok(()) };
        // The reply takes locks of Genie's.
        drop(queue);
        held.anticipate();
        self.queue.lock().held.insert(message.request, held);
        Ok(())
    }

    /// Has waits for messages, and the descriptor, tell of replies to requests of this interface, too.
    pub(crate) fn watch(&self, client: Arc<Opened>) -> Result<(), Failure> {
        let mut watched = self.watched.write();
        if !watched.iter().any(|known| Arc::ptr_eq(known, &client)) {
            self.poller.add(client.interface.descriptor()?, 2).map_err(genie_io::Error::from)?;
            watched.push(client);
        }
        Ok(())
    }

    /// Whether replies may have come to requests of the interfaces that are watched. If not, the descriptor is readable when some do.
    fn has_replies(&self) -> bool {
        // `fold` does not stop at the first one: each is armed.
        self.watched.read().iter().fold(false, |found, client| {
            let is_armed = client.interface.arm();
            if !is_armed {
                client.interface.collect();
            }
            found | !is_armed
        })
    }

    /// Ends the server: its clients see it hang up, and threads in io_server return. Requests that are held stay: threads may be at
    /// work in their memory.
    pub(crate) fn end(&self) {
        let mut queue = self.queue.lock();
        self.is_over.store(true, Ordering::SeqCst);
        let left = std::mem::take(&mut queue.messages);
        drop(queue);
        let _ = self.event.signal();
        self.changed.notify_all();
        // A thread that attends lets go soon.
        let driven = self.driven.lock().take();
        drop((driven, left));
    }
}

fn ended() -> Failure {
    Failure::new(libc::ECANCELED, "the server has been unregistered")
}
