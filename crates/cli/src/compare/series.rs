//! A series: all schemes and baselines at one length and in one direction, measured side by side.
//!
//! How: a series is cut into batches. Each begins with a probe of the CPUs' placement and one verifying operation for
//! each scheme; then come rounds, in which each scheme takes its turn, in an order drawn anew each time. A turn is an
//! untimed operation, which leaves the data in the caches of both sides as one after the other does, and for an input
//! puts it where a server would just have put it, a request for 64 bytes, which warms the code again, and the measured
//! operation. Every fourth round measures CPU time
//! instead of latency, since reading that clock disturbs what comes next. Baselines, plain copying and empty requests take
//! turns with the schemes; the limits of control are measured once in a batch.
//! Buffers lie where they lie, and in a cache that makes a difference; so copy and emulated copy exchange theirs from
//! batch to batch.

use std::hint::black_box;
use std::time::{Duration, Instant};

use genie::{Direction, Error, Scheme};
use genie_baselines::{Baselines, EMPTY, Means, Passing};
use genie_lab::clock::CpuClock;
use genie_lab::data::{Data, Verdict, sum};
use genie_lab::probe::Probe;
use genie_lab::random::Random;
use genie_lab::touch::{Touch, load_words, store_words};

use super::bench::{Bench, Task};
use super::measured::{Batch, Book, By, Measured, Measurements, Of, Side};
use super::options::Rounds;
use super::place::Place;
use super::subject::{Passed, Subject};
use super::verify;
use crate::failure::Failure;

/// How many batches a series is cut into, if it has as many rounds.
const BATCHES: usize = 5;
/// Rounds at the beginning of a batch that are not counted.
const WARM_UP: usize = 2;
/// Among so many rounds, one measures CPU time.
const CPU_TIME_EVERY: usize = 4;
/// Rounds of a batch that are made however long they take.
const LEAST: usize = 2 * CPU_TIME_EVERY;
/// The length of the request that warms the code.
const SHORT: usize = 64;
/// How often in a batch those who sleep hand over to each other, by futex alone and with requests: waking varies much.
const SLEEPS: usize = 4;

/// One length and direction.
#[derive(Debug)]
pub(super) struct Series<'b> {
    bench: &'b Bench,
    baselines: Option<&'b mut Baselines>,
    subjects: Vec<Subject<'b>>,
    /// What is known of subjects and baselines besides samples.
    schemes: Vec<Side<Measured>>,
    others: Vec<Side<Means>>,
    /// For each place.
    warmers: Vec<Subject<'b>>,
    passing: Passing,
    touch: Touch,
    task: Task,
    /// The sum that the server replies, where it reads an output.
    sum: Option<u64>,
    memory: [Vec<u8>; 2],
    random: Random,
    cpu_clock: CpuClock,
}

/// Whose turn it is.
#[derive(Debug, Clone, Copy)]
enum Turn {
    Scheme(usize),
    Baseline(usize),
    Memcpy,
    EmptyRequest,
}

