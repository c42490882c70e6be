//! `genie compare` as a user meets it: measured operations are verified, and the printed document keeps its shape.

use std::collections::BTreeSet;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use running::{assert_fails_in_one_line, free_huge_pages, genie, is_root, json, skip, text};
use serde_json::Value;

#[path = "compare/baselines.rs"]
mod baselines;
#[path = "compare/network.rs"]
mod network;
mod running;

const SCHEMES: [&str; 8] = [
    "copy",
    "emulated copy",
    "share",
    "emulated share",
    "move",
    "emulated move",
    "weak move",
    "emulated weak move",
];
/// Huge pages that a comparison at lengths up to 2 MiB needs.
const HUGE_PAGES: usize = 64;

fn keys(value: &Value) -> BTreeSet<&str> {
    value.as_object().expect("an object").keys().map(String::as_str).collect()
}

fn set<const N: usize>(names: [&'static str; N]) -> BTreeSet<&'static str> {
    BTreeSet::from(names)
}

/// A small comparison with 4 KiB granules, of a server in the same process and without baselines.
fn small(more: &[&str]) -> Value {
    alone(&[&["--baselines", "none", "--server", "in-process"], more].concat())
}

/// A small comparison with 4 KiB granules.
fn alone(more: &[&str]) -> Value {
    json(&[&["compare", "--json", "--granule", "4k", "--rounds", "2"], more].concat())
}

#[test]
fn the_document_has_the_documented_shape() {
    let document = small(&["--lengths", "64,64K"]);
    let documented =
        ["machine", "costs", "granule", "file", "limits", "results", "baselines", "overhead", "throughput"];
    assert_eq!(keys(&document), set(documented));
    assert_eq!(document["granule"], 4096);
    assert_eq!(document["file"], "generated");
    for none in ["overhead", "throughput"] {
        assert_eq!(document[none], Value::Array(Vec::new()));
    }
    // Requests without buffers are there in any case.
    let requests = document["baselines"].as_array().unwrap();
    assert_eq!(requests.len(), 1);
    assert_eq!(
        (requests[0]["name"].as_str(), requests[0]["direction"].as_str()),
        (Some("genie"), Some("empty"))
    );
    let limits = &document["limits"];
    let documented = set([
        "pingpong_ns",
        "placement",
        "ping_pong_us",
        "futex_hand_over_us",
        "memcpy_us",
        "empty_request_us",
        "argument_us",
        "batches_dropped",
    ]);
    assert_eq!(keys(limits), documented);
    assert_eq!(keys(&limits["memcpy_us"]), set(["64", "65536"]));
    assert!(limits["memcpy_us"]["65536"].as_f64().unwrap() > 0.0);
    assert_eq!(limits["pingpong_ns"].is_null(), limits["placement"].is_null());
    assert!(
        limits["placement"].is_null() || ["near", "far"].contains(&limits["placement"].as_str().unwrap())
    );
    let results = document["results"].as_array().unwrap();
    // Output by emulated copy is measured by both calls.
    assert_eq!(results.len(), 2 * (2 * SCHEMES.len() + 1));
    results.iter().for_each(assert_documented_row);
}

fn assert_documented_row(row: &Value) {
    let documented = set([
        "scheme",
        "direction",
        "server",
        "call",
        "length",
        "touch",
        "latency_us",
        "cycle_us",
        "throughput_mb_s",
        "cpu_us",
        "receipt",
        "verified",
        "placement",
        "samples",
    ]);
    let mut documented = documented;
    if row["scheme"] == "emulated copy" {
        documented.insert("of_copy");
        assert!(row["of_copy"]["latency"].as_f64().unwrap() > 0.0, "{row}");
        assert!(row["of_copy"]["cycle"].as_f64().unwrap() > 0.0, "{row}");
    }
    assert_eq!(keys(row), documented);
    assert!(SCHEMES.contains(&row["scheme"].as_str().unwrap()), "{row}");
    assert!(["out", "in"].contains(&row["direction"].as_str().unwrap()), "{row}");
    assert_eq!((row["server"].as_str(), row["touch"].as_str()), (Some("in-process"), Some("full")));
    for times in [&row["latency_us"], &row["cycle_us"]] {
        assert_eq!(keys(times), set(["median", "p5", "p95"]));
        let [p5, median, p95] = ["p5", "median", "p95"].map(|name| times[name].as_f64().unwrap());
        assert!(0.0 < p5 && p5 <= median && median <= p95, "{row}");
    }
    let receipt = set([
        "copied",
        "referenced",
        "held",
        "protected",
        "swapped",
        "faults",
        "reason",
        "mapped",
        "zeroed",
        "effective",
    ]);
    assert_eq!(keys(&row["receipt"]), receipt);
    assert!(row["throughput_mb_s"].as_f64().unwrap() > 0.0, "{row}");
    assert_eq!(row["verified"], true, "{row}");
    if row["scheme"] == "copy" {
        assert_eq!(row["receipt"]["copied"], row["length"], "{row}");
    }
}

#[test]
fn every_scheme_passes_every_byte_whoever_touches_it_and_whatever_buffers_there_are() {
    for buffers in ["customized", "pooled"] {
        for touch in ["none", "client", "server", "both", "full"] {
            let lengths = "1,4095,4097,8192,100000";
            assert_verified(&small(&["--lengths", lengths, "--touch", touch, "--buffers", buffers]), 5);
        }
    }
}

#[test]
fn every_scheme_passes_every_byte_with_huge_pages() {
    if free_huge_pages() < HUGE_PAGES {
        return skip(
            "every_scheme_passes_every_byte_with_huge_pages",
            "64 free huge pages of 2 MiB are needed",
        );
    }
    for buffers in ["customized", "pooled"] {
        let args = ["compare", "--json", "--granule", "huge", "--rounds", "4", "--lengths", "1,65537,2M"];
        let more = ["--touch", "both", "--buffers", buffers, "--baselines", "none", "--server", "in-process"];
        let document = json(&[&args[..], &more].concat());
        assert_eq!(document["granule"], 2 << 20);
        assert_verified(&document, 3);
    }
}

fn assert_verified(document: &Value, lengths: usize) {
    let results = document["results"].as_array().unwrap();
    assert_eq!(results.len(), lengths * (2 * SCHEMES.len() + 1));
    for row in results {
        assert_eq!(row["verified"], true, "{row}");
    }
}

#[test]
fn a_file_shorter_than_a_length_is_repeated() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("three");
    std::fs::write(&path, "abc").unwrap();
    let name = path.to_str().unwrap();
    let document =
        small(&[name, "--lengths", "10000", "--schemes", "emulated-copy,copy", "--directions", "in"]);
    assert_eq!(document["file"], name);
    let results = document["results"].as_array().unwrap();
    let rows: Vec<_> =
        results.iter().map(|row| (row["scheme"].as_str().unwrap(), &row["verified"])).collect();
    assert_eq!(rows, [("copy", &Value::Bool(true)), ("emulated copy", &Value::Bool(true))]);
}

#[test]
fn the_table_marks_one_strong_scheme_in_each_block_and_says_what_small_granules_lose() {
    let args = ["compare", "--granule", "4k", "--rounds", "2", "--lengths", "4K", "--server", "in-process"];
    let output = genie(&[&args[..], &["--baselines", "none"]].concat()).output().unwrap();
    let table = text(&output.stdout);
    assert!(output.status.success() && !table.contains('\u{1b}'), "{table}");
    let marked: Vec<_> = table.lines().filter(|line| line.starts_with(" * ")).collect();
    assert_eq!(marked.len(), 2, "{table}");
    for line in marked {
        assert!(!line.contains("share") && !line.contains("weak"), "{line}");
    }
    for scheme in SCHEMES {
        assert!(
            table.lines().any(|line| line[3.min(line.len())..].starts_with(scheme)),
            "{scheme} is not in\n{table}"
        );
    }
    let notice = text(&output.stderr);
    assert_eq!(notice.lines().count(), 1, "{notice}");
    assert!(notice.contains("sudo sysctl vm.nr_hugepages=400"), "{notice}");
}

#[test]
fn a_plot_is_drawn_with_every_scheme_and_both_axes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.svg");
    small(&["--lengths", "64,4K", "--plot", path.to_str().unwrap()]);
    let svg = std::fs::read_to_string(path).unwrap();
    assert!(svg.starts_with("<svg") || svg.starts_with("<?xml"), "{}", &svg[..80]);
    for words in
        SCHEMES.iter().chain(&["latency in microseconds", "cycle in microseconds", "length", "4 KiB"])
    {
        assert!(svg.contains(words), "{words} is not in the plot");
    }
}

