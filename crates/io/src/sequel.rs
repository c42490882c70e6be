//! Sequels: what follows in the client's code when a request is over, or room was made: a task is woken, or a continuation runs.
//!
//! Why: the thread that takes a reply may have a lock for which others wait, since it takes the replies for all of them. The client's
//! code may take long, or make requests of its own: others would wait for it, or it would wait for that lock for ever.
//! How: a thread that has such a lock puts sequels off ([`Sequels::put_off`]). They wait in a list of the thread's own until it has let
//! the lock go. Continuations say what they cost. A short one costs no more than [`HIJACK_LIMIT`]. The thread runs short ones, one after the
//! other, as long as their costs add up to no more than the limit; one that takes longer than it said counts for what it took. The other
//! short ones run in one thread that nobody waits for, and each long one in a thread of its own. Where there can be no more threads, these
//! are *left*: a thread of the client's that comes by runs them, one after the other, and not inside one another. Genie's own threads, on
//! which others rely, leave them, and try again to start a thread for them.
//! Invariants: sequels that were put off follow in the order in which they came, but for those that get a thread, and in no child
//! that is forked meanwhile.
//! Limits: [`MOST`] in one list, and what follows the replies that are taken together; then the thread takes no more replies until they have
//! followed. Nothing limits the threads, nor what is left for want of them.
//! Source: thesis §11.2 (limited hijacking). Differs: the client estimates the time, since the code is the client's; and what exceeds the
//! limit goes on at once in another thread, not when the client looks.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::fmt;
use std::mem::{ManuallyDrop, take};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Waker;
use std::time::{Duration, Instant};

use genie_memory::is_quiet;
use genie_sys::PerProcess;
use genie_sys::fork::Maker;
use genie_sys::lock::Mutex;
use genie_sys::thread::is_spawned;

use crate::deadline::deadline_after;
use crate::primitive::{spawn, thread_local};
use crate::{panics, telemetry};

/// How long continuations may hold up a thread that takes replies, 50 us: the costs of those that it runs, one after the other, add up to no
/// more than this, and the others get threads. A continuation is *short* if it alone costs no more, and else *long*: see
/// [`Pending::then`](crate::Pending::then).
///
/// It is about what it takes to wake another thread: what costs less is not worth handing over.
pub const HIJACK_LIMIT: Duration = Duration::from_micros(50);

/// The most sequels that a thread lets come together before it lets its lock go.
const MOST: usize = 32;

/// When a thread of Genie's tries again to start a thread for what is left.
const RETRY: Duration = Duration::from_millis(100);

/// How many continuations have taken longer than they said.
static OVERRUNS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The list of a thread that puts sequels off. It is empty when the thread ends, and needs no destructor.
    static PUT_OFF: ManuallyDrop<RefCell<Option<Vec<Sequel>>>> = const { ManuallyDrop::new(RefCell::new(None)) };
    /// The thread runs a continuation while others may wait for it.
    static IS_HIJACKED: Cell<bool> = const { Cell::new(false) };
    /// The thread runs what waits for a thread.
    static RUNS_WAITING: Cell<bool> = const { Cell::new(false) };
}

/// What follows.
#[derive(Debug)]
pub(crate) enum Sequel {
    Task(Waker),
    Then(Continuation),
    Note(Note),
}

/// What Genie itself notes when a request is over. It is no code of a client's, takes no lock for which the client's code is run, and is never
/// put off: a thread that has such a lock may wait for it.
pub(crate) struct Note(pub(crate) Box<dyn FnOnce() + Send>);

/// What is to be done with a reply, and how long that takes.
pub(crate) struct Continuation {
    pub(crate) cost: Duration,
    pub(crate) run: Box<dyn FnOnce() + Send>,
}

impl Continuation {
    fn is_short(&self) -> bool {
        self.cost <= HIJACK_LIMIT
    }

