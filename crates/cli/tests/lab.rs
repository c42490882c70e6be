//! `genie lab` as a user meets it: runs are kept in the given folder, and a command says what it cannot do.

use std::path::Path;

use crate::running::{assert_fails_in_one_line, genie, json, text};
use serde_json::Value;

mod signals;

/// What a `genie lab` command of wrong usage, or one that cannot be done, says.
fn refused(args: &[&str], folder: &Path, status: i32) -> String {
    let args = [&["lab"], args, &["--dir", folder.to_str().unwrap()]].concat();
    assert_fails_in_one_line(&genie(&args).output().unwrap(), status)
}

fn ids() -> Vec<String> {
    let list = json(&["lab", "list", "--json"]);
    list.as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn an_unknown_experiment_is_named_with_the_known_ones() {
    let scratch = tempfile::tempdir().unwrap();
    let error = refused(&["run", "bogus"], scratch.path(), 2);
    assert!(error.contains("there is no experiment bogus; the experiments are: "), "{error}");
    assert!(ids().iter().all(|id| error.contains(id.as_str())), "{error}");
    assert!(!scratch.path().join("genie-lab").exists());
}

#[test]
fn without_a_subcommand_the_help_that_lists_them_is_named() {
    for (args, help) in [(&[][..], "`genie --help`"), (&["lab"], "`genie lab --help`")] {
        let error = assert_fails_in_one_line(&genie(args).output().unwrap(), 2);
        assert!(error.contains(help), "{error}");
    }
}

#[test]
fn wrong_usage_is_refused_before_anything_is_measured() {
    let scratch = tempfile::tempdir().unwrap();
    for args in
        [&["run"][..], &["run", "all", "--resume", "x", "--smoke"], &["run", "all", "--sittings", "0"]]
    {
        refused(args, scratch.path(), 2);
    }
    assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 0);
}

#[test]
fn a_run_that_is_not_there_is_said_to_be_missing() {
    let scratch = tempfile::tempdir().unwrap();
    for args in [&["report"][..], &["run", "--resume"], &["compare", "one", "other"]] {
        let error = refused(args, scratch.path(), 1);
        assert!(error.contains("has no run yet; make one with: genie lab run all"), "{error}");
    }
}

/// Runs everything once and small, and gives the folder of all runs and the run's name.
fn smoke() -> (tempfile::TempDir, String, Value) {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path().to_str().unwrap();
    let document = json(&["lab", "run", "all", "--smoke", "--json", "--granule", "4k", "--dir", folder]);
    let name = document["run"].as_str().unwrap().to_owned();
    (scratch, name, document)
}

#[test]
fn a_smoke_run_of_everything_is_kept_reported_and_like_itself() {
    let (scratch, name, document) = smoke();
    let folder = scratch.path().to_str().unwrap();
    let run = scratch.path().join(&name);
    assert_eq!(document["complete"], true);
    assert_eq!(document["experiments"].as_array().unwrap().len(), ids().len());
    for one in document["experiments"].as_array().unwrap() {
        let id = one["id"].as_str().unwrap();
        for file in [format!("{id}.json"), format!("{id}.csv")] {
            assert!(run.join(&file).is_file(), "{file}");
        }
        for figure in one["conclusion"]["figures"].as_array().unwrap() {
            let name = figure["name"].as_str().unwrap();
            let file = if name.starts_with(id) { format!("{name}.svg") } else { format!("{id}-{name}.svg") };
            assert!(run.join(&file).is_file(), "{file}");
        }
    }
    let page = run.join("report.html");
    let before = std::fs::read_to_string(&page).unwrap();
    assert!(before.contains("A smoke run."));
    std::fs::remove_file(&page).unwrap();
    let output = genie(&["lab", "report", "--dir", folder]).output().unwrap();
    assert_eq!(text(&output.stdout).trim(), page.to_str().unwrap());
    assert!(page.is_file());
    // Nothing is left to measure.
    let resumed = json(&["lab", "run", "--resume", &name, "--json", "--dir", folder]);
    assert_eq!((&resumed["run"], &resumed["complete"]), (&Value::from(name.as_str()), &Value::Bool(true)));
    if !ids().is_empty() {
        let same = json(&["lab", "compare", &name, &name, "--json", "--dir", folder]);
        let points = same["points"].as_array().unwrap();
        assert!(
            !points.is_empty()
                && points.iter().all(|point| point["differs"] == false && point["ratio"] == 1.0)
        );
    }
}

#[test]
fn a_damaged_run_is_named_and_left_as_it_is() {
    let scratch = tempfile::tempdir().unwrap();
    let record = scratch.path().join("2026-01-01T00-00-00/run.json");
    std::fs::create_dir(record.parent().unwrap()).unwrap();
    for (content, expected) in [("{", "is damaged"), ("{\"schema\": 99}", "follows version 99 of the schema")]
    {
        std::fs::write(&record, content).unwrap();
        let error = refused(&["report"], scratch.path(), 1);
        assert!(error.contains("run.json") && error.contains(expected), "{error}");
        assert_eq!(std::fs::read_to_string(&record).unwrap(), content);
    }
}
