//! Streams: replies that come in parts, as their server has them.
//!
//! How: a stream is a ring of requests for input. The client opens it by a request with the argument of the stream, and then keeps
//! some requests pending, each with a buffer for one part. The server replies to them in their order, as parts come.
//! Trust: a server keeps no more requests of a stream than its client has pending, and no more streams of a client than
//! [`MOST`].
//! Source: thesis §1.1.2 (interim replies). Differs: each part is the reply to a request of its own.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use genie_io::{
    ClientId, Error, Failed, In, Incoming, Interface, Pending, RequestId, ServerError, ServerHandle,
    ServiceId,
};
use genie_memory::{Buffer, DataMut};
use genie_passing::Scheme;
use genie_sys::PerProcess;
use genie_sys::primitive::{Condvar, Mutex};

use crate::BufferRing;

/// The most streams that one client may have open at one server.
const MOST: usize = 256;

/// Opens a stream.
const OPEN: u8 = 0;
/// Asks for a part.
const MORE: u8 = 1;
/// Wants no more parts.
const CLOSE: u8 = 2;
/// The reply's argument with a part.
const PART: u8 = 0;
/// The reply's argument after the last part.
const END: u8 = 1;

/// A stream as its client sees it: parts of data, in their order, as the server hands them out.
///
/// ```
/// # mod genie { pub use genie_io::*; pub use genie_series::{Stream, Streams}; }
/// use genie::{ClientId, Incoming, Interface, RequestId, Server, ServerHandle, Service, ServiceId, Stream, Streams};
///
/// /// Counts up to the number that is the stream's argument, with 1,000 bytes for each number.
/// #[derive(Default)]
/// struct Counter(Streams);
///
/// static SERVICES: [Service; 1] = [Service::new("count", false, true)];
///
/// impl Server for Counter {
///     fn name(&self) -> &str {
///         "counter"
///     }
///
///     fn services(&self) -> &[Service] {
///         &SERVICES
///     }
///
///     fn request(&self, request: Incoming) {
///         // `None`: the request asked for a part of a stream that is open.
///         let Some((last, mut parts)) = self.0.take(request) else { return };
///         std::thread::spawn(move || {
///             for number in 1..=last[0] {
///                 // An error: the client wants no more, or its buffers are too short, which it is told, too.
///                 parts.send(&[number; 1000])?;
///             }
///             parts.end(Ok(()));
///             Ok::<(), genie::Error>(())
///         });
///     }
///
///     fn abort(&self, request: RequestId) {
///         self.0.abort(request);
///     }
///
///     fn departed(&self, client: ClientId) {
///         self.0.departed(client);
///     }
/// }
///
/// # fn main() -> Result<(), genie::Error> {
/// let (genie, server) = (Interface::open()?, ServerHandle::new(Counter::default()));
/// let mut numbers = Stream::open(&genie, &server, ServiceId(0), &[5], 2, 1000)?;
/// let mut sum = 0;
/// while let Some(part) = numbers.next_part()? {
///     sum += part[0];
/// }
/// assert_eq!(sum, 15);
/// # Ok(())
/// # }
/// ```
pub struct Stream {
    genie: Interface,
    server: ServerHandle,
    service: ServiceId,
    number: u64,
    asked: u64,
    ring: BufferRing,
    count: usize,
    /// The part that the client has.
    part: Option<Buffer>,
    is_over: bool,
}

