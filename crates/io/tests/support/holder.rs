//! The holder: a server that keeps every request until the test says what to do with it.
//!
//! How: the test's side sends [`Command`]s and gets [`Answer`]s, which hold no memory of either side; so the server may
//! as well live in another process.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use genie_io::{
    Anticipated, Error, Incoming, RequestId, Server, ServerError, ServerHandle, Service, ServiceId,
};
use genie_memory::{Direction, Segments};
use genie_passing::{Overlay, Overlays, Preferred};

use super::bytes::{gather, scatter};
use super::machine::frames;

/// The service that reads and writes.
pub(crate) const HOLD: ServiceId = ServiceId(0);
/// The service whose buffers may be neither read nor written.
pub(crate) const UNMAPPED: ServiceId = ServiceId(1);

/// What the test has the server do with one request.
#[derive(Debug, Clone)]
pub(crate) enum Command {
    /// Read output buffer `buffer`.
    Read { buffer: usize },
    /// Write `bytes` into input buffer `buffer` from `offset` on, making it ready first or filling an overlay buffer.
    Write { buffer: usize, offset: usize, bytes: Vec<u8> },
    /// Name the page frames in which the server sees output buffer `buffer`.
    Frames { buffer: usize, granule: usize },
    /// Name the page frames into which the server writes input buffer `buffer`, making it ready or taking an overlay
    /// buffer first.
    InputFrames { buffer: usize, granule: usize },
    /// Read the client's argument of a buffer.
    Argument { buffer: usize },
    /// Set an argument for the client.
    SetArgument { buffer: usize, argument: Vec<u8> },
    /// Say how much of a buffer was passed.
    SetActual { buffer: usize, actual: usize },
    /// Reply: success.
    Reply,
    /// Reply: this error.
    Fail(String),
    /// Reply before it is done.
    Anticipate,
    /// Let go.
    Drop,
}

/// What came of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    Done,
    Bytes(Vec<u8>),
    Frames(Option<Vec<u64>>),
    /// The interface refused, for this reason.
    Refused(String),
}

/// The way to the server's side.
pub(crate) trait Control: Send + Sync {
    /// The requests that the server holds, oldest first.
    fn held(&self) -> Vec<RequestId>;
    /// The requests that it was asked to let go.
    fn aborted(&self) -> Vec<RequestId>;
    /// Whether it lets requests go when asked to, or keeps them.
    fn set_obliging(&self, obliging: bool);
    /// Has it do something.
    fn command(&self, request: RequestId, command: Command) -> Answer;
}

/// The test's side of the server.
pub(crate) struct Holder {
    handle: ServerHandle,
    control: Arc<dyn Control>,
}

impl Holder {
    /// A holder in this process, which fills these buffers of its own, if any.
    pub(crate) fn in_process(overlays: Option<Overlays>) -> Self {
        let held = Held { overlays, ..Held::default() };
        let control = Arc::new(held);
        Self { handle: ServerHandle::new(Shared(Arc::clone(&control))), control }
    }

    pub(crate) fn handle(&self) -> &ServerHandle {
        &self.handle
    }

    pub(crate) fn held(&self) -> Vec<RequestId> {
        self.control.held()
    }

    pub(crate) fn aborted(&self) -> Vec<RequestId> {
        self.control.aborted()
    }

    pub(crate) fn set_obliging(&self, obliging: bool) {
        self.control.set_obliging(obliging);
    }

