//! Workers: the threads that take requests off the rings.
//!
//! How: a worker goes round its clients' rings; when none has had a record for a while, it sleeps on all of them at once. It
//! calls the server's code with each request that it takes, in its own thread; when that takes long, its clients are given
//! to another worker (`relief.rs`).
//! If the server has a completer, each worker that is awake collects what it has. A worker that goes to sleep arms the completer,
//! whose descriptor wakes the control thread, and that collects for all. While a worker is in one call for long, the control thread
//! collects now and then.
//! A client's records that rest on control messages wait until the control thread has acted upon those messages, and its
//! requests wait while as many of them as may be are in the server's code; other clients' do not wait.
//! Trust: one client is served a bounded number of requests before the next one is looked at.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use genie_io::{Error, Incoming};
use genie_ring::{Consumer, Mode, Spin};
use genie_sys::{futex, machine};

use super::client_ring::{ClientRing, Next};
use super::post::{Attended, Post};
use super::shared::Shared;
use super::wire::record::Slot;
use crate::primitive::MutexGuard;

/// The most records of one client that a round serves.
const ROUND: usize = 16;
/// The longest sleep.
const LONGEST_SLEEP: Duration = Duration::from_millis(500);
/// A call that takes less time is a short one.
const SHORT: Duration = Duration::from_micros(100);
/// A client that has asked within so many looks of the control thread's is active: within a second or so.
const ACTIVE: u32 = 500;

/// What one thread does.
#[derive(Debug)]
pub(super) struct Worker {
    shared: Arc<Shared>,
    index: usize,
}

impl Worker {
    pub(super) fn new(shared: &Arc<Shared>, index: usize) -> Self {
        Self { shared: Arc::clone(shared), index }
    }

    pub(super) fn post(&self) -> &Post {
        &self.shared.posts[self.index]
    }

    /// Starts one in a thread.
    pub(super) fn start(shared: &Arc<Shared>, index: usize) -> Result<(), Error> {
        let worker = Self::new(shared, index);
        shared.start_thread("genie-worker", move || worker.run())
    }

    /// Serves until the server is stopped.
    pub(super) fn run(self) {
        let spin = Spin::new(self.shared.options.spin);
        let mut attended = self.post().attended.lock();
        while !self.shared.has_stopped() {
            let Some(again) = self.round(attended, spin) else {
                // The server's code has forked, and this is the child, which has returned from that code: rings and clients
                // are the parent's.
                return;
            };
            attended = again;
        }
    }

