//! Limits on what an interface has pending: bytes and requests.
//!
//! Why: a pending request holds memory; a client that asks faster than its servers reply would take it all.
//! How: a request is admitted when it fits; a synchronous one waits for room, an asynchronous one is refused. Both counts
//! are one word, so that admission is one atomic operation. The limits can be changed, up to hard ones that can't.
//! Limits: 2^44 - 1 bytes and 2^20 - 1 requests; higher limits are lowered to these.
//! Source: thesis §3.1.2, point 1.

use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use crate::deadline::deadline_after;
use crate::kept::allowance::Allowance;
use crate::primitive::{AtomicU64, AtomicUsize, Condvar, Mutex, Ordering};
use crate::{Client, Error, sequel};

/// What an interface allows. Defaults are in parentheses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Bytes in all pending requests together (1 GiB).
    pub pending_bytes: usize,
    /// Pending requests (65,536).
    pub pending_requests: usize,
    /// The highest limit on bytes that [`crate::Interface::adjust`] may set (no bound).
    pub hard_bytes: usize,
    /// The highest limit on requests that [`crate::Interface::adjust`] may set (no bound).
    pub hard_requests: usize,
    /// Bytes of this interface's outputs that servers of this process may keep at a time (1 GiB), by
    /// [`Incoming::keep`](crate::Incoming::keep).
    pub kept_bytes: usize,
    /// The longest time any request may take, even one that asks for a longer timeout or for none. With `None`, the default,
    /// a request without a [timeout of its own](crate::Request::timeout) waits for its server for ever.
    pub timeout: Option<Duration>,
    /// How long a server may take to let go of an aborted request's buffers (100 ms), if they were given by value, before the
    /// client goes on without them; and how long [`Pending::abort`](crate::Pending::abort) waits. A request without such buffers is
    /// given up at once when its time is over.
    pub abort_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            pending_bytes: 1 << 30,
            pending_requests: 1 << 16,
            hard_bytes: usize::MAX,
            hard_requests: usize::MAX,
            kept_bytes: 1 << 30,
            timeout: None,
            abort_timeout: Duration::from_millis(100),
        }
    }
}

/// Bytes are the lower bits of a count, requests the upper ones.
const BYTES: u32 = 44;
const MOST_BYTES: u64 = (1 << BYTES) - 1;
const MOST_REQUESTS: u64 = (1 << (64 - BYTES)) - 1;

/// A count of bytes and requests in one word.
fn pack(bytes: usize, requests: usize) -> u64 {
    (requests as u64).min(MOST_REQUESTS) << BYTES | (bytes as u64).min(MOST_BYTES)
}

/// (bytes, requests).
fn unpack(count: u64) -> (usize, usize) {
    ((count & MOST_BYTES) as usize, (count >> BYTES) as usize)
}

/// The bytes and requests that are pending.
#[derive(Debug)]
pub(crate) struct Pendings {
    /// The client whose requests are pending.
    client: Client,
    /// What servers of this process keep of the client's outputs.
    allowance: Arc<Allowance>,
    used: AtomicU64,
    limit: AtomicU64,
    waiters: AtomicUsize,
    /// Tasks that wait for room; threads wait for `room`.
    queue: Mutex<Vec<Waker>>,
    room: Condvar,
}

/// One request's share of the limits; ending or dropping it makes room.
///
/// After it has ended, it keeps its handle to the counts, for another request of the same interface.
#[derive(Debug)]
pub(crate) struct Admission {
    pendings: Arc<Pendings>,
    /// What was admitted; 0 before and afterwards.
    share: u64,
}

/// The longest a waiting request sleeps between two looks for replies that it has to take itself.
const LOOK: Duration = Duration::from_micros(100);

