//! A series: all schemes at one length and in one direction, measured side by side.
//!
//! How: a series is cut into batches. Each begins with a probe of the CPUs' placement and one verifying operation for
//! each scheme; then come rounds, in which each scheme takes its turn, in an order drawn anew each time. A turn is an
//! untimed operation, which warms the caches and for an input puts the data where a server would just have put it, a
//! request for 64 bytes, which warms the code again, and the measured operation. Every fourth round measures CPU time
//! instead of latency, since reading that clock disturbs what comes next. Plain copying and empty requests take turns
//! with the schemes.
//! Buffers lie where they lie, and in a cache that makes a difference; so copy and emulated copy exchange theirs from
//! batch to batch.
//! Invariants: batches of unlike placement are not mixed: the more frequent placement counts, the rest is dropped.

use std::hint::black_box;
use std::time::{Duration, Instant};

use genie::{Direction, Error, Receipt, Scheme};
use genie_sys::machine;

use super::bench::{Bench, Task};
use super::options::Touch;
use super::probe::{Probe, majority};
use super::random::Random;
use super::statistics::Samples;
use super::subject::{Passed, Subject};
use super::touch::{load_words, store_words};
use super::verify;
use crate::placement::Placement;

/// How many batches a series is cut into, if it has as many rounds.
const BATCHES: usize = 5;
/// Rounds at the beginning of a batch that are not counted.
const WARM_UP: usize = 2;
/// Among so many rounds, one measures CPU time.
const CPU_TIME_EVERY: usize = 4;
/// The length of the request that warms the code.
const SHORT: usize = 64;
/// How often reading the CPU clock is timed.
const CLOCK_READINGS: usize = 101;

/// What was measured of one scheme.
#[derive(Debug)]
pub(super) struct Measured {
    pub(super) scheme: Scheme,
    pub(super) latency: Samples,
    pub(super) cycle: Samples,
    pub(super) cpu: Samples,
    /// Write faults in a cycle.
    pub(super) faults: Samples,
    /// The last measured operation's.
    pub(super) receipt: Receipt,
    /// The first difference from the data that was found.
    pub(super) wrong: Option<String>,
}

/// What was measured in one batch, and then in all that count.
#[derive(Debug)]
pub(super) struct Measurements {
    pub(super) placement: Option<Placement>,
    pub(super) round_trip: Option<Duration>,
    pub(super) schemes: Vec<Measured>,
    pub(super) memcpy: Samples,
    pub(super) empty_request: Samples,
    /// Batches that were dropped for their placement.
    pub(super) dropped: usize,
}

/// One length and direction.
#[derive(Debug)]
pub(super) struct Series<'b> {
    bench: &'b Bench,
    subjects: Vec<Subject<'b>>,
    warmer: Subject<'b>,
    touch: Touch,
    task: Task,
    /// The sum that the server replies, where it reads an output.
    sum: Option<u64>,
    memory: [Vec<u8>; 2],
    random: Random,
    /// What reading the CPU clock adds to the CPU time between two readings.
    cpu_clock: Duration,
}

/// Whose turn it is.
#[derive(Debug, Clone, Copy)]
enum Turn {
    Scheme(usize),
    Memcpy,
    EmptyRequest,
}

impl<'b> Series<'b> {
    /// Prepares subjects that all have the same length and direction.
    ///
    /// # Errors
    /// No memory.
    pub(super) fn new(bench: &'b Bench, subjects: Vec<Subject<'b>>, touch: Touch) -> Result<Self, Error> {
        let (len, direction) = subjects.first().map_or((0, Direction::Out), |one| (one.len, one.direction));
        let task = match (touch.by_server(), direction) {
            (false, _) => Task::NULL,
            (true, Direction::Out) => Task::SUM,
            (true, Direction::In) => Task::FETCH,
        };
        let sum = (touch.by_server() && direction == Direction::Out).then(|| verify::sum(bench.data.of(len)));
        let memory = [bench.data.of(len).to_vec(), vec![1; len]];
        let warmer = Subject::new(bench, Scheme::EmulatedShare, direction, SHORT)?;
        let random = Random::new(len as u64);
        Ok(Self { bench, subjects, warmer, touch, task, sum, memory, random, cpu_clock: cpu_clock_cost() })
    }

