//! Exchanges: what client and server of one request share.
//!
//! How: the work passes from the server to the exchange with the reply, and from there to the client. Until then the
//! server owns it, whatever the client gives up; so memory that a slow server may still touch is never reused.
//! Invariants: the phase leaves `Waiting` once, by a reply, by giving up, or by the client's departure.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::interface::Outstanding;
use crate::reply::ReplyBuffer;
use crate::work::Work;
use crate::{Error, RequestId, ServerHandle};

/// How far a request is.
#[derive(Debug)]
enum Phase {
    /// With the server.
    Waiting,
    /// The reply is there; the outputs have been completed.
    Replied(Box<Work>),
    /// The reply is there; the server goes on with the outputs.
    Anticipated(smallvec::SmallVec<[ReplyBuffer; 1]>),
    /// The client has given up, for this reason; the server may still hold the work.
    GivenUp(Error),
    /// The client has its reply, or no longer wants one.
    Over,
}

/// What a client finds when it looks for its reply.
#[derive(Debug)]
pub(crate) enum Found {
    Work(Box<Work>),
    Anticipated(smallvec::SmallVec<[ReplyBuffer; 1]>),
    Error(Error),
}

#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) id: RequestId,
    state: Mutex<State>,
    changed: Condvar,
}

/// What is known of a request that outlived the call that made it.
#[derive(Debug, Clone)]
struct Listing {
    server: ServerHandle,
    outstanding: Arc<Outstanding>,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    /// The server has no part of the work any more.
    is_done: bool,
    /// Threads that sleep until the phase changes.
    sleepers: u32,
    /// The request is in the interface's list of outstanding ones.
    listing: Option<Listing>,
    /// Why the request is being aborted.
    aborting: Option<Error>,
}

impl Exchange {
    pub(crate) fn new(id: RequestId) -> Self {
        let state =
            State { phase: Phase::Waiting, is_done: false, sleepers: 0, listing: None, aborting: None };
        Self { id, state: Mutex::new(state), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The server's reply; it has no part of the work any more.
    pub(crate) fn reply(&self, mut work: Box<Work>, error: Option<Error>) {
        work.error = error;
        work.finish_outputs(work.error.is_none());
        let mut state = self.lock();
        state.is_done = true;
        let listing = state.listing.take();
        let left = match &state.phase {
            Phase::Waiting => {
                if let (Some(Error::Dropped), Some(reason)) = (&work.error, state.aborting.take()) {
                    work.error = Some(reason);
                }
                state.phase = Phase::Replied(work);
                None
            }
            // Nobody waits for it: what it holds is given up, outside the lock.
            _ => Some(work),
        };
        self.wake(&state);
        drop(state);
        drop(left);
        if let Some(listing) = listing {
            listing.outstanding.remove(self.id);
        }
    }

    /// The server's anticipated reply; it keeps the work.
    pub(crate) fn anticipate(&self, buffers: smallvec::SmallVec<[ReplyBuffer; 1]>) {
        let mut state = self.lock();
        if matches!(state.phase, Phase::Waiting) {
            state.phase = Phase::Anticipated(buffers);
            self.wake(&state);
        }
    }

    /// Lists the request as outstanding, unless the server has let it go already; returns whether it is listed.
    pub(crate) fn list(self: &Arc<Self>, server: &ServerHandle, outstanding: &Arc<Outstanding>) -> bool {
        let mut state = self.lock();
        if state.is_done {
            return false;
        }
        state.listing = Some(Listing { server: server.clone(), outstanding: Arc::clone(outstanding) });
        outstanding.add(self, server);
        true
    }

    fn wake(&self, state: &State) {
        // Notifying is a system call even when nobody sleeps.
        if state.sleepers > 0 {
            self.changed.notify_all();
        }
    }

    /// Whether a reply, or the reason why there is none, can be taken.
    pub(crate) fn is_replied(&self) -> bool {
        !matches!(self.lock().phase, Phase::Waiting)
    }

    /// Waits until a reply can be taken; returns whether it can.
    pub(crate) fn wait(&self, deadline: Option<Instant>) -> bool {
        let mut state = self.lock();
        state.sleepers += 1;
        while matches!(state.phase, Phase::Waiting) {
            let Some(deadline) = deadline else {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.sleepers -= 1;
        !matches!(state.phase, Phase::Waiting)
    }

    /// Takes the reply, if it is there.
    pub(crate) fn take(&self) -> Option<Found> {
        let mut state = self.lock();
        if matches!(state.phase, Phase::Waiting) {
            return None;
        }
        Some(match std::mem::replace(&mut state.phase, Phase::Over) {
            Phase::Replied(work) => Found::Work(work),
            Phase::Anticipated(buffers) => Found::Anticipated(buffers),
            Phase::GivenUp(error) => Found::Error(error),
            Phase::Waiting | Phase::Over => Found::Error(Error::Aborted),
        })
    }

    /// Looks at a reply that is there, without taking it.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&mut Work) -> T) -> Option<T> {
        match &mut self.lock().phase {
            Phase::Replied(work) if work.error.is_none() => Some(look(work)),
            _ => None,
        }
    }

    /// The client wants no reply any more.
    pub(crate) fn depart(&self) {
        let mut state = self.lock();
        let left = std::mem::replace(&mut state.phase, Phase::Over);
        drop(state);
        drop(left);
    }

    /// Aborts the request: asks the server to let it go, and gives up when it does not within `grace`.
    pub(crate) fn abort(&self, reason: &Error, grace: Duration) {
        if self.ask_to_abort(reason) && !self.wait(Some(Instant::now() + grace)) {
            self.give_up(reason);
        }
    }

    /// Asks the server to let the request go; returns whether the client still waited for it.
    pub(crate) fn ask_to_abort(&self, reason: &Error) -> bool {
        let mut state = self.lock();
        let server = match &state.listing {
            Some(listing) if matches!(state.phase, Phase::Waiting) => listing.server.clone(),
            _ => return false,
        };
        state.aborting.get_or_insert_with(|| reason.clone());
        drop(state);
        server.0.abort(self.id);
        true
    }

    /// Ends the client's waiting, if there is no reply yet; the server keeps the work.
    pub(crate) fn give_up(&self, reason: &Error) {
        let mut state = self.lock();
        if matches!(state.phase, Phase::Waiting) {
            state.phase = Phase::GivenUp(reason.clone());
            self.wake(&state);
        }
    }
}
