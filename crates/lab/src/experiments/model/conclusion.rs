//! The conclusion of `model`: estimates beside measurements, and how far they are apart.

use genie_passing::Scheme;

use crate::amounts::{self, signed_percent, significant};
use crate::experiments::reading::{bytes, findings, headings};
use crate::findings::{Axis, Conclusion, Curve, CurvePoint, Figure, Judgement, Table, row};
use crate::measurement::Measurements;
use crate::model::measured::Operations;
use crate::model::reproduced::{KEY, Reproduced, latencies, scalings};
use crate::papers::Agreement;

use super::circumstances;
use super::estimates::{Base, Estimate, Estimated, Estimates, furthest_from_its_line};
use super::{DECLARATION, TOLERANCE};

pub(super) fn conclude(measurements: &Measurements) -> Conclusion {
    let reproduced =
        [latencies::demultiplexed(), latencies::pooled(), scalings::costs_per_byte(), scalings::ratios()];
    let (mut conclusion, sum, lines) = match circumstances::choose(measurements) {
        Ok(chosen) => {
            let estimates = &chosen.estimates;
            let mut conclusion = of_estimates(estimates, Operations(&chosen.measurements));
            conclusion.notes.extend(chosen.note);
            let sum = judgement(estimates, |estimate| Some(estimate.here), false);
            (conclusion, sum, judgement(estimates, |estimate| estimate.line, true))
        }
        Err(reason) => (Conclusion::default(), Err(reason.clone()), Err(reason)),
    };
    let scaling =
        "One run is of one machine. Save a run of each and compare them: genie lab compare RUN RUN.";
    conclusion.verdicts = findings(&DECLARATION, Ok(vec![sum, lines, Err(scaling.to_owned())]));
    conclusion.tables.extend(reproduced.iter().map(Reproduced::table));
    conclusion.notes.push(of_reproduction(&reproduced));
    conclusion.notes.push(KEY.to_owned());
    conclusion
}

fn of_reproduction(tables: &[Reproduced]) -> String {
    let count = |agreement| tables.iter().map(|table| table.count(agreement)).sum::<usize>();
    let none: Vec<String> = tables.iter().flat_map(|table| table.names(Agreement::None)).collect();
    format!(
        "Of the numbers that tables 8.6 to 8.9 compute, {} come out to the digit from the paper's printed inputs, {} within the \
         rounding of these, and {} do not: {}.",
        count(Agreement::Digits),
        count(Agreement::Rounding),
        none.len(),
        none.join("; ")
    )
}

fn of_estimates(estimates: &Estimates, operations: Operations<'_>) -> Conclusion {
    let mut notes: Vec<String> = estimates
        .missing
        .iter()
        .map(|(scheme, reason)| format!("No estimate for {scheme}: {reason}."))
        .collect();
    notes.push(
        "The base is what emulated share takes less its own operations, so emulated share's estimate at a length is what was \
         measured, and proves nothing."
            .to_owned(),
    );
    notes.extend(
        estimates.schemes.iter().flat_map(|estimated| reasons(&estimates.base, estimated, operations)),
    );
    let native = figure(estimates, "native", "schemes with native buffers", |scheme| !is_migrant(scheme));
    let migrant = figure(estimates, "migrant", "schemes with migrant buffers", is_migrant);
    Conclusion {
        figures: native.into_iter().chain(migrant).collect(),
        tables: vec![lines(estimates), errors(estimates)],
        verdicts: Vec::new(),
        notes,
    }
}

fn is_migrant(scheme: Scheme) -> bool {
    matches!(scheme, Scheme::Move | Scheme::EmulatedMove | Scheme::WeakMove | Scheme::EmulatedWeakMove)
}

/// Table 8.6 for this machine.
fn lines(estimates: &Estimates) -> Table {
    let shown = |line: Option<_>| line.map_or_else(|| ["no line", ""].map(str::to_owned), amounts::line);
    let cells = |estimated: &Estimated| {
        let lines = [estimated.estimated, estimated.actual].into_iter().flat_map(shown);
        row(estimated.scheme.name(), lines)
    };
    Table::new(
        "Lines of latency: estimated, fitted to the operations and summed; actual, fitted to what was measured",
        ["scheme", "estimated: ns/B", "and µs", "actual: ns/B", "and µs"],
        estimates.schemes.iter().map(cells),
    )
}

/// How far the estimates are off, at each length.
fn errors(estimates: &Estimates) -> Table {
    let lengths: Vec<u64> = estimates.base.medians.iter().map(|(length, _)| *length).collect();
    let shown = |estimate: &Estimate| {
        let line = estimate
            .line
            .map_or_else(String::new, |line| format!(" ({})", signed_percent(estimate.error(line))));
        format!("{}{line}", signed_percent(estimate.error(estimate.here)))
    };
    let cells = |estimated: &Estimated| {
        let at = |length: &u64| estimated.lengths.iter().find(|estimate| estimate.length == *length);
        row(estimated.scheme.name(), lengths.iter().map(|length| at(length).map_or_else(String::new, shown)))
    };
    Table::new(
        "How far the estimate is from the measured median: by the operations' medians at that length (by their lines)",
        headings("", &lengths),
        estimates.schemes.iter().map(cells),
    )
}

