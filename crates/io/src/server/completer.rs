//! Completers: servers that complete requests when somebody looks, as a ring of the kernel's is reaped.
//!
//! Why: otherwise such a server would need a thread that looks. Its clients in this process look instead, since a thread that waits for
//! a reply has nothing else to do (`code/reaping.rs`); for clients in other processes, the threads do that take their requests.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use crate::sequel;
use crate::server::bell;

/// Completes a server's requests: see [`Server::completer`](crate::Server::completer).
pub trait Completer {
    /// Replies to the requests whose work is done, without waiting; returns how many there were. It may leave some for the next call,
    /// which comes soon if this returns more than 0. Where clients are in other processes it must return soon, since others of
    /// them wait meanwhile, and must not wait for a reply of its own server, which may never come.
    fn collect(&self) -> usize;

    /// Waits until there may be something to collect, at most for `timeout`. By default, this arms the descriptor and waits for it; where
    /// there is none, or it cannot be armed, for a moment. It returns at once when another thread replies to a request of this server.
    ///
    /// A server waits in its own way if it can wait for what it collects, by a faster way than a descriptor, and only
    /// [`Completer::collect`] replies to its requests: its wait does not end when another thread replies, whose client then waits for
    /// `timeout`. Replies that are taken in here wake tasks, and run continuations ([`Pending::then`](crate::Pending::then)), only when this
    /// has returned: so a server that has continuations reply leaves this as it is. [`Completions`](crate::Completions) have their requests
    /// at once.
    fn wait(&self, timeout: Duration) {
        let descriptor = self.descriptor();
        let until = (!self.spin().is_zero()).then(|| Instant::now() + self.spin().min(timeout));
        let mut is_armed = descriptor.is_some() && self.arm();
        while is_armed && until.is_some_and(|until| Instant::now() < until) {
            std::hint::spin_loop();
            is_armed = self.arm();
        }
        let has_more = || sequel::has_put_off() || !is_armed && self.collect() > 0;
        if !has_more() {
            let (by, at_most) =
                if is_armed { (descriptor, timeout) } else { (None, timeout.min(bell::MOMENT)) };
            bell::wait(by, at_most);
        }
    }

    /// A descriptor that is readable while there may be something to collect, for clients that wait in event loops: an
    /// eventfd that the kernel signals, a timer, or the descriptor of an interface by which this server makes requests of
    /// its own. It stops being readable when [`Completer::collect`] has taken what there is. While requests are outstanding,
    /// this must return the same descriptor each time: a client's interface keeps a duplicate until the interface is armed
    /// when no request is outstanding. A server of clients in other processes is asked once, when it begins to serve.
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

    /// For how long a thread that waits arms again and again before it sleeps: a device answers sooner than a thread wakes, but nobody
    /// else has the processor meanwhile. Not at all, by default.
    fn spin(&self) -> Duration {
        Duration::ZERO
    }
}
