//! `projection`: how much of the advantage of not copying remains when CPUs and copying become faster.
//!
//! How: the model is computed with the paper's figures, and with this machine's figures in their place: the CPU time of one
//! transfer by copy, how much of that time is copying, and the CPU time of the same transfer by emulated copy. Copy copies
//! once at each end, and both ends are counted, as if one host with a single copy were counted twice.
//! Beside it stand the figures of `ttcp` on this machine: CPU time of both ends with the standard calls over TCP, and with fbufs on
//! a channel, with a CPU each. How much of the former is copying nobody traces here; it is taken to be what grows with the
//! length: the factor of a line through the times at all lengths.
//! Verdicts are about the shortest transfer that emulated copy passes without copying; longer ones are in the table.
//! Limits: throughput is the inverse of CPU time, as long as the network keeps up.
//! Source: Thadani and Khalidi, section 6.3 and appendix A.

use genie_passing::Scheme;

use super::described::{Described, Measuring};
use super::latency;
use super::programs;
use super::reading::{Reading, bytes, findings};
use crate::amounts::significant;
use crate::experiment::{Claim, Declaration};
use crate::findings::{Axis, Conclusion, Curve, Figure, Judgement, Table, row};
use crate::measurement::{Measurements, Quantity};
use crate::model::fit;
use crate::model::measured::Operations;
use crate::model::projection::{Cost, Speedup, advantage, break_even};
use crate::model::reproduced::{KEY, projections};
use crate::papers::Rounding;
use genie_net::Rate;

/// The experiment.
pub(super) static PROJECTION: Described =
    Described { declaration: &DECLARATION, measuring: Measuring::Nothing, conclude };

/// The paper's CPU speed-up, and its two copy speed-ups.
const CPU: f64 = 4.0;
const COPY: [f64; 2] = [4.0, 10.0];

/// CPU speed-ups of the figures' curves, and the greatest copy speed-up on their axes, as a power of two.
const CURVES: [f64; 4] = [1.0, 2.0, 4.0, 8.0];
const OCTAVES: i32 = 6;

static DECLARATION: Declaration = Declaration {
    id: "projection",
    title: "The advantage of not copying on faster systems",
    source: "M. N. Thadani and Y. A. Khalidi, An Efficient Zero-Copy I/O Framework for UNIX, SMLI TR-95-39, §6.3, appendix A",
    claims: &[
        Claim {
            id: "advantage",
            text: "On a system 4 times as fast in everything, not copying gives 50 % more throughput than a single copy, and still 16 % \
                   where copying becomes 10 times as fast.",
            source: "§6.3",
        },
        Claim {
            id: "break-even",
            text: "Only where copying becomes 34 times as fast, and everything else 4 times, is nothing left of the advantage.",
            source: "§6.3",
        },
    ],
    axes: &["how many times as fast copying becomes", "how many times as fast everything else becomes"],
    needs: &["primitives", latency::ID, programs::TTCP_ID],
};

fn conclude(measurements: &Measurements) -> Conclusion {
    let here = Transfer::all(measurements);
    let shortest = here.first();
    let title = "Advantage of fbufs over a single copy, from the paper's figures";
    let papers = figure("projection-paper", title, projections::printed_costs(Rounding::Nearest));
    let judgements = shortest.map(|shortest| vec![of_advantage(shortest), of_break_even(shortest)]);
    let ttcp = ttcp(measurements);
    let tables = shortest.or(ttcp.as_ref()).map(|_| costs_table(&here, ttcp.as_ref())).into_iter();
    Conclusion {
        figures: shortest.and_then(figure_here).into_iter().chain(papers).collect(),
        tables: tables.chain([projections::measured().table(), projections::projected().table()]).collect(),
        verdicts: findings(&DECLARATION, judgements.ok_or(UNMEASURED)),
        notes: vec![KEY.to_owned(), of_the_paper()],
    }
}

fn of_the_paper() -> String {
    let left = projections::vanishing().map_or_else(|| "never".to_owned(), significant);
    format!(
        "From the paper's figures nothing is left of the advantage where copying becomes {left} times as fast."
    )
}

const UNMEASURED: &str = "There is no length at which both the CPU times of copy and emulated copy and the costs of their operations were \
                          measured, and emulated copy did not copy: run the experiments latency and primitives.";

/// One transfer on this machine, in microseconds of CPU time of both ends.
#[derive(Debug, Clone, Copy)]
struct Transfer {
    length: u64,
    copying: Cost,
    avoiding: Cost,
}

