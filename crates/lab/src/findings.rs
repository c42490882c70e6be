//! Conclusions of an experiment: tables, figures, and a verdict on each claim.

use serde::{Deserialize, Serialize};

/// Everything that one experiment concludes from a run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Conclusion {
    /// The figures to be drawn, in order.
    pub figures: Vec<Figure>,
    /// The tables to be printed, in order.
    pub tables: Vec<Table>,
    /// One for each claim of the declaration, in its order.
    pub verdicts: Vec<Finding>,
    /// Notes for the reader: what was too noisy, and what was left out and why.
    pub notes: Vec<String>,
}

/// Whether a claim holds here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The claim holds.
    Holds,
    /// The claim does not hold, which is a result, too.
    DoesNotHold,
    /// The claim could not be tested.
    CannotBeTested,
}

impl Verdict {
    /// The words for the verdict.
    pub fn words(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::DoesNotHold => "does not hold",
            Self::CannotBeTested => "cannot be tested here",
        }
    }
}

/// A claim beside what was found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// The claim's id.
    pub claim: String,
    /// Whether it holds.
    pub verdict: Verdict,
    /// What was found, with figures, in a sentence or two.
    pub found: String,
}

/// Whether a claim holds, and what was found, with figures; or why it could not be tested.
pub type Judgement = Result<(bool, String), String>;

impl Finding {
    /// The finding on the claim of that id.
    pub fn of(claim: &str, judgement: Judgement) -> Self {
        let (verdict, found) = match judgement {
            Ok((true, found)) => (Verdict::Holds, found),
            Ok((false, found)) => (Verdict::DoesNotHold, found),
            Err(why) => (Verdict::CannotBeTested, why),
        };
        Self { claim: claim.to_owned(), verdict, found }
    }
}

/// A table: a heading for each column, and rows of as many cells.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Table {
    /// What it shows, with units.
    pub title: String,
    /// The columns' headings; the first column names the row.
    pub columns: Vec<String>,
    /// The cells as they are shown.
    pub rows: Vec<Vec<String>>,
}

/// A table's row: its name, and its cells.
pub fn row(name: impl Into<String>, cells: impl IntoIterator<Item = String>) -> Vec<String> {
    std::iter::once(name.into()).chain(cells).collect()
}

impl Table {
    /// A table of these rows.
    pub fn new(
        title: impl Into<String>,
        columns: impl IntoIterator<Item = impl Into<String>>,
        rows: impl IntoIterator<Item = Vec<String>>,
    ) -> Self {
        let columns = columns.into_iter().map(Into::into).collect();
        Self { title: title.into(), columns, rows: rows.into_iter().collect() }
    }

    /// Whether a column holds numbers, which are aligned to the right: at least half of the cells that are not empty begin
    /// like a number.
    pub fn holds_numbers(&self, column: usize) -> bool {
        let says_something = |cell: &&String| !matches!(cell.as_str(), "" | "–");
        let cells = || self.rows.iter().filter_map(|row| row.get(column)).filter(says_something);
        let numbers = cells().filter(|cell| cell.starts_with(begins_number)).count();
        numbers > 0 && numbers * 2 >= cells().count()
    }
}

fn begins_number(letter: char) -> bool {
    letter.is_ascii_digit() || "+-−±<>≤≥.".contains(letter)
}

/// How an axis is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scale {
    /// Evenly.
    Linear,
    /// By factors.
    Logarithmic,
}

/// An axis of a figure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Axis {
    /// What it measures, with its unit: `data length in bytes`.
    pub label: String,
    /// How it is divided.
    pub scale: Scale,
}

impl Axis {
    /// An axis that is divided evenly.
    pub fn linear(label: &str) -> Self {
        Self { label: label.to_owned(), scale: Scale::Linear }
    }

    /// An axis that is divided by factors.
    pub fn logarithmic(label: &str) -> Self {
        Self { label: label.to_owned(), scale: Scale::Logarithmic }
    }
}

/// One curve.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// The name in the legend.
    pub name: String,
    /// The points, ascending on the horizontal axis.
    pub points: Vec<CurvePoint>,
    /// Whether the curve was measured; otherwise it is an estimate, and drawn as one.
    pub measured: bool,
    /// Whether the curve is there for others to be compared with; then it is drawn thin and without markers.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub beside: bool,
}

impl Curve {
    /// A curve that was measured.
    pub fn measured(name: impl Into<String>, points: impl IntoIterator<Item = CurvePoint>) -> Self {
        let points = points.into_iter().collect();
        Self { name: name.into(), points, measured: true, beside: false }
    }

    /// A curve that was measured, without its spread.
    pub fn plain(name: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        let point = |(x, y)| CurvePoint { x, y, low: None, high: None };
        Self::measured(name, points.into_iter().map(point))
    }

    /// A curve that was measured for others to be compared with.
    pub fn beside(name: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        Self { beside: true, ..Self::plain(name, points) }
    }

    /// A curve that was computed.
    pub fn estimate(name: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        Self { measured: false, ..Self::plain(name, points) }
    }
}

/// One point of a curve, in the units of the axes, with the spread where it was measured.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CurvePoint {
    /// The place on the horizontal axis.
    pub x: f64,
    /// The place on the vertical axis: a median, where measured.
    pub y: f64,
    /// A twentieth of the samples are below it.
    pub low: Option<f64>,
    /// A twentieth of the samples are above it.
    pub high: Option<f64>,
}

/// A figure: curves over common axes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// The file name without ending, unique within its experiment: `latency-unlimited`.
    pub name: String,
    /// What it shows.
    pub title: String,
    /// Horizontal.
    pub x: Axis,
    /// Vertical.
    pub y: Axis,
    /// The curves, in any order; the legend lists them in the order of their right ends, from top to bottom.
    pub curves: Vec<Curve>,
}

impl Figure {
    /// A figure of those curves that have points; none where no curve has points.
    pub fn of(
        name: impl Into<String>,
        title: impl Into<String>,
        [x, y]: [Axis; 2],
        curves: impl IntoIterator<Item = Curve>,
    ) -> Option<Self> {
        let curves: Vec<_> = curves.into_iter().filter(|curve| !curve.points.is_empty()).collect();
        (!curves.is_empty()).then(|| Self { name: name.into(), title: title.into(), x, y, curves })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_of_numbers_are_told_from_words() {
        let rows = [["copy", "12.0", "–", "1.5 ~ 1.6", ""], ["share", "–", "word", "no line", "–"]];
        let rows = rows.map(|row| row.map(str::to_owned).to_vec()).to_vec();
        let table = Table { rows, ..Table::default() };
        let held: Vec<_> = (0..6).map(|column| table.holds_numbers(column)).collect();
        assert_eq!(held, [false, true, false, true, false, false]);
    }
}
