//! The control thread of a server: accepts clients, answers their messages, and notices when they go.
//!
//! How: one poller for the listening socket and all control sockets. A connection has a few seconds to say hello; then it
//! becomes a session with rings, a mirror and a pool. When the client hangs up or breaks the rules, its requests are evicted.
//! For a program that drives the server, and may be elsewhere, this thread also catches up with who has come and gone.
//! Trust: nothing that a peer does makes this thread wait for it.
//! Limits: as many connections as [`ServeOptions::clients`](super::ServeOptions::clients) says.

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use genie_io::carrier::Allowance;
use genie_io::{Client, Error};
use genie_memory::{Mirror, Quota};
use genie_ring::{Bells, Ends, Record, Side};
use genie_sys::event::Event;
use genie_sys::poll::{Poller, Ready};
use genie_sys::process::Pid;
use genie_sys::socket::{Received, Socket};
use genie_sys::{GranuleKind, cgroup, machine};

use super::arenas::{ArenaView, Arenas};
use super::client_channel::{ClientChannel, answer, checked_lifeline, refuse, tell};
use super::client_ring::ClientRing;
use super::directory::Claim;
use super::evictions::Departure;
use super::handshakes::Handshakes;
use super::in_progress::{Granted, MOST_REQUESTS};
use super::pool::Pool;
use super::private::{self, Private};
use super::relief::Relief;
use super::session::{Session, Terms};
use super::shared::Shared;
use super::shares::Shares;
use super::telemetry;
use super::unwanted;
use super::wire::control::{Ending, Hello, Limits, MAX_MESSAGE, Message, Party, Reason, Trust, VERSION};
use crate::primitive::Ordering;

/// How many connections are accepted before the messages of others are read.
const ACCEPTED: usize = 64;
/// The pause after an error that would otherwise occur again at once.
const PAUSE: Duration = Duration::from_millis(10);
/// The longest the thread sleeps.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// What a client may take of the memory that this process's cgroup allows, besides its rings and its pool: page tables above all.
const TAKEN: usize = 512 << 10;

const TOO_MANY: &str = "too many connections are waiting; try again later";
const NO_ROOM: &str =
    "the server's memory cgroup has no room for another client; raise its limit, or try again later";

const LISTENER: u64 = 0;
const ATTENTION: u64 = 1;
/// The token of the descriptor of the server's completer.
const COMPLETER: u64 = 2;
const FIRST: u64 = 3;

/// The control thread's state.
pub(super) struct Control {
    shared: Arc<Shared>,
    claim: Arc<Claim>,
    poller: Poller,
    next: u64,
    handshakes: Handshakes,
    channels: HashMap<u64, ClientChannel>,
    relief: Relief,
    /// What a program waits by that drives the server.
    driven: Option<Arc<Poller>>,
    /// What the poller waits for on behalf of the server's completer, unless the program does.
    _bell: Option<OwnedFd>,
    /// After what time this thread looks again whether the completer has something, if it does.
    look_in: Option<Duration>,
    /// How often the server had changed what layouts it prefers when clients were told last.
    changes: u64,
    ready: Vec<Ready>,
    bytes: Vec<u8>,
}

impl std::fmt::Debug for Control {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Control").field("channels", &self.channels.len()).finish_non_exhaustive()
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        if self.is_inherited() {
            // The clients are the parent's: the child's copy of the server's code is not told that they have left.
            return std::mem::forget(std::mem::take(&mut self.channels));
        }
        for token in self.channels.keys().copied().collect::<Vec<_>>() {
            self.end(token, Ending::new(Reason::Closing, "the server was stopped"));
        }
        self.catch_up();
    }
}