impl Transfer {
    /// The transfers that were measured completely and that emulated copy really passed without copying, the shortest first.
    fn all(measurements: &Measurements) -> Vec<Self> {
        let operations = Operations(measurements);
        let times = Reading::of(measurements, latency::ID, Rate::Unlimited.name(), Quantity::CpuTime);
        let transfer = |(length, total): (u64, f64)| {
            let avoided = times.at(Scheme::EmulatedCopy.name(), length)?;
            // Only operations that a scheme itself ran have been timed: data that was copied after all has no swap.
            operations.added_at(Scheme::EmulatedCopy, length).ok()?;
            let copying = operations.added_at(Scheme::Copy, length).ok()?.min(total);
            Some(Self {
                length,
                copying: Cost { total, copying },
                avoiding: Cost { total: avoided, copying: 0.0 },
            })
        };
        times.medians(Scheme::Copy.name()).into_iter().filter_map(transfer).collect()
    }
}

/// The transfer of 8 KiB by `ttcp`, if it was measured at several lengths.
fn ttcp(measurements: &Measurements) -> Option<Transfer> {
    let costs = programs::costs(measurements);
    let (length, [total, avoided]) = costs.iter().copied().find(|(len, _)| *len == programs::PAPER_LEN)?;
    let standard: Vec<_> = costs.iter().map(|(len, [standard, _])| (*len, *standard)).collect();
    let copying = (fit::fit(&standard)?.line.factor * length as f64).clamp(0.0, total);
    let avoiding = Cost { total: avoided, copying: 0.0 };
    Some(Transfer { length, copying: Cost { total, copying }, avoiding })
}

fn figure_here(shortest: &Transfer) -> Option<Figure> {
    let length = bytes(shortest.length);
    let title = format!("Advantage of emulated copy over copy for {length}, from this machine's figures");
    figure("projection-here", &title, (shortest.avoiding, shortest.copying))
}

/// The advantages in per cent at the paper's CPU speed-up, for each of its copy speed-ups.
fn advantages(avoiding: Cost, copying: Cost) -> [f64; 2] {
    COPY.map(|copy| advantage(avoiding, copying, Speedup { cpu: CPU, copy }) * 100.0)
}

/// The costs at each length here, those of `ttcp`, and the paper's costs.
fn costs_table(all: &[Transfer], ttcp: Option<&Transfer>) -> Table {
    let cells = |name: String, avoiding: Cost, copying: Cost| {
        let share = copying.copying / copying.total * 100.0;
        let [all_four_times, copying_ten_times] = advantages(avoiding, copying);
        let break_even = break_even(avoiding, copying, CPU).map_or_else(|| "never".to_owned(), significant);
        let cells = [
            significant(copying.total),
            format!("{share:.0} %"),
            significant(avoiding.total),
            format!("{all_four_times:.0} %"),
            format!("{copying_ten_times:.0} %"),
            break_even,
        ];
        row(name, cells)
    };
    let (avoiding, copying) = projections::printed_costs(Rounding::Nearest);
    let here = all.iter().map(|transfer| cells(bytes(transfer.length), transfer.avoiding, transfer.copying));
    let ttcp = ttcp.map(|transfer| {
        let name = format!("ttcp, {}", bytes(transfer.length));
        cells(name, transfer.avoiding, transfer.copying)
    });
    Table::new(
        "CPU time in µs by copy and by emulated copy (ttcp: standard calls over TCP, and fbufs; the paper: a single copy, and fbufs), and the \
         advantage of the latter where all but copying becomes 4 times as fast",
        [
            "",
            "copy",
            "share of copying",
            "emulated copy",
            "copying 4 times",
            "copying 10 times",
            "nothing left at",
        ],
        here.chain(ttcp).chain([cells("the paper, 8 KiB".to_owned(), avoiding, copying)]),
    )
}

/// Holds where the advantage is at least the paper's for both copy speed-ups.
fn of_advantage(transfer: &Transfer) -> Judgement {
    let (avoiding, copying) = projections::printed_costs(Rounding::Nearest);
    let here = advantages(transfer.avoiding, transfer.copying);
    let there = advantages(avoiding, copying);
    let found = format!(
        "From this machine's figures for {}, emulated copy gives {:.0} % more throughput than copy where everything becomes 4 times \
         as fast, and {:.0} % where copying becomes 10 times as fast.",
        bytes(transfer.length),
        here[0],
        here[1],
    );
    Ok((here.iter().zip(there).all(|(here, there)| here.round() >= there.round()), found))
}

