//! Conclusions from measurements that are made up.

use super::super::synthetic::{made, run};
use super::super::transfers::{Passing, setting};
use super::*;
use crate::findings::Verdict;
use crate::medium::Medium;

/// A run without a limit of the rate, in which 60 KiB take as long as the paper's throughput has it.
fn measured(us: impl Fn(f64) -> f64) -> Measurements {
    let papers = papers();
    let settings =
        papers.each_ref().map(|paper| setting(Medium::Wire(Rate::Unlimited), Passing::Off, paper.figure));
    let points = papers.iter().zip(&settings).flat_map(|(paper, setting)| {
        let us = &us;
        paper.curves.iter().map(move |(name, throughput)| {
            let mbit = throughput.expect("the paper tells all").value();
            made(setting, name, Quantity::Latency, (PAPER_LEN, us(mbit)))
        })
    });
    run(COURSE.id, points)
}

#[test]
fn the_papers_own_throughput_bears_all_claims_out() {
    let conclusion = conclude(&measured(|mbit| PAPER_LEN as f64 * 8.0 / mbit));
    assert_eq!(conclusion.judged(), [Verdict::Holds; 3]);
    assert_eq!((conclusion.figures.len(), conclusion.tables.len()), (2, 4));
    conclusion.check_tables();
    assert_eq!(conclusion.tables[2].rows[1][1..3], ["170".to_owned(), "170".to_owned()]);
}

#[test]
fn where_what_was_quick_is_slow_no_claim_holds() {
    assert_eq!(conclude(&measured(|mbit| mbit)).judged(), [Verdict::DoesNotHold; 3]);
}

#[test]
fn the_report_says_why_af_xdp_was_left_out() {
    let mut measurements = measured(|mbit| mbit);
    measurements.circumstances.xdp_lack = Some("no rights".to_owned());
    let notes = conclude(&measurements).notes;
    assert!(notes.contains(&"AF_XDP was left out: no rights.".to_owned()), "{notes:?}");
}
