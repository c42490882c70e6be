//! Datagrams between two interfaces, by each means that there is: Genie's, bare rings, and the kernel's sockets.
//!
//! How: all means take turns in each round, in another order each time. In a turn both ends are opened anew, since rings want an interface for
//! themselves: this thread's, and one of a thread on another CPU. The first datagrams warm both up, and all their bytes are compared; of those
//! that are measured, the number and the length. A share of another means's rate or time is that of one round; the median is of shares.
//! Limits: rounds in which the CPUs were placed otherwise than in most are dropped.

mod document;
mod ends;
mod site;
mod turn;

use genie_lab::machine::{Before, Machine};
use genie_lab::placement::Placement;
use genie_lab::probe::{Probe, majority};
use genie_lab::{length, probe};

use super::options::{Args, Wanted};
use crate::bar::Bar;
use crate::failure::Failure;
use crate::output;
use document::{Document, Kind, Row};
use ends::Way;
use site::Sites;
use turn::{Turn, Turns};

/// How often everything is measured, unless it was said.
const ROUNDS: u32 = 15;

/// What one round found: each way's turn.
struct Round {
    placement: Option<Placement>,
    turns: Vec<Turn>,
}

/// Measures and prints.
pub(super) fn run(args: &Args, wanted: &Wanted) -> Result<(), Failure> {
    let lengths = args.datagram_lengths()?;
    let longest = lengths.iter().copied().max().unwrap_or_default();
    let before = Before::read();
    // Where raising the limit fails, the kernel says so when a ring is opened.
    let _ = genie_sys::machine::raise_memory_lock_limit();
    let cpus = probe::cpus()?.len();
    if cpus < 2 {
        return Err(Failure::could_not(
            "each end of a link needs a CPU of its own, and this process has one",
        ));
    }
    let sites = Sites::open(wanted, longest)?;
    let turns = Turns::new(&sites, args.granule)?;
    let rounds = args.rounds.unwrap_or(ROUNDS) as usize;
    let each = lengths.len() * (Kind::OneWay.ways().len() + Kind::RoundTrip.ways().len());
    let bar = Bar::new((rounds * each) as u64, "{msg:20} {wide_bar} {percent:>3} %");
    let (mut rows, mut dropped) = (Vec::new(), 0);
    for kind in [Kind::OneWay, Kind::RoundTrip] {
        for len in lengths.iter().copied() {
            bar.say(format!("{} {}", kind.name(), length::format(len)));
            let found: Vec<_> = (0..rounds)
                .map(|round| {
                    let turns = in_turns(kind.ways(), round, |way| turns.turn(kind, way, len));
                    bar.done(kind.ways().len());
                    Ok(Round { placement: Probe::pin()?.round_trip().map(Placement::of), turns: turns? })
                })
                .collect::<Result<_, Failure>>()?;
            let placement = majority(found.iter().map(|round| round.placement));
            let alike: Vec<_> = found.iter().filter(|round| round.placement == placement).collect();
            dropped += found.len() - alike.len();
            rows.extend((0..kind.ways().len()).map(|way| Row::of(kind, len, placement, way, &alike)));
        }
    }
    drop(bar);
    let document = Document {
        machine: Machine::describe(turns.space(), before),
        network: sites.to_string(),
        rounds_dropped: dropped,
        results: rows,
    };
    if args.json { output::print_json(&document) } else { output::print_styled(&document::text(&document)) }
}

/// Has each way take its turn, another one first in each round; the results are in the order of the ways.
fn in_turns(
    ways: &[Way],
    round: usize,
    mut turn: impl FnMut(Way) -> Result<Turn, Failure>,
) -> Result<Vec<Turn>, Failure> {
    let mut turns = vec![None; ways.len()];
    for at in 0..ways.len() {
        let at = (at + round) % ways.len();
        turns[at] = Some(turn(ways[at])?);
    }
    Ok(turns.into_iter().flatten().collect())
}