impl Control {
    /// `driven` is what a program waits by that drives the server.
    pub(super) fn new(
        shared: &Arc<Shared>,
        claim: &Arc<Claim>,
        driven: Option<Arc<Poller>>,
    ) -> Result<Self, Error> {
        let poller = Poller::new()?;
        poller.add(claim.listener(), LISTENER)?;
        poller.add(&*shared.attention, ATTENTION)?;
        if let Some(preferences) = shared.server.preferences() {
            let attention = Arc::downgrade(&shared.attention);
            // If this fails, the control thread looks by itself after a while.
            preferences.watch(move || attention.upgrade().map(|event| event.signal()).is_some());
        }
        let bell = match driven {
            None => shared.watch_completer(&poller, COMPLETER),
            Some(_) => None,
        };
        if shared.is_inherited() {
            // The server's code has forked.
            return Err(Error::Inherited);
        }
        Ok(Self {
            shared: Arc::clone(shared),
            claim: Arc::clone(claim),
            poller,
            next: FIRST,
            handshakes: Handshakes::default(),
            channels: HashMap::new(),
            relief: Relief::new(shared.options.attending(), shared.posts.len()),
            driven,
            _bell: bell,
            look_in: None,
            changes: shared.server.changes(),
            ready: Vec::new(),
            bytes: vec![0; MAX_MESSAGE],
        })
    }

    /// Attends to clients until the server is stopped.
    pub(super) fn run(mut self) {
        while !self.shared.has_stopped() && !self.is_inherited() {
            self.attend(LONGEST_SLEEP);
        }
    }

    /// Waits at most `timeout` for connections and messages, and answers them.
    fn attend(&mut self, timeout: Duration) {
        if self.look_in.is_some() {
            self.collect();
            if self.is_inherited() {
                return;
            }
        }
        let mut ready = std::mem::take(&mut self.ready);
        let timeout = self.relief.sleeps(&self.shared, timeout);
        let timeout = self.look_in.map_or(timeout, |after| after.min(timeout));
        if self.poller.wait(Some(timeout), &mut ready).is_err() {
            std::thread::sleep(PAUSE);
        }
        let mut bytes = std::mem::take(&mut self.bytes);
        for token in ready.drain(..).map(|ready| ready.token) {
            if self.is_inherited() {
                return;
            }
            match token {
                LISTENER => self.accept(&mut bytes),
                ATTENTION => {
                    // If clearing fails, the thread only looks once more.
                    let _ = self.shared.attention.clear();
                }
                COMPLETER => self.collect(),
                token if self.handshakes.get(token).is_some() => self.hear_newcomer(token, &mut bytes),
                token => self.hear(token, &mut bytes),
            }
        }
        (self.ready, self.bytes) = (ready, bytes);
        if self.is_inherited() {
            return;
        }
        self.tell_changes();
        self.dismiss();
        if self.relief.look(&self.shared, &mut self.channels) {
            self.collect();
        }
        self.catch_up();
    }

    /// Catches up with what has changed for a program that drives the server, and is elsewhere.
    fn catch_up(&self) {
        let Some(poller) = &self.driven else { return };
        for post in &self.shared.posts {
            // The server's code, which is told of clients that have left, may have forked.
            if !self.is_inherited() {
                post.catch_up_for(poller);
            }
        }
    }

    /// Collects what the server's completer has, for workers that sleep or are in the server's code for long.
    fn collect(&mut self) {
        let shared = &self.shared;
        self.look_in = match shared.collect() {
            // There may be more.
            true => Some(Duration::ZERO),
            // A worker that goes to sleep from now on arms the completer itself.
            false if shared.sleepers.load(Ordering::SeqCst) == 0 || shared.is_inherited() => None,
            false => shared.arm_bell(),
        };
    }

    /// Whether this process is a child, made by fork, of the one that serves.
    fn is_inherited(&self) -> bool {
        self.shared.is_inherited()
    }

    fn accept(&mut self, bytes: &mut [u8]) {
        for accepted in 0..ACCEPTED {
            let socket = match self.claim.listener().accept() {
                Ok(Some(socket)) => socket,
                Ok(None) => return,
                // Most likely there are no descriptors left: a connection that has said nothing is ended to make room. But
                // if others were accepted just now, perhaps no connection waits any more.
                Err(_) => match self.handshakes.first_to_go() {
                    _ if accepted > 0 => return,
                    Some(token) => {
                        self.send_away(token, bytes);
                        continue;
                    }
                    None => return std::thread::sleep(PAUSE),
                },
            };
            if self.poller.add(&socket, self.next).is_err() {
                refuse(&socket, Ending::new(Reason::Busy, TOO_MANY));
                continue;
            }
            self.handshakes.add(self.next, socket);
            self.next += 1;
            while let Some(token) = self.handshakes.superfluous(self.shared.options.clients) {
                self.send_away(token, bytes);
            }
        }
    }