    /// Waits for a request to arrive, from another thread.
    #[track_caller]
    pub(crate) fn arrival(&self) -> RequestId {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            if let Some(first) = self.held().first() {
                return *first;
            }
            assert!(Instant::now() < deadline, "no request arrived");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub(crate) fn command(&self, request: RequestId, command: Command) -> Answer {
        self.control.command(request, command)
    }

    #[track_caller]
    fn done(&self, request: RequestId, command: Command) {
        let answer = self.command(request, command.clone());
        assert_eq!(answer, Answer::Done, "{request}: {command:?}");
    }

    /// What the server sees in output buffer `buffer`.
    #[track_caller]
    pub(crate) fn read_buffer(&self, request: RequestId, buffer: usize) -> Vec<u8> {
        match self.command(request, Command::Read { buffer }) {
            Answer::Bytes(bytes) => bytes,
            other => panic!("{request}: reading buffer {buffer}: {other:?}"),
        }
    }

    /// What the server sees in output buffer 0.
    #[track_caller]
    pub(crate) fn read(&self, request: RequestId) -> Vec<u8> {
        self.read_buffer(request, 0)
    }

    /// The page frames in which the server sees output buffer 0; `None` where frames are hidden.
    #[track_caller]
    pub(crate) fn frames(&self, request: RequestId, granule: usize) -> Option<Vec<u64>> {
        match self.command(request, Command::Frames { buffer: 0, granule }) {
            Answer::Frames(frames) => frames,
            other => panic!("{request}: frames: {other:?}"),
        }
    }

    /// The page frames into which the server writes input buffer 0; `None` where frames are hidden.
    #[track_caller]
    pub(crate) fn input_frames(&self, request: RequestId, granule: usize) -> Option<Vec<u64>> {
        match self.command(request, Command::InputFrames { buffer: 0, granule }) {
            Answer::Frames(frames) => frames,
            other => panic!("{request}: frames: {other:?}"),
        }
    }

    /// Writes a part of input buffer 0, and replies nothing yet.
    #[track_caller]
    pub(crate) fn write(&self, request: RequestId, offset: usize, bytes: &[u8]) {
        self.done(request, Command::Write { buffer: 0, offset, bytes: bytes.to_vec() });
    }

    #[track_caller]
    pub(crate) fn set_actual(&self, request: RequestId, actual: usize) {
        self.done(request, Command::SetActual { buffer: 0, actual });
    }

    /// Writes `bytes` into input buffer 0 and replies with success.
    #[track_caller]
    pub(crate) fn deliver(&self, request: RequestId, bytes: &[u8]) {
        self.write(request, 0, bytes);
        self.set_actual(request, bytes.len());
        self.reply(request);
    }

    #[track_caller]
    pub(crate) fn reply(&self, request: RequestId) {
        self.done(request, Command::Reply);
    }

    #[track_caller]
    pub(crate) fn fail(&self, request: RequestId, message: &str) {
        self.done(request, Command::Fail(message.to_owned()));
    }

    #[track_caller]
    pub(crate) fn drop_request(&self, request: RequestId) {
        self.done(request, Command::Drop);
    }

    #[track_caller]
    pub(crate) fn anticipate(&self, request: RequestId) {
        self.done(request, Command::Anticipate);
    }
}

/// What the server holds, shared between its two faces.
#[derive(Default)]
struct Held {
    overlays: Option<Overlays>,
    requests: Mutex<BTreeMap<RequestId, Kept>>,
    aborts: Mutex<Aborts>,
}

#[derive(Default)]
struct Aborts {
    asked: Vec<RequestId>,
    obliging: bool,
}

/// One request under way.
enum Kept {
    Request { incoming: Incoming, overlays: BTreeMap<usize, Overlay> },
    Anticipated(Anticipated),
}

/// The server's face.
struct Shared(Arc<Held>);

const SERVICES: [Service; 2] = [
    Service { name: "hold", reads: true, writes: true },
    Service { name: "unmapped", reads: false, writes: false },
];

impl Server for Shared {
    fn name(&self) -> &str {
        "holder"
    }

    fn services(&self) -> &[Service] {
        &SERVICES
    }

    fn request(&self, incoming: Incoming) {
        let kept = Kept::Request { incoming, overlays: BTreeMap::new() };
        self.0.requests().insert(kept.id(), kept);
    }

    fn abort(&self, request: RequestId) {
        let mut aborts = self.0.aborts.lock().unwrap_or_else(PoisonError::into_inner);
        aborts.asked.push(request);
        let obliging = aborts.obliging;
        drop(aborts);
        if obliging {
            let let_go = self.0.requests().remove(&request);
            drop(let_go);
        }
    }

    fn preferred(&self, _service: ServiceId) -> Option<Preferred> {
        self.0.overlays.as_ref().map(Overlays::preferred)
    }
}

impl Control for Held {
    fn held(&self) -> Vec<RequestId> {
        self.requests().keys().copied().collect()
    }

    fn aborted(&self) -> Vec<RequestId> {
        self.aborts.lock().unwrap_or_else(PoisonError::into_inner).asked.clone()
    }

    fn set_obliging(&self, obliging: bool) {
        self.aborts.lock().unwrap_or_else(PoisonError::into_inner).obliging = obliging;
    }

