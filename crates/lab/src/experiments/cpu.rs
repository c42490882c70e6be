//! `cpu`: I/O processing time, and the throughput at which the processor saturates; from the measurements of `latency`.
//!
//! How: t_I/O is the CPU time of both clients' processes around request, posting and the taking of replies; the device's copy
//! stands for the wire and is not counted, nor is waiting. A processor that does nothing else passes L / t_I/O, and a
//! network no more than its rate: theta is the lesser of the two. The number of instructions is shown beside it, where the
//! machine counts them.
//! Source: J. C. Brustoloni's thesis, §8.1, §8.3, figure 8.5. Differs: the thesis estimated t_I/O as latency less idle time,
//! which includes the driver's work and interrupts.

mod instructions;

use super::described::{Described, Measuring};
use super::latency::{self, LONGEST, PAPER_LEN, schemes};
use super::reading::{MISSING, Reading, bytes, ends, findings, per_cent, shown, throughput};
use crate::amounts::significant;
use crate::experiment::{Claim, Declaration};
use crate::findings::{Axis, Conclusion, Curve, Figure, Finding, Judgement, Scale, Table, row};
use crate::measurement::{Measurements, Quantity};
use crate::papers::brustoloni::{self, ProcessingTime};
use genie_net::Rate;

/// The experiment.
pub(super) static CPU: Described =
    Described { declaration: &DECLARATION, measuring: Measuring::Nothing, conclude };

