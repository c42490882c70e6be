//! The holder: a server that keeps every request until the test says what to do with it.
//!
//! How: the test's side sends [`Command`]s and gets [`Answer`]s, which hold no memory of either side; so the server may
//! as well live in another process.

mod held;
mod numbered;

use std::sync::Arc;
use std::time::{Duration, Instant};

use genie_io::{Interface, RequestId, ServerHandle, ServiceId};
use genie_passing::Overlays;
use serde::{Deserialize, Serialize};

use crate::machine::Backed;

pub use held::{Device, Held, HoldingServer};
pub use numbered::Elsewhere;
use numbered::Numbered;

/// The service that reads and writes.
pub const HOLD: ServiceId = ServiceId(0);
/// The service whose buffers may be neither read nor written.
pub const UNMAPPED: ServiceId = ServiceId(1);
/// The service that replies at once.
pub const PASS: ServiceId = ServiceId(2);

/// How long the suite waits for a request to arrive.
pub(crate) const ARRIVAL: Duration = Duration::from_mins(1);

/// Names a request that the holder has: as its client does, or, where client and server have names of their own, by when
/// it arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Name {
    /// As its client does.
    Client(RequestId),
    /// The request that was the holder's first, second, ...: counted from 0.
    Arrival(usize),
}

impl From<RequestId> for Name {
    fn from(id: RequestId) -> Self {
        Self::Client(id)
    }
}

impl PartialEq<RequestId> for Name {
    fn eq(&self, other: &RequestId) -> bool {
        *self == Self::Client(*other)
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Client(id) => id.fmt(f),
            Self::Arrival(number) => write!(f, "arrival {number}"),
        }
    }
}

/// What the test has the server do with one request.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[allow(missing_docs, reason = "a command's fields are what its description names")]
pub enum Command {
    /// Read output buffer `buffer`.
    Read { buffer: usize },
    /// Write `bytes` into input buffer `buffer` from `offset` on, making it ready first or filling an overlay buffer.
    Write {
        buffer: usize,
        offset: usize,
        #[serde(skip)]
        bytes: Vec<u8>,
    },
    /// Name the page frames in which the server sees output buffer `buffer`.
    Frames { buffer: usize, granule: usize },
    /// Name the page frames into which the server writes input buffer `buffer`, making it ready or taking an overlay
    /// buffer first.
    InputFrames { buffer: usize, granule: usize },
    /// Name the addresses at which the server sees output buffer `buffer`.
    Places { buffer: usize },
    /// Name the memory objects that hold output buffer `buffer`.
    Backings { buffer: usize },
    /// Name the memory objects into which the server writes input buffer `buffer`, making it ready or taking an overlay buffer
    /// first.
    InputBackings { buffer: usize },
    /// Link a device's memory with these bytes to input buffer `buffer`.
    Outboard {
        buffer: usize,
        #[serde(skip)]
        bytes: Vec<u8>,
    },
    /// Read the client's argument.
    Argument,
    /// Set an argument for the client.
    SetArgument {
        #[serde(skip)]
        argument: Vec<u8>,
    },
    /// Say how much of a buffer was passed.
    SetActual { buffer: usize, actual: usize },
    /// Say before the reply how much of a buffer is final.
    Progress { buffer: usize, len: usize },
    /// Pin a whole buffer.
    Pin { buffer: usize },
    /// Read what is pinned of a request that may have been replied to, in another thread.
    ReadPinned,
    /// Name the memory objects that hold what is pinned of a request that may have been replied to.
    PinnedBackings,
    /// Write into what is pinned of a request that may have been replied to, in another thread.
    WritePinned {
        #[serde(skip)]
        bytes: Vec<u8>,
    },
    /// Let go of what is pinned, or being transferred.
    Unpin,
    /// Begin a transfer into a whole buffer, which is pinned then.
    BeginTransfer { buffer: usize },
    /// End the transfer, with this error if there is one.
    EndTransfer { error: Option<String> },
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// It was done.
    Done,
    /// What was read.
    Bytes(#[serde(skip)] Vec<u8>),
    /// The page frames; none where they are hidden.
    Frames(Option<Vec<u64>>),
    /// (address, length) of each piece.
    Places(Vec<(usize, usize)>),
    /// The parts of data, and the memory objects that hold them.
    Backings(Vec<Backed>),
    /// The interface refused, for this reason.
    Refused(String),
}

/// The way to the server's side.
pub trait Control: Send + Sync {
    /// Tells that a request to the holder is about to be made.
    fn expect(&self) {}
    /// The requests that the server holds, oldest first.
    fn held(&self) -> Vec<Name>;
    /// The requests that it was asked to let go.
    fn aborted(&self) -> Vec<Name>;
    /// Whether it lets requests go when asked to, or keeps them.
    fn set_obliging(&self, obliging: bool);
    /// Has the server do something.
    fn command(&self, request: Name, command: Command) -> Answer;
}

/// The test's side of the server.
pub struct Holder {
    handle: ServerHandle,
    control: Arc<dyn Control>,
}

impl Holder {
    /// A holder in this process, which fills these buffers of its own, if any.
    pub fn in_process(overlays: Option<Overlays>) -> Self {
        Self::with(Held::new(overlays))
    }

    /// A holder in this process, whose data is [in parts](Held::in_parts).
    pub fn in_parts(overlays: Overlays, granule: usize) -> Self {
        Self::with(Held::in_parts(overlays, granule))
    }

    fn with(held: Held) -> Self {
        let held = Arc::new(held);
        Self::reached(ServerHandle::new(HoldingServer(Arc::clone(&held))), held)
    }

    /// A holder anywhere.
    pub fn reached(handle: ServerHandle, control: Arc<dyn Control>) -> Self {
        Self { handle, control }
    }

