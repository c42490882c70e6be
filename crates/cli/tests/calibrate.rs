//! `genie calibrate` as a user meets it.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};

use crate::running::{genie, is_root, skip, text};
use serde_json::Value;

/// What `genie calibrate --json` prints, and where its costs are stored.
#[track_caller]
fn is_documented(document: &Value, folder: &Path) {
    assert_eq!(document["granule"], 4096);
    let stored = document["stored"].as_str().unwrap();
    assert!(stored.starts_with(folder.to_str().unwrap()) && std::fs::exists(stored).unwrap(), "{stored}");
    assert_eq!(std::fs::read_dir(folder).unwrap().count(), 1, "nothing else is left");
    let costs = document["costs"].as_array().unwrap();
    let copyin = costs.iter().find(|cost| cost["operation"] == "Copyin").expect("Copyin");
    let [short, long] = ["4096", "2097152"].map(|at| copyin["at_us"][at].as_f64().unwrap());
    assert!(0.0 < short && short * 20.0 < long, "{copyin}");
    for server in ["thresholds", "thresholds_between_processes"] {
        for name in ["output", "held", "input", "input_alone", "input_run", "input_edge"] {
            let threshold = &document[server][name];
            assert!(threshold.is_null() || threshold.as_u64().unwrap() > 0, "{server}, {name}: {threshold}");
        }
        assert!(document[server]["held"].as_u64().unwrap() < 1 << 20, "{document}");
    }
}

#[test]
fn costs_that_cannot_be_stored_are_printed_all_the_same_and_fail() {
    const NAME: &str = "costs_that_cannot_be_stored_are_printed_all_the_same_and_fail";
    let mut command = genie(&["calibrate", "--granule", "4k"]);
    command.env("GENIE_CACHE_DIR", "/proc/genie");
    if is_root() {
        command.uid(65534).gid(65534).current_dir("/");
    }
    let Ok(output) = command.output() else {
        return skip(NAME, "another user may not run the program where it was built");
    };
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.starts_with("genie: the costs could not be stored in /proc/genie/"), "{error}");
    assert!(error.contains("GENIE_CACHE_DIR") && error.lines().count() == 1, "{error}");
    assert!(text(&output.stdout).contains("Copyin"));
}

/// Runs the command with the costs of this folder, and returns what it prints.
fn run(folder: &Path, args: &[&str]) -> String {
    let output = genie(args).env("GENIE_CACHE_DIR", folder).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
    text(&output.stdout).to_owned()
}

/// The stored costs, each file changed by `change`, if there is something to change.
fn stored(folder: &Path, change: impl Fn(&mut Value) -> bool) -> Vec<Value> {
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    files
        .map(|path| {
            let mut document = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
            if change(&mut document) {
                std::fs::write(path, document.to_string()).unwrap();
            }
            document
        })
        .collect()
}

fn set_load(document: &mut Value, load: f64) -> bool {
    document["circumstances"]["load"] = load.into();
    true
}

/// Costs that had been measured beside a compiler, or by a debug build, decided for ever what is copied, and nothing said so.
#[test]
fn costs_measured_under_load_or_by_a_debug_build_are_told_as_such_wherever_they_are_used() {
    let folder = tempfile::tempdir().unwrap();
    let compare = ["compare", "--lengths", "64", "--rounds", "1"];
    run(folder.path(), &["explain", "out", "64K", "0", "copy"]);
    let of_this_build = |document: &Value| document["circumstances"]["optimized"] == !cfg!(debug_assertions);
    assert!(stored(folder.path(), |document| set_load(document, 0.65)).iter().all(of_this_build));
    for args in [&["explain", "out", "64K", "0", "copy"][..], &["doctor", "--json"], &compare] {
        let said = run(folder.path(), args).replace("\n  ", " ");
        assert!(said.contains("under load (other programs had 65 % of the CPUs)"), "{args:?}: {said}");
        assert_eq!(said.contains("by a build without optimization"), cfg!(debug_assertions), "{said}");
    }
    stored(folder.path(), |document| set_load(document, 0.0));
    for args in [&["explain", "out", "64K", "0", "copy"][..], &["doctor", "--json"], &compare] {
        let said = run(folder.path(), args);
        assert!(!said.contains("under load (other"), "{args:?}: {said}");
    }
}

#[test]
fn costs_that_do_not_say_how_they_were_measured_are_measured_anew() {
    let folder = tempfile::tempdir().unwrap();
    let explain = ["explain", "out", "64K", "0", "copy", "--granule", "4k"];
    run(folder.path(), &explain);
    let forget = |document: &mut Value| document.as_object_mut().unwrap().remove("circumstances").is_some();
    assert_eq!(stored(folder.path(), forget).len(), 1);
    run(folder.path(), &explain);
    let again = stored(folder.path(), |_| false);
    assert!(again.len() == 1 && again[0]["circumstances"]["load"].is_f64(), "{again:?}");
}

/// Programs that keep the CPUs busy, as long as they exist, but give way to others.
struct Busy(Vec<Child>);

impl Busy {
    fn all_cpus() -> Self {
        let count = std::thread::available_parallelism().map_or(1, usize::from);
        let spin =
            || Command::new("nice").args(["-n", "19", "sh", "-c", "while :; do :; done"]).spawn().unwrap();
        Self((0..count).map(|_| spin()).collect())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        for child in &mut self.0 {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}

#[test]
fn a_calibration_is_stored_where_it_says_in_place_of_worse_costs_and_under_load_keeps_better_ones() {
    const NAME: &str =
        "a_calibration_is_stored_where_it_says_in_place_of_worse_costs_and_under_load_keeps_better_ones";
    let folder = tempfile::tempdir().unwrap();
    run(folder.path(), &["explain", "out", "64K", "0", "copy", "--granule", "4k"]);
    let calibrate = || -> Value {
        serde_json::from_str(&run(folder.path(), &["calibrate", "--granule", "4k", "--json"])).unwrap()
    };
    let load = |document: &Value| document["circumstances"]["load"].as_f64().unwrap();
    stored(folder.path(), |document| set_load(document, 2.0));
    let better = calibrate();
    is_documented(&better, folder.path());
    assert!(better["kept"].is_null(), "{better}");
    assert_eq!(load(&stored(folder.path(), |_| false)[0]), load(&better));
    stored(folder.path(), |document| set_load(document, 0.01));
    let busy = Busy::all_cpus();
    let worse = calibrate();
    drop(busy);
    if load(&worse) < 0.25 {
        return skip(NAME, "other programs get little of the one CPU, or the kernel does not say how much");
    }
    assert!(worse["stored"].is_null() && worse["kept"]["load"] == 0.01, "{worse}");
    assert_eq!(load(&stored(folder.path(), |_| false)[0]), 0.01);
}
