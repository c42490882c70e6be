//! Running the command as a user does.

#![allow(dead_code, reason = "each test program uses some of this")]

use std::process::{Command, Output, Stdio};

/// The command with these arguments; what it remembers goes to the build folder.
pub(crate) fn genie(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_genie"));
    command.args(args).stdin(Stdio::null()).env("GENIE_CACHE_DIR", env!("CARGO_TARGET_TMPDIR"));
    command
}

/// Output as text.
pub(crate) fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("UTF-8")
}

/// Runs the command, which must succeed, and reads the one document that it prints.
pub(crate) fn json(args: &[&str]) -> serde_json::Value {
    let output = genie(args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("one JSON document")
}

/// One line on standard error, nothing on standard output, and this status.
pub(crate) fn assert_fails_in_one_line(output: &Output, status: i32) -> String {
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{error}");
    assert_eq!(text(&output.stdout), "");
    assert!(error.starts_with("genie: ") && error.ends_with('\n'), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
    error.to_owned()
}

/// Whether the tests run as root.
pub(crate) fn is_root() -> bool {
    std::fs::read_to_string("/proc/self/status")
        .unwrap()
        .lines()
        .any(|line| line.starts_with("Uid:") && line.split_whitespace().nth(2) == Some("0"))
}

/// Huge pages of 2 MiB that nobody uses.
pub(crate) fn free_huge_pages() -> usize {
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap();
    let field = |name: &str| {
        let line = meminfo.lines().find(|line| line.starts_with(name))?;
        line.split_whitespace().nth(1)?.parse::<usize>().ok()
    };
    if field("Hugepagesize:") != Some(2048) {
        return 0;
    }
    field("HugePages_Free:").unwrap_or(0).saturating_sub(field("HugePages_Rsvd:").unwrap_or(0))
}

/// Says that a test could not test anything, where people and the continuous integration see it.
pub(crate) fn skip(test: &str, reason: &str) {
    use std::io::Write;
    let line = format!("SKIP {test}: {reason}\n");
    eprint!("{line}");
    if let Some(path) = std::env::var_os("GENIE_SKIP_LOG") {
        let mut log = std::fs::OpenOptions::new().append(true).create(true).open(path).unwrap();
        log.write_all(line.as_bytes()).unwrap();
    }
}