impl Pendings {
    pub(crate) fn new(bytes: usize, requests: usize, kept: usize) -> Self {
        Self {
            client: Client::here(),
            allowance: Allowance::here(kept),
            used: AtomicU64::new(0),
            limit: AtomicU64::new(pack(bytes, requests)),
            waiters: AtomicUsize::new(0),
            queue: Mutex::default(),
            room: Condvar::new(),
        }
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Bytes pending.
    pub(crate) fn used(&self) -> usize {
        unpack(self.used.load(Ordering::Relaxed)).0
    }

    /// Changes the limits. Requests beyond a lowered limit stay pending.
    pub(crate) fn adjust(&self, bytes: usize, requests: usize) {
        self.limit.store(pack(bytes, requests), Ordering::SeqCst);
        self.notify();
    }

    /// Admits a request if it fits now; returns its share.
    pub(crate) fn try_admit(&self, bytes: usize) -> Result<u64, Error> {
        let (limit, most) = unpack(self.limit.load(Ordering::Relaxed));
        if bytes > limit {
            return Err(Error::TooLarge { asked: bytes, limit });
        }
        let share = pack(bytes, 1);
        let fits = |used: u64| {
            let (used_bytes, requests) = unpack(used);
            let is_room = used_bytes.saturating_add(bytes) <= limit && requests < most;
            is_room.then(|| used + share)
        };
        // SeqCst pairs with the waiter's: either the waiter sees the room made, or the thread that makes room sees the
        // waiter.
        match self.used.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fits) {
            Ok(_) => Ok(share),
            Err(used) => Err(match unpack(used) {
                (_, requests) if requests >= most => Error::TooMany { pending: requests, limit: most },
                (pending, _) => Error::Exhausted { asked: bytes, pending, limit },
            }),
        }
    }

    /// Admits a request as soon as it fits, and returns its share; when the time is over, says what it did not fit. `collect` takes replies, where no other thread does.
    pub(crate) fn admit(
        &self,
        bytes: usize,
        timeout: Option<Duration>,
        collect: Option<&dyn Fn() -> usize>,
    ) -> Result<u64, Error> {
        let refused = match self.try_admit(bytes) {
            Err(refused) if may_fit_later(&refused) => refused,
            decided => return decided,
        };
        self.waiters.fetch_add(1, Ordering::SeqCst);
        let deadline = timeout.and_then(deadline_after);
        let admitted = self.wait(bytes, deadline, collect);
        self.waiters.fetch_sub(1, Ordering::SeqCst);
        admitted.unwrap_or(Err(refused))
    }

    /// Waits for room; `None` when the time is over.
    fn wait(
        &self,
        bytes: usize,
        deadline: Option<Instant>,
        collect: Option<&dyn Fn() -> usize>,
    ) -> Option<Result<u64, Error>> {
        loop {
            collect.map(|collect| collect());
            let guard = self.queue.lock();
            match self.try_admit(bytes) {
                Err(refused) if may_fit_later(&refused) => {}
                decided => return Some(decided),
            }
            let now = Instant::now();
            if deadline.is_some_and(|deadline| deadline <= now) {
                return None;
            }
            let look = collect.map(|_| now + LOOK);
            drop(self.room.wait(guard, deadline.into_iter().chain(look).min()));
        }
    }

    /// Whether a request of this many bytes has room, or never will.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        let (limit, most) = unpack(self.limit.load(Ordering::SeqCst));
        let (used, requests) = unpack(self.used.load(Ordering::SeqCst));
        bytes > limit || most == 0 || (used.saturating_add(bytes) <= limit && requests < most)
    }

    /// The same; if there is no room, the task is woken when there may be.
    pub(crate) fn poll(&self, bytes: usize, task: &Waker) -> bool {
        if self.has_room(bytes) {
            return true;
        }
        let mut queue = self.queue.lock();
        if queue.iter().all(|known| !known.will_wake(task)) {
            queue.push(task.clone());
            // Taken back when the tasks are woken.
            self.waiters.fetch_add(1, Ordering::SeqCst);
        }
        self.has_room(bytes)
    }

    fn notify(&self) {
        if self.waiters.load(Ordering::SeqCst) > 0 {
            // A waiter holds the lock from its look until it sleeps. So this notification comes before the look, or after
            // the sleep has begun, and never between the two.
            let tasks = std::mem::take(&mut *self.queue.lock());
            self.waiters.fetch_sub(tasks.len(), Ordering::SeqCst);
            self.room.notify_all();
            tasks.into_iter().for_each(sequel::wake);
        }
    }
}

/// Whether a refused request may fit when other requests are over.
fn may_fit_later(refused: &Error) -> bool {
    matches!(refused, Error::Exhausted { .. } | Error::TooMany { limit: 1.., .. })
}

impl Admission {
    /// A share for a request that is not admitted yet.
    pub(crate) fn new(pendings: &Arc<Pendings>) -> Self {
        Self { pendings: Arc::clone(pendings), share: 0 }
    }

    pub(crate) fn client(&self) -> &Client {
        self.pendings.client()
    }

