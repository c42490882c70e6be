//! What this process has: interfaces, servers, pending requests and buffers, by the numbers and addresses that C knows.
//!
//! How: one table of each kind. Numbers come from counters that only rise, so that a number names one thing for ever, and a
//! handle that is used twice is found out.
//! Invariants: a child made by fork finds tables of its own, which are empty. It neither reads nor unlocks its parent's tables,
//! which a thread of the parent may have held.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use genie_io::{Interface, Limits, Pending, ServerHandle};
use genie_net::network::Network;
use genie_passing::Overlays;
use genie_series::Reconnecting;
use genie_sys::PerProcess;
use genie_sys::fork::Maker;
use genie_sys::lock::{Mutex, RwLock};

use crate::failure::Failure;
use crate::handles::{self, Handles, unknown};
use crate::opened::Opened;
use crate::packet::Owned;
use crate::pinned::Pin;
use crate::regions::Regions;
use crate::registered::Registered;
use crate::requested::Requested;
use crate::taken::Taken;
use crate::types::{io_interface_t, io_request_t, io_server_t};

/// What a process has.
#[derive(Debug)]
pub(crate) struct Process {
    maker: Maker,
    /// If it was forked from a process that had used the library: the least number that can be a handle of its own.
    child_from: Option<u64>,
    /// The least number that this process has given a request.
    least_request: AtomicU64,
    interfaces: RwLock<BTreeMap<io_interface_t, Arc<Opened>>>,
    servers: RwLock<BTreeMap<io_server_t, Arc<Server>>>,
    /// Servers that were unregistered while they held requests.
    ended: Mutex<HashMap<io_server_t, Arc<Registered>>>,
    requests: Mutex<HashMap<io_request_t, Arc<Requested>>>,
    pub(crate) regions: Regions,
    pub(crate) pools: Handles<Overlays>,
    pub(crate) overlays: Handles<Taken>,
    pub(crate) pins: Handles<Pin>,
    pub(crate) networks: Handles<Network>,
    pub(crate) packets: Handles<Owned>,
}

/// A server that requests can be made of.
#[derive(Debug)]
pub(crate) struct Server {
    /// The interface that makes the requests.
    pub(crate) client: Arc<Opened>,
    pub(crate) handle: ServerHandle,
    /// Some if it is served by this program, through io_server.
    pub(crate) registered: Option<Arc<Registered>>,
    /// Some if it is connected to anew when it has gone.
    again: Option<Arc<Reconnecting>>,
    /// Whether it is in the table: a call that has found it keeps it for longer.
    is_listed: AtomicBool,
}

impl Server {
    pub(crate) fn new(
        client: Arc<Opened>,
        handle: ServerHandle,
        registered: Option<Arc<Registered>>,
    ) -> Self {
        Self { client, handle, registered, again: None, is_listed: AtomicBool::new(true) }
    }

    pub(crate) fn reconnecting(client: Arc<Opened>, handle: ServerHandle, again: Arc<Reconnecting>) -> Self {
        Self { again: Some(again), ..Self::new(client, handle, None) }
    }

    pub(crate) fn is_reconnecting(&self) -> bool {
        self.again.is_some()
    }
}

/// The server that a thread has named last.
#[derive(Debug)]
struct Last {
    number: io_server_t,
    maker: Option<Maker>,
    server: Weak<Server>,
}

thread_local! {
    static LAST: RefCell<Last> = const { RefCell::new(Last { number: 0, maker: None, server: Weak::new() }) };
}

static PROCESS: PerProcess<Process> = PerProcess::new();

/// This process.
pub(crate) fn process() -> &'static Process {
    let Ok(process) = PROCESS.get(|parents| Ok::<_, Infallible>(Process::new(parents.is_some())));
    process
}

impl Process {
    fn new(is_child: bool) -> Self {
        let child_from = is_child.then(handles::least);
        Self {
            maker: Maker::this_process(),
            child_from,
            least_request: AtomicU64::new(u64::MAX),
            interfaces: RwLock::default(),
            servers: RwLock::default(),
            ended: Mutex::default(),
            requests: Mutex::default(),
            regions: Regions::default(),
            pools: Handles::new("pool", child_from),
            overlays: Handles::new("overlay buffer", child_from),
            pins: Handles::new("pin", child_from),
            networks: Handles::new("network", child_from),
            packets: Handles::new("packet", child_from),
        }
    }

    /// An interface; 0 is the one that is opened when it is first named.
    pub(crate) fn interface(&self, number: io_interface_t) -> Result<Arc<Opened>, Failure> {
        if let Some(found) = self.interfaces.read().get(&number) {
            return Ok(Arc::clone(found));
        }
        if number != 0 {
            return Err(unknown("interface", number, self.child_from));
        }
        let mut interfaces = self.interfaces.write();
        if let Some(found) = interfaces.get(&0) {
            return Ok(Arc::clone(found));
        }
        let opened = Arc::new(Opened::new(Interface::open_with(Limits::default())?));
        interfaces.insert(0, Arc::clone(&opened));
        Ok(opened)
    }

    pub(crate) fn add_interface(&self, opened: Opened) -> io_interface_t {
        let number = handles::next();
        self.interfaces.write().insert(number, Arc::new(opened));
        number
    }