    /// Runs a short one in this thread, for which others may wait: it may not wait, and is measured. Returns what it cost, and puts what
    /// follows from it behind `others`, so that the stack does not grow.
    fn run_short(self, others: &mut VecDeque<Sequel>) -> Duration {
        let (begun, mut next) = (Instant::now(), Sequels::none());
        let before = IS_HIJACKED.with(|is_hijacked| is_hijacked.replace(true));
        next.put_off(|| panics::end_here(self.run));
        IS_HIJACKED.with(|is_hijacked| is_hijacked.set(before));
        let took = begun.elapsed();
        if took > self.cost {
            OVERRUNS.fetch_add(1, Ordering::Relaxed);
            telemetry::overran(self.cost, took);
        }
        others.extend(take(&mut next.0));
        took.max(self.cost)
    }
}

impl Sequel {
    /// Wakes the task, or makes the note; gives a continuation back. A panic of the client's code ends here.
    fn wake(self) -> Option<Continuation> {
        match self {
            Self::Task(task) => panics::end_here(|| task.wake()),
            Self::Note(Note(note)) => note(),
            Self::Then(continuation) => return Some(continuation),
        }
        None
    }
}

impl fmt::Debug for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Note").finish()
    }
}

impl fmt::Debug for Continuation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Continuation").field("cost", &self.cost).finish_non_exhaustive()
    }
}

/// How many continuations of this process have taken longer than they said, where a reply was taken: see
/// [`Pending::then`](crate::Pending::then). The time is that of the clock: what the kernel gave to other threads counts, too.
pub fn overruns() -> u64 {
    OVERRUNS.load(Ordering::Relaxed)
}

/// Whether this thread runs a continuation that may not wait.
#[inline]
pub(crate) fn is_hijacked() -> bool {
    IS_HIJACKED.with(Cell::get)
}

/// Whether something waits for this thread to let a lock go, which may be what this thread would wait for.
pub(crate) fn has_put_off() -> bool {
    PUT_OFF.with(|put_off| put_off.borrow().as_ref().is_some_and(|list| !list.is_empty()))
}

/// Sequels that were put off. Dropping this has them follow.
#[derive(Debug)]
pub(crate) struct Sequels(Vec<Sequel>);

impl Sequels {
    #[inline]
    pub(crate) const fn none() -> Self {
        Self(Vec::new())
    }

    /// Does something that may end requests, and puts off what follows.
    pub(crate) fn put_off<T>(&mut self, act: impl FnOnce() -> T) -> T {
        let putting_off = PuttingOff { before: exchange(Some(take(&mut self.0))), into: self };
        let maker = Maker::this_process();
        let done = act();
        drop(putting_off);
        if !maker.is_this_process() {
            // They are the parent's.
            std::mem::forget(take(&mut self.0));
        }
        done
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether so many were put off that the thread had better let its lock go.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.0.len() >= MOST
    }

    /// Lets them follow, now or with those that the thread puts off around this. The caller has no lock that they may need.
    pub(crate) fn follow(&mut self) {
        if let Some(now) = unless_put_off(take(&mut self.0)) {
            follow(now.into(), HIJACK_LIMIT);
        }
    }
}

impl Drop for Sequels {
    #[inline]
    fn drop(&mut self) {
        if !self.is_empty() {
            self.follow();
        }
    }
}

/// While this is there, the thread puts sequels off.
struct PuttingOff<'a> {
    into: &'a mut Sequels,
    /// The list of those that the thread puts off around this.
    before: Option<Vec<Sequel>>,
}

impl Drop for PuttingOff<'_> {
    fn drop(&mut self) {
        self.into.0 = exchange(self.before.take()).unwrap_or_default();
    }
}

fn exchange(list: Option<Vec<Sequel>>) -> Option<Vec<Sequel>> {
    PUT_OFF.with(|put_off| put_off.replace(list))
}

/// Wakes tasks, and runs short continuations while their costs add up to no more than `limit`; the other continuations get threads.
///
/// In a registrar's call, a thread does all that: a continuation may use memory that it makes, of which this thread could not tell registrars.
fn follow(mut sequels: VecDeque<Sequel>, limit: Duration) {
    if is_quiet() {
        return detach(move || follow(sequels, limit));
    }
    let (maker, mut spent, mut left) = (Maker::this_process(), Duration::ZERO, VecDeque::new());
    while let Some(sequel) = sequels.pop_front() {
        match sequel.wake() {
            Some(long) if !long.is_short() => detach(move || panics::end_here(long.run)),
            Some(next) if left.is_empty() && spent.saturating_add(next.cost) <= limit => {
                spent = spent.saturating_add(next.run_short(&mut sequels));
            }
            Some(next) => left.push_back(Sequel::Then(next)),
            None => {}
        }
        if !maker.is_this_process() {
            // The client's code has forked, and this is the child: the rest is the parent's.
            return std::mem::forget((sequels, left));
        }
    }
    if !left.is_empty() {
        // Nobody waits for that thread.
        detach(move || follow(left, Duration::MAX));
    }
}

