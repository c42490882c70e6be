use super::*;
use crate::experiments::synthetic;
use crate::measurement::Measured;
use fastrand::Rng;

const POINTS: u64 = 40;
const SITTINGS: usize = 3;
const SAMPLES: usize = 31;

/// About normal, with deviation 1: the sum of twelve numbers from -0.5 to 0.5.
fn normal(random: &mut Rng) -> f64 {
    (0..12).map(|_| random.f64() - 0.5).sum()
}

/// A run whose sittings scatter by `between`, and their samples by `within`, as shares.
fn run(random: &mut Rng, between: f64, within: f64) -> Measurements {
    let mut steps = Vec::new();
    for sitting in 0..SITTINGS {
        for x in 1..=POINTS {
            let middle = 10_000.0 * x as f64 * (between * normal(random)).exp();
            let samples = (0..SAMPLES).map(|_| (middle * (within * normal(random)).exp()) as u64).collect();
            let (series, setting) = ("copy".to_owned(), String::new());
            let measured = vec![Measured { series, setting, x, quantity: Quantity::Latency, samples }];
            steps.push(step(sitting, measured));
        }
    }
    Measurements { steps, ..Measurements::default() }
}

fn step(sitting: usize, measured: Vec<Measured>) -> StepResult {
    StepResult { sitting, placement: Some(Placement::Near), ..synthetic::step("latency", measured) }
}

fn medians(run: &Measurements) -> Vec<u64> {
    run.points("latency", "", "copy", Quantity::Latency).iter().map(Point::median).collect()
}

fn agree(one: &Measurements, other: &Measurements) -> bool {
    let ratio = |(a, b): (u64, u64)| a.max(b) as f64 / a.min(b) as f64;
    medians(one).into_iter().zip(medians(other)).all(|pair| ratio(pair) <= TOLERATED)
}

#[test]
fn runs_that_disagree_have_warned_whatever_the_scatter_between_sittings() {
    let mut random = Rng::with_seed(4);
    let (mut disagreed, mut warned) = (0, 0);
    for between in [0.0, 0.01, 0.02, 0.03, 0.04, 0.06, 0.1, 0.3] {
        for _ in 0..30 {
            let runs = [run(&mut random, between, 0.1), run(&mut random, between, 0.1)];
            let noises = runs.each_ref().map(|run| judge("latency", run));
            if !agree(&runs[0], &runs[1]) {
                disagreed += 1;
                warned += usize::from(noises.iter().any(|noise| !noise.warnings.is_empty()));
            }
        }
    }
    assert!(disagreed > 60, "only {disagreed} pairs of runs disagreed: the test shows nothing");
    assert_eq!(warned, disagreed, "pairs of runs disagreed without a warning in either");
}

#[test]
fn a_quiet_run_does_not_warn_though_its_samples_scatter() {
    let noise = judge("latency", &run(&mut Rng::with_seed(5), 0.01, 0.1));
    assert_eq!(noise.warnings, [] as [String; 0]);
    assert_eq!((noise.points, noise.noisy), (POINTS as usize, 0));
}

#[test]
fn a_warning_names_how_many_points_and_the_worst() {
    let mut quiet = run(&mut Rng::with_seed(6), 0.0, 0.0);
    let far = quiet.steps.iter_mut().find(|step| step.sitting == 1 && step.measured[0].x == 7).unwrap();
    far.measured[0].samples = vec![105_000; SAMPLES];
    let noise = judge("latency", &quiet);
    let [warning] = &noise.warnings[..] else { panic!("{:?}", noise.warnings) };
    assert!(warning.contains("at 1 of 40 points") && warning.contains("copy, 7 B, with 50 %"), "{warning}");
}

#[test]
fn a_difference_within_the_clocks_resolution_is_no_noise() {
    let point = |sittings: [u64; 2]| Point {
        x: 1,
        samples: crate::samples::Samples::default(),
        sittings: sittings.to_vec(),
    };
    assert!(!is_noisy(&point([40, 60]), Quantity::OperationTime));
    assert!(is_noisy(&point([40, 60]), Quantity::Instructions));
    assert!(is_noisy(&point([40, 60]), Quantity::UserInstructions));
    assert!(is_noisy(&point([400, 460]), Quantity::OperationTime));
}

#[test]
fn stolen_time_and_moved_cpus_are_warned_of() {
    let mut quiet = run(&mut Rng::with_seed(7), 0.0, 0.0);
    quiet.steps[3].steal = Some(0.051);
    quiet.steps[5].placement = Some(Placement::Far);
    let warnings = judge("latency", &quiet).warnings;
    assert!(
        warnings.iter().any(|warning| warning.contains("in 1 of 120 steps") && warning.contains("5.1 %"))
    );
    assert!(warnings.iter().any(|warning| warning.contains("moved the CPUs: 1 of 120 steps")));
}

#[test]
fn steps_of_which_no_sitting_counts_are_named() {
    let mut run = run(&mut Rng::with_seed(9), 0.0, 0.0);
    for step in &mut run.steps {
        step.step = format!("{} B", step.measured[0].x);
        let is_far = step.measured[0].x == 7 || (step.measured[0].x == 8 && step.sitting == 0);
        step.placement = Some(if is_far { Placement::Far } else { Placement::Near });
    }
    let missing = |run: &Measurements| {
        let warnings = judge("latency", run).warnings;
        warnings.into_iter().find(|warning| warning.contains("missing"))
    };
    let warning = missing(&run).unwrap();
    assert!(
        warning.starts_with("Of 1 of 40 steps no sitting counts") && warning.contains("tables: 7 B. "),
        "{warning}"
    );
    assert_eq!(medians(&run).len(), 39);
    run.steps.retain(|step| step.step != "7 B");
    assert_eq!(missing(&run), None, "8 B has two sittings that count");
}

#[test]
fn one_sitting_where_others_have_several_is_warned_of() {
    let mut quiet = run(&mut Rng::with_seed(8), 0.0, 0.0);
    quiet.steps.retain(|step| step.sitting == 0 || step.measured[0].x != 3);
    let warnings = judge("latency", &quiet).warnings;
    assert!(warnings[0].starts_with("At 1 of 40 points only one sitting counts"), "{warnings:?}");
    quiet.steps.retain(|step| step.sitting == 0);
    assert_eq!(judge("latency", &quiet).warnings, [] as [String; 0]);
}
