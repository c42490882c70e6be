//! What is no ordinary file: pipes, sockets, links and devices are never replaced, and files that hide their size arrive
//! whole. The devices are nodes of the tests' own.

use std::fs;
use std::os::unix::fs::{FileTypeExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use super::{Place, pattern, same};
use crate::running::{assert_fails_in_one_line, skip, text};

/// Runs the command, which must end by itself.
#[track_caller]
fn in_time(mut command: Command) -> Output {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begun.elapsed() > Duration::from_secs(30) {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("{command:?} does not end");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().unwrap()
}

/// Makes one of everything that is neither a file nor a directory; returns their names, and what messages call each. The
/// links lead to a regular file and to nothing.
fn plant(directory: &Path, test: &str) -> Vec<(&'static str, &'static str)> {
    fs::write(directory.join("linked"), b"linked").unwrap();
    symlink("linked", directory.join("link")).unwrap();
    symlink("missing", directory.join("dangling")).unwrap();
    UnixListener::bind(directory.join("socket")).unwrap();
    let make = |args: &[&str]| Command::new("mknod").args(args).current_dir(directory).output().unwrap();
    assert!(make(&["pipe", "p"]).status.success());
    let mut planted = vec![
        ("link", "a symbolic link"),
        ("dangling", "a symbolic link"),
        ("socket", "a socket"),
        ("pipe", "a pipe"),
    ];
    // The numbers of /dev/null.
    if make(&["device", "c", "1", "3"]).status.success() {
        planted.push(("device", "a device"));
    } else {
        skip(test, "no device can be made");
    }
    planted
}

#[track_caller]
fn assert_planted(directory: &Path, planted: &[(&str, &str)]) {
    for (name, what) in planted {
        let kind = fs::symlink_metadata(directory.join(name)).unwrap().file_type();
        let is_kept = match *what {
            "a symbolic link" => kind.is_symlink(),
            "a socket" => kind.is_socket(),
            "a pipe" => kind.is_fifo(),
            _ => kind.is_char_device(),
        };
        assert!(is_kept, "{name} was {what} and is {kind:?}");
    }
    assert_eq!(fs::read(directory.join("linked")).unwrap(), b"linked");
    assert!(!directory.join("missing").exists());
}

#[test]
fn a_fetch_replaces_nothing_but_regular_files() {
    let place = Place::new();
    fs::write(place.served("file"), pattern(1, 100_000)).unwrap();
    let planted = plant(&place.here(""), "special::a_fetch_replaces_nothing_but_regular_files");
    let names = place.names(place.here(""));
    for (name, what) in &planted {
        let output = in_time(place.command(&["fetch", "files:file", name]));
        let error = assert_fails_in_one_line(&output, 1);
        assert!(error.contains(&format!("{name} is {what} where a file is to be")), "{error}");
        assert!(error.contains("another name"), "{error}");
    }
    fs::create_dir(place.served("tree")).unwrap();
    fs::write(place.served("tree/pipe"), b"bytes").unwrap();
    place.refused(&["fetch", "-r", "files:tree", "."], 1);
    assert_planted(&place.here(""), &planted);
    assert_eq!(place.names(place.here("")), names, "no part is left");
}

#[test]
fn a_store_replaces_nothing_but_regular_files() {
    let place = Place::new();
    fs::write(place.here("file"), pattern(1, 100_000)).unwrap();
    let planted = plant(&place.served(""), "special::a_store_replaces_nothing_but_regular_files");
    let names = place.names(place.served(""));
    for (name, what) in &planted {
        let output = in_time(place.command(&["store", "file", &format!("files:{name}")]));
        let error = assert_fails_in_one_line(&output, 1);
        let is_link = *what == "a symbolic link";
        let said = if is_link { "is a symbolic link" } else { "is not a regular file" };
        assert!(error.contains(&format!("{name:?} beneath")) && error.contains(said), "{error}");
    }
    assert_planted(&place.served(""), &planted);
    assert_eq!(place.names(place.served("")), names, "no part is left");
}

/// A part that is a link once kept the command busy without end, or was said to be another fetch's.
#[test]
fn a_part_that_is_no_regular_file_is_named_and_stays() {
    let place = Place::new();
    fs::write(place.served("file"), b"bytes").unwrap();
    let planted = plant(&place.here(""), "special::a_part_that_is_no_regular_file_is_named_and_stays");
    for (name, what) in &planted {
        let part = place.here("target.part");
        fs::rename(place.here(name), &part).unwrap();
        for args in [&["fetch", "files:file", "target", "--resume"][..], &["fetch", "files:file", "target"]] {
            let error = assert_fails_in_one_line(&in_time(place.command(args)), 1);
            assert!(error.contains(&format!("target.part is {what} where a file is to be")), "{error}");
        }
        fs::rename(part, place.here(name)).unwrap();
    }
    assert_planted(&place.here(""), &planted);
    assert!(!place.here("target").exists());
}

/// A fetch that is interrupted before its first byte leaves such a part.
#[test]
fn an_empty_part_is_in_nobody_s_way_unless_a_fetch_has_it() {
    let place = Place::new();
    fs::write(place.served("file"), b"bytes").unwrap();
    fs::write(place.here("file.part"), b"").unwrap();
    place.done(&["fetch", "files:file"]);
    same(place.here("file"), b"bytes");
    let part = fs::File::create_new(place.here("file.part")).unwrap();
    part.lock().unwrap();
    place.refused(&["fetch", "files:file"], 1);
    assert_eq!(place.names(place.here("")), ["file", "file.part"]);
}

/// Files whose bytes stay the same, and whose sizes say 0, or more than there are.
const HIDING: [&str; 4] = [
    "/proc/version",
    "/proc/crypto",
    "/proc/sys/kernel/ostype",
    "/sys/kernel/mm/transparent_hugepage/enabled",
];

/// The files that this machine has, with their bytes.
fn hiding(test: &str) -> Vec<(&'static Path, Vec<u8>)> {
    let read = |path: &'static str| match fs::read(path) {
        Ok(bytes) => Some((Path::new(path), bytes)),
        Err(error) => {
            skip(test, &format!("{path} cannot be read: {error}"));
            None
        }
    };
    HIDING.into_iter().filter_map(read).collect()
}

#[test]
fn a_fetch_ends_where_the_file_ends_whatever_its_size_says() {
    for (path, bytes) in hiding("special::a_fetch_ends_where_the_file_ends_whatever_its_size_says") {
        let place = Place::without_server();
        fs::remove_dir(place.served("")).unwrap();
        symlink(path.parent().unwrap(), place.directory.path().join("served")).unwrap();
        let from = format!("files:{}", path.file_name().unwrap().display());
        for options in [&[][..], &["--resume"], &["--no-verify"], &["--scheme", "emulated-move"]] {
            let summary = place.done(&[&["fetch", &from, "file"], options].concat());
            same(place.here("file"), &bytes);
            assert_eq!(summary["bytes"], bytes.len(), "{summary}");
        }
        place.done(&["fetch", &from, "file", "--range", "0.."]);
        same(place.here("file"), &bytes);
        let beyond = format!("0..{}", bytes.len() + 1);
        place.refused(
            &["fetch", &from, "beyond", "--range", &beyond],
            if path.starts_with("/sys") { 1 } else { 2 },
        );
        assert!(!place.here("beyond").exists());
    }
}

#[test]
fn a_store_ends_where_the_file_ends_whatever_its_size_says() {
    let place = Place::new();
    for (path, bytes) in hiding("special::a_store_ends_where_the_file_ends_whatever_its_size_says") {
        let summary = place.done(&["store", path.to_str().unwrap(), "files:stored"]);
        same(place.served("stored"), &bytes);
        assert_eq!(summary["bytes"], bytes.len(), "{summary}");
    }
}

/// It was said that no server runs.
#[test]
fn a_run_time_directory_that_cannot_be_used_is_named_by_each_command_alike() {
    let place = Place::without_server();
    fs::write(place.here("file"), b"bytes").unwrap();
    let said = [&["servers"][..], &["fetch", "files:file"], &["store", "file"]].map(|args| {
        let mut command = place.plain(args);
        let output = command.env("GENIE_RUNTIME_DIR", place.here("file")).output().unwrap();
        assert_fails_in_one_line(&output, 1)
    });
    assert!(said[0].contains("run-time directory"), "{}", text(said[0].as_bytes()));
    assert!(said.iter().all(|line| *line == said[0]), "{said:?}");
}
