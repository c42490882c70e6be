//! Conclusions from measurements that are made up.

use super::super::synthetic::{made, run};
use super::*;
use crate::findings::Verdict;

fn concluded(us: impl Fn(Scheme, Check) -> f64) -> Conclusion {
    let all = subjects();
    let points = all.iter().flat_map(|(series, _, input, check)| {
        let us = us(*input, *check);
        let at = |x| (x, us * x as f64 / PAPER_LEN as f64);
        [PAPER_LEN, LONGEST].map(|x| made("", series, Quantity::Latency, at(x)))
    });
    conclude(&run(ID, points))
}

#[test]
fn the_papers_own_throughputs_bear_its_claims_out() {
    let conclusion = concluded(|scheme, check| {
        let mbit = match (scheme, check) {
            (Scheme::Copy, Check::None) => 135.0,
            (Scheme::Copy, Check::Separate(_)) => 116.0,
            (Scheme::Copy, Check::Integrated(_)) => 125.0,
            (_, Check::None) => 338.0,
            _ => 206.0,
        };
        61_440.0 * 8.0 / mbit
    });
    assert_eq!(conclusion.judged(), [Verdict::Holds; 4], "{:?}", conclusion.verdicts);
    assert_eq!(conclusion.tables[1].rows[0], ["copy", "135", "135", "135"].map(str::to_owned));
    conclusion.check_tables();
}

#[test]
fn slow_checksums_refute_the_claims() {
    let conclusion = concluded(|scheme, check| match (scheme, check) {
        (_, Check::None) => 100.0,
        (Scheme::Copy, Check::Separate(_)) => 600.0,
        (Scheme::Copy, _) => 90.0,
        _ => 500.0,
    });
    assert_eq!(conclusion.judged(), [Verdict::DoesNotHold; 4], "{:?}", conclusion.verdicts);
}