    /// What servers of this process may keep of the client's outputs.
    pub(crate) fn allowance(&self) -> &Arc<Allowance> {
        &self.pendings.allowance
    }

    /// Whether it can be a share of these limits.
    pub(crate) fn is_of(&self, pendings: &Arc<Pendings>) -> bool {
        Arc::ptr_eq(&self.pendings, pendings)
    }

    /// Takes what `admit` admits.
    #[inline]
    pub(crate) fn take(&mut self, admit: impl FnOnce(&Pendings) -> Result<u64, Error>) -> Result<(), Error> {
        self.end();
        self.share = admit(&self.pendings)?;
        Ok(())
    }

    /// Makes room: the request is over.
    pub(crate) fn end(&mut self) {
        let share = std::mem::take(&mut self.share);
        if share > 0 {
            self.pendings.used.fetch_sub(share, Ordering::SeqCst);
            self.pendings.notify();
        }
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admitted(pendings: &Arc<Pendings>, bytes: usize) -> Result<Admission, Error> {
        let mut admission = Admission::new(pendings);
        admission.take(|pendings| pendings.try_admit(bytes)).map(|()| admission)
    }

    #[test]
    fn what_never_fits_is_refused_at_once() {
        let pendings = Arc::new(Pendings::new(10, 2, 0));
        assert_eq!(pendings.admit(11, None, None).unwrap_err(), Error::TooLarge { asked: 11, limit: 10 });
    }

    /// If the limit on requests was 0, a request that waited for room waited for ever.
    #[test]
    fn where_no_request_may_be_pending_none_waits() {
        let pendings = Arc::new(Pendings::new(10, 0, 0));
        let refused = Error::TooMany { pending: 0, limit: 0 };
        let timeout = Some(Duration::from_millis(5));
        assert_eq!(pendings.admit(1, timeout, None).unwrap_err(), refused);
        pendings.adjust(10, 1);
        let _first = admitted(&pendings, 1).unwrap();
        let waiter = {
            let pendings = Arc::clone(&pendings);
            std::thread::spawn(move || pendings.admit(1, Some(Duration::from_secs(60)), None))
        };
        while pendings.waiters.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        pendings.adjust(10, 0);
        let refused = Error::TooMany { pending: 1, limit: 0 };
        assert_eq!(waiter.join().unwrap().unwrap_err(), refused);
    }

    #[test]
    fn an_asynchronous_request_is_refused_and_a_synchronous_one_waits() {
        let pendings = Arc::new(Pendings::new(10, 2, 0));
        let first = admitted(&pendings, 8).unwrap();
        assert_eq!(pendings.try_admit(4).unwrap_err(), Error::Exhausted { asked: 4, pending: 8, limit: 10 });
        let waiter = {
            let pendings = Arc::clone(&pendings);
            std::thread::spawn(move || {
                Admission::new(&pendings).take(|pendings| pendings.admit(4, None, None))
            })
        };
        while pendings.waiters.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        drop(first);
        waiter.join().unwrap().unwrap();
        assert_eq!(pendings.used(), 0);
    }

    #[test]
    fn waiting_ends_with_the_timeout() {
        let pendings = Arc::new(Pendings::new(10, 2, 0));
        let _first = admitted(&pendings, 8).unwrap();
        let timeout = Duration::from_millis(5);
        let refused = Error::Exhausted { asked: 4, pending: 8, limit: 10 };
        assert_eq!(pendings.admit(4, Some(timeout), None).unwrap_err(), refused);
    }

    #[test]
    fn requests_are_limited_as_bytes_are_and_limits_can_be_raised() {
        let pendings = Arc::new(Pendings::new(10, 2, 0));
        let _two = (admitted(&pendings, 0).unwrap(), admitted(&pendings, 1).unwrap());
        assert_eq!(pendings.try_admit(0).unwrap_err(), Error::TooMany { pending: 2, limit: 2 });
        pendings.adjust(10, 3);
        let third = admitted(&pendings, 0).unwrap();
        drop(third);
        assert_eq!(unpack(pendings.used.load(Ordering::Relaxed)), (1, 2));
    }

    #[test]
    fn a_limit_that_no_count_reaches_is_taken_for_the_highest() {
        let pendings = Arc::new(Pendings::new(usize::MAX, usize::MAX, 0));
        let _one = admitted(&pendings, 1 << 40).unwrap();
        assert_eq!(pendings.used(), 1 << 40);
    }
}
