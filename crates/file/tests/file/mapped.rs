//! Mapped access: the same bytes as by explicit I/O, whatever happens to the file.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use genie_conformance::bytes::{pattern, same};
use genie_file::Statistics;
use genie_io::ServerHandle;

use crate::{Files, Stop};

fn mapped() -> Files {
    let mut files = Files::new(8);
    files.file = files.file.clone().mapped();
    files.handle = ServerHandle::new(files.file.clone());
    files
}

#[test]
fn what_is_mapped_is_fetched_without_cache_or_reading() {
    let files = mapped();
    let bytes = pattern(1, 300_001);
    files.write("file", &bytes);
    for (offset, len) in [(0, 300_001), (299_999, 100), (4095, 2), (300_001, 10), (1 << 40, 10), (7, 0)] {
        let expected = bytes.get(offset..).unwrap_or_default();
        let expected = &expected[..expected.len().min(len)];
        same(&files.fetch("file", offset as u64, len), expected, format!("{len} bytes at {offset}"));
    }
    assert_eq!(files.file.statistics(), Statistics::default());
}

#[test]
fn a_fetch_across_windows_is_whole() {
    let files = mapped();
    let file = fs::File::create(files.path("file")).unwrap();
    let boundary = 64 << 20;
    let bytes = pattern(2, 10_000);
    file.write_all_at(&bytes, boundary - 5_000).unwrap();
    same(&files.fetch("file", boundary - 5_000, 20_000), &bytes, "both sides");
    assert_eq!(files.fetch("file", 0, 3), [0; 3], "a hole");
}

#[test]
fn changes_by_others_are_seen_at_once() {
    let files = mapped();
    files.write("file", &pattern(1, 10_000));
    files.fetch("file", 0, 10_000);
    let file = OpenOptions::new().write(true).open(files.path("file")).unwrap();
    file.write_all_at(b"changed", 5_000).unwrap();
    assert_eq!(files.fetch("file", 5_000, 7), b"changed");
    file.set_len(4_000).unwrap();
    assert_eq!(files.fetch("file", 0, 10_000).len(), 4_000);
    files.write("other", b"in its place");
    fs::rename(files.path("other"), files.path("file")).unwrap();
    assert_eq!(files.fetch("file", 0, 100), b"in its place");
    files.store("file", 3, b"its");
    assert_eq!(files.fetch("file", 0, 100), b"in its place");
}

#[test]
fn a_file_that_is_shortened_all_the_time_kills_nobody() {
    let files = mapped();
    let bytes = vec![7; 1 << 20];
    files.write("file", &bytes);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let stop = Stop(&done);
        let shortener = scope.spawn(|| {
            let file = OpenOptions::new().write(true).open(files.path("file")).unwrap();
            while !done.load(Relaxed) {
                file.set_len(4096).unwrap();
                file.write_all_at(&bytes, 0).unwrap();
            }
        });
        for _ in 0..200 {
            let found = files.fetch("file", 0, 1 << 20);
            // A read itself may show zeros where the kernel is just cutting bytes off, and others have been stored since.
            assert!(found.iter().all(|byte| matches!(byte, 0 | 7)), "bytes that were never in the file");
        }
        drop(stop);
        shortener.join().unwrap();
    });
    same(&files.fetch("file", 0, 1 << 20), &bytes, "in the end");
}

#[test]
fn what_hides_its_size_is_read() {
    let mut files = mapped();
    let Ok(server) = genie_file::File::open("/proc/sys/kernel", 0) else {
        return genie_conformance::machine::skip("what_hides_its_size_is_read", "/proc/sys is missing");
    };
    files.handle = ServerHandle::new(server.mapped());
    assert_eq!(files.fetch("ostype", 0, 100), b"Linux\n");
}
