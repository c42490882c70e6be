//! Compares two runs as two machines: how costs scale from the first to the second, beside what the machines' figures let
//! one expect.
//!
//! How: the costs of operations are the lines that `primitives` shows, the base is taken from `latency` at an unlimited
//! rate, and the machines' figures were measured by `model`. In `latency` a copy by the driver stands for the network. So
//! memory dominates the base's factor, as it dominates copyout's, though the base's factor is shown in the network's row.
//! Limits: two runs on one machine compare two states of it. With granules of different lengths, operations on virtual memory cost
//! differently for each byte even on equal machines.
//! Source: Brustoloni, section 8.2.2, table 8.9.

use crate::amounts::significant;
use crate::experiments::model::figures;
use crate::findings::{Table, row};
use crate::length;
use crate::measurement::Measurements;
use crate::model::measured::granule;
use crate::model::rows::costs;
use crate::model::scaling::{Expected, Figures, Parameter, Ratios, actual_ratios, expected_ratio};

/// The factor by which the medians of two runs on one machine may differ.
const TOLERANCE: f64 = 1.1;

/// How two machines compare.
#[derive(Debug, Clone, PartialEq)]
pub struct Scaling {
    /// A row for each kind of parameter, as in table 8.9.
    pub table: Table,
    /// Notes for the reader: how well expectations are met, and what could not be compared.
    pub notes: Vec<String>,
}

/// One kind of parameter.
#[derive(Debug, Clone, Copy)]
struct Row {
    parameter: Parameter,
    expected: Option<Expected>,
    actual: Option<Ratios>,
}

/// Compares the machine of a run with the machine of reference.
pub fn scaling(reference: &Measurements, other: &Measurements) -> Scaling {
    let machines = figures(reference).zip(figures(other));
    let costs = [reference, other].map(costs);
    let rows = Parameter::ALL.map(|parameter| Row {
        parameter,
        expected: machines.and_then(|(reference, other)| expected(parameter, &reference, &other)),
        actual: actual_ratios(parameter, &costs[0], &costs[1]),
    });
    Scaling { table: table(&rows), notes: notes(&rows, reference, other) }
}

/// The model's expectation; for the base it is that for memory, since a copy in memory stands for the network.
fn expected(parameter: Parameter, reference: &Figures, other: &Figures) -> Option<Expected> {
    let stands_for = if parameter == Parameter::Network { Parameter::Memory } else { parameter };
    expected_ratio(stands_for, reference, other)
}

fn table(rows: &[Row]) -> Table {
    let actual = |ratios: Ratios| {
        let [mean, least, greatest] = [ratios.geometric_mean, ratios.least, ratios.greatest].map(significant);
        [mean, least, greatest, ratios.count.to_string()]
    };
    let cells = |one: &Row| {
        let expected = one.expected.map_or_else(|| "not measured".to_owned(), shown);
        let actual = one.actual.map_or_else(Default::default, actual);
        row(what(one.parameter), [expected].into_iter().chain(actual))
    };
    let title = "Costs of the second run relative to the first: expected from the machines' own figures, and measured";
    let columns = ["", "expected", "geometric mean", "least", "greatest", "operations"];
    Table::new(title, columns, rows.iter().map(cells))
}

fn what(parameter: Parameter) -> &'static str {
    match parameter {
        Parameter::Network => "factor of the base (the driver's copy)",
        Parameter::Memory => "factor of copyout (memory)",
        Parameter::Cache => "factor of copyin (cache)",
        Parameter::CpuFactor => "factors of other operations (CPU)",
        Parameter::CpuFixed => "fixed terms of other operations (CPU)",
    }
}

fn shown(expected: Expected) -> String {
    match expected {
        Expected::Exactly(ratio) => significant(ratio),
        Expected::AtLeast(ratio) => format!("{} or more", significant(ratio)),
        Expected::Between(from, to) => format!("{} to {}", significant(from), significant(to)),
    }
}

fn notes(rows: &[Row], reference: &Measurements, other: &Measurements) -> Vec<String> {
    let mut notes: Vec<String> = rows.iter().filter_map(departure).collect();
    if let (Some(one), Some(two)) = (granule(reference), granule(other))
        && one != two
    {
        notes.push(format!(
            "The first run had granules of {}, the second of {}: costs of operations on virtual memory are not comparable.",
            length::format(one as usize),
            length::format(two as usize)
        ));
    }
    notes.push(
        "The speed of CPUs is that of a fixed integer program of this build, which stands for SPECint95 in the thesis. Costs of page \
         table updates, which many of the operations are, may scale otherwise between processors of different architecture, or under \
         another hypervisor."
            .to_owned(),
    );
    notes
}

