//! Small experiments, from the first process to the last verdict.

use genie_lab::experiment::{Experiment, Options};
use genie_lab::experiments;
use genie_lab::interface::Granule;
use genie_lab::measurement::{Measurements, StepResult};

const OPTIONS: Options = Options { smoke: true, granule: Granule::Base, seed: 1 };

/// Those whose parties and partners are the ones of this test, and those that need none.
const IDS: [&str; 11] = [
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
    if steps.is_empty() {
        return;
    }
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
