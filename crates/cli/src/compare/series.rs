//! A series: all schemes and baselines at one length and in one direction, measured side by side.
//!
//! How: a series is cut into batches. Each begins with a probe of the CPUs' placement and one verifying operation for
//! each scheme; then come rounds, in which each scheme takes its turn, in an order drawn anew each time. A turn consists of
//! three operations. The first is not timed: it leaves the data in the caches of both sides, as it would be among
//! consecutive operations, and for an input puts the data where a server would just have put it. The second is a request for
//! 64 bytes, which warms the code again. The third is the measured operation. Every fourth round measures CPU time
//! instead of latency, since reading the CPU clock disturbs the operations that follow. Baselines, plain copying and empty
//! requests take turns with the schemes; the limits of control are measured once in a batch.
//! Copy and emulated copy, of which conclusions speak, have one turn together: whatever took its turn before, each is first
//! operated once without being timed, and what emulated copy takes is compared with what copy takes in the same turn. So what
//! else is measured does not change the conclusion, and a busy machine hardly does.
//! Where a buffer lies makes a difference in a cache, and cannot be chosen; so copy and emulated copy swap their buffers
//! from batch to batch.

use std::hint::black_box;
use std::time::{Duration, Instant};

use fastrand::Rng;
use genie::{Direction, Error, Receipt, Scheme};
use genie_baselines::{Baselines, Exchanged, Passing, mean_of_empty};
use genie_lab::call::Call;
use genie_lab::clock::CpuClock;
use genie_lab::data::{Data, Verdict, sum};
use genie_lab::probe::Probe;
use genie_lab::touch::{self, Touch};

use super::bench::{Bench, Place, Task};
use super::measured::{Batch, Contender, Means, Measurements, Of, Records};
use super::options::Rounds;
use super::subject::{Passed, Subject};
use super::verify;
use crate::failure::Failure;

/// How many batches a series is cut into, if it has as many rounds.
const BATCHES: usize = 5;
/// Rounds at the beginning of a batch that are not counted.
const WARM_UP: usize = 2;
/// One round of this many measures CPU time.
const CPU_TIME_EVERY: usize = 4;
/// Rounds of a batch that are made however long they take.
const LEAST: usize = 2 * CPU_TIME_EVERY;
/// The length of the request that warms the code.
const SHORT: usize = 64;
/// How often a batch measures hand-overs between sides that sleep, by futex alone and with requests: the time to wake a side
/// varies much.
const SLEEPS: usize = 4;

/// The measuring of one length and direction.
#[derive(Debug)]
pub(super) struct Series<'b> {
    bench: &'b Bench,
    baselines: Option<&'b mut Baselines>,
    subjects: Vec<Subject<'b>>,
    /// All that take turns: the subjects, and then the baselines.
    contenders: Vec<Contender>,
    /// One subject for each place, which warms the code.
    warmers: Vec<Subject<'b>>,
    passing: Passing<'b>,
    touch: Touch,
    task: Task,
    /// The sum that the server replies, where it reads an output.
    sum: Option<u64>,
    memory: [Vec<u8>; 2],
    random: Rng,
    cpu_clock: CpuClock,
}