impl Stream {
    /// Opens a stream of a service with this argument. At most `count` parts are under way at once, at least one, of `len` bytes
    /// at most.
    ///
    /// Each of the `count` parts is a pending request from when it is asked for: a timeout for all requests of the interface
    /// ([`Limits::timeout`](genie_io::Limits::timeout)) must be longer than the server takes for `count` parts.
    ///
    /// # Errors
    /// As [`Request::send`](genie_io::Request::send); or the server does not open the stream.
    pub fn open(
        genie: &Interface,
        server: &ServerHandle,
        service: ServiceId,
        argument: &[u8],
        count: usize,
        len: usize,
    ) -> Result<Self, Failed> {
        // Streams of other processes that a server forwards are of one client, as their servers see it, so each process begins anywhere.
        static NEXT: PerProcess<AtomicU64> = PerProcess::new();
        let anywhere = || AtomicU64::new(RandomState::new().build_hasher().finish());
        let Ok(next) = NEXT.get(|_| Ok::<_, Infallible>(anywhere()));
        let number = next.fetch_add(1, Ordering::Relaxed);
        let mut opening = header(OPEN, number, 0).to_vec();
        opening.extend_from_slice(argument);
        let ring = BufferRing::new(genie, count, len);
        let (genie, server, count) = (genie.clone(), server.clone(), count.max(1));
        // If opening fails, dropping this closes what the server may open all the same.
        let mut stream =
            Self { genie, server, service, number, asked: 0, ring, count, part: None, is_over: false };
        let opened = stream.genie.request(&stream.server, service).argument(&opening).room(1).send()?;
        if opened.argument() != [OPEN] {
            return Err(Error::from(ServerError::misuse("the service does not stream")).into());
        }
        stream.ask()?;
        Ok(stream)
    }

    /// The next part; waits for it. None after the last one. The part is passed by emulated copy, in a buffer of the stream's.
    ///
    /// # Errors
    /// The server ended the stream with an error, dropped it, or is gone: there are no more parts. Or there is no room to ask for
    /// one now ([`Error::is_congestion`]): then the stream goes on.
    pub fn next_part(&mut self) -> Result<Option<&[u8]>, Failed> {
        self.ring_back();
        if self.is_over {
            return Ok(None);
        }
        // Parts that are there, or on their way, come before an error that keeps further ones from being asked for.
        let asked = self.ask();
        if self.ring.in_flight() == 0 {
            self.is_over = asked.as_ref().is_err_and(|failed| !failed.error.is_congestion());
            asked.map_err(|failed| Failed { error: failed.error.asked(), ..failed })?;
        }
        let next = self.ring.oldest();
        self.is_over = !matches!(&next, Ok(Some((_, reply))) if reply.argument() == [PART]);
        let Some((buffer, reply)) = next?.filter(|_| !self.is_over) else { return Ok(None) };
        let len = reply.actual();
        Ok(Some(&self.part.insert(buffer)[..len]))
    }

    /// The request whose reply [`Stream::next_part`] waits for: for programs that await it first.
    pub fn awaited(&self) -> Option<&Pending<'static>> {
        self.ring.front().filter(|_| !self.is_over)
    }

    fn ring_back(&mut self) {
        if let Some(buffer) = self.part.take() {
            self.ring.give_back(buffer);
        }
    }

    /// Has as many requests for parts pending as may be.
    fn ask(&mut self) -> Result<(), Failed> {
        while self.ring.in_flight() < self.count {
            let (buffer, _) = self.ring.take()?;
            let argument = header(MORE, self.number, self.asked);
            let request = self.genie.request(&self.server, self.service).argument(&argument).room(1);
            let pending = request.input(In::owned(Scheme::EmulatedCopy, buffer)).submit()?;
            self.ring.push(pending);
            self.asked += 1;
        }
        Ok(())
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let argument = header(CLOSE, self.number, self.asked);
        let close = || self.genie.request(&self.server, self.service).argument(&argument).submit();
        // If this fails, the server learns that the client wants no more when the client leaves.
        if close().is_err_and(|failed| failed.error.is_congestion())
            && let Some(oldest) = self.ring.forget_oldest()
        {
            // The room that the stream itself takes is enough.
            drop(oldest.abort());
            drop(close());
        }
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream")
            .field("server", &self.server)
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}

/// What precedes the argument of a stream's request: what is asked, the stream, and how many parts were asked for before.
fn header(kind: u8, stream: u64, asked: u64) -> [u8; 17] {
    let mut header = [kind; 17];
    header[1..9].copy_from_slice(&stream.to_le_bytes());
    header[9..].copy_from_slice(&asked.to_le_bytes());
    header
}

