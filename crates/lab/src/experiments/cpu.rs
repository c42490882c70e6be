//! `cpu`: I/O processing time, and the throughput at which the processor saturates; from what `latency` has measured.
//!
//! How: t_I/O is the CPU time of both clients' processes around request, posting and the taking of replies; the device's copy
//! stands for the wire and is not counted, nor is waiting. A processor that does nothing else passes L / t_I/O, and a
//! network no more than its rate: theta is the lesser of the two. Beside it stands how many instructions that was, where the
//! machine counts them.
//! Source: J. C. Brustoloni's thesis, §8.1, §8.3, figure 8.5. Differs: that estimated t_I/O as latency less idle time,
//! with the driver's work and interrupts in it.

mod instructions;

use super::latency::{self, LONGEST, PAPER_LEN, schemes};
use super::reading::{MISSING, Reading, judged, per_cent, shown, throughput, untested};
use crate::amounts::significant;
use crate::device::Rate;
use crate::error::Result;
use crate::experiment::{Claim, Declaration, Experiment, Options};
use crate::findings::{Axis, Conclusion, Curve, Figure, Finding, Scale, Table};
use crate::length;
use crate::measurement::{Measurements, Quantity};

/// The experiment.
#[derive(Debug)]
pub(super) struct Cpu;

const ID: &str = "cpu";

static DECLARATION: Declaration = Declaration {
    id: ID,
    title: "I/O processing time, and the throughput at which the CPU saturates",
    source: "J. C. Brustoloni, Effects of Data Passing Semantics and Operating System Structure on Network I/O \
             Performance, §8.3, figure 8.5",
    claims: &[
        Claim {
            id: "copy-needs-a-multiple",
            text: "Copy needs a multiple of the CPU time of every other scheme: 3338 µs for 60 KB, against 970 to 1358 µs.",
            source: "§8.3, figure 8.5",
        },
        Claim {
            id: "emulated-alike",
            text: "The emulated schemes need about the same CPU time: 970 to 1059 µs for 60 KB.",
            source: "§8.3, figure 8.5",
        },
        Claim {
            id: "throughput-gain",
            text: "Where the CPU saturates, emulated copy and emulated share raise the throughput by about 215 %.",
            source: "§8.3",
        },
        Claim {
            id: "slow-networks-hide-it",
            text: "Where the network saturates first, throughput does not depend on the scheme.",
            source: "§8.3",
        },
    ],
    axes: &["data length, 64 B to 16 MiB", "scheme, the same at both ends"],
    needs: &[latency::ID],
};

/// The paper's t_I/O for 60 KB, in microseconds (§8.3).
const PAPER: [(&str, u32); 8] = [
    ("copy", 3338),
    ("emulated copy", 1059),
    ("share", 1358),
    ("emulated share", 1001),
    ("move", 1186),
    ("emulated move", 1026),
    ("weak move", 1204),
    ("emulated weak move", 970),
];
/// Copy needs a multiple if it needs at least twice as much.
const MULTIPLE: f64 = 2.0;
/// How far the paper's emulated schemes were apart.
const ALIKE: f64 = 1.1;
/// What the paper's schemes gained, and the share of it that is enough to say that it holds.
const GAIN: (f64, f64) = (2.15, 0.9);

impl Experiment for Cpu {
    fn declaration(&self) -> &'static Declaration {
        &DECLARATION
    }

    fn conclude(&self, _options: &Options, measurements: &Measurements) -> Result<Conclusion> {
        let setting = Rate::Unlimited.name();
        let times = Reading { measurements, experiment: latency::ID, setting, quantity: Quantity::CpuTime };
        let title = "I/O processing time of sender and receiver together";
        let figure = times.figure("cpu-time", title, "CPU time in µs", Scale::Logarithmic, schemes());
        Ok(Conclusion {
            figures: figure
                .into_iter()
                .chain(saturation(&times))
                .chain(instructions::figures(measurements))
                .collect(),
            tables: [
                times.table("I/O processing time in µs (medians)", "scheme", schemes()),
                beside_the_papers(&times),
                maxima(&times),
            ]
            .into_iter()
            .chain(instructions::tables(measurements))
            .collect(),
            verdicts: verdicts(&times),
            notes: notes(measurements),
        })
    }
}

fn notes(measurements: &Measurements) -> Vec<String> {
    let of_cpu_time = "CPU time is that of all threads of the two clients' processes, as the kernel counts it, less what reading \
                       the clock takes. It was measured without limit to the rate, in operations of their own. The looks for a \
                       reply that is not there yet are waiting, and are not in it."
        .to_owned();
    std::iter::once(of_cpu_time).chain(instructions::notes(measurements)).collect()
}

