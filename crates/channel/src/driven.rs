//! Servers that the program drives: requests are served in a thread of the program's, while it is in [`Driven::attend`].
//!
//! Why: a request that is served where the program's data is takes no lock and wakes no other thread. But a program that is elsewhere
//! for a while must not lose anybody: clients connect, ask, and die meanwhile.
//! How: the control thread attends to clients, as for any server. The program's thread is the only worker: it looks at the clients'
//! rings, spins, and sleeps by one poller. That holds the rings, the descriptor of the server's completer, and an event by which the
//! control thread says that clients have come or gone. While the program is elsewhere, the control thread catches up with that itself
//! (`Post::catch_up_for`), so that the server is told at once of clients that have left, and their memory goes.
//! Invariants: [`Server::request`](genie_io::Server::request) and the completer are called by the program's thread alone.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use genie_io::Error;
use genie_ring::{Mode, Spin};
use genie_sys::event::Event;
use genie_sys::poll::{Poller, Ready};

use super::directory::Claim;
use super::post::watch_by;
use super::serving::{Running, start_control};
use super::shared::Shared;
use super::worker::Worker;

/// The poller's tokens for what is not a ring.
const NEWS: u64 = 1;
const COMPLETER: u64 = 2;

/// A server whose requests are served in the program's thread, by [`Driven::attend`].
///
/// Clients are let in, get answers about the server and its layouts, and may announce memory, whatever the program does. The server's
/// code hears at once that a client has left, and is asked to abort the requests of a client that has died:
/// [`Server::preferred`](genie_io::Server::preferred), [`abort`](genie_io::Server::abort) and
/// [`departed`](genie_io::Server::departed) may be called in a thread of the server's own. Requests wait for the program; and so do
/// aborts of requests by clients that go on.
///
/// Dropping it stops the server.
///
/// ```no_run
/// use std::time::Duration;
/// use genie_channel::{Listener, ServeOptions};
/// use genie_io::servers::memory::Memory;
///
/// # fn work() {}
/// # fn main() -> Result<(), genie_io::Error> {
/// let mut driven = Listener::bind("memory", Memory::customized(), ServeOptions::default())?.drive()?;
/// loop {
///     driven.attend(Duration::from_millis(10))?;
///     work();
/// }
/// # }
/// ```
#[derive(Debug)]
pub struct Driven {
    // Dropped first: clients are told that the server stops, before their rings go.
    _running: Running,
    shared: Arc<Shared>,
    workers: Vec<Worker>,
    /// What the program sleeps by.
    poller: Arc<Poller>,
    /// Signalled by the control thread.
    news: Arc<Event>,
    /// What the poller waits for on behalf of the server's completer.
    _bell: Option<OwnedFd>,
    is_armed: bool,
    /// The completer had something when it was asked last, and may have left more, of which its descriptor does not tell.
    may_have_more: bool,
    ready: Vec<Ready>,
}

impl Driven {
    pub(super) fn new(shared: Arc<Shared>, claim: Arc<Claim>) -> Result<Self, Error> {
        let (poller, news) = (Arc::new(Poller::new()?), Arc::new(Event::new()?));
        poller.add(&*news, NEWS)?;
        let running = start_control(&shared, claim, Some(Arc::clone(&poller)))?;
        let bell = shared.watch_completer(&poller, COMPLETER);
        if shared.is_inherited() {
            // The server's code has forked.
            return Err(Error::Inherited);
        }
        let workers = (0..shared.options.attending()).map(|index| Worker::new(&shared, index)).collect();
        Ok(Self {
            _running: running,
            shared,
            workers,
            poller,
            news,
            _bell: bell,
            is_armed: false,
            may_have_more: false,
            ready: Vec::new(),
        })
    }

    /// Serves the requests that are there. If there are none, waits at most `timeout` for some, and serves those. Returns whether there
    /// was anything to serve; if not, the time is over, or this thread has run a signal handler while it slept. With a timeout of zero,
    /// this does not wait.
    ///
    /// A handler that another thread runs, or this one just before it sleeps, does not end the sleep: where a handler is to end this,
    /// bound the timeout, or have a thread that waits for the signal call [`Stopper::stop`](super::Stopper::stop).
    ///
    /// # Errors
    /// [`Error::Stopped`] after [`Stopper::stop`](super::Stopper::stop); [`Error::Inherited`] in a child made by fork, or if the
    /// server's code has forked and this is the child. The kernel has no memory to wait with.
    ///
    /// # Cost
    /// No system call while there are requests. Before it sleeps, the thread looks for as long as
    /// [`ServeOptions::spin`](super::ServeOptions::spin) says.
    pub fn attend(&mut self, timeout: Duration) -> Result<bool, Error> {
        if self.serve()? {
            return Ok(true);
        }
        if timeout.is_zero() {
            return Ok(false);
        }
        let deadline = Instant::now().checked_add(timeout);
        let left = || deadline.map_or(Duration::MAX, |end| end.saturating_duration_since(Instant::now()));
        loop {
            let spin = Spin::new(self.shared.options.spin.min(left()));
            let mut collected = false;
            let is_ready = spin.until(|| {
                collected = self.shared.collect();
                collected || self.is_ready()
            });
            match if is_ready { None } else { self.prepare() } {
                None => {}
                Some(Duration::ZERO) => collected = true,
                Some(longest) if self.is_interrupted(longest.min(left()))? => return self.serve(),
                Some(_) => {}
            }
            if self.serve()? || collected {
                return Ok(true);
            }
            if left().is_zero() {
                return Ok(false);
            }
        }
    }

