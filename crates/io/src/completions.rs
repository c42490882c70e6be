//! Queues of requests that have been replied to: for programs that have many pending and do not want to ask each whether it is
//! over.
//!
//! How: each request is added with what belongs to it. The thread that brings the reply puts the request's name into
//! the queue.
//! Limits: as many requests as the interface lets be pending. In a child made by fork, a copy of the parent's queue holds
//! nothing.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use genie_sys::fork::Maker;

use crate::deadline::deadline_after;
use crate::exchange::Awaited;
use crate::primitive::{Condvar, Mutex};
use crate::request::pending::next_look;
use crate::{Pending, RequestId, ServerHandle, sequel};

/// Pending requests, each with a `T` that belongs to it, and a queue of those that have been replied to. In a child made by
/// fork, a queue that the parent made holds nothing and keeps nothing.
///
/// ```
/// # use genie_io::{Completions, Interface, ServerHandle, servers::memory};
/// # use std::time::Duration;
/// # fn main() -> Result<(), genie_io::Error> {
/// let (genie, server) = (Interface::open()?, ServerHandle::new(memory::Memory::customized()));
/// let completions = Completions::default();
/// for number in 0..10 {
///     let pending = genie.request(&server, memory::NULL).submit().map_err(|failed| failed.error)?;
///     completions.add(pending, number);
/// }
/// while completions.wait(&server, Duration::MAX) {
///     while let Some((pending, number)) = completions.next() {
///         pending.sync().unwrap_or_else(|failed| panic!("request {number}: {failed}"));
///     }
/// }
/// # Ok(())
/// # }
/// ```
pub struct Completions<T> {
    maker: Maker,
    pending: Mutex<All<T>>,
    queue: Arc<Queue>,
}

/// The requests, whether they have been replied to or not.
struct All<T> {
    requests: BTreeMap<RequestId, (Pending<'static>, T)>,
    /// The time of no request is over before this.
    ends: Option<Instant>,
}

/// The requests that have been replied to, in that order.
#[derive(Debug, Default)]
struct Queue {
    replied: Mutex<VecDeque<RequestId>>,
    changed: Condvar,
    /// How many requests there are, pending or replied to.
    count: AtomicUsize,
}

impl Queue {
    /// Notes how many requests there are. Threads that wait wait no more if there are none.
    fn count(&self, count: usize) {
        self.count.store(count, Ordering::SeqCst);
        if count == 0 {
            // A waiter holds the lock from its look until it sleeps.
            drop(self.replied.lock());
            self.changed.notify_all();
        }
    }

    fn push(&self, request: RequestId) {
        self.replied.lock().push_back(request);
        self.changed.notify_all();
    }
}

impl<T> Completions<T> {
    /// Adds a request, which may have its reply already. [`Completions::next`] gives it back when it has been replied to.
    ///
    /// # Cost
    /// Two allocations.
    pub fn add(&self, pending: Pending<'static>, belonging: T) {
        if self.is_inherited() {
            return;
        }
        let request = pending.id();
        let queue = Arc::clone(&self.queue);
        // Under the lock, so that a thread that finds the name in the queue finds the request.
        let mut all = self.pending.lock();
        all.ends = all.ends.into_iter().chain(pending.ends()).min();
        let count = all.requests.len() + 1;
        let (pending, _) = all.requests.entry(request).or_insert((pending, belonging));
        self.queue.count.store(count, Ordering::SeqCst);
        pending.note(move || queue.push(request));
    }

    /// Takes the next request that has been replied to. It does not wait, and takes no replies off channels.
    pub fn next(&self) -> Option<(Pending<'static>, T)> {
        if self.is_inherited() {
            return None;
        }
        loop {
            let request = self.queue.replied.lock().pop_front()?;
            // A request that was removed has left its name in the queue.
            let mut all = self.pending.lock();
            if let Some(found) = all.requests.remove(&request) {
                self.queue.count(all.requests.len());
                return Some(found);
            }
        }
    }

