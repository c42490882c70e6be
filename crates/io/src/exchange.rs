//! Exchanges: what client and server of one request share.
//!
//! How: with the reply the work goes from the server to the exchange, and from there to the client. Until then the server
//! owns it, whatever the client gives up; so memory that a slow server may still touch is never reused.
//! Where the thread that waits for a reply takes it itself, the work goes straight to that thread, and the exchange,
//! unchanged, serves the thread's next request ([`Pair`]).
//! Invariants: the phase leaves `Waiting` once, by a reply, by giving up, or by the client's departure.

use std::fmt::Debug;
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::{Duration, Instant};

use genie_memory::TellLater;

use crate::contract::Contract;
use crate::deadline::deadline_after;
use crate::primitive::{AtomicBool, AtomicU64, Condvar, Mutex, MutexGuard, Ordering, thread};
use crate::sequel::{self, Sequel, Sequels};
use crate::work::Work;
use crate::{Error, Failed, Reply, RequestId};

mod aborting;
mod alarm;
mod pair;
mod progress;

use aborting::Asked;
pub(crate) use alarm::{Alarm, Alarms};
pub(crate) use pair::Pair;
use progress::Progress;

/// How far a request has come.
#[derive(Debug)]
enum Phase {
    /// With the server.
    Waiting,
    /// The reply is there; the outputs have been completed.
    Replied(Box<Work>),
    /// The reply is there; the server goes on with the outputs.
    Anticipated(Box<Reply>),
    /// The client has given up, for this reason, which it may have heard; the server may still hold the work.
    GivenUp(Box<Error>),
    /// The client no longer wants a reply that has not come; its time still counts.
    Forgotten,
    /// The client has its reply, or no longer wants one.
    Over,
}

/// What a client finds when it looks for its reply.
#[derive(Debug)]
pub(crate) enum Found {
    Work(Box<Work>),
    Anticipated(Box<Reply>),
    Failed(Box<Failed>),
}

