//! The cache: which reads it saves, which changes it must notice, and what it must leave alone.

use std::fs::{self, FileTimes, OpenOptions};
use std::os::unix::fs::FileExt;

use genie_conformance::bytes::{pattern, same};
use genie_conformance::machine::skip;
use genie_file::{BLOCK, Statistics};

use crate::{Files, settle};

/// How many bytes this thread has had the kernel read so far; reading that counts, too.
fn bytes_read() -> Option<u64> {
    let text = fs::read_to_string("/proc/thread-self/io").ok()?;
    text.lines().find_map(|line| line.strip_prefix("rchar: "))?.parse().ok()
}

#[test]
fn hits_are_served_without_reading_the_file() {
    let files = Files::new(8);
    let bytes = pattern(1, 3 * BLOCK);
    files.write_settled("file", &bytes);
    let mut read = Vec::new();
    for _ in 0..3 {
        let before = bytes_read();
        same(&files.fetch("file", 10, 2 * BLOCK), &bytes[10..10 + 2 * BLOCK], "the file");
        read.extend(before.and_then(|before| Some(bytes_read()? - before)));
    }
    assert_eq!(files.file.statistics(), Statistics { hits: 6, misses: 3, bypassed: 0, blocks: 3 });
    let [first, second, third] = read[..] else {
        return skip("hits_are_served_without_reading_the_file", "/proc/thread-self/io does not count reads");
    };
    assert!(first >= 3 * BLOCK as u64, "{first} bytes were read for three blocks");
    assert!(second < 4096 && third < 4096, "{second} and {third} bytes were read for nothing");
}

/// Fetches a file so that it is cached, changes it, and fetches it again.
#[track_caller]
fn noticed(what: &str, change: impl FnOnce(&Files)) {
    let files = Files::new(8);
    files.write("other", b"other");
    files.write_settled("file", &pattern(1, 1000));
    files.fetch("file", 0, 2000);
    same(&files.fetch("file", 0, 2000), &pattern(1, 1000), "before the change");
    assert_eq!(files.file.statistics().hits, 1, "{what}: the file was cached");
    change(&files);
    let expected = fs::read(files.path("file")).unwrap();
    same(&files.fetch("file", 0, 2000), &expected, what);
    settle();
    same(&files.fetch("file", 0, 2000), &expected, format!("{what}, settled"));
    same(&files.fetch("file", 0, 2000), &expected, format!("{what}, cached again"));
    assert!(files.file.statistics().hits >= 2, "{what}: the new file was cached");
}

#[test]
fn changes_by_others_are_noticed() {
    noticed("written over", |files| files.write("file", &pattern(2, 1000)));
    noticed("written in place", |files| {
        let file = OpenOptions::new().write(true).open(files.path("file")).unwrap();
        file.write_all_at(b"changed", 500).unwrap();
    });
    noticed("shortened", |files| files.write("file", &pattern(1, 999)));
    noticed("lengthened", |files| files.write("file", &pattern(1, 1001)));
    noticed("replaced by renaming", |files| {
        files.write("new", &pattern(2, 1000));
        fs::rename(files.path("new"), files.path("file")).unwrap();
    });
    noticed("become a link", |files| {
        fs::remove_file(files.path("file")).unwrap();
        std::os::unix::fs::symlink("other", files.path("file")).unwrap();
    });
    noticed("written with its old modification time", |files| {
        let file = OpenOptions::new().write(true).open(files.path("file")).unwrap();
        let modified = file.metadata().unwrap().modified().unwrap();
        file.write_all_at(b"changed", 500).unwrap();
        file.set_times(FileTimes::new().set_modified(modified)).unwrap();
        assert_eq!(file.metadata().unwrap().modified().unwrap(), modified);
    });
    noticed("its directory replaced", |files| {
        // The root itself is held open; what is noticed is what its entries mean now.
        fs::rename(files.path("file"), files.path("gone")).unwrap();
        files.write("file", b"in its place");
    });
}

#[test]
fn changes_in_quick_succession_are_all_noticed() {
    let files = Files::new(8);
    let file = fs::File::create(files.path("file")).unwrap();
    for round in 0..2000u32 {
        file.write_all_at(&round.to_le_bytes(), 0).unwrap();
        assert_eq!(files.fetch("file", 0, 4), round.to_le_bytes(), "round {round}");
    }
}

#[test]
fn one_s_own_store_is_fetched_at_once_and_cached_again_later() {
    let files = Files::new(8);
    let mut bytes = pattern(1, 4 * BLOCK);
    files.write_settled("file", &bytes);
    files.fetch("file", 0, 4 * BLOCK);
    assert_eq!(files.file.statistics().blocks, 4);
    let stored = pattern(2, BLOCK);
    files.store("file", 100, &stored);
    bytes[100..100 + BLOCK].copy_from_slice(&stored);
    assert_eq!(files.file.statistics().blocks, 2, "the two blocks stored to are forgotten");
    same(&files.fetch("file", 0, 4 * BLOCK), &bytes, "right after the store");
    settle();
    same(&files.fetch("file", 0, 4 * BLOCK), &bytes, "settled");
    same(&files.fetch("file", 0, 4 * BLOCK), &bytes, "cached");
    assert_eq!(files.file.statistics().hits, 4);
    assert_eq!(files.file.statistics().blocks, 4);
}

