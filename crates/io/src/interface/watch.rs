//! Waiting for all servers of an interface by one descriptor.
//!
//! How: one set of descriptors (epoll) holds those of each channel, an event for requests that servers in this process
//! complete, and the descriptor of each [`Completer`](crate::Completer) at whose server requests are outstanding. Arming
//! brings the set up to date with the completers, so that making a request costs nothing more.
//! Invariants: a completer's code is called with no lock of ours held. Completers can't wait for one another's descriptors
//! in a circle, since the kernel refuses to add the last one: so arming them ends.
//! Limits: where a completer is the client of another interface, the sets are inside each other; the kernel allows about
//! four levels.

use std::ops::BitAnd;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Weak;

use genie_sys::poll::Poller;

use super::Interface;
use crate::interface::outstanding::Outstanding;
use crate::loop_waker::LoopWaker;
use crate::primitive::Mutex;
use crate::server::code::Code;
use crate::{Error, ServerHandle, sequel};

/// What the interface's descriptor stands for.
#[derive(Debug)]
pub(super) struct Watch {
    pub(super) poller: Poller,
    completers: Mutex<Vec<Watched>>,
}

/// A server in this process at which requests were outstanding when the interface was last armed.
#[derive(Debug)]
struct Watched {
    server: u64,
    by: By,
}

/// How an event loop hears that a completer may have something.
#[derive(Debug)]
enum By {
    /// By a duplicate of its descriptor: the completer may close its own descriptor, or give the same one for several
    /// servers.
    Descriptor(OwnedFd),
    /// The completer is a client of this same interface, and is woken when the interface is.
    Interface,
    /// Not at all: the completer has no descriptor, or none that can be waited for.
    Nothing,
}

impl Interface {
    /// A descriptor for `poll`, `epoll` or an asynchronous run time, by which one event loop waits for all servers of this
    /// interface. The loop calls [`Interface::collect`], looks at its pending requests, calls [`Interface::arm`], and if
    /// that returns true waits until the descriptor is readable; then it begins again. Other threads may make requests
    /// meanwhile and wait for them as they like.
    ///
    /// The descriptor is readable while there is something to look at that came after the loop armed: a reply that any
    /// thread took or can take, or a request that was given up or has begun.
    /// [`Pending::is_replied`](crate::Pending::is_replied) makes the descriptor readable only if it takes a reply. A new
    /// descriptor is readable once, since a loop that armed before it existed was told of nothing.
    ///
    /// For a server in this process that completes requests when clients look, this waits by
    /// [`Completer::descriptor`](crate::Completer::descriptor).
    ///
    /// # Errors
    /// The limit on descriptors.
    pub fn descriptor(&self) -> Result<BorrowedFd<'_>, Error> {
        self.ensure_own()?;
        if let Some(watch) = self.0.watch.get() {
            return Ok(watch.poller.as_fd());
        }
        // The lock is held until the poller is known, so that no server connects in between.
        let carriers = self.0.carriers.lock();
        let watch = Watch { poller: Poller::new()?, completers: Mutex::default() };
        for carrier in carriers.iter().filter_map(Weak::upgrade) {
            carrier.watch_by(&watch.poller, 0)?;
        }
        if self.0.watch.get().is_none() {
            let mut loop_waker = LoopWaker::new()?;
            watch.poller.add(loop_waker.event(), 0)?;
            // A loop that armed before the descriptor existed was told of nothing yet: it looks once more.
            loop_waker.arm();
            loop_waker.wake();
            self.0.outstanding.wake_by(loop_waker);
        }
        Ok(self.0.watch.get_or_init(|| watch).poller.as_fd())
    }

    /// Prepares for waiting by the descriptor: it becomes readable with the next reply, even if another thread takes or
    /// gives that reply, and when a server goes. Returns false when there may be something to collect now.
    ///
    /// One arming wakes the loop once. It holds until then or until [`Interface::collect`].
    ///
    /// It returns false while a request is outstanding at a server whose [`Completer`](crate::Completer) has no descriptor
    /// that can be waited for, or panics when it is asked: there may always be something to collect, so the loop goes on
    /// looking.
    pub fn arm(&self) -> bool {
        if self.space().is_inherited() {
            return true;
        }
        // `bitand` does not stop at the first false: every channel is armed.
        let is_armed = self.0.outstanding.arm();
        let (carriers, watch) = (self.carriers(), self.0.watch.get());
        let are_armed = carriers.iter().map(|carrier| carrier.arm()).fold(is_armed, BitAnd::bitand);
        if let Some(watch) = watch {
            carriers.iter().for_each(|carrier| carrier.silence_bell(&watch.poller));
        }
        watch.is_none_or(|watch| watch.arm(&self.0.outstanding)) & are_armed
    }

    /// Takes the replies that are there, without waiting; returns how many it took. They come from servers in other
    /// processes, and from servers in this process that complete requests when clients look. The pending requests whose
    /// replies were taken are replied to from then on. It is for loops that wait by descriptor, and for programs without
    /// one. Afterwards the descriptor is readable again only when something new comes.
    pub fn collect(&self) -> usize {
        if self.space().is_inherited() {
            return 0;
        }
        sequel::run_left();
        let carriers = self.carriers();
        let taken: usize = carriers.iter().map(|carrier| carrier.collect_watched()).sum();
        carriers.iter().filter(|carrier| carrier.is_over()).for_each(|carrier| self.forget(carrier));
        // This comes last: the servers in this process may be clients of the channels' servers.
        taken + self.0.outstanding.begin_look().iter().map(ServerHandle::collect).sum::<usize>()
    }

    /// Takes the replies of one server that are there, without waiting; returns how many it took. Unlike [`Interface::collect`], it leaves
    /// event loops armed, and tells them: it is for a [`Completer`](crate::Completer) that has its requests followed by continuations
    /// ([`Pending::then`](crate::Pending::then)).
    pub fn collect_from(&self, server: &ServerHandle) -> usize {
        match self.space().is_inherited() || server.is_inherited() {
            true => 0,
            false => server.collect(),
        }
    }
}

