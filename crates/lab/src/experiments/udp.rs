//! `udp`: how fast UDP datagrams go out, by a standard socket and by the ways of the zero-copy paper.
//!
//! How: a link between two network namespaces. At one end this thread sends 10,000 datagrams; at the other a thread on another CPU receives
//! them by an ordinary socket, and takes the time from the first to the last: its rate counts, as ttcp's. Datagrams are numbered; what was
//! lost is counted. Before each step all bytes of some datagrams are compared. All ways take turns in each step, which is one length.
//! The paper's interfaces are [`genie_net::raw`]'s. They ask the kernel to send 32 datagrams at once, where the paper had a call for each;
//! so does `mmap, a call each`, which uses buffers again by the paper's rule. A standard socket has a call for each.
//! Limits: the link's MTU is 9,000 bytes, so 8,192 are one frame; the paper's were fragments. A virtual link's kernel copies what a device
//! would read by itself, and it is the sender's CPU that takes datagrams up to the receiver's socket.
//! Source: J. van Rantwijk, Experiments with zero-copy UDP transmission under Linux, section on performance.

mod stage;
mod way;

use super::described::{Described, Measuring};
use super::partners::take_turns;
use super::reading::{MISSING, Reading, findings, left_out, shown};
use crate::amounts::significant;
use crate::error::Result;
use crate::experiment::{Claim, Declaration, Options, Sitting, Step};
use crate::findings::{Conclusion, Figure, Judgement, Scale, Table, row};
use crate::length;
use crate::measurement::{Measured, Measurements, Quantity};
use crate::medium::Medium;
use crate::papers::rantwijk;
use stage::Stage;
use way::{WAYS, Way};

const ID: &str = "udp";

const LENGTHS: [usize; 2] = [1400, 8192];
/// The length of which the paper has all interfaces.
const PAPER_LEN: u64 = 1400;
/// How many datagrams there are in a turn, and how many turns: in a smoke run, and otherwise.
const DATAGRAMS: (usize, usize) = (200, 10_000);
const ROUNDS: (usize, usize) = (1, 3);

/// The settings: the time of a datagram, and bytes for all datagrams of a turn.
const TIME: &str = "";
const LOST: &str = "lost";
const COPIED: &str = "copied by Genie";
const COPIED_BY_KERNEL: &str = "copied by the kernel on the way out";

/// The experiment.
pub(super) static UDP: Described =
    Described { declaration: &DECLARATION, measuring: Measuring::Own { steps, sit }, conclude };

static DECLARATION: Declaration = Declaration {
    id: ID,
    title: "UDP without copies, by the paper's interfaces, beside a standard socket",
    source: "J. van Rantwijk, Experiments with zero-copy UDP transmission under Linux, NIKHEF 2001, section on performance",
    claims: &[
        Claim {
            id: "mmap",
            text: "The mmap method without checksums has about twice the rate of a standard socket, with 1,400 bytes: 6,872 against 3,157 \
                   KB/s.",
            source: "table, discussion",
        },
        Claim {
            id: "extension",
            text: "The extension beats the socket although it copies: 4,251 and, with checksums, 3,801 against 3,157 KB/s.",
            source: "table",
        },
        Claim {
            id: "copy",
            text: "It is the copy that costs: without it the extension has 1.62 times the rate, and 1.35 times with checksums.",
            source: "table, discussion",
        },
        Claim {
            id: "checksum",
            text: "Checksums cost less where they are made while copying (12 %) than where the data is read for them alone (34 %).",
            source: "table; section on copying",
        },
        Claim {
            id: "gather",
            text: "The gather method is faster than the socket and slower than mmap: 4,758 against 3,157 and 6,872 KB/s.",
            source: "table",
        },
    ],
    axes: &["interface", "checksums", "length of datagrams, 1,400 and 8,192 bytes"],
    needs: &[],
};

fn of<T>(options: &Options, (small, large): (T, T)) -> T {
    if options.smoke { small } else { large }
}

fn steps(options: &Options) -> Vec<Step> {
    let datagrams = of(options, DATAGRAMS) * (of(options, ROUNDS) + 1) * WAYS.len();
    Step::each(&LENGTHS, |len| datagrams as f64 * (4e-6 + len as f64 * 0.5e-9))
}

fn sit(options: &Options) -> Result<Box<dyn Sitting + '_>> {
    Ok(Box::new(Udp(options)))
}

/// A sitting under way: each step has a link of its own.
struct Udp<'o>(&'o Options);