impl From<Phase> for Found {
    fn from(phase: Phase) -> Self {
        match phase {
            Phase::Replied(work) => Self::Work(work),
            Phase::Anticipated(reply) => Self::Anticipated(reply),
            Phase::GivenUp(error) => Self::Failed(Box::new((*error).into())),
            Phase::Waiting | Phase::Forgotten | Phase::Over => Self::Failed(Box::new(Error::Aborted.into())),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Exchange {
    id: AtomicU64,
    state: Mutex<State>,
    changed: Condvar,
    /// The phase is not `Waiting` any more: for a look without the lock.
    is_replied: AtomicBool,
    /// The request is to be let go, whether its server has it already or not.
    is_aborting: AtomicBool,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    /// The server has no part of the work any more.
    is_done: bool,
    /// What follows when the phase changes.
    sequel: Option<Sequel>,
    /// The interface's list of outstanding requests, if this one is in it.
    listing: Option<Arc<dyn Listing>>,
    /// The timer's alarm, which ends with the request.
    alarm: Option<Alarm>,
    /// Why the request is being aborted.
    aborting: Option<Error>,
    asked: Asked,
    /// The request's contract, if its server has made one.
    contract: Weak<Contract>,
    /// How far the server has come; none until the server says so, or the client waits for that.
    progress: Option<Box<Progress>>,
}

impl State {
    fn new() -> Self {
        Self {
            phase: Phase::Waiting,
            is_done: false,
            sequel: None,
            listing: None,
            alarm: None,
            aborting: None,
            asked: Asked::No,
            contract: Weak::new(),
            progress: None,
        }
    }
}

/// A list of requests that outlived the call that made them.
pub(crate) trait Listing: Debug + Send + Sync {
    /// Has an event loop look: a request may be over for its client.
    fn tell(&self);

    /// Has threads that wait at a listed request's server look: there is something of which its completer does not know.
    fn look(&self, id: RequestId);

    /// Takes out a request that its server has let go, and does both.
    fn remove(&self, id: RequestId);
}

/// The longest that a pause lasts.
const PAUSE: Duration = Duration::from_millis(20);

/// A reply that a thread waits for.
///
/// Where no other thread knows of the request, and this thread itself takes the reply off its carrier, the request's work is left here
/// ([`Outgoing::succeed_for`](crate::carrier::Outgoing::succeed_for)) and passed on without a lock. What follows from other requests that
/// end meanwhile, in the client's code, is left here ([`Awaited::put_off`]): it follows when this is dropped, if not before.
pub struct Awaited<'a> {
    exchange: Option<&'a Exchange>,
    until: Until<'a>,
    is_alone: bool,
    left: Option<(Box<Work>, Arc<Exchange>)>,
    sequels: Sequels,
}

/// What ends a wait besides the reply.
enum Until<'a> {
    Reply,
    /// This condition.
    IsSo(&'a dyn Fn() -> bool),
    /// More than so many bytes of this buffer are final.
    Progress(usize, usize),
}

impl<'a> Awaited<'a> {
    /// A reply, or the request's end, for which other threads may wait, too.
    pub(crate) fn by_many(exchange: &'a Exchange) -> Self {
        Self { exchange: Some(exchange), ..Self::none() }
    }

    /// The same, or word that more than `beyond` bytes of buffer `index` are final.
    pub(crate) fn progress(exchange: &'a Exchange, index: usize, beyond: usize) -> Self {
        Self { until: Until::Progress(index, beyond), ..Self::by_many(exchange) }
    }

    /// A reply that only this thread waits for, to a request that no other thread can abort.
    pub(crate) fn alone(exchange: &'a Exchange) -> Self {
        Self { exchange: Some(exchange), is_alone: true, ..Self::none() }
    }

    /// No reply at all: for a thread that takes whatever replies there are.
    pub fn none() -> Self {
        Self { exchange: None, until: Until::Reply, is_alone: false, left: None, sequels: Sequels::none() }
    }

    /// A condition that becomes true through replies for which other threads wait.
    pub(crate) fn until(is_so: &'a dyn Fn() -> bool) -> Self {
        Self { until: Until::IsSo(is_so), ..Self::none() }
    }

    /// Sleeps until another thread has ended the request, or the deadline; returns whether the request is over. A thread that waits for
    /// no reply does not sleep.
    pub fn sleep(&self, deadline: Option<Instant>) -> bool {
        self.exchange.is_some_and(|exchange| exchange.sleep(deadline, &self.until))
    }

    /// Sleeps for a moment, or until another thread has ended the request.
    pub fn pause(&self) {
        match self.exchange {
            Some(exchange) => drop(exchange.sleep(deadline_after(PAUSE), &self.until)),
            None => thread::sleep(PAUSE / 20),
        }
    }

    /// Whether a reply, or the reason why there is none, can be taken, or what is waited for in its place has come.
    #[inline]
    pub fn is_replied(&self) -> bool {
        self.has_work()
            || self.exchange.is_some_and(Exchange::is_replied)
            || match self.until {
                Until::Reply => false,
                Until::IsSo(is_so) => is_so(),
                Until::Progress(index, beyond) => {
                    self.exchange.is_some_and(|exchange| exchange.come(index) > beyond)
                }
            }
    }

    /// Whether the request's work has been left here: this thread is to take nothing more off the carrier.
    #[inline]
    pub fn has_work(&self) -> bool {
        self.left.is_some()
    }

    /// Ends requests under a lock of the carrier's, by `end`. The clients' tasks and continuations may make requests, and so may need that
    /// lock: they follow when the carrier lets them.
    pub fn put_off<T>(&mut self, end: impl FnOnce() -> T) -> T {
        self.sequels.put_off(end)
    }

    /// Whether something is to follow: the thread lets its lock go before it waits for more replies.
    #[inline]
    pub fn has_sequels(&self) -> bool {
        !self.sequels.is_empty()
    }

    /// Whether so much is to follow that the thread lets its lock go before it takes more replies.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.sequels.is_full()
    }

    /// Lets follow what was put off. The thread has let its lock go.
    pub fn follow(&mut self) {
        self.sequels.follow();
        sequel::run_left();
    }

    /// Whether the reply to this exchange's request may be left here.
    #[inline]
    pub(crate) fn takes(&self, exchange: &Exchange) -> bool {
        self.is_alone && self.exchange.is_some_and(|awaited| std::ptr::eq(awaited, exchange))
    }

    /// Leaves the work of a request that has succeeded, and its server's hold on the exchange.
    #[inline]
    pub(crate) fn leave(&mut self, mut work: Box<Work>, exchange: Arc<Exchange>) {
        work.finish_outputs(true);
        self.left = Some((work, exchange));
    }

    /// What has been left here.
    #[inline]
    pub(crate) fn into_left(self) -> Option<(Box<Work>, Arc<Exchange>)> {
        self.left
    }
}

impl Exchange {
    pub(crate) fn new(id: RequestId) -> Self {
        Self {
            id: AtomicU64::new(id.0),
            state: Mutex::new(State::new()),
            changed: Condvar::new(),
            is_replied: AtomicBool::new(false),
            is_aborting: AtomicBool::new(false),
        }
    }