#[test]
fn a_failed_store_changes_nothing_in_the_cache() {
    let files = Files::new(8);
    files.write_settled("file", &pattern(1, BLOCK));
    files.fetch("file", 0, BLOCK);
    let before = files.file.statistics();
    files.try_store("file/below", 0, b"x").unwrap_err();
    files.try_store("file", i64::MAX as u64, b"x").unwrap_err();
    files.try_store("missing/file", 0, b"x").unwrap_err();
    assert_eq!(files.file.statistics(), before);
    same(&files.fetch("file", 0, BLOCK), &pattern(1, BLOCK), "the file");
    assert_eq!(files.file.statistics().hits, before.hits + 1);
}

#[test]
fn the_cache_keeps_its_bound_and_the_blocks_used_last() {
    let files = Files::new(4);
    files.write_settled("file", &pattern(1, 12 * BLOCK));
    for block in 0..12 {
        files.fetch("file", 0, 1);
        files.fetch("file", block * BLOCK as u64, BLOCK);
        assert!(files.file.statistics().blocks <= 4);
    }
    let before = files.file.statistics();
    for block in [0, 11, 10, 9] {
        files.fetch("file", block * BLOCK as u64, 10);
    }
    assert_eq!(files.file.statistics().hits, before.hits + 4, "block 0 was used all the time");
    files.fetch("file", 8 * BLOCK as u64, 10);
    assert_eq!(files.file.statistics().misses, before.misses + 1, "block 8 made room");
}

#[test]
fn long_fetches_leave_the_cache_alone() {
    let files = Files::new(4);
    let bytes = pattern(1, 8 * BLOCK);
    files.write_settled("file", &bytes);
    same(&files.fetch("file", 0, 2 * BLOCK), &bytes[..2 * BLOCK], "half of the cache");
    same(&files.fetch("file", 1, 2 * BLOCK + 1), &bytes[1..2 * BLOCK + 2], "a byte more");
    same(&files.fetch("file", 0, 9 * BLOCK), &bytes, "more than there is");
    assert_eq!(files.file.statistics(), Statistics { hits: 0, misses: 2, bypassed: 2, blocks: 2 });
}

#[test]
fn without_cache_bytes_nothing_is_cached() {
    let files = Files::new(0);
    files.write_settled("file", b"bytes");
    for _ in 0..3 {
        assert_eq!(files.fetch("file", 0, 100), b"bytes");
    }
    assert_eq!(files.file.statistics(), Statistics { bypassed: 3, ..Statistics::default() });
}

#[test]
fn files_that_hide_their_size_are_never_cached() {
    let files = Files::new(4);
    let Ok(server) = genie_file::File::open("/proc/sys/kernel", 1 << 20) else {
        return skip("files_that_hide_their_size_are_never_cached", "/proc/sys is missing");
    };
    let handle = genie_io::ServerHandle::new(server.clone());
    let place = genie_file::at("ostype", 0);
    for _ in 0..2 {
        let mut bytes = [0; 100];
        let request = files.interface.request(&handle, genie_file::FETCH);
        let reply = request.input(genie_io::In::copy(&mut bytes)).argument(&place).send().expect("a fetch");
        assert_eq!(&bytes[..reply.actual()], b"Linux\n");
        settle();
    }
    assert_eq!(server.statistics().blocks, 0);
}

/// It was fetched as empty ever after.
#[test]
fn a_file_that_hides_its_size_and_is_empty_at_first_is_not_cached_as_empty() {
    let files = Files::new(4);
    let thread = fs::canonicalize("/proc/thread-self").unwrap_or_default();
    let Ok(empty) = fs::read(thread.join("children")) else {
        let test = "a_file_that_hides_its_size_and_is_empty_at_first_is_not_cached_as_empty";
        return skip(test, "the kernel does not list a thread's children");
    };
    assert_eq!(empty, b"", "this thread has no children yet");
    let handle = genie_io::ServerHandle::new(genie_file::File::open(&thread, 1 << 20).unwrap());
    let fetch = || {
        let mut bytes = vec![0; 100];
        let place = genie_file::at("children", 0);
        let request = files.interface.request(&handle, genie_file::FETCH);
        let reply = request.input(genie_io::In::copy(&mut bytes)).argument(&place).send().expect("a fetch");
        bytes.truncate(reply.actual());
        bytes
    };
    fetch();
    settle();
    assert_eq!(fetch(), b"");
    let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    let found = fetch();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(String::from_utf8(found).unwrap(), format!("{} ", child.id()));
}