    pub(crate) fn remove_interface(&self, number: io_interface_t) -> Result<Arc<Opened>, Failure> {
        let removed = self.interfaces.write().remove(&number);
        removed.ok_or_else(|| unknown("interface", number, self.child_from))
    }

    /// A server. Each thread remembers the one that it has named last; to name that again takes no lock.
    #[inline]
    pub(crate) fn server(&self, number: io_server_t) -> Result<Arc<Server>, Failure> {
        let find = |last: &RefCell<Last>| {
            let last = last.borrow();
            let is_it = last.number == number && last.maker == Some(self.maker);
            is_it
                .then(|| last.server.upgrade())
                .flatten()
                .filter(|server| server.is_listed.load(Ordering::Acquire))
        };
        // A thread that is ending remembers none.
        LAST.try_with(find).ok().flatten().map_or_else(|| self.look_up(number), Ok)
    }

    #[inline(never)]
    fn look_up(&self, number: io_server_t) -> Result<Arc<Server>, Failure> {
        let found = self.servers.read().get(&number).cloned();
        let found = found.ok_or_else(|| unknown("server", number, self.child_from))?;
        let server = Arc::downgrade(&found);
        let _ = LAST.try_with(|last| last.replace(Last { number, maker: Some(self.maker), server }));
        Ok(found)
    }

    /// A server to make a request of: connected to anew if it has gone, and is one to which that is done.
    #[inline]
    pub(crate) fn connected(&self, number: io_server_t) -> Result<Arc<Server>, Failure> {
        let found = self.server(number)?;
        match &found.again {
            Some(again) if found.handle.is_gone() => self.connect_again(number, &found, again),
            _ => Ok(found),
        }
    }

    #[cold]
    fn connect_again(
        &self,
        number: io_server_t,
        gone: &Server,
        again: &Arc<Reconnecting>,
    ) -> Result<Arc<Server>, Failure> {
        let handle = again.handle()?;
        let (before, now) = (gone.handle.services(), handle.services());
        if before.len() > now.len() || before.iter().zip(now).any(|(before, now)| before.name != now.name) {
            let name = handle.name();
            return Err(Failure::new(
                libc::ENOENT,
                format!(
                    "server {name} has come again with other services: disconnect, connect, and look up their numbers"
                ),
            ));
        }
        let mut servers = self.servers.write();
        let listed = servers.get_mut(&number).ok_or_else(|| unknown("server", number, self.child_from))?;
        if listed.handle.is_gone() {
            let server = Server::reconnecting(Arc::clone(&gone.client), handle, Arc::clone(again));
            std::mem::replace(listed, Arc::new(server)).is_listed.store(false, Ordering::Release);
        }
        Ok(Arc::clone(listed))
    }

    /// A server that this program serves, or one that was unregistered and still holds requests.
    pub(crate) fn registered(&self, number: io_server_t) -> Result<Arc<Registered>, Failure> {
        let server = match self.server(number) {
            Ok(server) => server,
            Err(failure) => return self.ended(number).ok_or(failure),
        };
        server.registered.clone().ok_or_else(|| {
            Failure::new(libc::EINVAL, format!("server {number} is not served by this program"))
        })
    }

    fn ended(&self, number: io_server_t) -> Option<Arc<Registered>> {
        self.ended.lock().get(&number).cloned()
    }

    /// Takes a server that this program serves out of the table; threads that hold requests of it still find it, until `forget`.
    pub(crate) fn unregister(&self, number: io_server_t) -> Result<(), Failure> {
        let removed = self.remove_server(number)?;
        self.ended.lock().extend(removed.registered.clone().map(|registered| (number, registered)));
        Ok(())
    }

    /// Forgets a server that was unregistered.
    pub(crate) fn forget(&self, number: io_server_t) {
        self.ended.lock().remove(&number);
    }

    pub(crate) fn add_server(&self, server: Server) -> io_server_t {
        let number = handles::next();
        self.servers.write().insert(number, Arc::new(server));
        number
    }

    pub(crate) fn remove_server(&self, number: io_server_t) -> Result<Arc<Server>, Failure> {
        let removed = self.servers.write().remove(&number);
        let removed = removed.ok_or_else(|| unknown("server", number, self.child_from))?;
        removed.is_listed.store(false, Ordering::Release);
        Ok(removed)
    }

    pub(crate) fn requested(&self, number: io_request_t) -> Result<Arc<Requested>, Failure> {
        let found = self.requests.lock().get(&number).cloned();
        let least = self.child_from.map(|_| self.least_request.load(Ordering::Relaxed));
        found.ok_or_else(|| unknown("pending request", number, least))
    }

    /// Enters a request by its number.
    pub(crate) fn add_request(&self, number: io_request_t, requested: Requested) {
        if self.child_from.is_some() {
            self.least_request.fetch_min(number, Ordering::Relaxed);
        }
        self.requests.lock().insert(number, Arc::new(requested));
    }

    /// Takes a request, so that no other thread has its reply.
    pub(crate) fn take(&self, requested: &Requested) -> Result<Pending<'static>, Failure> {
        let pending = requested.take()?;
        self.requests.lock().remove(&pending.id().number());
        Ok(pending)
    }
}