    /// The request's name.
    pub(crate) fn id(&self) -> RequestId {
        RequestId(self.id.load(Ordering::Relaxed))
    }

    /// The server has forwarded parts of the request; returns whether it was asked before to let the request go.
    pub(crate) fn contracted(&self, contract: &Arc<Contract>) -> bool {
        let mut state = self.state.lock();
        state.contract = Arc::downgrade(contract);
        state.aborting.is_some()
    }

    /// Whether this request may have originated others.
    pub(crate) fn is_contracted(&self) -> bool {
        self.state.lock().contract.strong_count() > 0
    }

    /// The server's reply; the server has no part of the work any more.
    pub(crate) fn reply(&self, mut work: Box<Work>, error: Option<Error>) {
        work.error = error;
        work.finish_outputs(work.error.is_none());
        let mut state = self.state.lock();
        state.is_done = true;
        let listing = state.listing.take();
        let left = match &state.phase {
            Phase::Waiting => {
                // In each of these ways a server may let go of an aborted request; the client is told why it was aborted.
                use Error::{ArgumentTooLong, Dropped, Panicked, Server, Untold};
                let is_let_go = matches!(
                    work.error,
                    Some(Dropped | Panicked { .. } | Server(_) | ArgumentTooLong { .. } | Untold { .. })
                );
                let is_late = matches!(state.aborting, Some(Error::TimedOut { .. }));
                if let Some(reason) = state.aborting.take().filter(|_| is_let_go || is_late) {
                    work.error = Some(reason);
                }
                // There is nothing in a phase of waiting that would have to be dropped.
                std::mem::forget(std::mem::replace(&mut state.phase, Phase::Replied(work)));
                None
            }
            // No thread waits for the reply: the work is dropped, outside the lock.
            phase => Some((work, matches!(phase, Phase::Forgotten) && state.aborting.is_none())),
        };
        self.wake(state);
        match left {
            Some((work, true)) => work.leave(),
            left => drop(left),
        }
        // This must come after the client can see the reply: a flush ends when the request is removed, and promises that the
        // reply is there. So the client may go on while this thread still holds the listing's handle of the server.
        if let Some(listing) = listing {
            listing.remove(self.id());
        }
    }

    /// The server's anticipated reply; the server keeps the work.
    pub(crate) fn anticipate(&self, reply: Box<Reply>) {
        let mut state = self.state.lock();
        state.phase = match state.phase {
            Phase::Waiting => Phase::Anticipated(reply),
            Phase::Forgotten => Phase::Over,
            _ => return,
        };
        self.wake_listed(state);
    }

    /// Lists the request as outstanding, by `list`, unless the server has let it go already; returns whether it is listed.
    pub(crate) fn list(&self, list: impl FnOnce() -> Arc<dyn Listing>) -> bool {
        let mut state = self.state.lock();
        if !state.is_done {
            state.listing = Some(list());
        }
        !state.is_done
    }

    /// Sets an alarm, unless the request is over.
    pub(crate) fn set_alarm(&self, set: impl FnOnce() -> Alarm) {
        let mut state = self.state.lock();
        if !state.is_done && matches!(state.phase, Phase::Waiting | Phase::Forgotten) {
            state.alarm = Some(set());
        }
    }

    /// The request is over: wakes threads that wait for the phase to change. What follows comes after the lock is let go, since it may
    /// be code that asks for this request.
    fn wake(&self, mut state: MutexGuard<'_, State>) {
        // Release pairs with the poller's Acquire, though the thread that takes the reply takes the lock, too.
        self.is_replied.store(true, Ordering::Release);
        self.changed.notify_all();
        let (sequel, alarm) = (state.sequel.take(), state.alarm.take());
        let told = state.progress.as_mut().and_then(|progress| progress.task.take());
        drop(state);
        drop(alarm);
        if let Some(sequel) = sequel {
            sequel::have_follow(sequel);
        }
        if let Some(task) = told {
            sequel::have_follow(Sequel::Task(task));
        }
    }

