//! `servers`: protocol servers in their clients' processes and in processes of their own, by length and scheme.
//!
//! How: at each end of a wire, or of a link of the kernel's by AF_XDP, is a datagram server ([`genie_net::datagram`]) over an adapter with early demultiplexing, so requests that wait
//! are posted. In process it is called like a server in the kernel. In a process of its own it sits on its client's CPU and
//! sleeps while it has nothing to do, so that control changes hands by a switch between processes, as on the papers'
//! machines. Servers of both kinds take turns. The *overhead* of user-level servers is the difference of the medians, and a
//! line through the differences tells what of it is control, and what data.
//! Source: J. C. Brustoloni's thesis, chapter 9, figures 9.1 to 9.3, tables 9.2 and 9.3.

mod verdicts;

use genie::Scheme;

use super::described::{Described, Measuring};
use super::latency::{PAPER_LEN, shown};
use super::reading::{MISSING, Reading, headings, left_out, shown as shown_number, slug};
use super::sweep::{Setting, Sweep};
use super::turns::Subject;
use crate::amounts::significant;
use crate::experiment::{Claim, Declaration, Options};
use crate::findings::{Axis, Conclusion, Curve, Figure, Scale, Table, row};
use crate::length;
use crate::measurement::{Measurements, Quantity};
use crate::medium::{BY_DRIVER, BY_KERNEL, Medium};
use crate::model::fit::{self, Line};
use crate::papers::brustoloni::{self, ServerThroughput};
use crate::parties::{Network, Place, Route, Transfer};
use genie_net::Rate;
use genie_net::datagram::Summing;

const ID: &str = "servers";

/// The schemes that look like conventional interfaces, as in the papers.
const SCHEMES: [Scheme; 3] = [Scheme::Copy, Scheme::EmulatedCopy, Scheme::EmulatedShare];
/// Where the servers are.
const PLACES: [(Place, &str); 2] = [(Place::InProcess, "in process"), (Place::OwnProcess, "own process")];

/// The media, and whether thresholds are calibrated; first, what the papers had.
const SETTINGS: [(Medium, bool); 6] = [
    (Medium::Wire(Rate::Bits(512_000_000)), false),
    (Medium::Wire(Rate::Bits(512_000_000)), true),
    (Medium::Wire(Rate::Unlimited), false),
    (Medium::Wire(Rate::Unlimited), true),
    (Medium::Xdp, false),
    (Medium::Xdp, true),
];
/// The first of these that is not over a wire.
const XDP: usize = 4;

const LENGTHS: [usize; 9] =
    [4, 1 << 10, 2 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10, 48 << 10, PAPER_LEN as usize];
const LENGTHS_SMOKE: [usize; 2] = [4, PAPER_LEN as usize];

const SECONDS: f64 = 1.5;
/// The number of rounds in a smoke run, and the least number otherwise.
const ROUNDS: (usize, usize) = (3, 10);

/// The experiment.
pub(super) static SERVERS: Described =
    Described { declaration: &DECLARATION, measuring: Measuring::Sweep(sweep), conclude };

static DECLARATION: Declaration = Declaration {
    id: ID,
    title: "Datagram servers in process and in processes of their own",
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
    axes: &[
        "data length, 4 B to 60 KiB",
        "scheme of the clients",
        "where the datagram servers are",
        "medium: a wire by its rate, or AF_XDP",
        "thresholds off or calibrated",
    ],
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
    let setting = |of: (Medium, bool)| {
        let (lengths, (medium, calibrated)): (&[usize], _) =
            (if options.smoke { &LENGTHS_SMOKE } else { &LENGTHS }, of);
        let routes = PLACES.map(|(place, _)| {
            Route::Datagrams(Network { medium, calibrated, place, summing: Summing::None })
        });
        Setting { name: name(of), ..Setting::only(options, routes.to_vec(), lengths, SECONDS) }
    };
    let settings = if options.smoke { vec![SETTINGS[0], SETTINGS[XDP]] } else { SETTINGS.to_vec() };
    let settings = settings.into_iter().map(setting).collect();
    Sweep::new(ID, options, settings, subjects.collect(), ROUNDS)
}

/// A setting's name.
fn name((medium, calibrated): (Medium, bool)) -> String {
    format!("{}, {}", medium.name(), if calibrated { "calibrated" } else { "thresholds off" })
}

