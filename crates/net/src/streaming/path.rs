//! Paths: what a flow does in a turn, and what it waits for.

mod waiting;

use std::cell::Cell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::{Duration, Instant};

use genie_memory::Data;
use genie_sys::fork::Maker;
use genie_sys::lock::Mutex;
use genie_sys::{Condvar, Errno};

use super::alarm::Alarm;
use super::end::End;
use super::error::Error;
use super::how::{How, Statistics, Style, Tap, WhenFull};
use crate::driver::Rings;
use crate::driver::rings::or_later;

pub(in crate::streaming) use waiting::Look;

thread_local! {
    /// Whether this thread is one that flows have turns in.
    pub(super) static HAS_TURNS: Cell<bool> = const { Cell::new(false) };
}

/// What a thread does for flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// Takes packets from sources.
    Reaper,
    /// Puts packets from queues into sinks.
    Scheduler,
}

/// States of a path.
const STOPPED: u8 = 0;
const FLOWS: u8 = 1;
const OVER: u8 = 2;

pub(super) struct Path {
    source: End,
    sink: End,
    how: How,
    tap: Mutex<Option<Tap>>,
    state: AtomicU8,
    /// Held for a turn, by each role's thread.
    turns: [Mutex<()>; 2],
    queue: Mutex<Queue>,
    /// Whether the source has ended or failed, so that the scheduler has but the queue.
    has_ended: AtomicBool,
    /// Why it failed.
    failed: Mutex<Option<Error>>,
    is_held: AtomicBool,
    statistics: Mutex<Statistics>,
    end: Mutex<Option<Result<(), Error>>>,
    ended: Condvar,
    reaper: Arc<Alarm>,
    scheduler: Arc<Alarm>,
}

/// Packets between reaper and scheduler.
#[derive(Default)]
struct Queue {
    waiting: VecDeque<Vec<u8>>,
    /// The memory of packets that have gone.
    spare: Vec<Vec<u8>>,
}

impl Path {
    pub(super) fn new(
        [source, sink]: [&End; 2],
        mut how: How,
        tap: Option<Tap>,
        [reaper, scheduler]: [Arc<Alarm>; 2],
    ) -> Result<Self, Error> {
        source.claim(sink)?;
        (how.quantum, how.queue) = (how.quantum.max(1), how.queue.max(1));
        Ok(Self {
            source: source.clone(),
            sink: sink.clone(),
            tap: Mutex::new(tap),
            how,
            state: AtomicU8::new(STOPPED),
            turns: [Mutex::new(()), Mutex::new(())],
            queue: Mutex::default(),
            has_ended: AtomicBool::new(false),
            failed: Mutex::new(None),
            is_held: AtomicBool::new(false),
            statistics: Mutex::default(),
            end: Mutex::new(None),
            ended: Condvar::new(),
            reaper,
            scheduler,
        })
    }

    pub(super) fn style(&self) -> Style {
        self.how.style
    }

    pub(super) fn priority(&self) -> u8 {
        self.how.priority
    }

    pub(super) fn start(&self) -> Result<(), Error> {
        if self.state.compare_exchange(STOPPED, FLOWS, Ordering::Relaxed, Ordering::Relaxed) == Err(OVER) {
            return self.end.lock().clone().unwrap_or(Ok(()));
        }
        self.reaper.wake();
        self.scheduler.wake();
        Ok(())
    }

    pub(super) fn stop(&self) -> Result<(), Error> {
        let was = self.state.compare_exchange(FLOWS, STOPPED, Ordering::Relaxed, Ordering::Relaxed);
        self.wait_for_turns();
        if was == Err(OVER) { self.end.lock().clone().unwrap_or(Ok(())) } else { Ok(()) }
    }

    /// Stops for good.
    pub(super) fn close(&self) {
        self.end(Ok(()));
        self.wait_for_turns();
    }

    fn wait_for_turns(&self) {
        if !HAS_TURNS.get() {
            self.turns.iter().for_each(|turn| drop(turn.lock()));
        }
    }

    /// Is over from now on, with this result if it is not over yet.
    fn end(&self, result: Result<(), Error>) {
        let mut end = self.end.lock();
        if end.is_none() {
            *end = Some(result);
            self.state.store(OVER, Ordering::Relaxed);
            self.source.release();
            self.ended.notify_all();
        }
    }

