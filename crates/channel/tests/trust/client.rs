//! A client without an interface: it sends whatever its role wants, and checks nothing.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use genie_channel::wire::control::{
    Hello, Limits, MAX_MESSAGE, Message, ObjectPlace, Party, VERSION, Welcome,
};
use genie_channel::wire::record::{Body, Kind, Outcome, Record, RequestWriter, Segment, Slot, encode_slot};
use genie_memory::Direction;
use genie_ring::{Bells, Ends, Layout, PushError, Record as Received, Side};
use genie_sys::event::Event;
use genie_sys::socket::Socket;
use genie_sys::{GranuleKind, Object};

use crate::attacker::Ground;

/// Where its arena is said to be; nothing need be there.
pub(crate) const BASE: u64 = 0x2000_0000_0000;
/// How long the arena is said to be.
pub(crate) const LEN: u64 = 3 << 30;
/// How long a victim may take to cut it off.
const PATIENCE: Duration = Duration::from_secs(10);

/// A channel to the server under attack.
pub(crate) struct Raw {
    pub(crate) socket: Socket,
    pub(crate) welcome: Welcome,
    pub(crate) ends: Ends,
    /// The memory of the rings.
    pub(crate) rings: std::fs::File,
    pub(crate) lifeline: Socket,
    record: Received,
    pub(crate) body: Body,
}

/// What an honest hello would say.
pub(crate) fn hello() -> Hello {
    Hello {
        version_min: VERSION,
        version_max: VERSION,
        name: "attacker".to_owned(),
        pid: std::process::id(),
        granule: GranuleKind::Base,
        mixed: false,
        alias_base: BASE,
        alias_len: LEN,
        untrusted: false,
        limits: Limits { pending_bytes: 1 << 30, pending_requests: 256 },
    }
}

