//! Baselines, servers in other processes, and the peers that both need.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::running::{assert_fails_in_one_line, genie, skip, text};
use super::{alone, assert_verified, keys, set};

/// All that are built in without the feature `peers`.
const BASELINES: [&str; 12] = [
    "unix-stream",
    "unix-stream-polled",
    "pipe",
    "pipe-polled",
    "tcp-loopback",
    "tcp-loopback-polled",
    "process-vm",
    "process-vm-polled",
    "shared-memory-copy",
    "shared-memory-copy-polled",
    "shared-memory",
    "shared-memory-polled",
];
/// How long a process may take to come or to go.
const PATIENCE: Duration = Duration::from_secs(60);

fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn rows<'d>(document: &'d Value, name: &str) -> Vec<&'d Value> {
    document["baselines"].as_array().unwrap().iter().filter(|row| row["name"] == name).collect()
}

#[test]
fn every_baseline_passes_every_byte_whoever_touches_it() {
    const NAME: &str = "every_baseline_passes_every_byte_whoever_touches_it";
    if cpus() < 2 {
        return skip(NAME, "polled baselines need two CPUs");
    }
    for touch in ["none", "both", "full"] {
        let lengths = ["--lengths", "1,4097,300000", "--schemes", "copy", "--server", "in-process"];
        let document = alone(&[&lengths[..], &["--touch", touch]].concat());
        let names: BTreeSet<_> = document["baselines"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| row["name"].as_str().unwrap())
            .collect();
        assert!(names.is_superset(&BTreeSet::from(BASELINES)), "{names:?}");
        for name in BASELINES {
            let rows = rows(&document, name);
            // Three lengths in two directions, and one without data.
            assert_eq!(rows.len(), 7, "{name}");
            assert!(rows.iter().all(|row| row["verified"] == true), "{name}: {rows:?}");
        }
    }
}

#[test]
fn a_baselines_row_has_the_documented_shape() {
    let args = ["--lengths", "64", "--schemes", "copy", "--baselines", "pipe", "--server", "in-process"];
    let document = alone(&args);
    let rows = rows(&document, "pipe");
    let directions: Vec<_> = rows.iter().map(|row| row["direction"].as_str().unwrap()).collect();
    assert_eq!(directions, ["out", "in", "empty"]);
    for row in rows {
        let documented = set([
            "name",
            "direction",
            "server",
            "length",
            "touch",
            "latency_us",
            "cycle_us",
            "throughput_mb_s",
            "cpu_us",
            "verified",
            "placement",
            "samples",
        ]);
        assert_eq!(keys(row), documented);
        assert_eq!((row["server"].as_str(), row["length"].as_u64()), (Some("process"), Some(64)));
        assert!(row["latency_us"]["median"].as_f64().unwrap() > 0.0, "{row}");
        assert!(row["cycle_us"]["median"].as_f64() >= row["latency_us"]["median"].as_f64(), "{row}");
    }
    let limits = &document["limits"];
    assert!(limits["futex_hand_over_us"].as_f64().unwrap() > 0.0, "{limits}");
    assert_eq!(limits["ping_pong_us"].is_null(), cpus() < 2, "{limits}");
}

#[test]
fn requests_without_data_are_made_to_a_server_that_spins_and_to_one_that_sleeps() {
    let document = alone(&["--lengths", "64", "--schemes", "copy", "--baselines", "pipe"]);
    for name in ["genie", "genie-blocking"] {
        let rows = rows(&document, name);
        assert_eq!(rows.len(), 1, "{name}");
        assert_eq!(
            (rows[0]["server"].as_str(), rows[0]["direction"].as_str()),
            (Some("process"), Some("empty"))
        );
        assert!(rows[0]["latency_us"]["median"].as_f64().unwrap() > 0.0);
    }
}

#[test]
fn one_cpu_leaves_polled_baselines_out_and_says_so() {
    let args =
        ["compare", "--json", "--granule", "4k", "--rounds", "1", "--lengths", "64", "--schemes", "copy"];
    let more = ["--baselines", "pipe,pipe-polled", "--server", "in-process"];
    let program = genie(&[]).get_program().to_owned();
    let mut command = std::process::Command::new("taskset");
    command.args(["-c", &last_cpu()]).arg(program).args(args).args(more).stdin(Stdio::null());
    command.env("GENIE_CACHE_DIR", env!("CARGO_TARGET_TMPDIR"));
    let Ok(output) = command.output() else {
        return skip("one_cpu_leaves_polled_baselines_out_and_says_so", "no taskset here");
    };
    let errors = text(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert!(errors.contains("left out of the comparison: pipe-polled needs a second CPU"), "{errors}");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((rows(&document, "pipe").len(), rows(&document, "pipe-polled").len()), (3, 0));
    assert!(document["limits"]["ping_pong_us"].is_null());
}

fn last_cpu() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim();
    list.rsplit([',', '-']).next().unwrap().to_owned()
}

