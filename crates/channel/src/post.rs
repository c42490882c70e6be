//! Posts: where a worker attends to clients, and where the control thread leaves clients for it.
//!
//! How: a worker holds the lock of its post's clients except while it is in the server's code. When that takes long, the
//! control thread takes the clients away and gives them to another worker.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::client_ring::ClientRing;
use super::evictions::Departure;
use super::session::Session;
use super::wire::record::Slot;
use crate::primitive::{AtomicBool, Mutex};

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
    }

    /// The clients that have arrived, if there was any change since the last call.
    pub(super) fn changed(&self) -> Option<Vec<ClientRing>> {
        let changes = self.changes.load(Ordering::Acquire);
        (changes != self.seen.load(Ordering::Relaxed)).then(|| {
            self.seen.store(changes, Ordering::Relaxed);
            std::mem::take(&mut *self.arrivals.lock())
        })
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
