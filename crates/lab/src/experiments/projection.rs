//! `projection`: what is left of the advantage of not copying when CPUs, and copying, become faster.
//!
//! How: the paper's figures, and in their place this machine's: the CPU time of one transfer by copy, how much of that is copying,
//! and the CPU time of the same transfer by emulated copy. Copy copies once at each end, and both ends are counted, as if one
//! host with a single copy were counted twice.
//! Verdicts go by the shortest transfer that emulated copy passes without copying; longer ones are in the table.
//! Limits: throughput is the inverse of CPU time, as long as the network keeps up.
//! Source: Thadani and Khalidi, section 6.3 and appendix A.

use genie_passing::Scheme;

use crate::amounts::significant;
use crate::error::Result;
use crate::experiment::{Claim, Declaration, Experiment, Options};
use crate::findings::{Axis, Conclusion, Curve, Figure, Finding, Table, Verdict};
use crate::length;
use crate::measurement::{Measurements, Quantity};
use crate::model::measured::Operations;
use crate::model::projection::{Cost, Speedup, advantage, break_even};
use crate::model::reproduced::{self, projections};
use crate::papers::Rounding;

/// The name on the command line.
pub const ID: &str = "projection";

const LATENCY: &str = "latency";
const UNLIMITED: &str = "unlimited";

/// The paper's CPU speed-up, and its two copy speed-ups.
const CPU: f64 = 4.0;
const COPY: [f64; 2] = [4.0, 10.0];

/// CPU speed-ups of the figures' curves, and the greatest copy speed-up on their axes, as a power of two.
const CURVES: [f64; 4] = [1.0, 2.0, 4.0, 8.0];
const OCTAVES: i32 = 6;

static DECLARATION: Declaration = Declaration {
    id: ID,
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
    needs: &["primitives", LATENCY],
};

/// The experiment.
#[derive(Debug)]
pub struct Projection;

impl Experiment for Projection {
    fn declaration(&self) -> &'static Declaration {
        &DECLARATION
    }

    fn conclude(&self, _options: &Options, measurements: &Measurements) -> Result<Conclusion> {
        let here = Transfer::all(measurements);
        let paper = projections::printed_costs(Rounding::Nearest);
        let title = "Advantage of fbufs over a single copy, from the paper's figures";
        let mut conclusion = Conclusion {
            figures: vec![figure("projection-paper", title, paper)],
            tables: vec![projections::measured().table(), projections::projected().table()],
            notes: vec![reproduced::KEY.to_owned(), of_the_paper()],
            verdicts: Vec::new(),
        };
        match here.first() {
            Some(shortest) => add_here(&mut conclusion, shortest, &here),
            None => conclusion.verdicts.extend(DECLARATION.claims.iter().map(|claim| Finding {
                claim: claim.id.to_owned(),
                verdict: Verdict::CannotBeTested,
                found: UNMEASURED.to_owned(),
            })),
        }
        Ok(conclusion)
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
    /// Those of which everything was measured and which emulated copy really passed without copying, the shortest first.
    fn all(measurements: &Measurements) -> Vec<Self> {
        let operations = Operations::of(measurements);
        let times =
            |scheme: Scheme| measurements.medians(LATENCY, UNLIMITED, scheme.name(), Quantity::CpuTime);
        let avoiding = times(Scheme::EmulatedCopy);
        let transfer = |(length, total): (u64, f64)| {
            let (_, avoided) = avoiding.iter().find(|(at, _)| *at == length)?;
            // Only what a scheme itself ran has been timed: data that was copied after all has no swap.
            operations.added_at(Scheme::EmulatedCopy, length).ok()?;
            let copying = operations.added_at(Scheme::Copy, length).ok()?.min(total);
            Some(Self {
                length,
                copying: Cost { total, copying },
                avoiding: Cost { total: *avoided, copying: 0.0 },
            })
        };
        times(Scheme::Copy).into_iter().filter_map(transfer).collect()
    }

    fn name(self) -> String {
        length::format(usize::try_from(self.length).unwrap_or(usize::MAX))
    }
}

fn add_here(conclusion: &mut Conclusion, shortest: &Transfer, all: &[Transfer]) {
    let title =
        format!("Advantage of emulated copy over copy for {}, from this machine's figures", shortest.name());
    let costs = (shortest.avoiding, shortest.copying);
    conclusion.figures.insert(0, figure("projection-here", &title, costs));
    conclusion.tables.insert(0, costs_table(all));
    conclusion.verdicts.push(of_advantage(shortest));
    conclusion.verdicts.push(of_break_even(shortest));
}

/// Each length here, and the paper's.
fn costs_table(all: &[Transfer]) -> Table {
    let row = |name: String, avoiding: Cost, copying: Cost| {
        let share = copying.copying / copying.total * 100.0;
        let advantages = COPY.map(|copy| advantage(avoiding, copying, Speedup { cpu: CPU, copy }) * 100.0);
        let break_even = break_even(avoiding, copying, CPU).map_or_else(|| "never".to_owned(), significant);
        vec![
            name,
            significant(copying.total),
            format!("{share:.0} %"),
            significant(avoiding.total),
            format!("{:.0} %", advantages[0]),
            format!("{:.0} %", advantages[1]),
            break_even,
        ]
    };
    let (avoiding, copying) = projections::printed_costs(Rounding::Nearest);
    let here = all.iter().map(|transfer| row(transfer.name(), transfer.avoiding, transfer.copying));
    Table {
        title: "CPU time in µs by copy and by emulated copy (the paper: a single copy and fbufs), and the advantage of the latter where \
                all but copying becomes 4 times as fast"
            .to_owned(),
        columns: ["", "copy", "share of copying", "emulated copy", "copying 4 times", "copying 10 times", "nothing left at"]
            .map(str::to_owned)
            .to_vec(),
        rows: here.chain([row("the paper, 8 KiB".to_owned(), avoiding, copying)]).collect(),
    }
}

