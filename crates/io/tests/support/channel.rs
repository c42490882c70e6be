//! The transport over channels: the client is here, both servers are in another process.
//!
//! How: client and server have names of their own for requests. The other process knows a request by the order of arrival;
//! this process knows it by its number among the interface's requests. That is the next number whenever a test asks for the
//! holder's handle in order to make a request.
//! Limits: requests to the holder must be made by one thread, each as soon as it has the handle.

use std::sync::Arc;
use std::time::Duration;

use genie_io::channel::ConnectOptions;
use genie_io::servers::memory::{Memory, NULL};
use genie_io::{Interface, Limits, ServerHandle};
use genie_memory::GranuleKind;
use genie_passing::Thresholds;
use genie_sys::lock::Mutex;

use super::holder::{Answer, Command, Control, Holder, Name, PASS};
use super::machine::skip;
use super::peer::{Ask, Kind, Link, Opening, Peer, Pooled, Told, fresh_name};
use super::setup::{Buffering, Setup, assert_idle};
use super::transport::{POOLED, Place, Transport};

/// A client here and two servers elsewhere.
pub(crate) struct Channel {
    setup: Setup,
    interface: Interface,
    memory: ServerHandle,
    holder: Holder,
    /// Dropped last: then the servers are closed.
    link: Arc<Link>,
}

impl Channel {
    /// Opens both servers and an interface. Where the machine cannot, says so and returns `None`.
    pub(crate) fn open(
        test: &str,
        setup: Setup,
        place: Place,
        limits: Limits,
        thresholds: Thresholds,
    ) -> Option<Self> {
        Self::open_at(Peer::shared(), test, setup, place, limits, thresholds)
    }

    /// The same, with servers in this process.
    pub(crate) fn open_at(
        peer: &Peer,
        test: &str,
        setup: Setup,
        place: Place,
        limits: Limits,
        thresholds: Thresholds,
    ) -> Option<Self> {
        let interface = setup.interface(test, setup.memory_limit(), limits, thresholds)?;
        let link = Arc::new(peer.link());
        let is_untrusted = place == Place::Untrusted;
        if is_untrusted && let Some(reason) = unreadable(&link) {
            skip(test, &reason);
            return None;
        }
        // A server that maps nothing of its clients' works in buffers of its own anyway.
        let is_pooled = setup.buffering == Buffering::Pooled && !is_untrusted;
        let len = setup.granules() * setup.granule();
        let pooled = is_pooled.then_some(Pooled { len, count: POOLED });
        let open = |kind: &str, server: Kind| {
            let opening =
                Opening::new(&fresh_name(kind), server, if setup.mixed { 4 << 20 } else { pool(setup.kind) });
            let opening = Opening { transient: place == Place::Transient, ..opening };
            link.done(Ask::Open(opening.clone()));
            let options = ConnectOptions { untrusted: is_untrusted, ..ConnectOptions::default() };
            interface.connect_with(&peer.directory(), &opening.name, &options).expect("a connection")
        };
        // Of servers in one process, the first that a client connects to sees its memory at the client's addresses.
        let handle = open("holder", Kind::Holder { pooled, log: None });
        let memory = open("memory", Kind::Memory(pooled));
        let holder = Holder::reached(handle.clone(), Arc::new(Remote::new(&link, &interface, &handle)));
        Some(Self { setup, interface, memory, holder, link })
    }
}

impl Transport for Channel {
    fn setup(&self) -> Setup {
        self.setup
    }

    fn interface(&self) -> &Interface {
        &self.interface
    }

    fn memory(&self) -> &ServerHandle {
        &self.memory
    }

    fn holder(&self) -> &Holder {
        &self.holder
    }

    fn assert_idle(&self) {
        for server in [&self.memory, self.holder.server()] {
            // Replies that nobody waits for are taken.
            let is_over = self.interface.flush(server, Duration::from_secs(10));
            assert!(is_over, "requests to {server:?} are outstanding");
        }
        self.link.done(Ask::Idle);
        assert_idle(&self.interface, 0);
    }
}

/// Why the peer may not read this process's memory, if so.
fn unreadable(link: &Link) -> Option<String> {
    let byte = 1u8;
    let addr = std::ptr::from_ref(&byte).addr();
    match link.ask(Ask::Read { pid: std::process::id(), addr }) {
        Told::Failed(reason) => Some(reason),
        _ => None,
    }
}

/// The holder's control, from another process.
pub(crate) struct Remote {
    link: Arc<Link>,
    interface: Interface,
    /// The holder.
    server: ServerHandle,
    /// A server that replies at once.
    counter: ServerHandle,
    /// The numbers of the requests made to the holder.
    made: Mutex<Vec<u64>>,
}

impl Remote {
    /// The control of the holder that was opened by `link`, for requests of `interface`.
    pub(crate) fn new(link: &Arc<Link>, interface: &Interface, server: &ServerHandle) -> Self {
        Self {
            link: Arc::clone(link),
            interface: interface.clone(),
            server: server.clone(),
            counter: ServerHandle::new(Memory::customized()),
            made: Mutex::default(),
        }
    }

    fn arrival(&self, request: Name) -> usize {
        match request {
            Name::Arrival(number) => number,
            Name::Client(id) => {
                let made = self.made.lock();
                let number = id.number();
                made.iter().rposition(|made| *made == number).expect("a request to the holder")
            }
        }
    }

    /// Waits until the holder has taken whatever was sent to it before: requests, and what is to be aborted.
    fn catch_up(&self) {
        self.interface.request(&self.server, PASS).send().expect("a reply");
    }

    fn arrivals(&self, ask: Ask) -> Vec<Name> {
        self.catch_up();
        match self.link.ask(ask) {
            Told::Arrivals(arrivals) => arrivals.into_iter().map(Name::Arrival).collect(),
            other => panic!("{other:?} names no requests"),
        }
    }
}

impl Control for Remote {
    fn expect(&self) {
        // A request takes the number after that of one made now.
        let counted = self.interface.request(&self.counter, NULL).submit().expect("a request").id();
        let mut made = self.made.lock();
        // If the last request expected was never made, its number is this one's.
        made.retain(|made| *made != counted.number());
        made.push(counted.number() + 1);
    }

    fn held(&self) -> Vec<Name> {
        let expected = self.made.lock().len();
        self.arrivals(Ask::Held { expected })
    }

    fn aborted(&self) -> Vec<Name> {
        self.arrivals(Ask::Aborted)
    }

    fn set_obliging(&self, obliging: bool) {
        self.catch_up();
        self.link.done(Ask::SetObliging(obliging));
    }

    fn command(&self, request: Name, command: Command) -> Answer {
        match self.link.ask(Ask::Command { arrival: self.arrival(request), command }) {
            Told::Answer(answer) => answer,
            other => panic!("{other:?} answers no command"),
        }
    }
}

/// Bytes that each server lends: too few for some requests, so that other memory is used, too.
pub(crate) const fn pool(kind: GranuleKind) -> usize {
    match kind {
        GranuleKind::Huge | GranuleKind::Collapsed => 6 * kind.size(),
        GranuleKind::Base => 64 * kind.size(),
    }
}
