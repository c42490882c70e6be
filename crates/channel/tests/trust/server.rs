//! A server without Genie's server code: it answers a client as its role wants.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use genie_channel::wire::control::{Limits, MAX_MESSAGE, Message, Party, Trust, VERSION, Welcome};
use genie_channel::wire::record::{Body, Kind, Outcome, Progress, Record, ReplyWriter, Slot, encode_slot};
use genie_io::Server;
use genie_io::servers::memory::Memory;
use genie_memory::Mapping;
use genie_ring::{Bells, Ends, Layout, Record as Received, Side};
use genie_sys::Object;
use genie_sys::event::Event;
use genie_sys::socket::{Listener, Socket};

use crate::attacker::Ground;

/// The name of the hostile server.
pub(crate) const NAME: &str = "hostile";
const PATIENCE: Duration = Duration::from_secs(20);
pub(crate) const LAYOUT: Layout = Layout { lines: 64, area: 4096 };

/// A server with one client at a time.
pub(crate) struct Hostile {
    listener: Listener,
    pub(crate) socket: Option<Socket>,
    /// The client's, held as long as its memory may be touched.
    lifeline: Option<OwnedFd>,
    pub(crate) rings: std::fs::File,
    object: Object,
    pub(crate) ends: Option<Ends>,
    record: Received,
    /// The request taken last.
    pub(crate) slot: Slot,
    /// How many messages with descriptors came after the hello.
    pub(crate) announced: usize,
}

impl Hostile {
    /// Takes the name, and says so.
    pub(crate) fn listen(ground: &Ground) -> Self {
        let path = ground.directory.socket_path(NAME).expect("a name");
        let listener = Listener::bind(&path).expect("a socket");
        let object = genie_ring::create(LAYOUT).expect("rings");
        ground.say("listening");
        Self {
            listener,
            socket: None,
            lifeline: None,
            rings: object.duplicate().expect("a descriptor").into(),
            object,
            ends: None,
            record: Received::new(),
            slot: Slot { index: 0, generation: 0 },
            announced: 0,
        }
    }

