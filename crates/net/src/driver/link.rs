//! The link: an interface's rings as a server.
//!
//! Why: sending is a system call for as many frames as are in the ring. So frames are to wait for each other, if there are more of them,
//! and for nothing else.
//! How: a request to send waits in a list, and holds its client's data there. Whoever has the rings' lock sends all that wait in one call.
//! A frame that comes alone is sent at once; one that comes soon after another is sent with those that follow, at last when its client waits
//! for the reply, or after a millisecond.
//!
//! ```text
//!   request -> the list -+-> 32 wait, somebody waits, or 1 ms ----> rings: put .. put, send -> replies
//!   a client that waits -+-> rings: take -> Station::arrive (32 frames) -> the list again
//! ```
//!
//! A server over the link in this process makes no requests of it: it leaves its own clients' requests, with headers, in the list
//! ([`Origin`]), and replies to them when they were sent.
//! Invariants: clients are replied to without the rings' lock. A station that sends while a frame is shown to it has its frames in
//! the list: no thread waits for the lock. A thread that finds the lock taken leaves the list to the thread that has it, which looks at the
//! list once more.
//! Trust: clients are anybody. A link takes as many frames as [`Options::waiting`].
//! Source: thesis §6.1 (output is gathered from clients' buffers). Differs: the rings' memory is not the clients', so output is copied there.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use genie_io::{ClientId, Completer, Error, Incoming, RequestId, Server, ServerError, Service, ServiceId};
use genie_memory::{Buffer, Data};
use genie_sys::fork::Maker;
use genie_sys::lock::{Mutex, MutexGuard};
use genie_sys::{Condvar, Errno};
use smallvec::SmallVec;

use super::rings::{Counters, Rings, or_later};
use crate::wire::{Station, TRANSMIT};

/// Has UDP datagrams to a port come: the argument is its number, two bytes, the low one first.
pub const CLAIM: ServiceId = ServiceId(1);
/// Leaves a port to the kernel again.
pub const RELEASE: ServiceId = ServiceId(2);

static SERVICES: [Service; 3] = [
    Service::new("transmit", true, false),
    Service::new("claim", false, false),
    Service::new("release", false, false),
];

/// Frames that come sooner after another one are to be sent with those that follow.
const SOON: Duration = Duration::from_micros(20);
/// How long a frame waits that nobody waits for.
const TICK: Duration = Duration::from_millis(1);
/// For how many ticks without such a frame the thread goes on ticking, since to wake it costs its waker a system call.
const IDLE: u32 = 100;
/// How often the kernel is asked to make room in a full ring, before the frames wait for the next look.
const ATTEMPTS: usize = 4;

/// How a link is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// How many frames are sent at once, and shown to the station at once (32).
    pub batch: usize,
    /// How many frames may wait to be sent (1,024). More are refused.
    pub waiting: usize,
    /// For how long a client that waits looks for frames before it sleeps (100 µs; not at all with one processor).
    pub spin: Duration,
}

impl Default for Options {
    fn default() -> Self {
        // Those that this thread may not use count: frames come from there, too.
        let has_others = genie_sys::machine::cpu_count().is_ok_and(|count| count > 1);
        Self { batch: 32, waiting: 1024, spin: Duration::from_micros(if has_others { 100 } else { 0 }) }
    }
}

/// An interface of the kernel's, as a server that sends frames. Clones are handles of the same link.
#[derive(Clone)]
pub struct Link(Arc<Inner>);

struct Inner {
    interface: String,
    options: Options,
    descriptor: OwnedFd,
    rings: Mutex<Box<dyn Rings>>,
    list: Mutex<List>,
    station: OnceLock<Box<dyn Station>>,
    ticker: Arc<Ticker>,
    maker: Maker,
}

/// The frames that wait to be sent.
#[derive(Default)]
struct List {
    waiting: Vec<Waiting>,
    latest: Option<Instant>,
}

/// A frame that waits to be sent: a request's output, behind headers of this process's own if it has any.
struct Waiting {
    request: Incoming,
    headed: Option<Headed>,
}

