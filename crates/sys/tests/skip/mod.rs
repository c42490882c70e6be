//! Tests that cannot run on this machine say so.

use std::io::Write;

/// Says that a test, or a part of it, was not run, and why.
pub(crate) fn skip(test: &str, reason: &str) {
    let line = format!("SKIP {test}: {reason}");
    eprintln!("{line}");
    let Some(path) = std::env::var_os("GENIE_SKIP_LOG").filter(|path| !path.is_empty()) else { return };
    let log = std::fs::OpenOptions::new().append(true).create(true).open(path);
    log.and_then(|mut log| writeln!(log, "{line}")).expect("the SKIP log can be written");
}
