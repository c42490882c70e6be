//! The control thread of a server: accepts clients, answers their messages, and notices when they go.
//!
//! How: one poller for the listening socket and all control sockets. A guest has a few seconds to say hello; then it is a
//! customer with rings, a mirror and a pool. When it hangs up or breaks the rules its requests are evicted.
//! Trust: nothing that a guest or customer does makes this thread wait for it.
//! Limits: guests and customers as [`ServeOptions::clients`] says; [`OBJECTS`] announced objects for each.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use genie_memory::Mirror;
use genie_ring::{Bells, Ends, Record, Side};
use genie_sys::event::Event;
use genie_sys::poll::{Poller, Ready};
use genie_sys::process::Pid;
use genie_sys::socket::{Received, Socket};

use super::books::Granted;
use super::customer::{Customer, Sight, Terms};
use super::directory::Claim;
use super::listener::{Shared, WORKER_CLIENTS};
use super::pool::Pool;
use super::private::Private;
use super::wire::control::{
    Ending, Hello, Limits, MAX_MESSAGE, Mapping, Message, Party, PoolObjects, Reason, Rings, Trust, VERSION,
    Welcome,
};
use super::worker::{Line, evict};
use crate::Error;

/// How long a guest may take to say hello.
const HELLO: Duration = Duration::from_secs(5);
/// How many objects a client may have announced.
const OBJECTS: u32 = 4096;
/// The longest the thread sleeps.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

const LISTENER: u64 = 0;
const ATTENTION: u64 = 1;
/// The rings of a server that waits by descriptor.
pub(super) const RING: u64 = 2;
const FIRST: u64 = 3;

/// The control thread's state.
pub(super) struct Reception {
    shared: Arc<Shared>,
    claim: Arc<Claim>,
    poller: Poller,
    next: u64,
    guests: HashMap<u64, Guest>,
    channels: HashMap<u64, Channel>,
    ready: Vec<Ready>,
    bytes: Vec<u8>,
}

impl std::fmt::Debug for Reception {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reception").field("channels", &self.channels.len()).finish_non_exhaustive()
    }
}

impl Drop for Reception {
    fn drop(&mut self) {
        let over = Over::new(Reason::Closing, "the server was stopped");
        for token in self.channels.keys().copied().collect::<Vec<_>>() {
            self.end(token, &over);
        }
    }
}

/// Who has connected and said nothing yet.
struct Guest {
    socket: Socket,
    since: Instant,
}

/// A client's control socket.
struct Channel {
    socket: Socket,
    customer: Arc<Customer>,
    inbox: usize,
    objects: u32,
    trust: Trust,
    /// What the customer may raise its limits to: (bytes, requests).
    hard: (usize, u32),
    pool: Pool,
}

/// Why there is no channel, or no longer one.
struct Over {
    reason: Reason,
    sentence: String,
}

impl Over {
    fn new(reason: Reason, sentence: impl ToString) -> Self {
        Self { reason, sentence: sentence.to_string() }
    }
}

impl Reception {
    pub(super) fn new(shared: &Arc<Shared>, claim: &Arc<Claim>) -> Result<Self, Error> {
        let poller = Poller::new()?;
        poller.add(claim.listener(), LISTENER)?;
        poller.add(&shared.attention, ATTENTION)?;
        Ok(Self {
            shared: Arc::clone(shared),
            claim: Arc::clone(claim),
            poller,
            next: FIRST,
            guests: HashMap::new(),
            channels: HashMap::new(),
            ready: Vec::new(),
            bytes: vec![0; MAX_MESSAGE],
        })
    }

    /// Attends to clients until the server is stopped.
    pub(super) fn run(mut self) {
        while !self.shared.has_stopped() {
            self.attend(Some(LONGEST_SLEEP));
        }
    }

    /// Waits at most so long for somebody to say something, and answers.
    pub(super) fn attend(&mut self, timeout: Option<Duration>) {
        let mut ready = std::mem::take(&mut self.ready);
        if self.poller.wait(timeout, &mut ready).is_err() {
            std::thread::sleep(Duration::from_millis(10));
        }
        let mut bytes = std::mem::take(&mut self.bytes);
        for token in ready.drain(..).map(|ready| ready.token) {
            match token {
                LISTENER => self.accept(),
                ATTENTION => {
                    // What is not cleared is looked at once more.
                    let _ = self.shared.attention.clear();
                }
                RING => {}
                token if self.guests.contains_key(&token) => self.hear_guest(token, &mut bytes),
                token => self.hear(token, &mut bytes),
            }
        }
        (self.ready, self.bytes) = (ready, bytes);
        self.dismiss();
    }

