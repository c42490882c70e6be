//! Tables fit a window of eighty columns, whoever reads them: what is wider is folded.

use std::path::Path;

use running::{genie, text};

mod running;

/// What the command prints in a folder of its own, where no line may be wider; commands to be copied are not folded.
#[track_caller]
fn fits(folder: &Path, args: &[&str]) -> String {
    let output =
        genie(args).current_dir(folder).env("GENIE_RUNTIME_DIR", folder.join("run")).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
    let printed = text(&output.stdout).to_owned();
    let tables = printed.split("To remedy").next().unwrap();
    for line in tables.lines() {
        assert!(line.chars().count() <= 80, "{args:?}: {line}");
    }
    printed
}

#[test]
fn what_is_found_out_at_once_fits() {
    let folder = tempfile::tempdir().unwrap();
    for args in [
        &["doctor"][..],
        &["servers"],
        &["lab", "list"],
        &["explain", "out", "4200000", "0", "emulated-copy", "--call", "submit"],
        &["calibrate", "--granule", "4k"],
        &["explain", "in", "64", "0", "copy"],
        &["explain", "in", "4200001", "1", "emulated_copy", "--buffers", "pooled"],
    ] {
        assert!(!fits(folder.path(), args).is_empty(), "{args:?}");
    }
}

#[test]
fn comparisons_fit_and_conclude() {
    let folder = tempfile::tempdir().unwrap();
    let lengths = ["--lengths", "64,4K,64K,256K,1M"];
    let more = ["--rounds", "1", "--server", "both", "--outstanding", "2"];
    let printed = fits(folder.path(), &[&["compare"], &lengths[..], &more].concat());
    let conclusion = printed.split("conclusion, output").nth(1).expect("a conclusion");
    for word in ["unix-stream", "shared-memory-polled", "conclusion, input"] {
        assert!(conclusion.contains(word), "{word}: {conclusion}");
    }
    let prose = conclusion.replace("\n ", "");
    let ratios = ["of copy's time at", "as long as copy"];
    assert!(ratios.iter().any(|words| prose.contains(words)), "{conclusion}");
}

#[test]
fn runs_of_the_lab_fit() {
    let folder = tempfile::tempdir().unwrap();
    let printed = fits(folder.path(), &["lab", "run", "latency", "primitives", "--smoke"]);
    assert_eq!(printed.matches("too short to").count(), 1, "{printed}");
    fits(folder.path(), &["lab", "run", "single-copy-tcp", "--smoke"]);
    let runs = std::fs::read_dir(folder.path().join("genie-lab")).unwrap();
    let runs: Vec<_> = runs.map(|run| run.unwrap().path().display().to_string()).collect();
    fits(folder.path(), &["lab", "compare", &runs[0], &runs[0]]);
}
