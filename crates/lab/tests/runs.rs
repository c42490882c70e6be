//! Runs: they are kept, resumed, concluded from and reported, whatever interrupts them.

mod fixture;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fixture::{Behaviour, Count, Latency, Model, complete, record};
use genie_lab::circumstances::Circumstances;
use genie_lab::conclude::{self, Found, conclude};
use genie_lab::counter::{Counting, Event, Modes};
use genie_lab::error::Error;
use genie_lab::experiment::Experiment;
use genie_lab::findings::{Conclusion, Verdict};
use genie_lab::measurement::StepResult;
use genie_lab::report;
use genie_lab::runner::noise::Noise;
use genie_lab::runner::{Doing, Interruptions, Watcher, go_on, plan};
use genie_lab::store::{Entry, Folder, Run, read, read_json};

/// Tells the test below, in a process of its own, where to run.
const FOLDER: &str = "GENIE_LAB_TEST_FOLDER";
const STEPS: usize = 16;

fn journal_lines(run: &Run) -> Vec<(usize, String)> {
    let text = std::fs::read_to_string(run.path("measurements/latency.jsonl")).unwrap_or_default();
    let entries = text.lines().map(|line| serde_json::from_str::<Entry>(line).unwrap());
    entries.map(|entry| (entry.step().0, entry.step().1.to_owned())).collect()
}

fn found(run: &Run, latency: &Latency) -> Vec<Found> {
    conclude(run, &[latency, &Model]).unwrap()
}

#[test]
#[ignore = "it is the process that another test kills"]
fn the_run_that_gets_killed() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let folder = Path::new(&folder);
    let run = Folder::new(folder.join("results")).begin(record(2)).unwrap();
    complete(&run, &killed(folder, Some(STEPS / 2)));
}

/// Stays in the middle, to be killed there.
fn killed(folder: &Path, stays_in: Option<usize>) -> Latency {
    let log = Some(folder.join("log"));
    Latency(Behaviour { log, stays_in, ..Behaviour::default() })
}

fn logged(folder: &Path) -> usize {
    std::fs::read_to_string(folder.join("log")).map_or(0, |text| text.lines().count())
}

#[test]
fn a_run_that_was_killed_is_resumed_and_has_each_step_once() {
    let scratch = tempfile::tempdir().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "the_run_that_gets_killed", "--ignored"])
        .env(FOLDER, scratch.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    while logged(scratch.path()) < STEPS / 2 {
        assert!(begun.elapsed() < Duration::from_secs(60), "the run does not begin");
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let folder = Folder::new(scratch.path().join("results"));
    let run = folder.resume(None).unwrap();
    let before = journal_lines(&run).len();
    assert_eq!(before, STEPS / 2 - 1, "so many steps were over");

    let (outcome, count) = complete(&run, &killed(scratch.path(), None));
    assert_eq!((outcome.measured, outcome.failed.len(), outcome.interrupted), (2 * STEPS, 0, false));
    assert_eq!(count.begun.len(), 2 * STEPS - before);
    let lines = journal_lines(&run);
    assert_eq!(lines.len(), 2 * STEPS);
    assert_eq!(lines.iter().collect::<BTreeSet<_>>().len(), 2 * STEPS);
    assert_eq!(
        logged(scratch.path()),
        2 * STEPS + 1,
        "the step that was killed was measured again, and no other"
    );
}

#[test]
fn sittings_of_all_experiments_take_turns() {
    let scratch = tempfile::tempdir().unwrap();
    let run = Folder::new(scratch.path()).begin(record(2)).unwrap();
    let (_, count) = complete(&run, &Latency::default());
    assert!(count.begun[STEPS - 1].starts_with("latency 0 ") && count.begun[STEPS].starts_with("latency 1 "));
    assert!(count.left.last() < count.left.first());
}

/// Interrupts the run in its third step.
struct InThird<'s>(&'s AtomicBool, usize);

impl Watcher for InThird<'_> {
    fn begin(&mut self, _doing: &Doing<'_>) {
        self.1 += 1;
        self.0.store(self.1 == 3, Ordering::Relaxed);
    }

    fn end(&mut self, _doing: &Doing<'_>, _failure: Option<&str>) {}
}

