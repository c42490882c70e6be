//! Connecting: how a client gets a channel to a server.
//!
//! How: the client sends a hello over the control socket, and the server answers with a welcome. Then both sides attach the
//! rings, the client's space takes in the server's pool, and a thread watches the socket.
//! Trust: a server's descriptors are checked as a client's are, and a server can't lend more memory than the client allows.
//! An untrusted client does not connect to a server that maps its clients' memory.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use genie_io::carrier::{Followers, deadline_after, run_waiting};
use genie_io::{Error, Interface, ServerHandle};
use genie_memory::{LenderId, Space};
use genie_passing::Parties;
use genie_ring::{Bells, Ends, Record, Side, Spin};
use genie_sys::event::Event;
use genie_sys::socket::Socket;
use genie_sys::{Errno, Object};

use super::announce::Announcements;
use super::directory::Directory;
use super::growth;
use super::in_progress::MOST_REQUESTS;
use super::link::{Link, PATIENCE};
use super::receiving::Receiving;
use super::remote::{Remote, Sending};
use super::stand_ins::StandIns;
use super::table::Table;
use super::unwanted::{self, Unusable};
use super::wire::control::{
    Ending, Hello, Limits, MAX_MESSAGE, Message, Party, Reason, Status, Traffic, Trust, VERSION, Welcome,
};
use super::wire::record::Body;
use super::{sharing, telemetry};
use crate::primitive::{AtomicBool, Mutex, spawn, thread};

/// How a client wants to be connected. Defaults are in parentheses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectOptions {
    /// What the server calls this client in its status (the program's name).
    pub name: String,
    /// Bytes that the client would like to have pending (1 GiB); the server may grant fewer.
    pub pending_bytes: usize,
    /// Requests that the client would like to have pending (256); the server may grant fewer.
    pub pending_requests: u32,
    /// Announces no memory to the server (false): the kernel copies data, and the server sees nothing else. Client and server
    /// must be different processes; within one, requests with data fail.
    pub untrusted: bool,
    /// t_m: from which length on output by emulated copy may show the server the client's own memory, with whatever else lies
    /// in the same memory object (0: wherever that is faster); shorter output is copied to the server's pool. Share and move
    /// show the client's memory at any length.
    pub shown_from: usize,
    /// The most bytes that the server may lend: the rings and the pool, which are mapped at once (1 GiB).
    pub lent: usize,
    /// How long a thread looks for a reply before it sleeps. With `None`, the default, it looks about as long as waking it would
    /// take, which the interface measures when it is made.
    pub spin: Option<Duration>,
    /// How long to wait for a server of this name that is not there yet, or is busy (0).
    pub wait: Duration,
    /// How long a server may take to answer (5 seconds), each time that this client asks it to connect.
    pub timeout: Duration,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            name: genie_io::carrier::program_name(),
            pending_bytes: 1 << 30,
            pending_requests: 256,
            untrusted: false,
            shown_from: 0,
            lent: 1 << 30,
            spin: None,
            wait: Duration::ZERO,
            timeout: PATIENCE,
        }
    }
}

/// Connecting an [`Interface`] to servers in other processes.
pub trait Connect {
    /// Connects to a server in another process, by its name in the run-time directory.
    ///
    /// ```no_run
    /// # mod genie { pub use genie_channel::Connect; pub use genie_io::*; }
    /// use genie::{Connect, Interface};
    ///
    /// let genie = Interface::open()?;
    /// let bits = genie.connect("bits")?;
    /// let zeros = bits.service("zeros")?;
    /// # Ok::<(), genie::Error>(())
    /// ```
    ///
    /// # Errors
    /// There is no such server, it refuses, or there is no memory for its pool.
    fn connect(&self, server: &str) -> Result<ServerHandle, Error>;

    /// The same as [`Connect::connect`], with a directory and options.
    ///
    /// # Errors
    /// As [`Connect::connect`].
    fn connect_with(
        &self,
        directory: &Directory,
        server: &str,
        options: &ConnectOptions,
    ) -> Result<ServerHandle, Error>;
}