    /// What becomes readable when somebody says something.
    pub(super) fn poller(&self) -> &Poller {
        &self.poller
    }

    fn accept(&mut self) {
        // An error of one connection is its own; the next one may do better.
        while let Ok(Some(socket)) = self.claim.listener().accept() {
            let most = self.shared.options.clients;
            if self.guests.len() >= most.max(16) || self.poller.add(&socket, self.next).is_err() {
                refuse(
                    &socket,
                    &Over::new(Reason::Busy, "too many connections are waiting; try again later"),
                );
                continue;
            }
            self.guests.insert(self.next, Guest { socket, since: Instant::now() });
            self.next += 1;
        }
    }

    /// The first message of a connection.
    fn hear_guest(&mut self, token: u64, bytes: &mut [u8]) {
        let Some(guest) = self.guests.get(&token) else { return };
        let received = match guest.socket.try_receive(bytes) {
            Ok(None) => return,
            Ok(Some(received)) if received.len > 0 => received,
            _ => return self.forget_guest(token),
        };
        let Some(Guest { socket, .. }) = self.guests.remove(&token) else { return };
        let _ = self.poller.remove(&socket);
        let message = Message::decode(&bytes[..received.len], received.descriptors.len(), Party::Client);
        let greeted = match message {
            Ok(Message::Query) => {
                answer(&socket, &Message::Status(self.shared.status()), &[]);
                return;
            }
            Ok(Message::Hello(hello)) => self.welcome(&hello, &socket, received),
            Ok(other) => {
                Err(Over::new(Reason::Malformed, format!("a {:?} came before a hello", other.kind())))
            }
            Err(error) => Err(Over::new(Reason::Malformed, error)),
        };
        match greeted {
            Err(over) => refuse(&socket, &over),
            Ok((customer, inbox, trust, pool)) => {
                let hard = (self.shared.options.hard_bytes, self.shared.options.hard_requests);
                if self.poller.add(&socket, token).is_ok() {
                    let channel = Channel { socket, customer, inbox, objects: 0, trust, hard, pool };
                    self.channels.insert(token, channel);
                } else {
                    self.leave(&customer, inbox);
                }
            }
        }
    }

    fn forget_guest(&mut self, token: u64) {
        if let Some(guest) = self.guests.remove(&token) {
            let _ = self.poller.remove(&guest.socket);
        }
    }