    /// Measures in `rounds` rounds, and says after each batch how many are done.
    pub(super) fn measure(
        &mut self,
        rounds: usize,
        probe: &Probe,
        mut done: impl FnMut(usize),
    ) -> Result<Measurements, Error> {
        let count = BATCHES.min(rounds);
        let mut batches = Vec::with_capacity(count);
        for batch in 0..count {
            let share = rounds * (batch + 1) / count - rounds * batch / count;
            batches.push(self.batch(share, probe)?);
            done(share);
        }
        Ok(of_one_placement(batches))
    }

    fn batch(&mut self, rounds: usize, probe: &Probe) -> Result<Measurements, Error> {
        self.exchange_buffers();
        let round_trip = probe.round_trip();
        let mut batch = Measurements::new(round_trip, &self.subjects);
        for (subject, measured) in self.subjects.iter_mut().zip(&mut batch.schemes) {
            measured.judge(verify::once(self.bench, subject)?);
        }
        let mut warm_up = Measurements::new(round_trip, &self.subjects);
        (0..WARM_UP).try_for_each(|round| self.round(round * CPU_TIME_EVERY, &mut warm_up))?;
        // A batch of one round has samples of each kind all the same.
        for round in 1..=rounds.max(CPU_TIME_EVERY) {
            self.round(round, &mut batch)?;
        }
        for (subject, measured) in self.subjects.iter_mut().zip(&mut batch.schemes) {
            measured.judge(verify::after_timing(self.bench, subject, self.task)?);
        }
        Ok(batch)
    }

    fn round(&mut self, round: usize, batch: &mut Measurements) -> Result<(), Error> {
        let mut turns: Vec<_> = (0..self.subjects.len()).map(Turn::Scheme).collect();
        turns.extend([Turn::Memcpy, Turn::EmptyRequest]);
        self.random.shuffle(&mut turns);
        for turn in turns {
            match turn {
                Turn::Scheme(index) => self.scheme(index, round, &mut batch.schemes[index])?,
                Turn::Memcpy => batch.memcpy.add(self.memcpy()),
                Turn::EmptyRequest => batch.empty_request.add(self.empty_request()?),
            }
        }
        Ok(())
    }

    fn scheme(&mut self, index: usize, round: usize, measured: &mut Measured) -> Result<(), Error> {
        let warming = match self.subjects[index].direction {
            Direction::Out => Task::NULL,
            Direction::In => Task::FETCH,
        };
        self.operate(index, warming)?;
        self.subjects[index].tidy()?;
        self.warm()?;
        if round.is_multiple_of(CPU_TIME_EVERY) {
            let before = machine::thread_cpu_time();
            self.operate(index, self.task)?;
            measured.cpu.add((machine::thread_cpu_time() - before).saturating_sub(self.cpu_clock));
        } else {
            let before = self.bench.genie.space().statistics().faults;
            let passed = self.operate(index, self.task)?;
            let faults = self.bench.genie.space().statistics().faults - before;
            measured.add(&passed, faults);
            measured.judge(self.judge_sum(&self.subjects[index], passed.sum));
        }
        self.subjects[index].tidy()
    }

    /// Brings the code of a request of this direction back into the cache.
    fn warm(&mut self) -> Result<Passed, Error> {
        match self.warmer.direction {
            Direction::Out => self.warmer.output(Task::NULL, |_| {}),
            Direction::In => self.warmer.input(Task::NULL, |_| {}),
        }
    }

    /// Lets the strong native schemes exchange their buffers, so that none owes its times to where one lies.
    fn exchange_buffers(&mut self) {
        let mut strong =
            self.subjects.iter_mut().filter(|subject| subject.is_strong() && subject.native().is_some());
        if let (Some(one), Some(other)) = (strong.next(), strong.next()) {
            one.exchange_buffers(other);
        }
    }

