//! Small experiments, from the first process to the last verdict.

use genie_lab::circumstances::Circumstances;
use genie_lab::experiment::{Experiment, Options, Step};
use genie_lab::experiments;
use genie_lab::interface::Granule;
use genie_lab::measurement::{Measurements, StepResult};

use crate::transfers::has_xdp;

const OPTIONS: Options = Options { smoke: true, granule: Granule::Base, seed: 1 };

/// Those whose parties and partners are the ones of this test, and those that need none.
const IDS: [&str; 12] = [
    "latency",
    "latency-short",
    "cpu",
    "checksum",
    "servers",
    "latency-pooled",
    "packets",
    "fbufs-rw",
    "fbufs-mapwr",
    "ttcp",
    "ftp",
    "drivers",
];

pub(crate) fn every_experiment_measures_all_its_steps_and_judges_all_its_claims() {
    let mut measurements = Measurements::default();
    for id in IDS {
        let experiment = experiments::find(id).expect("an experiment");
        measure(experiment, &mut measurements);
        let conclusion = experiment.conclude(&measurements);
        let claims = experiment.declaration().claims.iter().map(|claim| claim.id);
        assert!(claims.eq(conclusion.verdicts.iter().map(|finding| finding.claim.as_str())), "{id}");
        assert!(!conclusion.figures.is_empty() && !conclusion.tables.is_empty(), "{id}");
        for table in &conclusion.tables {
            assert!(table.rows.iter().all(|row| row.len() == table.columns.len()), "{id}: {}", table.title);
        }
    }
}

fn measure(experiment: &dyn Experiment, measurements: &mut Measurements) {
    let steps = experiment.steps(&OPTIONS);
    if !steps.is_empty() {
        measure_steps(experiment, steps.into_iter(), measurements);
    }
}

fn measure_steps(
    experiment: &dyn Experiment,
    steps: impl Iterator<Item = Step>,
    measurements: &mut Measurements,
) {
    let mut sitting = experiment.sit(&OPTIONS).expect("a sitting");
    for step in steps {
        let measured = sitting.measure(&step).expect("measurements");
        assert!(measured.iter().all(|one| !one.samples.is_empty()), "{}", step.name);
        let experiment = experiment.declaration().id.to_owned();
        let step = step.name;
        measurements.steps.push(StepResult {
            experiment,
            step,
            sitting: 0,
            placement: None,
            steal: None,
            measured,
        });
    }
}

/// Those that take AF_XDP for a wire, too, and the experiment that needs it.
const OVER_XDP: [&str; 4] = ["servers", "latency-pooled", "packets", "udp"];

pub(crate) fn where_there_is_af_xdp_it_is_measured_and_elsewhere_the_report_has_the_reason() {
    let has_it = has_xdp("where_there_is_af_xdp_it_is_measured_and_elsewhere_the_report_has_the_reason");
    for id in OVER_XDP {
        let experiment = experiments::find(id).expect("an experiment");
        let mut measurements =
            Measurements { circumstances: Circumstances::read(), ..Measurements::default() };
        let steps = experiment.steps(&OPTIONS).into_iter();
        let is_over_it = |step: &Step| id == "udp" || step.name.contains("AF_XDP");
        measure_steps(experiment, steps.filter(is_over_it), &mut measurements);
        let measured = measurements.steps.iter().flat_map(|step| &step.measured);
        assert_eq!(measured.count() > 0, has_it, "{id}");
        let conclusion = experiment.conclude(&measurements);
        let told = conclusion.notes.iter().chain(conclusion.verdicts.iter().map(|finding| &finding.found));
        let reasons = told.filter(|told| told.contains("AF_XDP was left out: "));
        assert_eq!(reasons.count() == 0, has_it, "{id}");
        let text = format!("{:?}", conclusion.tables);
        assert_eq!(text.contains("by the kernel"), has_it, "{id}: what the kernel has copied");
    }
}