    pub(super) fn wait(&self, timeout: Option<Duration>) -> Result<bool, Error> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let (end, _) = self.ended.wait_until(self.end.lock(), deadline, Option::is_some);
        end.clone().map_or(Ok(false), |end| end.map(|()| true))
    }

    pub(super) fn statistics(&self, maker: Maker) -> Statistics {
        let statistics = self.statistics.lock_made_by(maker);
        let mut statistics = statistics.map_or_else(Statistics::default, |statistics| *statistics);
        if self.state.load(Ordering::Relaxed) == OVER {
            // What is still in the queue goes nowhere.
            statistics.dropped +=
                self.queue.lock_made_by(maker).map_or(0, |queue| queue.waiting.len() as u64);
        }
        statistics
    }

    pub(super) fn flows(&self) -> bool {
        self.state.load(Ordering::Relaxed) == FLOWS
    }

    /// Moves at most a quantum of packets; returns how many. What it did is counted before the flow is over.
    pub(super) fn turn(&self, role: Role) -> usize {
        let _turn = self.turns[role as usize].lock();
        if !self.flows() {
            return 0;
        }
        let mut done = Statistics::default();
        let turn = self.guarded(|| match (role, self.how.style) {
            (Role::Reaper, Style::Synchronous) => self.pass_on(&mut done),
            (Role::Reaper, Style::Asynchronous) => self.enqueue(&mut done),
            (Role::Scheduler, _) => self.forward(&mut done),
        });
        let (moved, end) = match turn.and_then(|turn| turn) {
            Ok((moved, is_over)) => (moved, is_over.then(|| self.failed.lock().take().map_or(Ok(()), Err))),
            Err(error) => (0, Some(Err(error))),
        };
        done.turns = u64::from(moved > 0);
        // A flow that moves nothing is looked at again and again while its thread spins.
        if done != Statistics::default() {
            self.count(&done);
        }
        end.into_iter().for_each(|end| self.end(end));
        moved
    }

    /// Runs what calls a driver, which may be the program's own: its panic ends this flow, and not the thread of all.
    fn guarded<T>(&self, run: impl FnOnce() -> T) -> Result<T, Error> {
        let result = catch_unwind(AssertUnwindSafe(run));
        // A driver may have forked.
        genie_sys::thread::end_copy();
        result.map_err(|payload| {
            // Dropping it might panic again.
            std::mem::forget(payload);
            Error::Driver { from: self.source.name(), to: self.sink.name() }
        })
    }

    fn count(&self, done: &Statistics) {
        let mut all = self.statistics.lock();
        all.packets += done.packets;
        all.bytes += done.bytes;
        all.copied += done.copied;
        all.dropped += done.dropped;
        all.held += done.held;
        all.turns += done.turns;
    }

    /// From the source straight to the sink.
    fn pass_on(&self, done: &mut Statistics) -> Result<(usize, bool), Error> {
        let (mut source, mut sink, mut tap) = (self.source.lock(), self.sink.lock(), self.tap.lock());
        let (mut moved, mut result) = (0, Ok(()));
        while moved < self.how.quantum && !source.is_over() {
            let room = self.room(&mut **sink)?;
            let most = match self.how.when_full {
                WhenFull::Hold => room.min(self.how.quantum - moved),
                WhenFull::Drop => self.how.quantum - moved,
            };
            self.hold(most == 0, done);
            if most == 0 {
                break;
            }
            let before = source.copied();
            let took = source.take(most, &mut |frame| {
                if result.is_err() {
                    done.dropped += 1;
                    return;
                }
                result = frame.show(|data| self.put(data, &mut tap, &mut **sink, done));
            });
            done.copied += source.copied() - before;
            let took = self.taken(took, done)?;
            std::mem::replace(&mut result, Ok(()))?;
            moved += took;
            if took < most {
                break;
            }
        }
        let is_sent = (moved > 0 || source.is_over()) && self.send(&mut **sink)?;
        Ok((moved, is_sent && source.is_over()))
    }

    /// From the source to the queue.
    fn enqueue(&self, done: &mut Statistics) -> Result<(usize, bool), Error> {
        let mut source = self.source.lock();
        if self.has_ended.load(Ordering::Relaxed) {
            return Ok((0, false));
        }
        let most = match self.how.when_full {
            WhenFull::Hold => self.free().min(self.how.quantum),
            WhenFull::Drop => self.how.quantum,
        };
        self.hold(most == 0, done);
        let before = source.copied();
        let took = source.take(most, &mut |frame| {
            let mut queue = self.queue.lock();
            if queue.waiting.len() >= self.how.queue {
                done.dropped += 1;
                return;
            }
            let mut packet = queue.spare.pop().unwrap_or_default();
            packet.clear();
            frame.show(|data| data.append_to(&mut packet));
            done.copied += packet.len() as u64;
            queue.waiting.push_back(packet);
        });
        done.copied += source.copied() - before;
        let took = self.taken(took, done);
        let has_ended = took.is_err() || source.is_over();
        let took = took.unwrap_or_else(|error| {
            // What came before is in the queue, and goes on.
            *self.failed.lock() = Some(error);
            0
        });
        self.has_ended.store(has_ended, Ordering::Release);
        if took > 0 || has_ended {
            self.scheduler.wake();
        }
        Ok((took, false))
    }

    /// From the queue to the sink.
    fn forward(&self, done: &mut Statistics) -> Result<(usize, bool), Error> {
        // Acquire, for the Release in `enqueue`: what came before the end is in the queue.
        let has_ended = self.has_ended.load(Ordering::Acquire);
        let mut moved = 0;
        let (mut sink, mut tap) = (self.sink.lock(), self.tap.lock());
        while moved < self.how.quantum && self.free() < self.how.queue {
            let is_full = self.room(&mut **sink)? == 0;
            let packet = if is_full { None } else { self.queue.lock().waiting.pop_front() };
            let Some(packet) = packet else { break };
            let put = self.put(&Data::from(&packet[..]), &mut tap, &mut **sink, done);
            self.queue.lock().spare.push(packet);
            put?;
            moved += 1;
        }
        let is_sent = (moved > 0 || has_ended) && self.send(&mut **sink)?;
        if moved > 0 {
            // The reaper may wait for room in the queue.
            self.reaper.wake();
        }
        Ok((moved, is_sent && has_ended && self.free() == self.how.queue))
    }

    /// How many packets the queue has room for.
    fn free(&self) -> usize {
        self.how.queue.saturating_sub(self.queue.lock().waiting.len())
    }

    /// How many packets the sink has room for, if need be after it has sent what was put.
    fn room(&self, sink: &mut dyn Rings) -> Result<usize, Error> {
        match sink.room().map_err(|errno| self.sink_failed(errno))? {
            0 => {
                self.send(sink)?;
                sink.room().map_err(|errno| self.sink_failed(errno))
            }
            room => Ok(room),
        }
    }

    fn hold(&self, is_full: bool, done: &mut Statistics) {
        if self.is_held.load(Ordering::Relaxed) != is_full {
            self.is_held.store(is_full, Ordering::Relaxed);
            done.held += u64::from(is_full);
        }
    }

    /// Shows a packet to the tap, and puts it into the sink.
    fn put(
        &self,
        data: &Data<'_>,
        tap: &mut Option<Tap>,
        sink: &mut dyn Rings,
        done: &mut Statistics,
    ) -> Result<(), Error> {
        if let Some(tap) = tap {
            let seen = catch_unwind(AssertUnwindSafe(|| tap(data)));
            // A tap may have forked.
            genie_sys::thread::end_copy();
            if seen.is_err() {
                done.dropped += 1;
                return Err(Error::Tap { from: self.source.name(), to: self.sink.name() });
            }
        }
        let before = sink.copied();
        let is_put = match sink.put(data) {
            Ok(false) => or_later(sink.send(), ()).and_then(|()| sink.put(data)),
            result => result,
        };
        done.copied += sink.copied() - before;
        match is_put {
            Ok(true) => {
                done.packets += 1;
                done.bytes += data.len() as u64;
            }
            Ok(false) | Err(Errno::MSGSIZE) => done.dropped += 1,
            Err(errno) => {
                done.dropped += 1;
                return Err(self.sink_failed(errno));
            }
        }
        Ok(())
    }

    /// Has the sink send what was put; returns whether it has sent all.
    fn send(&self, sink: &mut dyn Rings) -> Result<bool, Error> {
        or_later(sink.send().map(|()| true), false).map_err(|errno| self.sink_failed(errno))
    }

    /// How many packets the source has given.
    fn taken(&self, took: Result<usize, Errno>, done: &mut Statistics) -> Result<usize, Error> {
        or_later(took, 0).map_err(|errno| {
            let end = self.source.name();
            if errno != Errno::MSGSIZE {
                return Error::Source { end, errno };
            }
            done.dropped += 1;
            Error::Message { end }
        })
    }

    fn sink_failed(&self, errno: Errno) -> Error {
        Error::Sink { end: self.sink.name(), errno }
    }
}

impl std::fmt::Debug for Path {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Path(from {:?} to {:?}, {:?})", self.source, self.sink, self.how)
    }
}
