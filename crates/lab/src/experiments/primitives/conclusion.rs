//! The experiment's conclusion: its tables, its figure, and what could not be measured.
//!
//! Source: J. C. Brustoloni's thesis, tables 8.2 and 12.1.

use genie_passing::operation::PRIMITIVES;

use super::verdicts;
use crate::amounts::{line, significant};
use crate::experiments::reading::{MISSING, bytes};
use crate::findings::{Axis, Conclusion, Curve, CurvePoint, Figure, Table, row};
use crate::measurement::Measurements;
use crate::model::breakdown::BASE;
use crate::model::fit::Fit;
use crate::model::measured::granule;
use crate::model::rows::{self, Row, Time};
use crate::papers::Printed;
use crate::papers::brustoloni::{self, Cost, Part, Platform};

/// Rows of table 8.2 whose work another row's operation mostly does: the row, the other row, and why.
const WITH_OTHERS: [(&str, &str, &str); 3] = [
    (
        "Region mark out",
        "Reference",
        "a migrant buffer's region is marked under the lock under which it is referenced",
    ),
    (
        "Region create",
        "Region fill",
        "addresses are taken for granules that exist: one call creates, fills and maps a region",
    ),
    ("Region map", "Region fill", "see Region create"),
];

/// Why a row of the thesis's table has no time here.
const NOT_RUN: &str =
    "did not run: memory could not be wired or protected, or no length was a multiple of the granule";

/// Why rows of table 12.1, given by their letters, have no times here.
const ABSENT_PARTS: [(&[&str], &str); 6] = [
    (&["a", "b", "y"], "contained in the base: not taken apart"),
    (&["c", "d", "e", "f"], "there are no iolets yet"),
    (&["g"], "Linux does that; see the hand-over in experiment latency"),
    (&["h"], "see g"),
    (&["i", "j", "k", "l", "m"], "there is no such device: the one here copies"),
    (&["w", "x"], "there is no outboard memory"),
];

/// Concludes from the measurements.
pub(super) fn conclude(measurements: &Measurements) -> Conclusion {
    let rows = rows::rows(measurements);
    let granule = granule(measurements).unwrap_or_default();
    let mut notes = vec![
        format!(
            "Times were taken inside requests, at both ends, by a recorder that reads the clock before and after each \
             operation and subtracts what that takes. Granules were of {}; lines are laid through lengths that are \
             multiples of that, by ordinary least squares, through the means over all schemes, sides and kinds of \
             buffering. With long data in the fit, fixed terms below a microsecond, or negative, say little.",
            bytes(granule)
        ),
        "The base is the end-to-end latency of emulated share less referencing and unreferencing. It contains the copy \
         that stands for the wire."
            .to_owned(),
    ];
    notes.extend(cold(&rows));
    notes.extend(absent(&rows));
    notes.push(parts_absent());
    Conclusion {
        figures: figure(&rows).into_iter().collect(),
        tables: vec![table_8_2(&rows, measurements), table_12_1(&rows), others(&rows)],
        verdicts: verdicts::verdicts(&rows),
        notes,
    }
}

fn find<'r>(rows: &'r [Row], name: &str) -> Option<&'r Row> {
    rows.iter().find(|row| row.name == name)
}

/// Rows of table 8.2 that the thesis has without a factor: their work does not depend on the length.
const CONSTANT: [&str; 4] = ["Region check", "Region mark in", "Overlay allocate", "Overlay"];

/// Says how much longer operations take after long data, although their work is the same.
fn cold(rows: &[Row]) -> Option<String> {
    let ratio = |name: &&str| {
        let times = &find(rows, name)?.times;
        let (first, last) = (times.first()?, times.last()?);
        (first.mean > 0.0).then(|| format!("{name} {}", significant(last.mean / first.mean)))
    };
    let ratios: Vec<_> = CONSTANT.iter().filter_map(ratio).collect();
    (!ratios.is_empty()).then(|| {
        format!(
            "Operations whose work does not depend on the length take longer after long data than after short data, by \
             these factors: {}. Long data drives the books and the page tables out of the caches. That also bends the \
             lines of the others.",
            ratios.join(", ")
        )
    })
}

/// The rows of table 8.2 that have no time of their own, with the reason.
fn absent(rows: &[Row]) -> Vec<String> {
    let with_others =
        WITH_OTHERS.iter().map(|(row, other, reason)| format!("{row}: done with {other}; {reason}."));
    let joined = "What is done under one lock is counted once: checking and unreferencing the region of an input by a weak \
                  move into a customized buffer as Region mark in, and unreferencing that of an output by emulated move or \
                  a weak move as Region enqueue.";
    let is_missing = |row: &&&str| find(rows, row).is_none();
    let not_run = PRIMITIVES.iter().filter(is_missing).map(|row| format!("{row}: {NOT_RUN}."));
    with_others.chain([joined.to_owned()]).chain(not_run).collect()
}

