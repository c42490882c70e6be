//! Costs: the lines through the measured times of operations, row by row.
//!
//! Why: the breakdown model adds these lines up.
//! How: a row's time at a length is the mean of the medians under all schemes, sides and kinds of buffering where it ran.
//! Where another operation did a row's work under the same lock, that setting is left out of the row's mean. A line is laid
//! through these at the lengths that are multiples of the granule, by ordinary least squares.
//! Source: J. C. Brustoloni's thesis, §8.2.2. Differs: genie_passing's lines, by which thresholds are set, are fitted to
//! relative errors. These are fitted as the thesis's are, to be compared with them; the longest data weighs most, so that the
//! fixed term says little where lengths span a thousandfold.

use std::collections::{BTreeMap, BTreeSet};

use genie::Scheme;
use genie_passing::operation::PRIMITIVES;

use super::ID;
use crate::measurement::{Measurements, Point, Quantity};
use crate::model::breakdown::{BASE, Costs};
use crate::model::fit::{Fit, Line, fit};
use crate::model::measured::granule;

/// What takes no longer than this for any length, in nanoseconds, did nothing: it is what the clock leaves.
const IDLE_NS_MAX: u64 = 20;

/// One row: an operation, or some that are priced together.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Row {
    /// Its name, as in table 8.2 where that has it.
    pub(super) name: String,
    /// Its times, by ascending length.
    pub(super) times: Vec<Time>,
    /// The line, in microseconds; none where it was measured at fewer than two multiples of the granule.
    pub(super) fit: Option<Fit>,
    /// Under how many combinations of scheme, side and buffering it ran.
    pub(super) settings: usize,
}

/// A row's time at one length, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Time {
    /// The number of bytes.
    pub(super) len: u64,
    /// The mean of all settings' medians.
    pub(super) mean: f64,
    /// The least of the settings' 5th percentiles.
    pub(super) low: f64,
    /// The greatest of their 95th percentiles.
    pub(super) high: f64,
    /// Whether the length is a multiple of the granule.
    pub(super) is_whole: bool,
}

/// All rows that were measured: those of table 8.2 in its order, then others by name.
pub(super) fn rows(measurements: &Measurements) -> Vec<Row> {
    let granule = granule(measurements).unwrap_or(1).max(1);
    let mut settings: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let measured = measurements.of(ID).flat_map(|step| &step.measured);
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
    let of = |setting: &&str| measurements.points(ID, setting, name, Quantity::OperationTime);
    let mut settings: Vec<Vec<Point>> = settings.iter().map(of).collect();
    let is_idle = |points: &Vec<Point>| points.iter().all(|point| point.median() <= IDLE_NS_MAX);
    if !settings.iter().all(is_idle) {
        settings.retain(|points| !is_idle(points));
    }
    let count = settings.len();
    let mut points: BTreeMap<u64, Vec<Point>> = BTreeMap::new();
    for point in settings.into_iter().flatten() {
        points.entry(point.x).or_default().push(point);
    }
    let times: Vec<Time> = points.iter().map(|(len, points)| time(*len, points, granule)).collect();
    let whole = times.iter().filter(|time| time.is_whole);
    let fit = fit(&whole.map(|time| (time.len as f64, time.mean)).collect::<Vec<_>>());
    Row { name: name.to_owned(), times, fit, settings: count }
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

/// The end-to-end latency of emulated share at multiples of the granule, in microseconds: from experiment `latency` where
/// that was run, else from this one.
pub(super) fn latency(measurements: &Measurements) -> Option<Fit> {
    let granule = granule(measurements).unwrap_or(1).max(1);
    let name = Scheme::EmulatedShare.name();
    let points = |experiment, setting| measurements.points(experiment, setting, name, Quantity::Latency);
    let own = points(ID, "");
    let latency = Some(points("latency", "unlimited")).filter(|points| !points.is_empty()).unwrap_or(own);
    let whole = latency.iter().filter(|point| point.x.is_multiple_of(granule));
    fit(&whole.map(|point| (point.x as f64, point.samples.median_us())).collect::<Vec<_>>())
}

/// The base: the latency of emulated share, less what its own operations take.
pub(super) fn base(rows: &[Row], latency: Fit) -> Option<Line> {
    let mut costs = Costs::new();
    rows.iter().filter_map(|row| Some((row, row.fit?))).for_each(|(row, fit)| costs.set(&row.name, fit.line));
    costs.set_base(latency.line).ok()?;
    costs.get(BASE)
}