/// Judges one kind of estimate at all lengths of all schemes; the scheme that the base is taken from is included only where
/// that proves something.
fn judgement(estimates: &Estimates, of: impl Fn(&Estimate) -> Option<f64>, with_base: bool) -> Judgement {
    let schemes = estimates.schemes.iter().filter(|estimated| with_base || !estimated.is_base);
    let errors: Vec<(Scheme, u64, f64)> = schemes
        .flat_map(|estimated| estimated.lengths.iter().map(move |estimate| (estimated.scheme, estimate)))
        .filter_map(|(scheme, estimate)| Some((scheme, estimate.length, estimate.error(of(estimate)?))))
        .collect();
    let worst = errors.iter().max_by(|one, other| one.2.abs().total_cmp(&other.2.abs()));
    let (scheme, length, error) = worst.ok_or("Too few lengths were measured.")?;
    let within = errors.iter().filter(|(_, _, error)| error.abs() <= TOLERANCE).count();
    let found = format!(
        "{within} of {} estimates are within {:.0} % of the measured median; the worst is {} off, for {scheme} of {}.",
        errors.len(),
        TOLERANCE * 100.0,
        signed_percent(*error),
        bytes(*length),
    );
    Ok((within == errors.len(), found))
}

/// Why a scheme's estimates are off, where they are.
fn reasons(base: &Base, estimated: &Estimated, operations: Operations<'_>) -> Vec<String> {
    let mut reasons = Vec::new();
    let worst = |error: &dyn Fn(&Estimate) -> f64| {
        let off = estimated.lengths.iter().filter(|estimate| error(estimate).abs() > TOLERANCE);
        off.max_by(|one, other| error(one).abs().total_cmp(&error(other).abs()))
    };
    if let Some(estimate) = worst(&|estimate| estimate.error(estimate.here)) {
        reasons.push(not_in_the_sum(estimated.scheme, estimate, operations));
    }
    let by_line = |estimate: &Estimate| estimate.line.map_or(0.0, |line| estimate.error(line));
    if let Some(estimate) = worst(&by_line) {
        reasons.extend(not_on_a_line(base, estimated, estimate, operations));
    }
    reasons
}

fn not_in_the_sum(scheme: Scheme, estimate: &Estimate, operations: Operations<'_>) -> String {
    let actual = estimate.actual.samples.median_us();
    let here = format!("{scheme} of {}", bytes(estimate.length));
    let (actual_us, off_us) = (significant(actual), significant((actual - estimate.here).abs()));
    if actual < estimate.here {
        return format!(
            "{here}: measured {actual_us} µs, {off_us} µs less than the sum, so operations overlap that the model adds, or the copy \
             that stands for the wire finds its data in a warmer cache than with emulated share."
        );
    }
    let unpriced: Vec<String> = operations
        .unpriced_at(scheme, estimate.length)
        .into_iter()
        .map(|(row, cost)| format!("{row} takes {} µs", significant(cost)))
        .collect();
    let unpriced = if unpriced.is_empty() {
        String::new()
    } else {
        format!(" Of operations that the thesis does not price there, {}.", unpriced.join(", "))
    };
    format!(
        "{here}: measured {actual_us} µs, {off_us} µs more than the sum.{unpriced} The rest is in the base: the copy that stands for the \
         wire, which takes longer where a scheme's buffers are not in a cache, while a network's time depended on no cache."
    )
}

fn not_on_a_line(
    base: &Base,
    estimated: &Estimated,
    estimate: &Estimate,
    operations: Operations<'_>,
) -> Option<String> {
    let (row, above) = furthest_from_its_line(operations, base, estimated, estimate.length)?;
    Some(format!(
        "{} of {}: by lines the estimate is {} µs, measured were {} µs. Of its parts {row} is least like a line: its line is {} µs {} its median there. Lines over such a range of lengths follow the longest ones.",
        estimated.scheme,
        bytes(estimate.length),
        significant(estimate.line?),
        significant(estimate.actual.samples.median_us()),
        significant(above.abs()),
        if above > 0.0 { "above" } else { "below" },
    ))
}

fn figure(estimates: &Estimates, name: &str, what: &str, is_in: impl Fn(Scheme) -> bool) -> Option<Figure> {
    let schemes = estimates.schemes.iter().filter(|estimated| is_in(estimated.scheme));
    let title = format!("Latency estimated from the costs of operations, and measured: {what}");
    let axes = ["data length in bytes", "end-to-end latency in µs"].map(Axis::logarithmic);
    Figure::of(format!("model-{name}"), title, axes, schemes.flat_map(curves))
}

fn curves(estimated: &Estimated) -> [Curve; 2] {
    let measured = |estimate: &Estimate| {
        let spread = estimate.actual.samples.spread();
        CurvePoint {
            x: estimate.length as f64,
            y: spread.median,
            low: Some(spread.p5),
            high: Some(spread.p95),
        }
    };
    let computed = |estimate: &Estimate| (estimate.length as f64, estimate.here);
    let name = estimated.scheme.name();
    [
        Curve::measured(name, estimated.lengths.iter().map(measured)),
        Curve::estimate(format!("{name}, estimated"), estimated.lengths.iter().map(computed)),
    ]
}

#[cfg(test)]
mod tests;
