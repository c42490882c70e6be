//! `genie doctor` as a user meets it: run as a program, read by eye, by a script, and by nobody.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use crate::running::{assert_fails_in_one_line, genie, is_root, skip, text};

const SUBJECTS: [&str; 9] = [
    "huge pages",
    "collapsed pages",
    "userfaultfd",
    "memory lock",
    "memory limit",
    "CPUs",
    "mappings for each process",
    "costs",
    "networks",
];

#[test]
fn the_table_names_every_facility_with_its_state_and_is_plain_in_a_pipe() {
    let output = genie(&["doctor"]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "");
    let table = text(&output.stdout);
    assert!(!table.contains('\u{1b}'), "{table}");
    for first_word in ["huge", "collapsed", "userfaultfd", "memory", "CPUs", "mappings", "costs", "networks"]
    {
        let is_row = |line: &str| {
            let words: Vec<_> = line.split_whitespace().collect();
            words.len() > 2 && ["ok", "degraded", "missing"].contains(&words[0]) && words[1] == first_word
        };
        assert!(table.lines().any(is_row), "{first_word} is not in\n{table}");
    }
}

#[test]
fn json_is_one_document_with_every_facility() {
    let output = genie(&["doctor", "--json"]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let findings = document["findings"].as_array().expect("findings");
    let subjects: Vec<_> = findings.iter().map(|finding| finding["subject"].as_str().unwrap()).collect();
    assert_eq!(subjects, SUBJECTS);
    for finding in findings {
        assert!(["ok", "degraded", "missing"].contains(&finding["state"].as_str().unwrap()), "{finding}");
        assert_ne!(finding["meaning"].as_str().unwrap(), "");
    }
    assert!(document.get("applied").is_none(), "nothing was to be applied");
}

#[test]
fn huge_pages_are_reported_as_the_kernel_counts_them() {
    let output = genie(&["doctor", "--json"]).output().unwrap();
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap();
    let total = meminfo.lines().find_map(|line| line.strip_prefix("HugePages_Total:"));
    let Some(total) = total else {
        return skip("huge_pages_are_reported_as_the_kernel_counts_them", "this kernel has no huge pages");
    };
    let found = document["findings"][0]["found"].as_str().unwrap();
    assert!(found.starts_with(&format!("{} of ", total.trim())), "{found}");
}

#[test]
fn fix_without_root_is_refused_in_one_line_and_changes_nothing() {
    const NAME: &str = "fix_without_root_is_refused_in_one_line_and_changes_nothing";
    let mut command = genie(&["doctor", "--fix"]);
    if is_root() {
        command.uid(65534).gid(65534).current_dir("/");
    }
    let before = std::fs::read_to_string("/proc/sys/vm/nr_hugepages").ok();
    let Ok(output) = command.output() else {
        return skip(NAME, "another user may not run the program where it was built");
    };
    let error = assert_fails_in_one_line(&output, 1);
    assert!(error.contains("sudo genie doctor --fix"), "{error}");
    assert_eq!(std::fs::read_to_string("/proc/sys/vm/nr_hugepages").ok(), before);
}

/// The files that `--fix` may write, hidden by copies in a mount namespace of the child's own: the machine stays as it is.
const SETTINGS: [(&str, &str); 4] = [
    ("/dev/userfaultfd", ""),
    ("/proc/sys/vm/nr_hugepages", "0"),
    ("/proc/sys/vm/max_map_count", "1024"),
    ("/proc/sys/vm/unprivileged_userfaultfd", "0"),
];

#[test]
fn fix_applies_the_commands_that_it_prints_and_says_how_to_make_them_last() {
    const NAME: &str = "fix_applies_the_commands_that_it_prints_and_says_how_to_make_them_last";
    if !is_root() {
        return skip(NAME, "not root");
    }
    let copies = tempfile::tempdir().unwrap();
    let mut script = String::from("set -e; ");
    for (index, (path, content)) in SETTINGS.iter().enumerate() {
        if !std::path::Path::new(path).exists() {
            return skip(NAME, &format!("this kernel has no {path}"));
        }
        let copy = copies.path().join(index.to_string());
        std::fs::write(&copy, content).unwrap();
        std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o600)).unwrap();
        script += &format!("mount --bind '{}' {path}; ", copy.display());
    }
    let in_namespace = |script: &str| {
        Command::new("unshare").args(["--mount", "sh", "-c", script]).stdin(Stdio::null()).output()
    };
    if !in_namespace(&script).is_ok_and(|output| output.status.success()) {
        return skip(NAME, "no mount namespaces here");
    }

    let output =
        in_namespace(&format!("{script} exec {} doctor --fix --json", env!("CARGO_BIN_EXE_genie"))).unwrap();

    assert!(output.status.success(), "{}", text(&output.stderr));
    let read = |index: usize| std::fs::read_to_string(copies.path().join(index.to_string())).unwrap();
    let mode = std::fs::metadata(copies.path().join("0")).unwrap().permissions().mode() & 0o777;
    assert_eq!((read(2).as_str(), mode), ("65530", 0o666));
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let applied = document["applied"].as_array().expect("what was applied");
    let mappings =
        applied.iter().find(|one| one["subject"] == "mappings for each process").expect("mappings");
    assert_eq!(mappings["command"], "sysctl vm.max_map_count=65530");
    assert_eq!(mappings["error"], serde_json::Value::Null);
    assert!(mappings["lasting"].as_str().unwrap().contains("/etc/sysctl.d/"), "{mappings}");
    // The facts were read anew: the limit just set is no longer too low.
    assert_eq!(document["findings"][6]["state"], "ok");
}

#[test]
fn an_ordinary_user_gets_commands_that_begin_with_sudo_or_need_no_rights() {
    const NAME: &str = "an_ordinary_user_gets_commands_that_begin_with_sudo_or_need_no_rights";
    let mut command = genie(&["doctor", "--json"]);
    if is_root() {
        command.uid(65534).gid(65534).current_dir("/");
    }
    let Ok(output) = command.output() else {
        return skip(NAME, "another user may not run the program where it was built");
    };
    assert!(output.status.success(), "{}", text(&output.stderr));
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    for finding in document["findings"].as_array().unwrap() {
        if let Some(command) = finding["command"].as_str() {
            let ordinary = ["ulimit ", "taskset ", "lscpu ", "genie calibrate"]
                .iter()
                .any(|start| command.starts_with(start));
            assert!(ordinary || command.contains("sudo "), "{command}");
        }
    }
}

#[test]
fn a_reader_that_closes_the_pipe_is_no_failure() {
    for args in [&["doctor"][..], &["doctor", "--json"], &["--help"], &["doctor", "--help"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = genie(args).stdout(writer).stderr(Stdio::piped()).spawn().unwrap().wait_with_output();
        let output = output.unwrap();
        assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
        assert_eq!(text(&output.stderr), "", "{args:?}");
    }
}

#[test]
fn output_that_cannot_be_written_is_a_failure() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = genie(&["doctor"]).stdout(full).output().unwrap();
    let error = assert_fails_in_one_line(&output, 1);
    assert!(error.contains("standard output"), "{error}");
}

#[test]
fn wrong_usage_is_one_line_and_status_2() {
    for args in [&["doctor", "--nonsense"][..], &["doctor", "argument"], &["nonsense"], &[]] {
        let output = genie(args).output().unwrap();
        assert_fails_in_one_line(&output, 2);
    }
}
