//! `latency`: end-to-end latency by scheme and length, with early demultiplexing, at several rates of the network.
//!
//! How: a step is one rate and length; all schemes take turns in it, each at both ends. In some rounds CPU time is
//! measured in place of latency, and in some instructions are counted; [`super::cpu`] concludes from that.
//! Source: J. C. Brustoloni's thesis, figure 8.1, §8.2.1.

mod verdicts;

use genie::Scheme;

use super::reading::{Reading, slug};
use super::sweep::{Rounds, Setting, Sweep};
use super::turns::{HAND_OVER, HAND_OVER_ALL, Subject};
use crate::amounts::significant;
use crate::device::Rate;
use crate::error::Result;
use crate::experiment::{Claim, Declaration, Experiment, Options, Sitting, Step};
use crate::findings::{Conclusion, Figure, Scale, Table};
use crate::length;
use crate::measurement::{Measurements, Quantity};
use crate::parties::{Route, Seats};

/// The experiment.
#[derive(Debug)]
pub(super) struct Latency;

/// Its id.
pub(super) const ID: &str = "latency";

/// The longest datagram of the papers: 60 KiB.
pub(super) const PAPER_LEN: u64 = 61_440;
/// The longest one here.
pub(super) const LONGEST: u64 = 16 << 20;

/// The lengths without limit.
const LENGTHS: [usize; 10] =
    [64, 4 << 10, 16 << 10, 60 << 10, 256 << 10, 1 << 20, 2 << 20, 4 << 20, 8 << 20, 16 << 20];
/// At a rate, of these those that take no longer than this.
const LENGTHS_PACED: [usize; 6] = [64, 4 << 10, 60 << 10, 256 << 10, 1 << 20, 16 << 20];
const OPERATION_MAX_MS: u128 = 100;
const LENGTHS_SMOKE: [usize; 2] = [64, 60 << 10];

/// Seconds for one step, without limit and at a rate.
const SECONDS: (f64, f64) = (2.0, 1.2);
/// What each has at least: two samples of CPU time, and one of instructions.
const ROUNDS_LEAST: usize = 8;
const ROUNDS_SMOKE: usize = 4;

static DECLARATION: Declaration = Declaration {
    id: ID,
    title: "End-to-end latency by scheme and length, with early demultiplexing",
    source: "J. C. Brustoloni, Effects of Data Passing Semantics and Operating System Structure on Network I/O \
             Performance, §8.2.1, figure 8.1",
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
        Setting { name: rate.name(), granule: options.granule, rate: Some(*rate), lengths, seconds }
    };
    let rates = if options.smoke { &Rate::ALL[..3] } else { &Rate::ALL[..] };
    Sweep {
        id: ID,
        settings: rates.iter().map(setting).collect(),
        subjects: Subject::schemes(),
        routes: vec![Route::Device],
        rounds: Rounds::of(options, ROUNDS_SMOKE, ROUNDS_LEAST),
        processing: true,
        seed: options.seed,
    }
}

impl Experiment for Latency {
    fn declaration(&self) -> &'static Declaration {
        &DECLARATION
    }

    fn steps(&self, options: &Options) -> Vec<Step> {
        sweep(options).steps()
    }

    fn sit<'a>(&'a self, options: &'a Options) -> Result<Box<dyn Sitting + 'a>> {
        Ok(Box::new(sweep(options).sit()))
    }

    fn conclude(&self, options: &Options, measurements: &Measurements) -> Result<Conclusion> {
        let settings: Vec<_> = Rate::ALL.iter().map(|rate| rate.name()).collect();
        let readings: Vec<_> = settings.into_iter().map(|setting| reading(measurements, setting)).collect();
        Ok(Conclusion {
            figures: readings.iter().filter_map(figure).collect(),
            tables: readings.iter().filter_map(table).chain([throughputs(&readings)]).collect(),
            verdicts: verdicts::all(options, &readings),
            notes: notes(measurements, &readings),
        })
    }
}

/// The names of the schemes, which are those of the curves.
pub(super) fn schemes() -> impl Iterator<Item = &'static str> + Clone {
    Scheme::ALL.into_iter().map(|scheme| scheme.name())
}

fn reading(measurements: &Measurements, setting: String) -> Reading<'_> {
    Reading { measurements, experiment: ID, setting, quantity: Quantity::Latency }
}

fn figure(reading: &Reading<'_>) -> Option<Figure> {
    let rate = &reading.setting;
    let name = format!("latency-{}", slug(rate));
    let title = format!("End-to-end latency, rate of the network: {rate}");
    reading.figure(&name, &title, "end-to-end latency in µs", Scale::Logarithmic, schemes())
}

fn table(reading: &Reading<'_>) -> Option<Table> {
    let title = format!("End-to-end latency in µs (medians), rate of the network: {}", reading.setting);
    let table = reading.table(title, "scheme", schemes());
    (table.columns.len() > 1).then_some(table)
}

/// Equivalent throughput of single datagrams, beside the paper's.
fn throughputs(readings: &[Reading<'_>]) -> Table {
    let lengths = [PAPER_LEN, LONGEST];
    let columns = readings.iter().flat_map(|reading| lengths.map(|len| (reading, len)));
    let columns: Vec<_> =
        columns.filter(|(reading, len)| schemes().any(|one| reading.at(one, *len).is_some())).collect();
    let heading = |(reading, len): &(&Reading<'_>, u64)| {
        format!("{} at {}", length::format(*len as usize), reading.setting)
    };
    let row = |(scheme, paper): (&str, u32)| {
        let first = [scheme.to_owned(), paper.to_string()];
        first
            .into_iter()
            .chain(columns.iter().map(|(reading, len)| reading.throughput(scheme, *len)))
            .collect()
    };
    Table {
        title: "Equivalent throughput of single datagrams in Mbit/s".to_owned(),
        columns: ["scheme".to_owned(), "paper: 60 KB at 512 Mbit/s".to_owned()]
            .into_iter()
            .chain(columns.iter().map(heading))
            .collect(),
        rows: verdicts::PAPER.into_iter().map(row).collect(),
    }
}

fn notes(measurements: &Measurements, readings: &[Reading<'_>]) -> Vec<String> {
    let mut notes = vec![
        "The device copies the data once; that copy stands for the wire, and is in every scheme's latency. Rates are \
         kept by a token bucket in the device, which waits by spinning."
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

/// Who shared a CPU with whom, as the measurements tell, and what handing it over took.
pub(super) fn seating(measurements: &Measurements, experiment: &str, setting: &str) -> Vec<String> {
    let own = Seats { sender: 2, device: 1, receiver: 0 };
    let cases = [
        (HAND_OVER, Seats { sender: 1, device: 0, receiver: 1 }),
        (HAND_OVER_ALL, Seats { sender: 0, device: 0, receiver: 0 }),
    ];
    let reading =
        Reading { measurements, experiment, setting: setting.to_owned(), quantity: Quantity::Latency };
    let shared = cases.iter().find_map(|(series, seats)| Some((seats, *reading.medians(series).first()?)));
    let Some((seats, (len, us))) = shared else { return vec![own.sentence().to_owned()] };
    let handed = format!(
        "Handing the CPU over, from the end of the sender's request until the receiver ran, took {} µs (median at {}).",
        significant(us),
        length::format(len as usize)
    );
    vec![seats.sentence().to_owned(), handed]
}

#[cfg(test)]
mod tests;
