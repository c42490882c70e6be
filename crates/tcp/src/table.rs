//! Many connections: which one a segment is for, which one has something to send, and whose time has come.
//!
//! How: a hash of both ends finds the connection (the standard library's, keyed, so that nobody can make all of them meet). Connections that
//! may have something to send stand in a queue, and each sends one segment in turn. Timers are a sorted set, in which a connection has one entry
//! that is never later than its next timeout.
//! Limits: answers to segments that belong to no connection wait in a queue of [`STRAY_MOST`]; beyond that they are dropped.
//! Source: RFC 9293 §3.10.7.1 and §3.10.7.2; RFC 6191 and RFC 9293 §3.6.1 for SYNs in TIME-WAIT; RFC 6056 §3.3.3 for ports.

mod listening;

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use crate::config::Config;
use crate::connection::{Connection, Origin, State};
use crate::event::Event;
use crate::isn::Secret;
use crate::listener::Listener;
use crate::payload::Payload;
use crate::segment::{Header, Path, Segment, reset_for};
use crate::sequence::Seq;
use crate::timers::Time;

/// Answers to strangers that wait to be sent.
const STRAY_MOST: usize = 64;

/// A connection of a table. It is never used again for another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id(u64);

/// A segment that is to be sent, and what its IP header is to say.
#[derive(Debug, Clone)]
pub struct Outgoing<P> {
    /// From where to where.
    pub path: Path,
    /// How many routers it may pass.
    pub hop_limit: u8,
    /// Its Differentiated Services field.
    pub dscp: u8,
    /// The segment.
    pub segment: Segment<P>,
}

/// Why a table does not open a connection, or listen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// An end is no single host's address and port, or the two are of different families (MUST-46).
    #[error(
        "{0} to {1} is no path between two hosts: give two addresses of one family, neither of many hosts, and ports"
    )]
    NoPath(SocketAddr, SocketAddr),
    /// There is a connection between these two ends, which may linger in TIME-WAIT.
    #[error("there is a connection from {0} to {1} already, which may linger: take another port")]
    PathInUse(SocketAddr, SocketAddr),
    /// Something listens there.
    #[error("something listens at {0} already")]
    PortInUse(SocketAddr),
    /// Each port of the range leads to a connection that there is.
    #[error("all ports from {first} on to {remote} are in use")]
    NoPort {
        /// The first port that was tried.
        first: u16,
        /// The peer.
        remote: SocketAddr,
    },
}

/// What a table has done with segments that belong to no connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counted {
    /// Resets that were sent.
    pub resets: u64,
    /// Cookies that were sent.
    pub cookies: u64,
    /// Connections that cookies have made.
    pub tasted: u64,
    /// SYNs that were dropped, since too many connections wait to be accepted.
    pub dropped: u64,
    /// Segments that were ignored: from or to an address that is no single host's.
    pub ignored: u64,
}

#[derive(Debug)]
struct Row<P> {
    connection: Connection<P>,
    path: Path,
    /// The listener where it waits to be established, or accepted.
    listener: Option<SocketAddr>,
    /// Whether the client has let go of it.
    released: bool,
    ready: bool,
    told: bool,
    /// The time of its entry among the timers.
    scheduled: Option<Time>,
}

impl<P: Payload> Row<P> {
    fn schedule(&mut self, id: Id, timers: &mut BTreeSet<(Time, Id)>) {
        if let Some(next) = self.connection.next_timeout()
            && self.scheduled.is_none_or(|at| next < at)
        {
            if let Some(later) = self.scheduled.replace(next) {
                timers.remove(&(later, id));
            }
            timers.insert((next, id));
        }
    }
}

/// Connections and listeners.
#[derive(Debug)]
pub struct Table<P> {
    secret: Secret,
    rows: HashMap<Id, Box<Row<P>>>,
    paths: HashMap<Path, Id>,
    listeners: HashMap<SocketAddr, Listener>,
    timers: BTreeSet<(Time, Id)>,
    /// Connections that may have something to send.
    ready: VecDeque<Id>,
    /// Connections that have something to tell.
    told: VecDeque<Id>,
    stray: VecDeque<(Path, Header)>,
    next_id: u64,
    next_port: u16,
    counted: Counted,
}