    /// Waits for a client, and takes its hello.
    pub(crate) fn accept(&mut self) -> bool {
        let deadline = Instant::now() + PATIENCE;
        let socket = loop {
            match self.listener.accept().expect("a listening socket") {
                Some(socket) => break socket,
                None => assert!(Instant::now() < deadline, "no client"),
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        let mut bytes = vec![0; MAX_MESSAGE];
        let received = socket.receive_timeout(&mut bytes, PATIENCE).expect("a client").expect("a hello");
        let hello = Message::decode(&bytes[..received.len], received.descriptors.len(), Party::Client);
        let Ok(Message::Hello(hello)) = hello else { panic!("no hello: {hello:?}") };
        self.lifeline = received.descriptors.into_iter().next();
        self.socket = Some(socket);
        hello.untrusted
    }

    /// Welcomes the next client as an honest server would, but for what `change` does; returns whether it had asked for
    /// nothing to be mapped.
    pub(crate) fn welcome(&mut self, change: impl FnOnce(&mut Welcome)) -> bool {
        let is_untrusted = self.accept();
        let mut welcome = honest_welcome();
        welcome.trust = if is_untrusted { Trust::Copied } else { Trust::Mapped };
        change(&mut welcome);
        self.send_welcome(welcome, &[]);
        is_untrusted
    }

    /// Sends a welcome with these objects as a pool, and fresh rings.
    pub(crate) fn send_welcome(&mut self, welcome: Welcome, pool: &[BorrowedFd<'_>]) {
        self.object = genie_ring::create(LAYOUT).expect("rings");
        self.rings = self.object.duplicate().expect("a descriptor").into();
        let (own, theirs) = Event::pair().expect("a pair");
        self.ends = Some(Ends::attach(&self.object, LAYOUT, Side::Server, Bells::end(own)).expect("rings"));
        let mut descriptors = vec![self.object.as_fd(), theirs.as_fd()];
        descriptors.extend_from_slice(pool);
        let bytes = Message::Welcome(welcome).encode().expect("a welcome");
        // A client that does not like it may have hung up.
        let _ = self.socket().send(&bytes, &descriptors);
    }

    pub(crate) fn socket(&self) -> &Socket {
        self.socket.as_ref().expect("a client")
    }

    pub(crate) fn say(&self, message: &Message) {
        let _ = self.socket().send(&message.encode().expect("a message"), &[]);
    }

    /// What the client says next within so long.
    pub(crate) fn hear(&mut self, patience: Duration) -> Option<(Message, Vec<OwnedFd>)> {
        let mut bytes = vec![0; MAX_MESSAGE];
        let received = self.socket().receive_timeout(&mut bytes, patience).ok()??;
        if received.len == 0 {
            return None;
        }
        let message = Message::decode(&bytes[..received.len], received.descriptors.len(), Party::Client);
        if matches!(message, Ok(Message::PoolWanted(_))) {
            // There is no more.
            self.say(&Message::Pool(Vec::new()));
            return self.hear(patience);
        }
        self.announced += usize::from(!received.descriptors.is_empty());
        Some((message.expect("an honest message"), received.descriptors))
    }

    /// Takes the announcement of an object; returns the descriptor and the object's length.
    pub(crate) fn object(&mut self) -> (OwnedFd, usize) {
        match self.hear(PATIENCE) {
            Some((Message::Object(place), descriptors)) => {
                (descriptors.into_iter().next().expect("an object"), place.len as usize)
            }
            other => panic!("no object: {other:?}"),
        }
    }

    /// The same for one that may have come.
    pub(crate) fn another_object(&mut self) -> Option<OwnedFd> {
        match self.hear(Duration::from_millis(50)) {
            Some((Message::Object(_), descriptors)) => descriptors.into_iter().next(),
            _ => None,
        }
    }

    /// Waits for a request, whatever is announced meanwhile. False when the client is gone.
    pub(crate) fn request(&mut self) -> bool {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            let Self { ends, record, .. } = self;
            if ends.as_mut().expect("rings").consumer.pop(record).expect("an honest ring") {
                match Record::decode(record.kind(), record.payload()).expect("an honest record") {
                    Record::Request(request) => {
                        self.slot = request.slot;
                        return true;
                    }
                    _ => continue,
                }
            }
            match self.hear(Duration::from_millis(1)) {
                Some((Message::Goodbye(_), _)) => return false,
                None if self.socket().is_hung_up() => return false,
                _ => {}
            }
        }
        panic!("no request")
    }

    /// Replies to a request, telling of buffers of which so much was passed.
    pub(crate) fn reply(&mut self, slot: Slot, outcome: Outcome<'_>, buffers: &[u64]) {
        let mut body = Body::new();
        let mut writer = ReplyWriter::begin(&mut body, slot, outcome);
        buffers.iter().for_each(|actual| writer.buffer(*actual).expect("a buffer"));
        self.push(Kind::Reply as u8, &body);
    }

    pub(crate) fn succeed(&mut self, slot: Slot, buffers: &[u64]) {
        self.reply(slot, Outcome::Ok { anticipated: false, argument: &[] }, buffers);
    }

    /// Whether the ring of replies has room for a short record.
    pub(crate) fn has_room(&mut self) -> bool {
        self.ends.as_mut().expect("rings").producer.has_room(56)
    }

    /// Says how much of a buffer is final.
    pub(crate) fn progress(&mut self, slot: Slot, buffer: u16, len: u64) {
        let mut body = Body::new();
        Progress { slot, buffer, len }.encode(&mut body).expect("a length that can be said");
        self.push(Kind::Progress as u8, &body);
    }

    /// Replies with `actual` bytes of one buffer, of which the reply carries so many.
    pub(crate) fn carry(&mut self, slot: Slot, anticipated: bool, actual: u64, carried: usize) {
        let mut body = Body::new();
        let mut writer = ReplyWriter::begin(&mut body, slot, Outcome::Ok { anticipated, argument: &[] });
        writer.buffer(actual).expect("a buffer");
        writer.carried(carried).fill(0x77);
        self.push(Kind::Reply as u8, &body);
    }

    pub(crate) fn push_slot(&mut self, kind: Kind, slot: Slot) {
        let mut body = Body::new();
        encode_slot(&mut body, slot);
        self.push(kind as u8, &body);
    }

    pub(crate) fn push(&mut self, kind: u8, payload: &[u8]) {
        // A ring that is full says enough.
        let _ = self.ends.as_mut().expect("rings").producer.push(kind, payload);
    }

    /// Whether the client hangs up in time.
    pub(crate) fn is_left(&mut self) -> bool {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if self.socket().is_hung_up() {
                self.leave();
                return true;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        false
    }

    /// Tells the test whether it does.
    pub(crate) fn say_whether_left(&mut self, ground: &Ground) {
        ground.say(if self.is_left() { "left" } else { "stayed" });
    }

    /// Lets the client's memory go.
    pub(crate) fn leave(&mut self) {
        (self.socket, self.lifeline, self.ends) = (None, None, None);
    }

    /// When the test says so, replies to what was requested; then stays until the test is done.
    pub(crate) fn serve_on(&mut self, ground: &mut Ground) -> ! {
        ground.hear();
        while self.socket.is_some() && self.request() {
            self.succeed(self.slot, &[]);
        }
        self.leave();
        ground.stay();
    }
}

/// What an honest server would say.
pub(crate) fn honest_welcome() -> Welcome {
    let services = Memory::customized();
    Welcome {
        version: VERSION,
        name: NAME.to_owned(),
        instance: 1,
        limits: Limits { pending_bytes: 1 << 30, pending_requests: 256 },
        abort_timeout: Duration::from_millis(100),
        rings: LAYOUT,
        mapping: Mapping::Cached,
        trust: Trust::Mapped,
        pool: Vec::new(),
        services: services.services().to_vec(),
    }
}