    /// Ends a connection that has said nothing.
    fn send_away(&mut self, token: u64, bytes: &mut [u8]) {
        // The client may have said something by now.
        self.hear_newcomer(token, bytes);
        self.refuse_newcomer(token, TOO_MANY);
    }

    /// Reads and answers the first message of a connection.
    fn hear_newcomer(&mut self, token: u64, bytes: &mut [u8]) {
        let Some(handshake) = self.handshakes.get(token) else { return };
        let received = match handshake.try_receive(bytes) {
            Ok(None) => return,
            Ok(Some(received)) if received.len > 0 => received,
            _ => return self.refuse_newcomer(token, "a message that can't be received came before a hello"),
        };
        let Some(socket) = self.handshakes.remove(token) else { return };
        let _ = self.poller.remove(&socket);
        let received = match unwanted::sift(received) {
            Ok(received) => received,
            Err(unusable) => return refuse(&socket, unusable.into()),
        };
        let message = Message::decode(&bytes[..received.len], received.descriptors.len(), Party::Client);
        let greeted = match message {
            Ok(Message::Query(())) => {
                let (status, traffic) = self.shared.status();
                tell(&socket, &Message::Status(status));
                tell(&socket, &Message::Traffic(traffic));
                return;
            }
            Ok(Message::Hello(hello)) => self.welcome(&hello, &socket, received),
            Ok(other) => {
                Err(Ending::new(Reason::Malformed, format!("a {:?} came before a hello", other.kind())))
            }
            Err(error) => Err(Ending::new(Reason::Malformed, error)),
        };
        match greeted {
            Err(ending) => refuse(&socket, ending),
            Ok((departure, post, trust, pool)) => {
                let session = Arc::clone(departure.session());
                let hard =
                    (self.most(trust, self.shared.options.hard_bytes), self.shared.options.hard_requests);
                if self.poller.add(&socket, token).is_ok() {
                    let (objects, arenas, answered) = (0, 0, None);
                    let channel = ClientChannel {
                        socket,
                        session,
                        departure,
                        post,
                        trust,
                        hard,
                        objects,
                        arenas,
                        pool,
                        answered,
                    };
                    self.channels.insert(token, channel);
                } else {
                    self.leave(&departure, post);
                }
            }
        }
    }

    fn refuse_newcomer(&mut self, token: u64, why: &str) {
        if let Some(socket) = self.handshakes.remove(token) {
            let _ = self.poller.remove(&socket);
            refuse(&socket, Ending::new(Reason::Busy, why));
        }
    }

    /// How many of the `allowed` bytes a client may have pending: copied data must also fit into the server's private
    /// memory.
    fn most(&self, trust: Trust, allowed: usize) -> usize {
        match trust {
            Trust::Copied => allowed.min(self.shared.options.hard_pool),
            Trust::Mapped => allowed,
        }
    }

