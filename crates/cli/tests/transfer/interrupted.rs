//! Transfers that are killed half-way, and then resumed.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{MIB, Place, pattern, same};

const LEN: usize = 96 * MIB;

/// Kills the command as soon as it has written more than two chunks to its part, which is left.
#[track_caller]
fn kill_half_way(place: &Place, args: &[&str], part: impl Fn() -> Option<PathBuf>) -> PathBuf {
    for _ in 0..20 {
        let mut child = place.command(args).stdout(Stdio::null()).spawn().unwrap();
        let begun = Instant::now();
        let found = loop {
            assert!(begun.elapsed() < Duration::from_secs(60), "nothing is written");
            let found = part().filter(|part| len(part) > 16 * MIB as u64);
            if found.is_some() || child.try_wait().unwrap().is_some() {
                break found;
            }
        };
        child.kill().unwrap();
        child.wait().unwrap();
        if let Some(found) = found.filter(|part| part.exists()) {
            return found;
        }
    }
    panic!("{args:?} was done each time before it could be killed");
}

fn len(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |metadata| metadata.len())
}

fn number(summary: &Value, name: &str) -> usize {
    summary[name].as_u64().unwrap() as usize
}

#[test]
fn a_fetch_that_was_killed_leaves_its_part_and_goes_on() {
    let place = Place::new();
    let bytes = pattern(1, LEN);
    fs::write(place.served("file"), &bytes).unwrap();
    fs::write(place.here("file"), b"old").unwrap();
    let part = place.here("file.part");
    kill_half_way(&place, &["fetch", "files:file"], || Some(part.clone()));
    same(place.here("file"), b"old");
    place.refused(&["fetch", "files:file"], 1);
    let summary = place.done(&["fetch", "files:file", "--resume"]);
    same(place.here("file"), &bytes);
    assert!(number(&summary, "kept_bytes") >= 8 * MIB, "{summary}");
    assert_eq!(number(&summary, "kept_bytes") + number(&summary, "bytes"), LEN);
    assert!(!part.exists());
}

#[test]
fn what_was_changed_on_the_server_or_in_the_part_is_fetched_again() {
    let place = Place::new();
    let mut bytes = pattern(2, 40 * MIB);
    fs::write(place.here("file.part"), &bytes[..30 * MIB]).unwrap();
    bytes[9 * MIB] ^= 1;
    fs::write(place.served("file"), &bytes).unwrap();
    let part = fs::File::options().write(true).open(place.here("file.part")).unwrap();
    part.write_all_at(b"damaged", 20 * MIB as u64).unwrap();
    let summary = place.done(&["fetch", "files:file", "--resume"]);
    same(place.here("file"), &bytes);
    assert_eq!(number(&summary, "kept_bytes"), 8 * MIB, "{summary}");
    fs::write(place.here("file.part"), pattern(3, 50 * MIB)).unwrap();
    place.done(&["fetch", "files:file", "--resume"]);
    same(place.here("file"), &bytes);
}

#[test]
fn a_store_that_was_killed_goes_on() {
    let place = Place::new();
    let bytes = pattern(4, LEN);
    fs::write(place.here("file"), &bytes).unwrap();
    fs::write(place.served("file"), b"old").unwrap();
    let part = || {
        let names = place.names(place.served(""));
        names.iter().find(|name| name.ends_with(".part")).map(|name| place.served(name))
    };
    let part = kill_half_way(&place, &["store", "file"], part);
    same(place.served("file"), b"old");
    // As if it had died while a chunk was stored.
    let file = fs::File::options().write(true).open(&part).unwrap();
    file.write_all_at(b"damaged", 9 * MIB as u64).unwrap();
    let summary = place.done(&["store", "file", "--resume"]);
    same(place.served("file"), &bytes);
    assert!(number(&summary, "kept_bytes") >= 8 * MIB, "{summary}");
    assert_eq!(number(&summary, "kept_bytes") + number(&summary, "bytes"), LEN);
    assert_eq!(place.names(place.served("")), ["file"]);
}

#[test]
fn resuming_what_never_began_is_beginning() {
    let place = Place::new();
    fs::write(place.here("file"), b"bytes").unwrap();
    place.done(&["store", "file", "--resume"]);
    place.done(&["fetch", "files:file", "again", "--resume"]);
    same(place.here("again"), b"bytes");
}

#[test]
fn two_fetches_of_one_target_never_mix() {
    let place = Place::new();
    let contents = [pattern(5, 48 * MIB), pattern(6, 48 * MIB)];
    fs::write(place.served("a"), &contents[0]).unwrap();
    fs::write(place.served("b"), &contents[1]).unwrap();
    let fetches = ["files:a", "files:b"].map(|from| {
        let mut command = place.command(&["fetch", from, "target", "--resume"]);
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    });
    let done = fetches.map(|mut fetch| fetch.wait().unwrap().success());
    assert!(done.contains(&true));
    let found = fs::read(place.here("target")).unwrap();
    assert!(contents.contains(&found), "{} bytes of no one file", found.len());
}