    /// Serves what is there; if there is nothing, looks for a while, and then sleeps. Returns none in a child made by fork.
    fn round<'p>(
        &'p self,
        attended: MutexGuard<'p, Attended>,
        spin: Spin,
    ) -> Option<MutexGuard<'p, Attended>> {
        let (attended, served) = self.serve(attended, |_, _| {})?;
        let (attended, collected) = self.collect(attended)?;
        if served | collected {
            return Some(attended);
        }
        if attended.rings.is_empty() {
            return self.sleep(attended);
        }
        let mut held = Some(attended);
        match spin.until(|| self.is_ready(&mut held)) {
            true => held,
            false => self.sleep(held?),
        }
    }

    /// Whether there is something to serve, or the completer has had something; true with nothing held in a child made by fork.
    fn is_ready<'p>(&'p self, held: &mut Option<MutexGuard<'p, Attended>>) -> bool {
        let Some(mut attended) = held.take() else { return true };
        let looked = match attended.is_ready(&self.shared) {
            true => Some((attended, true)),
            false => self.collect(attended),
        };
        looked.is_none_or(|(again, is_ready)| {
            *held = Some(again);
            is_ready
        })
    }

    /// Has the server's completer collect, if there is one; returns whether it had anything, and none in a child made by fork. No lock is
    /// held meanwhile, since the completer may make requests.
    fn collect<'p>(&'p self, attended: MutexGuard<'p, Attended>) -> Option<(MutexGuard<'p, Attended>, bool)> {
        if !self.shared.server.is_looked_at() {
            return Some((attended, false));
        }
        drop(attended);
        let collected = self.shared.server.collect_if_free() > 0;
        (!self.shared.is_inherited()).then(|| (self.post().attended.lock(), collected))
    }

    /// Serves every client's next requests; returns whether there were any. Calls `change` with the ring of each client that
    /// has come (true) or gone (false). Returns none in a child made by fork.
    pub(super) fn serve<'p>(
        &'p self,
        mut attended: MutexGuard<'p, Attended>,
        change: impl FnMut(&Consumer, bool),
    ) -> Option<(MutexGuard<'p, Attended>, bool)> {
        if self.shared.is_inherited() {
            return None;
        }
        drop(self.post().catch_up(&mut attended, change));
        // The server's code, which is told of clients that have left, may have forked.
        if self.shared.is_inherited() {
            return None;
        }
        let (mut served, mut index) = (false, 0);
        while index < attended.rings.len() {
            attended.rings[index].session.flush_if_behind();
            let served_one;
            (attended, served_one) = self.serve_one(attended, index)?;
            (served, index) = (served | served_one, index + 1);
        }
        Some((attended, served))
    }

    /// Serves a client's next requests, at most [`ROUND`] of them, and no more once a call has taken long; returns whether
    /// there were any.
    fn serve_one<'p>(
        &'p self,
        mut attended: MutexGuard<'p, Attended>,
        index: usize,
    ) -> Option<(MutexGuard<'p, Attended>, bool)> {
        let has_others = attended.rings.len() > 1 || !self.shared.has_relief();
        let begun = has_others.then(machine::coarse_time);
        for served in 0..ROUND {
            let may_call = attended.may_call(index, &self.shared);
            // The clients may have been given to another worker meanwhile.
            let Some(ring) = attended.rings.get_mut(index) else { return Some((attended, true)) };
            match ring.next(&self.shared, may_call) {
                Ok(Next::Nothing) => return Some((attended, served > 0)),
                Ok(Next::Acted) => {}
                Ok(Next::Call(slot, request)) => {
                    attended = self.call(attended, (index, slot), request)?;
                    if begun.is_some_and(|begun| begun != machine::coarse_time()) {
                        break;
                    }
                }
                Err(wrong) => {
                    ring.end(&self.shared, wrong);
                    break;
                }
            }
        }
        Some((attended, true))
    }

    /// Calls the server's code with a request. Returns none in a child made by fork.
    fn call<'p>(
        &'p self,
        mut attended: MutexGuard<'p, Attended>,
        called: (usize, Slot),
        request: Incoming,
    ) -> Option<MutexGuard<'p, Attended>> {
        let shared = &self.shared;
        if !shared.has_relief() {
            shared.server.request(|| request);
            if shared.is_inherited() {
                return None;
            }
            attended.rings[called.0].returned(shared, called.1);
            return Some(attended);
        }
        let is_likely_long = attended.rings[called.0].session.long_calls.are_likely();
        // Where one client's requests may be served at the same time, its next one is given away if this one was long.
        let is_timed = is_likely_long || shared.options.threads > 1;
        let begun = is_timed.then(Instant::now);
        attended.called = Some(called);
        drop(attended);
        self.post().enter(is_likely_long);
        if is_likely_long {
            shared.attend();
        }
        shared.server.request(|| request);
        // In a child made by fork, another thread of the parent's may hold the lock.
        if shared.is_inherited() {
            return None;
        }
        self.post().come_back();
        let mut attended = self.post().attended.lock();
        attended.called = None;
        let was_long = begun.map(|begun| begun.elapsed() >= SHORT);
        match attended.relieved.take() {
            Some(away) => {
                away.session().long_calls.note(was_long);
                shared.come_back(&away);
            }
            None => {
                let ring = &mut attended.rings[called.0];
                ring.session.long_calls.note(was_long);
                ring.returned(shared, called.1);
            }
        }
        Some(attended)
    }

    /// Sleeps until a client or the control thread has something. Returns none in a child made by fork.
    fn sleep<'p>(&'p self, mut attended: MutexGuard<'p, Attended>) -> Option<MutexGuard<'p, Attended>> {
        let post = self.post();
        if !self.arm(&mut attended, Mode::Futex) {
            attended.disarm();
            return Some(attended);
        }
        // Before the completer is armed: either the control thread, when it has collected, sees that this worker sleeps and arms the
        // completer, or this worker does so after that.
        self.shared.sleepers.fetch_add(1, Ordering::SeqCst);
        let longest;
        (attended, longest) = self.longest_sleep(attended)?;
        if !longest.is_zero() {
            let mut words = vec![(&post.changes, post.seen.load(Ordering::Relaxed))];
            // A ring that is held, or whose client is gone, is left out: it is not armed, and its word would not let this thread sleep.
            let free = attended.rings.iter().filter(|ring| ring.awaited == 0 && !ring.session.is_gone());
            words.extend(free.map(|ring| ring.consumer.word()));
            post.is_asleep.store(true, Ordering::SeqCst);
            // If this fails, the thread looks again.
            let _ = futex::wait_any(&words, Some(longest));
            post.is_asleep.store(false, Ordering::SeqCst);
            self.shared.be_watched();
        }
        self.shared.sleepers.fetch_sub(1, Ordering::SeqCst);
        attended.disarm();
        Some(attended)
    }

    /// How long this thread may sleep: not at all if the server's completer has had something. What that has next wakes the control
    /// thread. Returns none in a child made by fork.
    fn longest_sleep<'p>(
        &'p self,
        attended: MutexGuard<'p, Attended>,
    ) -> Option<(MutexGuard<'p, Attended>, Duration)> {
        let shared = &self.shared;
        if !shared.server.is_looked_at() {
            return Some((attended, LONGEST_SLEEP));
        }
        drop(attended);
        let longest = shared.arm_bell().map_or(LONGEST_SLEEP, |after| after.min(LONGEST_SLEEP));
        (!shared.is_inherited()).then(|| (self.post().attended.lock(), longest))
    }

    /// Makes this thread wake when a client sends its next request, or makes room for replies that wait. Returns false when
    /// there is a request already.
    pub(super) fn arm(&self, attended: &mut Attended, mode: Mode) -> bool {
        // `bitand` does not stop at the first false: every ring is armed.
        let armed = attended.rings.iter_mut().map(|ring| ring.arm(mode)).fold(true, std::ops::BitAnd::bitand);
        // Replies that had to wait for room are sent.
        attended.rings.iter().for_each(|ring| ring.session.flush());
        if attended.rings.iter().all(|ring| ring.waiting.is_empty()) {
            return armed;
        }
        // Either a worker that comes back sees this, or this thread sees that the worker has come back.
        self.post().is_held_up.store(true, Ordering::SeqCst);
        armed && !attended.may_call_waiting(&self.shared)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if self.shared.is_inherited() {
            // The clients are the parent's: the child's copy of the server's code is not told that they have left.
            return std::mem::forget(Arc::clone(&self.shared));
        }
        drop(self.post().take_all());
    }
}

