//! Conclusions from measurements that are made up.

use super::super::synthetic::{made, run, step};
use super::*;
use crate::findings::Verdict;

/// Delays of packets, of which one in fifty is ten times as long, and CPU times, for all ways.
fn measured(delay: impl Fn(&str, Way) -> u64, us: impl Fn(Way) -> f64) -> Measurements {
    let delays = LOADS.iter().flat_map(|load| WAYS.map(|way| (load, way))).map(|(load, way)| {
        let usual = delay(load, way) * 1000;
        let samples = (0..20_000).map(|at| if at % 50 == 0 { usual * 10 } else { usual }).collect();
        Measured::new(*load, way.name(), LEN, Quantity::Latency, samples)
    });
    let delays = Measurements { steps: vec![step(ID, delays.collect())], ..Measurements::default() };
    delays.and(run(
        ID,
        WAYS.into_iter().flat_map(|way| {
            let at = (LEN as u64, us(way));
            [
                made(IDLE, way.name(), Quantity::CpuTime, at),
                made(FAST, way.name(), Quantity::OperationTime, at),
                made(FAST, way.name(), Quantity::CpuTime, at),
            ]
        }),
    ))
}

fn papers(way: Way) -> f64 {
    match way {
        Way::Synchronous => 5.0,
        Way::Asynchronous => 7.0,
        _ => 10.0,
    }
}

#[test]
fn what_the_paper_found_bears_all_claims_out() {
    let delay = |load: &str, way| match (load, way) {
        (IDLE, _) | (_, Way::Synchronous | Way::Asynchronous) => 100,
        _ => 190,
    };
    let conclusion = conclude(&measured(delay, papers));
    assert_eq!(conclusion.judged(), [Verdict::Holds; 6]);
    assert_eq!((conclusion.figures.len(), conclusion.tables.len()), (3, 4));
    conclusion.check_tables();
    // So few packets tell no 99.9th percentile.
    assert_eq!(conclusion.tables[0].rows[0][1..5], ["100", "100", "1000", "–"].map(str::to_owned));
}

#[test]
fn what_is_as_slow_in_the_path_refutes_all() {
    let delay = |load: &str, _| if load == IDLE { 100 } else { 190 };
    assert_eq!(conclude(&measured(delay, |_| 10.0)).judged(), [Verdict::DoesNotHold; 6]);
}
