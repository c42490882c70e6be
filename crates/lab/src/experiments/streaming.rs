//! `streaming`: packets that go from one card to another, in the kernel's path and by a program, on an idle CPU and on a loaded one.
//!
//! How: two cards ([`genie_net::driver::Card`]), whose devices are processes on one CPU. On another one are the threads that stream, and the
//! load: a loop (`soak`), or a walk through a file tree (`find`). In the path streams [`genie_net::streaming`]; its threads stand for the
//! interrupt handler and for the STREAMS scheduler, so they sleep while there is nothing to do, and are in real time where that is allowed.
//! User-level streaming is in [`program`]: a thread in real time stands for the driver, and the program shares its time or is in real time. A
//! packet's stamps are the devices': one when it is generated, one when it has arrived. Devices never sleep while packets come, as the paper's
//! did not: they take turns by yielding their CPU. All ways take turns. Then, without a load, packets
//! come as fast as there are buffers for them.
//! Limits: a packet comes each 0.2 ms, where the paper had 10 ms, so that there are enough for a 99.9th percentile. A delay has
//! the time in it that the devices need for their turns. Where there is one CPU, all of this shares it.
//! Source: Murphy, Zeadally, Adams, *An Analysis of Process and Memory Models* (USENIX 1996), figures 6 to 8. Differs: the cards' memory is
//! cached, and the devices' processors are the host's.

mod program;
mod stage;

use std::time::Duration;

use super::described::{Described, Measuring};
use super::partners::take_turns;
use super::reading::{findings, shown};
use crate::amounts::significant;
use crate::cards;
use crate::error::{Error, Result};
use crate::experiment::{Claim, Declaration, Options, Sitting, Step};
use crate::findings::{Axis, Conclusion, Curve, Figure, Judgement, Table, row};
use crate::measurement::{Measured, Measurements, Point, Quantity};
use crate::probe::Probe;
use stage::{Stage, Turn, is_real_time_had};

const ID: &str = "streaming";
/// The paper's packets: the longest that fit a buffer of 4 KiB behind a trailer.
const LEN: usize = 4072;

const INTERVAL: Duration = Duration::from_micros(200);
/// How many packets there are in a turn, and how many turns, in a smoke run and otherwise: in three sittings more than 100,000.
const PACKETS: (u64, u64) = (100, 1000);
const ROUNDS: (usize, usize) = (1, 34);
/// The same where packets come as fast as there are buffers for them.
const PACKETS_FAST: (u64, u64) = (1000, 20_000);
const ROUNDS_FAST: (usize, usize) = (1, 10);

/// The settings.
const IDLE: &str = "idle";
const SOAK: &str = "soak";
const FIND: &str = "find";
const FAST: &str = "as fast as possible";
const LOADS: [&str; 3] = [IDLE, SOAK, FIND];

/// What streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Synchronous,
    Asynchronous,
    TimeSharing,
    RealTime,
}

const WAYS: [Way; 4] = [Way::Synchronous, Way::Asynchronous, Way::TimeSharing, Way::RealTime];

impl Way {
    fn name(self) -> &'static str {
        match self {
            Self::Synchronous => "in the path, synchronous",
            Self::Asynchronous => "in the path, asynchronous",
            Self::TimeSharing => "user level, time-sharing",
            Self::RealTime => "user level, real time",
        }
    }
}

/// The experiment.
pub(super) static STREAMING: Described =
    Described { declaration: &DECLARATION, measuring: Measuring::Own { steps, sit }, conclude };

static DECLARATION: Declaration = Declaration {
    id: ID,
    title: "Streaming from one adapter to another, in the kernel's path and at user level",
    source: "B. J. Murphy, S. Zeadally, C. J. Adams, An Analysis of Process and Memory Models to Support High-Speed Networking in a UNIX \
             Environment, USENIX 1996, figures 6 to 8",
    claims: &[
        Claim {
            id: "throughput",
            text: "Streaming in the kernel's path has about 25 % more throughput than streaming at user level.",
            source: "figure 6",
        },
        Claim {
            id: "cpu-asynchronous",
            text: "Asynchronous streaming takes 30 % less CPU time than streaming at user level.",
            source: "figure 6",
        },
        Claim {
            id: "cpu-synchronous",
            text: "Synchronous streaming takes 50 % less CPU time than streaming at user level.",
            source: "figure 6",
        },
        Claim {
            id: "cpu-bound",
            text: "Where packets come as fast as possible, synchronous streaming takes at most 0.6 times the CPU time of streaming at user \
                   level: Genie's own bound.",
            source: "figure 6",
        },
        Claim {
            id: "soak",
            text: "A compute-bound load delays packets at user level by some 90 µs, and those in the path by nothing that is discernible.",
            source: "figure 7",
        },
        Claim {
            id: "find",
            text: "Synchronous streaming is untouched by an I/O-bound load: its 99th percentile is at most 1.5 times as long.",
            source: "figure 8",
        },
    ],
    axes: &["what streams", "what else the CPU does: nothing, a loop (soak), a walk through files (find)"],
    needs: &[],
};

