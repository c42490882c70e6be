//! What was found, as a document and as tables.

use std::fmt::Write;

use genie_lab::datagrams::Calls;
use genie_lab::length;
use genie_lab::machine::Machine;
use genie_lab::placement::Placement;
use genie_lab::samples::{Samples, Spread, rounded};
use serde::Serialize;

use super::Round;
use super::ends::Way;
use super::turn::{DATAGRAMS, ROUND_TRIPS};
use crate::compare::table::{short, spread};
use crate::tables;

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// How many datagrams a second go to the other end.
    OneWay,
    /// How long one takes there and back.
    RoundTrip,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::OneWay => "one way",
            Self::RoundTrip => "there and back",
        }
    }

    /// The ways that take turns: the bare rings first.
    pub(super) fn ways(self) -> &'static [Way] {
        match self {
            Self::OneWay => &[
                Way::Bare,
                Way::Rings,
                Way::Datagrams,
                Way::Socket(Calls::Blocking),
                SPINNING,
                Way::Socket(Calls::Many),
                GSO,
            ],
            Self::RoundTrip => {
                &[Way::Bare, Way::Rings, Way::Datagrams, SPINNING, Way::Socket(Calls::Blocking)]
            }
        }
    }
}

const SPINNING: Way = Way::Socket(Calls::Spinning);
const GSO: Way = Way::Socket(Calls::Segments);

/// Everything that one run found.
#[derive(Debug, Serialize)]
pub(super) struct Document {
    pub(super) machine: Machine,
    /// Between which interfaces.
    pub(super) network: String,
    /// Rounds that were dropped because the CPUs were placed otherwise than in the others.
    pub(super) rounds_dropped: usize,
    pub(super) results: Vec<Row>,
}

/// What was found of one way, at one length.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    /// `one way` or `there and back`.
    direction: &'static str,
    by: &'static str,
    length: usize,
    /// The time from one datagram to the next, or there and back, of each round.
    time_us: Spread,
    /// One way: the receiver's rate by the median; a megabyte is 10^6 bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    datagrams_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mb_s: Option<f64>,
    /// The rate as a multiple of the bare rings', or the time there and back: the median of the rounds'.
    of_bare_rings: f64,
    /// The same of the kernel's spinning socket's.
    of_socket_spinning: f64,
    /// Of how many datagrams of all rounds how many did not come.
    sent: u64,
    lost: u64,
    /// Numbers, lengths and order were what they should be; so were all bytes of the first datagrams of each round.
    verified: bool,
    placement: Option<&'static str>,
    rounds: usize,
}

impl Row {
    /// What rounds found of the way of this index.
    pub(super) fn of(
        kind: Kind,
        len: usize,
        placement: Option<Placement>,
        way: usize,
        rounds: &[&Round],
    ) -> Self {
        let ways = kind.ways();
        let mut times = Samples::default();
        rounds.iter().for_each(|round| times.add(round.turns[way].time));
        let share = |other: Way| {
            let other = ways.iter().position(|way| *way == other).expect("it takes turns in each kind");
            let share = |round: &&Round| {
                let [own, other] = [way, other].map(|way| round.turns[way].time.as_secs_f64());
                if kind == Kind::OneWay { other / own } else { own / other }
            };
            let mut shares: Vec<f64> = rounds.iter().map(share).collect();
            shares.sort_by(f64::total_cmp);
            rounded(shares[shares.len() / 2])
        };
        let rate = (kind == Kind::OneWay).then(|| 1e9 / times.median().max(1) as f64);
        let each = if kind == Kind::OneWay { DATAGRAMS } else { ROUND_TRIPS };
        Self {
            direction: kind.name(),
            by: ways[way].name(),
            length: len,
            time_us: times.spread(),
            datagrams_s: rate.map(f64::round),
            mb_s: rate.map(|rate| rounded(rate * len as f64 / 1e6)),
            of_bare_rings: share(Way::Bare),
            of_socket_spinning: share(SPINNING),
            sent: each * rounds.len() as u64,
            lost: rounds.iter().map(|round| round.turns[way].lost).sum(),
            verified: true,
            placement: placement.map(Placement::name),
            rounds: rounds.len(),
        }
    }
}

