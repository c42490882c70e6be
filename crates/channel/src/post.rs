//! Posts: where a worker attends to clients, and where the control thread leaves clients for it.
//!
//! How: a worker holds the lock of its post's clients except while it is in the server's code. When that takes long, the
//! control thread takes the clients away and gives them to another worker.
//! Where a program drives the server, its thread is the worker, and holds the lock in the server's code, too. While the program is
//! elsewhere, the control thread takes what has arrived, and drops what has left.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use genie_ring::Consumer;
use genie_sys::event::Event;
use genie_sys::poll::Poller;

use super::client_ring::ClientRing;
use super::evictions::Departure;
use super::session::Session;
use super::wire::record::Slot;
use crate::primitive::{AtomicBool, Mutex};

/// The token of all rings, of which a poller need not tell one from another.
const RING: u64 = 0;

/// Where one worker attends to clients.
#[derive(Debug, Default)]
pub(super) struct Post {
    /// Clients that the worker has not taken yet.
    arrivals: Mutex<Vec<ClientRing>>,
    /// Counts changes; the worker sleeps on it, among others.
    pub(super) changes: AtomicU32,
    /// How many changes the worker has seen.
    pub(super) seen: AtomicU32,
    pub(super) attended: Mutex<Attended>,
    /// Counts how often the worker has gone into the server's code, and how often it has come back: odd while it is there.
    calls: AtomicU32,
    /// The worker goes into the server's code, where it expects to be for long.
    is_leaving: AtomicBool,
    pub(super) is_asleep: AtomicBool,
    /// A request waits until another worker comes back.
    pub(super) is_held_up: AtomicBool,
    /// Signalled at the next change, for a program that drives the server and waits by a descriptor.
    bell: Mutex<Option<Arc<Event>>>,
}

/// The clients that a worker attends to.
#[derive(Debug, Default)]
pub(super) struct Attended {
    pub(super) rings: Vec<ClientRing>,
    /// The client and the request with which the worker is in the server's code.
    pub(super) called: Option<(usize, Slot)>,
    /// The request with which the worker was in the server's code when its clients were taken away.
    pub(super) relieved: Option<Away>,
}

/// A request with which a worker is in the server's code, while another worker attends to its client.
#[derive(Debug)]
pub(super) struct Away {
    pub(super) departure: Arc<Departure>,
    pub(super) slot: Slot,
}

impl Away {
    pub(super) fn session(&self) -> &Session {
        self.departure.session()
    }
}

impl Post {
    /// Leaves clients for the worker.
    pub(super) fn leave(&self, rings: impl IntoIterator<Item = ClientRing>) {
        self.arrivals.lock().extend(rings);
        self.notify();
    }

    /// Makes the worker look at what has arrived, and at its clients.
    pub(super) fn notify(&self) {
        self.changes.fetch_add(1, Ordering::Release);
        // The word is mapped, so waking can't fail.
        let _ = genie_sys::futex::wake(&self.changes, 1);
        // Partner: `arm`.
        if let Some(bell) = self.bell.lock().take() {
            // If this fails, the program looks when its time is over.
            let _ = bell.signal();
        }
    }

    /// Has the next change signal this. The caller looks whether there was one after that.
    pub(super) fn arm(&self, bell: &Arc<Event>) {
        *self.bell.lock() = Some(Arc::clone(bell));
    }

    /// Ends that.
    pub(super) fn disarm(&self) {
        *self.bell.lock() = None;
    }

    /// Whether there was a change that nobody has caught up with.
    pub(super) fn has_changed(&self) -> bool {
        self.changes.load(Ordering::Acquire) != self.seen.load(Ordering::Relaxed)
    }