/// The operation that has its turn.
#[derive(Debug, Clone, Copy)]
enum Turn {
    Contender(usize),
    /// Copy and emulated copy, at the server of this number.
    Beside(usize),
    Memcpy,
    EmptyRequest,
    Argument,
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
            .map(|place| Subject::new(bench, (place, Call::Send), Scheme::EmulatedShare, direction, SHORT))
            .collect::<Result<_, _>>()?;
        let schemes = subjects.iter().map(|one| Means::Scheme(one.place, one.call, Receipt::new(one.scheme)));
        let others = baselines.iter().flat_map(|baselines| baselines.means()).map(Means::Baseline);
        Ok(Self {
            bench,
            contenders: schemes.chain(others).map(Contender::new).collect(),
            baselines,
            subjects,
            warmers,
            passing: Passing { direction, data: bench.data.of(len), touch },
            touch,
            task,
            sum,
            memory,
            random: Rng::with_seed(len as u64),
            cpu_clock: CpuClock::of_thread(),
        })
    }

    /// Measures in as many rounds as were asked for, or as there is time for; reports after each batch how many rounds are
    /// done.
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
        Ok(Measurements::of_one_placement(&batches, self.contenders))
    }

    fn batch(&mut self, rounds: Rounds, probe: &Probe) -> Result<Batch, Failure> {
        let end = rounds.time.map(|time| Instant::now() + time);
        self.swap_buffers();
        let round_trip = probe.round_trip();
        let mut records = Records::default();
        self.control(&mut records)?;
        self.verify(verify::once, Baselines::verify)?;
        let mut warm_up = Records::default();
        (0..WARM_UP).try_for_each(|round| self.round(round * CPU_TIME_EVERY, &mut warm_up))?;
        // Even a batch of one round must have samples of each kind.
        for round in 1..=rounds.most.max(CPU_TIME_EVERY) {
            if round > LEAST && end.is_some_and(|end| Instant::now() >= end) {
                break;
            }
            self.round(round, &mut records)?;
        }
        let task = self.task;
        self.verify(
            |bench, subject| verify::after_timing(bench, subject, task),
            |all, index, passing, _| all.verify_after(index, passing),
        )?;
        Ok(Batch { round_trip, records })
    }

    /// Verifies the data that every contender passes; subjects and baselines are verified differently.
    fn verify(
        &mut self,
        subjects: impl Fn(&Bench, &mut Subject<'_>) -> Result<Verdict, Error>,
        baselines: impl Fn(&mut Baselines, usize, Passing<'_>, &Data) -> genie_lab::error::Result<Verdict>,
    ) -> Result<(), Failure> {
        let mut contenders = self.contenders.iter_mut();
        for (subject, contender) in self.subjects.iter_mut().zip(&mut contenders) {
            contender.judge(subjects(self.bench, subject).map_err(Failure::could_not)?);
        }
        let Some(all) = &mut self.baselines else { return Ok(()) };
        for (index, contender) in contenders.enumerate() {
            contender.judge(baselines(all, index, self.passing, &self.bench.data)?);
        }
        Ok(())
    }

    /// Measures the cost of control alone: requests without buffers, and the limits that no request can beat.
    fn control(&mut self, records: &mut Records) -> Result<(), Failure> {
        for (index, place) in self.bench.places().enumerate() {
            let request = || self.bench.empty_request(place, b"");
            records.add(Of::Request(index), mean_of_empty(request).map_err(Failure::could_not)?);
        }
        let Some(baselines) = &mut self.baselines else { return Ok(()) };
        for index in 0..baselines.means().count() {
            records.add(Of::Empty(index), baselines.empty(index)?);
        }
        if let Some(time) = baselines.ping_pong()? {
            records.add(Of::PingPong, time);
        }
        for _ in 0..SLEEPS {
            records.add(Of::Futex, baselines.futex_hand_over()?);
            if self.bench.empty_request_asleep().map_err(Failure::could_not)? {
                let asleep = || self.bench.empty_request_asleep().map(drop);
                records.add(Of::RequestAsleep, mean_of_empty(asleep).map_err(Failure::could_not)?);
            }
        }
        Ok(())
    }

    fn round(&mut self, round: usize, records: &mut Records) -> Result<(), Failure> {
        let beside = self.beside();
        let alone =
            (0..self.contenders.len()).filter(|index| !beside.iter().flatten().any(|one| one == index));
        let mut turns: Vec<_> = alone.map(Turn::Contender).collect();
        turns.extend((0..beside.len()).map(Turn::Beside));
        turns.extend([Turn::Memcpy, Turn::EmptyRequest, Turn::Argument]);
        self.random.shuffle(&mut turns);
        for turn in turns {
            match turn {
                Turn::Contender(index) => drop(self.contender(index, round, records)?),
                Turn::Beside(server) => self.side_by_side(&beside[server], round, records)?,
                Turn::Memcpy => records.add(Of::Memcpy, self.memcpy()),
                Turn::EmptyRequest => records.add(Of::RequestInTurn, self.empty_request(b"")?),
                Turn::Argument => records.add(Of::ArgumentInTurn, self.empty_request(&[0; SHORT])?),
            }
        }
        Ok(())
    }

    /// The subjects that are compared with copy, copy among them, for each server.
    fn beside(&self) -> Vec<Vec<usize>> {
        let compared = |place, subject: &Subject<'_>| {
            subject.place == place && matches!(subject.scheme, Scheme::Copy | Scheme::EmulatedCopy)
        };
        let subjects = || self.subjects.iter().enumerate();
        let at = |place| subjects().filter(|(_, one)| compared(place, one)).map(|(index, _)| index).collect();
        self.bench.places().map(at).filter(|group: &Vec<_>| group.len() > 1).collect()
    }

    /// Gives subjects that are compared their turns one after another, in an order drawn anew.
    fn side_by_side(&mut self, group: &[usize], round: usize, records: &mut Records) -> Result<(), Failure> {
        let mut group = group.to_vec();
        self.random.shuffle(&mut group);
        for index in &group {
            self.operate(*index, self.task).map_err(Failure::could_not)?;
        }
        let mut found = Vec::with_capacity(group.len());
        for index in group {
            found.extend(self.contender(index, round, records)?.map(|times| (index, times)));
        }
        let copy = found.iter().position(|(index, _)| self.subjects[*index].scheme == Scheme::Copy);
        if let Some(copy) = copy {
            let (_, copy) = found.swap_remove(copy);
            records.add_beside(copy, &found);
        }
        Ok(())
    }

    /// Measures a contender; returns its times, unless it was CPU time that was measured.
    fn contender(
        &mut self,
        index: usize,
        round: usize,
        records: &mut Records,
    ) -> Result<Option<Exchanged>, Failure> {
        let clock = round.is_multiple_of(CPU_TIME_EVERY).then_some(self.cpu_clock);
        let timed = match index.checked_sub(self.subjects.len()) {
            None => self.scheme(index, clock, records).map_err(Failure::could_not)?,
            Some(baseline) => {
                let Some(baselines) = &mut self.baselines else { return Ok(None) };
                baselines.exchange(baseline, self.passing, |exchange| time(clock, exchange))?
            }
        };
        match timed {
            Timed::Cpu(time) => {
                records.add(Of::CpuTime(index), time);
                Ok(None)
            }
            Timed::Operation(exchanged) => {
                records.add(Of::Latency(index), exchanged.latency);
                records.add(Of::Cycle(index), exchanged.cycle);
                self.contenders[index].judge(compared(self.sum, exchanged.sum));
                Ok(Some(exchanged))
            }
        }
    }

    fn scheme(
        &mut self,
        index: usize,
        clock: Option<CpuClock>,
        records: &mut Records,
    ) -> Result<Timed, Error> {
        let warming = match self.subjects[index].direction {
            Direction::Out => self.task,
            Direction::In => Task::FETCH,
        };
        self.operate(index, warming)?;
        self.subjects[index].tidy()?;
        self.warm(self.subjects[index].place)?;
        let faults = self.faults();
        let mut receipt = None;
        let timed: Result<Timed, Error> = time(clock, &mut || {
            let passed = self.operate(index, self.task)?;
            receipt = Some(passed.receipt);
            Ok(passed.times)
        });
        let mut timed = timed?;
        if let (Timed::Operation(exchanged), Some(receipt)) = (&mut timed, receipt) {
            records.add_number(Of::Faults(index), self.faults() - faults);
            let subject = &self.subjects[index];
            self.contenders[index].means = Means::Scheme(subject.place, subject.call, receipt);
            // Buffers of timed outputs by migrant schemes may hold any bytes: only native buffers have a known sum.
            exchanged.sum = exchanged.sum.filter(|_| subject.native().is_some());
        }
        self.subjects[index].tidy()?;
        Ok(timed)
    }

    /// Write faults so far.
    fn faults(&self) -> u64 {
        self.bench.genie.space().statistics().faults
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

    /// Lets the strong native schemes swap their buffers, so that no scheme owes its times to the place of its buffer.
    fn swap_buffers(&mut self) {
        for place in self.bench.places() {
            let mut strong = self.subjects.iter_mut().filter(|subject| {
                subject.place == place && subject.is_strong() && subject.native().is_some()
            });
            if let (Some(one), Some(other)) = (strong.next(), strong.next()) {
                one.swap_buffers(other);
            }
        }
    }

    /// Passes data once, with the client's touching.
    fn operate(&mut self, index: usize, task: Task) -> Result<Passed, Error> {
        let (subject, data) = (&mut self.subjects[index], self.passing.data);
        match (subject.direction, self.touch.by_client()) {
            (Direction::Out, Some(amount)) => subject.output(task, |bytes| touch::store(bytes, amount, data)),
            (Direction::Out, None) => subject.output(task, |_| {}),
            (Direction::In, Some(amount)) => subject.input(task, |bytes| touch::load(bytes, amount)),
            (Direction::In, None) => subject.input(task, |_| {}),
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

    fn empty_request(&self, argument: &[u8]) -> Result<Duration, Failure> {
        let Some(place) = self.bench.places().next() else { return Ok(Duration::ZERO) };
        let request = || self.bench.empty_request(place, argument).map_err(Failure::could_not);
        request()?;
        let start = Instant::now();
        request()?;
        Ok(start.elapsed())
    }
}

/// The measurement of one operation: its CPU time, or its times by the wall clock.
enum Timed {
    Cpu(Duration),
    Operation(Exchanged),
}

/// Makes an operation, and measures its CPU time if there is a clock; if not, only its duration, since reading the CPU clock
/// disturbs it.
fn time<E>(clock: Option<CpuClock>, operate: &mut dyn FnMut() -> Result<Exchanged, E>) -> Result<Timed, E> {
    let Some(clock) = clock else { return operate().map(Timed::Operation) };
    let before = clock.now();
    operate()?;
    Ok(Timed::Cpu(clock.since(before)))
}

/// Whether the sum that was found is the expected one, where a sum is expected.
fn compared(expected: Option<u64>, found: Option<u64>) -> Verdict {
    match (expected, found) {
        (Some(sum), Some(found)) if sum != found => {
            Err(format!("the server's sum is {found:#x}, not {sum:#x}"))
        }
        _ => Ok(()),
    }
}