static DECLARATION: Declaration = Declaration {
    id: "cpu",
    title: "I/O processing time, and the throughput at which the CPU saturates",
    source: brustoloni!("§8.3, figure 8.5"),
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

/// Copy needs a multiple if it needs at least twice as much.
const MULTIPLE: f64 = 2.0;
/// The factor by which the paper's emulated schemes were apart.
const ALIKE: f64 = 1.1;
/// The gain of the paper's schemes, and the share of it that suffices for the claim to hold.
const GAIN: (f64, f64) = (2.15, 0.9);

fn conclude(measurements: &Measurements) -> Conclusion {
    let times = Reading::of(measurements, latency::ID, Rate::Unlimited.name(), Quantity::CpuTime);
    let title = "I/O processing time of sender and receiver together";
    let figure = times.figure("cpu-time", title, "CPU time in µs", Scale::Logarithmic, schemes());
    let figures = figure.into_iter().chain(saturation(&times)).chain(instructions::figures(measurements));
    let tables = [
        times.table("I/O processing time in µs (medians)", "scheme", schemes()),
        beside_the_papers(&times),
        maxima(&times),
    ];
    Conclusion {
        figures: figures.collect(),
        tables: tables.into_iter().chain(instructions::tables(measurements)).collect(),
        verdicts: verdicts(&times),
        notes: notes(measurements),
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
    let papers = brustoloni::processing_times();
    let papers_copy = papers[0].processing_time.value();
    let relative = |scheme: &str, len: u64| {
        let both = times.at(scheme, len).zip(times.at("copy", len));
        both.map_or_else(|| MISSING.to_owned(), |(one, copy)| per_cent(one / copy))
    };
    let cells = |paper: &ProcessingTime| {
        let time = paper.processing_time;
        let of_the_paper = [time.to_string(), per_cent(time.value() / papers_copy)];
        let here = lengths.map(|len| relative(&paper.scheme, len));
        row(&paper.scheme, of_the_paper.into_iter().chain(here))
    };
    let headings = ["scheme", "paper: µs for 60 KB", "paper: of copy's"].map(str::to_owned);
    let here = lengths.map(|len| format!("here: of copy's, {}", bytes(len)));
    Table::new(
        "I/O processing time beside the paper's",
        headings.into_iter().chain(here),
        papers.iter().map(cells),
    )
}

/// The throughput that processor and network allow, whichever allows less, in Mbit/s.
fn theta(rate: Rate, len: u64, us: f64) -> f64 {
    let cpu = throughput(len, us.max(1e-3));
    match rate {
        Rate::Unlimited => cpu,
        Rate::Bits(bits) => cpu.min(bits as f64 / 1e6),
    }
}

/// The greatest length that was measured for all schemes.
fn longest(times: &Reading<'_>) -> Option<u64> {
    times.lengths(["copy", "emulated copy"]).last().copied()
}

fn maxima(times: &Reading<'_>) -> Table {
    let len = longest(times).unwrap_or(LONGEST);
    let cell = |scheme: &str, rate: Rate| shown(times.at(scheme, len).map(|us| theta(rate, len, us)));
    let cells = |scheme: &str| row(scheme, Rate::ALL.map(|rate| cell(scheme, rate)));
    let title =
        format!("Maximum throughput theta in Mbit/s by the rate of the network, {} at a time", bytes(len));
    Table::new(title, row("scheme", Rate::ALL.map(Rate::name)), schemes().map(cells))
}

fn verdicts(times: &Reading<'_>) -> Vec<Finding> {
    let judgements = longest(times).and_then(|len| {
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
    findings(&DECLARATION, judgements.ok_or("`latency` measured no CPU time"))
}

fn copy_needs_a_multiple(len: u64, copy: f64, all: &[(&str, f64)]) -> Judgement {
    let others = all.iter().filter(|(one, _)| *one != "copy");
    let (name, most) = others.fold(("", 0.0), |most, one| if one.1 > most.1 { *one } else { most });
    let found = format!(
        "{} take {} µs of CPU time by copy, {} times as much as by the next one ({name}, {} µs).",
        bytes(len),
        significant(copy),
        significant(copy / most),
        significant(most)
    );
    Ok((copy >= MULTIPLE * most, found))
}

fn emulated_alike(len: u64, all: &[(&str, f64)]) -> Judgement {
    let emulated = || all.iter().filter(|(one, _)| one.starts_with("emulated"));
    let each: Vec<_> = emulated().map(|(one, us)| format!("{one} {} µs", significant(*us))).collect();
    let (least, most) = ends(emulated().map(|(_, us)| *us)).ok_or("no emulated scheme was measured")?;
    let factor = significant(most / least);
    Ok((most / least <= ALIKE, format!("{}: {}, a factor of {factor}.", bytes(len), each.join(", "))))
}

fn throughput_gain(len: u64, copy: f64, emulated_copy: f64, shared: f64) -> Judgement {
    let (by_copy, by_share) = (copy / emulated_copy - 1.0, copy / shared - 1.0);
    let found = format!(
        "For {} emulated copy raises the throughput at which the CPU saturates by {}, emulated share by {}.",
        bytes(len),
        per_cent(by_copy),
        per_cent(by_share)
    );
    Ok((by_copy.min(by_share) >= GAIN.0 * GAIN.1, found))
}

fn slow_networks_hide_it(len: u64, all: &[(&str, f64)]) -> Judgement {
    let is_alike = |rate: &Rate| {
        let ends = ends(all.iter().map(|(_, us)| theta(*rate, len, *us)));
        ends.is_some_and(|(least, most)| most / least < 1.0 + 1e-9)
    };
    let alike: Vec<_> = Rate::ALL[1..].iter().filter(|rate| is_alike(rate)).map(|rate| rate.name()).collect();
    let found = match alike.is_empty() {
        true => "At none of the rates does the network saturate before the CPU with every scheme.".to_owned(),
        false => format!(
            "At {} the network saturates first with every scheme, and all have the same maximum throughput.",
            alike.join(", ")
        ),
    };
    Ok((!alike.is_empty(), found))
}

#[cfg(test)]
mod tests {
    use super::super::synthetic::{made, run};
    use super::*;
    use crate::findings::Verdict;

    fn concluded(us: impl Fn(&str) -> f64) -> Conclusion {
        let points = schemes().flat_map(|series| [PAPER_LEN, LONGEST].map(|x| (series, x)));
        let made = |(series, x)| {
            let us = us(series) * x as f64 / PAPER_LEN as f64;
            made("unlimited", series, Quantity::CpuTime, (x, us))
        };
        conclude(&run(latency::ID, points.map(made)))
    }

    fn papers(scheme: &str) -> f64 {
        let times = brustoloni::processing_times();
        times.iter().find(|time| time.scheme == scheme).map(|time| time.processing_time.value()).unwrap()
    }

    #[test]
    fn the_papers_own_times_bear_its_claims_out() {
        let conclusion = concluded(|scheme| papers(scheme) / 100.0);
        assert_eq!(conclusion.judged(), [Verdict::Holds; 4], "{:?}", conclusion.verdicts);
        conclusion.check_tables();
        assert_eq!(conclusion.tables[1].rows[1][2..], ["32 %", "32 %", "32 %"].map(str::to_owned));
    }

    #[test]
    fn times_that_are_all_alike_refute_what_says_that_copy_needs_more() {
        let conclusion = concluded(|_| 10.0);
        let expected = [Verdict::DoesNotHold, Verdict::Holds, Verdict::DoesNotHold, Verdict::Holds];
        assert_eq!(conclusion.judged(), expected, "{:?}", conclusion.verdicts);
    }

    #[test]
    fn a_saturated_cpu_passes_roughly_215_per_cent_more_with_emulated_copy_and_emulated_share() {
        let gain = |scheme| {
            theta(Rate::Unlimited, PAPER_LEN, papers(scheme))
                / theta(Rate::Unlimited, PAPER_LEN, papers("copy"))
                - 1.0
        };
        assert_eq!(per_cent(gain("emulated copy")), "215 %");
        // The paper says roughly 215 % of both; the times' coefficients of variation were 5 to 10 %.
        assert_eq!(per_cent(gain("emulated share")), "233 %");
    }

    #[test]
    fn the_network_or_the_cpu_bounds_throughput_whichever_is_slower() {
        let mbit = 1e6;
        assert!((theta(Rate::Bits(155_000_000), 61_440, 3338.0) - 147.25).abs() < 0.01);
        assert!((theta(Rate::Bits(100_000_000), 61_440, 3338.0) - 100.0).abs() < 0.01);
        assert!((theta(Rate::Unlimited, 61_440, 0.4915) / mbit - 1.0).abs() < 0.01);
    }
}
