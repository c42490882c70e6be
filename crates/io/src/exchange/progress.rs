//! Progress: how far a server has come with a request's buffers before it replies.
//!
//! How: the first word of it makes the record of it, so that other requests take no memory for it. That record refers weakly to its
//! own exchange, which therefore is not used again for the thread's next request ([`Pair`](super::Pair)): a request of which
//! nothing was said need not look for what an earlier one has left.
//! Invariants: what is final of a buffer only grows.
//! Source: thesis §6.5 (partial completion).

use std::sync::{Arc, Weak};
use std::task::Waker;

use smallvec::SmallVec;

use super::{Exchange, Phase, State};
use crate::ReplyBuffer;
use crate::work::Seen;

/// How far the server has come.
#[derive(Debug)]
pub(super) struct Progress {
    /// How many bytes are final, of each buffer up to the last of which the server has spoken.
    come: SmallVec<[usize; 2]>,
    /// The task to be woken when it has come further, or the request is over.
    pub(super) task: Option<Waker>,
    _itself: Weak<Exchange>,
}

impl Progress {
    /// What the client of a request that the server still has is told.
    pub(super) fn buffers(&self) -> Vec<ReplyBuffer> {
        self.come.iter().map(|actual| ReplyBuffer { actual: *actual, ..ReplyBuffer::default() }).collect()
    }
}

impl State {
    /// How many bytes of a buffer are final, or were passed.
    pub(super) fn come(&self, index: usize) -> usize {
        let come = match &self.phase {
            Phase::Replied(work) => work.buffer(index).map(Seen::actual),
            Phase::Anticipated(reply) => reply.buffers.get(index).map(|buffer| buffer.actual),
            _ => self.progress.as_ref().and_then(|progress| progress.come.get(index).copied()),
        };
        come.unwrap_or_default()
    }

    fn progress(&mut self, exchange: &Arc<Exchange>) -> &mut Progress {
        self.progress.get_or_insert_with(|| {
            let itself = Arc::downgrade(exchange);
            Box::new(Progress { come: SmallVec::new(), task: None, _itself: itself })
        })
    }
}

impl Exchange {
    /// How many bytes of a buffer are final, or were passed, as far as is known.
    pub(crate) fn come(&self, index: usize) -> usize {
        self.state.lock().come(index)
    }

    /// Notes that the first `len` bytes of a buffer are final, and wakes threads that wait for this. Returns the task that is to
    /// be woken once the caller holds no lock.
    pub(crate) fn come_to(self: &Arc<Self>, index: usize, len: usize) -> Option<Waker> {
        let mut state = self.state.lock();
        let progress = state.progress(self);
        if progress.come.len() <= index {
            progress.come.resize(index + 1, 0);
        }
        progress.come[index] = len;
        let (task, listing) = (progress.task.take(), state.listing.clone());
        drop(state);
        self.changed.notify_all();
        listing.iter().for_each(|listing| listing.look(self.id()));
        task
    }

    /// Whether more than `beyond` bytes of a buffer are final, or there is a reply; if not, the task is woken when that is so.
    pub(crate) fn poll_progress(self: &Arc<Self>, index: usize, beyond: usize, task: &Waker) -> bool {
        let mut state = self.state.lock();
        if state.come(index) > beyond || !matches!(state.phase, Phase::Waiting) {
            return true;
        }
        let replaced = state.progress(self).task.replace(task.clone());
        drop(state);
        // Without the lock: this may drop a task, which may ask for this request.
        drop(replaced);
        false
    }
}
