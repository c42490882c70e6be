//! `checksum`: end-to-end latency with and without a checksum, by copy and by emulated copy; and the cost of checksums
//! alone.
//!
//! How: protocol servers in the clients' processes compute the checksum at the sender's end and verify it at the
//! receiver's, for real (see [`crate::protocol`]). A checksum that is integrated with the copy is computed by a server that
//! copies an output itself, reading the data once. On input that would be wrong: by the time that damage is found, damaged
//! data would have reached the client's buffer, which copy's meaning forbids (§8.4). So it is not done on input.
//! Source: J. C. Brustoloni's thesis, §8.4, figure 8.6.

mod bare;
mod verdicts;

use genie::Scheme;

use super::described::{Described, Measuring};
use super::latency::{LONGEST, PAPER_LEN};
use super::reading::{MISSING, Reading};
use super::sweep::{self, Setting, Sweep};
use super::turns::Subject;
use crate::error::Result;
use crate::experiment::{Claim, Declaration, Options, Sitting, Step};
use crate::findings::{Conclusion, Scale, Table, row};
use crate::length;
use crate::measurement::{Measured, Measurements, Quantity};
use crate::parties::{Route, Transfer};
use crate::protocol::Check;
use genie_net::checksum::Checksum as Kind;

const ID: &str = "checksum";

const LENGTHS: [usize; 8] = [64, 4 << 10, 16 << 10, 60 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20];
const LENGTHS_SMOKE: [usize; 2] = [64, 60 << 10];

const SECONDS: f64 = 1.5;
/// The number of rounds in a smoke run, and the least number otherwise.
const ROUNDS: (usize, usize) = (3, 10);

/// The experiment.
pub(super) static CHECKSUM: Described =
    Described { declaration: &DECLARATION, measuring: Measuring::Own { steps, sit }, conclude };

static DECLARATION: Declaration = Declaration {
    id: ID,
    title: "End-to-end latency with and without checksums",
    source: brustoloni!("§8.4, figure 8.6"),
    claims: &[
        Claim {
            id: "emulated-copy-with-checksum",
            text: "Emulated copy with a checksum takes less time than copy without one: 206 against 135 Mbit/s for 60 KB.",
            source: "§8.4, figure 8.6",
        },
        Claim {
            id: "checksum-cheaper-after-copy",
            text: "A checksum adds less time to copy (116 in place of 135 Mbit/s) than to emulated copy (206 in place of \
                   338), since copying brings the data into the cache.",
            source: "§8.4, figure 8.6",
        },
        Claim {
            id: "integrated-in-between",
            text: "A checksum that is integrated with the copy on output takes no less time than copy alone and no more than \
                   copy and checksum one after the other.",
            source: "§8.4",
        },
        Claim {
            id: "below-the-integrated",
            text: "Emulated copy with a checksum takes less time than copy with an integrated one, too.",
            source: "§8.4",
        },
    ],
    axes: &[
        "data length, 64 B to 16 MiB",
        "copy or emulated copy",
        "checksum, separate or integrated with the copy",
    ],
    needs: &[],
};

/// The subjects that take turns: a curve's name, the sender's scheme, the receiver's scheme, and the check.
fn subjects() -> Vec<(String, Scheme, Scheme, Check)> {
    let plain = [Scheme::Copy, Scheme::EmulatedCopy];
    let mut all: Vec<_> =
        plain.map(|scheme| (name(scheme.name(), Check::None), scheme, scheme, Check::None)).to_vec();
    for kind in Kind::ALL {
        let separate = Check::Separate(kind);
        all.extend(plain.map(|scheme| (name(scheme.name(), separate), scheme, scheme, separate)));
        // The server makes the copy, so the client lets it see the data in place until the copy is made.
        let integrated = Check::Integrated(kind);
        all.push((name("copy", integrated), Scheme::EmulatedShare, Scheme::Copy, integrated));
    }
    all
}

/// A curve's name.
fn name(scheme: &str, check: Check) -> String {
    match check {
        Check::None => scheme.to_owned(),
        Check::Separate(kind) => format!("{scheme} + {}", kind.name()),
        Check::Integrated(kind) => format!("{scheme} with {}", kind.name()),
    }
}