    /// Makes a guest a customer.
    fn welcome(
        &mut self,
        hello: &Hello,
        socket: &Socket,
        received: Received,
    ) -> Result<(Arc<Customer>, usize, Trust, Pool), Over> {
        let shared = Arc::clone(&self.shared);
        let options = &shared.options;
        if !(hello.version_min..=hello.version_max).contains(&VERSION) {
            let sentence = format!("this server speaks version {VERSION} only; update the older side");
            return Err(Over::new(Reason::Version, sentence));
        }
        let inbox = self.vacant_inbox().ok_or_else(|| {
            Over::new(Reason::Busy, format!("the server has {} clients already", self.channels.len()))
        })?;
        let exhausted = |error: Error| Over::new(Reason::Exhausted, error);
        let peer = socket.peer().map_err(|error| exhausted(error.into()))?;
        let trust = shared.trust(hello.untrusted);
        let client = Pid::from_raw(peer.pid).ok_or_else(|| {
            Over::new(Reason::Permission, "the client is in a process that this one can't see")
        })?;
        let granted = Granted {
            bytes: (hello.limits.pending_bytes as usize).min(options.pending_bytes),
            requests: hello.limits.pending_requests.min(options.pending_requests).max(1),
            abort_timeout: options.abort_timeout,
        };
        let lifeline = received.descriptors.into_iter().next();
        let lifeline = lifeline.ok_or_else(|| Over::new(Reason::Malformed, "a hello without a lifeline"))?;
        let (base, len) = (hello.alias_base as usize, hello.alias_len as usize);
        let mirror = Mirror::new(base, len, hello.granule, options.mapping, lifeline);
        let mirror = mirror.map_err(|error| Over::new(Reason::Granule, error))?;
        let most = if trust == Trust::Copied { 0 } else { options.pool.max(options.hard_pool) };
        let mut pool = Pool::new(hello.granule, most);
        let lent = pool.lend(options.pool);
        let rings = genie_ring::create(options.rings).map_err(|error| Over::new(Reason::Exhausted, error))?;
        let (own, theirs) = Event::pair().map_err(|error| exhausted(error.into()))?;
        let ends = Ends::attach(&rings, options.rings, Side::Server, Bells::end(own));
        let ends = ends.map_err(|error| Over::new(Reason::Exhausted, error))?;
        if trust == Trust::Copied && shared.private.is_none() {
            return Err(Over::new(Reason::Trust, "this server has no memory for data that is copied"));
        }
        let private = (trust == Trust::Copied).then(|| shared.private.space().cloned());
        let private = private.transpose().map_err(exhausted)?;
        let terms = Terms {
            number: (self.next & 0xff_ffff) as u32,
            name: hello.name.clone(),
            pid: peer.pid as u32,
            mapping: options.mapping,
            granted,
            services: shared.server.services().iter().map(crate::Service::access).collect(),
            mirror,
            producer: ends.producer,
            private: private.map(|space| Private { client, base, len, space }),
        };
        self.next += 1;
        let customer = Arc::new(Customer::new(terms));
        let welcome = Welcome {
            version: VERSION,
            name: shared.name.clone(),
            instance: shared.instance,
            limits: Limits { pending_bytes: granted.bytes as u64, pending_requests: granted.requests },
            abort_timeout: granted.abort_timeout,
            rings: Rings { lines: options.rings.lines, area: options.rings.area },
            mapping: match options.mapping {
                genie_memory::Mapping::Cached => Mapping::Cached,
                genie_memory::Mapping::Transient => Mapping::Transient,
            },
            trust,
            pool: PoolObjects { lens: lent.iter().map(|object| object.len() as u64).collect() },
            services: shared.offers(),
        };
        let mut descriptors: Vec<BorrowedFd<'_>> = vec![rings.as_fd(), theirs.as_fd()];
        descriptors.extend(lent.iter().map(AsFd::as_fd));
        if !answer(socket, &Message::Welcome(welcome), &descriptors) {
            return Err(Over::new(Reason::Silent, "the client does not take its welcome"));
        }
        shared.customers().push(Arc::clone(&customer));
        let line = Line {
            customer: Arc::clone(&customer),
            consumer: ends.consumer,
            record: Record::new(),
            sight: Sight::default(),
        };
        shared.inboxes[inbox].leave(line);
        Ok((customer, inbox, trust, pool))
    }

    /// The worker with the fewest clients that can have one more.
    fn vacant_inbox(&self) -> Option<usize> {
        if self.channels.len() >= self.shared.options.clients {
            return None;
        }
        let clients = |index: usize| self.channels.values().filter(|channel| channel.inbox == index).count();
        let least = (0..self.shared.inboxes.len()).min_by_key(|index| clients(*index))?;
        (clients(least) < WORKER_CLIENTS).then_some(least)
    }

    /// A message of a customer.
    fn hear(&mut self, token: u64, bytes: &mut [u8]) {
        let Some(channel) = self.channels.get_mut(&token) else { return };
        let received = match channel.socket.try_receive(bytes) {
            Ok(None) => return,
            Ok(Some(received)) if received.len > 0 => received,
            Ok(Some(_)) => return self.end(token, &Over::new(Reason::Closing, "the client hung up")),
            Err(error) => return self.end(token, &Over::new(Reason::Closing, error)),
        };
        let descriptors = received.descriptors.into_iter().collect();
        if let Err(over) = channel.act(&self.shared, &bytes[..received.len], descriptors) {
            self.end(token, &over);
        }
    }

    /// Ends channels whose customers broke the rules, and forgets guests that said nothing.
    fn dismiss(&mut self) {
        let late: Vec<u64> =
            self.guests.iter().filter(|(_, g)| g.since.elapsed() > HELLO).map(|(t, _)| *t).collect();
        late.into_iter().for_each(|token| self.forget_guest(token));
        let gone = self.channels.iter().filter(|(_, channel)| channel.customer.is_gone());
        let gone: Vec<(u64, Option<String>)> =
            gone.map(|(t, channel)| (*t, channel.customer.wrong())).collect();
        for (token, wrong) in gone {
            let sentence = wrong.unwrap_or_else(|| "the channel is over".to_owned());
            self.end(token, &Over::new(Reason::Malformed, sentence));
        }
    }

