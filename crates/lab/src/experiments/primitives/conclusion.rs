//! What the experiment concludes: its tables, its figure, and what could not be measured.
//!
//! Source: J. C. Brustoloni's thesis, tables 8.2 and 12.1.

use genie_passing::operation::PRIMITIVES;

use super::verdicts;
use crate::amounts::{line, significant};
use crate::experiment::Declaration;
use crate::experiments::reading::MISSING;
use crate::findings::{Axis, Conclusion, Curve, CurvePoint, Figure, Table};
use crate::length;
use crate::measurement::Measurements;
use crate::model::breakdown::BASE;
use crate::model::fit::Fit;
use crate::model::measured::granule;
use crate::model::rows::{self, Row, Time};
use crate::papers::brustoloni::{self, Cost, Platform};

/// Rows of table 8.2 whose work is mostly done by another one's operation, which one, and why.
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

/// Why the thesis's table has a row of which this one has no time.
const NOT_RUN: &str =
    "did not run: memory could not be wired or protected, or no length was a multiple of the granule";

/// A row of table 12.1: its letter, its name, its line (nanoseconds for each byte, microseconds in all), and what there is of
/// it here.
struct Part(&'static str, &'static str, [&'static str; 2], Here);

enum Here {
    /// A row.
    Row(&'static str),
    /// Nothing, for this reason.
    Absent(&'static str),
}

const NO_IOLETS: &str = "there are no iolets yet";
const NO_DEVICE: &str = "there is no such device: the loop device copies";
const NOT_APART: &str = "contained in the base: not taken apart";

const TABLE_12_1: [Part; 25] = [
    Part("a", "Request enter", [MISSING, "11"], Here::Absent(NOT_APART)),
    Part("b", "Reply leave", [MISSING, "11"], Here::Absent(NOT_APART)),
    Part("c", "Iolet enter", [MISSING, "20"], Here::Absent(NO_IOLETS)),
    Part("d", "Iolet leave", [MISSING, "13"], Here::Absent(NO_IOLETS)),
    Part("e", "Iolet sequence", [MISSING, "3"], Here::Absent(NO_IOLETS)),
    Part("f", "Multiserver buffer turn-around", [MISSING, "1"], Here::Absent(NO_IOLETS)),
    Part(
        "g",
        "Reschedule",
        [MISSING, "16"],
        Here::Absent("Linux does that; see the hand-over in experiment latency"),
    ),
    Part("h", "Reschedule and context switch", [MISSING, "28"], Here::Absent("see g")),
    Part("i", "Cyclone driver, input", ["0.156", "9"], Here::Absent(NO_DEVICE)),
    Part("j", "Cyclone board to host memory", ["21.1", "13"], Here::Absent(NO_DEVICE)),
    Part("k", "ATM driver, output", ["0.520", "30"], Here::Absent(NO_DEVICE)),
    Part("l", "Host memory to ATM network", ["59.0", "17"], Here::Absent(NO_DEVICE)),
    Part("m", "Cyclone board to ATM network", ["74.6", "23"], Here::Absent(NO_DEVICE)),
    Part("n", "System buffer allocate", ["0.162", "5"], Here::Row("System buffer allocate")),
    Part("o", "System buffer deallocate", ["0.125", "5"], Here::Row("System buffer deallocate")),
    Part("p", "Allocate and copyin", ["16.8", "-5"], Here::Row("Allocate and copyin")),
    Part("q", "Copyout and deallocate", ["20.5", "15"], Here::Row("Copyout and deallocate")),
    Part("r", "Aligned buffer allocate", ["0.226", "4"], Here::Row("Aligned buffer allocate")),
    Part("s", "Swap and deallocate", ["2.22", "19"], Here::Row("Swap and deallocate")),
    Part("t", "Reference", ["0.424", "10"], Here::Row("Reference")),
    Part("u", "Unreference", ["0.111", "4"], Here::Row("Unreference")),
    Part("v", "Reference and read-only", ["0.808", "13"], Here::Row("Reference and read-only")),
    Part("w", "Outboard allocate", ["0.0868", "8"], Here::Absent("there is no outboard memory")),
    Part("x", "Outboard deallocate", ["0.0481", "8"], Here::Absent("there is no outboard memory")),
    Part("y", "Prepare descriptors", [MISSING, "4"], Here::Absent(NOT_APART)),
];

/// Concludes from what was measured.
pub(super) fn conclude(declaration: &Declaration, measurements: &Measurements) -> Conclusion {
    let rows = rows::rows(measurements);
    let granule = granule(measurements).unwrap_or_default() as usize;
    let mut notes = vec![
        format!(
            "Times were taken inside requests, at both ends, by a recorder that reads the clock before and after each \
             operation and subtracts what that takes. Granules were of {}; lines are laid through lengths that are \
             multiples of that, by ordinary least squares, through the means over all schemes, sides and kinds of \
             buffering. With long data in the fit, fixed terms below a microsecond, or negative, say little.",
            length::format(granule)
        ),
        "The base is the end-to-end latency of emulated share less referencing and unreferencing. It contains the copy \
         that stands for the wire."
            .to_owned(),
    ];
    notes.extend(cold(&rows));
    notes.extend(absent(&rows));
    notes.push(parts_absent());
    Conclusion {
        figures: vec![figure(&rows)],
        tables: vec![table_8_2(&rows, measurements), table_12_1(&rows), others(&rows)],
        verdicts: verdicts::verdicts(declaration, &rows),
        notes,
    }
}

fn find<'r>(rows: &'r [Row], name: &str) -> Option<&'r Row> {
    rows.iter().find(|row| row.name == name)
}

/// Rows of table 8.2 that the thesis has without a factor: their work does not depend on the length.
const CONSTANT: [&str; 4] = ["Region check", "Region mark in", "Overlay allocate", "Overlay"];

/// Says how much longer operations take after long data though their work is the same.
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

/// The rows of table 12.1 that there is nothing of here, with the reasons.
fn parts_absent() -> String {
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for Part(letter, _, _, here) in &TABLE_12_1 {
        let Here::Absent(reason) = here else { continue };
        match reasons.iter_mut().find(|(known, _)| known == reason) {
            Some((_, letters)) => letters.push(letter),
            None => reasons.push((reason, vec![letter])),
        }
    }
    let reasons: Vec<_> =
        reasons.iter().map(|(reason, letters)| format!("{} ({reason})", letters.join(", "))).collect();
    format!("Rows of table 12.1 that are absent: {}.", reasons.join("; "))
}

fn table_8_2(rows: &[Row], measurements: &Measurements) -> Table {
    let papers = brustoloni::costs(Platform::P166);
    let mut table = empty_table(
        "Primitive operations, beside table 8.2 of the thesis (Micron P166 at 155 Mbit/s)",
        &COLUMNS,
    );
    for cost in &papers {
        let mut cells = match find(rows, &cost.operation) {
            Some(row) => cells(row),
            None if cost.operation == BASE => base_cells(rows, measurements),
            None => absent_cells(&cost.operation),
        };
        cells.extend(printed(cost));
        table.rows.push(cells);
    }
    table
}

/// For each byte and in all, here and, last, in the thesis.
const COLUMNS: [&str; 8] =
    ["operation", "ns/B", "and µs", "R²", "shortest, µs", "longest, µs", "thesis: ns/B", "and µs"];
/// How many of them are of what is here.
const HERE: usize = 6;

fn empty_table(title: &str, columns: &[&str]) -> Table {
    let columns = columns.iter().copied().map(str::to_owned).collect();
    Table { title: title.to_owned(), columns, rows: Vec::new() }
}

fn cells(row: &Row) -> Vec<String> {
    let name = match WITH_OTHERS.iter().find(|(name, ..)| *name == row.name) {
        Some((_, other, _)) => format!("{} (with {other})", row.name),
        None => row.name.clone(),
    };
    let [per_byte, fixed] = row.fit.map_or_else(nothing, |fit| line(fit.line));
    let whole = || row.times.iter().filter(|time| time.is_whole);
    let at = |time: Option<&Time>| {
        time.map_or_else(none, |time| {
            format!("{} ({})", significant(time.mean), length::format(time.len as usize))
        })
    };
    vec![name, per_byte, fixed, r_squared(row.fit), at(whole().next()), at(whole().next_back())]
}

fn base_cells(rows: &[Row], measurements: &Measurements) -> Vec<String> {
    let latency = rows::latency(measurements);
    let base = latency.and_then(|latency| rows::base(rows, latency));
    let [per_byte, fixed] = base.map_or_else(nothing, line);
    // R² is that of the latency's line.
    vec![BASE.to_owned(), per_byte, fixed, r_squared(latency), none(), none()]
}

fn absent_cells(name: &str) -> Vec<String> {
    std::iter::once(name.to_owned()).chain(std::iter::repeat_with(none).take(HERE - 1)).collect()
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

fn printed(cost: &Cost) -> [String; 2] {
    let factor = cost.factor.map_or_else(none, |factor| factor.in_thousandths().to_string());
    [factor, cost.fixed.to_string()]
}

fn table_12_1(rows: &[Row]) -> Table {
    let mut table = empty_table("Parts of transfers, beside table 12.1 of the thesis", &COLUMNS);
    for Part(letter, name, thesis, here) in &TABLE_12_1 {
        let found = match here {
            Here::Row(row) => find(rows, row).map(cells),
            Here::Absent(_) => None,
        };
        let mut cells = found.unwrap_or_else(|| absent_cells(name));
        cells[0] = format!("{letter}  {name}");
        cells.extend(thesis.map(str::to_owned));
        table.rows.push(cells);
    }
    table
}

/// What runs here and is in neither of these tables, since the thesis's latencies don't contain it.
fn others(rows: &[Row]) -> Table {
    let is_there = |row: &&Row| {
        let is_part = |part: &Part| matches!(part.3, Here::Row(name) if name == row.name);
        !PRIMITIVES.contains(&row.name.as_str()) && !TABLE_12_1.iter().any(is_part)
    };
    let table = empty_table("Other operations: they overlap with the transfer", &COLUMNS[..HERE]);
    Table { rows: rows.iter().filter(is_there).map(cells).collect(), ..table }
}

fn figure(rows: &[Row]) -> Figure {
    let is_shown = |row: &&Row| {
        let is_part = WITH_OTHERS.iter().any(|(name, ..)| *name == row.name);
        PRIMITIVES.contains(&row.name.as_str()) && !is_part
    };
    Figure {
        name: "primitives".to_owned(),
        title: "Time of primitive operations by data length".to_owned(),
        x: Axis::logarithmic("data length in bytes"),
        y: Axis::logarithmic("time in µs"),
        curves: rows.iter().filter(is_shown).map(curve).filter(|curve| !curve.points.is_empty()).collect(),
    }
}

fn curve(row: &Row) -> Curve {
    let point = |time: &Time| CurvePoint {
        x: time.len as f64,
        y: time.mean,
        low: Some(time.low.max(SHORTEST)),
        high: Some(time.high),
    };
    let points = row.times.iter().filter(|time| time.mean >= SHORTEST).map(point).collect();
    Curve { name: row.name.clone(), points, measured: true, beside: false }
}

/// The shortest time that a logarithmic axis shows, in microseconds.
const SHORTEST: f64 = 0.001;

#[cfg(test)]
mod tests;