fn lengths(options: &Options) -> &'static [usize] {
    if options.smoke { &LENGTHS_SMOKE } else { &LENGTHS }
}

fn sweep(options: &Options) -> Sweep {
    let subject = |(series, output, input, check)| Subject {
        series,
        parties: 0,
        transfer: Transfer { output, input, check, ..Transfer::of(output, 0) },
    };
    let settings = vec![Setting::only(options, vec![Route::Protocol], lengths(options), SECONDS)];
    let subjects = subjects().into_iter().map(subject).collect();
    Sweep::new(ID, options, settings, subjects, ROUNDS)
}

/// The name of the step that measures the cost of checksums alone.
fn bare_name(len: usize) -> String {
    format!("alone, {}", length::format(len))
}

fn steps(options: &Options) -> Vec<Step> {
    let bare = |len: &usize| Step { name: bare_name(*len), seconds: 0.3 };
    sweep(options).steps().into_iter().chain(lengths(options).iter().map(bare)).collect()
}

fn sit(options: &Options) -> Result<Box<dyn Sitting + '_>> {
    Ok(Box::new(Seated { options, transfers: sweep(options).sit() }))
}

fn conclude(measurements: &Measurements) -> Conclusion {
    let reading = Reading::of(measurements, ID, "", Quantity::Latency);
    let names = || subjects().into_iter().map(|(name, ..)| name);
    let title = "End-to-end latency with and without checksums";
    let figure = reading.figure(ID, title, "end-to-end latency in µs", Scale::Logarithmic, names());
    let title = "End-to-end latency with and without checksums in µs (medians)";
    let latencies = reading.table(title, "scheme, checksum", names().collect::<Vec<_>>());
    let bare = bare::reading(measurements);
    Conclusion {
        figures: figure.into_iter().chain(bare::figure(&bare)).collect(),
        tables: vec![latencies, throughputs(&reading), bare::table(&bare)],
        verdicts: verdicts::all(&reading),
        notes: notes(),
    }
}

fn notes() -> Vec<String> {
    vec![
        "\"+\" means that data is summed in a pass of its own at either end, \"with\" that the sender's end sums while it \
         copies; the receiver's end always verifies in a pass of its own."
            .to_owned(),
        "The device here copies the data, too, which leaves it in a cache: the papers' adapter left it in memory. CRC32C is \
         computed by the crate crc-fast. No crate has the Internet checksum at memory speed, so that those few lines are \
         the lab's own. No crate integrates either with copying: here the Internet checksum is added up while each line is \
         stored, CRC32C block by block, in the first-level cache. A line that another CPU has read is fetched before it is \
         stored so, which a copying instruction avoids; up to some 64 KiB that may cost more than the second pass."
            .to_owned(),
    ]
}

struct Seated<'a> {
    options: &'a Options,
    transfers: sweep::Seated,
}

impl Sitting for Seated<'_> {
    fn measure(&mut self, step: &Step) -> Result<Vec<Measured>> {
        let bare = lengths(self.options).iter().find(|len| bare_name(**len) == step.name);
        bare.map_or_else(|| self.transfers.measure(step), |len| Ok(bare::measure(*len, self.options)))
    }
}

/// Equivalent throughput of single datagrams, beside the paper's.
fn throughputs(reading: &Reading<'_>) -> Table {
    let paper = |check: Check, scheme: Scheme| match (check, scheme) {
        (Check::None, Scheme::Copy) => "135",
        (Check::None, _) => "338",
        (Check::Separate(Kind::Internet), Scheme::Copy) => "116",
        (Check::Separate(Kind::Internet), _) => "206",
        _ => MISSING,
    };
    let cells = |(series, output, _, check): (String, Scheme, Scheme, Check)| {
        let here = [PAPER_LEN, LONGEST].map(|len| reading.throughput(&series, len));
        row(series, [paper(check, output).to_owned()].into_iter().chain(here))
    };
    let columns = ["scheme, checksum", "paper: 60 KB at 512 Mbit/s", "60 KiB", "16 MiB"];
    let title = "Equivalent throughput of single datagrams in Mbit/s";
    Table::new(title, columns, subjects().into_iter().map(cells))
}

#[cfg(test)]
mod tests;
