//! Conclusions from measurements that are made up.

use super::super::synthetic::{made, run};
use super::*;
use crate::findings::Verdict;

/// A run in which fbufs always take `fixed` µs, and the standard calls so many more for each KiB.
fn concluded(fixed: impl Fn(u64) -> f64, slope: f64) -> Conclusion {
    let settings = settings();
    let (names, beside) = (names(), beside());
    let points = settings.iter().flat_map(|setting| {
        let (fixed, beside) = (&fixed, beside.as_str());
        let of = move |name, us: f64, len| made(setting, name, Quantity::Latency, (len, us));
        LENGTHS.into_iter().map(|len| len as u64).flat_map(move |len| {
            let standard = 1.0 + slope * len as f64 / 1024.0;
            [
                of("fbufs, channel", fixed(len), len),
                of(beside, fixed(1024), len),
                of("standard, pipe", standard, len),
                of("standard, Unix socket", standard * 2.0, len),
            ]
        })
    });
    assert_eq!(names[..3], ["fbufs, channel", "standard, pipe", "standard, Unix socket"]);
    conclude(&run(ID, points))
}

#[test]
fn constant_times_of_fbufs_bear_all_claims_out() {
    let conclusion = concluded(|_| 0.6, 0.2);
    assert_eq!(conclusion.judged(), [Verdict::Holds; 6], "{:?}", conclusion.verdicts);
    conclusion.check_tables();
    assert_eq!((conclusion.figures.len(), conclusion.tables.len()), (6, 6));
    let shares: Vec<_> = conclusion.tables[0].rows.iter().map(|row| row[4].as_str()).collect();
    assert_eq!(shares, ["0.600", "2.60", "5.20", "23 %", "34 %"], "at 8 KiB");
}

#[test]
fn times_that_grow_or_are_as_long_refute_them() {
    let conclusion = concluded(|len| 1.0 + 0.2 * len as f64 / 1024.0, 0.2);
    assert_eq!(conclusion.judged(), [Verdict::DoesNotHold; 6], "{:?}", conclusion.verdicts);
}
