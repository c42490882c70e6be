//! `servers`: protocol servers in their clients' processes and in processes of their own, by length and scheme.
//!
//! How: a datagram protocol server at each end puts a header before the data, or takes it off, and subcontracts the device:
//! see [`crate::protocol`]. In process it is called like a server in the kernel. In a process of its own it sits on its
//! client's CPU and sleeps while it has nothing to do, so that control passes by a switch between processes, as on the
//! papers' machines. Both take turns at one device. The *overhead* of a user-level server is the difference of the medians.
//! Source: J. C. Brustoloni's thesis, chapter 9, figures 9.1 to 9.3, tables 9.2 and 9.3.

mod verdicts;

use genie::Scheme;

use super::reading::{MISSING, Reading, headings, shown};
use super::sweep::{Rounds, Setting, Sweep};
use super::turns::Subject;
use crate::amounts::significant;
use crate::error::Result;
use crate::experiment::{Claim, Declaration, Experiment, Options, Sitting, Step};
use crate::findings::{Axis, Conclusion, Curve, CurvePoint, Figure, Scale, Table};
use crate::measurement::{Measurements, Quantity};
use crate::model::fit;
use crate::parties::{Route, Transfer};
use crate::protocol::Check;

/// The experiment.
#[derive(Debug)]
pub(super) struct Servers;

const ID: &str = "servers";

/// The schemes that look like conventional interfaces, as in the papers.
const SCHEMES: [Scheme; 3] = [Scheme::Copy, Scheme::EmulatedCopy, Scheme::EmulatedShare];
/// Where the servers are.
const PLACES: [(Route, &str); 2] =
    [(Route::InProcess, "in process"), (Route::Process(Check::None), "own process")];

const LENGTHS: [usize; 12] = [
    64,
    1 << 10,
    2 << 10,
    4 << 10,
    8 << 10,
    16 << 10,
    60 << 10,
    256 << 10,
    1 << 20,
    2 << 20,
    4 << 20,
    16 << 20,
];
const LENGTHS_SMOKE: [usize; 2] = [64, 16 << 10];
/// Lengths up to this are short data.
const SHORT: u64 = 8 << 10;
const PAPER_LEN: u64 = 61_440;
const LONGEST: u64 = 16 << 20;

const SECONDS: f64 = 1.5;
const ROUNDS_LEAST: usize = 10;
const ROUNDS_SMOKE: usize = 3;

/// The paper's equivalent throughput of single 60 KB datagrams in Mbit/s (table 9.2): in the kernel, at user level.
const PAPER_THROUGHPUT: [(&str, [u32; 2]); 3] =
    [("copy", [178, 175]), ("emulated copy", [323, 307]), ("emulated share", [346, 320])];
/// The paper's overheads in microseconds (table 9.3).
const PAPER_OVERHEAD: [(&str, u32); 3] =
    [("Pentium 90 MHz", 209), ("Pentium 166 MHz", 110), ("Pentium Pro 200 MHz", 63)];

static DECLARATION: Declaration = Declaration {
    id: ID,
    title: "Protocol servers in process and in processes of their own",
    source: "J. C. Brustoloni, Effects of Data Passing Semantics and Operating System Structure on Network I/O \
             Performance, chapter 9",
    claims: &[
        Claim {
            id: "overhead-constant",
            text: "What a user-level server costs is control, not data: about 60 µs, whatever the length and the scheme.",
            source: "§9.2, figures 9.1, 9.2",
        },
        Claim {
            id: "user-level-beats-copy",
            text: "For data longer than about a page, emulated copy through user-level servers takes less time than copy \
                   through servers in the kernel.",
            source: "§9.2, figure 9.1",
        },
        Claim {
            id: "emulated-alike",
            text: "Which scheme avoids the copy matters little: emulated copy and emulated share pass 60 KB at 323 and 346 \
                   Mbit/s through servers in the kernel, at 307 and 320 through user-level ones.",
            source: "§9.2, table 9.2",
        },
        Claim {
            id: "overhead-scales-with-cpu",
            text: "The overhead falls as processors get faster: from 209 µs (Pentium 90 MHz) by 110 µs (166 MHz) to 63 µs \
                   (Pentium Pro 200 MHz).",
            source: "§9.3, table 9.3, figure 9.3",
        },
    ],
    axes: &["data length, 64 B to 16 MiB", "scheme of the clients", "where the protocol servers are"],
    needs: &[],
};