/// Says how far the mean is from the expected value, where that is further than the medians of two runs may differ anyway.
fn departure(row: &Row) -> Option<String> {
    let (expected, actual) = (row.expected?, row.actual?.geometric_mean);
    let least = expected.least();
    let greatest = expected.greatest().unwrap_or(f64::INFINITY);
    let off = if actual < least { actual / least } else { actual / greatest };
    let inside = (least / TOLERANCE..=greatest * TOLERANCE).contains(&actual);
    (!inside && off.is_finite()).then(|| {
        format!("The {} scaled by {} times what was expected.", what(row.parameter), significant(off))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::synthetic::{self, made};
    use crate::measurement::Quantity;

    /// A run whose copying is `memory` times as slow, and everything else `cpu` times, as on the machine of reference.
    fn run(memory: u64, cpu: u64, granule: u64) -> Measurements {
        let us = |ns: u64| ns as f64 / 1e3;
        let time = |setting, series, x, ns| made(setting, series, Quantity::OperationTime, (x, us(ns)));
        let share = |x, ns| made("unlimited", "emulated share", Quantity::Latency, (x, us(ns)));
        let mut primitives = Vec::new();
        for (side, row, times) in [
            ("sender", "Copyin", memory),
            ("receiver", "Copyout", memory),
            ("sender", "Reference", cpu),
            ("receiver", "Unreference", cpu),
        ] {
            primitives
                .extend([time(side, row, granule, 110 * times), time(side, row, 2 * granule, 210 * times)]);
        }
        let own = [
            time("", "integer program", 0, 1000 * cpu),
            time("", "copy within the cache", 1000, 50 * memory),
            time("", "copy in memory", 1000, 100 * memory),
        ];
        let latency =
            [share(granule, 400 * memory + 220 * cpu), share(2 * granule, 800 * memory + 420 * cpu)];
        let mut run = synthetic::run("primitives", primitives)
            .and(synthetic::run("model", own))
            .and(synthetic::run("latency", latency));
        run.steps[0].measured.push(synthetic::granule(granule));
        run
    }

    #[test]
    fn costs_that_scale_as_the_machines_do_meet_every_expectation() {
        let scaling = scaling(&run(1, 1, 4096), &run(2, 3, 4096));
        let rows = &scaling.table.rows;
        assert_eq!(rows[1], ["factor of copyout (memory)", "2.00", "2.00", "2.00", "2.00", "1"]);
        assert_eq!(rows[2][1..3], ["1.00 to 4.00", "2.00"]);
        assert_eq!(rows[3][1..], ["3.00", "3.00", "3.00", "3.00", "2"]);
        assert_eq!(rows[4][1..], ["3.00", "3.00", "3.00", "3.00", "2"]);
        assert!(!scaling.notes.iter().any(|note| note.contains("what was expected")), "{:#?}", scaling.notes);
    }

    #[test]
    fn a_machine_that_is_not_as_its_figures_say_is_noted() {
        let (reference, mut other) = (run(1, 1, 4096), run(2, 3, 4096));
        let slow = other.steps[0].measured.iter_mut().filter(|one| one.series == "Copyout");
        slow.for_each(|one| one.samples.iter_mut().for_each(|sample| *sample *= 2));
        let notes = scaling(&reference, &other).notes;
        let expected = "The factor of copyout (memory) scaled by 2.00 times what was expected.";
        assert!(notes.iter().any(|note| note == expected), "{notes:#?}");
    }

    #[test]
    fn granules_of_different_lengths_are_noted() {
        let notes = scaling(&run(1, 1, 4096), &run(1, 1, 2 << 20)).notes;
        assert!(
            notes.iter().any(|note| note.contains("granules of 4 KiB, the second of 2 MiB")),
            "{notes:#?}"
        );
    }

    #[test]
    fn runs_without_these_experiments_compare_nothing() {
        let scaling = scaling(&Measurements::default(), &Measurements::default());
        assert!(
            scaling.table.rows.iter().all(|row| row[1..] == ["not measured", "", "", "", ""]),
            "{scaling:#?}"
        );
    }
}