    /// Passes data once, with the client's touching.
    fn operate(&mut self, index: usize, task: Task) -> Result<Passed, Error> {
        let subject = &mut self.subjects[index];
        match (subject.direction, self.touch.by_client()) {
            (Direction::Out, true) => subject.output(task, store_words),
            (Direction::Out, false) => subject.output(task, |_| {}),
            (Direction::In, true) => subject.input(task, load_words),
            (Direction::In, false) => subject.input(task, |_| {}),
        }
    }

    /// Timed outputs by migrant schemes are of buffers that hold anything, so that only native ones have a known sum.
    fn judge_sum(&self, subject: &Subject<'_>, found: Option<u64>) -> verify::Verdict {
        match (self.sum, found) {
            (Some(sum), Some(found)) if subject.native().is_some() && sum != found => {
                Err(format!("the server's sum is {found:#x}, not {sum:#x}"))
            }
            _ => Ok(()),
        }
    }

    /// Copies between two ordinary buffers that are in the caches as far as they fit.
    fn memcpy(&mut self) -> Duration {
        let [from, to] = &mut self.memory;
        to.copy_from_slice(black_box(from));
        let start = Instant::now();
        to.copy_from_slice(black_box(from));
        black_box(to);
        start.elapsed()
    }

    fn empty_request(&self) -> Result<Duration, Error> {
        self.bench.empty_request()?;
        let start = Instant::now();
        self.bench.empty_request()?;
        Ok(start.elapsed())
    }
}

impl Measured {
    fn new(scheme: Scheme) -> Self {
        let [latency, cycle, cpu, faults] = std::array::from_fn(|_| Samples::new());
        Self { scheme, latency, cycle, cpu, faults, receipt: Receipt::new(scheme), wrong: None }
    }

    fn add(&mut self, passed: &Passed, faults: u64) {
        self.faults.add_number(faults);
        self.latency.add(passed.latency);
        self.cycle.add(passed.cycle);
        self.receipt = passed.receipt;
    }

    fn judge(&mut self, verdict: verify::Verdict) {
        if let Err(wrong) = verdict {
            self.wrong.get_or_insert(wrong);
        }
    }

    fn merge(&mut self, later: Self) {
        self.latency.merge(&later.latency);
        self.cycle.merge(&later.cycle);
        self.cpu.merge(&later.cpu);
        self.faults.merge(&later.faults);
        self.receipt = later.receipt;
        self.judge(later.wrong.map_or(Ok(()), Err));
    }
}

impl Measurements {
    fn new(round_trip: Option<Duration>, subjects: &[Subject<'_>]) -> Self {
        Self {
            placement: round_trip.map(Placement::of),
            round_trip,
            schemes: subjects.iter().map(|subject| Measured::new(subject.scheme)).collect(),
            memcpy: Samples::new(),
            empty_request: Samples::new(),
            dropped: 0,
        }
    }

    fn merge(&mut self, later: Self) {
        for (one, other) in self.schemes.iter_mut().zip(later.schemes) {
            one.merge(other);
        }
        self.memcpy.merge(&later.memcpy);
        self.empty_request.merge(&later.empty_request);
        self.round_trip = self.round_trip.min(later.round_trip);
    }
}

/// Puts the batches of the most frequent placement together. A wrong byte counts wherever it was found.
fn of_one_placement(batches: Vec<Measurements>) -> Measurements {
    let placement = majority(batches.iter().map(|batch| batch.placement));
    let (like, unlike): (Vec<_>, Vec<_>) =
        batches.into_iter().partition(|batch| batch.placement == placement);
    let mut like = like.into_iter();
    let mut sum = like.next().expect("the majority has a member");
    like.for_each(|batch| sum.merge(batch));
    sum.dropped = unlike.len();
    for batch in unlike {
        for (one, other) in sum.schemes.iter_mut().zip(batch.schemes) {
            one.judge(other.wrong.map_or(Ok(()), Err));
        }
    }
    sum
}

/// The middle of many differences between two readings of the CPU clock, one right after the other.
fn cpu_clock_cost() -> Duration {
    let mut costs: Vec<_> = (0..CLOCK_READINGS)
        .map(|_| {
            let before = machine::thread_cpu_time();
            machine::thread_cpu_time() - before
        })
        .collect();
    costs.sort_unstable();
    costs[CLOCK_READINGS / 2]
}
