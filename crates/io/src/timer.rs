//! The timer: aborts asynchronous requests whose time is over.
//!
//! How: one thread for an interface, started with the first such request, sleeps until the earliest deadline. It asks the
//! server to let the request go, and looks again when the server's time for that is over; it never waits for one
//! request while others are due. A request that is replied to in time costs it nothing; its deadline passes unnoticed.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Arc, PoisonError, Weak};
use std::time::{Duration, Instant};

use crate::exchange::Exchange;
use crate::primitive::{Condvar, Mutex, MutexGuard, thread};
use crate::{Error, ServerHandle};

#[derive(Debug, Default)]
pub(crate) struct Timer {
    shared: Arc<Shared>,
    thread: Mutex<Option<thread::JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    deadlines: BinaryHeap<Reverse<Deadline>>,
    stopped: bool,
}

#[derive(Debug)]
struct Deadline {
    at: Instant,
    exchange: Weak<Exchange>,
    server: ServerHandle,
    timeout: Duration,
    grace: Duration,
    /// The server has been asked to let the request go.
    asked: bool,
}

impl PartialEq for Deadline {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl Eq for Deadline {}

impl PartialOrd for Deadline {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Deadline {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.at.cmp(&other.at)
    }
}

impl Timer {
    /// Makes sure that the thread runs, before a request relies on it.
    ///
    /// # Errors
    /// No thread can be had.
    pub(crate) fn start(&self) -> Result<(), Error> {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_none() {
            let shared = Arc::clone(&self.shared);
            let spawned = thread::Builder::new().name("genie-timer".into()).spawn(move || shared.run());
            *thread = Some(spawned.map_err(|error| {
                let errno = genie_sys::Errno::from_io_error(&error).unwrap_or(genie_sys::Errno::AGAIN);
                genie_memory::Error::Kernel(genie_sys::Error::new("clone", "the timer thread", errno))
            })?);
        }
        Ok(())
    }

    /// Aborts the request unless it is replied to within `timeout`. The thread must have been started.
    pub(crate) fn watch(
        &self,
        exchange: &Arc<Exchange>,
        server: &ServerHandle,
        timeout: Duration,
        grace: Duration,
    ) {
        let at = Instant::now() + timeout;
        let (exchange, server) = (Arc::downgrade(exchange), server.clone());
        let deadline = Deadline { at, exchange, server, timeout, grace, asked: false };
        self.shared.lock().deadlines.push(Reverse(deadline));
        self.shared.changed.notify_one();
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.shared.lock().stopped = true;
        self.shared.changed.notify_one();
        // The thread may be the one that drops the interface, when the last request to time out held it.
        let thread = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread.filter(|thread| thread.thread().id() != thread::current().id()) {
            // A panic of the thread has been reported by the panic hook.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut queue = self.lock();
        while !queue.stopped {
            let now = Instant::now();
            let left = queue.deadlines.peek().map(|Reverse(first)| first.at.saturating_duration_since(now));
            queue = match left {
                None => self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner),
                Some(Duration::ZERO) => {
                    let due = queue.deadlines.pop();
                    drop(queue);
                    let again = due.and_then(|Reverse(due)| due.expire());
                    let mut queue = self.lock();
                    queue.deadlines.extend(again.map(Reverse));
                    queue
                }
                Some(left) => {
                    self.changed.wait_timeout(queue, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}

impl Deadline {
    /// Asks the server, or gives up what it did not let go; returns when to look again.
    fn expire(self) -> Option<Self> {
        let exchange = self.exchange.upgrade()?;
        let reason = Error::TimedOut { timeout: self.timeout };
        if self.asked {
            if let Some(remote) = self.server.remote() {
                remote.collect();
            }
            exchange.give_up(&reason);
            self.server.look();
            return None;
        }
        if exchange.is_contracted() {
            // Aborting what it originated takes time; others may be due meanwhile.
            let (server, grace) = (self.server, self.grace);
            let evict = move || exchange.abort(&server, &reason, grace);
            // Where no thread can be had the request is let be: its client can abort it.
            let _ = thread::Builder::new().name("genie-eviction".into()).spawn(evict);
            return None;
        }
        let is_asked = exchange.ask_to_abort(&self.server, &reason, self.grace);
        is_asked.then(|| Self { at: Instant::now() + self.grace, asked: true, ..self })
    }
}
