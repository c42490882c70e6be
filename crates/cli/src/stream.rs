//! `genie stream`: data goes from one end to another without a program's loop between them.

mod figures;
mod place;

use std::ffi::OsString;
use std::time::{Duration, Instant};

use clap::builder::{OsStringValueParser, TypedValueParser};
use genie::net::streaming::{Error, Flow, How, Streaming, Style, WhenFull};
use genie_lab::length;
use genie_sys::machine;

use crate::failure::Failure;
use crate::net::means::By;
use crate::number;
use crate::signals::Stop;
use figures::Figures;
use place::{Ends, Place};

/// How long the threads look for packets before they sleep.
const SPIN: Duration = Duration::from_micros(50);
/// How often it is seen whether the user has asked for the end.
const LOOK: Duration = Duration::from_millis(20);

/// Stream data from one end to another.
///
/// An end is a path (of a file, a FIFO or a device); - for standard input or output; tcp:HOST:PORT, which connects within 10 s, or
/// tcp-listen:HOST:PORT, which waits for one connection; unix:PATH or unix-listen:PATH, the same by a local socket; udp:HOST:PORT, from
/// where datagrams are taken that come there, or to where they are sent; or net:IFACE, an interface, whose packets are whole Ethernet
/// frames. From an interface come those with UDP datagrams to a port of this host: net:IFACE:PORT. A path that looks like another end
/// is written ./PATH.
///
/// Several pairs of ends are several flows, which share the threads. A flow is over when its source has ended and all is in its sink;
/// an interrupt ends all flows, and so does --seconds: a source of UDP or of an interface has no end. Each second says how much has
/// gone, and the end sums up: on standard output, or on standard error if data goes to standard output. What was copied includes what
/// the kernel copies out of a file, a pipe or a socket, and into one.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where data comes from and where it goes, in pairs.
    #[arg(value_names = ["FROM", "TO"], num_args = 2.., required = true, value_parser = OsStringValueParser::new().try_map(place))]
    ends: Vec<Place>,
    /// Have another thread put packets into the sink, from a queue: one more copy, and the source is looked at meanwhile.
    #[arg(long)]
    asynchronous: bool,
    /// Each flow's priority, 0 to 255, of several flows: a higher one comes first.
    #[arg(long, value_name = "N,..", value_delimiter = ',', value_parser = number::within::<u8>(0..=255))]
    priority: Vec<u8>,
    /// How many packets wait in the queue at most, with --asynchronous.
    #[arg(long, value_name = "N", requires = "asynchronous", default_value_t = How::default().queue,
        value_parser = number::within::<usize>(1..=65_536))]
    queue: usize,
    /// How many packets a flow moves at most before the others are looked at.
    #[arg(long, value_name = "N", default_value_t = How::default().quantum, value_parser = number::within::<usize>(1..=65_536))]
    quantum: usize,
    /// Drop packets for which there is no room, and count them, in place of leaving them at the source.
    #[arg(long)]
    drop: bool,
    /// The length of the packets in which bytes are taken from a file, a pipe or a connection. Bytes go on when a packet is full, or
    /// at the end; of UDP and an interface, each datagram or frame is a packet. Where standard input is a socket of messages, each of
    /// them is a packet, and a longer one ends the flow.
    #[arg(long, value_name = "LEN", default_value = "4K", value_parser = packet)]
    length: usize,
    /// By what interfaces are driven.
    #[arg(long, value_enum, default_value_t = By::Best)]
    driver: By,
    /// End after so many seconds.
    #[arg(long, value_name = "S", value_parser = number::within::<u64>(1..=86_400))]
    seconds: Option<u64>,
    /// Print one JSON document at the end, and nothing before.
    #[arg(long)]
    json: bool,
}

fn place(text: OsString) -> Result<Place, String> {
    Place::parse(&text)
}

fn packet(text: &str) -> Result<usize, String> {
    let len = length::parse(text)?;
    if len <= 1 << 30 { Ok(len) } else { Err("a packet has at most 1G".to_owned()) }
}

