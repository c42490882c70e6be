//! `genie net send`: numbered datagrams, as many and as fast as was asked for.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use genie_lab::length;

use super::Stop;
use super::address::resolve;
use super::end::{End, LONGEST};
use super::figures::Figures;
use super::means::Means;
use super::numbered::{HEADER, Header, Kind};
use super::receive::LOOK;
use crate::failure::Failure;
use crate::number;

/// How often the receiver is told that the sender has ended, since that may be lost, too.
const ENDS: usize = 5;
const PAUSE: Duration = Duration::from_millis(20);

/// Send numbered datagrams to genie net receive or genie net echo.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The host and the port to send to.
    #[arg(value_name = "HOST:PORT")]
    to: String,
    /// How long the datagrams' data is, in bytes or with a suffix K: several lengths take turns.
    #[arg(long, value_delimiter = ',', value_parser = len, default_value = "1400")]
    lengths: Vec<usize>,
    /// How many datagrams to send.
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = number::within::<u64>(1..=1_000_000_000_000))]
    count: u64,
    /// For how many seconds to send, in place of a count.
    #[arg(long, value_name = "S", conflicts_with = "count", value_parser = number::within::<u64>(1..=86_400))]
    seconds: Option<u64>,
    /// How many datagrams a second to send; as many as possible by default.
    #[arg(long, value_name = "N", value_parser = number::within::<u32>(1..=1_000_000_000))]
    rate: Option<u32>,
    /// Send data that the receiver verifies; else the data behind the number is anything.
    #[arg(long)]
    verify: bool,
    /// Wait until each batch has come back, from genie net echo, and say how long that takes; --batch 1 gives the round trip.
    #[arg(long)]
    echo: bool,
    #[command(flatten)]
    means: Means,
}

fn len(text: &str) -> Result<usize, String> {
    let len = length::parse(text)?;
    if (HEADER..=LONGEST).contains(&len) {
        return Ok(len);
    }
    Err(format!("a datagram's data has {HEADER} bytes, for its number, to {LONGEST}"))
}

/// Sends, and prints the figures.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let to = resolve(&args.to).map_err(Failure::could_not)?[0];
    let stop = Stop::at_signal()?;
    let mut end = args.means.open(0, Some(to))?;
    let mut figures = Figures::new(args.means.json);
    let run = fastrand::u32(..);
    let sender = Sender { args, to, run, begun: Instant::now(), stop };
    let sent = sender.send(&mut *end, &mut figures)?;
    sender.tell_end(&mut *end, sent)?;
    let operation = if args.echo { "sent and received again" } else { "sent" };
    figures.summary(operation, &*end, args.echo && args.verify).print(args.means.json)
}

struct Sender<'a> {
    args: &'a Args,
    to: SocketAddr,
    run: u32,
    begun: Instant,
    stop: Stop,
}

impl Sender<'_> {
    /// Sends all datagrams; returns how many those were.
    fn send(&self, end: &mut dyn End, figures: &mut Figures) -> Result<u64, Failure> {
        let Self { args, .. } = self;
        let kind = if args.verify { Kind::Verified } else { Kind::Data };
        let batch = args.means.batch() as u64;
        let (mut number, mut departed) = (0, Vec::new());
        for len in args.lengths.iter().copied().cycle() {
            if self.is_over(number) {
                break;
            }
            self.pace(end, number)?;
            let mut load = end.load(len)?;
            Header { kind, run: self.run, number }.write(&mut load);
            if args.echo {
                departed.push(Instant::now());
            } else {
                figures.gone(len);
            }
            end.send(load, self.to)?;
            number += 1;
            if args.echo && (number.is_multiple_of(batch) || self.is_over(number)) {
                end.flush()?;
                self.await_echo(end, figures, number - departed.len() as u64, &departed)?;
                departed.clear();
            }
            figures.say()?;
        }
        end.flush()?;
        if args.echo {
            figures.total(number);
        }
        Ok(number)
    }

    fn is_over(&self, number: u64) -> bool {
        let is_last = match self.args.seconds {
            Some(seconds) => self.begun.elapsed() >= Duration::from_secs(seconds),
            None => number >= self.args.count,
        };
        is_last || self.stop.is_asked()
    }

    /// Waits until it is this datagram's turn.
    fn pace(&self, end: &mut dyn End, number: u64) -> Result<(), Failure> {
        let Some(rate) = self.args.rate else { return Ok(()) };
        let due = self.begun + Duration::from_secs_f64(number as f64 / f64::from(rate));
        if due > Instant::now() {
            end.flush()?;
        }
        while let Some(left) = due.checked_duration_since(Instant::now())
            && !left.is_zero()
            && !self.stop.is_asked()
        {
            std::thread::sleep(left.min(LOOK));
        }
        Ok(())
    }

    /// Waits until the datagrams from `first` on have come back, which departed at these times.
    fn await_echo(
        &self,
        end: &mut dyn End,
        figures: &mut Figures,
        first: u64,
        departed: &[Instant],
    ) -> Result<(), Failure> {
        let mut left = departed.len();
        while left > 0 && !self.stop.is_asked() {
            let Some(arrival) = end.receive(LOOK)? else { break };
            match Header::read(&arrival.load).filter(|header| header.run == self.run) {
                Some(header) => {
                    let at = header.number.checked_sub(first).and_then(|at| departed.get(at as usize));
                    if let Some(departed) = at {
                        figures.round_trip(departed.elapsed());
                        left -= 1;
                    }
                    figures.came(header, &arrival.load, arrival.len);
                }
                None => figures.strange(),
            }
            end.recycle(arrival.load);
        }
        Ok(())
    }

    /// Tells the receiver that these were all.
    fn tell_end(&self, end: &mut dyn End, number: u64) -> Result<(), Failure> {
        for _ in 0..ENDS {
            let mut load = end.load(HEADER)?;
            Header { kind: Kind::End, run: self.run, number }.write(&mut load);
            end.send(load, self.to)?;
            end.flush()?;
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }
}
