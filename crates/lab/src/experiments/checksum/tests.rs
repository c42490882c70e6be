//! Conclusions from measurements that are made up.

use super::super::synthetic::{made, run};
use super::*;
use crate::findings::Verdict;

fn concluded(us: impl Fn(Scheme, Summing) -> f64) -> Conclusion {
    let all = subjects();
    let points = all.iter().flat_map(|(series, _, input, parties)| {
        let us = us(*input, SUMMINGS[*parties]);
        PASSINGS.map(|passing| made(passing.name(), series, Quantity::Latency, (PAPER_LEN, us)))
    });
    conclude(&run(ID, points))
}

#[test]
fn the_papers_own_throughputs_bear_its_claims_out() {
    let conclusion = concluded(|scheme, summing| {
        let mbit = match (scheme, summing) {
            (Scheme::Copy, Summing::None) => 135.0,
            (Scheme::Copy, Summing::Separate) => 116.0,
            (Scheme::Copy, Summing::Integrated) => 125.0,
            (_, Summing::None) => 338.0,
            _ => 206.0,
        };
        61_440.0 * 8.0 / mbit
    });
    assert_eq!(conclusion.judged(), [Verdict::Holds; 4], "{:?}", conclusion.verdicts);
    assert_eq!(conclusion.tables[2].rows[0], ["copy", "135", "135", "135"].map(str::to_owned));
    conclusion.check_tables();
}

#[test]
fn slow_checksums_refute_the_claims() {
    let conclusion = concluded(|scheme, summing| match (scheme, summing) {
        (_, Summing::None) => 100.0,
        (Scheme::Copy, Summing::Separate) => 600.0,
        (Scheme::Copy, _) => 90.0,
        _ => 500.0,
    });
    assert_eq!(conclusion.judged(), [Verdict::DoesNotHold; 4], "{:?}", conclusion.verdicts);
}
