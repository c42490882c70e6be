//! `checksum`: end-to-end latency with and without a checksum, by copy and by emulated copy; and the cost of checksums
//! alone.
//!
//! How: datagram servers in the clients' processes ([`genie_net::datagram`]) compute the checksum at the sender's end and verify it at the
//! receiver's, for real. A checksum that is integrated with the copy is computed by a server that copies an output itself, reading the data
//! once. On input that would be wrong: by the time that damage is found, damaged data would have reached the client's buffer, which copy's
//! meaning forbids (§8.4). So it is not done on input.
//! Limits: data up to a datagram's; checksums alone are measured up to 16 MiB.
//! Source: J. C. Brustoloni's thesis, §8.4, figure 8.6.

mod bare;
mod verdicts;

use genie::Scheme;

use super::described::{Described, Measuring};
use super::latency::{PAPER_LEN, shown};
use super::reading::{MISSING, Reading};
use super::sweep::{self, Setting, Sweep};
use super::transfers::Passing;
use super::turns::Subject;
use crate::error::Result;
use crate::experiment::{Claim, Declaration, Options, Sitting, Step};
use crate::findings::{Conclusion, Scale, Table, row};
use crate::length;
use crate::measurement::{Measured, Measurements, Quantity};
use crate::medium::Medium;
use crate::parties::{Network, Place, Route, Transfer};
use genie_net::Rate;
use genie_net::datagram::Summing;

const ID: &str = "checksum";

const LENGTHS: [usize; 6] = [64, 4 << 10, 8 << 10, 16 << 10, 32 << 10, PAPER_LEN as usize];
/// Lengths of which checksums alone are measured besides: no datagram is so long.
const LENGTHS_ALONE: [usize; 4] = [256 << 10, 1 << 20, 4 << 20, 16 << 20];
const LENGTHS_SMOKE: [usize; 2] = [64, 60 << 10];

const SECONDS: f64 = 1.5;
/// The number of rounds in a smoke run, and the least number otherwise.
const ROUNDS: (usize, usize) = (3, 10);

/// What is done for checksums.
const SUMMINGS: [Summing; 3] = [Summing::None, Summing::Separate, Summing::Integrated];
/// Whether data is copied where that is cheaper: first, as the papers' schemes did it.
const PASSINGS: [Passing; 2] = [Passing::Off, Passing::Calibrated];

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
        "data length, 64 B to 60 KiB",
        "copy or emulated copy",
        "checksum, separate or integrated with the copy",
        "thresholds off or calibrated",
    ],
    needs: &[],
};

/// The subjects that take turns: a curve's name, the sender's scheme, the receiver's scheme, and which of [`SUMMINGS`] the servers do.
fn subjects() -> Vec<(String, Scheme, Scheme, usize)> {
    let of = |(parties, summing): (usize, &Summing)| {
        let subject = |output, input: Scheme| (name(input.name(), *summing), output, input, parties);
        match summing {
            // The server makes the copy, so the client lets it see the data in place until the copy is made.
            Summing::Integrated => vec![subject(Scheme::EmulatedShare, Scheme::Copy)],
            _ => [Scheme::Copy, Scheme::EmulatedCopy].map(|scheme| subject(scheme, scheme)).to_vec(),
        }
    };
    SUMMINGS.iter().enumerate().flat_map(of).collect()
}

/// A curve's name.
fn name(scheme: &str, summing: Summing) -> String {
    match summing {
        Summing::None => scheme.to_owned(),
        Summing::Separate => format!("{scheme} + checksum"),
        Summing::Integrated => format!("{scheme} with checksum"),
    }
}

fn lengths(options: &Options) -> &'static [usize] {
    if options.smoke { &LENGTHS_SMOKE } else { &LENGTHS }
}

/// The lengths of which the cost of checksums alone is measured.
fn bare_lengths(options: &Options) -> impl Iterator<Item = usize> {
    let beyond: &[usize] = if options.smoke { &[] } else { &LENGTHS_ALONE };
    lengths(options).iter().chain(beyond).copied()
}

