//! `latency`: end-to-end latency by scheme and length, with early demultiplexing, at several rates of the network.
//!
//! How: a step is one rate and one length; all schemes take turns in it, each at both ends. In some rounds CPU time is
//! measured instead of latency, and in some rounds instructions are counted; [`super::cpu`] concludes from these.
//! Source: J. C. Brustoloni's thesis, figure 8.1, §8.2.1.

mod verdicts;

use genie::Scheme;

use super::described::{Described, Measuring};
use super::reading::{Reading, bytes, slug};
use super::sweep::{Setting, Sweep};
use super::turns::{HAND_OVER, HAND_OVER_ALL, Subject};
use crate::amounts::significant;
use crate::experiment::{Claim, Declaration, Options};
use crate::findings::{Conclusion, Figure, Scale, Table, row};
use crate::measurement::{Measurements, Quantity};
use crate::papers::brustoloni::{self, EquivalentThroughput};
use crate::parties::{Route, Seats};
use genie_net::Rate;

/// The experiment's id.
pub(super) const ID: &str = "latency";

/// The longest datagram of the papers: 60 KiB.
pub(super) const PAPER_LEN: u64 = 61_440;
/// The longest datagram here.
pub(super) const LONGEST: u64 = 16 << 20;

/// The lengths where the network has no limit.
pub(super) const LENGTHS: [usize; 10] =
    [64, 4 << 10, 16 << 10, 60 << 10, 256 << 10, 1 << 20, 2 << 20, 4 << 20, 8 << 20, 16 << 20];
/// The lengths at a rate, as far as one operation takes no longer than `OPERATION_MAX_MS`.
const LENGTHS_PACED: [usize; 6] = [64, 4 << 10, 60 << 10, 256 << 10, 1 << 20, 16 << 20];
const OPERATION_MAX_MS: u128 = 100;
const LENGTHS_SMOKE: [usize; 2] = [64, 60 << 10];

/// Seconds for one step, without limit and at a rate.
const SECONDS: (f64, f64) = (2.0, 1.2);
/// The number of rounds in a smoke run, and the least number otherwise: that gives two samples of CPU time, and one of
/// instructions.
const ROUNDS: (usize, usize) = (4, 8);

/// The experiment.
pub(super) static LATENCY: Described =
    Described { declaration: &DECLARATION, measuring: Measuring::Sweep(sweep), conclude };

static DECLARATION: Declaration = Declaration {
    id: ID,
    title: "End-to-end latency by scheme and length, with early demultiplexing",
    source: brustoloni!("§8.2.1, figure 8.1"),
    claims: &[
        Claim {
            id: "copy-apart",
            text: "Copy takes far longer than every other scheme: single 60 KB datagrams at 512 Mbit/s passed at 135 \
                   Mbit/s by copy, and at 328 to 379 Mbit/s by the others.",
            source: "§8.2.1, figure 8.1",
        },
        Claim {
            id: "others-close",
            text: "The schemes other than copy are close together: 328 to 379 Mbit/s, a factor of 1.16.",
            source: "§8.2.1, figure 8.1",
        },
        Claim {
            id: "emulated-copy-gains",
            text: "Emulated copy, which means the same as copy, takes 60 % less time for 60 KB.",
            source: "§8.2.1",
        },
        Claim {
            id: "emulated-copy-like-share",
            text: "Emulated copy takes less time than move (338 against 328 Mbit/s), and about as much as share (341).",
            source: "§8.2.1",
        },
        Claim {
            id: "emulated-share-lowest",
            text: "No scheme takes less time than emulated share (379 Mbit/s).",
            source: "§8.2.1, §8.2.2",
        },
        Claim {
            id: "network-levels",
            text: "Where the network takes most of the time, schemes other than copy differ least.",
            source: "§8.2.2",
        },
    ],
    axes: &["data length, 64 B to 16 MiB", "scheme, the same at both ends", "rate of the network"],
    needs: &[],
};

fn sweep(options: &Options) -> Sweep {
    let setting = |rate: &Rate| {
        let (lengths, seconds): (&[usize], f64) = match (options.smoke, rate) {
            (true, _) => (&LENGTHS_SMOKE, SECONDS.0),
            (false, Rate::Unlimited) => (&LENGTHS, SECONDS.0),
            (false, Rate::Bits(_)) => (&LENGTHS_PACED, SECONDS.1),
        };
        let is_short = |len: &usize| rate.time(*len as u64).as_millis() <= OPERATION_MAX_MS;
        let lengths = lengths.iter().copied().filter(is_short).collect();
        let (name, granule, routes) = (rate.name(), options.granule, vec![Route::Device(*rate)]);
        Setting { name, granule, routes, lengths, seconds }
    };
    let rates = if options.smoke { &Rate::ALL[..3] } else { &Rate::ALL[..] };
    let settings = rates.iter().map(setting).collect();
    Sweep { processing: true, ..Sweep::new(ID, options, settings, Subject::schemes(), ROUNDS) }
}

