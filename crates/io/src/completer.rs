//! Completers: servers in this process that complete requests when clients look, as a ring of the kernel's is reaped.
//!
//! Why: otherwise such a server would need a thread that looks. Its clients look instead, since a thread that waits for a
//! reply has nothing else to do.
//! How: as at a channel, one of the threads that wait for a server's replies leads: it looks, and waits where the server says. Its
//! followers sleep until it wakes them. Event loops wait by the completer's descriptor (`interface/watch.rs`).

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use genie_sys::fork::Maker;

use crate::channel::Followers;
use crate::code::Code;
use crate::exchange::Awaited;
use crate::primitive::{AtomicBool, Mutex, Ordering, thread};

/// The longest wait before a thread looks again whether its request has been given up.
const LONGEST: Duration = Duration::from_millis(100);

/// Completes a server's requests: see [`Server::completer`](crate::Server::completer).
pub trait Completer {
    /// Replies to the requests whose work is done, without waiting; returns how many there were.
    fn collect(&self) -> usize;

    /// Waits until there may be something to collect, at most for `timeout`.
    fn wait(&self, timeout: Duration);

    /// A descriptor that is readable while there may be something to collect, for clients that wait in event loops: an
    /// eventfd that the kernel signals, a timer, or the descriptor of an interface by which this server makes requests of
    /// its own. It stops being readable when [`Completer::collect`] has taken what there is. While requests are outstanding,
    /// this must return the same descriptor each time: a client's interface keeps a duplicate until the interface is armed
    /// when no request is outstanding.
    ///
    /// Where there is no descriptor, or epoll can't wait for it, [`Interface::arm`](crate::Interface::arm) says that there
    /// may be something to collect, so that clients' event loops look again and again instead of sleeping.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Prepares the descriptor, if it needs preparing. From then on it becomes readable when there may be something to
    /// collect, also for later requests, and even if other threads look meanwhile. Returns false when there may be something
    /// to collect now. Event loops of several clients may call this at once, and while another thread looks.
    fn arm(&self) -> bool {
        true
    }
}

/// Lets one of the waiting threads look, and has the others sleep meanwhile.
#[derive(Debug, Default)]
pub(crate) struct Reaping {
    looking: Mutex<()>,
    /// A thread would look, and another one is looking.
    wants_look: AtomicBool,
    followers: Followers,
}

impl Reaping {
    /// Waits until the awaited request has its reply, or has been given up; returns whether either has happened.
    pub(crate) fn wait(&self, server: &Code, awaited: &Awaited<'_>, deadline: Option<Instant>) -> bool {
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
            let Some(looking) = self.looking.try_lock() else {
                self.followers.sleep(|| awaited.is_replied() || self.looking.try_lock().is_some(), deadline);
                continue;
            };
            if collect(server) == 0 && !awaited.is_replied() {
                let waited = server.completer(|completer| completer.wait(left));
                // A server that panics here, or has no completer any more, is not asked again without a pause.
                waited.ok().flatten().unwrap_or_else(|| thread::sleep(left.min(LONGEST / 100)));
                collect(server);
            }
            drop(looking);
            self.followers.wake();
            if maker.is_this_process() && self.wants_look.load(Ordering::SeqCst) {
                self.collect(server);
            }
        }
    }

    /// Looks, or has the thread that is looking look once more: this thread's event loop may have been woken by what came after that
    /// thread's look. Returns how many requests this has completed.
    pub(crate) fn collect(&self, server: &Code) -> usize {
        let (maker, mut count) = (Maker::this_process(), 0);
        loop {
            self.wants_look.store(true, Ordering::SeqCst);
            let Some(looking) = self.looking.try_lock() else { return count };
            self.wants_look.store(false, Ordering::SeqCst);
            count += collect(server);
            drop(looking);
            self.followers.wake();
            if !maker.is_this_process() || !self.wants_look.load(Ordering::SeqCst) {
                return count;
            }
        }
    }

    /// Has the followers check whether they must wait any longer.
    pub(crate) fn wake(&self) {
        self.followers.wake();
    }
}

/// How many requests a server says it has completed, limited so that the numbers can be added up.
fn collect(server: &Code) -> usize {
    let count = server.completer(|completer| completer.collect());
    count.ok().flatten().unwrap_or_default().min(u32::MAX as usize)
}
