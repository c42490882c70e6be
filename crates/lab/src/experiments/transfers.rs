//! Transfers that are timed: each subject has a link, and clients at both ends of it, and subjects take turns.
//!
//! How: the client at the far end has requested its input when the clock is looked at, and the sender's output is requested; the time is
//! up when the input is there. The sender's reply is taken afterwards, since its operations overlap with the network (§8.2.2). Then every
//! byte is compared. A step is a length over one medium, with thresholds off or calibrated; all that it needs is opened anew.
//! One process has everything, so nothing is waited for but the network: over AF_XDP, and without a limit of the rate, one thread does all work.
//! Source: J. C. Brustoloni's thesis, §8.1, §8.2.2.

use std::time::{Duration, Instant};

use genie::{Interface, Pending, Reply, Scheme};
use genie_net::Rate;
use genie_net::adapter::Support;
use genie_net::transfer::{Receiving, Shape};
use genie_passing::Thresholds;

use super::link::{Kernels, Link, Over};
use super::partners::take_turns;
use crate::client_buffer::{ClientBuffer, give_away};
use crate::data::{Data, difference};
use crate::error::{Error, Result};
use crate::experiment::{Options, Sitting, Step};
use crate::interface::Granule;
use crate::length;
use crate::measurement::{Measured, Quantity};
use crate::medium::{BY_DRIVER, BY_KERNEL, Copied, Medium};
use crate::probe::cpus;
use crate::samples::nanoseconds;

/// The lengths of the papers' figures: whole granules of 4 KiB up to 60 KiB.
const LENGTHS: [usize; 15] = {
    let mut lengths = [4 << 10; 15];
    let mut at = 1;
    while at < lengths.len() {
        lengths[at] += lengths[at - 1];
        at += 1;
    }
    lengths
};
const LENGTHS_SMOKE: [usize; 2] = [4 << 10, 60 << 10];
/// How often each subject has its turn: in a smoke run, and otherwise.
const ROUNDS: (usize, usize) = (2, 40);
/// About how many seconds it takes to make a link of the kernel's.
const OPENING: f64 = 0.5;
/// How long an input may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// Whether data that is cheaper to copy is copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Passing {
    /// Data of any length is passed by its scheme.
    Off,
    /// The thresholds are those that follow from this machine's costs.
    Calibrated,
}

/// What takes turns.
#[derive(Debug, Clone)]
pub(super) struct Subject {
    /// The figure that it is in.
    pub(super) figure: &'static str,
    /// Its curve.
    pub(super) series: String,
    /// The scheme of both clients.
    pub(super) scheme: Scheme,
    pub(super) support: Support,
    /// How the sender cuts its data.
    pub(super) shape: Shape,
    pub(super) receiving: Receiving,
    /// Where the far client's buffer begins; none where the server prefers it.
    pub(super) offset: Option<usize>,
    /// Whether each transfer is the first one at its port.
    pub(super) is_first: bool,
}

impl Subject {
    /// With pooled buffers, packets of `data` bytes, which are expected so, and a client's buffer where the server prefers it.
    pub(super) fn pooled(figure: &'static str, series: &str, scheme: Scheme, data: usize) -> Self {
        Self {
            figure,
            series: series.to_owned(),
            scheme,
            support: Support::Pooled,
            shape: Shape::of(data),
            receiving: Receiving::of(Shape::of(data)),
            offset: None,
            is_first: false,
        }
    }
}

/// An experiment of such transfers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Course {
    pub(super) id: &'static str,
    /// The rate of the paper's network.
    pub(super) rate: Rate,
    /// The subjects that take turns with data of a length.
    pub(super) subjects: fn(usize) -> Vec<Subject>,
}

impl Passing {
    pub(super) const ALL: [Self; 2] = [Self::Off, Self::Calibrated];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Off => "thresholds off",
            Self::Calibrated => "calibrated",
        }
    }

    /// The name in a table's headings.
    pub(super) fn short(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Calibrated => self.name(),
        }
    }
}