/// Connects, and says nothing.
pub(crate) fn connection(ground: &Ground) -> Socket {
    let path = ground.directory.socket_path(ground.server).expect("a name");
    let deadline = Instant::now() + PATIENCE;
    loop {
        match Socket::connect(&path) {
            Ok(socket) => return socket,
            // Too many wait to be accepted.
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The next message; none when the other side has hung up.
pub(crate) fn heard(socket: &Socket) -> Option<(Message, Vec<OwnedFd>)> {
    let mut bytes = vec![0; MAX_MESSAGE];
    let received = socket.receive_timeout(&mut bytes, PATIENCE).ok()?.expect("an answer");
    if received.len == 0 {
        return None;
    }
    let message = Message::decode(&bytes[..received.len], received.descriptors.len(), Party::Server);
    Some((message.expect("an honest message"), received.descriptors))
}

/// Reads on until the server hangs up, and tells what it said last.
pub(crate) fn farewell(socket: &Socket) -> String {
    let mut last = "nothing".to_owned();
    while let Some((message, _)) = heard(socket) {
        if let Message::Goodbye(ending) | Message::Refused(ending) = message {
            last = ending.sentence;
        }
    }
    last
}

impl Raw {
    /// Becomes a client.
    pub(crate) fn greet(ground: &Ground) -> Self {
        Self::greet_as(ground, &hello()).unwrap_or_else(|refused| panic!("{refused}"))
    }

    /// The same by another hello, which may be refused.
    pub(crate) fn greet_as(ground: &Ground, hello: &Hello) -> Result<Self, String> {
        let socket = connection(ground);
        let (lifeline, held) = Socket::pair().expect("sockets");
        let bytes = Message::Hello(hello.clone()).encode().expect("a hello");
        socket.send(&bytes, &[held.as_fd()]).map_err(|error| error.to_string())?;
        drop(held);
        match heard(&socket) {
            Some((Message::Welcome(welcome), descriptors)) => {
                let [rings, bell] =
                    <[OwnedFd; 2]>::try_from(descriptors.into_iter().take(2).collect::<Vec<_>>())
                        .expect("rings and a bell");
                let layout = Layout { lines: welcome.rings.lines, area: welcome.rings.area };
                let file = std::fs::File::from(rings.try_clone().expect("a descriptor"));
                let rings = Object::accept(rings).expect("rings");
                let bells = Bells::end(Event::try_from_descriptor(bell).expect("a bell"));
                let ends = Ends::attach(&rings, layout, Side::Client, bells).expect("rings");
                let (record, body) = (Received::new(), Body::new());
                Ok(Self { socket, welcome, ends, rings: file, lifeline, record, body })
            }
            Some((Message::Refused(ending), _)) => Err(ending.sentence),
            other => Err(format!("{other:?}")),
        }
    }

    /// Says something; returns whether the server still listens.
    pub(crate) fn tell(&self, message: &Message, descriptors: &[BorrowedFd<'_>]) -> bool {
        self.socket.send(&message.encode().expect("a message"), descriptors).is_ok()
    }

    /// Says something, and waits until the server has acted upon it.
    pub(crate) fn ask(&self, message: &Message, descriptors: &[BorrowedFd<'_>]) -> Result<(), String> {
        if !self.tell(message, descriptors) {
            return Err(farewell(&self.socket));
        }
        // The server answers this message after it has acted upon the earlier one.
        if !matches!(message, Message::LimitsWanted(_)) {
            self.tell(&Message::LimitsWanted(self.welcome.limits), &[]);
        }
        match heard(&self.socket) {
            Some((Message::Limits(_), _)) => Ok(()),
            Some((Message::Goodbye(ending), _)) => Err(ending.sentence),
            other => Err(format!("{other:?}")),
        }
    }

    /// Announces an object in its own arena.
    pub(crate) fn announce(
        &self,
        id: u64,
        start: u64,
        len: u64,
        writable: bool,
        object: impl AsFd,
    ) -> Result<(), String> {
        let place = ObjectPlace { arena: 0, id, start, len, writable };
        self.ask(&Message::Object(place), &[object.as_fd()])
    }

    /// Puts a record on the ring.
    pub(crate) fn push(&mut self, kind: u8, payload: &[u8]) -> Result<(), PushError> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.ends.producer.push(kind, payload) {
                Err(PushError::Full) if Instant::now() < deadline && !self.socket.is_hung_up() => {
                    // Has the server tell of the room that it makes.
                    let _ = self.ends.producer.want_room();
                    std::thread::yield_now();
                }
                pushed => return pushed,
            }
        }
    }

    /// Requests a service, with one buffer of these segments.
    pub(crate) fn request(
        &mut self,
        slot: (u32, u32),
        service: u16,
        direction: Direction,
        segments: &[Segment],
    ) {
        let slot = Slot { index: slot.0, generation: slot.1 };
        let mut body = std::mem::take(&mut self.body);
        let begun = RequestWriter::begin(&mut body, slot, service, b"argument", 16);
        let mut writer = begun.expect("a request");
        if !segments.is_empty() {
            writer.buffer(direction, false).expect("a buffer");
            writer.element(segments.iter().copied()).expect("an element");
        }
        // A ring that stays full is the server's defence, too.
        let _ = self.push(Kind::Request as u8, &body);
        self.body = body;
    }

    pub(crate) fn abort(&mut self, slot: (u32, u32)) {
        let mut body = std::mem::take(&mut self.body);
        encode_slot(&mut body, Slot { index: slot.0, generation: slot.1 });
        let _ = self.push(Kind::Abort as u8, &body);
        self.body = body;
    }

    /// What the next reply says.
    pub(crate) fn reply(&mut self) -> Option<String> {
        let deadline = Instant::now() + PATIENCE;
        while !self.ends.consumer.pop(&mut self.record).expect("an honest ring") {
            if self.socket.is_hung_up() || Instant::now() > deadline {
                return None;
            }
            std::thread::yield_now();
        }
        match Record::decode(self.record.kind(), self.record.payload()).expect("an honest record") {
            Record::Reply(reply) => Some(match reply.outcome {
                Outcome::Ok { .. } => "ok".to_owned(),
                Outcome::Failed { message, .. } => format!("failed: {message}"),
                Outcome::Dropped => "dropped".to_owned(),
                Outcome::Panicked { message } => format!("panicked: {message}"),
                Outcome::Refused(_) => "refused".to_owned(),
                Outcome::Untold { buffer } => format!("untold: {buffer}"),
                Outcome::ArgumentTooLong { len } => format!("an argument of {len} bytes"),
            }),
            other => Some(format!("{other:?}")),
        }
    }

    /// Waits until the server has cut it off; tells what it said.
    pub(crate) fn farewell(&self) -> String {
        farewell(&self.socket)
    }

    /// Stores bytes in the rings' memory, past all rules.
    pub(crate) fn scribble(&self, offset: u64, bytes: &[u8]) {
        self.rings.write_all_at(bytes, offset).expect("memory that can be written");
    }
}

/// A segment in its own arena.
pub(crate) fn at(offset: u64, len: u64) -> Segment {
    in_arena(0, offset, len)
}

pub(crate) fn in_arena(arena: u16, offset: u64, len: u64) -> Segment {
    Segment::new(arena, offset, len).expect("a place below 2^48")
}

/// An honest object of its own.
pub(crate) fn object(len: usize) -> Object {
    Object::create(GranuleKind::Base, len).expect("memory")
}
