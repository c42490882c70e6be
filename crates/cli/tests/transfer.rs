//! `genie fetch` and `genie store` as a user meets them: every byte against the source, whole or not at all.

mod hostile;
mod interrupted;
mod networks;
mod refusals;
mod served;
mod servers_killed;
mod special;
mod top;
mod trees;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::running::{genie, text};
use serde_json::Value;

const MIB: usize = 1 << 20;

/// A directory that is served, and one to work in.
struct Place {
    directory: tempfile::TempDir,
    /// The server in another process, unless the command serves the directory itself.
    server: Option<Child>,
}

impl Place {
    /// With a server in another process.
    fn new() -> Self {
        let mut place = Self::without_server();
        place.serve(&[]);
        place
    }

    /// With the server in the command's own process.
    fn without_server() -> Self {
        let directory = tempfile::tempdir().unwrap();
        for name in ["served", "here", "run"] {
            fs::create_dir(directory.path().join(name)).unwrap();
        }
        Self { directory, server: None }
    }

    /// Starts a server, once its predecessor is dead, and waits until it can be reached.
    fn serve(&mut self, args: &[&str]) {
        let mut command = self.plain(&["serve"]);
        command.arg(self.served("")).args(args).stderr(Stdio::null());
        let pid = self.server.insert(command.spawn().unwrap()).id().to_string();
        let begun = Instant::now();
        // One that was killed before is listed by its name, too.
        while !text(&self.plain(&["servers"]).output().unwrap().stdout)
            .split_whitespace()
            .any(|word| word == pid)
        {
            assert!(begun.elapsed() < Duration::from_secs(30), "the server cannot be reached");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The command with these arguments and no others, run here.
    fn plain(&self, args: &[&str]) -> Command {
        let mut command = genie(args);
        command.current_dir(self.here("")).env("GENIE_RUNTIME_DIR", self.directory.path().join("run"));
        command
    }

    fn served(&self, path: &str) -> PathBuf {
        self.directory.path().join("served").join(path)
    }

    fn here(&self, path: &str) -> PathBuf {
        self.directory.path().join("here").join(path)
    }

    /// The command with these arguments, as a client of the server.
    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.plain(args);
        command.args(["--granule", "4k"]);
        if self.server.is_none() {
            command.arg("--in-process").arg(self.served(""));
        }
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// Runs the command, which must succeed, and reads what it says.
    #[track_caller]
    fn done(&self, args: &[&str]) -> Value {
        let output = self.command(args).arg("--json").output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("one JSON document")
    }

    /// Runs the command, which must fail; returns the line that it says.
    #[track_caller]
    fn refused(&self, args: &[&str], status: i32) -> String {
        crate::running::assert_fails_in_one_line(&self.run(args), status)
    }

    /// The names in a directory.
    fn names(&self, path: PathBuf) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(path)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(mut server) = self.server.take() {
            // It may be dead already, as some tests want it to be.
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

/// Bytes that repeat nowhere near.
fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        bytes.extend_from_slice(&(state ^ state >> 33).to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// Compares without printing megabytes.
#[track_caller]
fn same(path: PathBuf, expected: &[u8]) {
    let found = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let at = found.iter().zip(expected).position(|(found, expected)| found != expected);
    assert!(
        found.len() == expected.len() && at.is_none(),
        "{}: {} bytes in place of {}, first wrong at {at:?}",
        path.display(),
        found.len(),
        expected.len()
    );
}

#[test]
fn a_large_file_goes_there_and_back_by_every_scheme() {
    by_every_scheme(&Place::new());
}

#[test]
fn a_large_file_goes_there_and_back_within_one_process() {
    by_every_scheme(&Place::without_server());
}

fn by_every_scheme(place: &Place) {
    let schemes = [
        "copy",
        "emulated copy",
        "share",
        "emulated-share",
        "move",
        "emulated-move",
        "weak-move",
        "emulated-weak-move",
    ];
    for scheme in schemes {
        let len = if scheme == "emulated copy" { 64 * MIB } else { 9 * MIB };
        let bytes = pattern(1, len + 12_345);
        fs::write(place.here("file"), &bytes).unwrap();
        fs::set_permissions(place.here("file"), PermissionsExt::from_mode(0o751)).unwrap();
        let stored = place.done(&["store", "file", "files:stored", "--scheme", scheme]);
        same(place.served("stored"), &bytes);
        let fetched = place.done(&["fetch", "files:stored", "fetched", "--scheme", scheme]);
        same(place.here("fetched"), &bytes);
        for summary in [stored, fetched] {
            assert_eq!(summary["bytes"], bytes.len(), "{summary}");
            assert_eq!((&summary["files"], &summary["verified"]), (&1.into(), &true.into()));
            let [copied, uncopied] =
                ["copied_bytes", "uncopied_bytes"].map(|name| summary[name].as_u64().unwrap());
            let is_copy = scheme == "copy";
            assert!(
                if is_copy { uncopied == 0 } else { copied + uncopied >= bytes.len() as u64 },
                "{summary}"
            );
        }
        assert_eq!(fs::metadata(place.served("stored")).unwrap().permissions().mode() & 0o7777, 0o751);
        assert_eq!(fs::metadata(place.here("fetched")).unwrap().permissions().mode() & 0o7777, 0o751);
    }
    assert_eq!(place.names(place.served("")), ["stored"]);
    assert_eq!(place.names(place.here("")), ["fetched", "file"]);
}

#[test]
fn lengths_around_the_chunks_arrive_whole() {
    let place = Place::new();
    for len in [0, 1, 8 * MIB - 1, 8 * MIB, 8 * MIB + 1, 40 * MIB] {
        let bytes = pattern(len as u64, len);
        fs::write(place.here("file"), &bytes).unwrap();
        place.done(&["store", "file", "--no-sync"]);
        same(place.served("file"), &bytes);
        place.done(&["fetch", "files:file", "again"]);
        same(place.here("again"), &bytes);
    }
}

#[test]
fn a_range_is_fetched_alone() {
    let place = Place::new();
    let bytes = pattern(2, 20 * MIB);
    fs::write(place.served("file"), &bytes).unwrap();
    for (range, from, to) in [
        ("5..10", 5, 10),
        ("3M..12M", 3 * MIB, 12 * MIB),
        ("19M..", 19 * MIB, 20 * MIB),
        ("..1", 0, 1),
        ("7..7", 7, 7),
    ] {
        let summary = place.done(&["fetch", "files:file", "part", "--range", range]);
        same(place.here("part"), &bytes[from..to]);
        assert_eq!(summary["bytes"], to - from);
    }
    let error = place.refused(&["fetch", "files:file", "--range", "5..21M"], 2);
    assert!(error.contains("its size is 20971520 bytes"), "{error}");
    place.refused(&["fetch", "files:file", "--range", "9..5"], 2);
    assert_eq!(place.names(place.here("")), ["part"]);
}

#[test]
fn names_and_directories_decide_where_a_file_goes() {
    let place = Place::new();
    fs::create_dir_all(place.served("directory/below")).unwrap();
    fs::create_dir(place.here("directory")).unwrap();
    fs::write(place.here("file"), b"bytes").unwrap();
    for (to, path) in [
        ("files", "file"),
        ("files:", "file"),
        ("files:directory", "directory/file"),
        ("files:directory/below/name", "directory/below/name"),
        ("files:new", "new"),
    ] {
        place.done(&["store", "file", to]);
        same(place.served(path), b"bytes");
    }
    for (args, path) in [
        (&["fetch", "files:new"][..], "new"),
        (&["fetch", "files:new", "directory"], "directory/new"),
        (&["fetch", "files:directory/file", "other"], "other"),
    ] {
        place.done(args);
        same(place.here(path), b"bytes");
    }
}

#[test]
fn what_is_there_already_is_replaced_and_a_file_of_somebody_else_s_is_not() {
    let place = Place::new();
    fs::write(place.served("file"), b"new").unwrap();
    fs::write(place.here("file"), b"an old file, longer").unwrap();
    place.done(&["fetch", "files:file"]);
    same(place.here("file"), b"new");
    fs::write(place.here("file.part"), b"a file of mine").unwrap();
    let error = place.refused(&["fetch", "files:file"], 1);
    assert!(error.contains("file.part is there already") && error.contains("--resume"), "{error}");
    same(place.here("file.part"), b"a file of mine");
}

#[test]
fn the_summary_line_says_how_much_how_fast_and_how() {
    let place = Place::new();
    fs::write(place.here("file"), pattern(3, 3 * MIB)).unwrap();
    let output = place.run(&["store", "file"]);
    let line = text(&output.stdout);
    assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
    assert_eq!(line.lines().count(), 1, "{line}");
    for part in ["store: 1 file, 3.0 MiB in ", " GB/s), verified; by emulated copy: ", " copied, "] {
        assert!(line.contains(part), "{part} is not in {line}");
    }
    let output = place.run(&["fetch", "files:file", "--no-verify"]);
    assert!(text(&output.stdout).contains(", not verified; "), "{}", text(&output.stdout));
}

#[test]
fn of_stores_of_the_same_name_at_a_time_one_whole_file_wins() {
    let place = Place::new();
    let contents: Vec<_> = (0..3).map(|seed| pattern(seed, 24 * MIB)).collect();
    for (at, bytes) in contents.iter().enumerate() {
        fs::write(place.here(&format!("file {at}")), bytes).unwrap();
    }
    let stores: Vec<_> = (0..3)
        .map(|at| {
            let name = format!("file {at}");
            place.command(&["store", &name, "files:one"]).stdout(Stdio::null()).spawn().unwrap()
        })
        .collect();
    for mut store in stores {
        assert!(store.wait().unwrap().success());
    }
    let found = fs::read(place.served("one")).unwrap();
    assert!(contents.contains(&found), "{} bytes of no one file", found.len());
    assert_eq!(place.names(place.served("")), ["one"]);
}

#[test]
fn names_that_are_no_text_arrive() {
    use std::os::unix::ffi::OsStrExt;
    let place = Place::new();
    let name = OsStr::from_bytes(b"\xff\xfe name");
    fs::write(place.here("").join(name), b"bytes").unwrap();
    let output = place.command(&["store"]).arg(name).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let mut from = b"files:".to_vec();
    from.extend_from_slice(name.as_bytes());
    let output = place.command(&["fetch"]).arg(OsStr::from_bytes(&from)).arg("fetched").output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    same(place.here("fetched"), b"bytes");
}