impl Watch {
    /// Prepares the completers at which requests are outstanding, and lets go of all others; returns false when one of them may have
    /// something.
    fn arm(&self, outstanding: &Outstanding) -> bool {
        // The list is taken out, since no server is called under the lock.
        let mut all = std::mem::take(&mut *self.completers.lock());
        // The servers are looked up after that: another thread may have added a descriptor to the list, and its request is outstanding.
        let looked_at = outstanding.looked_at();
        let servers = || looked_at.iter().filter_map(ServerHandle::here);
        // Another thread that arms now finds the list empty, and adds one more descriptor for each completer.
        let is_over = |watched: &mut Watched| !servers().any(|server| server.number() == watched.server);
        all.extract_if(.., is_over).for_each(|over| self.let_go(&over.by));
        let are_armed = servers().map(|server| self.arm_one(server, &mut all)).fold(true, BitAnd::bitand);
        let mut known = self.completers.lock();
        for watched in all {
            match known.iter().any(|known| known.server == watched.server) {
                true => self.let_go(&watched.by),
                false => known.push(watched),
            }
        }
        are_armed
    }

    fn arm_one(&self, server: &Code, all: &mut Vec<Watched>) -> bool {
        let number = server.number();
        let index = all.iter().position(|watched| watched.server == number).unwrap_or_else(|| {
            all.push(Watched { server: number, by: self.begin(server) });
            all.len() - 1
        });
        let by = &mut all[index].by;
        match by {
            By::Descriptor(_) => match server.arm() {
                Ok(true) => true,
                Ok(false) => {
                    // Arming may have cleared a descriptor that was readable for another loop, and this loop may never look:
                    // so collect here.
                    server.collect();
                    let _ = server.arm();
                    false
                }
                Err(_) => {
                    // The server panicked, and would panic again.
                    self.let_go(&std::mem::replace(by, By::Nothing));
                    false
                }
            },
            By::Interface => true,
            By::Nothing => false,
        }
    }

    /// Adds the descriptor by which a completer can be waited for.
    fn begin(&self, server: &Code) -> By {
        let Some(descriptor) = server.descriptor() else { return By::Nothing };
        if descriptor.as_raw_fd() == self.poller.as_fd().as_raw_fd() {
            return By::Interface;
        }
        match descriptor.try_clone_to_owned() {
            Ok(own) if self.poller.add(&own, 0).is_ok() => By::Descriptor(own),
            _ => By::Nothing,
        }
    }

    fn let_go(&self, by: &By) {
        if let By::Descriptor(descriptor) = by {
            // Removing a descriptor that is not in the set does no harm.
            let _ = self.poller.remove(descriptor);
        }
    }
}