    /// Makes a connection a session.
    fn welcome(
        &mut self,
        hello: &Hello,
        socket: &Socket,
        received: Received,
    ) -> Result<(Arc<Departure>, usize, Trust, Pool), Ending> {
        let shared = Arc::clone(&self.shared);
        let options = &shared.options;
        if !(hello.version_min..=hello.version_max).contains(&VERSION) {
            let sentence = format!("this server speaks version {VERSION} only; update the older side");
            return Err(Ending::new(Reason::Version, sentence));
        }
        let post = self.vacant_post().ok_or_else(|| {
            Ending::new(Reason::Busy, format!("the server has {} clients already", self.channels.len()))
        })?;
        if cgroup::ensure_room(options.rings.bytes() + TAKEN).is_err() {
            return Err(Ending::new(Reason::Busy, NO_ROOM));
        }
        let peer = socket.peer().map_err(Ending::exhausted)?;
        Shares::of(&self.channels, None, peer.uid).client(socket, options.clients)?;
        let trust = shared.trust(hello.untrusted);
        if Pid::from_raw(peer.pid).is_none() {
            let sentence = "the client is in a process that this one can't see";
            return Err(Ending::new(Reason::Permission, sentence));
        }
        let granted = Granted {
            bytes: (hello.limits.pending_bytes as usize).min(self.most(trust, options.pending_bytes)),
            requests: hello.limits.pending_requests.min(options.pending_requests).clamp(1, MOST_REQUESTS),
            abort_timeout: options.abort_timeout,
        };
        let lifeline = received.descriptors.into_iter().next();
        let lifeline =
            lifeline.ok_or_else(|| Ending::new(Reason::Malformed, "a hello without a lifeline"))?;
        let lifeline = checked_lifeline(lifeline)?;
        let (base, len) = (hello.alias_base as usize, hello.alias_len as usize);
        let together = (Arc::clone(&self.shared.spent), options.pools);
        let allowance = Allowance::elsewhere(options.kept, together.clone());
        let private = match trust {
            Trust::Copied => Some(self.private(socket, base, len, &allowance)?),
            Trust::Mapped => None,
        };
        let arenas = self.arenas(hello, lifeline)?;
        let most = if trust == Trust::Copied { 0 } else { options.pool.max(options.hard_pool) };
        let mut pool = Pool::new(hello.granule, hello.mixed, most, together);
        let lent = pool.lend_first(options.pool);
        let rings = genie_ring::create(options.rings).map_err(Ending::exhausted)?;
        let (own, theirs) = Event::pair().map_err(Ending::exhausted)?;
        let ends = Ends::attach(&rings, options.rings, Side::Server, Bells::end(own));
        let ends = ends.map_err(Ending::exhausted)?;
        let terms = Terms {
            client: Client::new(peer.pid as u32, peer.uid, hello.name.clone()),
            mapping: options.mapping,
            granted,
            services: shared.server.services().to_vec(),
            allowance,
            private,
        };
        self.next += 1;
        let session = Arc::new(Session::new(terms, arenas, ends.producer));
        let limits = Limits { pending_bytes: granted.bytes as u64, pending_requests: granted.requests };
        let lens = lent.iter().map(|object| object.len() as u64).collect();
        let welcome = shared.welcome(limits, trust, lens);
        let mut descriptors: Vec<BorrowedFd<'_>> = vec![rings.as_fd(), theirs.as_fd()];
        descriptors.extend(lent.iter().map(AsFd::as_fd));
        answer(socket, &Message::Welcome(welcome), &descriptors, "the client does not take its welcome")?;
        shared.sessions.lock().push(Arc::clone(&session));
        telemetry::arrived(&shared.name, session.client());
        let departure = Departure::new(&shared.server, &session);
        let ring = ClientRing {
            departure: Arc::clone(&departure),
            session,
            consumer: ends.consumer,
            record: Record::new(),
            view: ArenaView::default(),
            awaited: 0,
            waiting: VecDeque::new(),
            asked: shared.looks.load(Ordering::Relaxed),
        };
        shared.posts[post].leave([ring]);
        Ok((departure, post, trust, pool))
    }

    /// Makes the arenas through which the client's memory will be seen.
    fn arenas(&self, hello: &Hello, lifeline: OwnedFd) -> Result<Arenas, Ending> {
        let options = &self.shared.options;
        let quota = Quota::new(options.addresses, options.mapped);
        let (base, len) = (hello.alias_base as usize, hello.alias_len as usize);
        let granule = if hello.mixed { GranuleKind::Base } else { hello.granule };
        let own = Mirror::new(base, len, granule, options.mapping, lifeline, &quota);
        let own = own.map_err(|error| Ending::of(Reason::Granule, &error))?;
        Ok(Arenas::new(own, options.mapping, quota))
    }