impl Connect for Interface {
    fn connect(&self, server: &str) -> Result<ServerHandle, Error> {
        self.connect_with(&Directory::open()?, server, &ConnectOptions::default())
    }

    fn connect_with(
        &self,
        directory: &Directory,
        server: &str,
        options: &ConnectOptions,
    ) -> Result<ServerHandle, Error> {
        if self.space().is_inherited() {
            return Err(Error::Inherited);
        }
        self.attach(connect(self.space(), directory, server, self.passing().costs().spin(), options)?)
    }
}

/// How long to wait before the next look for a server: twice as long as before the last one, between these.
const LOOKS: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(20)];

/// Connects to the server of this name, waiting for it as long as the options say; requests to it pass data of `space`.
fn connect(
    space: &Space,
    directory: &Directory,
    server: &str,
    spin: Duration,
    options: &ConnectOptions,
) -> Result<Arc<Remote>, Error> {
    let deadline = deadline_after(options.wait);
    let [mut pause, longest] = LOOKS;
    loop {
        let left = deadline.map_or(longest, |deadline| deadline.saturating_duration_since(Instant::now()));
        match connect_now(space, directory, server, spin, options) {
            Err(Error::NoServer { .. } | Error::Busy { .. } | Error::Gone { .. }) if !left.is_zero() => {
                thread::sleep(pause.min(left));
                pause = longest.min(2 * pause);
            }
            connected => {
                telemetry::connected(server, connected.as_ref().err());
                return connected;
            }
        }
    }
}

fn connect_now(
    space: &Space,
    directory: &Directory,
    server: &str,
    spin: Duration,
    options: &ConnectOptions,
) -> Result<Arc<Remote>, Error> {
    let path = directory.socket_path(server)?;
    let mut socket = dial(&path, server)?;
    // A child of this process's would keep the connection open when the process dies.
    socket.unshare();
    let (lifeline, held) = Socket::pair()?;
    let hello = Hello {
        version_min: VERSION,
        version_max: VERSION,
        name: options.name.clone(),
        pid: std::process::id(),
        granule: space.granule_kind(),
        mixed: space.small().is_some(),
        alias_base: space.aliases_base() as u64,
        alias_len: space.aliases_len() as u64,
        untrusted: options.untrusted,
        limits: Limits {
            pending_bytes: options.pending_bytes as u64,
            pending_requests: options.pending_requests,
        },
    };
    let gone = |why: String| Error::gone(server, why).unasked();
    let sent = socket.send(&Message::Hello(hello).encode()?, &[std::os::fd::AsFd::as_fd(&held)]);
    sent.map_err(|error| left(server, error))?;
    drop(held);
    let (message, descriptors) = receive(&socket, server, options.timeout)?;
    let welcome = match message {
        Message::Welcome(welcome) => welcome,
        Message::Refused(ending) => return Err(ended(server, ending)),
        other => return Err(gone(format!("it answered a hello by a {:?}", other.kind()))),
    };
    check(&welcome, options).map_err(|why| refused(server, why))?;
    let mut descriptors = descriptors.into_iter();
    let (Some(rings), Some(bell)) = (descriptors.next(), descriptors.next()) else {
        return Err(gone("its welcome came without descriptors".to_owned()));
    };
    let bell = Event::try_from_descriptor(bell)?;
    let watched = Event::try_from_descriptor(bell.duplicate()?)?;
    let bells = Bells::end(bell);
    let ends = Ends::attach(&Object::accept(rings)?, welcome.rings, Side::Client, bells);
    let ends = ends.map_err(|error| match error {
        genie_ring::Error::System(error) => error.into(),
        wrong => gone(wrong.to_string()),
    })?;
    let lent = lend(descriptors, &welcome.pool)?;
    let lender = space.add_lender();
    let bytes = [false, true]
        .map(|small| lent.iter().map(Object::len).filter(|len| growth::is_small(space, *len) == small).sum());
    let is_mapped = welcome.trust == Trust::Mapped;
    let joined = lent
        .into_iter()
        .try_for_each(|object| Ok(sharing::lend(space, lender, object)?))
        .and_then(|()| Link::new(server.to_owned(), socket, lifeline, bytes))
        .and_then(|link| {
            let spin = options.spin.unwrap_or(spin);
            // A server that maps nothing is shown nothing, wherever the data is.
            let sees = if is_mapped { lender } else { LenderId::OWN };
            let parties = Parties { shown_from: options.shown_from, ..Parties::by(sees) };
            let remote = remote(space, parties, spin, welcome, (ends, watched), link);
            let (link, watched, space) = (Arc::clone(&remote.link), Arc::downgrade(&remote), space.clone());
            spawn("genie-link", move || {
                link.watch(&watched, &space, lender);
                drop((link, watched, space));
                run_waiting();
            })?;
            Ok(remote)
        });
    let remote = joined.inspect_err(|_: &Error| space.remove_lender(lender))?;
    if is_mapped {
        let link = Arc::downgrade(&remote.link);
        space.on_loss(lender, move || {
            let took = "it took memory away that it had lent, or that it could store into";
            link.upgrade().iter().for_each(|link| link.break_off(took));
        });
        let small = space.small().map(|small| (small.clone(), true));
        let stand_ins = StandIns::default();
        for (space, is_small) in std::iter::once((space.alone(), false)).chain(small) {
            let (watched, stand_ins) = (Arc::downgrade(&remote), stand_ins.clone());
            space.on_shortage(lender, move |lacking| {
                if let Some(remote) = watched.upgrade() {
                    remote.link.want_pool(lacking, is_small);
                    stand_ins.watch(&watched);
                }
            });
        }
    }
    Ok(remote)
}