impl<'b> Series<'b> {
    /// Prepares subjects that all have the same length and direction.
    ///
    /// # Errors
    /// No memory.
    pub(super) fn new(
        bench: &'b Bench,
        baselines: Option<&'b mut Baselines>,
        subjects: Vec<Subject<'b>>,
        touch: Touch,
    ) -> Result<Self, Error> {
        let (len, direction) = subjects.first().map_or((0, Direction::Out), |one| (one.len, one.direction));
        let task = match (touch.by_server(), direction) {
            (false, _) => Task::NULL,
            (true, Direction::Out) => Task::SUM,
            (true, Direction::In) => Task::FETCH,
        };
        let sum = (touch.by_server() && direction == Direction::Out).then(|| sum(bench.data.of(len)));
        let memory = [bench.data.of(len).to_vec(), vec![1; len]];
        let warmers = bench
            .places()
            .map(|place| Subject::new(bench, place, Scheme::EmulatedShare, direction, SHORT))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            bench,
            schemes: subjects.iter().map(Measured::of).map(Side::new).collect(),
            others: baselines.iter().flat_map(|baselines| baselines.means()).map(Side::new).collect(),
            baselines,
            subjects,
            warmers,
            passing: Passing { direction, len, touch },
            touch,
            task,
            sum,
            memory,
            random: Random::new(len as u64),
            cpu_clock: CpuClock::of_thread(),
        })
    }

    /// Measures in as many rounds as asked for, or as there is time for, and says after each batch how many are done.
    pub(super) fn measure(
        mut self,
        rounds: Rounds,
        probe: &Probe,
        mut done: impl FnMut(usize),
    ) -> Result<Measurements, Failure> {
        let count = BATCHES.min(rounds.most);
        let time = rounds.time.map(|time| time / count as u32);
        let mut batches = Vec::with_capacity(count);
        for batch in 0..count {
            let share = rounds.most * (batch + 1) / count - rounds.most * batch / count;
            batches.push(self.batch(Rounds { most: share, time }, probe)?);
            done(share);
        }
        Ok(Measurements::of_one_placement(&batches, self.schemes, self.others))
    }

    fn batch(&mut self, rounds: Rounds, probe: &Probe) -> Result<Batch, Failure> {
        let end = rounds.time.map(|time| Instant::now() + time);
        self.exchange_buffers();
        let round_trip = probe.round_trip();
        let mut book = Book::default();
        self.control(&mut book)?;
        for (subject, side) in self.subjects.iter_mut().zip(&mut self.schemes) {
            side.judge(verify::once(self.bench, subject).map_err(Failure::could_not)?);
        }
        self.judge_baselines(Baselines::verify)?;
        let mut warm_up = Book::default();
        (0..WARM_UP).try_for_each(|round| self.round(round * CPU_TIME_EVERY, &mut warm_up))?;
        // A batch of one round has samples of each kind all the same.
        for round in 1..=rounds.most.max(CPU_TIME_EVERY) {
            if round > LEAST && end.is_some_and(|end| Instant::now() >= end) {
                break;
            }
            self.round(round, &mut book)?;
        }
        for (subject, side) in self.subjects.iter_mut().zip(&mut self.schemes) {
            let verdict = verify::after_timing(self.bench, subject, self.task);
            side.judge(verdict.map_err(Failure::could_not)?);
        }
        self.judge_baselines(Baselines::verify_after)?;
        Ok(Batch { round_trip, book })
    }

    /// Verifies the baselines in one way or the other.
    fn judge_baselines(
        &mut self,
        verify: impl Fn(&mut Baselines, usize, Passing, &Data) -> genie_lab::error::Result<Verdict>,
    ) -> Result<(), Failure> {
        let Some(baselines) = &mut self.baselines else { return Ok(()) };
        for (index, side) in self.others.iter_mut().enumerate() {
            side.judge(verify(baselines, index, self.passing, &self.bench.data)?);
        }
        Ok(())
    }

    /// Measures what control alone costs: requests without buffers, and what no request can beat.
    fn control(&mut self, book: &mut Book) -> Result<(), Failure> {
        for (index, place) in self.bench.places().enumerate() {
            let request = || self.bench.empty_request(place);
            book.add(Of::Request(index), empty_requests(request).map_err(Failure::could_not)?);
        }
        let Some(baselines) = &mut self.baselines else { return Ok(()) };
        for index in 0..self.others.len() {
            book.add(Of::Empty(index), baselines.empty(index)?);
        }
        if let Some(time) = baselines.ping_pong()? {
            book.add(Of::PingPong, time);
        }
        for _ in 0..SLEEPS {
            book.add(Of::Futex, baselines.futex_hand_over()?);
            if self.bench.empty_request_asleep().map_err(Failure::could_not)? {
                let asleep = || self.bench.empty_request_asleep().map(drop);
                book.add(Of::RequestAsleep, empty_requests(asleep).map_err(Failure::could_not)?);
            }
        }
        Ok(())
    }

    fn round(&mut self, round: usize, book: &mut Book) -> Result<(), Failure> {
        let mut turns: Vec<_> = (0..self.subjects.len()).map(Turn::Scheme).collect();
        turns.extend((0..self.others.len()).map(Turn::Baseline));
        turns.extend([Turn::Memcpy, Turn::EmptyRequest]);
        self.random.shuffle(&mut turns);
        for turn in turns {
            match turn {
                Turn::Scheme(index) => self.scheme(index, round, book).map_err(Failure::could_not)?,
                Turn::Baseline(index) => self.baseline(index, round, book)?,
                Turn::Memcpy => book.add(Of::Memcpy, self.memcpy()),
                Turn::EmptyRequest => {
                    book.add(Of::RequestInTurn, self.empty_request().map_err(Failure::could_not)?);
                }
            }
        }
        Ok(())
    }

    fn scheme(&mut self, index: usize, round: usize, book: &mut Book) -> Result<(), Error> {
        let by = By::Scheme(index);
        let warming = match self.subjects[index].direction {
            Direction::Out => self.task,
            Direction::In => Task::FETCH,
        };
        self.operate(index, warming)?;
        self.subjects[index].tidy()?;
        self.warm(self.subjects[index].place)?;
        if round.is_multiple_of(CPU_TIME_EVERY) {
            let before = self.cpu_clock.now();
            self.operate(index, self.task)?;
            book.add(Of::CpuTime(by), self.cpu_clock.since(before));
        } else {
            let before = self.bench.genie.space().statistics().faults;
            let passed = self.operate(index, self.task)?;
            let faults = self.bench.genie.space().statistics().faults - before;
            book.add(Of::Latency(by), passed.latency);
            book.add(Of::Cycle(by), passed.cycle);
            book.add_number(Of::Faults(by), faults);
            self.schemes[index].what.receipt = passed.receipt;
            let verdict = self.judge_sum(&self.subjects[index], passed.sum);
            self.schemes[index].judge(verdict);
        }
        self.subjects[index].tidy()
    }

    fn baseline(&mut self, index: usize, round: usize, book: &mut Book) -> Result<(), Failure> {
        let by = By::Baseline(index);
        let Some(baselines) = &mut self.baselines else { return Ok(()) };
        if round.is_multiple_of(CPU_TIME_EVERY) {
            let clock = self.cpu_clock;
            let time = baselines.exchange(index, self.passing, |exchange| {
                let before = clock.now();
                exchange()?;
                Ok(clock.since(before))
            })?;
            book.add(Of::CpuTime(by), time);
        } else {
            let exchanged = baselines.exchange(index, self.passing, |exchange| exchange())?;
            book.add(Of::Latency(by), exchanged.latency);
            book.add(Of::Cycle(by), exchanged.cycle);
            self.others[index].judge(compared(self.sum, exchanged.sum));
        }
        Ok(())
    }

    /// Brings the code of a request of this direction back into the cache.
    fn warm(&mut self, place: Place) -> Result<(), Error> {
        let Some(warmer) = self.warmers.iter_mut().find(|warmer| warmer.place == place) else {
            return Ok(());
        };
        match warmer.direction {
            Direction::Out => warmer.output(Task::NULL, |_| {}).map(drop),
            Direction::In => warmer.input(Task::NULL, |_| {}).map(drop),
        }
    }

    /// Lets the strong native schemes exchange their buffers, so that none owes its times to where one lies.
    fn exchange_buffers(&mut self) {
        for place in self.bench.places() {
            let mut strong = self.subjects.iter_mut().filter(|subject| {
                subject.place == place && subject.is_strong() && subject.native().is_some()
            });
            if let (Some(one), Some(other)) = (strong.next(), strong.next()) {
                one.exchange_buffers(other);
            }
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
    fn judge_sum(&self, subject: &Subject<'_>, found: Option<u64>) -> Verdict {
        compared(self.sum, found.filter(|_| subject.native().is_some()))
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
        let Some(place) = self.bench.places().next() else { return Ok(Duration::ZERO) };
        self.bench.empty_request(place)?;
        let start = Instant::now();
        self.bench.empty_request(place)?;
        Ok(start.elapsed())
    }
}

/// The mean of some requests without buffers.
fn empty_requests(request: impl Fn() -> Result<(), Error>) -> Result<Duration, Error> {
    (0..EMPTY).try_for_each(|_| request())?;
    let start = Instant::now();
    (0..EMPTY).try_for_each(|_| request())?;
    Ok(start.elapsed() / EMPTY)
}

/// Whether a sum that was found is the one expected, where there is one.
fn compared(expected: Option<u64>, found: Option<u64>) -> Verdict {
    match (expected, found) {
        (Some(sum), Some(found)) if sum != found => {
            Err(format!("the server's sum is {found:#x}, not {sum:#x}"))
        }
        _ => Ok(()),
    }
}