    fn command(&self, request: RequestId, command: Command) -> Answer {
        let kept = self.requests().remove(&request);
        let Some(mut kept) = kept else { return Answer::Refused(format!("{request} is not held")) };
        let answer = match command {
            Command::Reply => return kept.reply(Ok(())),
            Command::Fail(message) => return kept.reply(Err(ServerError::new(message))),
            Command::Drop => return Answer::Done,
            Command::Anticipate => match kept.anticipate() {
                Ok(anticipated) => {
                    kept = anticipated;
                    Ok(Answer::Done)
                }
                Err(refused) => {
                    kept = refused;
                    Err("it cannot be anticipated".to_owned())
                }
            },
            Command::Read { buffer } => kept.output(buffer).map(|segments| Answer::Bytes(gather(&segments))),
            Command::Frames { buffer, granule } => {
                kept.output(buffer).map(|segments| Answer::Frames(frames_of(&segments, granule)))
            }
            other => kept.change(self.overlays.as_ref(), other),
        };
        self.requests().insert(request, kept);
        answer.unwrap_or_else(Answer::Refused)
    }
}

impl Held {
    fn requests(&self) -> MutexGuard<'_, BTreeMap<RequestId, Kept>> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn id(&self) -> RequestId {
        match self {
            Self::Request { incoming, .. } => incoming.id(),
            Self::Anticipated(anticipated) => anticipated.id(),
        }
    }

    fn output(&self, buffer: usize) -> Result<Segments, String> {
        let segments = match self {
            Self::Request { incoming, .. } => incoming.output(buffer),
            Self::Anticipated(anticipated) => anticipated.output(buffer),
        };
        segments.map_err(|error| error.to_string())
    }

    fn reply(self, result: Result<(), ServerError>) -> Answer {
        let Self::Request { mut incoming, overlays } = self else { return Answer::Done };
        for (buffer, overlay) in overlays {
            if let Err(error) = incoming.overlay(buffer, 0, overlay) {
                return Answer::Refused(error.to_string());
            }
        }
        incoming.reply(result);
        Answer::Done
    }

    fn anticipate(self) -> Result<Self, Self> {
        match self {
            Self::Request { incoming, overlays } => match incoming.anticipate() {
                Ok(anticipated) => Ok(Self::Anticipated(anticipated)),
                Err(incoming) => Err(Self::Request { incoming, overlays }),
            },
            other => Err(other),
        }
    }

    fn change(&mut self, pool: Option<&Overlays>, command: Command) -> Result<Answer, String> {
        let Self::Request { incoming, overlays } = self else {
            return Err("its client has the reply already".to_owned());
        };
        let result = match command {
            Command::Argument { buffer } => return Ok(Answer::Bytes(incoming.argument(buffer).to_vec())),
            Command::SetArgument { buffer, argument } => incoming.set_argument(buffer, &argument),
            Command::SetActual { buffer, actual } => incoming.set_actual(buffer, actual),
            Command::Write { buffer, offset, bytes } => {
                input(pool, incoming, overlays, buffer).map(|segments| scatter(&segments, offset, &bytes))
            }
            Command::InputFrames { buffer, granule } => {
                let segments = input(pool, incoming, overlays, buffer).map_err(|error| error.to_string())?;
                return Ok(Answer::Frames(frames_of(&segments, granule)));
            }
            other => unreachable!("{other:?} ends a request or only looks at it"),
        };
        result.map(|()| Answer::Done).map_err(|error| error.to_string())
    }
}

/// Where the data of input buffer `buffer` is to be written.
fn input(
    pool: Option<&Overlays>,
    incoming: &mut Incoming,
    overlays: &mut BTreeMap<usize, Overlay>,
    buffer: usize,
) -> Result<Segments, Error> {
    if !overlays.contains_key(&buffer) && !overlaid(pool, incoming, buffer) {
        return incoming.ready(buffer);
    }
    let taken = || pool.and_then(Overlays::allocate).expect("a free overlay buffer");
    Ok(overlays.entry(buffer).or_insert_with(taken).segments())
}

/// The page frames of segments, one for each granule.
fn frames_of(segments: &Segments, granule: usize) -> Option<Vec<u64>> {
    let each = segments.iter().map(|segment| frames(segment.addr(), segment.len(), granule));
    each.collect::<Option<Vec<_>>>().map(|frames| frames.concat())
}

/// Whether input buffer `buffer` is to be overlaid with a buffer of the pool.
fn overlaid(pool: Option<&Overlays>, incoming: &Incoming, buffer: usize) -> bool {
    let fits =
        |pool: &Overlays| incoming.elements(buffer) == 1 && incoming.len(buffer) <= pool.preferred().len;
    incoming.direction(buffer) == Ok(Direction::In) && pool.is_some_and(fits)
}
