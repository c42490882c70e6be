//! Sequels: what follows in the client's code when a request is over, or room was made: a task is woken.
//!
//! Why: the thread that takes a reply may have a lock for which others wait, since it takes the replies for all of them. The client's
//! code may take long, or make requests of its own: others would wait for it, or it would wait for that lock for ever.
//! How: a thread that has such a lock puts sequels off ([`Sequels::put_off`]). They wait in a list of the thread's own until it has let
//! the lock go.
//! Invariants: sequels that were put off follow in the order in which they came, in the thread that has put them off, and in no child
//! that is forked meanwhile.
//! Limits: [`MOST`] in one list; then the thread takes no more replies until they have followed.

use std::cell::RefCell;
use std::fmt;
use std::mem::{ManuallyDrop, take};
use std::task::Waker;

use genie_sys::fork::Maker;

use crate::panics;
use crate::primitive::thread_local;

/// The most sequels that a thread lets come together before it lets its lock go.
const MOST: usize = 32;

thread_local! {
    /// The list of a thread that puts sequels off. It is empty when the thread ends, and needs no destructor.
    static PUT_OFF: ManuallyDrop<RefCell<Option<Vec<Waker>>>> = const { ManuallyDrop::new(RefCell::new(None)) };
}

/// What follows the end of a request.
#[derive(Debug)]
pub(crate) enum Sequel {
    Task(Waker),
    Note(Note),
}

/// What Genie itself notes when a request is over. It is no code of a client's, takes no lock for which the client's code is run, and is
/// never put off: a thread that has such a lock may wait for it.
pub(crate) struct Note(pub(crate) Box<dyn FnOnce() + Send>);

impl fmt::Debug for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Note").finish()
    }
}

/// Sequels that were put off. Dropping this has them follow.
#[derive(Debug)]
pub(crate) struct Sequels(Vec<Waker>);

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

    /// Lets them follow. The caller has no lock that they may need.
    pub(crate) fn follow(&mut self) {
        let (maker, mut sequels) = (Maker::this_process(), take(&mut self.0).into_iter());
        while let Some(task) = sequels.next() {
            wake(task);
            if !maker.is_this_process() {
                std::mem::forget(take(&mut sequels));
            }
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
    before: Option<Vec<Waker>>,
}

impl Drop for PuttingOff<'_> {
    fn drop(&mut self) {
        self.into.0 = exchange(self.before.take()).unwrap_or_default();
    }
}

fn exchange(list: Option<Vec<Waker>>) -> Option<Vec<Waker>> {
    PUT_OFF.with(|put_off| put_off.replace(list))
}

/// Has a sequel follow: a note at once, a task as [`wake`] does.
pub(crate) fn have_follow(sequel: Sequel) {
    match sequel {
        Sequel::Task(task) => wake(task),
        Sequel::Note(Note(note)) => note(),
    }
}

/// Wakes a client's task: at once, or when this thread has let go the lock under which it takes replies. A panic of the client's code
/// ends there.
pub fn wake(task: Waker) {
    let left = PUT_OFF.with(|put_off| match &mut *put_off.borrow_mut() {
        Some(list) => {
            list.push(task);
            None
        }
        None => Some(task),
    });
    left.into_iter().for_each(|task| panics::end_here(|| task.wake()));
}
