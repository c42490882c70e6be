//! Two cards, and what streams from one to the other.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use genie_net::driver::Card;
use genie_net::driver::card::Control;
use genie_net::streaming::{End, Flow, How, Streaming, Style};
use genie_sys::machine::{self, RealTime};

use super::program::Program;
use super::{LEN, Way};
use crate::cards::{self, LOOKING};
use crate::error::{Error, Result};
use crate::peer::Peer;
use crate::samples::nanoseconds;

/// The priorities of what stands for the kernel, and of a program in real time.
const KERNEL: i32 = 2;
const PROGRAM: i32 = 1;
/// How long packets may take beyond their time.
const PATIENCE: Duration = Duration::from_secs(20);

/// What a turn took.
#[derive(Debug, Default)]
pub(super) struct Turn {
    /// How long each packet was on its way, in nanoseconds.
    pub(super) latencies: Vec<u64>,
    /// The time from one packet to the next, in nanoseconds.
    pub(super) each: u64,
    /// The CPU time of the threads that stream, for each packet, in nanoseconds, where the kernel tells.
    pub(super) cpu: Option<u64>,
    /// How many bytes were copied for each packet.
    pub(super) copied: u64,
}

/// Two cards, and what streams from one to the other.
pub(super) struct Stage {
    streams: Streams,
    source: Control,
    sink: Control,
    /// Where the kernel tells the CPU time of each thread that streams.
    threads: Vec<PathBuf>,
    _devices: [Peer; 2],
}

enum Streams {
    Flow(Flow),
    Program(Program),
}

impl Stage {
    /// With devices on one CPU, and what streams on another one. What stands for the kernel is in real time where that is allowed.
    ///
    /// # Errors
    /// No processes, no memory; the program is to be in real time, which is refused.
    pub(super) fn open(way: Way, devices: usize, here: usize) -> Result<Self> {
        let ((source, one), (sink, other)) = (cards::card(devices)?, cards::card(devices)?);
        let controls = (source.control(), sink.control());
        let before = threads();
        let _pinned = machine::pin_thread(here)?;
        let streams = match way {
            Way::Synchronous => flow(source, sink, Style::Synchronous)?,
            Way::Asynchronous => flow(source, sink, Style::Asynchronous)?,
            Way::TimeSharing | Way::RealTime => {
                let program = (way == Way::RealTime).then_some(PROGRAM);
                Streams::Program(Program::start(
                    [source, sink],
                    is_real_time_had().then_some(KERNEL),
                    program,
                )?)
            }
        };
        let threads = threads().difference(&before).cloned().collect();
        Ok(Self { streams, source: controls.0, sink: controls.1, threads, _devices: [one, other] })
    }

    /// Streams some packets, one each interval.
    ///
    /// # Errors
    /// A device is gone; packets did not arrive as they were sent.
    pub(super) fn turn(&self, count: u64, interval: Duration) -> Result<Turn> {
        self.sink.expect(count)?;
        let (before, cpu) = (self.done(), self.cpu());
        let begun = Instant::now();
        self.source.generate(LEN, count, interval)?;
        // Looking takes time of the devices' CPU.
        let look = if interval.is_zero() { PAUSE } else { 2 * LOOKING };
        let until = begun + interval * count as u32 + PATIENCE;
        while self.done().0 < before.0 + count {
            if Instant::now() > until {
                return Err(Error::Peer(format!("{count} packets did not arrive within {PATIENCE:?}")));
            }
            std::thread::sleep(look);
        }
        let took = begun.elapsed();
        let tally = loop {
            let tally = self.sink.report()?.tally;
            if tally.arrived >= count || Instant::now() > until {
                break tally;
            }
            std::thread::sleep(look);
        };
        if (tally.missing, tally.damaged, tally.arrived) != (0, 0, count) {
            return Err(Error::Peer(format!(
                "of {count} packets {} arrived as they were sent",
                count - tally.missing
            )));
        }
        // The next turn's devices have their CPU for themselves.
        std::thread::sleep(2 * LOOKING);
        let cpu = cpu.zip(self.cpu()).map(|(before, after)| (after - before) / count);
        Ok(Turn {
            latencies: tally.latencies.into_iter().map(|(_, time)| nanoseconds(time)).collect(),
            each: nanoseconds(took) / count,
            cpu,
            copied: (self.done().1 - before.1) / count,
        })
    }

    /// How many packets were put into the sink so far, and how many bytes copied.
    fn done(&self) -> (u64, u64) {
        match &self.streams {
            Streams::Flow(flow) => {
                let statistics = flow.statistics();
                (statistics.packets, statistics.copied)
            }
            Streams::Program(program) => program.done(),
        }
    }

    /// The CPU time of the threads that stream, in nanoseconds.
    fn cpu(&self) -> Option<u64> {
        let of = |path| fs::read_to_string(path).ok()?.split_whitespace().next()?.parse::<u64>().ok();
        self.threads.iter().map(of).sum()
    }
}

/// How often it is looked whether packets have come.
const PAUSE: Duration = Duration::from_micros(200);

/// A flow in threads that sleep as soon as there is nothing to do, as interrupt handlers do.
fn flow(source: Card, sink: Card, style: Style) -> Result<Streams> {
    let failed = |error: &dyn std::fmt::Display| Error::Peer(error.to_string());
    let end = |name, card| End::new(name, card).map_err(|error| failed(&error));
    let (source, sink) = (end("source", source)?, end("sink", sink)?);
    let streaming = Streaming::new(Duration::ZERO).map_err(|error| failed(&error))?;
    // Threads are of the class of the one that starts them.
    let _class = RealTime::begin(KERNEL).ok();
    let flow = streaming.connect(&source, &sink, How { style, ..How::default() }, None);
    let flow = flow.map_err(|error| failed(&error))?;
    flow.start().map_err(|error| failed(&error))?;
    Ok(Streams::Flow(flow))
}

/// Whether threads may be in real time.
pub(super) fn is_real_time_had() -> bool {
    RealTime::begin(KERNEL).is_ok()
}

/// Where the kernel tells the CPU time of each thread of this process.
fn threads() -> BTreeSet<PathBuf> {
    let found = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    found.map(|thread| thread.path().join("schedstat")).collect()
}