/// The throughput at which the CPU saturates, by length, in Gbit/s.
fn saturation(times: &Reading<'_>) -> Option<Figure> {
    let curve = |scheme: &'static str| {
        let gbit_s = |(x, us): (u64, f64)| (x as f64, throughput(x, us.max(1e-3)) / 1e3);
        Curve::plain(scheme, times.medians(scheme).into_iter().map(gbit_s))
    };
    let axes = ["data length in bytes", "throughput in Gbit/s"].map(Axis::logarithmic);
    let title = "Throughput at which one CPU saturates that does both clients' data passing";
    Figure::of("cpu-saturation", title, axes, schemes().map(curve))
}

fn beside_the_papers(times: &Reading<'_>) -> Table {
    let lengths = [PAPER_LEN, LONGEST];
    let relative = |scheme: &str, len: u64| {
        let [one, copy] = [scheme, "copy"].map(|one| times.at(one, len));
        one.zip(copy).map_or_else(|| MISSING.to_owned(), |(one, copy)| per_cent(one / copy))
    };
    let row = |(scheme, paper): (&str, u32)| {
        let papers =
            [scheme.to_owned(), paper.to_string(), per_cent(f64::from(paper) / f64::from(PAPER[0].1))];
        papers.into_iter().chain(lengths.map(|len| relative(scheme, len))).collect()
    };
    let headings = ["scheme", "paper: µs for 60 KB", "paper: of copy's"].map(str::to_owned);
    let here = lengths.map(|len| format!("here: of copy's, {}", length::format(len as usize)));
    Table {
        title: "I/O processing time beside the paper's".to_owned(),
        columns: headings.into_iter().chain(here).collect(),
        rows: PAPER.into_iter().map(row).collect(),
    }
}

/// The throughput that the lesser of processor and network allows, in Mbit/s.
fn theta(rate: Rate, len: u64, us: f64) -> f64 {
    let cpu = throughput(len, us.max(1e-3));
    match rate {
        Rate::Unlimited => cpu,
        Rate::Bits(bits) => cpu.min(bits as f64 / 1e6),
    }
}

/// The greatest length that all of these have.
fn longest(times: &Reading<'_>) -> Option<u64> {
    times.lengths(["copy", "emulated copy"]).last().copied()
}

fn maxima(times: &Reading<'_>) -> Table {
    let len = longest(times).unwrap_or(LONGEST);
    let cell = |scheme: &str, rate: Rate| shown(times.at(scheme, len).map(|us| theta(rate, len, us)));
    let row = |scheme: &str| {
        let cells = Rate::ALL.into_iter().map(|rate| cell(scheme, rate));
        std::iter::once(scheme.to_owned()).chain(cells).collect()
    };
    let rates = Rate::ALL.into_iter().map(|rate| rate.name());
    Table {
        title: format!(
            "Maximum throughput theta in Mbit/s by the rate of the network, {} at a time",
            length::format(len as usize)
        ),
        columns: std::iter::once("scheme".to_owned()).chain(rates).collect(),
        rows: schemes().map(row).collect(),
    }
}

fn verdicts(times: &Reading<'_>) -> Vec<Finding> {
    let found = longest(times).and_then(|len| {
        let at = |scheme| times.at(scheme, len);
        let all: Vec<_> = schemes().filter_map(|one| Some((one, at(one)?))).collect();
        let (copy, emulated_copy, shared) = (at("copy")?, at("emulated copy")?, at("emulated share")?);
        Some(vec![
            copy_needs_a_multiple(len, copy, &all),
            emulated_alike(len, &all),
            throughput_gain(len, copy, emulated_copy, shared),
            slow_networks_hide_it(len, &all),
        ])
    });
    found.unwrap_or_else(|| {
        DECLARATION.claims.iter().map(|claim| untested(claim.id, "`latency` measured no CPU time")).collect()
    })
}

fn copy_needs_a_multiple(len: u64, copy: f64, all: &[(&str, f64)]) -> Finding {
    let others = all.iter().filter(|(one, _)| *one != "copy");
    let (name, most) = others.fold(("", 0.0), |most, one| if one.1 > most.1 { *one } else { most });
    let found = format!(
        "{} take {} µs of CPU time by copy, {} times as much as by the next one ({name}, {} µs).",
        length::format(len as usize),
        significant(copy),
        significant(copy / most),
        significant(most)
    );
    judged("copy-needs-a-multiple", copy >= MULTIPLE * most, found)
}

