//! Rows: the times of each row of table 8.2 on one machine, averaged over schemes, and the line through these times.
//!
//! Why: tables of one machine's costs, and tables that compare two machines, must use the same lines.
//! How: a row's time at a length is the mean of the medians under all schemes, sides and kinds of buffering where it ran.
//! Where another operation did a row's work under the same lock, that setting is left out of the row's mean: its time is in
//! the other operation's already. A line is fitted to the means at the lengths that are multiples of the granule, by
//! ordinary least squares.
//! Limits: a row whose work other operations do wherever it runs shows only the clock's error, and has no cost. A scheme's
//! sum uses that scheme's own times (`measured`), where such a row counts with next to nothing.
//! Source: J. C. Brustoloni's thesis, §8.2.2. Differs: genie_passing's lines, by which thresholds are set, are fitted to
//! relative errors. The lines here are fitted as the thesis's are, to be compared with those; the longest data weighs most,
//! so the fixed term says little where lengths span a factor of a thousand.

use std::collections::{BTreeMap, BTreeSet};

use genie::Scheme;
use genie_passing::operation::PRIMITIVES;

use crate::measurement::{Measurements, Point, Quantity};
use crate::model::breakdown::{BASE, Costs};
use crate::model::fit::{Fit, Line, fit};
use crate::model::measured::{EXPERIMENT, granule};

/// In nanoseconds: an operation that takes no longer than this for any length did nothing, and its time is the clock's
/// error.
const IDLE_NS_MAX: u64 = 20;

/// One row: an operation, or some that are priced together.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Its name, as in table 8.2 if it is there.
    pub name: String,
    /// Its times, by ascending length.
    pub times: Vec<Time>,
    /// The line, in microseconds; none where the row was measured at fewer than two multiples of the granule.
    pub fit: Option<Fit>,
    /// Whether other operations did its work wherever it ran.
    pub is_idle: bool,
}

/// A row's time at one length, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Time {
    /// The number of bytes.
    pub len: u64,
    /// The mean of all settings' medians.
    pub mean: f64,
    /// The least of the settings' 5th percentiles.
    pub low: f64,
    /// The greatest of their 95th percentiles.
    pub high: f64,
    /// Whether the length is a multiple of the granule.
    pub is_whole: bool,
}

/// All rows that were measured: those of table 8.2 in its order, then others by name.
pub fn rows(measurements: &Measurements) -> Vec<Row> {
    let granule = granule(measurements).unwrap_or(1).max(1);
    let mut settings: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let measured = measurements.of(EXPERIMENT).flat_map(|step| &step.measured);
    for one in measured.filter(|one| one.quantity == Quantity::OperationTime) {
        settings.entry(&one.series).or_default().insert(&one.setting);
    }
    let mut names: Vec<&str> = settings.keys().copied().collect();
    let place = |name: &str| PRIMITIVES.iter().position(|row| *row == name).unwrap_or(PRIMITIVES.len());
    names.sort_by_key(|name| place(name));
    let row = |name: &str| row(measurements, name, &settings[name], granule);
    names.into_iter().map(row).collect()
}

fn row(measurements: &Measurements, name: &str, settings: &BTreeSet<&str>, granule: u64) -> Row {
    let of = |setting: &&str| measurements.points(EXPERIMENT, setting, name, Quantity::OperationTime);
    let mut settings: Vec<Vec<Point>> = settings.iter().map(of).collect();
    let does_nothing = |points: &Vec<Point>| points.iter().all(|point| point.median() <= IDLE_NS_MAX);
    let is_idle = settings.iter().all(does_nothing);
    if !is_idle {
        settings.retain(|points| !does_nothing(points));
    }
    let mut points: BTreeMap<u64, Vec<Point>> = BTreeMap::new();
    for point in settings.into_iter().flatten() {
        points.entry(point.x).or_default().push(point);
    }
    let times: Vec<Time> = points.iter().map(|(len, points)| time(*len, points, granule)).collect();
    let whole = times.iter().filter(|time| time.is_whole);
    let fit = fit(&whole.map(|time| (time.len, time.mean)).collect::<Vec<_>>());
    Row { name: name.to_owned(), times, fit, is_idle }
}

fn time(len: u64, points: &[Point], granule: u64) -> Time {
    let sum: f64 = points.iter().map(|point| point.samples.median_us()).sum();
    let spreads: Vec<_> = points.iter().map(|point| point.samples.spread()).collect();
    Time {
        len,
        mean: sum / points.len().max(1) as f64,
        low: spreads.iter().map(|spread| spread.p5).fold(f64::INFINITY, f64::min),
        high: spreads.iter().map(|spread| spread.p95).fold(0.0, f64::max),
        is_whole: len.is_multiple_of(granule),
    }
}