    /// How data of the client at the other end of `socket` is copied.
    fn private(
        &self,
        socket: &Socket,
        base: usize,
        len: usize,
        allowance: &Arc<Allowance>,
    ) -> Result<Private, Ending> {
        let client = socket.peer_process().map_err(Ending::exhausted)?;
        let options = &self.shared.options;
        // More than the machine has would only take addresses.
        let most = usize::try_from(machine::total_memory()).unwrap_or(usize::MAX);
        let (bytes, kept) = (options.hard_pool.min(most), options.kept.min(options.pools).min(most));
        if bytes == 0 {
            return Err(Ending::new(Reason::Trust, "this server has no memory for data that is copied"));
        }
        // What is kept stays there.
        let space = private::space(bytes.saturating_add(kept), bytes / 2);
        let space = space.map_err(Ending::exhausted)?;
        Ok(Private { client, base, len, space, allowance: Arc::clone(allowance) })
    }

    /// The worker that a new client gets.
    fn vacant_post(&self) -> Option<usize> {
        if self.channels.len() >= self.shared.options.clients {
            return None;
        }
        self.relief.next(&self.shared, &self.channels)
    }

    /// Reads a client's message and acts upon it.
    fn hear(&mut self, token: u64, bytes: &mut [u8]) {
        let Some(channel) = self.channels.get(&token) else { return };
        let received = match channel.socket.try_receive(bytes) {
            Ok(None) => return,
            Ok(Some(received)) if received.len > 0 => received,
            Ok(Some(_)) => return self.end(token, Ending::new(Reason::Closing, "the client hung up")),
            Err(error) => return self.end(token, Ending::new(Reason::Closing, error)),
        };
        let shares = Shares::of(&self.channels, Some(token), channel.session.client().uid);
        let Some(channel) = self.channels.get_mut(&token) else { return };
        match channel.act(&self.shared, bytes, received, &shares) {
            Ok(()) if channel.session.has_heard_one() => self.shared.posts[channel.post].notify(),
            Ok(()) => {}
            Err(ending) => self.end(token, ending),
        }
    }

    /// Tells clients that have answers about layouts that these have changed, if the server has said so since the last time.
    fn tell_changes(&mut self) {
        let changes = self.shared.server.changes();
        if std::mem::replace(&mut self.changes, changes) == changes {
            return;
        }
        let told = self.channels.iter_mut().map(|(token, channel)| (*token, channel.tell(changes)));
        let deaf: Vec<_> = told.filter_map(|(token, told)| Some((token, told.err()?))).collect();
        for (token, ending) in deaf {
            self.end(token, ending);
        }
    }

    /// Ends channels whose clients broke the rules, and connections that said no hello in time.
    fn dismiss(&mut self) {
        for token in self.handshakes.late() {
            self.refuse_newcomer(token, "no hello came in time");
        }
        let gone = self.channels.iter().filter(|(_, channel)| channel.session.is_gone());
        let gone: Vec<(u64, Option<String>)> =
            gone.map(|(t, channel)| (*t, channel.session.wrong())).collect();
        for (token, wrong) in gone {
            let sentence = wrong.unwrap_or_else(|| "the channel is over".to_owned());
            self.end(token, Ending::new(Reason::Malformed, sentence));
        }
    }

    /// Ends a channel: tells the client, if it still listens, and evicts its pending requests.
    fn end(&mut self, token: u64, ending: Ending) {
        let Some(channel) = self.channels.remove(&token) else { return };
        let _ = self.poller.remove(&channel.socket);
        tell(&channel.socket, &Message::Goodbye(ending));
        channel.socket.hang_up();
        // What the client has sent meanwhile is read and dropped: otherwise the kernel resets the connection, and the client
        // never reads why the channel has ended. After the hang-up no more can come.
        while let Ok(Some(received)) = channel.socket.try_receive(&mut [0; 1])
            && received.len > 0
        {
            let _ = unwanted::sift(received);
        }
        self.leave(&channel.departure, channel.post);
    }

    fn leave(&self, client: &Arc<Departure>, post: usize) {
        let session = client.session();
        session.end(None);
        self.shared.posts[post].notify();
        self.shared.remove(session);
        telemetry::departed(&self.shared.name, session.client(), session.wrong().as_deref());
        self.shared.evictions.evict(session.all(), client);
    }
}