/// A curve's name.
fn series(scheme: &str, place: &str) -> String {
    format!("{scheme}, {place}")
}

fn conclude(measurements: &Measurements) -> Conclusion {
    let readings = SETTINGS.map(|of| Reading::of(measurements, ID, name(of), Quantity::Latency));
    let over = readings.split_at(XDP);
    let overheads_over = |readings: &[Reading<'_>]| readings.iter().flat_map(Overhead::all).collect();
    let (wire, xdp): (Vec<_>, Vec<_>) = (overheads_over(over.0), overheads_over(over.1));
    let verdicts = verdicts::all((&over.0[0], &wire), (&over.1[0], &xdp));
    let overheads = [wire, xdp].concat();
    let titles = ["Latency through datagram servers: ", "End-to-end latency in µs (medians): "];
    let (mut figures, mut tables) = shown(&readings, ID, titles, Scale::Logarithmic, all_series());
    figures.extend(readings.iter().filter_map(|reading| figure(reading, &overheads)));
    if !overheads.is_empty() {
        tables.extend([overhead_table(&overheads), throughputs(&readings), processors(&overheads)]);
    }
    tables.extend(copies(measurements));
    let xdp = "Over AF_XDP frames pass between two network namespaces, and either host is at the interface by itself. The sender's CPU takes frames \
               up to the receiver's interface. The adapter copies them out of AF_XDP's buffers.";
    Conclusion {
        figures,
        tables,
        verdicts,
        notes: vec![
            "A datagram server in a process of its own runs on its client's CPU and sleeps while it has nothing to do, and its \
             client hands the CPU over between looks for the reply. Each end has one, so that an overhead holds the \
             switches of both. A receiver whose server is in its process looks for frames between looks for the reply, and \
             needs no switch."
                .to_owned(),
            "The copy into the receiver's memory that stands for the wire is in every latency. At a rate, frames arrive when \
             their last bit would have. No checksums are computed."
                .to_owned(),
            left_out(measurements).unwrap_or_else(|| xdp.to_owned()),
        ],
    }
}

/// What was copied over AF_XDP, where that was measured.
fn copies(measurements: &Measurements) -> Option<Table> {
    let who = [("at both ends", ""), ("by the driver", BY_DRIVER), ("by the kernel", BY_KERNEL)];
    let both = || SETTINGS[XDP..].iter().flat_map(|of| who.map(|who| (of, who)));
    let amount = |(of, (_, who)): (&(Medium, bool), (&str, &str)), scheme: &str| {
        let reading = Reading::of(measurements, ID, name(*of) + who, Quantity::Bytes);
        reading.at(&series(scheme, PLACES[0].1), PAPER_LEN)
    };
    let cells = |scheme: Scheme| {
        let shown = |amount: Option<f64>| {
            amount.map_or_else(|| MISSING.to_owned(), |bytes| length::approximate(bytes as u64))
        };
        row(scheme.name(), both().map(|column| shown(amount(column, scheme.name()))))
    };
    let heading = |((_, calibrated), (who, _)): (&(Medium, bool), (&str, &str))| {
        format!("{}, {who}", if *calibrated { "calibrated" } else { "off" })
    };
    let columns = row("scheme", both().map(heading));
    let table = Table::new("Bytes copied for 60 KiB over AF_XDP, in process", columns, SCHEMES.map(cells));
    both().any(|column| amount(column, SCHEMES[0].name()).is_some()).then_some(table)
}

/// The cost of user-level servers with one scheme: (length, latency in process, overhead), in microseconds.
#[derive(Debug, Clone)]
struct Overhead {
    setting: String,
    scheme: &'static str,
    points: Vec<(u64, f64, f64)>,
}

impl Overhead {
    fn all(reading: &Reading<'_>) -> Vec<Self> {
        let of = |scheme: Scheme| {
            let scheme = scheme.name();
            let [here, there] = PLACES.map(|(_, place)| series(scheme, place));
            let point = |(x, us): (u64, f64)| Some((x, us, reading.at(&there, x)? - us));
            let points = reading.medians(&here).into_iter().filter_map(point).collect();
            Self { setting: reading.setting.clone(), scheme, points }
        };
        SCHEMES.into_iter().map(of).filter(|overhead| !overhead.points.is_empty()).collect()
    }

    /// A line through the overheads, by bytes.
    fn line(&self) -> Option<Line> {
        let points: Vec<_> = self.points.iter().map(|(x, _, more)| (*x, *more)).collect();
        fit::fit(&points).map(|fit| fit.line)
    }

    fn name(&self) -> String {
        format!("{}, {}", self.scheme, self.setting)
    }
}

fn all_series() -> Vec<String> {
    let of = |(_, place): (Place, &str)| SCHEMES.map(|scheme| series(scheme.name(), place));
    PLACES.into_iter().flat_map(of).collect()
}

/// The overheads of a setting by length.
fn figure(reading: &Reading<'_>, overheads: &[Overhead]) -> Option<Figure> {
    let curve = |overhead: &Overhead| {
        Curve::plain(overhead.scheme, overhead.points.iter().map(|(x, _, more)| (*x as f64, *more)))
    };
    let axes = [Axis::linear("data length in bytes"), Axis::linear("difference of latencies in µs")];
    let (setting, name) = (&reading.setting, format!("{ID}-overhead-{}", slug(&reading.setting)));
    let title = format!("Cost of user-level servers: {setting}");
    let curves = overheads.iter().filter(|overhead| overhead.setting == *setting).map(curve);
    Figure::of(&name, &title, axes, curves)
}

fn overhead_table(overheads: &[Overhead]) -> Table {
    let lengths: Vec<u64> =
        overheads.first().map_or_else(Vec::new, |one| one.points.iter().map(|one| one.0).collect());
    let cells = |overhead: &Overhead| {
        let more = lengths.iter().map(|x| overhead.points.iter().find(|point| point.0 == *x));
        let line = overhead.line().map_or_else(
            || MISSING.to_owned(),
            |line| format!("{} x KiB + {}", significant(line.factor * 1024.0), significant(line.fixed)),
        );
        row(overhead.name(), more.map(|point| shown_number(point.map(|point| point.2))).chain([line]))
    };
    let columns = headings("scheme, setting", &lengths).into_iter().chain(["line".to_owned()]);
    Table::new("Overhead of user-level datagram servers in µs", columns, overheads.iter().map(cells))
}

fn throughputs(readings: &[Reading<'_>]) -> Table {
    let papers = brustoloni::server_throughputs();
    let cells = |(paper, reading): (&ServerThroughput, &Reading<'_>)| {
        let here = PLACES.map(|(_, place)| reading.throughput(&series(&paper.scheme, place), PAPER_LEN));
        let papers = [&paper.kernel_level, &paper.user_level].map(ToString::to_string);
        row(format!("{}, {}", paper.scheme, reading.setting), papers.into_iter().chain(here))
    };
    let columns = [
        "scheme, setting",
        "paper at 512 Mbit/s, in the kernel",
        "paper at 512 Mbit/s, user level",
        "in process",
        "own process",
    ];
    let is_measured = |reading: &&Reading<'_>| !reading.lengths(all_series()).is_empty();
    let readings: Vec<_> = readings.iter().filter(is_measured).collect();
    let rows = papers.iter().flat_map(|paper| readings.iter().map(move |reading| (paper, *reading)));
    let title = "Equivalent throughput of single datagrams of 60 KiB in Mbit/s";
    Table::new(title, columns, rows.map(cells))
}

/// The overhead for the shortest data by emulated copy, beside the papers' processors.
fn processors(overheads: &[Overhead]) -> Table {
    let here = shown_number(shortest(overheads, "emulated copy").map(|(_, us)| us));
    let papers = brustoloni::server_overheads().into_iter();
    let papers = papers.map(|paper| row(paper.processor, [paper.overhead.to_string()]));
    let title = "Overhead of user-level servers by processor, emulated copy, shortest data";
    Table::new(title, ["processor", "overhead in µs"], papers.chain([row("this one", [here])]))
}

/// The shortest length, and the overhead there, at the first setting.
fn shortest(overheads: &[Overhead], scheme: &str) -> Option<(u64, f64)> {
    let overhead = overheads.iter().find(|one| one.scheme == scheme)?;
    overhead.points.first().map(|(x, _, more)| (*x, *more))
}

#[cfg(test)]
mod tests;