    /// Catches up with changes: takes the clients that have come, and lets go of withdrawn arenas. Calls `change` with the ring of each
    /// client that has come (true) or gone (false). Returns the clients that have gone; when they are dropped, the server may be told
    /// that they have left.
    pub(super) fn catch_up(
        &self,
        attended: &mut Attended,
        mut change: impl FnMut(&Consumer, bool),
    ) -> Vec<ClientRing> {
        let changes = self.changes.load(Ordering::Acquire);
        if self.seen.swap(changes, Ordering::Relaxed) == changes {
            return Vec::new();
        }
        let new = std::mem::take(&mut *self.arrivals.lock());
        new.iter().for_each(|ring| change(&ring.consumer, true));
        attended.rings.extend(new);
        let gone: Vec<_> = attended.rings.extract_if(.., |ring| ring.session.is_gone()).collect();
        gone.iter().for_each(|ring| change(&ring.consumer, false));
        attended.rings.iter_mut().for_each(|ring| ring.session.arenas.look(&mut ring.view));
        gone
    }

    /// Catches up for a program that waits by this poller, if there was a change, and no thread is at it.
    pub(super) fn catch_up_for(&self, poller: &Poller) {
        // Until nothing has changed: another thread that finds the lock taken leaves its change to this one.
        while self.has_changed() {
            let Some(mut attended) = self.attended.try_lock() else { return };
            let gone = self.catch_up(&mut attended, watch_by(poller));
            // Without the lock: the server's code may wait for a thread that waits for the lock.
            drop(attended);
            drop(gone);
        }
    }

    /// Takes all clients, those that have not been taken yet among them.
    pub(super) fn take_all(&self) -> Vec<ClientRing> {
        let mut rings = std::mem::take(&mut self.attended.lock().rings);
        rings.append(&mut self.arrivals.lock());
        rings
    }

    /// The worker goes into the server's code. Only the worker counts.
    pub(super) fn enter(&self, is_long: bool) {
        self.calls.store(self.calls.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        if is_long {
            self.is_leaving.store(true, Ordering::Release);
        }
    }

    /// The worker comes back.
    pub(super) fn come_back(&self) {
        self.calls.store(self.calls.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// The number of the call that goes on now.
    pub(super) fn call(&self) -> Option<u32> {
        let calls = self.calls.load(Ordering::Relaxed);
        (calls % 2 == 1).then_some(calls)
    }

    /// Whether the worker has gone into the server's code for long, as it expected, since the last call.
    pub(super) fn takes_leave(&self) -> bool {
        self.is_leaving.swap(false, Ordering::AcqRel)
    }

    /// Takes the clients away from a worker that is in the server's code, if one of them asks for something and `find` finds a
    /// worker for them.
    pub(super) fn relieve(&self, find: impl FnOnce() -> Option<usize>) -> Option<(usize, Vec<ClientRing>)> {
        let mut attended = self.attended.try_lock()?;
        let (index, slot) = attended.called?;
        let mut arrivals = self.arrivals.lock();
        if arrivals.is_empty() && !attended.rings.iter_mut().any(ClientRing::asks) {
            return None;
        }
        let to = find()?;
        let ring = &attended.rings[index];
        ring.session.long_calls.begin(slot);
        let departure = Arc::clone(&ring.departure);
        (attended.called, attended.relieved) = (None, Some(Away { departure, slot }));
        let mut rings = std::mem::take(&mut attended.rings);
        // Their next worker begins with the client behind this one: otherwise the last ones might never have their turn.
        rings.rotate_left(index + 1);
        rings.append(&mut arrivals);
        Some((to, rings))
    }
}

/// Has a poller tell of the rings of clients that come, and no more of those that go.
pub(super) fn watch_by(poller: &Poller) -> impl FnMut(&Consumer, bool) {
    move |ring, is_new| {
        // If a ring can't be watched, each call of `Driven::attend` looks at it all the same.
        // By edges: a client that hangs its bell up is told of once, and could otherwise keep the program awake.
        let _ = if is_new { poller.add_edges(ring, RING) } else { poller.remove(ring) };
    }
}