/// Streams until all flows are over, or the user asks for the end.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let pairs = args.pairs()?;
    place::ensure_apart(&args.ends)?;
    let stop = Stop::at_signal()?;
    let streaming = Streaming::new(SPIN).map_err(Failure::could_not)?;
    let opening = place::Opening { len: args.length, driver: args.driver, stop: &stop };
    let mut running = Vec::new();
    for (pair, how) in pairs {
        let Some(ends) = opening.open(pair)? else { return Ok(()) };
        let flow = streaming.connect(&ends.from, &ends.to, how, None).map_err(Failure::could_not)?;
        running.push(Running { name: format!("{} to {}", pair[0], pair[1]), ends, flow, ended: None });
    }
    for Running { name, flow, .. } in &running {
        eprintln!("genie: streaming from {name}; interrupt to stop");
        flow.start().map_err(Failure::could_not)?;
    }
    let is_data_there = args.ends.chunks(2).any(|pair| pair[1] == Place::Standard);
    let mut figures = Figures::new(args.json, is_data_there);
    let until = args.seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let mut failed = None;
    while running.iter().any(|flow| flow.ended.is_none())
        && !stop.is_asked()
        && until.is_none_or(|until| Instant::now() < until)
    {
        for flow in running.iter_mut().filter(|flow| flow.ended.is_none()) {
            if let Err(error) = flow.look() {
                failed.get_or_insert(error);
            }
        }
        figures.say(&running)?;
    }
    for Running { flow, .. } in &running {
        // One that has failed has said so.
        let _ = flow.stop();
    }
    figures.summary(&running).print()?;
    failed.map_or(Ok(()), |error| Err(args.failure(error)))
}

impl Args {
    /// The ends of each flow, and how it is.
    fn pairs(&self) -> Result<Vec<([&Place; 2], How)>, Failure> {
        let (pairs, rest) = self.ends.as_chunks::<2>();
        if let [alone] = rest {
            return Err(Failure::usage(format!("ends come in pairs, FROM and TO: {alone} has no other one")));
        }
        if !self.priority.is_empty() && self.priority.len() != pairs.len() {
            return Err(Failure::usage(format!(
                "--priority has {} numbers for {} flows: give one for each",
                self.priority.len(),
                pairs.len()
            )));
        }
        if self.json && pairs.iter().any(|[_, to]| *to == Place::Standard) {
            return Err(Failure::usage("--json prints to standard output, which is where the data is to go"));
        }
        self.ensure_memory(pairs.len())?;
        let style = if self.asynchronous { Style::Asynchronous } else { Style::Synchronous };
        let when_full = if self.drop { WhenFull::Drop } else { WhenFull::Hold };
        let how = |at| How {
            style,
            when_full,
            priority: self.priority.get(at).copied().unwrap_or_default(),
            quantum: self.quantum,
            queue: self.queue,
        };
        Ok(pairs.iter().enumerate().map(|(at, [from, to])| ([from, to], how(at))).collect())
    }

    /// Refuses packets that would have no room in memory: each flow has one on either side, and those in its queue.
    fn ensure_memory(&self, flows: usize) -> Result<(), Failure> {
        let packets = flows * (2 + if self.asynchronous { self.queue } else { 0 });
        let (needed, most) = (packets as u64 * self.length as u64, machine::usable_memory() / 2);
        if needed <= most {
            return Ok(());
        }
        Err(Failure::usage(format!(
            "{packets} packets of {} may take {}, which is more than half of the memory that there is, {}: lower --length or --queue",
            length::approximate(self.length as u64),
            length::approximate(needed),
            length::approximate(most)
        )))
    }

    /// Why a flow has failed, with what the user can do about it.
    fn failure(&self, error: Error) -> Failure {
        match error {
            Error::Message { end } => Failure::could_not(format!(
                "{end} has sent a message of more than {} bytes: give the length of the longest one by --length",
                self.length
            )),
            error => Failure::could_not(error),
        }
    }
}

/// A flow that was started.
struct Running {
    name: String,
    ends: Ends,
    flow: Flow,
    /// Whether all is in its sink, once it is over.
    ended: Option<bool>,
}

impl Running {
    /// Waits for the end for a moment.
    fn look(&mut self) -> Result<(), Error> {
        let looked = self.flow.wait(Some(LOOK));
        self.ended = (looked != Ok(false)).then_some(looked == Ok(true));
        match looked {
            // A reader that has had enough is no failure.
            Err(Error::Sink { errno: rustix::io::Errno::PIPE, .. }) if self.ends.is_standard_output => Ok(()),
            looked => looked.map(drop),
        }
    }
}