/// The streams of a server's clients, which the server keeps.
#[derive(Debug, Default)]
pub struct Streams(Arc<Table>);

/// A stream stays until the reply that its client takes next has told of the end, or the client wants no more or is gone.
type Table = Mutex<HashMap<Name, Arc<Open>>>;

/// A stream's name: its client's, and a number that the client gave it.
type Name = (ClientId, u64);

/// A stream that is open, as long as the server sends parts.
#[derive(Debug, Default)]
struct Open {
    asked: Mutex<Asked>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Asked {
    /// Requests for parts, by their order.
    requests: BTreeMap<u64, Incoming>,
    /// How many have been replied to.
    sent: u64,
    over: Option<End>,
}

/// How a stream ended.
#[derive(Debug, Clone, Copy)]
enum End {
    /// The server has sent all parts.
    Finished,
    /// The client wants no more, or the server has dropped the stream.
    Broken,
}

/// Where a server puts the parts of one stream. Dropping it ends the stream with an error.
#[derive(Debug)]
pub struct Parts {
    open: Arc<Open>,
    name: Name,
    table: Arc<Table>,
}

/// Room for the next part, in a buffer of the client's.
#[derive(Debug)]
pub struct Part(Incoming);

impl Streams {
    /// Takes a request for a service that streams. Where the request opens a stream, returns the stream's argument and where its
    /// parts go; otherwise it asks for a part of an open stream, and is kept until there is one.
    pub fn take(&self, mut request: Incoming) -> Option<(Vec<u8>, Parts)> {
        let (kind, stream, number, rest) = match request.argument() {
            [kind, rest @ ..] if rest.len() >= 16 => {
                let number = |at| u64::from_le_bytes(std::array::from_fn(|byte| rest[at + byte]));
                (*kind, (request.client().id, number(0)), number(8), rest[16..].to_vec())
            }
            _ => return refuse(request),
        };
        if kind == OPEN && request.is_aborted() {
            // The client may have closed the stream already.
            return None;
        }
        let mut streams = self.0.lock();
        match (kind, streams.get(&stream)) {
            (OPEN, None) if streams.keys().filter(|(client, _)| *client == stream.0).count() >= MOST => {
                drop(streams);
                request
                    .reply(Err(format!("the client has {MOST} streams open, and may have no more").into()));
                None
            }
            (OPEN, None) => {
                let open = Arc::<Open>::default();
                streams.insert(stream, Arc::clone(&open));
                drop(streams);
                let opened = request.set_argument(&[OPEN]).map_err(ServerError::from);
                request.reply(opened);
                Some((rest, Parts { open, name: stream, table: Arc::clone(&self.0) }))
            }
            (MORE, Some(open)) => {
                let open = Arc::clone(open);
                drop(streams);
                if open.ask(number, request) {
                    self.0.lock().remove(&stream);
                }
                None
            }
            (CLOSE, _) => {
                let closed = streams.remove(&stream);
                drop(streams);
                closed.iter().for_each(|open| drop(open.end(End::Broken)));
                request.reply(Ok(()));
                None
            }
            _ => {
                drop(streams);
                refuse(request)
            }
        }
    }

    /// To be called by [`Server::abort`](genie_io::Server::abort): the client wants no more of the stream that the request is of.
    pub fn abort(&self, request: RequestId) {
        let streams: Vec<_> = self.0.lock().values().cloned().collect();
        streams.iter().filter(|open| open.has(request)).for_each(|open| drop(open.end(End::Broken)));
    }