#[test]
fn a_run_that_is_told_to_stop_finishes_the_step_under_way() {
    let scratch = tempfile::tempdir().unwrap();
    let latency = Latency::default();
    let run = Folder::new(scratch.path()).begin(record(1)).unwrap();
    let interruptions = Interruptions::default();
    let mut third = InThird(&interruptions.stop, 0);
    let outcome = go_on(&run, &[&latency], &interruptions, &mut third).unwrap();
    assert!(outcome.interrupted);
    assert_eq!((outcome.measured, outcome.steps, journal_lines(&run).len()), (3, STEPS, 3));
    let page = report::page(&run, &[&latency, &Model], &found(&run, &latency)).unwrap();
    assert!(page.contains("3 of 16 steps are measured"), "the page hides that the run is not complete");
}

#[test]
fn what_fails_after_an_interruption_is_measured_again_and_no_failure() {
    let scratch = tempfile::tempdir().unwrap();
    // The third step.
    let fails = Some("unlimited, 16 KiB");
    let latency = Latency(Behaviour { fails, ..Behaviour::default() });
    let run = Folder::new(scratch.path()).begin(record(1)).unwrap();
    let interruptions = Interruptions::default();
    let mut third = InThird(&interruptions.stop, 0);
    let outcome = go_on(&run, &[&latency], &interruptions, &mut third).unwrap();
    assert_eq!((outcome.interrupted, outcome.measured, outcome.failed.len()), (true, 2, 0));
    assert_eq!(journal_lines(&run).len(), 2);
}

#[test]
fn a_step_during_which_the_process_was_stopped_is_measured_again_in_another_sitting() {
    let scratch = tempfile::tempdir().unwrap();
    let interruptions = Interruptions::default();
    let step = "unlimited, 16 KiB";
    let latency = Latency(Behaviour {
        log: Some(scratch.path().join("log")),
        stopped_in: Some((step, Arc::clone(&interruptions.went_on))),
        ..Behaviour::default()
    });
    let run = Folder::new(scratch.path().join("results")).begin(record(1)).unwrap();
    let mut count = Count::default();
    let outcome = go_on(&run, &[&latency], &interruptions, &mut count).unwrap();
    assert_eq!((outcome.measured, outcome.failed.len(), count.begun.len()), (STEPS, 0, STEPS));
    assert_eq!((journal_lines(&run).len(), latency.0.sittings.load(Ordering::Relaxed)), (STEPS, 2));
    let log = std::fs::read_to_string(scratch.path().join("log")).unwrap();
    assert_eq!((log.lines().count(), log.lines().filter(|line| *line == step).count()), (STEPS + 1, 2));
}

#[test]
fn a_step_that_fails_is_recorded_and_tried_again_on_resumption() {
    let scratch = tempfile::tempdir().unwrap();
    let fails = Some("unlimited, 16 KiB");
    let latency = Latency(Behaviour { fails, ..Behaviour::default() });
    let folder = Folder::new(scratch.path());
    let run = folder.begin(record(1)).unwrap();
    let (outcome, _) = complete(&run, &latency);
    assert_eq!((outcome.measured, outcome.failed.len()), (STEPS - 1, 1));
    let failures = found(&run, &latency)[0].failures.clone();
    assert_eq!(failures, outcome.failed);
    assert_eq!(failures[0].error, "this process may run on no CPU");
    drop(run);

    let run = folder.resume(None).unwrap();
    let (outcome, count) = complete(&run, &Latency::default());
    assert_eq!((outcome.measured, outcome.failed.len(), count.begun.len()), (STEPS, 0, 1));
    assert_eq!(found(&run, &Latency::default())[0].failures, []);
}

#[test]
fn two_processes_do_not_work_on_one_run() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = Folder::new(scratch.path());
    let run = folder.begin(record(1)).unwrap();
    assert!(matches!(folder.resume(None), Err(Error::Busy { .. })));
    drop(run);
    assert!(folder.resume(None).is_ok());
}