    /// Takes the replies of `server` that have come. If no request is in the queue then, waits for more replies, at most for
    /// `timeout`; where nothing is pending, it does not wait. Returns whether a request is in the queue. Requests to other servers
    /// may be added, too, and appear when a thread takes their replies.
    pub fn wait(&self, server: &ServerHandle, timeout: Duration) -> bool {
        if self.is_inherited() {
            return false;
        }
        let has_next = || self.has_next();
        server.collect();
        if timeout.is_zero() || sequel::is_hijacked() || has_next() || self.is_empty() {
            return has_next();
        }
        let deadline = deadline_after(timeout);
        loop {
            let look = next_look(self.pending.lock().ends());
            let until = deadline.into_iter().chain(look).min();
            match server.is_looked_at() {
                true => drop(server.wait(&mut Awaited::until(&|| has_next() || self.is_empty()), until)),
                false => self.sleep(until),
            }
            let is_late = || deadline.is_some_and(|deadline| deadline <= Instant::now());
            if has_next() || self.is_empty() || is_late() {
                return has_next();
            }
        }
    }

    /// Whether a request is in the queue. It does not look for replies.
    pub fn has_next(&self) -> bool {
        if self.is_inherited() || self.queue.replied.lock().is_empty() {
            return false;
        }
        // Requests that were removed may have left their names.
        let (all, mut replied) = (self.pending.lock(), self.queue.replied.lock());
        while replied.front().is_some_and(|request| !all.requests.contains_key(request)) {
            replied.pop_front();
        }
        !replied.is_empty()
    }

    /// Sleeps until a reply that another thread takes puts a request into the queue, or there is none any more.
    fn sleep(&self, deadline: Option<Instant>) {
        let is_over =
            |replied: &VecDeque<_>| !replied.is_empty() || self.queue.count.load(Ordering::SeqCst) == 0;
        drop(self.queue.changed.wait_until(self.queue.replied.lock(), deadline, is_over));
    }

    /// Takes out the requests for which `is_it` is true, whether they have been replied to or not. The queue is locked
    /// meanwhile: `is_it` must not use it.
    pub fn remove(&self, mut is_it: impl FnMut(&T) -> bool) -> Vec<(Pending<'static>, T)> {
        if self.is_inherited() {
            return Vec::new();
        }
        let mut pending = self.pending.lock();
        let removed = pending.requests.extract_if(.., |_, (_, belonging)| is_it(belonging));
        let removed = removed.map(|(_, found)| found).collect();
        self.queue.count(pending.requests.len());
        removed
    }

    /// Whether there is no request in it, neither pending nor replied to.
    pub fn is_empty(&self) -> bool {
        self.is_inherited() || self.pending.lock().requests.is_empty()
    }

    /// Whether this process is a child, made by fork, of the process that made this queue. A thread of the parent may hold
    /// either lock, and may have been changing what that lock protects.
    fn is_inherited(&self) -> bool {
        !self.maker.is_this_process()
    }
}

impl<T> All<T> {
    /// When the time of one of the requests may be over.
    fn ends(&mut self) -> Option<Instant> {
        if self.ends.is_some_and(|ends| ends <= Instant::now()) {
            self.ends = self.requests.values().filter_map(|(pending, _)| pending.ends()).min();
        }
        self.ends
    }
}

impl<T> Default for Completions<T> {
    fn default() -> Self {
        let pending = Mutex::new(All { requests: BTreeMap::new(), ends: None });
        Self { maker: Maker::this_process(), pending, queue: Arc::default() }
    }
}

impl<T> Drop for Completions<T> {
    fn drop(&mut self) {
        if self.is_inherited() {
            std::mem::forget(std::mem::take(&mut self.pending.get_mut().requests));
            std::mem::forget(Arc::clone(&self.queue));
        }
    }
}

impl<T> fmt::Debug for Completions<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_inherited() {
            true => f.write_str("Completions(inherited)"),
            false => write!(f, "Completions({} requests)", self.pending.lock().requests.len()),
        }
    }
}
