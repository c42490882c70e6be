//! Whether the difference of two runs at a point is more than the scatter of their sittings explains.
//!
//! How: Student's test on the logarithms of the sittings' medians, of whether they are more than 10 % apart. The scatter at a point is
//! estimated by so few sittings that it is often far too small by chance; so it is moderated by that of the other points: taken for
//! no less than a mean of both. As many points are compared, each must be the more unlikely (Bonferroni).
//! Source: G. K. Smyth, *Linear models and empirical Bayes methods for assessing differential expression*, 2004, for the
//! moderation; the prior's weight is chosen here, not fitted.

use crate::measurement::Point;
use crate::runner::noise::TOLERATED;

/// How often one point or more may differ by chance, where two runs of one program are compared.
const CHANCE: f64 = 0.01;
/// How much the other points' scatter counts: as if it came from so many sittings more.
const PRIOR: usize = 4;

/// For each pair of points, whether the medians of their sittings are apart by more than chance explains.
pub(super) fn unlikely(pairs: &[[Point; 2]]) -> Vec<bool> {
    let logarithms: Vec<_> = pairs.iter().map(|pair| pair.each_ref().map(logarithms)).collect();
    let mut variances: Vec<f64> = logarithms.iter().filter_map(variance).collect();
    variances.sort_by(f64::total_cmp);
    let typical = variances.get(variances.len() / 2).copied().unwrap_or_default();
    let chance = CHANCE / pairs.len().max(1) as f64;
    let differ = |both: &[Vec<f64>; 2]| {
        let Some(own) = variance(both) else { return false };
        let freedom = freedom(both);
        let moderated = (PRIOR as f64 * typical + freedom as f64 * own) / (PRIOR + freedom) as f64;
        let variance = moderated.max(own).max(f64::MIN_POSITIVE);
        let error = (variance * both.iter().map(|run| 1.0 / run.len() as f64).sum::<f64>()).sqrt();
        let [one, other] = both.each_ref().map(|run| mean(run));
        let beyond = (one - other).abs() - TOLERATED.ln();
        apart(both) && beyond > 0.0 && by_chance(beyond / error, PRIOR + freedom) < chance
    };
    logarithms.iter().map(differ).collect()
}

fn logarithms(point: &Point) -> Vec<f64> {
    point.sittings.iter().map(|median| (*median).max(1) as f64).map(f64::ln).collect()
}

fn mean(numbers: &[f64]) -> f64 {
    numbers.iter().sum::<f64>() / numbers.len().max(1) as f64
}

/// How many sittings there are beyond the one that each run must have.
fn freedom(both: &[Vec<f64>; 2]) -> usize {
    both.iter().map(|run| run.len().saturating_sub(1)).sum()
}

/// The variance within the runs; none where each has one sitting.
fn variance(both: &[Vec<f64>; 2]) -> Option<f64> {
    let square = |run: &Vec<f64>| run.iter().map(|one| (one - mean(run)).powi(2)).sum::<f64>();
    let freedom = freedom(both);
    (freedom > 0).then(|| both.iter().map(square).sum::<f64>() / freedom as f64)
}

/// Whether all sittings of one run lie beyond all of the other.
fn apart([one, other]: &[Vec<f64>; 2]) -> bool {
    let beyond = |one: &[f64], other: &[f64]| one.iter().all(|one| other.iter().all(|other| one > other));
    beyond(one, other) || beyond(other, one)
}

/// How probable it is that Student's t of so many degrees of freedom lies `t` or further from 0, on either side. Of an odd number of
/// degrees, one is left out, which makes chance look more probable.
fn by_chance(t: f64, freedom: usize) -> f64 {
    let freedom = freedom & !1;
    let angle = (t / (freedom as f64).sqrt()).atan();
    let square = angle.cos().powi(2);
    let (mut term, mut sum) = (1.0, 1.0);
    for even in (2..freedom).step_by(2) {
        term *= square * (even - 1) as f64 / even as f64;
        sum += term;
    }
    (1.0 - angle.sin() * sum).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_are_those_of_students_tables() {
        for (t, freedom, probability) in [
            (4.303, 2, 0.05),
            (2.776, 4, 0.05),
            (4.604, 4, 0.01),
            (3.355, 8, 0.01),
            (5.041, 8, 0.001),
            (0.0, 4, 1.0),
        ] {
            let found = by_chance(t, freedom);
            assert!((found - probability).abs() < probability * 0.01, "{t}, {freedom}: {found}");
        }
        assert_eq!(by_chance(3.0, 5), by_chance(3.0, 4));
    }

    #[test]
    fn single_sittings_show_no_scatter() {
        let one =
            |median| Point { x: 1, samples: crate::samples::Samples::default(), sittings: vec![median] };
        assert_eq!(unlikely(&[[one(100), one(900)]]), [false]);
    }
}