    /// Whether there may be something on a ring, or news.
    fn is_ready(&self) -> bool {
        let shared = &self.shared;
        let is_ready = |worker: &Worker| {
            let post = worker.post();
            post.has_changed() || post.attended.lock().is_ready(shared)
        };
        // The control thread may have the lock, which would never be free in a child.
        shared.is_inherited() || self.workers.iter().any(is_ready)
    }

    /// Sleeps until the descriptor is readable, or the time is over; returns whether a signal has ended the sleep before.
    fn is_interrupted(&mut self, longest: Duration) -> Result<bool, Error> {
        let since = Instant::now();
        self.poller.wait(Some(longest), &mut self.ready)?;
        Ok(self.ready.is_empty() && since.elapsed() < longest)
    }

    /// Prepares for waiting by the descriptor, in an event loop; returns false when [`Driven::attend`] has something to do already. If the
    /// server has a completer without a descriptor that can be waited for, it returns false as long as a client has a request pending.
    pub fn arm(&mut self) -> bool {
        self.prepare() == Some(Duration::MAX)
    }

    /// The descriptor to wait for: after [`Driven::arm`] it is readable when there is something for [`Driven::attend`] to do.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.poller.as_fd()
    }

    /// Serves what is there, without waiting; returns whether there was anything.
    fn serve(&mut self) -> Result<bool, Error> {
        if let Err(reason) = self.check() {
            if matches!(reason, Error::Stopped { .. }) {
                // The control thread may have found a lock taken.
                self.workers.iter().for_each(|worker| worker.post().catch_up_for(&self.poller));
            }
            return Err(reason);
        }
        self.disarm();
        let mut served = self.shared.collect();
        self.may_have_more = served;
        // Before a lock is taken: in a child that the server's code has forked, the control thread may have it.
        self.check()?;
        for worker in &self.workers {
            let attended = worker.post().attended.lock();
            let round = worker.serve(attended, watch_by(&self.poller));
            let (attended, served_one) = round.ok_or(Error::Inherited)?;
            drop(attended);
            // The control thread may have found the lock taken. If it comes to the lock just now, it looks again within a second.
            worker.post().catch_up_for(&self.poller);
            served |= served_one;
        }
        Ok(served)
    }

    /// Makes the descriptor readable when there is something to serve. Returns after what time this thread has to look all the same:
    /// zero if it has collected what the server's completer had, and none if there may be something else now.
    fn prepare(&mut self) -> Option<Duration> {
        self.check().ok()?;
        if self.may_have_more {
            return None;
        }
        self.is_armed = true;
        let longest = self.shared.arm_bell().unwrap_or(Duration::MAX);
        if self.shared.is_inherited() {
            return None;
        }
        if longest.is_zero() {
            return Some(longest);
        }
        let mut is_silent = true;
        for worker in &self.workers {
            // A change that comes after this rings; one that came before is seen. Partner: `Post::notify`.
            worker.post().arm(&self.news);
            let mut attended = worker.post().attended.lock();
            is_silent &= !worker.post().has_changed();
            // Every ring is armed.
            is_silent &= worker.arm(&mut attended, Mode::Descriptor);
        }
        // A stop that comes after this look rings the bell.
        is_silent &= !self.shared.has_stopped();
        is_silent.then_some(longest)
    }

    /// Makes the descriptor silent. What is looked for after this is seen.
    fn disarm(&mut self) {
        if !std::mem::take(&mut self.is_armed) {
            return;
        }
        // The poller tells of edges until it has been asked.
        let _ = self.poller.wait(Some(Duration::ZERO), &mut self.ready);
        for worker in &self.workers {
            worker.post().disarm();
            worker.post().attended.lock().disarm();
        }
        // If this fails, the program only wakes once more.
        let _ = self.news.clear();
    }

    fn check(&self) -> Result<(), Error> {
        match (self.shared.is_inherited(), self.shared.has_stopped()) {
            (true, _) => Err(Error::Inherited),
            (_, true) => Err(Error::Stopped { server: self.shared.name.clone() }),
            _ => Ok(()),
        }
    }
}