/// What a server in this process sends: a request of a client of its own, whose output is the frame's data.
pub(crate) struct Headed {
    pub(crate) head: SmallVec<[u8; 62]>,
    /// Data that is sent instead of the output.
    pub(crate) copy: Option<Buffer>,
    /// The server that replies to the request.
    pub(crate) origin: Arc<dyn Origin>,
    /// By which the origin knows the frame.
    pub(crate) port: u16,
}

/// A server in this process whose clients' requests are frames. It replies to them.
pub(crate) trait Origin: Send + Sync {
    /// A frame has been sent, or will not be.
    fn sent(&self, request: Incoming, port: u16, result: Result<(), ServerError>);
}

/// What has become of frames that were to be sent.
#[derive(Default)]
struct Outcome {
    /// How many of the first are done with.
    done: usize,
    /// Which of these have a length that the interface does not take.
    refused: Vec<usize>,
}

/// What has a thread send frames that nobody waits for.
#[derive(Default)]
struct Ticker {
    state: Mutex<Ticking>,
    changed: Condvar,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Ticking {
    /// There is no thread.
    #[default]
    Never,
    Sleeps,
    Ticks,
    /// The link is gone.
    Over,
}

impl Link {
    /// A link over these rings; `interface` is the name of what they are of, for messages.
    ///
    /// # Errors
    /// The process has no descriptors left.
    pub fn new(interface: &str, rings: impl Rings + 'static, options: Options) -> std::io::Result<Self> {
        let descriptor = rings.descriptor().try_clone_to_owned()?;
        Ok(Self(Arc::new(Inner {
            interface: interface.to_owned(),
            options: Options { batch: options.batch.max(1), ..options },
            descriptor,
            rings: Mutex::new(Box::new(rings)),
            list: Mutex::default(),
            station: OnceLock::new(),
            ticker: Arc::default(),
            maker: Maker::this_process(),
        })))
    }

    /// Shows the frames that come to `station` from now on; before, they are dropped. A link that leads to a station already stays as it is,
    /// and returns false.
    pub fn lead_to(&self, station: impl Station) -> bool {
        self.0.station.set(Box::new(station)).is_ok()
    }

    /// What has become of its frames so far; nothing in a child made by fork while a thread was inside.
    pub fn counters(&self) -> Counters {
        self.0.rings.lock_made_by(self.0.maker).map_or_else(Counters::default, |rings| rings.counters())
    }

    /// Sends the data of a request that a client has made of a server in this process.
    pub(crate) fn send(&self, request: Incoming, headed: Headed) {
        self.transmit(Waiting { request, headed: Some(headed) });
    }

    fn transmit(&self, waiting: Waiting) {
        let inner = &self.0;
        let now = Instant::now();
        let mut list = inner.list.lock();
        let refused = match waiting.data() {
            Err(error) => Some(ServerError::from(error)),
            // The abort came before the request was in the list.
            Ok(_) if waiting.request.is_aborted() => Some(Error::Aborted.into()),
            Ok(_) if list.waiting.len() >= inner.options.waiting => {
                let message =
                    format!("{} frames wait to be sent by {} already", list.waiting.len(), inner.interface);
                Some(ServerError { code: Errno::NOBUFS.raw_os_error(), message })
            }
            Ok(_) => None,
        };
        if let Some(error) = refused {
            drop(list);
            return waiting.end(Err(error));
        }
        let is_alone = list.waiting.is_empty() && list.latest.is_none_or(|latest| now - latest > SOON);
        list.latest = Some(now);
        list.waiting.push(waiting);
        let is_full = list.waiting.len() >= inner.options.batch;
        drop(list);
        if is_alone || is_full {
            inner.send();
        } else {
            self.tick();
        }
    }

    /// Has a thread see to it that nothing waits for longer than a tick or two.
    fn tick(&self) {
        let mut state = self.0.ticker.state.lock();
        match *state {
            Ticking::Ticks | Ticking::Over => {}
            Ticking::Sleeps => {
                *state = Ticking::Ticks;
                self.0.ticker.changed.notify_one();
            }
            Ticking::Never => {
                let (ticker, link) = (Arc::clone(&self.0.ticker), Arc::downgrade(&self.0));
                // Where there can be no thread, the frame waits until somebody looks.
                if genie_sys::thread::spawn("genie-link", move || ticker.attend(&link)).is_ok() {
                    *state = Ticking::Ticks;
                }
            }
        }
    }