#[test]
fn what_cannot_be_done_is_one_line_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().join("empty");
    std::fs::write(&empty, "").unwrap();
    let (folder_name, empty_name) = (folder.path().to_str().unwrap(), empty.to_str().unwrap());
    let plot = format!("{folder_name}/missing/out.svg");
    let cases: [(&[&str], i32, String); 14] = [
        (
            &["/nonexistent"],
            1,
            "/nonexistent cannot be read: No such file or directory (os error 2)".to_owned(),
        ),
        (&[folder_name], 1, format!("{folder_name} is a directory; name a file")),
        (&[empty_name], 1, format!("{empty_name} is empty; name a file with at least one byte")),
        (&["--plot", &plot], 1, format!("the plot's folder {folder_name}/missing cannot be used: ")),
        (&["--lengths", "0"], 2, "a length of 0 bytes passes nothing".to_owned()),
        (&["--lengths", "64,-1"], 2, "\"-1\" is not a length: write a number of bytes".to_owned()),
        (&["--lengths", "4Q"], 2, "\"4Q\" is not a length: write a number of bytes".to_owned()),
        (&["--lengths", "99999G"], 2, "the length 99999 GiB is too long for this machine's ".to_owned()),
        (&["--lengths", ""], 2, "\"\" is not a length".to_owned()),
        (&["--schemes", "copy,teleport"], 2, "no data passing scheme is called \"teleport\"".to_owned()),
        (&["--touch", "everybody"], 2, "'everybody'".to_owned()),
        (
            &["--baselines", "telepathy"],
            2,
            "no baseline is called \"telepathy\"; there are all, none, unix-".to_owned(),
        ),
        (&["--outstanding", "0"], 2, "'--outstanding <N>'".to_owned()),
        (&["--rounds", "0"], 2, "'--rounds <ROUNDS>'".to_owned()),
    ];
    for (args, status, message) in cases {
        let output = genie(&[&["compare"], args].concat()).current_dir(folder.path()).output().unwrap();
        let error = assert_fails_in_one_line(&output, status);
        assert!(error.contains(&message), "{args:?}: {error}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn huge_pages_that_are_not_there_are_one_line_with_the_remedy() {
    const NAME: &str = "huge_pages_that_are_not_there_are_one_line_with_the_remedy";
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("meminfo");
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap();
    let none = meminfo.lines().filter(|line| !line.starts_with("HugePages_")).collect::<Vec<_>>().join("\n");
    std::fs::write(&copy, none).unwrap();
    // The kernel's file is hidden in a mount namespace of the child's own: the machine stays as it is.
    let script = format!("mount --bind '{}' /proc/meminfo && exec \"$@\"", copy.display());
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &script, "sh", env!("CARGO_BIN_EXE_genie")]);
    command.args(["compare", "--granule", "huge", "--lengths", "64"]);
    if !is_root() {
        return skip(NAME, "not root");
    }
    let output = command.output().unwrap();
    if !text(&output.stderr).starts_with("genie: ") {
        return skip(NAME, "no mount namespaces here");
    }
    let error = assert_fails_in_one_line(&output, 1);
    assert!(error.contains("vm.nr_hugepages"), "{error}");
}

