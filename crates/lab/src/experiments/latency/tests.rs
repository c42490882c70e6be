//! Conclusions from measurements that are made up.

use super::*;
use crate::experiments::synthetic::{self, Made};
use crate::findings::Verdict;
use crate::interface::Granule;

const OPTIONS: Options = Options { smoke: false, granule: Granule::Best, seed: 1 };

/// Each rate with each length that is measured at it.
fn spots() -> Vec<(Rate, usize)> {
    let of = |setting: Setting| {
        setting.lengths.into_iter().map(move |len| (setting.routes[0].medium().rate(), len))
    };
    sweep(&OPTIONS).settings.into_iter().flat_map(of).collect()
}

/// A run in which a scheme takes `fixed` and, for each MiB, `slope` microseconds, and the network its time.
fn run(lines: impl Fn(Scheme) -> (f64, f64)) -> Measurements {
    let of = |(rate, len): (Rate, usize)| {
        let setting = rate.name();
        let one = |scheme: Scheme| {
            let (fixed, slope) = lines(scheme);
            let network = rate.time(len as u64).as_secs_f64() * 1e6;
            let us = fixed + slope * len as f64 / f64::from(1 << 20) + network;
            let (series, x) = (scheme.name(), len as u64);
            Made { setting: &setting, series, x, quantity: Quantity::Latency, us }
        };
        synthetic::run(ID, Scheme::ALL.map(one))
    };
    spots().into_iter().map(of).fold(Measurements::default(), Measurements::and)
}

fn verdicts(measurements: &Measurements) -> Vec<(String, Verdict)> {
    let conclusion = conclude(measurements);
    conclusion.verdicts.into_iter().map(|finding| (finding.claim, finding.verdict)).collect()
}

#[test]
fn a_run_like_the_papers_bears_all_claims_out() {
    let measurements = run(|scheme| match scheme {
        Scheme::Copy => (10.0, 300.0),
        Scheme::EmulatedShare => (9.0, 100.0),
        Scheme::Move => (14.0, 110.0),
        Scheme::EmulatedCopy => (12.0, 105.0),
        _ => (12.0, 104.0),
    });
    for (claim, verdict) in verdicts(&measurements) {
        assert_eq!(verdict, Verdict::Holds, "{claim}");
    }
}

#[test]
fn a_run_in_which_copying_is_free_bears_none_of_those_about_copying_out() {
    let measurements = run(|scheme| match scheme {
        Scheme::EmulatedShare => (30.0, 150.0),
        Scheme::EmulatedCopy => (20.0, 200.0),
        _ => (10.0, 100.0),
    });
    let found = verdicts(&measurements);
    let refuted = ["copy-apart", "others-close", "emulated-copy-gains", "emulated-copy-like-share"];
    for (claim, verdict) in found.iter().filter(|(claim, _)| refuted.contains(&claim.as_str())) {
        assert_eq!(*verdict, Verdict::DoesNotHold, "{claim}");
    }
    assert!(found.contains(&("emulated-share-lowest".to_owned(), Verdict::DoesNotHold)));
}

#[test]
fn every_rate_has_a_figure_and_a_table_and_throughput_stands_beside_the_papers() {
    let conclusion = conclude(&run(|_| (10.0, 100.0)));
    let names: Vec<_> = conclusion.figures.iter().map(|figure| figure.name.as_str()).collect();
    assert_eq!(names.first(), Some(&"latency-unlimited"));
    assert_eq!(names.len(), Rate::ALL.len());
    let throughputs = conclusion.tables.last().unwrap();
    assert_eq!(throughputs.rows[0][..2], ["copy".to_owned(), "135".to_owned()]);
    assert!(throughputs.rows.iter().all(|row| row.len() == throughputs.columns.len()));
}

#[test]
fn no_operation_takes_much_longer_than_a_tenth_of_a_second_and_smoke_is_short() {
    let seconds = |smoke| {
        let options = Options { smoke, ..OPTIONS };
        sweep(&options).steps().iter().map(|step| step.seconds).sum::<f64>()
    };
    assert!(spots().iter().all(|(rate, len)| rate.time(*len as u64).as_millis() <= 100));
    assert!(seconds(false) < 70.0, "{} s a sitting", seconds(false));
    assert!(seconds(true) < 2.0, "{} s a sitting", seconds(true));
}