/// Holds where the advantage is at least the paper's for both copy speed-ups.
fn of_advantage(transfer: &Transfer) -> Finding {
    let paper = projections::printed_costs(Rounding::Nearest);
    let [here, there] = [(transfer.avoiding, transfer.copying), paper].map(|(avoiding, copying)| {
        COPY.map(|copy| advantage(avoiding, copying, Speedup { cpu: CPU, copy }) * 100.0)
    });
    let holds = here.iter().zip(there).all(|(here, there)| here.round() >= there.round());
    Finding {
        claim: "advantage".to_owned(),
        verdict: if holds { Verdict::Holds } else { Verdict::DoesNotHold },
        found: format!(
            "From this machine's figures for {}, emulated copy gives {:.0} % more throughput than copy where everything becomes 4 times \
             as fast, and {:.0} % where copying becomes 10 times as fast.",
            transfer.name(),
            here[0],
            here[1],
        ),
    }
}

/// Holds where the advantage lasts at least as long as the paper's.
fn of_break_even(transfer: &Transfer) -> Finding {
    let here = break_even(transfer.avoiding, transfer.copying, CPU);
    let paper = projections::vanishing().unwrap_or(f64::INFINITY).round();
    let found = match here {
        Some(copy) => format!("Here nothing is left where copying becomes {} times as fast.", significant(copy)),
        None => "Here the advantage stays however fast copying becomes: what copy does besides copying takes longer than all of \
                 emulated copy."
            .to_owned(),
    };
    let holds = here.is_none_or(|copy| copy.round() >= paper);
    let verdict = if holds { Verdict::Holds } else { Verdict::DoesNotHold };
    Finding { claim: "break-even".to_owned(), verdict, found }
}

fn figure(name: &str, title: &str, (avoiding, copying): (Cost, Cost)) -> Figure {
    let curve = |cpu: f64| {
        let point = |half_octave: i32| {
            let copy = (f64::from(half_octave) * 0.5).exp2();
            let percent = advantage(avoiding, copying, Speedup { cpu, copy }) * 100.0;
            (copy, percent)
        };
        Curve::estimate(format!("all else {cpu} times as fast"), (0..=2 * OCTAVES).map(point))
    };
    Figure {
        name: name.to_owned(),
        title: title.to_owned(),
        x: Axis::logarithmic("how many times as fast copying becomes"),
        y: Axis::linear("more throughput, in per cent"),
        curves: CURVES.into_iter().map(curve).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::synthetic::{Made, run};
    use crate::interface::Granule;

    fn made<'t>(setting: &'t str, series: &'t str, quantity: Quantity, us: f64) -> Made<'t> {
        Made { setting, series, x: 8192, quantity, us }
    }

    /// The paper's machine: 739 us by copy, of which 280 copy, and `avoiding` us without.
    fn conclude(avoiding: f64) -> Conclusion {
        let latency = [
            made(UNLIMITED, "copy", Quantity::CpuTime, 739.0),
            made(UNLIMITED, "emulated copy", Quantity::CpuTime, avoiding),
        ];
        let operation = |setting, series, us| made(setting, series, Quantity::OperationTime, us);
        let primitives = [
            operation("sender", "Copyin", 100.0),
            operation("receiver", "Copyout", 180.0),
            operation("sender", "Reference", 1.0),
            operation("sender", "Read only", 1.0),
            operation("receiver", "Swap", 1.0),
        ];
        let run = run("latency", latency).and(run("primitives", primitives));
        let options = Options { smoke: true, granule: Granule::Base, seed: 1 };
        Projection.conclude(&options, &run).unwrap()
    }

    #[test]
    fn on_the_papers_machine_both_claims_hold_with_the_papers_figures() {
        let conclusion = conclude(492.0);
        assert!(
            conclusion.verdicts.iter().all(|finding| finding.verdict == Verdict::Holds),
            "{conclusion:#?}"
        );
        assert!(conclusion.verdicts[0].found.contains("50 % more"), "{conclusion:#?}");
        assert!(conclusion.verdicts[0].found.contains("16 % where"), "{conclusion:#?}");
        assert!(conclusion.verdicts[1].found.contains("becomes 34"), "{conclusion:#?}");
    }

    #[test]
    fn a_scheme_that_avoids_little_has_little_advantage() {
        let conclusion = conclude(700.0);
        assert!(
            conclusion.verdicts.iter().all(|finding| finding.verdict == Verdict::DoesNotHold),
            "{conclusion:#?}"
        );
    }

    #[test]
    fn a_scheme_that_costs_less_than_all_but_copying_stays_ahead() {
        let found = &conclude(400.0).verdicts[1];
        assert_eq!(found.verdict, Verdict::Holds);
        assert!(found.found.contains("however fast copying becomes"), "{found:?}");
    }

    #[test]
    fn without_measurements_only_the_papers_projection_is_there() {
        let options = Options { smoke: true, granule: Granule::Base, seed: 1 };
        let conclusion = Projection.conclude(&options, &Measurements::default()).unwrap();
        assert!(conclusion.verdicts.iter().all(|finding| finding.verdict == Verdict::CannotBeTested));
        assert_eq!((conclusion.figures.len(), conclusion.tables.len()), (1, 2));
    }

    #[test]
    fn it_needs_no_steps() {
        let options = Options { smoke: false, granule: Granule::Base, seed: 1 };
        assert!(Projection.steps(&options).is_empty());
    }
}