    /// To be called by [`Server::departed`](genie_io::Server::departed): ends the client's streams.
    pub fn departed(&self, client: ClientId) {
        let theirs: Vec<_> = self.0.lock().extract_if(|(of, _), _| *of == client).collect();
        theirs.iter().for_each(|(_, open)| drop(open.end(End::Broken)));
    }
}

fn refuse<T>(request: Incoming) -> Option<T> {
    request.reply(Err("this service streams, and no such stream is open: open one by `Stream::open`".into()));
    None
}

impl End {
    /// Tells a client that has asked for a part.
    fn tell(self, mut request: Incoming) {
        match self {
            Self::Finished => {
                let told = request.set_argument(&[END]);
                request.reply(told.map_err(ServerError::from));
            }
            Self::Broken => drop(request),
        }
    }
}

impl Open {
    /// Keeps a request for a part, or tells the client that the stream is over. Returns true when the client was told in the reply
    /// that it takes next. A server with several threads may take a later request first.
    fn ask(&self, number: u64, request: Incoming) -> bool {
        let mut asked = self.asked.lock();
        if let Some(end) = asked.over {
            let is_next = number == asked.sent;
            drop(asked);
            end.tell(request);
            return is_next;
        }
        let replaced = asked.requests.insert(number, request);
        drop(asked);
        self.changed.notify_all();
        // No client of ours asks twice.
        drop(replaced);
        false
    }

    fn has(&self, request: RequestId) -> bool {
        self.asked.lock().requests.values().any(|asked| asked.id() == request)
    }

    /// Ends the stream, unless it is over; returns the requests for parts that it has, and whether the next part's is among them.
    fn end(&self, end: End) -> (Vec<Incoming>, bool) {
        let mut asked = self.asked.lock();
        asked.over.get_or_insert(end);
        let requests = std::mem::take(&mut asked.requests);
        let has_next = requests.contains_key(&asked.sent);
        drop(asked);
        self.changed.notify_all();
        (requests.into_values().collect(), has_next)
    }
}

impl Parts {
    /// Waits until the client has room for the next part.
    ///
    /// # Errors
    /// [`Error::Aborted`]: the client wants no more, or is gone.
    pub fn room(&mut self) -> Result<Part, Error> {
        let has_next = |asked: &Asked| asked.over.is_some() || asked.requests.contains_key(&asked.sent);
        let (mut asked, _) = self.open.changed.wait_until(self.open.asked.lock(), None, has_next);
        let sent = asked.sent;
        let next = asked.requests.remove(&sent).filter(|_| asked.over.is_none());
        asked.sent += u64::from(next.is_some());
        next.map(Part).ok_or(Error::Aborted)
    }

    /// Sends a part that lies in other memory, by copying it; waits until the client has room for it.
    ///
    /// # Errors
    /// As [`Parts::room`]; or the part is longer than the client's buffers.
    pub fn send(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let mut part = self.room()?;
        if bytes.len() <= part.len() {
            part.buffer()?.copy_from(bytes);
        }
        part.send(bytes.len())
    }

    /// Ends the stream: the client gets the error in place of the next part, or learns that there are no more.
    pub fn end(mut self, result: Result<(), ServerError>) {
        if let Err(error) = result
            && let Ok(part) = self.room()
        {
            part.0.reply(Err(error));
        }
        self.finish(End::Finished);
    }

    fn finish(&self, end: End) {
        let (asked, has_next) = self.open.end(end);
        if has_next {
            self.table.lock().remove(&self.name);
        }
        asked.into_iter().for_each(|request| end.tell(request));
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        // After [`Parts::end`] this ends nothing.
        self.finish(End::Broken);
    }
}

impl Part {
    /// The most bytes that the part can have.
    pub fn len(&self) -> usize {
        self.0.len(0)
    }

    /// Whether it can have none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The memory to be filled. The part goes to the client by emulated copy: a short one is copied, as other input is.
    ///
    /// # Errors
    /// As [`Incoming::ready`].
    pub fn buffer(&mut self) -> Result<DataMut<'_>, Error> {
        self.0.ready(0)
    }

    /// Sends the first `len` bytes.
    ///
    /// # Errors
    /// The part is shorter; the client gets the error in its place.
    pub fn send(mut self, len: usize) -> Result<(), Error> {
        if let Err(error) = self.0.set_actual(0, len) {
            self.0.reply(Err(ServerError::new(error.to_string())));
            return Err(error);
        }
        self.0.set_argument(&[PART])?;
        self.0.reply(Ok(()));
        Ok(())
    }
}