fn emulated_alike(len: u64, all: &[(&str, f64)]) -> Finding {
    let emulated: Vec<_> = all.iter().filter(|(one, _)| one.starts_with("emulated")).collect();
    let each: Vec<_> = emulated.iter().map(|(one, us)| format!("{one} {} µs", significant(*us))).collect();
    let (least, most) =
        emulated.iter().fold((f64::MAX, 0.0f64), |(least, most), (_, us)| (least.min(*us), most.max(*us)));
    let found = format!(
        "{}: {}, a factor of {}.",
        length::format(len as usize),
        each.join(", "),
        significant(most / least)
    );
    judged("emulated-alike", most / least <= ALIKE, found)
}

fn throughput_gain(len: u64, copy: f64, emulated_copy: f64, shared: f64) -> Finding {
    let (by_copy, by_share) = (copy / emulated_copy - 1.0, copy / shared - 1.0);
    let found = format!(
        "For {} emulated copy raises the throughput at which the CPU saturates by {}, emulated share by {}.",
        length::format(len as usize),
        per_cent(by_copy),
        per_cent(by_share)
    );
    judged("throughput-gain", by_copy.min(by_share) >= GAIN.0 * GAIN.1, found)
}

fn slow_networks_hide_it(len: u64, all: &[(&str, f64)]) -> Finding {
    let spread = |rate: Rate| {
        let each = all.iter().map(|(_, us)| theta(rate, len, *us));
        let (least, most) =
            each.fold((f64::MAX, 0.0f64), |(least, most), one| (least.min(one), most.max(one)));
        most / least
    };
    let paced = &Rate::ALL[1..];
    let alike: Vec<_> =
        paced.iter().filter(|rate| spread(**rate) < 1.0 + 1e-9).map(|rate| rate.name()).collect();
    let found = match alike.is_empty() {
        true => "At none of the rates does the network saturate before the CPU with every scheme.".to_owned(),
        false => format!(
            "At {} the network saturates first with every scheme, and all have the same maximum throughput.",
            alike.join(", ")
        ),
    };
    judged("slow-networks-hide-it", !alike.is_empty(), found)
}

#[cfg(test)]
mod tests {
    use super::super::synthetic::{Made, run};
    use super::*;
    use crate::findings::Verdict;
    use crate::interface::Granule;

    const OPTIONS: Options = Options { smoke: false, granule: Granule::Best, seed: 1 };

    fn conclude(us: impl Fn(&str) -> f64) -> Conclusion {
        let points = schemes().flat_map(|series| [PAPER_LEN, LONGEST].map(|x| (series, x)));
        let made = |(series, x)| Made {
            setting: "unlimited",
            series,
            x,
            quantity: Quantity::CpuTime,
            us: us(series) * x as f64 / PAPER_LEN as f64,
        };
        Cpu.conclude(&OPTIONS, &run(latency::ID, points.map(made))).unwrap()
    }

    fn papers(scheme: &str) -> f64 {
        PAPER.into_iter().find(|(one, _)| *one == scheme).map(|(_, us)| f64::from(us)).unwrap()
    }

    #[test]
    fn the_papers_own_times_bear_its_claims_out() {
        let conclusion = conclude(|scheme| papers(scheme) / 100.0);
        for finding in &conclusion.verdicts {
            assert_eq!(finding.verdict, Verdict::Holds, "{}: {}", finding.claim, finding.found);
        }
        assert!(
            conclusion
                .tables
                .iter()
                .all(|table| table.rows.iter().all(|row| row.len() == table.columns.len()))
        );
        assert_eq!(conclusion.tables[1].rows[1][2..], ["32 %", "32 %", "32 %"].map(str::to_owned));
    }

    #[test]
    fn times_that_are_all_alike_refute_what_says_that_copy_needs_more() {
        let found = conclude(|_| 10.0).verdicts;
        let verdicts: Vec<_> = found.iter().map(|finding| finding.verdict).collect();
        assert_eq!(
            verdicts,
            [Verdict::DoesNotHold, Verdict::Holds, Verdict::DoesNotHold, Verdict::Holds],
            "{found:?}"
        );
    }

    #[test]
    fn without_latency_there_is_nothing_to_conclude_from() {
        let conclusion = Cpu.conclude(&OPTIONS, &Measurements::default()).unwrap();
        assert!(conclusion.figures.is_empty());
        assert!(conclusion.verdicts.iter().all(|finding| finding.verdict == Verdict::CannotBeTested));
    }

    #[test]
    fn the_network_or_the_cpu_bounds_throughput_whichever_is_slower() {
        let mbit = 1e6;
        assert!((theta(Rate::Bits(155_000_000), 61_440, 3338.0) - 147.25).abs() < 0.01);
        assert!((theta(Rate::Bits(100_000_000), 61_440, 3338.0) - 100.0).abs() < 0.01);
        assert!((theta(Rate::Unlimited, 61_440, 0.4915) / mbit - 1.0).abs() < 0.01);
    }
}
