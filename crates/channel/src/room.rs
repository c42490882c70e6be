//! Tasks that wait for room at a server in another process.

use std::task::Waker;

use genie_io::carrier::wake_task;

use crate::primitive::{AtomicBool, Mutex, Ordering};

/// The tasks. A task that has registered looks once more whether there is room.
#[derive(Debug, Default)]
pub(super) struct Room {
    is_waited_for: AtomicBool,
    tasks: Mutex<Vec<Waker>>,
}

impl Room {
    pub(super) fn register(&self, task: &Waker) {
        let mut tasks = self.tasks.lock();
        if tasks.iter().all(|known| !known.will_wake(task)) {
            tasks.push(task.clone());
        }
        // SeqCst: either the task sees the room made, or the thread that makes room sees the task.
        self.is_waited_for.store(true, Ordering::SeqCst);
    }

    /// Whether there may be tasks to be woken.
    #[inline]
    pub(super) fn is_waited_for(&self) -> bool {
        self.is_waited_for.load(Ordering::SeqCst)
    }

    /// Wakes the tasks, after room may have been made.
    #[inline]
    pub(super) fn made(&self) {
        if self.is_waited_for() {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        let mut tasks = self.tasks.lock();
        self.is_waited_for.store(false, Ordering::Relaxed);
        let woken = std::mem::take(&mut *tasks);
        drop(tasks);
        woken.into_iter().for_each(wake_task);
    }
}