    fn claim(&self, request: Incoming, is_ours: bool) {
        let port = <[u8; 2]>::try_from(request.argument()).map(u16::from_le_bytes);
        let result = match port {
            Ok(port) => self.0.rings.lock().claim(port, is_ours).map_err(|errno| {
                let why = match errno {
                    Errno::ADDRINUSE => {
                        "a socket of the kernel's, or another program, has it; see `ss -ulpn`".to_owned()
                    }
                    errno => errno.to_string(),
                };
                let message = format!("{} has no datagrams for port {port}: {why}", self.0.interface);
                ServerError { code: errno.raw_os_error(), message }
            }),
            Err(_) => Err(ServerError::misuse("the argument is a port's number, two bytes")),
        };
        request.reply(result);
    }

    /// Ends requests that wait to be sent: those of a client that has left, or one that is aborted.
    pub(crate) fn let_go(&self, is_gone: impl Fn(&Incoming) -> bool) {
        let mut list = self.0.list.lock();
        let gone: Vec<_> = list.waiting.extract_if(.., |waiting| is_gone(&waiting.request)).collect();
        // They end without the lock, since that replies.
        drop(list);
        gone.into_iter().for_each(|waiting| waiting.end(Err(Error::Aborted.into())));
    }
}

impl Inner {
    /// Sends all that wait, unless another thread has the rings, which then does; returns how many requests were replied to.
    fn send(&self) -> usize {
        let mut count = 0;
        while let Some(rings) = self.rings.try_lock() {
            let replied = self.send_by(rings);
            count += replied;
            // A thread that has found the lock taken meanwhile has left its frames to this one.
            if replied == 0 || self.list.lock().waiting.len() < self.options.batch {
                break;
            }
        }
        count
    }

    fn send_by(&self, mut rings: MutexGuard<'_, Box<dyn Rings>>) -> usize {
        let mut waiting = std::mem::take(&mut self.list.lock().waiting);
        if waiting.is_empty() {
            return 0;
        }
        let mut outcome = Outcome::default();
        let sent = self.put_and_send(&mut **rings, &waiting, &mut outcome);
        drop(rings);
        // Frames for which there was no room stay the first.
        let left = waiting.split_off(outcome.done);
        let mut count = waiting.len();
        match sent {
            Ok(()) => drop(self.list.lock().waiting.splice(..0, left)),
            Err(errno) => {
                count += left.len();
                left.into_iter().for_each(|waiting| waiting.end(Err(self.failed(errno))));
            }
        }
        for (at, waiting) in waiting.drain(..).enumerate() {
            let is_refused = outcome.refused.binary_search(&at).is_ok();
            waiting.end(if is_refused { Err(self.too_long()) } else { Ok(()) });
        }
        // The next ones need no memory of their own.
        let mut list = self.list.lock();
        if list.waiting.capacity() == 0 {
            list.waiting = waiting;
        }
        count
    }

    /// Puts as many of the frames as there is room for, and has them sent.
    fn put_and_send(
        &self,
        rings: &mut dyn Rings,
        waiting: &[Waiting],
        outcome: &mut Outcome,
    ) -> Result<(), Errno> {
        let mut attempts = 0;
        for (put, waiting) in waiting.iter().enumerate() {
            // A client that is gone has taken its bytes away.
            let Ok(frame) = waiting.frame() else { continue };
            loop {
                match rings.put(&frame) {
                    Ok(true) => break,
                    Ok(false) => {}
                    // The other frames are as good as before.
                    Err(Errno::MSGSIZE) => {
                        outcome.refused.push(put);
                        break;
                    }
                    Err(errno) => return Err(errno),
                }
                or_later(rings.send(), ())?;
                outcome.done = put;
                attempts += 1;
                if attempts > ATTEMPTS {
                    return Ok(());
                }
            }
        }
        or_later(rings.send(), ())?;
        outcome.done = waiting.len();
        Ok(())
    }

