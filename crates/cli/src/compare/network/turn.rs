//! One way's turn: both ends are opened, and datagrams go from one to the other, or there and back.

use std::cell::Cell;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use genie::Interface;
use genie::mechanism::Space;
use genie_lab::datagrams::{Arrivals, End, beside, receive, rest};
use genie_lab::error::{Error, Result};
use genie_lab::interface::Granule;
use genie_lab::length;
use genie_lab::probe::Probe;
use genie_lab::samples::Samples;

use super::document::Kind;
use super::ends::Way;
use super::site::Sites;
use crate::failure::Failure;

/// How many datagrams warm both ends up, and have all their bytes compared: the rings have room for all of them.
const WARM: u64 = 100;
/// How many are measured one way, and how many there and back.
pub(super) const DATAGRAMS: u64 = 20_000;
pub(super) const ROUND_TRIPS: u64 = 2_000;
/// How often the first ones are sent, if none comes: the kernel may ask for the other station again only after a second, since what it has
/// asked in another way's turn was taken from it.
const ATTEMPTS: u64 = 50;
/// After so long a datagram does not come back any more, likewise.
const LOST: Duration = Duration::from_secs(3);

/// What a turn found.
#[derive(Debug, Clone, Copy)]
pub(super) struct Turn {
    /// The time from one datagram to the next at the receiver; or the median time there and back.
    pub(super) time: Duration,
    /// How many did not come.
    pub(super) lost: u64,
}

/// What all turns have in common.
pub(super) struct Turns<'s> {
    sites: &'s Sites,
    /// One for each end.
    genies: [Interface; 2],
    /// The last one's number.
    turn: Cell<u64>,
}

impl<'s> Turns<'s> {
    /// For turns between these sites, with memory of such granules.
    pub(super) fn new(sites: &'s Sites, granule: Granule) -> std::result::Result<Self, Failure> {
        Ok(Self { sites, genies: [granule.open()?, granule.open()?], turn: Cell::new(0) })
    }

    /// The near end's memory.
    pub(super) fn space(&self) -> &Space {
        self.genies[0].space()
    }

    /// Has a way take its turn.
    pub(super) fn turn(&self, kind: Kind, way: Way, len: usize) -> std::result::Result<Turn, Failure> {
        // Neither what is left in memory from the last turn, nor the kernel's own frames, have this one's bytes and numbers.
        let turn = self.turn.get() + 1;
        self.turn.set(turn);
        let (byte, first) = ((turn % 250) as u8 + 1, turn << 32);
        let turn = match kind {
            Kind::OneWay => self.one_way(way, len, byte, first),
            Kind::RoundTrip => self.round_trips(way, len, byte, first),
        };
        turn.map_err(|error| {
            let (what, len) = (kind.name(), length::format(len));
            Failure::could_not(format!("{len} {what} by {} could not be measured: {error}", way.name()))
        })
    }

    fn one_way(&self, way: Way, len: usize, byte: u8, first: u64) -> Result<Turn> {
        let mut far = self.open(way, 1, len, byte)?;
        let mut near = self.open(way.sending(), 0, len, byte)?;
        let probe = Probe::pin()?;
        let mut pass = |numbers: Range<u64>, byte| {
            let mut arrivals = Arrivals::of(numbers.clone(), len, byte);
            let receiving = |all_sent: &AtomicBool| receive(&mut *far, &mut arrivals, all_sent);
            beside(other(&probe), receiving, || near.send(numbers))?;
            check(&arrivals)?;
            Ok::<_, Error>(arrivals)
        };
        let mut measured = first;
        while pass(measured..measured + WARM, Some(byte))?.count() == 0 {
            measured += WARM;
            if measured - first > ATTEMPTS * WARM {
                return Err(Error::Peer("none has come: are both interfaces on one Ethernet?".to_owned()));
            }
        }
        measured += WARM;
        let arrivals = pass(measured..measured + DATAGRAMS, None)?;
        let time = arrivals.each().ok_or_else(|| Error::Peer("all but a few were lost".to_owned()))?;
        Ok(Turn { time, lost: DATAGRAMS - arrivals.count() })
    }

    fn round_trips(&self, way: Way, len: usize, byte: u8, first: u64) -> Result<Turn> {
        let (mut far, mut near) = (self.open(way, 1, len, byte)?, self.open(way, 0, len, byte)?);
        let (probe, mut samples) = (Probe::pin()?, Samples::default());
        let (warm, measured) = (first..first + WARM, first + WARM..first + WARM + ROUND_TRIPS);
        let arrivals =
            || [Arrivals::of(warm.clone(), len, Some(byte)), Arrivals::of(measured.clone(), len, None)];
        let echo = |is_over: &AtomicBool| {
            let [mut first, mut others] = arrivals();
            echo(&mut *far, &mut first, warm.end - 1, is_over)?;
            echo(&mut *far, &mut others, measured.end - 1, is_over)?;
            check(&first).and(check(&others))
        };
        let travel = || {
            let [mut first, mut others] = arrivals();
            round_trips(&mut *near, &mut first, warm.clone(), |_| {})?;
            round_trips(&mut *near, &mut others, measured.clone(), |time| samples.add(time))
        };
        beside(other(&probe), echo, travel)?;
        Ok(Turn { time: Duration::from_nanos(samples.median()), lost: 0 })
    }

    /// Opens an end before this thread has one CPU alone: a link would not spin there.
    fn open(&self, way: Way, end: usize, len: usize, byte: u8) -> Result<Box<dyn End>> {
        let Sites(sites) = self.sites;
        way.open(&sites[end], &sites[1 - end], &self.genies[end], len, byte)
    }
}

/// The far end's CPU.
fn other(probe: &Probe) -> usize {
    probe.other().unwrap_or(probe.here())
}

/// Sends each datagram back when it comes, up to the last one.
fn echo(end: &mut dyn End, arrivals: &mut Arrivals, last: u64, is_over: &AtomicBool) -> Result<()> {
    while arrivals.last() != Some(last) && !is_over.load(Ordering::Acquire) {
        let before = arrivals.count();
        end.take(arrivals)?;
        match arrivals.last().filter(|_| arrivals.count() > before) {
            Some(number) => end.send(number..number + 1)?,
            None => rest(),
        }
    }
    Ok(())
}

/// Sends one datagram after the other, each when the one before has come back.
fn round_trips(
    end: &mut dyn End,
    arrivals: &mut Arrivals,
    numbers: Range<u64>,
    mut took: impl FnMut(Duration),
) -> Result<()> {
    for number in numbers {
        let begun = Instant::now();
        end.send(number..number + 1)?;
        end.take(arrivals)?;
        while arrivals.last() != Some(number) {
            if begun.elapsed() > LOST {
                return Err(Error::Peer("a datagram has not come back within 3 s".to_owned()));
            }
            rest();
            end.take(arrivals)?;
        }
        took(begun.elapsed());
    }
    check(arrivals)
}

fn check(arrivals: &Arrivals) -> Result<()> {
    match arrivals.is_wrong() {
        true => Err(Error::Peer("datagrams have not come as they were sent".to_owned())),
        false => Ok(()),
    }
}