impl Sitting for Udp<'_> {
    fn measure(&mut self, step: &Step) -> Result<Vec<Measured>> {
        let len = step.length(ID, &LENGTHS)?;
        // Then no claim can be tested.
        if !Medium::Xdp.is_there() {
            return Ok(Vec::new());
        }
        let mut stage = Stage::open(len)?;
        for way in WAYS {
            stage.verify(way)?;
        }
        let count = of(self.0, DATAGRAMS);
        let turns = take_turns(WAYS.len(), of(self.0, ROUNDS), self.0.seed ^ len as u64, |index| {
            Ok(vec![stage.run(WAYS[index], count)?])
        })?;
        let measured = |(way, turns): (Way, Vec<stage::Turn>)| {
            let of = |setting, quantity, number: fn(&stage::Turn) -> u64| {
                Measured::new(setting, way.name(), len, quantity, turns.iter().map(number).collect())
            };
            [
                of(TIME, Quantity::Latency, |turn| turn.each),
                of(LOST, Quantity::Bytes, |turn| turn.lost),
                of(COPIED, Quantity::Bytes, |turn| turn.copied),
                of(COPIED_BY_KERNEL, Quantity::Bytes, |turn| turn.copied_by_kernel),
            ]
        };
        Ok(WAYS.into_iter().zip(turns).flat_map(measured).collect())
    }
}

fn conclude(measurements: &Measurements) -> Conclusion {
    let found = Found(Reading::of(measurements, ID, TIME, Quantity::Latency));
    let is_measured = !found.0.lengths(names()).is_empty();
    let judgements = vec![found.mmap(), found.extension(), found.copy(), found.checksum(), found.gather()];
    let why = left_out(measurements).unwrap_or_else(|| "Nothing was measured.".to_owned());
    let judgements = if is_measured { Ok(judgements) } else { Err(&*why) };
    let of = |setting| Reading::of(measurements, ID, setting, Quantity::Bytes);
    // All of them in one would be too many to be told apart.
    let figures = [false, true].into_iter().filter_map(|has_checksum| found.figure(has_checksum));
    Conclusion {
        figures: figures.collect(),
        tables: if is_measured {
            let loss = of(LOST).table("Bytes lost in a turn (medians)", "interface", names());
            let rates = LENGTHS.into_iter().map(|len| found.table(len as u64));
            rates.chain([found.copies(&of(COPIED), &of(COPIED_BY_KERNEL)), loss]).collect()
        } else {
            Vec::new()
        },
        verdicts: findings(&DECLARATION, judgements),
        notes: vec![
            "The kernel copies for AF_XDP on a virtual link, as it does for a socket: what the paper's interfaces save there is Genie's copy \
             and the socket's work, not the kernel's copy. A device whose driver has zero-copy AF_XDP reads the data where it is."
                .to_owned(),
            "A standard socket without a checksum leaves it to the link, which has none either: the usual case on Linux.".to_owned(),
        ],
    }
}

fn names() -> [String; WAYS.len()] {
    WAYS.map(Way::name)
}

/// The median times of a datagram.
struct Found<'m>(Reading<'m>);