impl<P: Payload> Table<P> {
    /// An empty one.
    pub fn new(secret: Secret) -> Self {
        Self {
            secret,
            rows: HashMap::new(),
            paths: HashMap::new(),
            listeners: HashMap::new(),
            timers: BTreeSet::new(),
            ready: VecDeque::new(),
            told: VecDeque::new(),
            stray: VecDeque::new(),
            next_id: 0,
            next_port: 0,
            counted: Counted::default(),
        }
    }

    /// What it has done with segments that belong to no connection.
    pub fn counted(&self) -> Counted {
        self.counted
    }

    /// How many connections there are, those that linger included.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Opens a connection. Which of this host's addresses it has is for the caller to say, who knows its routes.
    ///
    /// # Errors
    /// When there is no such path, or a connection on it.
    pub fn connect(&mut self, path: Path, config: Arc<Config>, now: Time) -> Result<Id, Refused> {
        if !path.is_between_hosts() {
            return Err(Refused::NoPath(path.local, path.remote));
        } else if self.paths.contains_key(&path) {
            return Err(Refused::PathInUse(path.local, path.remote));
        }
        let origin = self.origin(&path, now);
        Ok(self.add(path, Connection::connect(config, origin, now), None))
    }

    /// A port from which `local` can connect to `remote`, one of 49152 and up: hard to guess, and not used again soon (RFC 6056, algorithm 3).
    ///
    /// # Errors
    /// When each leads to a connection already.
    pub fn free_port(&mut self, local: IpAddr, remote: SocketAddr) -> Result<u16, Refused> {
        const FIRST: u16 = 49152;
        let offset = self.secret.hash(3, (local, remote)) as u16;
        for _ in FIRST..=u16::MAX {
            self.next_port = self.next_port.wrapping_add(1);
            let port = FIRST + offset.wrapping_add(self.next_port) % (u16::MAX - FIRST);
            let path = Path { local: (local, port).into(), remote };
            if !self.paths.contains_key(&path) && !self.listeners.contains_key(&path.local) {
                return Ok(port);
            }
        }
        Err(Refused::NoPort { first: FIRST, remote })
    }

    fn origin(&self, path: &Path, now: Time) -> Origin {
        Origin {
            v6: path.is_v6(),
            iss: self.secret.initial_sequence(path, now),
            timestamp_offset: self.secret.timestamp_offset(path),
        }
    }

    fn add(&mut self, path: Path, connection: Connection<P>, listener: Option<SocketAddr>) -> Id {
        let id = Id(self.next_id);
        self.next_id += 1;
        let row =
            Row { connection, path, listener, released: false, ready: false, told: false, scheduled: None };
        self.rows.insert(id, Box::new(row));
        self.paths.insert(path, id);
        self.refresh(id);
        id
    }

    /// A connection, to be looked at.
    pub fn get(&self, id: Id) -> Option<&Connection<P>> {
        self.rows.get(&id).map(|row| &row.connection)
    }

    /// Between which ends a connection is.
    pub fn path(&self, id: Id) -> Option<Path> {
        self.rows.get(&id).map(|row| row.path)
    }

    /// Does something with a connection, after which it may have something to send. `None` if there is no such connection any more.
    pub fn with<R>(&mut self, id: Id, act: impl FnOnce(&mut Connection<P>) -> R) -> Option<R> {
        let result = act(&mut self.rows.get_mut(&id)?.connection);
        self.refresh(id);
        Some(result)
    }

    /// The client has no more to do with a connection: it ends by itself, if it was closed, and is forgotten then. One that was not is
    /// aborted. References that it still has are dropped.
    pub fn release(&mut self, id: Id, now: Time) {
        let Some(row) = self.rows.get_mut(&id) else { return };
        row.released = true;
        if row.connection.state().sends() {
            row.connection.abort(now)
        } else {
            row.connection.close(now)
        }
        self.refresh(id);
    }

    /// Takes a segment that has come over `path` (seen from here), whose checksum is right.
    ///
    /// Call it for all that have come before [`poll_transmit`](Self::poll_transmit), so that they are acknowledged together (MUST-59).
    pub fn on_segment(&mut self, path: Path, segment: &Segment<P>, now: Time) {
        let earliest = match self.find(&path, segment) {
            Ok(id) => {
                self.with(id, |connection| connection.on_segment(segment, now));
                return;
            }
            Err(earliest) => earliest,
        };
        if !path.is_between_hosts() {
            self.counted.ignored += 1;
        } else if !self.on_segment_at_listener(path, segment, earliest, now)
            && let Some(reset) = reset_for(segment)
        {
            self.counted.resets += 1;
            self.answer(path, reset);
        }
    }

