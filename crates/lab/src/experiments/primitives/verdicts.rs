//! The verdicts on the claims about primitive operations.

use genie_passing::operation::PRIMITIVES;

use crate::amounts::significant;
use crate::experiment::Declaration;
use crate::findings::{Finding, Verdict};
use crate::model::rows::Row;

/// The rows that copy.
const COPYING: [&str; 2] = ["Copyin", "Copyout"];
/// From here on a line is good.
const R_SQUARED_MIN: f64 = 0.95;
/// An operation that takes at most this many times as long for the longest data as for the shortest is constant.
const GROWTH_MIN: f64 = 2.0;
/// An operation that never takes longer than this, in microseconds, is very short.
const SHORT_MAX: f64 = 0.5;
/// What "several times as much" is at least.
const SEVERAL: f64 = 3.0;

pub(super) fn verdicts(declaration: &Declaration, rows: &[Row]) -> Vec<Finding> {
    let verdict = |id: &str| match id {
        "linear" => linear(rows),
        "copying-dominates" => dominates(rows),
        _ => cheaper(rows),
    };
    let finding = |id: &str| {
        let (verdict, found) = verdict(id);
        Finding { claim: id.to_owned(), verdict, found }
    };
    declaration.claims.iter().map(|claim| finding(claim.id)).collect()
}

fn judged(holds: bool) -> Verdict {
    if holds { Verdict::Holds } else { Verdict::DoesNotHold }
}

fn untested(reason: &str) -> (Verdict, String) {
    (Verdict::CannotBeTested, reason.to_owned())
}

/// The rows of table 8.2 of which the time grows with the length, with R².
fn growing<'r>(rows: &'r [Row]) -> Vec<(&'r Row, f64)> {
    let primitive = rows.iter().filter(|row| PRIMITIVES.contains(&row.name.as_str()));
    let grows = |row: &&Row| {
        let whole: Vec<_> = row.times.iter().filter(|time| time.is_whole).collect();
        matches!(whole[..], [first, .., last] if last.mean > SHORT_MAX && last.mean > GROWTH_MIN * first.mean)
    };
    let with_fit = |row: &'r Row| Some((row, row.fit?.r_squared?));
    primitive.filter(grows).filter_map(with_fit).collect()
}

fn linear(rows: &[Row]) -> (Verdict, String) {
    let growing = growing(rows);
    if growing.is_empty() {
        return untested("no operation was measured at several multiples of the granule");
    }
    let names = |bad: &[&(&Row, f64)]| {
        let name = |(row, r_squared): &&(&Row, f64)| format!("{} ({r_squared:.3})", row.name);
        bad.iter().map(name).collect::<Vec<_>>().join(", ")
    };
    let bad: Vec<_> = growing.iter().filter(|(_, r_squared)| *r_squared < R_SQUARED_MIN).collect();
    let good = growing.len() - bad.len();
    let mut found =
        format!("R² is {R_SQUARED_MIN} or more for {good} of {} operations whose time grows", growing.len());
    if !bad.is_empty() {
        found += &format!("; it is less for {}", names(&bad));
    }
    (judged(bad.is_empty()), found + ".")
}

fn factor(rows: &[Row], name: &str) -> Option<f64> {
    Some(rows.iter().find(|row| row.name == name)?.fit?.line.factor)
}

fn dominates(rows: &[Row]) -> (Verdict, String) {
    let copying: Option<Vec<f64>> = COPYING.iter().map(|name| factor(rows, name)).collect();
    let is_other =
        |row: &&Row| PRIMITIVES.contains(&row.name.as_str()) && !COPYING.contains(&row.name.as_str());
    let others = rows.iter().filter(is_other).filter_map(|row| Some((&row.name, row.fit?.line.factor)));
    let costliest = others.max_by(|one, other| one.1.total_cmp(&other.1));
    let (Some(copying), Some((name, other))) = (copying, costliest) else {
        return untested("copying, or all else, was not measured at several multiples of the granule");
    };
    let least = copying.iter().copied().fold(f64::INFINITY, f64::min);
    let times = least / other;
    let found = format!(
        "Copying in costs {} and copying out {} ns a byte; the costliest other operation, {name}, {}: the cheaper \
         copy costs {} times as much.",
        significant(copying[0] * 1e3),
        significant(copying[1] * 1e3),
        significant(other * 1e3),
        significant(times),
    );
    (judged(other <= 0.0 || times >= SEVERAL), found)
}

fn cheaper(rows: &[Row]) -> (Verdict, String) {
    let [copyin, copyout] = COPYING.map(|name| factor(rows, name));
    let (Some(copyin), Some(copyout)) = (copyin, copyout) else {
        return untested("copying was not measured at several multiples of the granule");
    };
    let found = format!("{} ns a byte in, {} out.", significant(copyin * 1e3), significant(copyout * 1e3));
    (judged(copyin < copyout), found)
}