fn of<T>(options: &Options, (small, large): (T, T)) -> T {
    if options.smoke { small } else { large }
}

fn steps(options: &Options) -> Vec<Step> {
    let packets = of(options, PACKETS) as usize * (of(options, ROUNDS) + 1) * WAYS.len();
    let seconds = packets as f64 * INTERVAL.as_secs_f64();
    LOADS.map(|load| Step { name: load.to_owned(), seconds }).to_vec()
}

fn sit(options: &Options) -> Result<Box<dyn Sitting + '_>> {
    let probe = Probe::pin()?;
    let (devices, here) = (probe.other().unwrap_or(probe.here()), probe.here());
    drop(probe);
    let ways = WAYS.into_iter().filter(|way| *way != Way::RealTime || is_real_time_had());
    let open = |way| Ok((way, Stage::open(way, devices, here)?));
    let (stages, looking) =
        (ways.map(open).collect::<Result<_>>()?, genie_sys::machine::pin_thread(devices)?);
    Ok(Box::new(Streaming { options, stages, here, _looking: looking }))
}

/// A sitting under way.
struct Streaming<'o> {
    options: &'o Options,
    stages: Vec<(Way, Stage)>,
    /// The CPU of what streams.
    here: usize,
    /// This thread is where the devices are.
    _looking: genie_sys::machine::Pinned,
}

impl Sitting for Streaming<'_> {
    fn measure(&mut self, step: &Step) -> Result<Vec<Measured>> {
        let options = self.options;
        let _load = match step.name.as_str() {
            IDLE => None,
            SOAK => Some(cards::soak(self.here)?),
            FIND => Some(cards::find(self.here)?),
            name => return Err(Error::NoSuchStep { experiment: ID, step: name.to_owned() }),
        };
        let mut measured =
            self.turns(of(options, ROUNDS), of(options, PACKETS), INTERVAL, |way, turns| {
                let latencies = turns.iter().flat_map(|turn| &turn.latencies).copied().collect();
                vec![
                    Measured::new(&step.name, way.name(), LEN, Quantity::Latency, latencies),
                    Measured::new(
                        &step.name,
                        way.name(),
                        LEN,
                        Quantity::CpuTime,
                        turns.iter().filter_map(|turn| turn.cpu).collect(),
                    ),
                    Measured::new(
                        &step.name,
                        way.name(),
                        LEN,
                        Quantity::Bytes,
                        turns.iter().map(|turn| turn.copied).collect(),
                    ),
                ]
            })?;
        if step.name == IDLE {
            let (rounds, packets) = (of(options, ROUNDS_FAST), of(options, PACKETS_FAST));
            measured.extend(self.turns(rounds, packets, Duration::ZERO, |way, turns| {
                let each = turns.iter().map(|turn| turn.each).collect();
                let cpu = turns.iter().filter_map(|turn| turn.cpu).collect();
                vec![
                    Measured::new(FAST, way.name(), LEN, Quantity::OperationTime, each),
                    Measured::new(FAST, way.name(), LEN, Quantity::CpuTime, cpu),
                ]
            })?);
        }
        measured.retain(|one| !one.samples.is_empty());
        Ok(measured)
    }
}

impl Streaming<'_> {
    fn turns(
        &self,
        rounds: usize,
        packets: u64,
        interval: Duration,
        measured: impl Fn(Way, Vec<Turn>) -> Vec<Measured>,
    ) -> Result<Vec<Measured>> {
        let turns = take_turns(self.stages.len(), rounds, self.options.seed, |index| {
            Ok(vec![self.stages[index].1.turn(packets, interval)?])
        })?;
        Ok(self.stages.iter().zip(turns).flat_map(|((way, _), turns)| measured(*way, turns)).collect())
    }
}