fn sweep(options: &Options) -> Sweep {
    let subjects = PLACES.iter().enumerate().flat_map(|(parties, (_, place))| {
        SCHEMES.map(|scheme| Subject {
            series: series(scheme.name(), place),
            parties,
            transfer: Transfer::of(scheme, 0),
        })
    });
    let lengths: &[usize] = if options.smoke { &LENGTHS_SMOKE } else { &LENGTHS };
    Sweep {
        id: ID,
        settings: vec![Setting::only(options, lengths, SECONDS)],
        subjects: subjects.collect(),
        routes: PLACES.map(|(route, _)| route).to_vec(),
        rounds: Rounds::of(options, ROUNDS_SMOKE, ROUNDS_LEAST),
        processing: false,
        seed: options.seed,
    }
}

/// A curve's name.
fn series(scheme: &str, place: &str) -> String {
    format!("{scheme}, {place}")
}

impl Experiment for Servers {
    fn declaration(&self) -> &'static Declaration {
        &DECLARATION
    }

    fn steps(&self, options: &Options) -> Vec<Step> {
        sweep(options).steps()
    }

    fn sit<'a>(&'a self, options: &'a Options) -> Result<Box<dyn Sitting + 'a>> {
        Ok(Box::new(sweep(options).sit()))
    }

    fn conclude(&self, _options: &Options, measurements: &Measurements) -> Result<Conclusion> {
        let reading =
            Reading { measurements, experiment: ID, setting: String::new(), quantity: Quantity::Latency };
        let overheads = Overhead::all(&reading);
        Ok(Conclusion {
            figures: figures(&reading, &overheads),
            tables: vec![latencies(&reading), overhead_table(&overheads), throughputs(&reading), processors(&overheads)],
            verdicts: verdicts::all(&reading, &overheads),
            notes: vec![
                "A protocol server in a process of its own runs on its client's CPU and sleeps while it has nothing to do; \
                 with a request of its own pending it hands the CPU over between looks for the reply. Each end has one, so \
                 that an overhead holds the switches of both."
                    .to_owned(),
                "The papers' network ran at 512 Mbit/s; the device here copies without limit.".to_owned(),
            ],
        })
    }
}

/// What user-level servers cost with one scheme: (length, in process, more than that), in microseconds.
#[derive(Debug)]
struct Overhead {
    scheme: &'static str,
    points: Vec<(u64, f64, f64)>,
}

impl Overhead {
    fn all(reading: &Reading<'_>) -> Vec<Self> {
        let of = |scheme: Scheme| {
            let scheme = scheme.name();
            let [here, there] = PLACES.map(|(_, place)| series(scheme, place));
            let point = |(x, us): (u64, f64)| Some((x, us, reading.at(&there, x)? - us));
            Self { scheme, points: reading.medians(&here).into_iter().filter_map(point).collect() }
        };
        SCHEMES.into_iter().map(of).filter(|overhead| !overhead.points.is_empty()).collect()
    }

    /// A line through the overheads: microseconds for each MiB, and in all.
    fn line(&self) -> Option<(f64, f64)> {
        let points: Vec<_> = self.points.iter().map(|(x, _, more)| (*x as f64, *more)).collect();
        fit::fit(&points).map(|fit| (fit.line.factor * f64::from(1 << 20), fit.line.fixed))
    }
}

fn all_series() -> Vec<String> {
    let of = |(_, place): (Route, &str)| SCHEMES.map(|scheme| series(scheme.name(), place));
    PLACES.into_iter().flat_map(of).collect()
}