    /// As `wake`, for a request of which the server still has a part: the request stays listed, and an event loop is told.
    fn wake_listed(&self, state: MutexGuard<'_, State>) {
        let listing = state.listing.clone();
        self.wake(state);
        if let Some(listing) = listing {
            listing.tell();
            listing.look(self.id());
        }
    }

    /// Whether a reply, or the reason why there is none, can be taken.
    pub(crate) fn is_replied(&self) -> bool {
        self.is_replied.load(Ordering::Acquire)
    }

    /// Whether a reply can be taken; if not, the task is woken when one can, in place of a task that asked before.
    pub(crate) fn poll(&self, task: &Waker) -> bool {
        if self.is_replied() {
            return true;
        }
        let mut state = self.state.lock();
        let is_over = !matches!(state.phase, Phase::Waiting);
        let mut replaced = None;
        let is_known = matches!(&state.sequel, Some(Sequel::Task(known)) if known.will_wake(task));
        if !is_over && !is_known {
            replaced = state.sequel.replace(Sequel::Task(task.clone()));
        }
        drop(state);
        // Without the lock: this may drop a task, which may ask for this request.
        drop(replaced);
        is_over
    }

    /// Has this follow when a reply can be taken, in place of a task that asked before: now, if there is one.
    pub(crate) fn then(&self, sequel: Sequel) {
        let mut state = self.state.lock();
        if !matches!(state.phase, Phase::Waiting) {
            drop(state);
            return sequel::have_follow(sequel);
        }
        let replaced = state.sequel.replace(sequel);
        drop(state);
        // As in `poll`.
        drop(replaced);
    }

    fn sleep(&self, deadline: Option<Instant>, until: &Until<'_>) -> bool {
        let is_over = |state: &State| {
            let has_come = matches!(until, Until::Progress(index, beyond) if state.come(*index) > *beyond);
            has_come || !matches!(state.phase, Phase::Waiting)
        };
        self.changed.wait_until(self.state.lock(), deadline, is_over).1
    }

    /// Takes the reply, or the reason why there is none.
    pub(crate) fn take(&self) -> Found {
        let mut state = self.state.lock();
        let State { phase, progress, .. } = &mut *state;
        match phase {
            Phase::GivenUp(reason) => {
                let buffers = progress.as_deref().map(Progress::buffers).unwrap_or_default();
                Found::Failed(Box::new(Failed { error: (**reason).clone(), buffers, kept: false }))
            }
            phase => std::mem::replace(phase, Phase::Over).into(),
        }
    }

    /// Looks at a reply that is there, without taking it.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&mut Work) -> T) -> Option<T> {
        // A registrar's call may abort this request, unless a device is transferring its data.
        let _later = TellLater::begin();
        match &mut self.state.lock().phase {
            Phase::Replied(work) if work.error.is_none() => Some(look(work)),
            _ => None,
        }
    }

    /// The client wants no reply any more. Returns whether the server still has a part of the request.
    pub(crate) fn depart(&self) -> bool {
        let mut state = self.state.lock();
        let is_left = !state.is_done;
        let next = match state.phase {
            Phase::Waiting => Phase::Forgotten,
            Phase::GivenUp(_) => return is_left,
            _ => Phase::Over,
        };
        let left = std::mem::replace(&mut state.phase, next);
        // No thread waits that would have to be woken.
        self.is_replied.store(true, Ordering::Release);
        drop(state);
        if let Phase::Replied(work) = left {
            work.leave();
        }
        is_left
    }

    /// Has a reply that is there fail, if it is a success.
    pub(crate) fn fail(&self, reason: Error) {
        if let Phase::Replied(work) = &mut self.state.lock().phase {
            work.error.get_or_insert(reason);
        }
    }

    /// Has a reply fail that came in the thread that made the request, and too late.
    pub(crate) fn fail_if_late(&self, deadline: Option<Instant>, timeout: Option<Duration>) {
        if let (Some(deadline), Some(timeout)) = (deadline, timeout)
            && Instant::now() >= deadline
        {
            self.fail(Error::TimedOut { timeout });
        }
    }

    /// Ends the client's waiting, if there is no reply yet; the server keeps the work.
    pub(crate) fn give_up(&self, reason: &Error) {
        let mut state = self.state.lock();
        if matches!(state.phase, Phase::Waiting) {
            state.phase = Phase::GivenUp(Box::new(reason.clone()));
            self.wake_listed(state);
        }
    }
}
