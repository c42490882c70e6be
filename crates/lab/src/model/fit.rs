//! Straight lines, and their fitting through measured points by least squares.
//!
//! Why: the lines of `genie_passing`, by which Genie decides, are fitted to relative errors and have no negative term. The
//! lines here are to be compared with the papers' lines, and are therefore fitted in the papers' way.
//! Source: Brustoloni, section 8.2.2, which describes every operation by a factor for each byte and a fixed term. The fixed
//! term may come out negative where the first bytes are cheaper than the rest.

use std::iter::Sum;
use std::ops::{Add, Sub};

use statrs::statistics::Statistics;

/// A cost that depends on the length: `factor * length + fixed`.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Line {
    /// The cost of each byte.
    pub factor: f64,
    /// The cost that every length has besides.
    pub fixed: f64,
}

/// A line and how well the points lie on it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fit {
    /// The line.
    pub line: Line,
    /// The coefficient of determination, R²: 1 if all points are on the line; none if all points are equally high, so that
    /// the length explains nothing.
    pub r_squared: Option<f64>,
}

impl Line {
    /// A cost that is the same for every length.
    pub fn constant(fixed: f64) -> Self {
        Self { factor: 0.0, fixed }
    }

    /// The cost for a length.
    pub fn at(self, length: f64) -> f64 {
        self.factor * length + self.fixed
    }
}

impl Add for Line {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { factor: self.factor + other.factor, fixed: self.fixed + other.fixed }
    }
}

impl Sub for Line {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self { factor: self.factor - other.factor, fixed: self.fixed - other.fixed }
    }
}

impl Sum for Line {
    fn sum<I: Iterator<Item = Self>>(lines: I) -> Self {
        lines.fold(Self::default(), Self::add)
    }
}

/// Fits a line to points (length, cost) so that the sum of their squared distances from it, in cost, is least.
///
/// Returns none without two different lengths: one point cannot separate a factor from a fixed term.
pub fn fit(points: &[(u64, f64)]) -> Option<Fit> {
    let lengths: Vec<f64> = points.iter().map(|(length, _)| *length as f64).collect();
    let costs: Vec<f64> = points.iter().map(|(_, cost)| *cost).collect();
    let spread = Statistics::variance(&lengths);
    // For fewer than two points the variance is not a number.
    if spread.is_nan() || spread <= 0.0 {
        return None;
    }
    let common = lengths.as_slice().covariance(costs.as_slice());
    let factor = common / spread;
    let fixed = Statistics::mean(&costs) - factor * Statistics::mean(&lengths);
    let height = Statistics::variance(&costs);
    let r_squared = (height > 0.0).then(|| common * common / (spread * height));
    Some(Fit { line: Line { factor, fixed }, r_squared })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_on_a_line_give_that_line_also_below_zero() {
        let line = Line { factor: 0.0440, fixed: -63.0 };
        let points: Vec<_> = (1..=15).map(|page| page * 4096).map(|x| (x, line.at(x as f64))).collect();
        let fit = fit(&points).unwrap();
        assert!((fit.line.factor - line.factor).abs() < 1e-12);
        assert!((fit.line.fixed - line.fixed).abs() < 1e-9);
        assert!((fit.r_squared.unwrap() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn the_fit_is_the_least_squares_one() {
        // By hand: means 2 and 3, covariance 1.5 / 2, variance 1; residuals 1/4, -1/2, 1/4 of a height of 3/2 in sum.
        let fit = fit(&[(1, 2.5), (2, 2.5), (3, 4.0)]).unwrap();
        assert!((fit.line.factor - 0.75).abs() < 1e-12);
        assert!((fit.line.fixed - 1.5).abs() < 1e-12);
        assert!((fit.r_squared.unwrap() - 0.75).abs() < 1e-12);
    }

    #[test]
    fn constant_costs_have_a_line_but_nothing_to_explain() {
        let fit = fit(&[(1, 5.0), (2, 5.0)]).unwrap();
        assert_eq!((fit.line, fit.r_squared), (Line::constant(5.0), None));
    }

    #[test]
    fn one_length_is_not_enough() {
        assert_eq!(fit(&[]), None);
        assert_eq!(fit(&[(4096, 1.0)]), None);
        assert_eq!(fit(&[(4096, 1.0), (4096, 2.0)]), None);
    }
}