/// Connects to the socket of the server of this name.
fn dial(path: &Path, server: &str) -> Result<Socket, Error> {
    Socket::connect(path).map_err(|error| match error.errno {
        Errno::NOENT | Errno::CONNREFUSED => {
            Error::NoServer { server: server.to_owned(), why: error.to_string() }
        }
        Errno::AGAIN => Error::Busy { server: server.to_owned(), why: error.to_string() },
        Errno::ACCESS | Errno::PERM | Errno::PROTOTYPE => refused(server, error.to_string()),
        _ => error.into(),
    })
}

/// The error for a server with which nothing can be exchanged: most likely it has gone in the middle of it.
fn left(server: &str, error: genie_sys::Error) -> Error {
    match error.errno {
        Errno::PIPE | Errno::CONNRESET => Error::gone(server, error.to_string()).unasked(),
        _ => error.into(),
    }
}

/// The error for a server that has ended the handshake.
fn ended(server: &str, ending: Ending) -> Error {
    match ending.reason {
        Reason::Busy => Error::Busy { server: server.to_owned(), why: ending.sentence },
        Reason::Closing => Error::gone(server, ending.sentence).unasked(),
        _ => refused(server, ending.sentence),
    }
}

fn refused(server: &str, why: String) -> Error {
    Error::Refused { server: server.to_owned(), why }
}

/// Whether the client can have what a server offers; an error says why not.
fn check(welcome: &Welcome, options: &ConnectOptions) -> Result<(), String> {
    let is_silent = welcome.trust == Trust::Copied;
    if options.untrusted && !(is_silent && welcome.pool.is_empty()) {
        return Err("it would share memory with a client that shares none".to_owned());
    }
    if welcome.limits.pending_requests == 0 {
        return Err("it grants no requests".to_owned());
    }
    let layout = welcome.rings;
    layout.check().map_err(|error| error.to_string())?;
    let lent = welcome.pool.iter().fold(layout.bytes() as u64, |sum, len| sum.saturating_add(*len));
    if lent > options.lent as u64 {
        return Err(format!("it lends {lent} bytes, and the client allows {}", options.lent));
    }
    Ok(())
}

