//! A recorder: how long each operation took, where it really ran.
//!
//! Why: calibration runs operations by themselves. Latency is made of what they cost inside requests, beside all else
//! that a request does to caches and page tables; that cost can only be measured inside requests.
//! How: the clock is read before the first operation of a column and after each one, and the time of a reading itself is
//! subtracted. A column's times are kept beside its operations, and go to the recorder when it has run to its end, under
//! one lock, so that the records of a column stand together, in order. A column that fails leaves none. Without a recorder
//! an operation pays for one branch.
//! Limits: a recorder has room for a fixed number of records; later records are counted, not kept. Edges that emulated
//! copy copies, and zero completion of outputs, are no operations of the tables, and are not recorded. If one call of the
//! memory crate does the work of several operations, its time is recorded with the operation that makes the call.
//! Source: thesis §8.2.2, which took the times of operations in the same way.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use genie_memory::Direction;
use genie_sys::lock::Mutex;

use crate::Scheme;
use crate::operation::Operation;

/// How long one operation took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// What ran.
    pub operation: Operation,
    /// The column that it ran in.
    pub column: Column,
    /// How long, in nanoseconds, the clock's own cost subtracted.
    pub nanoseconds: u64,
}

/// When in a request's life a column's operations run.
///
/// # Source
/// Thesis §7.4.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Moment {
    /// When the client makes the request.
    Request,
    /// When the server first needs an input's buffer.
    Ready,
    /// When the reply is returned.
    Reply,
}

/// Which column of the tables ran, and for how much data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Column {
    /// The scheme that was in effect when the column began; not the scheme asked for, if that was converted.
    pub scheme: Scheme,
    /// Output or input.
    pub direction: Direction,
    /// When in the request's life.
    pub moment: Moment,
    /// The number of data bytes of the buffer, or, in an input's reply, of the data that came.
    pub len: usize,
}

/// Takes the times of operations, for each [`crate::Passing`] that was given this recorder.
#[derive(Debug)]
pub struct Recorder {
    kept: Mutex<Kept>,
    room: usize,
    reading: u64,
    is_paused: AtomicBool,
}

#[derive(Debug)]
struct Kept {
    records: Vec<Record>,
    lost: u64,
}

/// As many operations as the longest column has.
const COLUMN_MAX: usize = 6;
/// How often the clock is read to find out how long a reading takes.
const READINGS: usize = 1001;

impl Recorder {
    /// Makes a recorder with memory for `room` records, which lasts as long as the process, so that transfers under way
    /// refer to it at no cost.
    pub fn new(room: usize) -> &'static Self {
        let kept = Kept { records: Vec::with_capacity(room), lost: 0 };
        let is_paused = AtomicBool::new(false);
        Box::leak(Box::new(Self { kept: Mutex::new(kept), room, reading: reading(), is_paused }))
    }

    /// If `is_paused`, records no column that begins from now on; if not, records each one again.
    pub fn pause(&self, is_paused: bool) {
        // This orders no other memory access: columns under way in other threads may be recorded or not.
        self.is_paused.store(is_paused, Ordering::Relaxed);
    }

    /// Takes out the records so far, in the order in which their columns ended, and makes room for as many new ones.
    pub fn drain(&self) -> Vec<Record> {
        let empty = Vec::with_capacity(self.room);
        std::mem::replace(&mut self.kept.lock().records, empty)
    }

    /// How many records found no room, so far.
    pub fn lost(&self) -> u64 {
        self.kept.lock().lost
    }

    /// How long one reading of the clock takes, in nanoseconds; this has been subtracted from each record.
    pub fn reading(&self) -> u64 {
        self.reading
    }

    fn keep(&self, column: Column, laps: &[(Operation, u64)]) {
        let mut kept = self.kept.lock();
        if kept.records.len() + laps.len() > self.room {
            kept.lost += laps.len() as u64;
            return;
        }
        let record = |(operation, nanoseconds): &(Operation, u64)| Record {
            operation: *operation,
            column,
            nanoseconds: *nanoseconds,
        };
        kept.records.extend(laps.iter().map(record));
    }
}

/// The median time between two consecutive readings.
fn reading() -> u64 {
    let mut apart: Vec<u64> = (0..READINGS).map(|_| nanoseconds_since(Instant::now())).collect();
    *apart.select_nth_unstable(READINGS / 2).1
}

fn nanoseconds_since(begin: Instant) -> u64 {
    Instant::now().duration_since(begin).as_nanos() as u64
}

/// Takes the times of one column's operations as they run; does nothing without a recorder.
///
/// It has no destructor, and its contents are written only if there is a recorder, so that transfers without a recorder
/// don't pay for it.
#[derive(Debug)]
pub(crate) struct Watch(Option<Running>);

