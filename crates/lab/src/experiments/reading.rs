//! Reading measurements: medians, curves, and the words and numbers in which they are reported.

use crate::amounts::significant;
use crate::findings::{Axis, Curve, CurvePoint, Figure, Finding, Scale, Table, Verdict};
use crate::length;
use crate::measurement::{Measurements, Quantity};

/// One quantity of one experiment at one setting.
#[derive(Debug, Clone)]
pub(super) struct Reading<'m> {
    pub(super) measurements: &'m Measurements,
    pub(super) experiment: &'m str,
    pub(super) setting: String,
    pub(super) quantity: Quantity,
}

impl Reading<'_> {
    /// A series: (x, median in microseconds or, of what is no time, in its own unit), ascending.
    pub(super) fn medians(&self, series: &str) -> Vec<(u64, f64)> {
        self.measurements.medians(self.experiment, &self.setting, series, self.quantity)
    }

    /// A median, in the same unit.
    pub(super) fn at(&self, series: &str, x: u64) -> Option<f64> {
        self.medians(series).into_iter().find(|(at, _)| *at == x).map(|(_, median)| median)
    }

    /// All x at which any of the series was measured, ascending.
    pub(super) fn lengths<'s>(&self, series: impl IntoIterator<Item = &'s str>) -> Vec<u64> {
        let all = series.into_iter().flat_map(|one| self.medians(one)).map(|(x, _)| x);
        all.collect::<std::collections::BTreeSet<_>>().into_iter().collect()
    }

    /// A series as a curve, in the same unit, with its spread.
    pub(super) fn curve(&self, series: &str) -> Curve {
        let points = self.measurements.points(self.experiment, &self.setting, series, self.quantity);
        let point = |point: &crate::measurement::Point| {
            let at = |share| point.samples.quantile(share) as f64 / self.quantity.per_unit();
            CurvePoint { x: point.x as f64, y: at(0.5), low: Some(at(0.05)), high: Some(at(0.95)) }
        };
        Curve {
            name: series.to_owned(),
            points: points.iter().map(point).collect(),
            measured: true,
            beside: false,
        }
    }

    /// Some series as a figure over data length, leaving out those that were not measured.
    pub(super) fn figure<'s>(
        &self,
        name: &str,
        title: &str,
        y: &str,
        scale: Scale,
        series: impl IntoIterator<Item = &'s str>,
    ) -> Option<Figure> {
        let axes = ["data length in bytes", y].map(|label| Axis { label: label.to_owned(), scale });
        Figure::of(name, title, axes, series.into_iter().map(|one| self.curve(one)))
    }

    /// A table of medians by length: `first` heads the column of names.
    pub(super) fn table<'s>(
        &self,
        title: impl Into<String>,
        first: &str,
        series: impl IntoIterator<Item = &'s str> + Clone,
    ) -> Table {
        let lengths = self.lengths(series.clone());
        Table { title: title.into(), columns: headings(first, &lengths), rows: self.rows(&lengths, series) }
    }

    /// Equivalent throughput of single datagrams in Mbit/s, as a table's cell.
    pub(super) fn throughput(&self, series: &str, bytes: u64) -> String {
        shown(self.at(series, bytes).map(|us| throughput(bytes, us)))
    }

    /// A table's rows: for each series its medians at each of the lengths.
    fn rows<'s>(&self, lengths: &[u64], series: impl IntoIterator<Item = &'s str>) -> Vec<Vec<String>> {
        let cell = |one: &str, x: &u64| shown(self.at(one, *x));
        let row = |one: &str| {
            std::iter::once(one.to_owned()).chain(lengths.iter().map(|x| cell(one, x))).collect::<Vec<_>>()
        };
        series.into_iter().map(row).collect()
    }
}

/// What stands where nothing was measured.
pub(super) const MISSING: &str = "–";

/// A number as a table's cell.
pub(super) fn shown(number: Option<f64>) -> String {
    number.map_or_else(|| MISSING.to_owned(), significant)
}

/// A share as per cent.
pub(super) fn per_cent(share: f64) -> String {
    // What rounds to zero has no sign: -0 and 0 make 0.
    format!("{:.0} %", (share * 100.0).round() + 0.0)
}

/// Bytes in so many microseconds, as Mbit/s.
pub(super) fn throughput(bytes: u64, us: f64) -> f64 {
    bytes as f64 * 8.0 / us
}

/// The headings of a table by length: a first one, and the lengths.
pub(super) fn headings(first: &str, lengths: &[u64]) -> Vec<String> {
    let lengths = lengths.iter().map(|x| length::format(*x as usize));
    std::iter::once(first.to_owned()).chain(lengths).collect()
}

/// A setting as a part of a file name: `10-gbit-s`.
pub(super) fn slug(text: &str) -> String {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("-").to_ascii_lowercase()
}

/// The verdict on a claim.
pub(super) fn judged(claim: &str, holds: bool, found: impl Into<String>) -> Finding {
    let verdict = if holds { Verdict::Holds } else { Verdict::DoesNotHold };
    Finding { claim: claim.to_owned(), verdict, found: found.into() }
}

/// A claim that was not tested, and why.
pub(super) fn untested(claim: &str, why: impl Into<String>) -> Finding {
    Finding { claim: claim.to_owned(), verdict: Verdict::CannotBeTested, found: why.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_make_file_names_and_shares_have_a_sign_where_they_are_not_zero() {
        assert_eq!(slug("10 Gbit/s"), "10-gbit-s");
        assert_eq!([0.604, -0.003, -0.01].map(per_cent), ["60 %", "0 %", "-1 %"]);
    }

    #[test]
    fn throughput_is_in_megabits() {
        assert!((throughput(61_440, 3641.0) - 135.0).abs() < 0.01);
    }
}
