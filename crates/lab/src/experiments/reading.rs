//! Reading measurements: medians, curves, and the words and numbers in which they are reported.

use crate::amounts::significant;
use crate::experiment::Declaration;
use crate::findings::{Axis, Curve, CurvePoint, Figure, Finding, Judgement, Scale, Table, row};
use crate::length;
use crate::measurement::{Measurements, Point, Quantity};

/// One quantity of one experiment at one setting.
#[derive(Debug, Clone)]
pub(super) struct Reading<'m> {
    measurements: &'m Measurements,
    experiment: &'static str,
    pub(super) setting: String,
    pub(super) quantity: Quantity,
}

impl<'m> Reading<'m> {
    pub(super) fn of(
        measurements: &'m Measurements,
        experiment: &'static str,
        setting: impl Into<String>,
        quantity: Quantity,
    ) -> Self {
        Self { measurements, experiment, setting: setting.into(), quantity }
    }

    /// The medians of a series with their x, ascending: times in microseconds, other quantities in their own unit.
    pub(super) fn medians(&self, series: &str) -> Vec<(u64, f64)> {
        self.measurements.medians(self.experiment, &self.setting, series, self.quantity)
    }

    /// A median, in the same unit.
    pub(super) fn at(&self, series: &str, x: u64) -> Option<f64> {
        self.medians(series).into_iter().find(|(at, _)| *at == x).map(|(_, median)| median)
    }

    /// All x at which any of the series was measured, ascending.
    pub(super) fn lengths(&self, series: impl IntoIterator<Item = impl AsRef<str>>) -> Vec<u64> {
        let all = series.into_iter().flat_map(|one| self.medians(one.as_ref())).map(|(x, _)| x);
        all.collect::<std::collections::BTreeSet<_>>().into_iter().collect()
    }

    /// A series as a curve of medians, in the same unit, with its spread.
    fn curve(&self, series: &str) -> Curve {
        let points = self.measurements.points(self.experiment, &self.setting, series, self.quantity);
        let point = |point: &Point| {
            let at = |share| point.samples.quantile(share) as f64 / self.quantity.per_unit();
            CurvePoint { x: point.x as f64, y: at(0.5), low: Some(at(0.05)), high: Some(at(0.95)) }
        };
        Curve::measured(series, points.iter().map(point))
    }

    /// Some series as a figure over data length, leaving out those that were not measured.
    pub(super) fn figure(
        &self,
        name: &str,
        title: &str,
        y: &str,
        scale: Scale,
        series: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Option<Figure> {
        let axes = ["data length in bytes", y].map(|label| Axis { label: label.to_owned(), scale });
        Figure::of(name, title, axes, series.into_iter().map(|one| self.curve(one.as_ref())))
    }

    /// A table of medians by length: `first` heads the column of names.
    pub(super) fn table(
        &self,
        title: impl Into<String>,
        first: &str,
        series: impl IntoIterator<Item = impl AsRef<str>> + Clone,
    ) -> Table {
        self.table_of(title, first, series, |_, median| median)
    }

    /// A table by length of values that are computed from a length and the median there.
    pub(super) fn table_of(
        &self,
        title: impl Into<String>,
        first: &str,
        series: impl IntoIterator<Item = impl AsRef<str>> + Clone,
        number: impl Fn(u64, f64) -> f64,
    ) -> Table {
        let lengths = self.lengths(series.clone());
        let cell = |one: &str, x: u64| shown(self.at(one, x).map(|median| number(x, median)));
        let cells = |one: &str| row(one, lengths.iter().map(|x| cell(one, *x)));
        Table::new(title, headings(first, &lengths), series.into_iter().map(|one| cells(one.as_ref())))
    }

    /// Equivalent throughput of single datagrams in Mbit/s, as a table's cell.
    pub(super) fn throughput(&self, series: &str, len: u64) -> String {
        shown(self.at(series, len).map(|us| throughput(len, us)))
    }
}

/// The text of a cell where nothing was measured.
pub(super) const MISSING: &str = "–";

/// A number as a table's cell.
pub(super) fn shown(number: Option<f64>) -> String {
    number.map_or_else(|| MISSING.to_owned(), significant)
}

/// A share as per cent.
pub(super) fn per_cent(share: f64) -> String {
    // A number that rounds to zero gets no sign: -0 and 0 make 0.
    format!("{:.0} %", (share * 100.0).round() + 0.0)
}

/// A length for people.
pub(super) fn bytes(len: u64) -> String {
    length::format(len as usize)
}

/// The throughput, in Mbit/s, of `bytes` bytes in `us` microseconds.
pub(super) fn throughput(bytes: u64, us: f64) -> f64 {
    bytes as f64 * 8.0 / us
}

/// The least and the greatest of some numbers; none if there are no numbers.
pub(super) fn ends(numbers: impl IntoIterator<Item = f64>) -> Option<(f64, f64)> {
    numbers.into_iter().fold(None, |ends, one| {
        let (least, greatest) = ends.unwrap_or((one, one));
        Some((least.min(one), greatest.max(one)))
    })
}

/// The headings of a table by length: a first one, and the lengths.
pub(super) fn headings(first: &str, lengths: &[u64]) -> Vec<String> {
    row(first, lengths.iter().map(|x| bytes(*x)))
}

/// A setting as a part of a file name: `10-gbit-s`.
pub(super) fn slug(text: &str) -> String {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("-").to_ascii_lowercase()
}

/// The findings on an experiment's claims: judgements in the order of the claims, or why none can be tested.
pub(super) fn findings(declaration: &Declaration, judgements: Result<Vec<Judgement>, &str>) -> Vec<Finding> {
    let claims = declaration.claims;
    let judgements = judgements.unwrap_or_else(|why| vec![Err(why.to_owned()); claims.len()]);
    claims.iter().zip(judgements).map(|(claim, judgement)| Finding::of(claim.id, judgement)).collect()
}

/// What became of AF_XDP where it was not to be had, as a sentence.
pub(super) fn left_out(measurements: &Measurements) -> Option<String> {
    let lack = measurements.circumstances.xdp_lack.as_ref()?;
    Some(format!("AF_XDP was left out: {lack}."))
}

/// The judgements over the wire, each with what is found over AF_XDP, where that was measured.
pub(super) fn beside(wire: Vec<Judgement>, xdp: Vec<Judgement>) -> Vec<Judgement> {
    let mut xdp = xdp.into_iter();
    let both = |wire: Judgement| {
        let over = xdp.next().unwrap_or(Err(String::new()));
        let (holds, found) = wire?;
        let over = over.map_or_else(
            |_| String::new(),
            |(holds, found)| {
                format!(" Over AF_XDP it {}: {found}", if holds { "holds" } else { "does not hold" })
            },
        );
        Ok((holds, found + &over))
    };
    wire.into_iter().map(both).collect()
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
    fn what_is_found_over_af_xdp_stands_behind_the_wires_verdict_and_does_not_change_it() {
        let judged = |holds, found: &str| Ok((holds, found.to_owned()));
        let wire = vec![judged(true, "A."), judged(false, "B."), judged(true, "C."), Err("D.".to_owned())];
        let xdp = vec![judged(false, "a."), judged(true, "b."), Err("none".to_owned())];
        let both = [
            judged(true, "A. Over AF_XDP it does not hold: a."),
            judged(false, "B. Over AF_XDP it holds: b."),
            judged(true, "C."),
            Err("D.".to_owned()),
        ];
        assert_eq!(beside(wire, xdp), both);
    }

    #[test]
    fn throughput_is_in_megabits() {
        assert!((throughput(61_440, 3641.0) - 135.0).abs() < 0.01);
    }
}