#[derive(Debug)]
struct Running {
    recorder: &'static Recorder,
    laps: [(Operation, u64); COLUMN_MAX],
    count: usize,
    /// An operation that ran before its place in the column, and how long it took.
    early: Option<(Operation, u64)>,
    last: Instant,
}

impl Watch {
    /// Begins to take times, now.
    #[inline]
    pub(crate) fn start(recorder: Option<&'static Recorder>) -> Self {
        Self(recorder.and_then(Running::start))
    }

    /// Goes on from now: what happened since the last time belongs to no operation.
    #[inline]
    pub(crate) fn skip(&mut self) {
        if let Some(running) = &mut self.0 {
            running.lap();
        }
    }

    /// What happened since the last time belongs to an operation whose place in the column comes later.
    #[inline]
    pub(crate) fn early(&mut self, operation: Operation) {
        if let Some(running) = &mut self.0 {
            running.early = Some((operation, running.lap()));
        }
    }

    /// An operation of the column has just run.
    #[inline]
    pub(crate) fn ran(&mut self, operation: Operation) {
        if let Some(running) = &mut self.0 {
            running.ran(operation);
        }
    }

    /// An operation of the column ran somewhere else, and took this long.
    #[inline]
    pub(crate) fn took(&mut self, operation: Operation, nanoseconds: u64) {
        if let Some(running) = &mut self.0 {
            running.add(operation, nanoseconds);
        }
    }

    /// How long it has been since the last time.
    #[inline]
    pub(crate) fn lap(&mut self) -> Option<u64> {
        self.0.as_mut().map(Running::lap)
    }

    /// The column has run to its end.
    #[inline]
    pub(crate) fn finish(&self, column: impl FnOnce() -> Column) {
        if let Some(running) = &self.0 {
            running.recorder.keep(column(), &running.laps[..running.count]);
        }
    }
}

impl Running {
    #[cold]
    fn start(recorder: &'static Recorder) -> Option<Self> {
        let laps = [(Operation::ALL[0], 0); COLUMN_MAX];
        let is_paused = recorder.is_paused.load(Ordering::Relaxed);
        (!is_paused).then(|| Self { recorder, laps, count: 0, early: None, last: Instant::now() })
    }

    /// The time since the last lap; the next lap begins now.
    #[cold]
    fn lap(&mut self) -> u64 {
        let now = Instant::now();
        let lap = now.duration_since(self.last).as_nanos() as u64;
        self.last = now;
        lap.saturating_sub(self.recorder.reading)
    }

    #[cold]
    fn ran(&mut self, operation: Operation) {
        let early = self.early.take_if(|(early, _)| *early == operation);
        let lap = self.lap() + early.map_or(0, |(_, nanoseconds)| nanoseconds);
        self.add(operation, lap);
    }

    #[cold]
    fn add(&mut self, operation: Operation, nanoseconds: u64) {
        // No column is longer (tested).
        if let Some(lap) = self.laps.get_mut(self.count) {
            *lap = (operation, nanoseconds);
            self.count += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;
    use std::time::Duration;

    use super::*;
    use crate::tables;

    #[test]
    fn what_began_before_its_turn_counts_for_its_operation() {
        // Miri reports memory as leaked if nothing refers to it at the end.
        static RECORDER: OnceLock<&Recorder> = OnceLock::new();
        let recorder = RECORDER.get_or_init(|| Recorder::new(2));
        let mut watch = Watch::start(Some(recorder));
        std::thread::sleep(Duration::from_millis(2));
        watch.early(Operation::MarkRegionEmigrating);
        std::thread::sleep(Duration::from_millis(2));
        watch.skip();
        watch.ran(Operation::ReferenceClientPages);
        watch.ran(Operation::MarkRegionEmigrating);
        let scheme = Scheme::EmulatedWeakMove;
        watch.finish(|| Column { scheme, direction: Direction::Out, moment: Moment::Request, len: 1 });
        let records = recorder.drain();
        let operations: Vec<_> = records.iter().map(|record| record.operation).collect();
        assert_eq!(operations, [Operation::ReferenceClientPages, Operation::MarkRegionEmigrating]);
        assert!(records[1].nanoseconds > 1_900_000, "{records:?}");
    }

    #[test]
    fn the_longest_column_has_room() {
        let tables = Scheme::ALL.map(|scheme| {
            let (output, customized) = (tables::output(scheme), tables::customized_input(scheme));
            let (overlaid, outboard) = (tables::overlaid_input(scheme), tables::outboard_input(scheme));
            let inputs =
                [customized, overlaid, outboard].map(|input| [input.request, input.ready, input.reply]);
            let longest = inputs.concat().iter().map(|column| column.len()).max();
            longest.max(Some(output.request.len())).max(Some(output.reply.len()))
        });
        assert_eq!(tables.into_iter().max().flatten(), Some(COLUMN_MAX));
    }
}
