//! The verdicts on the claims about primitive operations.

use genie_passing::operation::PRIMITIVES;

use super::DECLARATION;
use crate::amounts::significant;
use crate::experiments::reading::findings;
use crate::findings::{Finding, Judgement};
use crate::model::rows::Row;

/// The rows that copy.
const COPYING: [&str; 2] = ["Copyin", "Copyout"];
/// A line with at least this R² is good.
const R_SQUARED_MIN: f64 = 0.95;
/// An operation is constant if it takes at most this many times as long for the longest data as for the shortest.
const GROWTH_MIN: f64 = 2.0;
/// An operation that never takes longer than this, in microseconds, is very short.
const SHORT_MAX: f64 = 0.5;
/// The least factor that counts as "several times as much".
const SEVERAL: f64 = 3.0;

/// A finding for each claim, in the order of the claims.
pub(super) fn verdicts(rows: &[Row]) -> Vec<Finding> {
    findings(&DECLARATION, Ok(vec![linear(rows), dominates(rows), cheaper(rows)]))
}

/// The rows of table 8.2 whose time grows with the length, each with its R².
fn growing<'r>(rows: &'r [Row]) -> Vec<(&'r Row, f64)> {
    let primitive = rows.iter().filter(|row| PRIMITIVES.contains(&row.name.as_str()));
    let grows = |row: &&Row| {
        let whole: Vec<_> = row.times.iter().filter(|time| time.is_whole).collect();
        matches!(whole[..], [first, .., last] if last.mean > SHORT_MAX && last.mean > GROWTH_MIN * first.mean)
    };
    let with_fit = |row: &'r Row| Some((row, row.fit?.r_squared?));
    primitive.filter(grows).filter_map(with_fit).collect()
}

fn linear(rows: &[Row]) -> Judgement {
    let growing = growing(rows);
    if growing.is_empty() {
        return Err("no operation was measured at several multiples of the granule".to_owned());
    }
    let bad = growing.iter().filter(|(_, r_squared)| *r_squared < R_SQUARED_MIN);
    let bad: Vec<_> = bad.map(|(row, r_squared)| format!("{} ({r_squared:.3})", row.name)).collect();
    let good = growing.len() - bad.len();
    let mut found =
        format!("R² is {R_SQUARED_MIN} or more for {good} of {} operations whose time grows", growing.len());
    if !bad.is_empty() {
        found += &format!("; it is less for {}", bad.join(", "));
    }
    Ok((bad.is_empty(), found + "."))
}

/// The costs of copying in and of copying out, for each byte.
fn copying(rows: &[Row]) -> Option<(f64, f64)> {
    let factor = |name| Some(rows.iter().find(|row| row.name == name)?.fit?.line.factor);
    let [copyin, copyout] = COPYING.map(factor);
    copyin.zip(copyout)
}

fn dominates(rows: &[Row]) -> Judgement {
    let is_other =
        |row: &&Row| PRIMITIVES.contains(&row.name.as_str()) && !COPYING.contains(&row.name.as_str());
    let others = rows.iter().filter(is_other).filter_map(|row| Some((&row.name, row.fit?.line.factor)));
    let costliest = others.max_by(|one, other| one.1.total_cmp(&other.1));
    let ((copyin, copyout), (name, other)) = copying(rows)
        .zip(costliest)
        .ok_or("copying, or all else, was not measured at several multiples of the granule")?;
    let times = copyin.min(copyout) / other;
    let found = format!(
        "Copying in costs {} and copying out {} ns a byte; the costliest other operation, {name}, {}: the cheaper \
         copy costs {} times as much.",
        significant(copyin * 1e3),
        significant(copyout * 1e3),
        significant(other * 1e3),
        significant(times),
    );
    Ok((other <= 0.0 || times >= SEVERAL, found))
}

fn cheaper(rows: &[Row]) -> Judgement {
    let (copyin, copyout) =
        copying(rows).ok_or("copying was not measured at several multiples of the granule")?;
    let found = format!("{} ns a byte in, {} out.", significant(copyin * 1e3), significant(copyout * 1e3));
    Ok((copyin < copyout, found))
}