impl Course {
    /// Over which media, and with which thresholds, everything is measured.
    pub(super) fn settings(self) -> Vec<(Medium, Passing)> {
        let media = [Medium::Wire(Rate::Unlimited), Medium::Wire(self.rate), Medium::Xdp];
        media.into_iter().flat_map(|medium| Passing::ALL.map(|passing| (medium, passing))).collect()
    }

    fn all(self, options: &Options) -> Vec<(Medium, Passing, usize)> {
        let lengths: &[usize] = if options.smoke { &LENGTHS_SMOKE } else { &LENGTHS };
        let of = |(medium, passing)| lengths.iter().map(move |len| (medium, passing, *len));
        self.settings().into_iter().flat_map(of).collect()
    }

    pub(super) fn steps(self, options: &Options) -> Vec<Step> {
        let step = |(medium, passing, len): (Medium, Passing, usize)| {
            let turns = (rounds(options) + 1) * (self.subjects)(len).len();
            let opening = if medium == Medium::Xdp { OPENING } else { 0.0 };
            let seconds = (medium.rate().time(len as u64).as_secs_f64() + 100e-6) * turns as f64 + opening;
            Step { name: step_name(medium, passing, len), seconds }
        };
        self.all(options).into_iter().map(step).collect()
    }

    pub(super) fn sit(self, options: &Options) -> Result<Box<dyn Sitting + '_>> {
        Ok(Box::new(Seated { course: self, options: options.clone() }))
    }
}

/// The name of a setting, of which figures are a part.
pub(super) fn setting(medium: Medium, passing: Passing, figure: &str) -> String {
    format!("{figure}, {}, {}", medium.name(), passing.name())
}

fn step_name(medium: Medium, passing: Passing, len: usize) -> String {
    format!("{}, {}, {}", medium.name(), passing.name(), length::format(len))
}

fn rounds(options: &Options) -> usize {
    if options.smoke { ROUNDS.0 } else { ROUNDS.1 }
}

/// A sitting, which has nothing open between its steps.
struct Seated {
    course: Course,
    options: Options,
}

impl Sitting for Seated {
    fn measure(&mut self, step: &Step) -> Result<Vec<Measured>> {
        let Self { course, options } = self;
        let is_it = |(medium, passing, len): &(Medium, Passing, usize)| {
            step_name(*medium, *passing, *len) == step.name
        };
        let unknown = || Error::NoSuchStep { experiment: course.id, step: step.name.clone() };
        let (medium, passing, len) = course.all(options).into_iter().find(is_it).ok_or_else(unknown)?;
        if !medium.is_there() {
            return Ok(Vec::new());
        }
        let genie = Granule::Base.open()?;
        if passing == Passing::Off {
            genie.passing().adjust_thresholds(|thresholds| *thresholds = Thresholds::ALWAYS);
        }
        let kernels = (medium == Medium::Xdp).then(|| Kernels::open(&genie)).transpose()?;
        let over = kernels.as_ref().map_or(Over::Wire(medium.rate()), Over::Kernels);
        let open = |subject: Subject| Ends::open(&genie, subject, over, len);
        let mut all = (course.subjects)(len).into_iter().map(open).collect::<Result<Vec<_>>>()?;
        let samples =
            take_turns(all.len(), rounds(options), options.seed ^ len as u64, |index| all[index].transfer())?;
        let measured = |(ends, samples): (&Ends, Vec<Taken>)| {
            let setting = setting(medium, passing, ends.subject.figure);
            let of = |who: &str, quantity, number: fn(&Taken) -> u64| {
                let samples = samples.iter().map(number).collect();
                Measured::new(setting.clone() + who, &ends.subject.series, len, quantity, samples)
            };
            let all = [
                of("", Quantity::Latency, |taken| taken.latency),
                of("", Quantity::Bytes, |taken| taken.copied),
                of(BY_DRIVER, Quantity::Bytes, |taken| taken.brought.driver),
                of(BY_KERNEL, Quantity::Bytes, |taken| taken.brought.kernel),
            ];
            all.into_iter().take(if medium == Medium::Xdp { 4 } else { 2 })
        };
        let is_measured = |measured: &Measured| !measured.samples.is_empty();
        Ok(all.iter().zip(samples).flat_map(measured).filter(is_measured).collect())
    }
}

