//! `servers`: protocol servers in their clients' processes and in processes of their own, by length and scheme.
//!
//! How: a datagram protocol server at each end puts a header before the data, or takes it off, and subcontracts the device:
//! see [`crate::protocol`]. In process it is called like a server in the kernel. In a process of its own it sits on its
//! client's CPU and sleeps while it has nothing to do, so that control changes hands by a switch between processes, as on the
//! papers' machines. Servers of both kinds take turns at one device. The *overhead* of a user-level server is the difference
//! of the medians.
//! Source: J. C. Brustoloni's thesis, chapter 9, figures 9.1 to 9.3, tables 9.2 and 9.3.

mod verdicts;

use genie::Scheme;

use super::described::{Described, Measuring};
use super::latency::{LONGEST, PAPER_LEN};
use super::reading::{MISSING, Reading, headings, shown};
use super::sweep::{Setting, Sweep};
use super::turns::Subject;
use crate::amounts::significant;
use crate::experiment::{Claim, Declaration, Options};
use crate::findings::{Axis, Conclusion, Curve, CurvePoint, Figure, Scale, Table, row};
use crate::measurement::{Measurements, Quantity};
use crate::model::fit;
use crate::papers::brustoloni::{self, ServerThroughput};
use crate::parties::{Route, Transfer};
use crate::protocol::Check;

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

const SECONDS: f64 = 1.5;
/// The number of rounds in a smoke run, and the least number otherwise.
const ROUNDS: (usize, usize) = (3, 10);

/// The experiment.
pub(super) static SERVERS: Described =
    Described { declaration: &DECLARATION, measuring: Measuring::Sweep(sweep), conclude };

static DECLARATION: Declaration = Declaration {
    id: ID,
    title: "Protocol servers in process and in processes of their own",
    source: brustoloni!("chapter 9"),
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
    let settings = vec![Setting::only(options, lengths, SECONDS)];
    let routes = PLACES.map(|(route, _)| route).to_vec();
    Sweep { routes, ..Sweep::new(ID, options, settings, subjects.collect(), ROUNDS) }
}

/// A curve's name.
fn series(scheme: &str, place: &str) -> String {
    format!("{scheme}, {place}")
}

fn conclude(measurements: &Measurements) -> Conclusion {
    let reading = Reading::of(measurements, ID, "", Quantity::Latency);
    let overheads = Overhead::all(&reading);
    let title = "End-to-end latency through protocol servers in µs (medians)";
    Conclusion {
        figures: figures(&reading, &overheads),
        tables: vec![
            reading.table(title, "scheme, servers", all_series()),
            overhead_table(&overheads),
            throughputs(&reading),
            processors(&overheads),
        ],
        verdicts: verdicts::all(&reading, &overheads),
        notes: vec![
            "A protocol server in a process of its own runs on its client's CPU and sleeps while it has nothing to do; \
             with a request of its own pending it hands the CPU over between looks for the reply. Each end has one, so \
             that an overhead holds the switches of both."
                .to_owned(),
            "The papers' network ran at 512 Mbit/s; the device here copies without limit.".to_owned(),
        ],
    }
}

/// The cost of user-level servers with one scheme: (length, latency in process, overhead), in microseconds.
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

    /// A line through the overheads: microseconds for each MiB, and the fixed term.
    fn line(&self) -> Option<(f64, f64)> {
        let points: Vec<_> = self.points.iter().map(|(x, _, more)| (*x, *more)).collect();
        fit::fit(&points).map(|fit| (fit.line.factor * f64::from(1 << 20), fit.line.fixed))
    }
}

fn all_series() -> Vec<String> {
    let of = |(_, place): (Route, &str)| SCHEMES.map(|scheme| series(scheme.name(), place));
    PLACES.into_iter().flat_map(of).collect()
}

fn figures(reading: &Reading<'_>, overheads: &[Overhead]) -> Vec<Figure> {
    let of_latency =
        |name, title, scale| reading.figure(name, title, "end-to-end latency in µs", scale, all_series());
    let title = "End-to-end latency through protocol servers";
    let whole = of_latency("servers", title, Scale::Logarithmic);
    let title = "End-to-end latency of short data through protocol servers";
    let short = of_latency("servers-short", title, Scale::Linear).map(|mut figure| {
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

fn overhead_table(overheads: &[Overhead]) -> Table {
    let lengths: Vec<u64> =
        overheads.first().map_or_else(Vec::new, |one| one.points.iter().map(|one| one.0).collect());
    let cells = |overhead: &Overhead| {
        let more = lengths.iter().map(|x| overhead.points.iter().find(|point| point.0 == *x));
        let line = overhead.line().map_or_else(
            || MISSING.to_owned(),
            |(slope, fixed)| format!("{} x MiB + {}", significant(slope), significant(fixed)),
        );
        row(overhead.scheme, more.map(|point| shown(point.map(|point| point.2))).chain([line]))
    };
    let columns = headings("scheme", &lengths).into_iter().chain(["line".to_owned()]);
    Table::new("Overhead of user-level protocol servers in µs", columns, overheads.iter().map(cells))
}

fn throughputs(reading: &Reading<'_>) -> Table {
    let cells = |paper: ServerThroughput| {
        let at = |len| PLACES.map(|(_, place)| reading.throughput(&series(&paper.scheme, place), len));
        let papers = [paper.kernel_level, paper.user_level].map(|mbit| mbit.to_string());
        row(&paper.scheme, papers.into_iter().chain([PAPER_LEN, LONGEST].into_iter().flat_map(at)))
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
    let title = "Equivalent throughput of single datagrams in Mbit/s";
    Table::new(title, columns, brustoloni::server_throughputs().into_iter().map(cells))
}

/// The overhead for the shortest data by emulated copy, beside the papers' processors.
fn processors(overheads: &[Overhead]) -> Table {
    let here = shown(shortest(overheads, "emulated copy").map(|(_, us)| us));
    let papers = brustoloni::server_overheads().into_iter();
    let papers = papers.map(|paper| row(paper.processor, [paper.overhead.to_string()]));
    let title = "Overhead of user-level servers by processor, emulated copy, shortest data";
    Table::new(title, ["processor", "overhead in µs"], papers.chain([row("this one", [here])]))
}

/// The shortest length, and the overhead there.
fn shortest(overheads: &[Overhead], scheme: &str) -> Option<(u64, f64)> {
    let overhead = overheads.iter().find(|one| one.scheme == scheme)?;
    overhead.points.first().map(|(x, _, more)| (*x, *more))
}

#[cfg(test)]
mod tests;