#[test]
fn an_unreadable_file_is_one_line() {
    const NAME: &str = "an_unreadable_file_is_one_line";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("secret");
    std::fs::write(&path, "x").unwrap();
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o000)).unwrap();
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let mut command = genie(&["compare", path.to_str().unwrap(), "--lengths", "64"]);
    let Ok(output) = as_ordinary_user(&mut command).output() else {
        return skip(NAME, "another user may not run the program where it was built");
    };
    let error = assert_fails_in_one_line(&output, 1);
    assert!(error.contains("secret cannot be read: Permission denied"), "{error}");
}

/// An ordinary user who may lock 64 KiB of memory.
fn with_little_lock(args: &[&str]) -> Command {
    let program = env!("CARGO_BIN_EXE_genie");
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -l 64; exec \"$@\"", "sh", program]).args(args);
    // Costs that cannot be stored are measured each time.
    command.env("GENIE_CACHE_DIR", "/proc/genie").stdin(Stdio::null());
    as_ordinary_user(&mut command);
    command
}

fn as_ordinary_user(command: &mut Command) -> &mut Command {
    if is_root() {
        command.uid(65534).gid(65534).current_dir("/");
    }
    command
}

#[test]
fn schemes_that_cannot_wire_are_done_as_their_emulated_twins() {
    const NAME: &str = "schemes_that_cannot_wire_are_done_as_their_emulated_twins";
    let args = ["compare", "--json", "--granule", "4k", "--rounds", "2", "--lengths", "4K,128K"];
    let more = ["--server", "in-process", "--baselines", "none"];
    let output = with_little_lock(&[&args[..], &more].concat()).output().unwrap();
    if output.status.code() == Some(126) {
        return skip(NAME, "another user may not run the program where it was built");
    }
    assert!(output.status.success(), "{}", text(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let results = document["results"].as_array().unwrap();
    assert_eq!(results.len(), 2 * (2 * 8 + 1), "no scheme is left out");
    for row in results {
        let (scheme, receipt) = (row["scheme"].as_str().unwrap(), &row["receipt"]);
        let what = format!("{scheme} {} at {}: {receipt}", row["direction"], row["length"]);
        // Input by move wires nothing: its region is new.
        let wires = matches!(scheme, "share" | "weak move") || scheme == "move" && row["direction"] == "out";
        let is_unwired = receipt["reason"] == "memory-lock limit too low to wire it";
        assert_eq!(is_unwired, wires && row["length"] == 131_072, "{what}");
        if is_unwired {
            assert_eq!(receipt["effective"], format!("emulated {scheme}"), "{what}");
            assert_eq!(receipt["copied"], 0, "{what}");
        }
        assert_eq!(row["verified"], true, "{what}");
    }
}