fn figures(reading: &Reading<'_>, overheads: &[Overhead]) -> Vec<Figure> {
    let all = all_series();
    let names = || all.iter().map(String::as_str);
    let y = "end-to-end latency in µs";
    let whole = reading.figure(
        "servers",
        "End-to-end latency through protocol servers",
        y,
        Scale::Logarithmic,
        names(),
    );
    let title = "End-to-end latency of short data through protocol servers";
    let short = reading.figure("servers-short", title, y, Scale::Linear, names()).map(|mut figure| {
        let is_short = |point: &CurvePoint| point.x <= SHORT as f64;
        figure.curves.iter_mut().for_each(|curve| curve.points.retain(is_short));
        figure
    });
    let curve = |overhead: &Overhead| {
        Curve::plain(overhead.scheme, overhead.points.iter().map(|(x, _, more)| (*x as f64, *more)))
    };
    let axes = [Axis::logarithmic("data length in bytes"), Axis::linear("difference of latencies in µs")];
    let title = "What user-level protocol servers at both ends cost";
    let overhead = Figure::of("servers-overhead", title, axes, overheads.iter().map(curve));
    [whole, short, overhead].into_iter().flatten().collect()
}

fn latencies(reading: &Reading<'_>) -> Table {
    let all = all_series();
    let title = "End-to-end latency through protocol servers in µs (medians)";
    reading.table(title, "scheme, servers", all.iter().map(String::as_str))
}

fn overhead_table(overheads: &[Overhead]) -> Table {
    let lengths: Vec<u64> =
        overheads.first().map_or_else(Vec::new, |one| one.points.iter().map(|one| one.0).collect());
    let row = |overhead: &Overhead| {
        let more = lengths.iter().map(|x| overhead.points.iter().find(|point| point.0 == *x));
        let cells = more.map(|point| shown(point.map(|point| point.2)));
        let line = overhead.line();
        let line = line.map_or_else(
            || MISSING.to_owned(),
            |(slope, fixed)| format!("{} x MiB + {}", significant(slope), significant(fixed)),
        );
        std::iter::once(overhead.scheme.to_owned()).chain(cells).chain([line]).collect()
    };
    let mut columns = headings("scheme", &lengths);
    columns.push("line".to_owned());
    Table {
        title: "Overhead of user-level protocol servers in µs".to_owned(),
        columns,
        rows: overheads.iter().map(row).collect(),
    }
}

fn throughputs(reading: &Reading<'_>) -> Table {
    let cell = |scheme: &str, place: &str, len: u64| reading.throughput(&series(scheme, place), len);
    let row = |(scheme, papers): (&str, [u32; 2])| {
        let here = [PAPER_LEN, LONGEST]
            .into_iter()
            .flat_map(|len| PLACES.map(|(_, place)| cell(scheme, place, len)));
        std::iter::once(scheme.to_owned()).chain(papers.map(|mbit| mbit.to_string())).chain(here).collect()
    };
    let columns = [
        "scheme",
        "paper: 60 KB, in the kernel",
        "paper: 60 KB, user level",
        "60 KiB, in process",
        "60 KiB, own process",
        "16 MiB, in process",
        "16 MiB, own process",
    ];
    Table {
        title: "Equivalent throughput of single datagrams in Mbit/s".to_owned(),
        columns: columns.map(str::to_owned).to_vec(),
        rows: PAPER_THROUGHPUT.into_iter().map(row).collect(),
    }
}

/// The overhead for the shortest data by emulated copy, beside the papers' processors.
fn processors(overheads: &[Overhead]) -> Table {
    let here = shown(shortest(overheads, "emulated copy").map(|(_, us)| us));
    let papers = PAPER_OVERHEAD.map(|(name, us)| vec![name.to_owned(), us.to_string()]);
    Table {
        title: "Overhead of user-level servers by processor, emulated copy, shortest data".to_owned(),
        columns: ["processor", "overhead in µs"].map(str::to_owned).to_vec(),
        rows: papers.into_iter().chain([vec!["this one".to_owned(), here]]).collect(),
    }
}

/// The shortest length, and the overhead there.
fn shortest(overheads: &[Overhead], scheme: &str) -> Option<(u64, f64)> {
    let overhead = overheads.iter().find(|one| one.scheme == scheme)?;
    overhead.points.first().map(|(x, _, more)| (*x, *more))
}

#[cfg(test)]
mod tests;