/// The rows of table 12.1 that have no times here, with the reasons.
fn parts_absent() -> String {
    let reasons = ABSENT_PARTS.map(|(letters, reason)| format!("{} ({reason})", letters.join(", ")));
    format!("Rows of table 12.1 that are absent: {}.", reasons.join("; "))
}

fn table_8_2(rows: &[Row], measurements: &Measurements) -> Table {
    let title = "Primitive operations, beside table 8.2 of the thesis (Micron P166 at 155 Mbit/s)";
    let row = |cost: Cost| {
        let name = cost.operation.as_str();
        let here = match find(rows, name) {
            Some(row) => cells(row),
            None if name == BASE => base_cells(rows, measurements),
            None => absent_cells(name),
        };
        beside(here, cost.factor.map(Printed::in_thousandths), cost.fixed)
    };
    Table::new(title, COLUMNS, brustoloni::costs(Platform::P166).into_iter().map(row))
}

const COLUMNS: [&str; 8] =
    ["operation", "ns/B", "and µs", "R²", "shortest, µs", "longest, µs", "thesis: ns/B", "and µs"];
/// How many of the columns are about this machine.
const HERE: usize = 6;

/// A row's cells for this machine.
fn cells(row: &Row) -> Vec<String> {
    let name = match WITH_OTHERS.iter().find(|(name, ..)| *name == row.name) {
        Some((_, other, _)) => format!("{} (with {other})", row.name),
        None => row.name.clone(),
    };
    let [per_byte, fixed] = row.fit.map_or_else(nothing, |fit| line(fit.line));
    let mut whole = row.times.iter().filter(|time| time.is_whole);
    let at = |time: Option<&Time>| {
        time.map_or_else(none, |time| format!("{} ({})", significant(time.mean), bytes(time.len)))
    };
    let (first, last) = (whole.clone().next(), whole.next_back());
    vec![name, per_byte, fixed, r_squared(row.fit), at(first), at(last)]
}

fn base_cells(rows: &[Row], measurements: &Measurements) -> Vec<String> {
    let latency = rows::latency(measurements);
    let base = latency.and_then(|latency| rows::base(rows, latency));
    let [per_byte, fixed] = base.map_or_else(nothing, line);
    // R² is that of the latency's line.
    vec![BASE.to_owned(), per_byte, fixed, r_squared(latency), none(), none()]
}

fn absent_cells(name: &str) -> Vec<String> {
    row(name, std::iter::repeat_with(none).take(HERE - 1))
}

/// The same, followed by the thesis's factor in nanoseconds for each byte, and its fixed term.
fn beside(here: Vec<String>, factor: Option<Printed>, fixed: Printed) -> Vec<String> {
    let factor = factor.map_or_else(none, |factor| factor.to_string());
    here.into_iter().chain([factor, fixed.to_string()]).collect()
}

fn r_squared(fit: Option<Fit>) -> String {
    let r_squared = fit.and_then(|fit| fit.r_squared);
    r_squared.map_or_else(none, |r_squared| format!("{r_squared:.3}"))
}

fn none() -> String {
    MISSING.to_owned()
}

fn nothing() -> [String; 2] {
    [none(), none()]
}

fn table_12_1(rows: &[Row]) -> Table {
    let row = |part: Part| {
        let mut here = find(rows, &part.part).map_or_else(|| absent_cells(&part.part), cells);
        here[0] = format!("{}  {}", part.letter, part.part);
        beside(here, part.factor, part.fixed)
    };
    let title = "Parts of transfers, beside table 12.1 of the thesis";
    Table::new(title, COLUMNS, brustoloni::parts().into_iter().map(row))
}

/// The operations that run here and are in neither table, since the thesis's latencies do not include them.
fn others(rows: &[Row]) -> Table {
    let parts = brustoloni::parts();
    let is_other = |row: &&Row| {
        !PRIMITIVES.contains(&row.name.as_str()) && !parts.iter().any(|part| part.part == row.name)
    };
    let title = "Other operations: they overlap with the transfer";
    Table::new(title, COLUMNS.into_iter().take(HERE), rows.iter().filter(is_other).map(cells))
}

fn figure(rows: &[Row]) -> Option<Figure> {
    let is_shown = |row: &&Row| {
        let is_part = WITH_OTHERS.iter().any(|(name, ..)| *name == row.name);
        PRIMITIVES.contains(&row.name.as_str()) && !is_part
    };
    let axes = ["data length in bytes", "time in µs"].map(Axis::logarithmic);
    let title = "Time of primitive operations by data length";
    Figure::of("primitives", title, axes, rows.iter().filter(is_shown).map(curve))
}

fn curve(row: &Row) -> Curve {
    let point = |time: &Time| CurvePoint {
        x: time.len as f64,
        y: time.mean,
        low: Some(time.low.max(SHORTEST)),
        high: Some(time.high),
    };
    Curve::measured(row.name.as_str(), row.times.iter().filter(|time| time.mean >= SHORTEST).map(point))
}

/// The shortest time that a logarithmic axis shows, in microseconds.
const SHORTEST: f64 = 0.001;

#[cfg(test)]
mod tests;
