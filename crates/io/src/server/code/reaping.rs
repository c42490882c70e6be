//! Reaping: how the clients of a server that has a completer look for what it has completed.
//!
//! How: as at a channel, one of the threads that wait for a server's replies leads: it looks, and waits where the server says. Its
//! followers sleep until it wakes them. A reply that another thread gives wakes them all, the leader by a bell. Event loops wait by the
//! completer's descriptor (`interface/watch.rs`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use genie_sys::fork::Maker;

use super::Code;
use crate::exchange::Awaited;
use crate::followers::Followers;
use crate::primitive::{AtomicBool, AtomicUsize, Mutex, Ordering, thread, thread_local};
use crate::sequel::Sequels;
use crate::server::bell::Bell;

/// The longest wait before a thread looks again whether its request has been given up.
const LONGEST: Duration = Duration::from_millis(100);

/// Lets one of the waiting threads look, and has the others sleep meanwhile.
#[derive(Debug, Default)]
pub(super) struct Reaping {
    looking: Mutex<()>,
    /// Which thread is looking: [`this_thread`] there, and 0 while none is.
    looker: AtomicUsize,
    /// A thread would look, and another one was looking. Always exchanged: either the thread that was looking sees it, or the one that
    /// would look finds the lock free.
    wants_look: AtomicBool,
    followers: Followers,
    /// Ends the wait of the thread that is looking.
    bell: Arc<Bell>,
}

impl Reaping {
    /// Waits until the awaited request has its reply, or has been given up; returns whether either has happened.
    pub(super) fn wait(&self, server: &Code, awaited: &Awaited<'_>, deadline: Option<Instant>) -> bool {
        let maker = Maker::this_process();
        loop {
            if awaited.is_replied() {
                return true;
            }
            // The server's code has forked, and this is the child: the reply comes to the parent.
            if !maker.is_this_process() {
                return false;
            }
            let left =
                deadline.map_or(LONGEST, |at| at.saturating_duration_since(Instant::now()).min(LONGEST));
            if left.is_zero() {
                return false;
            }
            let mut looked = self.look(|| collect(server));
            // What followed from that, tasks and continuations, has run by now.
            if looked == Some(0) && !awaited.is_replied() && maker.is_this_process() {
                looked = self.look(|| {
                    self.bell.take_along(|| {
                        // From now on a reply rings.
                        if !awaited.is_replied() {
                            let waited = server.completer(|completer| completer.wait(left));
                            // A server that panics here, or has no completer any more, is not asked again without a pause.
                            waited.ok().flatten().unwrap_or_else(|| thread::sleep(left.min(LONGEST / 100)));
                        }
                    });
                    collect(server)
                });
            }
            if looked.is_none() {
                let is_free = || self.looking.try_lock().is_some();
                self.followers.sleep(|| awaited.is_replied() || is_free(), deadline);
            }
            // Even by asking whether the lock is free, this thread may have been in the way of a look.
            if maker.is_this_process() && self.wants_look.swap(false, Ordering::AcqRel) {
                self.collect(server);
            }
        }
    }

    /// Looks, or has the thread that is looking look once more: this thread's event loop may have been woken by what came after that
    /// thread's look. Returns how many requests this has completed.
    pub(super) fn collect(&self, server: &Code) -> usize {
        // The server's own code, which is asked to look, looks for its clients, too.
        if self.looker.load(Ordering::Relaxed) == this_thread() {
            return 0;
        }
        let (maker, mut count) = (Maker::this_process(), 0);
        loop {
            self.wants_look.swap(true, Ordering::AcqRel);
            let looked = self.look(|| {
                self.wants_look.swap(false, Ordering::AcqRel);
                collect(server)
            });
            let Some(completed) = looked else { return count };
            count += completed;
            if !maker.is_this_process() || !self.wants_look.swap(false, Ordering::AcqRel) {
                return count;
            }
        }
    }

    /// Looks, unless another thread is looking: that one is not made to look once more.
    pub(super) fn collect_if_free(&self, server: &Code) -> usize {
        let maker = Maker::this_process();
        let Some(count) = self.look(|| collect(server)) else { return 0 };
        // This look may have been in the way of one.
        match maker.is_this_process() && self.wants_look.swap(false, Ordering::AcqRel) {
            true => count + self.collect(server),
            false => count,
        }
    }

    /// Does what only one thread at a time does; none while another one does.
    fn look<T>(&self, act: impl FnOnce() -> T) -> Option<T> {
        let looking = self.looking.try_lock()?;
        self.looker.store(this_thread(), Ordering::Relaxed);
        // The clients' tasks and continuations may make requests of this server, and wait for the replies.
        let mut sequels = Sequels::none();
        let done = sequels.put_off(act);
        self.looker.store(0, Ordering::Relaxed);
        drop(looking);
        self.followers.wake();
        Some(done)
    }

    /// Has the threads that wait check whether they must wait any longer.
    pub(super) fn wake(&self) {
        self.bell.ring();
        // The thread that looks wakes its followers when it has looked.
        if self.looker.load(Ordering::Relaxed) != this_thread() {
            self.followers.wake();
        }
    }
}

/// An address that is this thread's alone.
fn this_thread() -> usize {
    thread_local!(static HERE: u8 = const { 0 });
    HERE.with(|here| std::ptr::from_ref(here).addr())
}

/// How many requests a server says it has completed, limited so that the numbers can be added up.
fn collect(server: &Code) -> usize {
    let count = server.completer(|completer| completer.collect());
    count.ok().flatten().unwrap_or_default().min(u32::MAX as usize)
}
