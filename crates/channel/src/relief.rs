//! Relief: other workers attend to the clients of a worker that is in the server's code for long.
//!
//! Why: a request that takes long would keep all clients of its worker waiting; to hand each request over to another thread
//! would make short requests slow.
//! How: a worker serves its clients' requests itself. While any worker is awake, the control thread looks every
//! [`LOOK`]; where it finds a worker in the same call as before, it gives the worker's clients to a free worker, which it
//! starts if there is none, or in the end to one that has clients of its own. A worker that has come back is free. If a client's
//! last call was long, its worker asks for relief at once.
//! Limits: [`ServeOptions::most_threads`](super::ServeOptions::most_threads); without a free worker clients wait.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::client_channel::ClientChannel;
use super::options::WORKER_CLIENTS;
use super::shared::Shared;
use super::worker::Worker;
use crate::primitive::Ordering;

/// How long a worker may be in one call before it is looked for a relief: at least this, and at most twice as long.
const LOOK: Duration = Duration::from_millis(2);

/// What the control thread knows of the workers.
#[derive(Debug)]
pub(super) struct Relief {
    workers: Vec<Known>,
    /// How many workers have clients.
    occupied: usize,
    /// When calls were last compared.
    looked: Instant,
}

#[derive(Debug, Clone, Copy)]
struct Known {
    role: Role,
    /// The call that went on at the last look.
    call: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// Gets new clients.
    Attends,
    /// Gets the clients of others that are in the server's code for long.
    Relieves,
    /// Has no thread yet.
    Absent,
}

type Channels = HashMap<u64, ClientChannel>;

impl Relief {
    /// The first `attending` workers get clients from the start.
    pub(super) fn new(attending: usize, workers: usize) -> Self {
        let role = |index| if index < attending { Role::Attends } else { Role::Absent };
        let workers = (0..workers).map(|index| Known { role: role(index), call: None }).collect();
        Self { workers, occupied: 0, looked: Instant::now() }
    }

    /// The worker that gets the next client: with the fewest clients among those with room for one more, but rather none that is
    /// in a long call.
    pub(super) fn next(&self, shared: &Shared, channels: &Channels) -> Option<usize> {
        let clients = |index: usize| channels.values().filter(|channel| channel.post == index).count();
        let attending = (0..).zip(&self.workers).filter(|(_, known)| known.role == Role::Attends);
        let is_long =
            |known: &Known, index: usize| known.call.is_some() && known.call == shared.posts[index].call();
        let ranked = attending.map(|(index, known)| ((is_long(known, index), clients(index)), index));
        ranked.filter(|((_, clients), _)| *clients < WORKER_CLIENTS).min().map(|(_, index)| index)
    }

    /// How long the control thread may sleep. If that is for long, the next worker that wakes wakes it.
    pub(super) fn sleeps(&self, shared: &Shared, longest: Duration) -> Duration {
        if !shared.has_relief() {
            return longest;
        }
        // A worker that wakes notes that, and then looks whether it is watched: either this sees that it is awake, or the
        // worker sees that it is not watched.
        shared.is_watched.store(false, Ordering::SeqCst);
        let started = self.workers.iter().zip(&shared.posts).filter(|(known, _)| known.role != Role::Absent);
        if started.map(|(_, post)| post).all(|post| post.is_asleep.load(Ordering::SeqCst)) {
            return longest;
        }
        shared.is_watched.store(true, Ordering::SeqCst);
        longest.min(LOOK.saturating_sub(self.looked.elapsed()))
    }

    /// Relieves workers that are in a call for long; returns whether any is.
    pub(super) fn look(&mut self, shared: &Arc<Shared>, channels: &mut Channels) -> bool {
        // Workers of a server that was stopped take no clients any more.
        if !shared.has_relief() || shared.has_stopped() {
            return false;
        }
        // The control thread also comes here each time that it has been woken: a call that it sees twice need not be a long one.
        let is_due = self.looked.elapsed() >= LOOK;
        if is_due {
            self.looked = Instant::now();
            shared.looks.fetch_add(1, Ordering::Relaxed);
        }
        let mut is_any_long = false;
        self.count(shared, channels);
        for from in 0..self.workers.len() {
            let (known, post) = (&mut self.workers[from], &shared.posts[from]);
            let call = post.call();
            let is_long = call.is_some() && (is_due && known.call == call || post.takes_leave());
            is_any_long |= is_long;
            if is_due || is_long {
                known.call = call;
            }
            if is_long && let Some((to, rings)) = post.relieve(|| self.other(from, shared, channels)) {
                let roles = [self.workers[from].role, self.workers[to].role];
                if channels.values().any(|channel| channel.post == to) {
                    // It has clients of its own: no free worker is taken, and one less has clients.
                    self.occupied -= 1;
                } else {
                    [self.workers[to].role, self.workers[from].role] = roles;
                    shared.free.fetch_sub(1, Ordering::SeqCst);
                }
                let theirs = channels.values_mut().filter(|channel| channel.post == from);
                theirs.for_each(|channel| channel.post = to);
                shared.posts[to].leave(rings);
            }
        }
        is_any_long
    }

    /// Counts the workers that are free, but for those that were relieved, which count themselves when they come back.
    fn count(&mut self, shared: &Shared, channels: &Channels) {
        let occupied = channels.values().map(|channel| channel.post).collect::<HashSet<_>>().len();
        let before = std::mem::replace(&mut self.occupied, occupied);
        if occupied < before {
            shared.add_free(before - occupied);
        } else {
            shared.free.fetch_sub(occupied - before, Ordering::SeqCst);
        }
    }

    /// A worker for the clients of the worker `from`, not in the server's code: one that has no clients, else one that can be
    /// started, else the one with the fewest clients of its own.
    fn other(&mut self, from: usize, shared: &Arc<Shared>, channels: &Channels) -> Option<usize> {
        let clients = |index: usize| channels.values().filter(|channel| channel.post == index).count();
        let fewest = (0..self.workers.len())
            .filter(|index| {
                self.workers[*index].role != Role::Absent && shared.posts[*index].call().is_none()
            })
            .min_by_key(|index| clients(*index));
        let shared_by = |index: usize| clients(index) + clients(from);
        match fewest {
            Some(index) if clients(index) == 0 => Some(index),
            fewest => self.start(shared).or(fewest.filter(|index| shared_by(*index) <= WORKER_CLIENTS)),
        }
    }

    fn start(&mut self, shared: &Arc<Shared>) -> Option<usize> {
        let absent = self.workers.iter().position(|known| known.role == Role::Absent)?;
        Worker::start(shared, absent).ok()?;
        self.workers[absent].role = Role::Relieves;
        Some(absent)
    }
}