#[test]
fn the_latest_run_is_the_last_by_name_and_an_unknown_one_is_named_with_those_that_are_there() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = Folder::new(scratch.path());
    let error = folder.open(None).unwrap_err().to_string();
    assert!(error.contains("has no run yet; make one with: genie lab run all"), "{error}");
    let same = record(1);
    let first = folder.begin(same.clone()).unwrap().name();
    let second = folder.begin(same).unwrap().name();
    assert_eq!(folder.names(), [second.clone(), first.clone()]);
    assert_eq!(folder.open(None).unwrap().name(), second);
    assert_eq!(folder.open(Some(&first)).unwrap().name(), first);
    let error = folder.open(Some("yesterday")).unwrap_err().to_string();
    assert!(error.contains("has no run yesterday") && error.contains(&first), "{error}");
}

#[test]
fn what_is_needed_is_planned_and_an_unknown_id_is_named_with_the_known_ones() {
    let latency = Latency::default();
    let known: [&dyn Experiment; 2] = [&latency, &Model];
    let ids = |ids: &[&str]| -> Vec<_> {
        let ids: Vec<_> = ids.iter().map(|id| (*id).to_owned()).collect();
        plan::plan(&known, &ids).unwrap().iter().map(|one| one.declaration().id).collect()
    };
    assert_eq!(ids(&["model"]), ["latency", "model"]);
    assert_eq!(ids(&["latency"]), ["latency"]);
    assert_eq!(ids(&["all"]), ["latency", "model"]);
    let error = plan::plan(&known, &["bogus".to_owned()]).err().unwrap().to_string();
    assert_eq!(error, "there is no experiment bogus; the experiments are: latency, model");
}

#[test]
fn the_document_says_what_was_measured_and_reads_back_as_it_was_written() {
    let scratch = tempfile::tempdir().unwrap();
    let latency = Latency::default();
    let run = Folder::new(scratch.path()).begin(record(2)).unwrap();
    complete(&run, &latency);
    let found = found(&run, &latency);
    conclude::write(&run, &found).unwrap();
    let path = run.path("latency.json");
    let document: serde_json::Value = read_json(&path).unwrap();
    let part = |name: &str| document[name].clone();
    let steps: Vec<StepResult> = serde_json::from_value(part("measurements")).unwrap();
    assert_eq!(steps, run.measurements().unwrap().steps);
    assert_eq!(serde_json::from_value::<Conclusion>(part("conclusion")).unwrap(), found[0].conclusion);
    assert_eq!(serde_json::from_value::<Noise>(part("noise")).unwrap(), found[0].noise);
    assert_eq!(document["experiment"]["claims"].as_array().unwrap().len(), 3);
    assert_eq!(document["run"], read_json::<serde_json::Value>(&run.path("run.json")).unwrap());
    let lines = read(&run.path("latency.csv")).unwrap().lines().count();
    assert_eq!(lines, 1 + 2 * STEPS * fixture::SCHEMES.len());
    for file in ["latency-unlimited.svg", "latency-10-Gbit-s.svg", "model-estimates.svg", "model.json"] {
        assert!(run.path(file).is_file(), "{file}");
    }
}

#[test]
fn why_instructions_were_not_counted_is_kept_and_a_run_that_did_not_try_reads_as_such() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = Folder::new(scratch.path());
    let mut record = record(1);
    let here = record.circumstances.instructions.clone().expect("a new run tries");
    assert_eq!(here, Counting::of(Event::Instructions));
    let lack = "nobody may".to_owned();
    record.circumstances.instructions = Some(Counting { modes: Some(Modes::User), lack: Some(lack) });
    let run = folder.begin(record.clone()).unwrap();
    let name = run.name();
    let mut stored: serde_json::Value = read_json(&run.path("run.json")).unwrap();
    let expected = serde_json::json!({"modes": "user", "lack": "nobody may"});
    assert_eq!(stored["circumstances"]["instructions"], expected);
    drop(run);
    let kept = || folder.open(Some(&name)).unwrap().measurements().unwrap().circumstances;
    assert_eq!(kept(), record.circumstances);
    stored["circumstances"].as_object_mut().unwrap().remove("instructions");
    std::fs::write(scratch.path().join(&name).join("run.json"), stored.to_string()).unwrap();
    assert_eq!(kept(), Circumstances { instructions: None, ..record.circumstances.clone() });
}