impl Found<'_> {
    /// The receiver's rate in KB/s.
    fn rate(&self, way: Way, len: u64) -> Option<f64> {
        self.0.at(&way.name(), len).map(|us| len as f64 / us * 1e6 / 1024.0)
    }

    /// The times of all ways with checksums, or without.
    fn figure(&self, has_checksum: bool) -> Option<Figure> {
        let mut ways: Vec<_> = WAYS.into_iter().filter(|way| way.has_checksum == has_checksum).collect();
        // The others look alike in both figures.
        ways.sort_by_key(|way| *way == Way::PAPERS);
        let (name, title) = match has_checksum {
            true => ("udp-checksum", "Time of a datagram, with checksums"),
            false => ("udp-no-checksum", "Time of a datagram, without checksums"),
        };
        let (y, names) = ("time of a datagram in µs", ways.iter().map(|way| way.name()));
        let mut figure = self.0.figure(name, title, y, Scale::Logarithmic, names)?;
        for curve in &mut figure.curves {
            // The title says whether there are checksums.
            curve.name.truncate(curve.name.rfind(", ").unwrap_or(curve.name.len()));
        }
        Some(figure)
    }

    /// The rate of one way as a multiple of another's, at the paper's length.
    fn ratio(&self, more: Way, less: Way) -> std::result::Result<f64, String> {
        let rate =
            |way: Way| self.rate(way, PAPER_LEN).ok_or_else(|| format!("{} was not measured.", way.name()));
        Ok(rate(more)? / rate(less)?)
    }

    fn mmap(&self) -> Judgement {
        let [ratio, each] = [self.ratio(Way::MMAP, Way::SOCKET)?, self.ratio(Way::PAPERS, Way::SOCKET)?];
        let found = format!(
            "{} times the rate of the socket, and {} times with a call for each datagram; in the paper 2.18 times.",
            significant(ratio),
            significant(each)
        );
        Ok((ratio >= 2.0, found))
    }

    fn extension(&self) -> Judgement {
        let [without, with] =
            [self.ratio(Way::COPYING, Way::SOCKET)?, self.ratio(Way::COPYING.summed(), Way::SOCKET)?];
        let [shown, summed] = [without, with].map(significant);
        let found = format!(
            "{shown} times the rate of the socket, and {summed} times with checksums; in the paper 1.35 and 1.20 times."
        );
        Ok((without.min(with) > 1.0, found))
    }

    fn copy(&self) -> Judgement {
        let without = self.ratio(Way::MMAP, Way::COPYING)?;
        let with = self.ratio(Way::MMAP.summed(), Way::COPYING.summed())?;
        let [shown, summed] = [without, with].map(significant);
        let found = format!(
            "{shown} times the rate without the copy, and {summed} times with checksums; the kernel's copy stays."
        );
        Ok((without >= 1.62 && with >= 1.35, found))
    }

    fn checksum(&self) -> Judgement {
        let copying = self.ratio(Way::COPYING, Way::COPYING.summed())? - 1.0;
        let alone = self.ratio(Way::MMAP, Way::MMAP.summed())? - 1.0;
        let found = format!(
            "Without checksums the rate is {:+.0} % with the copying extension, and {:+.0} % with mmap.",
            copying * 100.0,
            alone * 100.0
        );
        Ok((copying < alone, found))
    }

    fn gather(&self) -> Judgement {
        let [socket, mmap] = [self.ratio(Way::GATHER, Way::SOCKET)?, self.ratio(Way::GATHER, Way::MMAP)?];
        let found = format!(
            "{} times the rate of the socket and {} times that of mmap; in the paper 1.51 and 0.69 times.",
            significant(socket),
            significant(mmap)
        );
        Ok((socket > 1.0 && mmap < 1.0, found))
    }

    /// Rates at a length, and ratios to the socket's; ours beside the paper's.
    fn table(&self, len: u64) -> Table {
        let printed = rantwijk::rates();
        let paper = |way: Way| {
            let is_it = |one: &&rantwijk::Rate| {
                let checksum = ["", way.checksum_word()].contains(&one.checksum.as_str());
                checksum && one.interface == way.paper() && one.len == len
            };
            printed.iter().find(is_it).filter(|_| way.is_papers()).map(|one| one.rate.value())
        };
        let line = |way: Way| {
            let rates = [self.rate(way, len), paper(way)];
            let sockets = [self.rate(Way::SOCKET, len), paper(Way::SOCKET)];
            let ratio = |at: usize| rates[at].zip(sockets[at]).map(|(rate, socket)| rate / socket);
            let papers = rates[1].map_or(MISSING.to_owned(), |rate| rate.to_string());
            row(way.name(), [shown(rates[0]), shown(ratio(0)), papers, shown(ratio(1))])
        };
        let title = format!(
            "The receiver's rate with {len} bytes, in KB/s (1,024 bytes; medians), and as a multiple of the standard socket's"
        );
        Table::new(title, ["interface", "KB/s", "ratio", "paper", "ratio"], WAYS.map(line))
    }

    /// How many bytes are copied.
    fn copies(&self, ours: &Reading<'_>, kernels: &Reading<'_>) -> Table {
        let line = |way: Way| {
            let of = |reading: &Reading<'_>| LENGTHS.map(|len| shown(reading.at(&way.name(), len as u64)));
            row(way.name(), of(ours).into_iter().chain(of(kernels)))
        };
        let heads = ["by Genie", "by the kernel"]
            .into_iter()
            .flat_map(|who| LENGTHS.map(|len| format!("{who}, {}", length::format(len))));
        Table::new(
            "Bytes copied for all datagrams of a turn on their way out, headers included",
            row("interface", heads),
            WAYS.map(line),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::synthetic::{made, run};
    use super::*;

    #[test]
    fn each_way_has_a_curve_in_the_figure_with_checksums_or_in_that_without() {
        let names = names();
        let both = names.iter().flat_map(|name| LENGTHS.map(|len| (name, len as u64)));
        let points = both.map(|(name, len)| made(TIME, name, Quantity::Latency, (len, 1.0)));
        let figures = conclude(&run(ID, points)).figures;
        let drawn = figures
            .iter()
            .map(|figure| figure.curves.iter().map(|curve| curve.name.as_str()).collect::<Vec<_>>());
        let both = ["standard socket", "copying extension", "mmap", "gather"];
        assert_eq!(drawn.collect::<Vec<_>>(), [[&both[..], &["mmap, a call each"]].concat(), both.to_vec()]);
    }
}
