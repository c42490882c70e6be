//! Conclusions from measurements that are made up.

use genie::Scheme;

use super::super::synthetic::{Made, run};
use super::*;
use crate::findings::Verdict;

const OPTIONS: Options = Options { smoke: false, granule: Granule::Best, seed: 1 };

/// A run in which a scheme at a length of a setting takes so many microseconds.
fn made(us: impl Fn(Scheme, Granules, u64) -> f64) -> Measurements {
    let spots =
        Granules::ALL.into_iter().flat_map(|of| of.lengths(&OPTIONS).into_iter().map(move |len| (of, len)));
    let all = spots.flat_map(|spot| Scheme::ALL.map(|scheme| (spot, scheme)));
    run(
        ID,
        all.map(|((of, len), scheme)| Made {
            setting: of.name(),
            series: scheme.name(),
            x: len as u64,
            quantity: Quantity::Latency,
            us: us(scheme, of, len as u64),
        }),
    )
}

/// As in the papers, in parts of a granule.
fn like_the_papers(scheme: Scheme, setting: Granules, x: u64) -> f64 {
    let parts = x as f64 / setting.granule() as f64;
    match scheme {
        Scheme::Copy => 120.0 + 100.0 * parts,
        Scheme::EmulatedCopy => 120.0 + if parts <= 0.5 { 100.0 * parts } else { 45.0 },
        Scheme::EmulatedShare => 118.0,
        Scheme::Move => 500.0,
        Scheme::EmulatedMove => 150.0,
        Scheme::Share => 140.0,
        Scheme::WeakMove => 145.0,
        _ => 125.0,
    }
}

fn verdicts(measurements: &Measurements) -> Vec<(String, Verdict)> {
    let conclusion = conclude(measurements);
    conclusion.verdicts.into_iter().map(|finding| (finding.claim, finding.verdict)).collect()
}

#[test]
fn a_run_like_the_papers_bears_all_claims_out() {
    for (claim, verdict) in verdicts(&made(like_the_papers)) {
        assert_eq!(verdict, Verdict::Holds, "{claim}");
    }
}

#[test]
fn emulated_copy_that_does_not_copy_short_data_fails_the_claims_about_it() {
    let measurements = made(|scheme, setting, x| match scheme {
        Scheme::EmulatedCopy => 250.0,
        other => like_the_papers(other, setting, x),
    });
    let refuted: Vec<_> =
        verdicts(&measurements).into_iter().filter(|(_, verdict)| *verdict == Verdict::DoesNotHold).collect();
    let refuted: Vec<_> = refuted.iter().map(|(claim, _)| claim.as_str()).collect();
    assert_eq!(refuted, ["copy-below-half", "never-worse", "better-above-half"]);
}

#[test]
fn a_run_with_base_granules_has_one_setting_and_no_measurements_bear_nothing_out() {
    let base = Options { granule: Granule::Base, ..OPTIONS };
    assert!(Granules::Run.lengths(&base).is_empty() && !Granules::Base.lengths(&base).is_empty());
    let found = verdicts(&Measurements::default());
    assert_eq!(found.len(), DECLARATION.claims.len());
    assert!(found.iter().all(|(_, verdict)| *verdict == Verdict::CannotBeTested));
}