/// The pool's objects, each of the length that the welcome gives.
fn lend(descriptors: impl Iterator<Item = OwnedFd>, lens: &[u64]) -> Result<Vec<Object>, Error> {
    let accept = |(descriptor, len): (OwnedFd, &u64)| {
        let object = Object::accept(descriptor)?;
        match object.len() as u64 == *len {
            true => Ok(object),
            false => {
                let (start, len) = (0, object.len());
                let what = "it is in a pool, and is not as long as the server says";
                Err(genie_memory::Error::Announced { start, len, what }.into())
            }
        }
    };
    descriptors.zip(lens).map(accept).collect()
}

fn remote(
    space: &Space,
    parties: Parties,
    spin: Duration,
    welcome: Welcome,
    (ends, bell): (Ends, Event),
    link: Link,
) -> Arc<Remote> {
    let link = Arc::new(link);
    let announcements = Announcements::new(space.clone(), &link, parties.lender, welcome.trust);
    let limit = usize::try_from(welcome.limits.pending_bytes).unwrap_or(usize::MAX);
    Arc::new(Remote {
        name: welcome.name,
        services: welcome.services,
        parties,
        is_silent: welcome.trust == Trust::Copied,
        space: space.clone(),
        spin: Spin::new(spin),
        record_max: ends.producer.record_max(),
        bell,
        sending: Mutex::new(Sending {
            producer: ends.producer,
            table: Table::new(welcome.limits.pending_requests.min(MOST_REQUESTS), limit),
            announcements,
            told: 0,
            body: Body::new(),
            aborts: Vec::new(),
        }),
        is_untold: AtomicBool::new(false),
        waker: ends.consumer.waker(),
        receiving: Mutex::new(Receiving { consumer: ends.consumer, record: Record::new() }),
        followers: Followers::default(),
        is_tended: AtomicBool::new(false),
        wants_bell: AtomicBool::new(false),
        is_accepting: AtomicBool::new(false),
        link,
    })
}

/// Receives one message within the time that a server may take.
fn receive(socket: &Socket, server: &str, timeout: Duration) -> Result<(Message, Vec<OwnedFd>), Error> {
    let gone = |why: String| Error::gone(server, why).unasked();
    let mut bytes = vec![0; MAX_MESSAGE];
    let received = socket.receive_timeout(&mut bytes, timeout).map_err(|error| left(server, error))?;
    let received = received.ok_or_else(|| Error::Silent { server: server.to_owned(), timeout })?;
    if received.len == 0 {
        return Err(gone("it hung up during the handshake".to_owned()));
    }
    let received = unwanted::sift(received).map_err(|unusable| match unusable {
        Unusable::Wrong(wrong) => gone(wrong.to_owned()),
        Unusable::Short => {
            let subject = format!("the descriptors that server {server} sent");
            genie_sys::Error::new("recvmsg", subject, Errno::MFILE).into()
        }
    })?;
    let message = Message::decode(&bytes[..received.len], received.descriptors.len(), Party::Server);
    Ok((message.map_err(|error| gone(error.to_string()))?, received.descriptors))
}

/// Asks the server of this name how it is; the answer follows on the connection.
pub(super) fn query(directory: &Directory, server: &str) -> Result<Socket, Error> {
    let socket = dial(&directory.socket_path(server)?, server)?;
    socket.send(&Message::Query(()).encode()?, &[]).map_err(|error| left(server, error))?;
    Ok(socket)
}

/// The first message of the answer.
pub(super) fn hear_status(socket: &Socket, server: &str, patience: Duration) -> Result<Status, Error> {
    match receive(socket, server, patience)?.0 {
        Message::Status(status) => Ok(status),
        Message::Refused(ending) => Err(ended(server, ending)),
        other => Err(strange(server, &other)),
    }
}

/// Both messages of the answer.
pub(super) fn hear_traffic(
    socket: &Socket,
    server: &str,
    patience: Duration,
) -> Result<(Status, Traffic), Error> {
    let status = hear_status(socket, server, patience)?;
    match receive(socket, server, patience)?.0 {
        Message::Traffic(traffic) if traffic.clients.len() == status.clients.len() => Ok((status, traffic)),
        other => Err(strange(server, &other)),
    }
}

fn strange(server: &str, answer: &Message) -> Error {
    Error::gone(server, format!("it answered a query by a {:?}", answer.kind())).unasked()
}
