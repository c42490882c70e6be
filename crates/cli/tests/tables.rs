//! Tables fit a window of eighty columns, whoever reads them: what is wider is folded.

use std::path::Path;
use std::process::Command;

use crate::running::{genie, text};

/// What the command prints in a folder of its own, where no line may be wider; commands to be copied are not folded.
#[track_caller]
fn fits(folder: &Path, args: &[&str]) -> String {
    fits_as(genie(args).current_dir(folder).env("GENIE_RUNTIME_DIR", folder.join("run")))
}

#[track_caller]
fn fits_as(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", text(&output.stderr));
    let printed = text(&output.stdout).to_owned();
    let tables = printed.split("To remedy").next().unwrap();
    for line in tables.lines() {
        assert!(line.chars().count() <= 80, "{command:?}: {line}");
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
        &["explain", "in", "64", "0", "copy"],
        &["explain", "in", "4200001", "1", "emulated_copy", "--buffers", "pooled"],
    ] {
        assert!(!fits(folder.path(), args).is_empty(), "{args:?}");
    }
}

#[test]
fn the_table_of_costs_has_a_line_for_each_operation_and_each_threshold() {
    let folder = tempfile::tempdir().unwrap();
    let table = fits_as(genie(&["calibrate", "--granule", "4k"]).env("GENIE_CACHE_DIR", folder.path()));
    for start in ["Copyin ", "Reference ", "Swap ", "Wire "] {
        assert!(table.lines().any(|line| line.trim_start().starts_with(start)), "{start} is not in\n{table}");
    }
    for part in ["4 KiB", "64 KiB", "2 MiB", "submit borrowed (t_o)", "(t_i)", "stored in "] {
        assert!(table.contains(part), "{part} is not in\n{table}");
    }
    let explain = ["explain", "in", "64", "0", "copy", "--granule", "4k"];
    fits_as(genie(&explain).env("GENIE_CACHE_DIR", folder.path()));
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

/// `--lengths` brought 400 lines of tables, and nothing told which figures of emulated copy were copies.
#[test]
fn a_comparison_at_chosen_lengths_is_one_screen_that_tells_copies_from_the_rest() {
    let folder = tempfile::tempdir().unwrap();
    let lengths = "64,4K,16K,64K,256K,1M,2M";
    let printed = fits(folder.path(), &["compare", "--lengths", lengths, "--rounds", "4"]);
    // The longer the lists of lengths at which a means is faster, the more lines; the tables take 400.
    assert!(printed.lines().count() <= 60, "{printed}");
    assert_eq!(printed.matches("median microseconds from request to reply").count(), 2, "{printed}");
    for block in printed.split("conclusion, ").skip(1) {
        let rows = |name: &str| -> Vec<&str> {
            block.lines().filter(|line| line.trim_start().starts_with(name)).collect()
        };
        let marked = |line: &&str| line.split_whitespace().any(is_marked);
        let emulated = rows("emulated copy").into_iter().filter(|line| !line.contains("request to reply"));
        assert_eq!(emulated.filter(marked).count() > 0, block.contains("\nc: done as copy ("), "{block}");
        assert!(!rows("copy ").iter().any(marked), "{block}");
    }
    let input = printed.split("conclusion, input").nth(1).expect("a conclusion about input");
    assert!(input.contains("\nc: done as copy (copying is cheaper"), "no machine swaps 64 bytes: {input}");
}

/// Whether it is a figure with the mark of a copy, such as "2.81c".
fn is_marked(word: &str) -> bool {
    word.strip_suffix('c').is_some_and(|figure| figure.parse::<f64>().is_ok())
}

#[test]
fn many_lengths_are_put_below_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let lengths = "64,128,256,512,1K,2K,4K,8K,16K,32K,60000,64K";
    let printed = fits(folder.path(), &["compare", "--lengths", lengths, "--rounds", "1", "--granule", "4k"]);
    let headings: Vec<_> = printed.lines().filter(|line| line.starts_with("      ")).collect();
    assert_eq!(headings.len(), 4, "{printed}");
    assert!(headings[0].contains(" 64 B ") && headings[1].contains(" 60000 B "), "{printed}");
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
