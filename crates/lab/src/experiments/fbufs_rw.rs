//! `fbufs-rw`: what `uf_write` and `uf_read` cost, beside `write` and `read`, in one process and between two.
//!
//! How: *discard* is an output alone, *loopback* an output and an input of one thread, which has both ends. In the paper a
//! driver frees what was written, or gives it back; here the other end of a transport does, and for a discard its work is not
//! timed. Between two processes, a *round trip* is a buffer that goes there and comes back, and a *stream* is buffers one after
//! the other, whose time is divided among them. The other process has another CPU, or the same one.
//! The program stores a number into each buffer, and its reader compares that; before each step all bytes of some buffers are
//! compared. All subjects of all settings take turns in each step, which is one length.
//! Limits: a sample of discard, loopback and round trip includes the reading of the clock, some 25 ns.
//! Source: Thadani and Khalidi, section 6.1, figure 7.

mod sitting;
mod verdicts;

use super::described::{Described, Measuring};
use super::reading::{MISSING, Reading, headings, per_cent};
use crate::error::Result;
use crate::experiment::{Claim, Declaration, Options, Sitting, Step};
use crate::findings::{Conclusion, Scale, Table, row};
use crate::length;
use crate::measurement::{Measurements, Quantity};
use crate::papers::thadani;
use crate::transport::{Means, Transport};

const ID: &str = "fbufs-rw";

/// The means that are measured, fbufs first; one thread that has both ends uses all but the last.
const MEANS: [Means; 4] = [
    Means::CHANNEL,
    Means::standard(Transport::Pipe),
    Means::standard(Transport::UnixSocket),
    Means::standard(Transport::Tcp),
];
const ALONE: usize = 3;

/// The lengths of buffers.
const LENGTHS: [usize; 9] = {
    let mut lengths = [1 << 10; 9];
    let mut at = 1;
    while at < lengths.len() {
        lengths[at] = lengths[at - 1] * 2;
        at += 1;
    }
    lengths
};
const LENGTHS_SMOKE: [usize; 2] = [8 << 10, 64 << 10];
/// The length of which the paper tells figures.
const PAPER_LEN: u64 = 8 << 10;
/// The lengths at which fbufs are to take at most half as long between two processes.
const HALVED: [u64; 2] = [PAPER_LEN, 64 << 10];

/// What is done with a buffer.
const DISCARD: &str = "discard";
const LOOPBACK: &str = "loopback";
const ROUND_TRIP: &str = "round trip";
const STREAM: &str = "stream";

/// The experiment.
pub(super) static FBUFS_RW: Described =
    Described { declaration: &DECLARATION, measuring: Measuring::Own { steps, sit }, conclude };

static DECLARATION: Declaration = Declaration {
    id: ID,
    title: "Fbufs beside write and read, in one process and between two",
    source: thadani!("§6.1, figure 7"),
    claims: &[
        Claim {
            id: "constant",
            text: "Output and input of an fbuf cost the same at all lengths.",
            source: "§6.1, figure 7",
        },
        Claim {
            id: "discard",
            text: "At 8 KiB, output of an fbuf takes 34 % of the time of write.",
            source: "§6.1, figure 7",
        },
        Claim {
            id: "loopback",
            text: "At 8 KiB, output and input of an fbuf take 31 % of the time of write and read.",
            source: "§6.1, figure 7",
        },
        Claim {
            id: "processes-constant",
            text: "The same from process to process: the time does not depend on the length.",
            source: "§6.1, applied to two processes",
        },
        Claim {
            id: "processes",
            text: "Between two processes with a CPU each, fbufs take at most half as long as the fastest kernel channel, at 8 KiB \
                   and at 64 KiB.",
            source: "§6.1, applied to two processes; half is Genie's goal",
        },
        Claim {
            id: "one-cpu",
            text: "The same holds between two processes that share one CPU.",
            source: "§6.1, applied to two processes; half is Genie's goal",
        },
    ],
    axes: &[
        "length of buffers, 1 KiB to 256 KiB",
        "transport and calls",
        "in one process or between two",
        "the CPUs of two processes",
    ],
    needs: &[],
};

fn lengths(options: &Options) -> &'static [usize] {
    if options.smoke { &LENGTHS_SMOKE } else { &LENGTHS }
}