fn conclude(measurements: &Measurements) -> Conclusion {
    let reading = |rate: Rate| Reading::of(measurements, ID, rate.name(), Quantity::Latency);
    let readings = Rate::ALL.map(reading);
    let titles = [
        "End-to-end latency, rate of the network: ",
        "End-to-end latency in µs (medians), rate of the network: ",
    ];
    let (figures, mut tables) = shown(&readings, ID, titles, Scale::Logarithmic, schemes());
    tables.push(throughputs(&readings));
    Conclusion { figures, tables, verdicts: verdicts::all(&readings), notes: notes(measurements, &readings) }
}

/// The names of the schemes, which are those of the curves.
pub(super) fn schemes() -> impl Iterator<Item = &'static str> + Clone {
    Scheme::ALL.into_iter().map(|scheme| scheme.name())
}

/// A figure and a table of each setting's latencies by series and length, as far as they were measured. The first title
/// is of the figures, the second of the tables; the setting follows.
pub(super) fn shown(
    readings: &[Reading<'_>],
    id: &str,
    titles: [&str; 2],
    scale: Scale,
    series: impl IntoIterator<Item = impl AsRef<str>> + Clone,
) -> (Vec<Figure>, Vec<Table>) {
    let figure = |reading: &Reading<'_>| {
        let name = format!("{id}-{}", slug(&reading.setting));
        let title = format!("{}{}", titles[0], reading.setting);
        reading.figure(&name, &title, "end-to-end latency in µs", scale, series.clone())
    };
    let table = |reading: &Reading<'_>| {
        reading.table(format!("{}{}", titles[1], reading.setting), "scheme", series.clone())
    };
    let tables = readings.iter().map(table).filter(|table| table.columns.len() > 1);
    (readings.iter().filter_map(figure).collect(), tables.collect())
}

/// Equivalent throughput of single datagrams, beside the paper's.
fn throughputs(readings: &[Reading<'_>]) -> Table {
    let columns = readings.iter().flat_map(|reading| [PAPER_LEN, LONGEST].map(|len| (reading, len)));
    let was_measured =
        |(reading, len): &(&Reading<'_>, u64)| schemes().any(|one| reading.at(one, *len).is_some());
    let columns: Vec<_> = columns.filter(was_measured).collect();
    let headings = columns.iter().map(|(reading, len)| format!("{} at {}", bytes(*len), reading.setting));
    let cells = |paper: EquivalentThroughput| {
        let here = columns.iter().map(|(reading, len)| reading.throughput(&paper.scheme, *len));
        let cells: Vec<_> = [paper.early_demultiplexing.to_string()].into_iter().chain(here).collect();
        row(paper.scheme, cells)
    };
    let first = ["scheme", "paper: 60 KB at 512 Mbit/s"].map(str::to_owned);
    Table::new(
        "Equivalent throughput of single datagrams in Mbit/s",
        first.into_iter().chain(headings),
        brustoloni::equivalent_throughputs().into_iter().map(cells),
    )
}

fn notes(measurements: &Measurements, readings: &[Reading<'_>]) -> Vec<String> {
    let mut notes = vec![
        "The device copies the data once; that copy stands for the wire, and is in every scheme's latency. Without a limit of the rate \
         data is one packet. At a rate a packet has 60 KiB, or what passes in 20 µs, and arrives when its last bit would have; its \
         copy comes on top."
            .to_owned(),
    ];
    notes.extend(seating(measurements, ID, &readings[0].setting));
    let missing: Vec<_> = schemes().filter(|one| readings[0].medians(one).is_empty()).collect();
    if !missing.is_empty() && missing.len() < Scheme::ALL.len() {
        let names = missing.join(", ");
        notes.push(format!("Left out, since memory could not be wired (ulimit -l unlimited): {names}."));
    }
    notes
}

/// Which parties shared a CPU, as the measurements show, and how long handing it over took.
pub(super) fn seating(measurements: &Measurements, experiment: &'static str, setting: &str) -> Vec<String> {
    let own = Seats { sender: 2, device: 1, receiver: 0 };
    let cases = [
        (HAND_OVER, Seats { sender: 1, device: 0, receiver: 1 }),
        (HAND_OVER_ALL, Seats { sender: 0, device: 0, receiver: 0 }),
    ];
    let reading = Reading::of(measurements, experiment, setting, Quantity::Latency);
    let shared = cases.iter().find_map(|(series, seats)| Some((seats, *reading.medians(series).first()?)));
    let Some((seats, (len, us))) = shared else { return vec![own.sentence().to_owned()] };
    let handed = format!(
        "Handing the CPU over, from the end of the sender's request until the receiver ran, took {} µs (median at {}).",
        significant(us),
        bytes(len)
    );
    vec![seats.sentence().to_owned(), handed]
}

#[cfg(test)]
mod tests;