/// A transfer: how long it took, in nanoseconds, and how many bytes were copied at both ends, and for bringing its frames over.
struct Taken {
    latency: u64,
    copied: u64,
    brought: Copied,
}

/// A subject's link and its clients.
struct Ends {
    // The buffers go before the interface.
    output: ClientBuffer,
    input: ClientBuffer,
    link: Link,
    subject: Subject,
    data: Data,
    /// How many transfers there were.
    count: u16,
    /// Whether the wire's thread may have another CPU.
    spins: bool,
}

impl Ends {
    fn open(genie: &Interface, subject: Subject, over: Over<'_>, len: usize) -> Result<Self> {
        let Subject { support, shape, receiving, offset, .. } = &subject;
        let link = Link::open(genie.clone(), *support, over, shape.clone(), receiving.clone())?;
        let offset = match offset {
            Some(offset) => *offset,
            None => link.preferred_offset()?,
        };
        let spins = cpus()?.len() > 1;
        let input = genie.allocate_at(offset, len)?.into();
        let output = genie.allocate(len)?.into();
        Ok(Self { output, input, link, subject, data: Data::generate(len), count: 0, spins })
    }

    /// Makes a transfer; nothing is returned where memory may not be wired.
    fn transfer(&mut self) -> Result<Vec<Taken>> {
        self.count += 1;
        let Self { output, input, link, subject, data, count, spins } = self;
        let (scheme, genie, len) = (subject.scheme, &link.genie, data.all().len());
        if subject.is_first {
            link.port = *count;
        }
        // What came last time would be found out.
        let bytes = if *count % 2 == 0 { data.all() } else { data.opposite(len) };
        link.take_turn();
        let prepared = output.prepare(genie, scheme, len, |memory| memory.copy_from_slice(bytes))?;
        let asked = link.ask(input.input(genie, scheme, len)?)?;
        let before = (link.totals().copied, link.brought());
        let start = Instant::now();
        let sent = link.send(output.output(scheme, prepared))?;
        let arrived = wait_for(asked, link, start, *spins)?;
        let latency = nanoseconds(start.elapsed());
        let (by_server, brought) = (link.totals().copied - before.0, link.brought() - before.1);
        let mut arrived = input.settle(arrived)?;
        let sent = output.settle(sent.sync())?;
        let copied = (arrived.receipt().copied + sent.receipt().copied) as u64 + by_server;
        let is_unwired =
            |reply: &Reply| reply.receipts().any(|receipt| receipt.reason == Some(genie::Reason::Unwired));
        let is_left_out = is_unwired(&arrived) || is_unwired(&sent);
        let migrant = arrived.take_migrant();
        let found = migrant.as_deref().or(input.native()).unwrap_or_default();
        if found.len() != len || difference(found, bytes).is_some() {
            return Err(Error::Peer(format!(
                "data that was sent by {scheme} ({}) arrived damaged; this is an error of Genie's, please report it",
                subject.series
            )));
        }
        if let Some(migrant) = migrant.filter(|_| scheme == Scheme::Move) {
            give_away(genie, &link.sink, migrant)?;
        }
        Ok(if is_left_out { Vec::new() } else { vec![Taken { latency, copied, brought }] })
    }
}

/// Looks for the reply to an input until it is there, and takes it.
fn wait_for(
    asked: Pending<'_>,
    link: &Link,
    start: Instant,
    spins: bool,
) -> Result<std::result::Result<Reply, genie::Failed>> {
    while !asked.is_replied() {
        link.look();
        if start.elapsed() > PATIENCE {
            drop(asked.abort());
            return Err(Error::Peer(format!("nothing arrived within {PATIENCE:?}")));
        }
        // With one CPU the wire's thread needs this one; with more, whoever yields comes back late on a busy machine.
        if spins {
            std::hint::spin_loop();
        } else {
            std::thread::yield_now();
        }
    }
    Ok(asked.sync())
}