fn steps(options: &Options) -> Vec<Step> {
    Step::each(lengths(options), |len| sitting::seconds(len, options.smoke))
}

fn sit(options: &Options) -> Result<Box<dyn Sitting + '_>> {
    Ok(Box::new(sitting::Rw::open(options)?))
}

/// The name of what two processes do at a place.
fn between(what: &str, place: &str) -> String {
    format!("{what}, {place}")
}

/// The settings, in the order in which they are shown.
fn settings() -> Vec<String> {
    let alone = [DISCARD, LOOPBACK].map(str::to_owned);
    let places = |what| super::partners::PLACES.map(|place| between(what, place));
    alone.into_iter().chain([ROUND_TRIP, STREAM].into_iter().flat_map(places)).collect()
}

fn conclude(measurements: &Measurements) -> Conclusion {
    let readings: Vec<_> = settings()
        .into_iter()
        .map(|setting| Reading::of(measurements, ID, setting, Quantity::Latency))
        .collect();
    let measured = || readings.iter().filter(|reading| !reading.lengths(names()).is_empty());
    let figure = |reading: &Reading<'_>| {
        let name = format!("{ID}-{}", super::reading::slug(&reading.setting));
        reading.figure(&name, &title(&reading.setting), "time of a buffer in µs", Scale::Logarithmic, names())
    };
    Conclusion {
        figures: measured().filter_map(figure).collect(),
        tables: measured().map(table).collect(),
        verdicts: verdicts::all(&readings),
        notes: vec![
            "A discard and a loopback are one thread's, which has both ends. The other settings are of two processes: of a stream, the \
             time is divided among its buffers. Nobody touches the data, but for a number in each buffer."
                .to_owned(),
            "Two processes on one CPU take turns, so that a round trip has two switches of processes at least, whatever passes the \
             data."
                .to_owned(),
        ],
    }
}

/// The series of fbufs of the shortest length, which take turns with those of each other length: lengths are steps of their own, and
/// from step to step a shared machine gets faster or slower.
fn beside() -> String {
    format!("{}, {} beside", MEANS[0].name(), length::format(LENGTHS[0]))
}

fn names() -> [String; MEANS.len()] {
    MEANS.map(Means::name)
}

fn title(setting: &str) -> String {
    match setting {
        DISCARD => "Discard: output of a buffer".to_owned(),
        LOOPBACK => "Loopback: output and input of a buffer".to_owned(),
        _ => match setting.split_once(", ") {
            Some((ROUND_TRIP, place)) => format!("Round trip of a buffer between two processes, {place}"),
            Some((_, place)) => format!("Stream of buffers from process to process, {place}"),
            None => setting.to_owned(),
        },
    }
}

/// What fbufs take at a length, and what the fastest of the standard calls does.
fn pair(reading: &Reading<'_>, len: u64) -> Option<(f64, f64)> {
    let standard = names().into_iter().skip(1).filter_map(|name| reading.at(&name, len));
    Some((reading.at(&MEANS[0].name(), len)?, standard.min_by(f64::total_cmp)?))
}

/// The medians by length, with fbufs' share of the fastest of the standard calls, and the paper's share.
fn table(reading: &Reading<'_>) -> Table {
    let lengths = reading.lengths(names());
    let medians =
        |name: &String| row(name, lengths.iter().map(|len| super::reading::shown(reading.at(name, *len))));
    let present = names().into_iter().filter(|name| !reading.medians(name).is_empty());
    let share =
        |len: &u64| pair(reading, *len).map_or(MISSING.to_owned(), |(ours, theirs)| per_cent(ours / theirs));
    let mut rows: Vec<_> = present.map(|name| medians(&name)).collect();
    rows.push(row("fbufs: share of the fastest", lengths.iter().map(share)));
    if [DISCARD, LOOPBACK].contains(&reading.setting.as_str()) {
        let printed = format!("{} %", thadani::share(&reading.setting));
        let paper = |len: &u64| if *len == PAPER_LEN { printed.clone() } else { MISSING.to_owned() };
        rows.push(row("paper: share", lengths.iter().map(paper)));
    }
    Table::new(
        format!("{}, in µs (medians)", title(&reading.setting)),
        headings("calls, transport", &lengths),
        rows,
    )
}

#[cfg(test)]
mod tests;