fn sweep(options: &Options) -> Sweep {
    let subject = |(series, output, input, parties)| Subject {
        series,
        parties,
        transfer: Transfer { output, input, ..Transfer::of(output, 0) },
    };
    let setting = |passing: Passing| {
        let of = |summing| Network {
            medium: Medium::Wire(Rate::Unlimited),
            calibrated: passing == Passing::Calibrated,
            place: Place::InProcess,
            summing,
        };
        let routes = SUMMINGS.map(|summing| Route::Datagrams(of(summing))).to_vec();
        Setting {
            name: passing.name().to_owned(),
            ..Setting::only(options, routes, lengths(options), SECONDS)
        }
    };
    let subjects = subjects().into_iter().map(subject).collect();
    Sweep::new(ID, options, PASSINGS.map(setting).to_vec(), subjects, ROUNDS)
}

/// The name of the step that measures the cost of checksums alone.
fn bare_name(len: usize) -> String {
    format!("alone, {}", length::format(len))
}

fn steps(options: &Options) -> Vec<Step> {
    let bare = |len: usize| Step { name: bare_name(len), seconds: 0.3 };
    sweep(options).steps().into_iter().chain(bare_lengths(options).map(bare)).collect()
}

fn sit(options: &Options) -> Result<Box<dyn Sitting + '_>> {
    Ok(Box::new(Seated { options, transfers: sweep(options).sit() }))
}

fn conclude(measurements: &Measurements) -> Conclusion {
    let readings = PASSINGS.map(|passing| Reading::of(measurements, ID, passing.name(), Quantity::Latency));
    let names: Vec<_> = subjects().into_iter().map(|(name, ..)| name).collect();
    let titles = ["Latency with and without checksums: ", "End-to-end latency in µs (medians): "];
    let (mut figures, mut tables) = shown(&readings, ID, titles, Scale::Logarithmic, names);
    let bare = bare::reading(measurements);
    figures.extend(bare::figure(&bare));
    tables.extend([throughputs(&readings), bare::table(&bare)]);
    Conclusion { figures, tables, verdicts: verdicts::all(&readings[0]), notes: notes() }
}

fn notes() -> Vec<String> {
    vec![
        "\"+\" means that data is summed in a pass of its own at either end, \"with\" that the sender's end sums while it \
         copies; the receiver's end always verifies in a pass of its own."
            .to_owned(),
        "The wire here copies the data, too, which leaves it in a cache: the papers' adapter left it in memory. No datagram is longer \
         than 64 KiB less its headers, so longer data has rows of checksums alone. CRC32C is computed by the crate crc-fast. \
         No crate has the Internet checksum at memory speed, so that those few lines are Genie's own. No crate integrates either \
         with copying: here the Internet checksum is added up while each line is stored, CRC32C block by block, in the first-level \
         cache. A line that another CPU has read is fetched before it is stored so, which a copying instruction avoids; up to some \
         64 KiB that may cost more than the second pass."
            .to_owned(),
    ]
}

struct Seated<'a> {
    options: &'a Options,
    transfers: sweep::Seated,
}

impl Sitting for Seated<'_> {
    fn measure(&mut self, step: &Step) -> Result<Vec<Measured>> {
        let bare = bare_lengths(self.options).find(|len| bare_name(*len) == step.name);
        bare.map_or_else(|| self.transfers.measure(step), |len| Ok(bare::measure(len, self.options)))
    }
}

/// Equivalent throughput of single datagrams, beside the paper's.
fn throughputs(readings: &[Reading<'_>]) -> Table {
    let paper = |summing: Summing, scheme: Scheme| match (summing, scheme) {
        (Summing::None, Scheme::Copy) => "135",
        (Summing::None, _) => "338",
        (Summing::Separate, Scheme::Copy) => "116",
        (Summing::Separate, _) => "206",
        (Summing::Integrated, _) => MISSING,
    };
    let cells = |(series, _, input, parties): (String, Scheme, Scheme, usize)| {
        let here = readings.iter().map(|reading| reading.throughput(&series, PAPER_LEN));
        row(&series, [paper(SUMMINGS[parties], input).to_owned()].into_iter().chain(here))
    };
    let here = readings.iter().map(|reading| format!("60 KiB, {}", reading.setting));
    let columns =
        ["scheme, checksum", "paper: 60 KB at 512 Mbit/s"].map(str::to_owned).into_iter().chain(here);
    let title = "Equivalent throughput of single datagrams in Mbit/s";
    Table::new(title, columns, subjects().into_iter().map(cells))
}

#[cfg(test)]
mod tests;
