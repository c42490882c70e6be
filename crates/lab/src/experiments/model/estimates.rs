//! Estimates beside measured latencies, scheme by scheme and length by length.

use genie_passing::Scheme;

use crate::measurement::{Measurements, Point, Quantity};
use crate::model::breakdown::Unpriced;
use crate::model::fit::{Line, fit};
use crate::model::measured::{Median, Operations, Side, granule};

/// The experiment that measured latencies, and how fast its device was.
const LATENCY: &str = "latency";
const UNLIMITED: &str = "unlimited";

/// One length.
#[derive(Debug, Clone)]
pub(super) struct Estimate {
    pub(super) length: u64,
    /// What was measured.
    pub(super) actual: Point,
    /// The estimate from the medians of the operations at this length.
    pub(super) here: f64,
    /// The estimate from the operations' lines.
    pub(super) line: Option<f64>,
}

impl Estimate {
    /// How far an estimate is off, as a fraction of the measured latency.
    pub(super) fn error(&self, estimate: f64) -> f64 {
        estimate / self.actual.samples.median_us() - 1.0
    }
}

/// One scheme.
#[derive(Debug, Clone)]
pub(super) struct Estimated {
    pub(super) scheme: Scheme,
    /// Ascending.
    pub(super) lengths: Vec<Estimate>,
    /// The sum of the base's line and the operations' lines.
    pub(super) estimated: Option<Line>,
    /// The line through the measured latencies.
    pub(super) actual: Option<Line>,
    /// Whether the base was taken from this scheme, so that its estimate at a length equals the measured latency.
    pub(super) is_base: bool,
}

/// All schemes that can be estimated, and why others cannot.
#[derive(Debug, Clone)]
pub(super) struct Estimates {
    pub(super) schemes: Vec<Estimated>,
    pub(super) missing: Vec<(Scheme, String)>,
    pub(super) base: Base,
}

/// The latencies of a scheme at multiples of the granule.
fn latencies(measurements: &Measurements, scheme: Scheme, granule: u64) -> Vec<Point> {
    let mut points = measurements.points(LATENCY, UNLIMITED, scheme.name(), Quantity::Latency);
    points.retain(|point| point.x >= granule && point.x.is_multiple_of(granule));
    points
}

/// Estimates all schemes, or says which measurements are missing for that.
pub(super) fn estimate(measurements: &Measurements) -> Result<Estimates, String> {
    let granule = granule(measurements)
        .ok_or("the costs of operations were not measured: run the experiment primitives")?;
    let operations = Operations(measurements);
    let share = latencies(measurements, Scheme::EmulatedShare, granule);
    if share.is_empty() {
        return Err(
            "no latency at a multiple of the granule was measured by emulated share, from which the base is taken: run the \
                    experiment latency"
                .to_owned(),
        );
    }
    let base = Base::of(operations, &share)?;
    let (mut schemes, mut missing) = (Vec::new(), Vec::new());
    for scheme in Scheme::ALL {
        let points = latencies(measurements, scheme, granule);
        match one(operations, &base, scheme, points) {
            Ok(estimated) => schemes.push(estimated),
            Err(reason) => missing.push((scheme, reason)),
        }
    }
    Ok(Estimates { schemes, missing, base })
}

/// The base, which no scheme changes.
#[derive(Debug, Clone)]
pub(super) struct Base {
    pub(super) medians: Vec<Median>,
    line: Option<Line>,
}

impl Base {
    fn of(operations: Operations<'_>, share: &[Point]) -> Result<Self, String> {
        let median = |point: &Point| {
            let added = operations.added_at(Scheme::EmulatedShare, point.x)?;
            Ok::<_, Unpriced>((point.x, point.samples.median_us() - added))
        };
        let medians = possible(share.iter().map(|point| median(point).map_err(|error| error.to_string())))?;
        let line = fit(&medians).map(|fit| fit.line);
        Ok(Self { medians, line })
    }

    fn at(&self, length: u64) -> Option<f64> {
        self.medians.iter().find(|(at, _)| *at == length).map(|(_, cost)| *cost)
    }
}

fn one(
    operations: Operations<'_>,
    base: &Base,
    scheme: Scheme,
    points: Vec<Point>,
) -> Result<Estimated, String> {
    if points.is_empty() {
        return Err("its latency was not measured".to_owned());
    }
    let estimate = |actual: Point| {
        let added = operations.added_at(scheme, actual.x).map_err(|error| error.to_string())?;
        let base = base.at(actual.x).ok_or("there is no base at its lengths")?;
        Ok(Estimate { length: actual.x, actual, here: base + added, line: None })
    };
    let mut lengths = possible(points.into_iter().map(estimate))?;
    let common: Vec<u64> = lengths.iter().map(|estimate| estimate.length).collect();
    let added = operations.added_line(scheme, &common).ok();
    let estimated = added.zip(base.line).map(|(added, base)| added + base);
    for estimate in &mut lengths {
        estimate.line = estimated.map(|line| line.at(estimate.length as f64));
    }
    let medians: Vec<Median> =
        lengths.iter().map(|estimate| (estimate.length, estimate.actual.samples.median_us())).collect();
    let actual = fit(&medians).map(|fit| fit.line);
    Ok(Estimated { scheme, lengths, estimated, actual, is_base: scheme == Scheme::EmulatedShare })
}

/// The results that are possible; if none is, the reason of the last one.
fn possible<One>(all: impl Iterator<Item = Result<One, String>>) -> Result<Vec<One>, String> {
    let (mut possible, mut lacking) = (Vec::new(), None);
    for one in all {
        match one {
            Ok(one) => possible.push(one),
            Err(reason) => lacking = Some(reason),
        }
    }
    lacking.filter(|_| possible.is_empty()).map_or(Ok(possible), Err)
}

/// The base or the operation whose line is furthest from its median at a length, and by how many microseconds the line is
/// above the median.
pub(super) fn furthest_from_its_line(
    operations: Operations<'_>,
    base: &Base,
    estimated: &Estimated,
    length: u64,
) -> Option<(&'static str, f64)> {
    let lengths: Vec<u64> = estimated.lengths.iter().map(|estimate| estimate.length).collect();
    let above = |row, line: Line, medians: &[Median]| {
        let (_, median) = medians.iter().find(|(at, _)| *at == length)?;
        Some((row, line.at(length as f64) - median))
    };
    let of_row = |(side, row): (Side, &'static str)| {
        let line = operations.line(side, estimated.scheme, row, &lengths).ok()?;
        above(row, line, &operations.medians(side, estimated.scheme, row))
    };
    let of_base = base.line.and_then(|line| above("the base", line, &base.medians));
    let all = Operations::rows(estimated.scheme).into_iter().filter_map(of_row).chain(of_base);
    all.max_by(|one, other| one.1.abs().total_cmp(&other.1.abs()))
}
