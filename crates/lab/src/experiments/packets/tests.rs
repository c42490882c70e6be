//! Conclusions from measurements that are made up.

use super::super::synthetic::{made, run};
use super::super::transfers::{Passing, setting};
use super::*;
use crate::findings::Verdict;
use crate::medium::Medium;

/// A run without a limit of the rate, in which 60 KiB take as long as the paper's throughput has it, and copy so many bytes.
fn measured(us: impl Fn(f64) -> f64, copied: impl Fn(&str) -> f64) -> Measurements {
    let papers = papers();
    let settings =
        papers.each_ref().map(|paper| setting(Medium::Wire(Rate::Unlimited), Passing::Off, paper.figure));
    let points = papers.iter().zip(&settings).flat_map(|(paper, setting)| {
        let (us, copied) = (&us, &copied);
        paper.curves.iter().flat_map(move |(name, throughput)| {
            // The first run is as if the length of packets were not known.
            let throughput = throughput.map_or(100.0, |throughput| throughput.value());
            [
                made(setting, name, Quantity::Latency, (PAPER_LEN, us(throughput))),
                made(setting, name, Quantity::Bytes, (PAPER_LEN, copied(name))),
            ]
        })
    });
    run(COURSE.id, points)
}

#[test]
fn the_papers_own_throughput_bears_all_claims_out() {
    let copied = |name: &str| if [FIRST, MISMATCHED].contains(&name) { 40_000.0 } else { 5_000.0 };
    let conclusion = conclude(&measured(|mbit| PAPER_LEN as f64 * 8.0 / mbit, copied));
    assert_eq!(conclusion.judged(), [Verdict::Holds; 6]);
    assert_eq!((conclusion.figures.len(), conclusion.tables.len()), (2, 4));
    conclusion.check_tables();
    assert_eq!(conclusion.tables[0].rows[1][1..3], ["119".to_owned(), "119".to_owned()]);
}

#[test]
fn what_a_claim_says_to_be_quicker_and_is_slower_refutes_it() {
    let found = conclude(&measured(|mbit| mbit, |_| 40_000.0)).judged();
    let alike = [Verdict::Holds, Verdict::DoesNotHold, Verdict::DoesNotHold, Verdict::Holds];
    assert_eq!((&found[..4], &found[4..]), (&alike[..], &[Verdict::DoesNotHold; 2][..]));
}

/// It was taken for little difference however much longer splitting took.
#[test]
fn splitting_that_takes_half_as_long_again_makes_a_difference() {
    let split = |mbit: f64| if mbit > 121.5 { 150.0 } else { 100.0 };
    assert_eq!(conclude(&measured(split, |_| 0.0)).judged()[0], Verdict::DoesNotHold);
}

#[test]
fn every_curve_of_the_paper_has_a_subject() {
    let subjects: Vec<_> = subjects(0).into_iter().map(|subject| (subject.figure, subject.series)).collect();
    let curves = papers()
        .into_iter()
        .flat_map(|paper| paper.curves.into_iter().map(move |(name, _)| (paper.figure, name)));
    assert_eq!(curves.collect::<Vec<_>>(), subjects);
}