#[test]
fn a_server_in_a_process_passes_every_byte_under_every_scheme() {
    for buffers in ["customized", "pooled"] {
        let args = ["--lengths", "1,4097,100000", "--touch", "both", "--baselines", "none"];
        let document = alone(&[&args[..], &["--server", "process", "--buffers", buffers]].concat());
        assert_verified(&document, 3);
        let results = document["results"].as_array().unwrap();
        assert!(results.iter().all(|row| row["server"] == "process"));
    }
}

#[test]
fn both_servers_are_measured_side_by_side_and_their_difference_is_told() {
    let args = ["--lengths", "64,4K", "--schemes", "copy,emulated-copy", "--baselines", "none"];
    let document = alone(&[&args[..], &["--server", "both"]].concat());
    let results = document["results"].as_array().unwrap();
    let at = |server: &str| results.iter().filter(|row| row["server"] == server).count();
    assert_eq!((at("in-process"), at("process")), (10, 10));
    let overhead = document["overhead"].as_array().unwrap();
    assert_eq!(overhead.len(), 10);
    for row in overhead {
        assert_eq!(keys(row), set(["scheme", "direction", "length", "latency_us"]));
        let median = |server: &str| {
            let same = |other: &&Value| {
                let submitted = if other["call"] == "submit" { ", submit" } else { "" };
                let scheme = format!("{}{submitted}", other["scheme"].as_str().unwrap());
                (&other["server"], &row["scheme"]) == (&server.into(), &scheme.into())
                    && ["direction", "length"].iter().all(|key| other[key] == row[key])
            };
            results.iter().find(same).unwrap()["latency_us"]["median"].as_f64().unwrap()
        };
        let difference = median("process") - median("in-process");
        assert!((row["latency_us"].as_f64().unwrap() - difference).abs() < 2e-3, "{row}");
    }
}

#[test]
fn requests_in_flight_are_measured_in_either_order_of_recycling() {
    let args = ["--lengths", "4K,64K", "--schemes", "copy", "--directions", "out", "--touch", "both"];
    let more = ["--outstanding", "4", "--baselines", "unix-stream", "--server", "process"];
    let document = alone(&[&args[..], &more].concat());
    let rows = document["throughput"].as_array().unwrap();
    for name in ["copy", "emulated copy", "weak move"] {
        let its: Vec<_> = rows.iter().filter(|row| row["by"] == name).collect();
        assert_eq!(its.len(), 4, "{name}");
        for row in its {
            let documented =
                ["by", "server", "length", "outstanding", "recycling", "buffers", "mb_s", "verified"];
            assert_eq!(keys(row), set(documented));
            assert_eq!((row["outstanding"].as_u64(), row["verified"].as_bool()), (Some(4), Some(true)));
            assert!(row["mb_s"].as_f64().unwrap() > 0.0, "{row}");
        }
    }
    let streams = rows.iter().filter(|row| row["by"] == "shared-memory").count();
    assert_eq!(streams, if cpus() < 2 { 0 } else { 4 });
}

#[test]
fn the_table_and_the_plot_show_baselines() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.svg");
    let args = ["compare", "--granule", "4k", "--rounds", "2", "--lengths", "64,4K", "--schemes", "copy"];
    let more = ["--baselines", "unix-stream,shared-memory", "--server", "in-process", "--plot"];
    let output = genie(&[&args[..], &more, &[path.to_str().unwrap()]].concat()).output().unwrap();
    let table = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let svg = std::fs::read_to_string(path).unwrap();
    for name in ["unix-stream", "shared-memory"] {
        // A row in each of four blocks, and one among the round trips.
        let is_row = |line: &&str| line.trim_start_matches([' ', '-']).starts_with(&format!("{name} "));
        assert_eq!(table.lines().filter(is_row).count(), 5, "{name} in\n{table}");
        assert!(svg.contains(name), "{name} is not in the plot");
    }
    assert!(table.contains("limit: a word by futex there and back"), "{table}");
}

#[test]
fn a_peer_without_a_comparison_says_what_it_is_for() {
    let error = assert_fails_in_one_line(&genie(&["peer"]).output().unwrap(), 2);
    assert!(error.contains("`genie compare`"), "{error}");
    assert!(!text(&genie(&["--help"]).output().unwrap().stdout).contains("peer"));
}

