//! Conclusions from measurements that are made up.

use super::super::synthetic::{made as point, run};
use super::*;
use crate::findings::Verdict;

/// A run in which latency is a line for each scheme, and user-level servers add some.
fn made(line: impl Fn(Scheme) -> (f64, f64), more: impl Fn(u64) -> f64) -> Measurements {
    let (all, names) = (all_series(), SETTINGS.map(name));
    let subjects = PLACES.iter().enumerate().flat_map(|(place, _)| SCHEMES.map(|scheme| (place, scheme)));
    let points = subjects.zip(&all).flat_map(|((place, scheme), series)| {
        let ((fixed, slope), more) = (line(scheme), &more);
        names.iter().flat_map(move |setting| {
            LENGTHS.map(|len| {
                let more = if place == 1 { more(len as u64) } else { 0.0 };
                let us = fixed + slope * len as f64 / 1e3 + more;
                point(setting, series, Quantity::Latency, (len as u64, us))
            })
        })
    });
    run(ID, points)
}

fn lines(scheme: Scheme) -> (f64, f64) {
    if scheme == Scheme::Copy { (10.0, 5.0) } else { (10.0, 3.0) }
}

#[test]
fn a_constant_overhead_bears_the_claims_out_and_gives_the_length_where_user_level_wins() {
    let measurements = made(lines, |_| 20.0);
    let conclusion = conclude(&measurements);
    let expected = [Verdict::Holds, Verdict::Holds, Verdict::Holds, Verdict::CannotBeTested];
    assert_eq!(conclusion.judged(), expected);
    // 20 µs more are less than copying's 2 µs a kilobyte from 10 KB on.
    assert!(conclusion.verdicts[1].found.starts_with("From 16 KiB on"), "{}", conclusion.verdicts[1].found);
    let names: Vec<_> = conclusion.figures.iter().map(|figure| figure.name.as_str()).collect();
    assert_eq!((names.len(), names[0]), (12, "servers-512-mbit-s-thresholds-off"));
    assert_eq!(names[11], "servers-overhead-af-xdp-calibrated");
    assert!(conclusion.verdicts[1].found.contains("Over AF_XDP it holds: From 16 KiB on"));
    conclusion.check_tables();
    let line = conclusion.tables[6].rows[0].last().unwrap();
    assert!(line.ends_with("+ 20.0"), "{line}");
}

#[test]
fn an_overhead_that_grows_with_the_data_refutes_what_says_that_it_does_not() {
    let found = conclude(&made(lines, |len| 20.0 + len as f64 / 400.0)).judged();
    assert_eq!(found[..2], [Verdict::DoesNotHold, Verdict::DoesNotHold]);
}

/// What a few microseconds of noise add to the line was judged by the time in process, which may be short itself.
#[test]
fn an_overhead_that_grows_by_far_less_than_its_fixed_term_is_constant_however_quick_the_data() {
    let conclusion = conclude(&made(|_| (10.0, 0.15), |len| 20.0 + len as f64 / 10_000.0));
    let found = &conclusion.verdicts[0];
    assert_eq!(found.verdict, Verdict::Holds, "{}", found.found);
    assert!(found.found.contains("by 6.14 µs, beside a fixed term of 20.0 µs"), "{}", found.found);
}