    /// Shows what has come to the station; returns how many frames.
    fn receive(&self) -> usize {
        let Some(mut rings) = self.rings.try_lock() else { return 0 };
        let taken = rings.take(self.options.batch, &mut |frame| {
            if let Some(station) = self.station.get() {
                // A panic of the station's loses its frame, and nothing else. The panic hook has reported it.
                let _ = catch_unwind(AssertUnwindSafe(|| station.arrive(frame)));
            }
        });
        drop(rings);
        taken.unwrap_or_else(|errno| {
            if let Some(station) = self.station.get() {
                station.failed(&self.failed(errno));
            }
            0
        })
    }

    fn too_long(&self) -> ServerError {
        let message = format!("the interface {} takes no frame of that length", self.interface);
        ServerError { code: Errno::MSGSIZE.raw_os_error(), message }
    }

    fn failed(&self, errno: Errno) -> ServerError {
        let message = format!("the interface {} has failed: {errno}", self.interface);
        ServerError { code: errno.raw_os_error(), message }
    }
}

impl Waiting {
    /// What is behind the headers.
    fn data(&self) -> Result<Data<'_>, Error> {
        match &self.headed {
            Some(Headed { copy: Some(copy), .. }) => Ok(copy[..].into()),
            Some(_) if self.request.is_empty() => Ok(Data::default()),
            _ => self.request.output(0),
        }
    }

    fn frame(&self) -> Result<Data<'_>, Error> {
        let data = self.data()?;
        let Some(Headed { head, .. }) = &self.headed else { return Ok(data) };
        let mut frame = Data::from(&head[..]);
        frame.append(data);
        Ok(frame)
    }

    /// Replies.
    fn end(self, result: Result<(), ServerError>) {
        let Self { request, headed } = self;
        match headed {
            Some(Headed { origin, port, .. }) => origin.sent(request, port, result),
            None => request.reply(result),
        }
    }
}

impl Ticker {
    fn attend(&self, link: &Weak<Inner>) {
        let mut idle = 0;
        loop {
            let mut state = self.state.lock();
            if idle > IDLE && *state == Ticking::Ticks {
                *state = Ticking::Sleeps;
            }
            state = match *state {
                Ticking::Sleeps => self.changed.wait(state, None),
                _ => self.changed.wait(state, Some(Instant::now() + TICK)),
            };
            let state = *state;
            match (state, link.upgrade()) {
                (Ticking::Over, _) | (_, None) => return,
                (Ticking::Ticks, Some(link)) => idle = if link.send() > 0 { 0 } else { idle + 1 },
                _ => idle = 0,
            }
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // In a child made by fork there is no such thread.
        if self.maker.is_this_process() {
            *self.ticker.state.lock() = Ticking::Over;
            self.ticker.changed.notify_all();
        }
    }
}

impl Completer for Link {
    fn collect(&self) -> usize {
        if !self.0.maker.is_this_process() {
            return 0;
        }
        // What the station sends goes with what waits.
        let received = self.0.receive();
        received + self.0.send()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.descriptor.as_fd())
    }

    fn arm(&self) -> bool {
        let is_quiet = self.0.rings.try_lock().is_some_and(|mut rings| rings.arm() && !rings.has_frames());
        is_quiet && self.0.list.lock().waiting.is_empty()
    }

    fn spin(&self) -> Duration {
        self.0.options.spin
    }
}

impl Server for Link {
    fn name(&self) -> &str {
        &self.0.interface
    }

    fn services(&self) -> &[Service] {
        &SERVICES
    }

    fn request(&self, request: Incoming) {
        match request.service() {
            TRANSMIT => self.transmit(Waiting { request, headed: None }),
            service => self.claim(request, service == CLAIM),
        }
    }

    fn abort(&self, request: RequestId) {
        self.let_go(|waiting| waiting.id() == request);
    }

    fn departed(&self, client: ClientId) {
        self.let_go(|waiting| waiting.client().id == client);
    }

    fn completer(&self) -> Option<&dyn Completer> {
        Some(self)
    }
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("interface", &self.0.interface).finish_non_exhaustive()
    }
}