/// A table for each length and direction, and what they mean.
pub(super) fn text(document: &Document) -> String {
    let Document { machine, network, rounds_dropped, results } = document;
    let mut heading = format!("{}\ndatagrams between {network}", machine.line());
    if let Some(placement) = results.first().and_then(|row| row.placement) {
        let _ = write!(heading, "; CPUs {placement}");
    }
    if *rounds_dropped > 0 {
        let _ = write!(heading, "; {rounds_dropped} rounds dropped because the CPUs were placed otherwise");
    }
    let mut text = tables::fold(&heading);
    let mut gains = String::new();
    for rows in results.chunk_by(|a, b| (a.direction, a.length) == (b.direction, b.length)) {
        block(&mut text, rows);
        gains += &gso(rows);
    }
    text + &tables::fold(EXPLANATION) + &tables::fold(&gains)
}

fn block(text: &mut String, rows: &[Row]) {
    let Some(Row { direction, length, rounds, .. }) = rows.first() else { return };
    let _ = writeln!(text, "\n{} {direction}, {rounds} rounds", length::format(*length));
    let is_one_way = rows[0].mb_s.is_some();
    let rates = if is_one_way { &["1000/s", "MB/s", "lost"][..] } else { &[] };
    let heads = [&["", "us", "(p5-p95)"], rates, &["of rings", "of socket"]].concat();
    let numbers = 1..heads.len();
    let mut table = tables::new(heads, numbers);
    for row in rows {
        let mut cells = vec![row.by.to_owned(), short(row.time_us.median), spread(row.time_us)];
        if let (Some(rate), Some(mb_s)) = (row.datagrams_s, row.mb_s) {
            cells.extend([format!("{:.0}", rate / 1e3), format!("{mb_s:.0}"), row.lost.to_string()]);
        }
        cells.extend([row.of_bare_rings, row.of_socket_spinning].map(|share| format!("{share:.2}")));
        table.add_row(cells);
    }
    text.push_str(&tables::text(&table));
}

/// Where the kernel's segments are faster than Genie.
fn gso(rows: &[Row]) -> String {
    let rate = |by: Way| rows.iter().find(|row| row.by == by.name()).and_then(|row| row.datagrams_s);
    let (Some(gso), Some(raw), Some(server)) = (rate(GSO), rate(Way::Rings), rate(Way::Datagrams)) else {
        return String::new();
    };
    let (len, ratios) = (length::format(rows[0].length), [raw, server].map(|rate| gso / rate));
    format!(
        "{len}: GSO and GRO have {:.2} times the rate of raw, {:.2} times that of the datagram server{}\n",
        ratios[0],
        ratios[1],
        match ratios.map(|ratio| ratio > 1.0) {
            [true, true] => ": they win",
            [false, false] => ": they lose",
            _ => "",
        }
    )
}

const EXPLANATION: &str = "
us: one way, the time from one datagram to the next at the receiver; there and back, the median of a round: medians and \
    spread over rounds. of rings, of socket: one way, the rate as a multiple of that of bare-rings and of \
    socket-spinning; there and back, the time.
bare-rings: a loop over AF_XDP's rings, batches of 32. raw: one way, net::raw in batches of 32, taken by the \
    driver's rings; there and back, the driver's rings. datagram-server: over AF_XDP, in its client's process, 32 requests \
    under way. These spin, as all sockets do but socket-blocking. socket-sendmmsg: with recvmmsg, 32 in a call; socket-gso: UDP_SEGMENT \
    and UDP_GRO, up to 64 in a call. Without checksums, but those that a device makes.
The first datagrams of each turn were compared byte by byte, all by number, length and order.
";