    /// Ends a channel: says so, if the client still listens, and evicts what it has pending.
    fn end(&mut self, token: u64, over: &Over) {
        let Some(channel) = self.channels.remove(&token) else { return };
        let _ = self.poller.remove(&channel.socket);
        let goodbye = Ending { reason: over.reason, sentence: over.sentence.clone() };
        answer(&channel.socket, &Message::Goodbye(goodbye), &[]);
        channel.socket.hang_up();
        self.leave(&channel.customer, channel.inbox);
    }

    fn leave(&self, customer: &Arc<Customer>, inbox: usize) {
        customer.end(None);
        self.shared.inboxes[inbox].notify();
        self.shared.customers().retain(|other| !Arc::ptr_eq(other, customer));
        evict(&self.shared, customer.all(), customer.abort_timeout());
    }
}

impl Channel {
    /// Acts upon a message.
    fn act(&mut self, shared: &Shared, bytes: &[u8], descriptors: Vec<OwnedFd>) -> Result<(), Over> {
        let malformed = |wrong: String| Over::new(Reason::Malformed, wrong);
        let message = Message::decode(bytes, descriptors.len(), Party::Client);
        let message = message.map_err(|error| malformed(error.to_string()))?;
        let mut descriptors = descriptors.into_iter();
        if self.trust == Trust::Copied && matches!(message, Message::Object(_) | Message::Arena(_)) {
            return Err(Over::new(
                Reason::Trust,
                "memory was announced on a channel on which nothing is mapped",
            ));
        }
        match (message, descriptors.next()) {
            (Message::Object(place), Some(object)) => {
                self.objects += 1;
                if self.objects > OBJECTS {
                    return Err(malformed(format!("more than {OBJECTS} objects were announced")));
                }
                let refused = |wrong| Over::new(Reason::Object, wrong);
                self.customer.announce(&place, object).map_err(refused)?;
            }
            (Message::Arena(place), Some(lifeline)) => {
                self.customer.add_arena(&place, lifeline).map_err(malformed)?;
            }
            (Message::Withdraw(id), _) => {
                self.objects = self.objects.saturating_sub(1);
                self.customer.withdraw(id).map_err(malformed)?;
            }
            (Message::WithdrawArena(number), _) => {
                if !self.customer.remove_arena(number) {
                    return Err(malformed(format!("arena {number} was withdrawn, which is not here")));
                }
                shared.inboxes[self.inbox].notify();
            }
            (Message::LimitsWanted(wanted), _) => return self.adjust(wanted),
            (Message::PoolWanted(bytes), _) => return self.lend(bytes),
            (Message::Goodbye(_), _) => return Err(Over::new(Reason::Closing, "the client said goodbye")),
            (other, _) => return Err(malformed(format!("a {:?} came in the middle", other.kind()))),
        }
        self.say(&Message::Acknowledged)
    }

    /// Grants what a customer wants, up to the hard limits.
    fn adjust(&self, wanted: Limits) -> Result<(), Over> {
        let bytes = (wanted.pending_bytes as usize).min(self.hard.0);
        let requests = wanted.pending_requests.clamp(1, self.hard.1.max(1));
        let (bytes, requests) = self.customer.grant(bytes, requests);
        self.say(&Message::Limits(Limits { pending_bytes: bytes as u64, pending_requests: requests }))
    }

    /// Lends a customer more, up to what it may have.
    fn lend(&mut self, bytes: u64) -> Result<(), Over> {
        let lent = self.pool.lend(usize::try_from(bytes).unwrap_or(usize::MAX));
        let lens = lent.iter().map(|object| object.len() as u64).collect();
        let descriptors: Vec<BorrowedFd<'_>> = lent.iter().map(AsFd::as_fd).collect();
        self.tell(&Message::Pool(PoolObjects { lens }), &descriptors)
    }

    fn say(&self, message: &Message) -> Result<(), Over> {
        self.tell(message, &[])
    }

    fn tell(&self, message: &Message, descriptors: &[BorrowedFd<'_>]) -> Result<(), Over> {
        match answer(&self.socket, message, descriptors) {
            true => Ok(()),
            false => Err(Over::new(Reason::Silent, "the client does not read its control socket")),
        }
    }
}

/// Sends a message to somebody who may not listen; returns whether it went.
fn answer(socket: &Socket, message: &Message, descriptors: &[BorrowedFd<'_>]) -> bool {
    let Ok(bytes) = message.encode() else { return false };
    socket.try_send(&bytes, descriptors).unwrap_or(false)
}

fn refuse(socket: &Socket, over: &Over) {
    let ending = Ending { reason: over.reason, sentence: over.sentence.clone() };
    answer(socket, &Message::Refused(ending), &[]);
}