    /// A holder that requests of this interface reach by a carrier, which gives them other names.
    pub fn elsewhere(
        interface: &Interface,
        handle: ServerHandle,
        elsewhere: impl Elsewhere + 'static,
    ) -> Self {
        let control = Arc::new(Numbered::new(elsewhere, interface, &handle));
        Self::reached(handle, control)
    }

    /// The server, for the next request to it.
    pub fn handle(&self) -> &ServerHandle {
        self.control.expect();
        &self.handle
    }

    /// The server, to be asked about itself.
    pub fn server(&self) -> &ServerHandle {
        &self.handle
    }

    /// The requests that the server holds, oldest first.
    pub fn held(&self) -> Vec<Name> {
        self.control.held()
    }

    /// The requests that it was asked to let go.
    pub fn aborted(&self) -> Vec<Name> {
        self.control.aborted()
    }

    /// Has the server let requests go when it is asked to, or keep them.
    pub fn set_obliging(&self, obliging: bool) {
        self.control.set_obliging(obliging);
    }

    /// Waits for a request to arrive, from another thread.
    #[track_caller]
    pub fn arrival(&self) -> Name {
        let deadline = Instant::now() + ARRIVAL;
        loop {
            if let Some(first) = self.held().first() {
                return *first;
            }
            assert!(Instant::now() < deadline, "no request arrived");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Has the server do something with a request.
    pub fn command(&self, request: impl Into<Name>, command: Command) -> Answer {
        self.control.command(request.into(), command)
    }

    #[track_caller]
    fn done(&self, request: impl Into<Name>, command: Command) {
        let request = request.into();
        let answer = self.command(request, command);
        assert_eq!(answer, Answer::Done, "{request}");
    }

    /// What the server sees in output buffer `buffer`.
    #[track_caller]
    pub fn read_buffer(&self, request: impl Into<Name>, buffer: usize) -> Vec<u8> {
        let request = request.into();
        match self.command(request, Command::Read { buffer }) {
            Answer::Bytes(bytes) => bytes,
            other => panic!("{request}: reading buffer {buffer}: {other:?}"),
        }
    }

    /// What the server sees in output buffer 0.
    #[track_caller]
    pub fn read(&self, request: impl Into<Name>) -> Vec<u8> {
        self.read_buffer(request, 0)
    }

    /// The page frames in which the server sees output buffer 0; `None` where frames are hidden.
    #[track_caller]
    pub fn frames(&self, request: impl Into<Name>, granule: usize) -> Option<Vec<u64>> {
        self.frames_by(request.into(), Command::Frames { buffer: 0, granule })
    }

    /// The page frames into which the server writes input buffer 0; `None` where frames are hidden.
    #[track_caller]
    pub fn input_frames(&self, request: impl Into<Name>, granule: usize) -> Option<Vec<u64>> {
        self.frames_by(request.into(), Command::InputFrames { buffer: 0, granule })
    }

    #[track_caller]
    fn frames_by(&self, request: Name, command: Command) -> Option<Vec<u64>> {
        match self.command(request, command) {
            Answer::Frames(frames) => frames,
            other => panic!("{request}: frames: {other:?}"),
        }
    }

    /// The addresses and lengths of the pieces in which the server sees output buffer 0.
    #[track_caller]
    pub fn places(&self, request: impl Into<Name>) -> Vec<(usize, usize)> {
        let request = request.into();
        match self.command(request, Command::Places { buffer: 0 }) {
            Answer::Places(places) => places,
            other => panic!("{request}: places: {other:?}"),
        }
    }

    /// Where in memory objects the server has what the command asks for: `Backings`, `InputBackings` or `PinnedBackings`. The bytes are
    /// there.
    #[track_caller]
    pub fn backings(&self, request: impl Into<Name>, command: Command) -> Vec<Backed> {
        let request = request.into();
        match self.command(request, command) {
            Answer::Backings(parts) => parts,
            other => panic!("{request}: backings: {other:?}"),
        }
    }

    /// Writes a part of input buffer 0, and replies nothing yet.
    #[track_caller]
    pub fn write(&self, request: impl Into<Name>, offset: usize, bytes: &[u8]) {
        self.done(request, Command::Write { buffer: 0, offset, bytes: bytes.to_vec() });
    }

    /// Says how much of input buffer 0 was passed, and replies nothing yet.
    #[track_caller]
    pub fn set_actual(&self, request: impl Into<Name>, actual: usize) {
        self.done(request, Command::SetActual { buffer: 0, actual });
    }

    /// Says how much of buffer 0 is final.
    #[track_caller]
    pub fn progress(&self, request: impl Into<Name>, len: usize) {
        self.done(request, Command::Progress { buffer: 0, len });
    }

    /// Writes `bytes` into input buffer 0 and replies with success.
    #[track_caller]
    pub fn deliver(&self, request: impl Into<Name>, bytes: &[u8]) {
        let request = request.into();
        self.write(request, 0, bytes);
        self.set_actual(request, bytes.len());
        self.reply(request);
    }

    /// Replies with success.
    #[track_caller]
    pub fn reply(&self, request: impl Into<Name>) {
        self.done(request, Command::Reply);
    }

    /// Replies with an error.
    #[track_caller]
    pub fn fail(&self, request: impl Into<Name>, message: &str) {
        self.done(request, Command::Fail(message.to_owned()));
    }

    /// Lets the request go without a reply.
    #[track_caller]
    pub fn drop_request(&self, request: impl Into<Name>) {
        self.done(request, Command::Drop);
    }

    /// Replies before the request is done.
    #[track_caller]
    pub fn anticipate(&self, request: impl Into<Name>) {
        self.done(request, Command::Anticipate);
    }
}