impl Attended {
    /// Whether the server's code may be called with a request of this client: as many of its requests may be there as the
    /// options say, and for more than one, there must be free workers for those clients that have none there. The last worker
    /// is kept for clients that come, unless one client may have all.
    fn may_call(&self, index: usize, shared: &Shared) -> bool {
        let Some(ring) = self.rings.get(index) else { return false };
        let there = ring.session.long_calls.count();
        if there == 0 {
            return true;
        }
        let looks = shared.looks.load(Ordering::Relaxed);
        let others = self.rings.iter().filter(|other| {
            let is_active =
                looks.wrapping_sub(other.asked) < ACTIVE && !Arc::ptr_eq(&other.session, &ring.session);
            is_active && other.session.long_calls.count() == 0
        });
        let most = shared.options.attending();
        let kept = others.count().max(usize::from(shared.posts.len() > most));
        (there as usize) < most && shared.free.load(Ordering::SeqCst) >= kept
    }

    fn may_call_waiting(&self, shared: &Shared) -> bool {
        let waiting = (0..).zip(&self.rings).filter(|(_, ring)| !ring.waiting.is_empty());
        waiting.map(|(index, _)| index).any(|index| self.may_call(index, shared))
    }

    /// Whether there is something to serve.
    pub(super) fn is_ready(&mut self, shared: &Shared) -> bool {
        self.rings.iter_mut().any(ClientRing::is_ready) || self.may_call_waiting(shared)
    }

    pub(super) fn disarm(&mut self) {
        for ring in &mut self.rings {
            ring.consumer.disarm();
        }
    }
}