/// Holds where the advantage lasts at least as long as the paper's.
fn of_break_even(transfer: &Transfer) -> Judgement {
    let here = break_even(transfer.avoiding, transfer.copying, CPU);
    let paper = projections::vanishing().unwrap_or(f64::INFINITY).round();
    let found = match here {
        Some(copy) => format!("Here nothing is left where copying becomes {} times as fast.", significant(copy)),
        None => "Here the advantage stays however fast copying becomes: what copy does besides copying takes longer than all of \
                 emulated copy."
            .to_owned(),
    };
    Ok((here.is_none_or(|copy| copy.round() >= paper), found))
}

fn figure(name: &str, title: &str, (avoiding, copying): (Cost, Cost)) -> Option<Figure> {
    let curve = |cpu: f64| {
        let point = |half_octave: i32| {
            let copy = (f64::from(half_octave) * 0.5).exp2();
            let percent = advantage(avoiding, copying, Speedup { cpu, copy }) * 100.0;
            (copy, percent)
        };
        Curve::estimate(format!("all else {cpu} times as fast"), (0..=2 * OCTAVES).map(point))
    };
    let across = Axis::logarithmic("how many times as fast copying becomes");
    let axes = [across, Axis::linear("more throughput, in per cent")];
    Figure::of(name, title, axes, CURVES.map(curve))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::synthetic::{self, Made, run};
    use crate::findings::Verdict;

    fn made<'t>(setting: &'t str, series: &'t str, quantity: Quantity, us: f64) -> Made<'t> {
        synthetic::made(setting, series, quantity, (8192, us))
    }

    /// The paper's machine: 739 us by copy, of which 280 copy, and `avoiding` us without.
    fn conclude(avoiding: f64) -> Conclusion {
        let latency = [
            made("unlimited", "copy", Quantity::CpuTime, 739.0),
            made("unlimited", "emulated copy", Quantity::CpuTime, avoiding),
        ];
        let operation = |setting, series, us| made(setting, series, Quantity::OperationTime, us);
        let primitives = [
            operation("sender, copy", "Copyin", 100.0),
            operation("receiver, copy", "Copyout", 180.0),
            operation("sender, emulated copy", "Reference", 1.0),
            operation("sender, emulated copy", "Read only", 1.0),
            operation("receiver, emulated copy", "Swap", 1.0),
        ];
        let run = run("latency", latency).and(run("primitives", primitives));
        super::conclude(&run)
    }

    #[test]
    fn on_the_papers_machine_both_claims_hold_with_the_papers_figures() {
        let conclusion = conclude(492.0);
        assert_eq!(conclusion.judged(), [Verdict::Holds; 2], "{conclusion:#?}");
        assert!(conclusion.verdicts[0].found.contains("50 % more"), "{conclusion:#?}");
        assert!(conclusion.verdicts[0].found.contains("16 % where"), "{conclusion:#?}");
        assert!(conclusion.verdicts[1].found.contains("becomes 34"), "{conclusion:#?}");
    }

    #[test]
    fn a_scheme_that_avoids_little_has_little_advantage() {
        let conclusion = conclude(700.0);
        assert_eq!(conclusion.judged(), [Verdict::DoesNotHold; 2], "{conclusion:#?}");
    }

    #[test]
    fn a_scheme_that_costs_less_than_all_but_copying_stays_ahead() {
        let found = &conclude(400.0).verdicts[1];
        assert_eq!(found.verdict, Verdict::Holds);
        assert!(found.found.contains("however fast copying becomes"), "{found:?}");
    }

    #[test]
    fn figures_of_ttcp_like_the_papers_project_like_the_papers() {
        let side = ["a CPU each, sender", "a CPU each, receiver"];
        // Half of it at each end: 459 us, and 280 us for each 8 KiB.
        let standard = |len: u64| (459.0 + 280.0 * len as f64 / 8192.0) / 2.0;
        let points = [4096, 8192, 16_384].into_iter().flat_map(|len| {
            let of = |setting, series, us| synthetic::made(setting, series, Quantity::CpuTime, (len, us));
            let time = synthetic::made("a CPU each", "fbufs, channel", Quantity::Latency, (len, 1.0));
            let ends =
                side.map(|end| [of(end, "standard, TCP", standard(len)), of(end, "fbufs, channel", 246.0)]);
            ends.concat().into_iter().chain([time])
        });
        let conclusion = super::conclude(&run("ttcp", points));
        let rows = &conclusion.tables[0].rows;
        assert_eq!(rows.len(), 2, "{rows:?}");
        // In the last cell, where nothing is left, the rounding of samples shows.
        assert_eq!(rows[0][1..6], rows[1][1..6], "{rows:?}");
    }

    #[test]
    fn without_measurements_only_the_papers_projection_is_there() {
        let conclusion = super::conclude(&Measurements::default());
        assert_eq!((conclusion.figures.len(), conclusion.tables.len()), (1, 2));
    }
}