/// What waits for a thread of its own. A child made by fork has none of its parent's.
type Waiting = Mutex<VecDeque<Box<dyn FnOnce() + Send>>>;

fn waiting() -> &'static Waiting {
    static WAITING: PerProcess<Waiting> = PerProcess::new();
    let Ok(waiting) = WAITING.get(|_| Ok::<_, Infallible>(Waiting::default()));
    waiting
}

/// Whether something has been left. It changes under the lock of what waits.
static IS_LEFT: AtomicBool = AtomicBool::new(false);

/// Does this in a thread of its own. Where there can be none, a thread of the client's does it here, and one of Genie's leaves it.
fn detach(act: impl FnOnce() + Send + 'static) {
    waiting().lock().push_back(Box::new(act));
    if spawn("genie-then", run_waiting).is_err() {
        let waiting = waiting().lock();
        IS_LEFT.store(!waiting.is_empty(), Ordering::Relaxed);
        drop(waiting);
        run_left();
    }
}

/// Does all that waits for a thread, one after the other, and what follows from it, unless this thread is about that already. For a thread of
/// Genie's that has nothing else to do.
pub fn run_waiting() {
    if RUNS_WAITING.with(|runs_waiting| runs_waiting.replace(true)) {
        return;
    }
    let next = || {
        let mut waiting = waiting().lock();
        if waiting.is_empty() {
            IS_LEFT.store(false, Ordering::Relaxed);
        }
        waiting.pop_front()
    };
    std::iter::from_fn(next).for_each(|act| act());
    RUNS_WAITING.with(|runs_waiting| runs_waiting.set(false));
}

/// Whether something has been left for want of threads, which a thread of the client's that lets sequels follow does.
#[inline]
pub fn is_left() -> bool {
    IS_LEFT.load(Ordering::Relaxed)
}

/// Does what has been left for want of threads, if this thread is one of the client's and may wait. It has no lock.
#[inline]
pub(crate) fn run_left() {
    if is_left() && !is_spawned() && !is_hijacked() && !is_quiet() {
        run_waiting();
    }
}

/// Has a thread do what has been left, if anything has: for threads of Genie's. Where there can still be no thread, returns when to try
/// again.
pub fn have_left_run() -> Option<Instant> {
    let cannot = is_left() && spawn("genie-then", run_waiting).is_err();
    deadline_after(RETRY).filter(|_| cannot)
}

/// Has a sequel follow: a note at once, and the client's code when this thread has let go the lock under which it takes replies.
pub(crate) fn have_follow(sequel: Sequel) {
    let now = match sequel {
        Sequel::Note(_) => Some(sequel),
        _ => unless_put_off(Some(sequel)).flatten(),
    };
    if let Some(continuation) = now.and_then(Sequel::wake) {
        follow(VecDeque::from([Sequel::Then(continuation)]), HIJACK_LIMIT);
    }
}

/// Gives sequels back, unless this thread puts them off.
fn unless_put_off<T: IntoIterator<Item = Sequel>>(sequels: T) -> Option<T> {
    PUT_OFF.with(|put_off| match &mut *put_off.borrow_mut() {
        Some(list) => {
            list.extend(sequels);
            None
        }
        None => Some(sequels),
    })
}

/// How long this thread may wait, if it would for so long: not at all in a short continuation.
pub(crate) fn patience(timeout: Duration) -> Duration {
    if is_hijacked() { Duration::ZERO } else { timeout }
}

/// Wakes a client's task: at once, or when this thread has let go the lock under which it takes replies. A panic of the client's code
/// ends there.
pub fn wake(task: Waker) {
    have_follow(Sequel::Task(task));
}
