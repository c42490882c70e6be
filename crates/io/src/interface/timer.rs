//! The timer: aborts asynchronous requests whose time is over.
//!
//! How: one thread for an interface, started with the first such request, sleeps until the earliest deadline. It asks the
//! server to let the request go, and looks again when the server's time for that is over; it never waits for one
//! request while others are due.
//! Invariants: an [`Alarm`] holds a request's place in the queue, and the exchange drops it when the request is over; so the
//! timer holds nothing for a request that is over.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use genie_sys::fork::Maker;

use crate::deadline::deadline_after;
use crate::exchange::{Alarm, Alarms, Exchange};
use crate::primitive::{Condvar, Mutex, Thread, spawn};
use crate::{Error, RequestId, ServerHandle, sequel};

#[derive(Debug)]
pub(crate) struct Timer {
    maker: Maker,
    shared: Arc<Shared>,
    thread: Mutex<Option<Thread>>,
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    deadlines: BTreeMap<Key, Deadline>,
    stopped: bool,
}

/// The time of a deadline, and the request it belongs to.
type Key = (Instant, RequestId);

#[derive(Debug)]
struct Deadline {
    exchange: Weak<Exchange>,
    server: ServerHandle,
    timeout: Duration,
    /// How long the server may take to let the request go.
    grace: Duration,
    /// The request is not given up before that, as its buffers may come back.
    gave: bool,
    /// The server has been asked to let the request go.
    asked: bool,
}

impl Alarms for Shared {
    fn cancel(&self, at: Instant, id: RequestId) {
        let removed = self.queue.lock().deadlines.remove(&(at, id));
        // Without the lock: this may be the server's last handle.
        drop(removed);
    }
}

impl Timer {
    pub(crate) fn new() -> Self {
        Self { maker: Maker::this_process(), shared: Arc::default(), thread: Mutex::default() }
    }

    /// Makes sure that the thread runs, before a request relies on it.
    ///
    /// # Errors
    /// No thread can be started.
    pub(crate) fn start(&self) -> Result<(), Error> {
        let mut thread = self.thread.lock();
        if thread.is_none() {
            let shared = Arc::clone(&self.shared);
            *thread = Some(spawn("genie-timer", move || shared.run())?);
        }
        Ok(())
    }

    /// Aborts the request unless it is replied to by the deadline, if there is one. The thread must have been started.
    pub(crate) fn watch(
        &self,
        exchange: &Arc<Exchange>,
        server: &ServerHandle,
        (timeout, at): (Duration, Option<Instant>),
        (grace, gave): (Duration, bool),
    ) {
        let Some(at) = at else { return };
        let (exchange_of, server) = (Arc::downgrade(exchange), server.clone());
        let deadline = Deadline { exchange: exchange_of, server, timeout, grace, gave, asked: false };
        self.shared.set(exchange, at, deadline);
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        if !self.maker.is_this_process() {
            // The thread exists in the parent alone, and may have held the lock.
            return;
        }
        let thread = self.thread.get_mut().take();
        self.shared.queue.lock().stopped = true;
        self.shared.changed.notify_all();
        // The thread may be the one that drops the interface, when the last request to time out held it.
        thread.into_iter().filter(|thread| !thread.is_current()).for_each(Thread::join);
        // A deadline holds its request's server; the server's channel may hold the request, and so the request's alarm.
        // Since alarms take the lock, the deadlines are dropped without it.
        let left = std::mem::take(&mut self.shared.queue.lock().deadlines);
        drop(left);
    }
}

impl Shared {
    /// Has the thread look at a request at the time `at`, unless the request is over before.
    fn set(self: &Arc<Self>, exchange: &Exchange, at: Instant, deadline: Deadline) {
        let key = (at, exchange.id());
        exchange.set_alarm(|| {
            let mut queue = self.queue.lock();
            queue.deadlines.insert(key, deadline);
            if queue.deadlines.first_key_value().is_some_and(|(first, _)| *first == key) {
                self.changed.notify_all();
            }
            Alarm { timer: Arc::<Self>::clone(self), at, id: key.1 }
        });
    }

    fn run(self: &Arc<Self>) {
        let mut queue = self.queue.lock();
        while !queue.stopped {
            let first = queue.deadlines.first_key_value().map(|((at, _), _)| *at);
            queue = match first {
                Some(at) if at <= Instant::now() => {
                    let due = queue.deadlines.pop_first();
                    drop(queue);
                    due.into_iter().for_each(|(_, due)| due.expire(self));
                    self.queue.lock()
                }
                _ => {
                    let again = sequel::have_left_run();
                    self.changed.wait(queue, first.into_iter().chain(again).min())
                }
            };
        }
    }
}

impl Deadline {
    /// Asks the server to let the request go, and looks again later; or gives up a request that the server has not let go.
    fn expire(self, timer: &Arc<Shared>) {
        let Some(exchange) = self.exchange.upgrade() else { return };
        let reason = Error::TimedOut { timeout: self.timeout };
        // A reply that has come counts, though no thread has taken it.
        self.server.collect();
        if self.asked {
            exchange.give_up(&reason);
            self.server.look();
            return;
        }
        if !self.gave {
            return self.server.give_up(&exchange, &reason, self.grace);
        }
        if exchange.is_contracted() {
            // Aborting what the request originated takes time; other requests may be due meanwhile.
            let (server, grace) = (self.server, self.grace);
            let evict = move || server.evict(&exchange, &reason, grace);
            // Where no thread can be started, the request goes on until its client aborts it.
            let _ = spawn("genie-eviction", evict);
            return;
        }
        let is_asked = self.server.ask_to_let_go(&exchange, &reason, self.grace);
        if let Some(at) = deadline_after(self.grace).filter(|_| is_asked) {
            timer.set(&exchange, at, Self { asked: true, ..self });
        }
    }
}