#[test]
fn a_claim_without_a_verdict_cannot_be_tested_and_one_without_measurements_says_why() {
    let scratch = tempfile::tempdir().unwrap();
    let latency = Latency::default();
    let run = Folder::new(scratch.path()).begin(record(1)).unwrap();
    let verdicts: Vec<_> = found(&run, &latency)[0]
        .conclusion
        .verdicts
        .iter()
        .map(|one| (one.claim.clone(), one.verdict))
        .collect();
    assert_eq!(verdicts.len(), 3);
    assert_eq!(verdicts[2], ("saturation".to_owned(), Verdict::CannotBeTested));
}

#[test]
fn noise_is_warned_of_where_it_is_and_where_it_is_relied_on() {
    let scratch = tempfile::tempdir().unwrap();
    for (drift, noisy) in [(0.0, false), (0.3, true)] {
        let latency = Latency(Behaviour { drift, ..Behaviour::default() });
        let run = Folder::new(scratch.path()).begin(record(3)).unwrap();
        complete(&run, &latency);
        let found = found(&run, &latency);
        let sittings = |one: &Found| {
            one.noise.warnings.iter().any(|text| text.contains("medians are more than 10 % apart"))
        };
        // What else runs beside the tests may steal time; drift is ours.
        assert_eq!(sittings(&found[0]), noisy, "{:?}", found[0].noise);
        assert!(!noisy || found[1].noisy_needs == ["latency"]);
    }
}

/// What a browser would fetch for a page.
fn fetched(page: &str) -> Vec<&str> {
    let attributes = ["src=", "href=", "url(", "@import", "<script", "<link", "<iframe", "<object"];
    let all = attributes.iter().flat_map(|attribute| page.match_indices(attribute));
    let rest = all.map(|(place, _)| &page[place..page.len().min(place + 60)]);
    rest.filter(|text| !text.starts_with("href=\"#") && !text.starts_with("url(#")).collect()
}

#[test]
fn the_report_is_one_file_that_fetches_nothing_and_shows_everything() {
    let scratch = tempfile::tempdir().unwrap();
    let latency = Latency::default();
    let run = Folder::new(scratch.path()).begin(record(3)).unwrap();
    complete(&run, &latency);
    let found = found(&run, &latency);
    let page = report::page(&run, &[&latency, &Model], &found).unwrap();
    // For people who want to look at it.
    std::fs::write(Path::new(env!("CARGO_TARGET_TMPDIR")).join("report.html"), &page).unwrap();
    assert_eq!(fetched(&page), [] as [&str; 0]);
    assert!(!page.contains("http"), "an address in the page");
    assert!(!page.contains("{{") && !page.contains("{%"));
    let page = page.replace("&#x2f;", "/");
    for one in &found {
        assert!(page.contains(one.declaration.title));
        for (claim, finding) in one.declaration.claims.iter().zip(&one.conclusion.verdicts) {
            assert!(page.contains(claim.text) && page.contains(finding.verdict.words()));
        }
    }
    assert_eq!(page.matches("<svg").count(), 2 * 3);
    assert_eq!(page.matches("role=\"img\" aria-label=\"End-to-end").count(), 4);
    assert!(page.contains("prefers-color-scheme: dark") && page.contains("var(--paper)"));
    assert!(page.contains("(16 rows)"), "a long table is not folded");
}

#[test]
fn what_an_experiment_says_is_text_to_the_report() {
    let scratch = tempfile::tempdir().unwrap();
    let latency = Latency::default();
    let run = Folder::new(scratch.path()).begin(record(1)).unwrap();
    let mut found = found(&run, &latency);
    found[0].conclusion.notes = vec!["<script>alert(1)</script>".to_owned()];
    let page = report::page(&run, &[&latency], &found).unwrap();
    assert!(!page.contains("<script") && page.contains("&lt;script&gt;alert(1)"));
    let mut silent = Count::default();
    let outcome = go_on(&run, &[&Model], &Interruptions::default(), &mut silent).unwrap();
    assert_eq!((outcome.steps, silent.begun.len()), (0, 0));
}
