//! Lanes: the threads in which flows have their turns, those of higher priority first.

use std::cmp::Reverse;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use genie_ring::Spin;
use genie_sys::lock::Mutex;
use rustix::event::{PollFd, PollFlags};
use rustix::time::Timespec;
use smallvec::{SmallVec, smallvec};

use super::alarm::Alarm;
use super::error::Error;
use super::path::{HAS_TURNS, Look, Path, Role};

/// So many flows are waited for without an allocation.
const FEW: usize = 8;

/// What a thread waits for: for each flow its source or its sink, and whether its sink is there.
pub(super) type Polled<'p> = SmallVec<[PollFd<'p>; 2 * FEW + 1]>;

/// A thread for flows.
#[derive(Debug)]
pub(super) struct Lane {
    role: Role,
    spin: Duration,
    alarm: Arc<Alarm>,
    list: Mutex<List>,
    /// Whether the list has changed since the thread has read it.
    is_changed: AtomicBool,
}

#[derive(Debug, Default)]
struct List {
    paths: Vec<Arc<Path>>,
    has_thread: bool,
    is_over: bool,
}

impl Lane {
    pub(super) fn new(role: Role, spin: Duration) -> genie_sys::Result<Self> {
        let (alarm, list, is_changed) = (Arc::new(Alarm::new()?), Mutex::default(), AtomicBool::new(false));
        Ok(Self { role, spin, alarm, list, is_changed })
    }

    pub(super) fn alarm(&self) -> Arc<Alarm> {
        Arc::clone(&self.alarm)
    }

    /// Gives a path turns.
    pub(super) fn add(self: &Arc<Self>, path: &Arc<Path>) -> Result<(), Error> {
        let mut list = self.list.lock();
        if !list.has_thread {
            let (lane, name) = (Arc::clone(self), format!("genie-{:?}", self.role).to_lowercase());
            let started = genie_sys::thread::spawn(&name, move || lane.run());
            started.map_err(|error| Error::Thread(error.errno))?;
            list.has_thread = true;
        }
        list.paths.push(Arc::clone(path));
        drop(list);
        self.change();
        Ok(())
    }

    /// Gives a path no more turns.
    pub(super) fn remove(&self, path: &Arc<Path>) {
        self.list.lock().paths.retain(|other| !Arc::ptr_eq(other, path));
        self.change();
    }

    /// Ends the thread.
    pub(super) fn end(&self) {
        self.list.lock().is_over = true;
        self.change();
    }

    fn change(&self) {
        self.is_changed.store(true, Ordering::Release);
        self.alarm.wake();
    }

    fn run(&self) {
        HAS_TURNS.set(true);
        let (spin, mut paths) = (Spin::new(self.spin), Vec::new());
        loop {
            if self.is_changed.swap(false, Ordering::Acquire) && !self.renew(&mut paths) {
                return;
            }
            let is_changed = || self.is_changed.load(Ordering::Relaxed);
            if !spin.until(|| is_changed() || self.round(&mut paths)) {
                self.sleep(&paths);
            }
        }
    }

    /// Has the thread know of new paths, which have waited longest, and forget those that are gone; false when it is to end.
    fn renew(&self, paths: &mut Vec<Arc<Path>>) -> bool {
        let list = self.list.lock();
        let has = |paths: &[Arc<Path>], path: &Arc<Path>| paths.iter().any(|other| Arc::ptr_eq(other, path));
        paths.retain(|path| has(&list.paths, path));
        let new: Vec<_> = list.paths.iter().filter(|path| !has(paths, path)).cloned().collect();
        paths.splice(..0, new);
        paths.sort_by_key(|path| Reverse(path.priority()));
        !list.is_over
    }

    /// Gives a turn to the first path that has something to move. It is the last of its priority then.
    fn round(&self, paths: &mut [Arc<Path>]) -> bool {
        let Some(at) = paths.iter().position(|path| path.flows() && path.turn(self.role) > 0) else {
            return false;
        };
        let priority = paths[at].priority();
        let end = paths.partition_point(|path| path.priority() >= priority);
        paths[at..end].rotate_left(1);
        true
    }

    /// Sleeps until a path that flows is to be looked at.
    fn sleep(&self, paths: &[Arc<Path>]) {
        self.alarm.arm();
        let mut polled: Polled<'_> = smallvec![PollFd::new(&self.alarm.event, PollFlags::IN)];
        let (mut until, mut sinks) = (None::<Duration>, SmallVec::<[_; FEW]>::new());
        for path in paths.iter().filter(|path| path.flows()) {
            match path.wait_for(self.role, &mut polled) {
                Look::Now => until = Some(Duration::ZERO),
                Look::After(time) => until = Some(until.map_or(time, |until| until.min(time))),
                Look::WhenWoken => {}
            }
            sinks.push((polled.len(), path));
            polled.push(path.sink_gone());
        }
        if !self.is_changed.load(Ordering::Relaxed) && until != Some(Duration::ZERO) {
            let timeout = until.and_then(|until| Timespec::try_from(until).ok());
            // A signal is as good as anything else that wakes the thread.
            let _ = rustix::event::poll(&mut polled, timeout.as_ref());
            let gone = PollFlags::HUP | PollFlags::ERR;
            for (at, path) in sinks {
                if polled[at].revents().intersects(gone) {
                    path.lose_sink();
                }
            }
        }
        self.alarm.disarm();
    }
}