/// One packet in so many takes longer than a point of a curve says. The paper has its percentiles on such an axis.
const RARITIES: [f64; 11] = [1.25, 1.5, 2.0, 4.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0];
/// So many packets at least take longer than a percentile that is told.
const LONGER: f64 = 100.0;

fn conclude(measurements: &Measurements) -> Conclusion {
    let found = Found(measurements);
    let is_measured = |way: &Way| found.point(IDLE, *way, Quantity::Latency).is_some();
    let judgements = vec![
        found.throughput(),
        found.less_cpu(Way::Asynchronous, 0.7),
        found.less_cpu(Way::Synchronous, 0.5),
        found.cpu_bound(),
        found.soak(),
        found.find(),
    ];
    let judgements = if WAYS.iter().any(is_measured) { Ok(judgements) } else { Err("Nothing was measured.") };
    let mut notes = vec![
        "The devices of both cards share a CPU, and what streams shares another one with the load, where there are two. At full speed the \
         devices may be what limits the throughput."
            .to_owned(),
    ];
    if is_measured(&Way::TimeSharing) && !is_measured(&Way::RealTime) {
        notes.push(
            "Real time is refused here (CAP_SYS_NICE or `ulimit -r` is needed): user-level streaming in real time is left out, and what \
             stands for the kernel shares its time, too."
                .to_owned(),
        );
    }
    Conclusion {
        figures: LOADS.iter().filter_map(|load| found.figure(load)).collect(),
        tables: found.tables(),
        verdicts: findings(&DECLARATION, judgements),
        notes,
    }
}

/// What was measured.
struct Found<'m>(&'m Measurements);