/// A comparison that goes on for long, and the processes that it has started.
fn long(args: &[&str], peers: usize) -> (Child, Vec<u32>) {
    let all = ["compare", "--granule", "4k", "--rounds", "1000000", "--lengths", "64", "--schemes", "copy"];
    let mut command = genie(&[&all[..], args].concat());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let until = Instant::now() + PATIENCE;
    let found = loop {
        let found = children(child.id());
        let are_there = found.len() == peers && found.iter().all(|pid| is_peer(*pid));
        if are_there || Instant::now() > until {
            break found;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    if found.len() != peers {
        let _ = child.kill();
        panic!("{found:?} have been started, not {peers} peers; {:?}", child.wait_with_output());
    }
    (child, found)
}

fn children(parent: u32) -> Vec<u32> {
    let list = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap_or_default();
    list.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

fn is_peer(pid: u32) -> bool {
    std::fs::read(format!("/proc/{pid}/cmdline"))
        .is_ok_and(|line| line.split(|byte| *byte == 0).any(|word| word == b"peer"))
}

fn is_gone(pid: u32) -> bool {
    let until = Instant::now() + PATIENCE;
    while Path::new(&format!("/proc/{pid}")).exists() {
        if Instant::now() > until {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

fn kill(pid: u32) {
    let status = std::process::Command::new("kill").args(["-KILL", &pid.to_string()]).status().unwrap();
    assert!(status.success(), "process {pid} cannot be killed");
}

/// How many files of a comparison are in a folder.
fn left_by(pid: u32, folder: &Path) -> usize {
    let name = format!("genie-run-{pid}-");
    let all = std::fs::read_dir(folder).unwrap();
    all.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(&name)).count()
}

#[test]
fn a_peer_that_is_killed_ends_the_comparison_with_one_line_and_leaves_nothing_behind() {
    for name in ["unix-stream", "pipe-polled", "shared-memory", "shared-memory-polled"] {
        if name.ends_with("polled") && cpus() < 2 {
            continue;
        }
        let (child, peers) = long(&["--server", "in-process", "--baselines", name], 1);
        let pid = child.id();
        // Somewhere in the middle.
        std::thread::sleep(Duration::from_millis(300));
        kill(peers[0]);
        let error = assert_fails_in_one_line(&child.wait_with_output().unwrap(), 1);
        assert!(error.contains("the peer process was killed by signal 9 while it "), "{name}: {error}");
        assert!(is_gone(peers[0]), "{name}: the peer is still there");
        assert_eq!(left_by(pid, &std::env::temp_dir()), 0, "{name}");
    }
}

#[test]
fn a_comparison_that_is_killed_takes_its_peers_along() {
    // Two serve requests, one of them asleep, and one the baselines.
    let (mut child, peers) = long(&["--server", "process", "--baselines", "unix-stream"], 3);
    std::thread::sleep(Duration::from_millis(300));
    child.kill().unwrap();
    child.wait().unwrap();
    for pid in peers {
        assert!(is_gone(pid), "peer {pid} outlives the comparison");
    }
    assert_eq!(left_by(child.id(), &std::env::temp_dir()), 0);
}

#[test]
fn a_baseline_that_was_not_built_in_is_named() {
    let output = genie(&["compare", "--baselines", "iceoryx2-loan", "--lengths", "64", "--rounds", "1"])
        .output()
        .unwrap();
    if output.status.success() {
        return skip("a_baseline_that_was_not_built_in_is_named", "it was built in");
    }
    let error = assert_fails_in_one_line(&output, 2);
    assert!(error.contains("iceoryx2-loan") && error.contains("--features peers"), "{error}");
}

#[test]
fn what_peers_are_built_in_pass_every_byte() {
    const NAME: &str = "what_peers_are_built_in_pass_every_byte";
    if !cfg!(feature = "peers") || cpus() < 2 {
        return skip(NAME, "built without the feature `peers`, or one CPU");
    }
    let names = "iceoryx2-loan,iceoryx2-copy,zeromq-ipc";
    for touch in ["none", "both"] {
        let args = ["compare", "--json", "--granule", "4k", "--rounds", "2", "--lengths", "1,300000"];
        let more = ["--schemes", "copy", "--server", "in-process", "--touch", touch, "--baselines", names];
        let mut command = genie(&[&args[..], &more, &["--outstanding", "32"]].concat());
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let pid = child.id();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        for name in names.split(',') {
            let rows = rows(&document, name);
            assert_eq!(rows.len(), 5, "{name}");
            assert!(rows.iter().all(|row| row["verified"] == true), "{name}: {rows:?}");
        }
        let flows = document["throughput"].as_array().unwrap();
        let flows: Vec<_> = flows.iter().filter(|row| row["by"] == "iceoryx2-copy").collect();
        assert_eq!(flows.len(), 2);
        for row in flows {
            assert_eq!(
                (row["outstanding"].as_u64(), row["verified"].as_bool()),
                (Some(32), Some(true)),
                "{row}"
            );
            assert!(row["mb_s"].as_f64().unwrap() > 0.0, "{row}");
        }
        assert_eq!(left_by(pid, &std::env::temp_dir()) + left_by(pid, Path::new("/dev/shm")), 0);
    }
}