/// The end-to-end latency of emulated share at multiples of the granule, in microseconds: from the experiment `latency` if
/// that was run, else from `primitives`.
pub fn latency(measurements: &Measurements) -> Option<Fit> {
    let granule = granule(measurements).unwrap_or(1).max(1);
    let name = Scheme::EmulatedShare.name();
    let points = |experiment, setting| measurements.points(experiment, setting, name, Quantity::Latency);
    let own = points(EXPERIMENT, "");
    let latency = Some(points("latency", "unlimited")).filter(|points| !points.is_empty()).unwrap_or(own);
    let whole = latency.iter().filter(|point| point.x.is_multiple_of(granule));
    fit(&whole.map(|point| (point.x, point.samples.median_us())).collect::<Vec<_>>())
}

/// The costs of the machine: the lines of table 8.2's rows, and the base if it can be computed.
pub fn costs(measurements: &Measurements) -> Costs {
    let rows = rows(measurements);
    let mut costs = Costs::new();
    let priced = rows.iter().filter(|row| !row.is_idle && PRIMITIVES.contains(&row.name.as_str()));
    priced.filter_map(|row| Some((row, row.fit?))).for_each(|(row, fit)| costs.set(&row.name, fit.line));
    if let Some(base) = latency(measurements).and_then(|latency| base(&rows, latency)) {
        costs.set(BASE, base);
    }
    costs
}

/// The base: the latency of emulated share, less the time of its own operations.
pub fn base(rows: &[Row], latency: Fit) -> Option<Line> {
    let mut costs = Costs::new();
    rows.iter().filter_map(|row| Some((row, row.fit?))).for_each(|(row, fit)| costs.set(&row.name, fit.line));
    costs.set_base(latency.line).ok()?;
    costs.get(BASE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::synthetic::{self, made};

    const LENGTHS: [u64; 3] = [64, 4096, 8192];

    /// A run with these times in microseconds at 64 bytes and at one and two granules.
    fn run<const N: usize>(operations: [(&str, &str, [f64; 3]); N]) -> Measurements {
        let row = |(setting, series, us): (_, _, [f64; 3])| {
            let one = move |point| made(setting, series, Quantity::OperationTime, point);
            LENGTHS.into_iter().zip(us).map(one)
        };
        let mut run = synthetic::run(EXPERIMENT, operations.into_iter().flat_map(row));
        run.steps[0].measured.push(synthetic::granule(4096));
        run
    }

    #[test]
    fn a_machines_costs_are_averaged_over_settings_at_multiples_of_the_granule() {
        let run = run([
            ("sender, share", "Reference", [90.0, 1.0, 1.0]),
            ("sender, move", "Reference", [90.0, 1.0, 2.0]),
        ]);
        let cost = costs(&run).get("Reference").unwrap();
        assert!((cost.factor * 4096.0 - 0.5).abs() < 1e-9 && (cost.fixed - 0.5).abs() < 1e-9, "{cost:?}");
    }

    #[test]
    fn where_another_operation_does_a_rows_work_the_row_costs_as_much_as_elsewhere() {
        let run = run([
            ("receiver, share", "Unreference", [1.0, 2.0, 3.0]),
            ("sender, weak move", "Unreference", [0.01, 0.01, 0.02]),
            ("receiver, move", "Region map", [0.01, 0.02, 0.01]),
        ]);
        let cost = costs(&run).get("Unreference").unwrap();
        assert!((cost.fixed - 1.0).abs() < 0.01, "{cost:?}");
        assert_eq!(costs(&run).get("Region map"), None, "others map wherever regions are mapped");
    }

    #[test]
    fn the_base_is_that_of_latency_where_that_was_run() {
        let latency = |setting, us: [f64; 3]| {
            let one = move |point| made(setting, "emulated share", Quantity::Latency, point);
            LENGTHS.into_iter().zip(us).map(one)
        };
        let mut own =
            run([("sender", "Reference", [0.5, 1.0, 1.0]), ("receiver", "Unreference", [0.5, 1.0, 1.0])]);
        own = own.and(synthetic::run(EXPERIMENT, latency("", [9.0, 5.0, 8.0])));
        let base = |run: &Measurements| costs(run).get(BASE).map(|base| base.at(8192.0).round());
        assert_eq!(base(&own), Some(6.0));
        let both = own.and(synthetic::run("latency", latency("unlimited", [9.0, 9.0, 19.0])));
        assert_eq!(base(&both), Some(17.0));
    }
}