impl Found<'_> {
    fn point(&self, setting: &str, way: Way, quantity: Quantity) -> Option<Point> {
        self.0.points(ID, setting, way.name(), quantity).into_iter().next()
    }

    /// A median, in the quantity's unit.
    fn median(&self, setting: &str, way: Way, quantity: Quantity) -> Option<f64> {
        self.point(setting, way, quantity).map(|point| point.median() as f64 / quantity.per_unit())
    }

    /// The delay in microseconds that one packet in so many exceeds, where enough do.
    fn delay(&self, setting: &str, way: Way, rarity: f64) -> Option<f64> {
        let point = self.point(setting, way, Quantity::Latency)?;
        let is_told = point.samples.count() as f64 / rarity >= LONGER || rarity <= 2.0;
        is_told.then(|| point.samples.quantile(1.0 - 1.0 / rarity) as f64 / 1e3)
    }

    fn figure(&self, load: &str) -> Option<Figure> {
        let title = match load {
            IDLE => "No load",
            SOAK => "Beside a compute-bound load",
            _ => "Beside an I/O-bound load",
        };
        let axes = [
            Axis::logarithmic("one packet in so many takes longer (2: the median; 100: the 99th percentile)"),
            Axis::logarithmic("delay of a packet in µs"),
        ];
        let curve = |way: Way| {
            let point = |rarity: f64| Some((rarity, self.delay(load, way, rarity)?));
            Curve::plain(way.name(), RARITIES.into_iter().filter_map(point))
        };
        Figure::of(load, format!("Streaming: {title}"), axes, WAYS.map(curve))
    }

    fn tables(&self) -> Vec<Table> {
        let cells = |load: &str, way: Way| {
            let delays = [2.0, 10.0, 100.0, 1000.0].map(|rarity| shown(self.delay(load, way, rarity)));
            let copies = self.median(load, way, Quantity::Bytes).map(|bytes| bytes / LEN as f64);
            let others = [self.median(load, way, Quantity::CpuTime), copies].map(shown);
            row(way.name(), delays.into_iter().chain(others))
        };
        let columns = ["streaming", "median", "90th", "99th", "99.9th percentile", "CPU µs", "copies"];
        let is_there = |setting: &str, way: Way, quantity| self.point(setting, way, quantity).is_some();
        let table = |load: &&str| {
            let ways = WAYS.into_iter().filter(|way| is_there(load, *way, Quantity::Latency));
            Table::new(
                format!("Delay in µs, CPU time and copies of a packet of 4,072 bytes each 0.2 ms: {load}"),
                columns,
                ways.map(|way| cells(load, way)),
            )
        };
        let fast = WAYS.into_iter().filter_map(|way| {
            let us = self.median(FAST, way, Quantity::OperationTime)?;
            let cpu = shown(self.median(FAST, way, Quantity::CpuTime));
            Some(row(way.name(), [significant(LEN as f64 * 8.0 / us), significant(1e3 / us), cpu]))
        });
        let columns = ["streaming", "Mbit/s", "packets/ms", "CPU µs"];
        let fast = Table::new("Throughput, and CPU time of a packet, as fast as possible", columns, fast);
        LOADS.iter().map(table).chain([fast]).filter(|table| !table.rows.is_empty()).collect()
    }

    fn throughput(&self) -> Judgement {
        let of = |way| {
            let us = self.median(FAST, way, Quantity::OperationTime);
            us.map(|us| LEN as f64 * 8.0 / us).ok_or_else(|| missing(way))
        };
        let [synchronous, asynchronous, user] =
            [of(Way::Synchronous)?, of(Way::Asynchronous)?, of(Way::TimeSharing)?];
        let found = format!(
            "{} Mbit/s go in the path, synchronous, {} asynchronous, and {} at user level: {:.2} and {:.2} times as much.",
            significant(synchronous),
            significant(asynchronous),
            significant(user),
            synchronous / user,
            asynchronous / user
        );
        Ok((synchronous / user >= 1.25, found))
    }

    fn cpu(&self, setting: &str, way: Way) -> std::result::Result<f64, String> {
        self.median(setting, way, Quantity::CpuTime).ok_or_else(|| missing(way))
    }

    fn less_cpu(&self, way: Way, most: f64) -> Judgement {
        let (path, user) = (self.cpu(IDLE, way)?, self.cpu(IDLE, Way::TimeSharing)?);
        // What wakes for each packet stands for an interrupt handler, at user level, too.
        let wake_up = self.cpu(IDLE, Way::Synchronous)? - self.cpu(FAST, Way::Synchronous)?;
        let found = format!(
            "A packet takes {} µs of CPU time {}, and {} µs at user level: {:.2} times as much. {} µs of both is the wake-up of a thread that \
             stands for the interrupt handler.",
            significant(path),
            way.name(),
            significant(user),
            path / user,
            significant(wake_up)
        );
        Ok((path / user <= most, found))
    }

    fn cpu_bound(&self) -> Judgement {
        let (path, user) = (self.cpu(FAST, Way::Synchronous)?, self.cpu(FAST, Way::TimeSharing)?);
        let found = format!(
            "A packet takes {} µs of CPU time in the path, synchronous, and {} µs at user level: {:.2} times as much. Few packets wake a thread.",
            significant(path),
            significant(user),
            path / user
        );
        Ok((path / user <= 0.6, found))
    }

    fn soak(&self) -> Judgement {
        let of = |load, way| self.delay(load, way, 2.0).ok_or_else(|| missing(way));
        let added = |way| Ok::<_, String>((of(IDLE, way)?, of(SOAK, way)? - of(IDLE, way)?));
        let ((_, user), (idle, path)) = (added(Way::TimeSharing)?, added(Way::Synchronous)?);
        let real_time = added(Way::RealTime)
            .map_or(String::new(), |(_, us)| format!(", {} µs there in real time", significant(us)));
        let found = format!(
            "The load adds {} µs to the median delay at user level{real_time}, and {} µs in the path, synchronous.",
            significant(user),
            significant(path)
        );
        Ok((user > path.max(0.0) && path <= idle * 0.1, found))
    }

    fn find(&self) -> Judgement {
        let of = |load, way| self.delay(load, way, 100.0).ok_or_else(|| missing(way));
        let ratio = |way| Ok::<_, String>((of(IDLE, way)?, of(FIND, way)?));
        let (idle, find) = ratio(Way::Synchronous)?;
        let others: Vec<_> = [Way::TimeSharing, Way::RealTime]
            .into_iter()
            .filter_map(|way| {
                let (idle, find) = ratio(way).ok()?;
                Some(format!("{}, {:.2} times", way.name(), find / idle))
            })
            .collect();
        let found = format!(
            "The 99th percentile is {} µs beside find and {} µs without, {:.2} times as long; {}.",
            significant(find),
            significant(idle),
            find / idle,
            others.join("; ")
        );
        Ok((find <= idle * 1.5, found))
    }
}

fn missing(way: Way) -> String {
    format!("Too little of streaming {} was measured.", way.name())
}

#[cfg(test)]
mod tests;
