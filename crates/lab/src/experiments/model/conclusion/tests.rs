use super::*;
use crate::experiments::synthetic::{self, made};
use crate::findings::Verdict;
use crate::measurement::Quantity;
use crate::model::breakdown::{BASE, Buffering, Costs};
use crate::model::fit::Line;
use crate::papers::Rounding;
use crate::papers::brustoloni::{self, Platform};
use crate::placement::Placement;

/// Multiples of the page size up to 60 KiB.
fn lengths() -> impl Iterator<Item = u64> {
    (1..=15).map(|pages| pages * 4096)
}

fn costs() -> Costs {
    Costs::of(&brustoloni::costs(Platform::P166), Rounding::Nearest)
}

/// A run on the paper's machine, whose latencies are `slower` times what the model says but for emulated share's.
fn run(slower: f64) -> Measurements {
    let costs = costs();
    let sides = ["sender", "receiver"].into_iter();
    let settings: Vec<_> =
        sides.flat_map(|side| Scheme::ALL.map(|scheme| format!("{side}, {scheme}"))).collect();
    let mut operations = Vec::new();
    for (row, line) in costs.iter().filter(|(row, _)| *row != BASE) {
        for setting in &settings {
            let at = |x| made(setting, row, Quantity::OperationTime, (x, line.at(x as f64)));
            operations.extend(lengths().map(at));
        }
    }
    let mut latencies = Vec::new();
    for scheme in Scheme::ALL {
        let line: Line = costs.latency(scheme, scheme, Buffering::EarlyDemultiplexed).unwrap();
        let times = if scheme == Scheme::EmulatedShare { 1.0 } else { slower };
        let at = |x| made("unlimited", scheme.name(), Quantity::Latency, (x, line.at(x as f64) * times));
        latencies.extend(lengths().chain([64]).map(at));
    }
    let mut run = synthetic::run("primitives", operations).and(synthetic::run("latency", latencies));
    run.steps[0].measured.push(synthetic::granule(4096));
    run
}

#[test]
fn on_a_machine_that_is_as_the_model_says_both_estimates_hold() {
    let conclusion = conclude(&run(1.0));
    assert_eq!(
        conclusion.judged(),
        [Verdict::Holds, Verdict::Holds, Verdict::CannotBeTested],
        "{conclusion:#?}"
    );
    let lines = &conclusion.tables[0];
    assert_eq!(lines.rows.len(), 8);
    // Copy of table 8.2: 0.0598 + 0.0180 + 0.0220, and 130 - 3 + 15.
    assert_eq!(lines.rows[0], ["copy", "99.8", "142", "99.8", "142"]);
    assert_eq!(conclusion.figures.len(), 2);
    assert!(conclusion.figures.iter().all(|figure| figure.curves.len() == 8));
}

#[test]
fn lengths_that_are_no_multiple_of_the_granule_do_not_count() {
    let conclusion = conclude(&run(1.0));
    let errors = &conclusion.tables[1];
    assert_eq!(errors.columns.len(), 16);
    assert_eq!(errors.columns[1], "4 KiB");
}

#[test]
fn latencies_that_the_operations_do_not_explain_refute_the_model_and_are_named() {
    let conclusion = conclude(&run(1.3));
    assert_eq!(conclusion.judged()[..2], [Verdict::DoesNotHold, Verdict::DoesNotHold]);
    assert!(
        conclusion.verdicts[0].found.starts_with("0 of 105 estimates are within 15 %"),
        "{conclusion:#?}"
    );
    let named = conclusion
        .notes
        .iter()
        .any(|note| note.starts_with("copy of ") && note.contains("more than the sum"));
    assert!(named, "{:#?}", conclusion.notes);
}

#[test]
fn a_cost_that_is_no_line_is_named_where_lines_are_off() {
    let mut run = run(1.0);
    for one in run.steps.iter_mut().flat_map(|step| &mut step.measured) {
        let bent = |us: u64| if one.x <= 8192 { us + 1_000_000 } else { us };
        let is_copying =
            one.series == "Copyin" || (one.series == "copy" && one.quantity == Quantity::Latency);
        if is_copying {
            one.samples = one.samples.iter().copied().map(bent).collect();
        }
    }
    let conclusion = conclude(&run);
    assert_eq!(conclusion.judged()[..2], [Verdict::Holds, Verdict::DoesNotHold]);
    let named = conclusion.notes.iter().any(|note| note.contains("Copyin is least like a line"));
    assert!(named, "{:#?}", conclusion.notes);
}

#[test]
fn without_measurements_nothing_is_claimed_and_the_papers_tables_are_there_still() {
    let conclusion = conclude(&Measurements::default());
    assert_eq!(conclusion.judged(), [Verdict::CannotBeTested; 3]);
    assert_eq!(conclusion.tables.len(), 4);
    let mut run = run(1.0);
    run.steps.remove(0);
    let found = &conclude(&run).verdicts[0].found;
    assert!(found.contains("run the experiment primitives"), "{found}");
}

#[test]
fn a_scheme_without_the_cost_of_an_operation_is_left_out_and_said_so() {
    let mut run = run(1.0);
    for step in &mut run.steps {
        step.measured.retain(|one| one.series != "Swap");
    }
    let conclusion = conclude(&run);
    assert_eq!(conclusion.judged()[0], Verdict::Holds);
    let named = conclusion
        .notes
        .iter()
        .any(|note| note.starts_with("No estimate for emulated copy") && note.contains("\"Swap\""));
    assert!(named, "{:#?}", conclusion.notes);
}

#[test]
fn steps_under_another_placement_of_the_cpus_are_left_out() {
    let near = run(1.0);
    let mut far = run(1.3);
    let mut both = near.clone();
    for step in &mut both.steps {
        step.placement = Some(Placement::Near);
    }
    for step in &mut far.steps {
        step.placement = Some(Placement::Far);
        step.measured.retain(|one| one.x <= 8192);
    }
    both.steps.extend(far.steps.clone());
    both.steps.extend(far.steps);
    let conclusion = conclude(&both);
    assert_eq!(conclusion.judged()[..2], [Verdict::Holds; 2]);
    assert!(conclusion.notes.iter().any(|note| note.ends_with("the same, near.")), "{:#?}", conclusion.notes);
}

#[test]
fn what_the_thesis_does_not_price_is_named_where_the_sum_is_too_small() {
    let mut run = run(1.3);
    let at = |x| made("sender, copy", "System buffer allocate", Quantity::OperationTime, (x, 1.5));
    let allocating = synthetic::run("primitives", lengths().map(at));
    run.steps.extend(allocating.steps);
    let conclusion = conclude(&run);
    let named = conclusion.notes.iter().any(|note| note.contains("System buffer allocate takes 1.50 µs"));
    assert!(named, "{:#?}", conclusion.notes);
}
