//! `genie calibrate` as a user meets it.

use std::os::unix::process::CommandExt;

use running::{genie, is_root, skip, text};
use serde_json::Value;

mod running;

#[test]
fn costs_are_printed_and_stored_where_the_document_says() {
    let folder = tempfile::tempdir().unwrap();
    let output = genie(&["calibrate", "--granule", "4k", "--json"])
        .env("GENIE_CACHE_DIR", folder.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).expect("one JSON document");
    assert_eq!(document["granule"], 4096);
    let stored = document["stored"].as_str().unwrap();
    assert!(
        stored.starts_with(folder.path().to_str().unwrap()) && std::fs::exists(stored).unwrap(),
        "{stored}"
    );
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left");
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
fn the_table_has_a_line_for_each_operation_and_each_threshold() {
    let folder = tempfile::tempdir().unwrap();
    let mut calibrate = genie(&["calibrate", "--granule", "4k"]);
    let output = calibrate.env("GENIE_CACHE_DIR", folder.path()).output().unwrap();
    let table = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    for start in ["Copyin ", "Reference ", "Swap ", "Wire "] {
        assert!(table.lines().any(|line| line.trim_start().starts_with(start)), "{start} is not in\n{table}");
    }
    for part in ["4 KiB", "64 KiB", "2 MiB", "(submit: t_o)", "(t_i)", "stored in "] {
        assert!(table.contains(part), "{part} is not in\n{table}");
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