    /// Takes a segment whose checksum is yet to be verified: see [`Connection::on_unverified`].
    pub fn on_unverified(&mut self, path: Path, segment: &Segment<P>, now: Time) -> bool {
        let id = self.paths.get(&path).copied();
        id.and_then(|id| self.with(id, |it| it.on_unverified(segment, now))).unwrap_or(false)
    }

    /// The connection that a segment is for. If it begins a new one where an old one lingers, that one ends, and this says from where on the
    /// new one may number its bytes.
    fn find(&mut self, path: &Path, segment: &Segment<P>) -> Result<Id, Option<Seq>> {
        let id = *self.paths.get(path).ok_or(None)?;
        let yields = self.rows[&id].connection.yields_to(&segment.header);
        if yields && self.listener_of(path).is_some() {
            self.paths.remove(path);
            return Err(self.with(id, Connection::yield_now));
        }
        Ok(id)
    }

    fn answer(&mut self, path: Path, header: Header) {
        if self.stray.len() < STRAY_MOST {
            self.stray.push_back((path, header));
        }
    }

    /// A connection may have changed: it may have something to send and to tell, another timeout, or be over.
    fn refresh(&mut self, id: Id) {
        let Some(row) = self.rows.get_mut(&id) else { return };
        if !std::mem::replace(&mut row.ready, true) {
            self.ready.push_back(id);
        }
        if row.connection.has_events() && !std::mem::replace(&mut row.told, true) {
            self.told.push_back(id);
        }
        row.schedule(id, &mut self.timers);
        row.move_on(id, &mut self.listeners);
    }

    /// The next segment to be sent, if there is one.
    pub fn poll_transmit(&mut self, now: Time) -> Option<Outgoing<P>> {
        if let Some((path, header)) = self.stray.pop_front() {
            let Config { hop_limit, dscp, .. } = Config::default();
            return Some(Outgoing { path, hop_limit, dscp, segment: Segment::bare(header) });
        }
        while let Some(id) = self.ready.pop_front() {
            let Some(row) = self.rows.get_mut(&id) else { continue };
            if let Some(segment) = row.connection.poll_transmit(now) {
                let Config { hop_limit, dscp, .. } = **row.connection.config();
                let path = row.path;
                self.ready.push_back(id);
                row.schedule(id, &mut self.timers);
                return Some(Outgoing { path, hop_limit, dscp, segment });
            }
            row.ready = false;
            row.schedule(id, &mut self.timers);
            self.forget_if_over(id);
        }
        None
    }

    /// A connection that is over, and has nothing more to send, is no longer found; if its client has let go of it, it is forgotten.
    fn forget_if_over(&mut self, id: Id) {
        let Entry::Occupied(mut found) = self.rows.entry(id) else { return };
        let row = found.get_mut();
        if row.connection.state() != State::Closed {
            return;
        }
        if let Entry::Occupied(entry) = self.paths.entry(row.path)
            && *entry.get() == id
        {
            entry.remove();
        }
        if let Some(at) = row.scheduled.take() {
            self.timers.remove(&(at, id));
        }
        if row.released {
            found.remove();
        }
    }

    /// What has happened at a connection that the client knows.
    pub fn poll_event(&mut self) -> Option<(Id, Event)> {
        loop {
            let id = *self.told.front()?;
            let row = self.rows.get_mut(&id);
            if let Some(row) = row {
                if row.listener.is_none()
                    && !row.released
                    && let Some(event) = row.connection.poll_event()
                {
                    return Some((id, event));
                }
                row.told = false;
            }
            self.told.pop_front();
        }
    }

    /// How many timers run.
    pub fn timers(&self) -> usize {
        self.timers.len()
    }

    /// When [`on_timeout`](Self::on_timeout) is to be called next. It may turn out that nothing was due.
    pub fn next_timeout(&self) -> Option<Time> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Does what is due by now.
    pub fn on_timeout(&mut self, now: Time) {
        while let Some(&(at, id)) = self.timers.first()
            && at <= now
        {
            self.timers.pop_first();
            if let Some(row) = self.rows.get_mut(&id) {
                row.scheduled = None;
                row.connection.on_timeout(now);
            }
            self.refresh(id);
        }
    }
}
