//! Uploads: a file appears whole or not at all, and an interrupted upload is found again.

use std::ffi::OsString;
use std::fs::{self, FileTimes};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

use genie_conformance::bytes::{pattern, same};
use genie_conformance::machine::skip;
use genie_file::{
    self as file, self, ABANDON, BEGIN, BEGIN_ROOM, Begin, COMMIT, Checksum, Commit, File, MKDIR, Token,
};
use genie_io::ServerError;
use genie_sys::Errno;
use rustix::fs::{CWD, FileType, makedev, mknodat};

use crate::{Files, Stop};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const MINE: Token = [1; 16];
const OTHER: Token = [2; 16];

impl Files {
    fn try_begin(
        &self,
        path: &str,
        size: u64,
        token: Token,
        resume: bool,
    ) -> Result<(u64, OsString), ServerError> {
        let reply = self.tell(BEGIN, &Begin { size, token, resume }.argument(path), BEGIN_ROOM)?;
        Ok(file::begun(&reply).expect("a part"))
    }

    /// Begins an upload anew.
    #[track_caller]
    fn begin(&self, path: &str, size: usize) -> OsString {
        let (len, part) = self.try_begin(path, size as u64, MINE, false).unwrap();
        assert_eq!(len, 0);
        part
    }

    fn commit(&self, path: &str, part: &OsString, bytes: &[u8]) -> Result<(), ServerError> {
        let checksum = Some(Checksum::of(bytes));
        let commit = Commit { size: bytes.len() as u64, checksum, mode: 0o644, durable: true };
        self.tell(COMMIT, &commit.argument(part, path), 0).map(drop)
    }

    fn names(&self) -> Vec<OsString> {
        let mut names: Vec<_> =
            fs::read_dir(self.root()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    }
}

/// A part's path, beside its target's.
fn beside(target: &str, part: &OsString) -> String {
    Path::new(target).with_file_name(part).into_os_string().into_string().unwrap()
}

#[test]
fn an_upload_appears_with_its_commit_and_replaces_what_was_there() {
    let files = Files::new(8);
    let bytes = pattern(1, 300_000);
    files.ask(MKDIR, "directory").unwrap();
    for (target, old) in [("file", None), ("directory/file", Some(&b"old"[..]))] {
        if let Some(old) = old {
            files.write(target, old);
        }
        let part = files.begin(target, bytes.len());
        files.store(&beside(target, &part), 100_000, &bytes[100_000..]);
        files.store(&beside(target, &part), 0, &bytes[..100_000]);
        assert_eq!(fs::read(files.path(target)).ok().as_deref(), old, "as before until the commit");
        files.commit(target, &part, &bytes).unwrap();
        same(&fs::read(files.path(target)).unwrap(), &bytes, "the file");
        assert!(!files.path(&beside(target, &part)).exists());
    }
    assert_eq!(files.names(), ["directory", "file"]);
    let metadata = fs::metadata(files.path("file")).unwrap();
    assert_eq!(metadata.permissions().mode() & 0o7777, 0o644);
}

#[test]
fn only_the_permission_bits_of_a_mode_count() {
    let files = Files::new(0);
    let part = files.begin("file", 0);
    assert_eq!(fs::metadata(files.path(part.to_str().unwrap())).unwrap().mode() & 0o7777, 0o600);
    let commit = Commit { size: 0, checksum: None, mode: 0o6755, durable: false };
    files.tell(COMMIT, &commit.argument(&part, "file"), 0).unwrap();
    assert_eq!(fs::metadata(files.path("file")).unwrap().mode() & 0o7777, 0o755);
}

#[test]
fn what_is_not_what_the_client_says_does_not_appear() {
    let files = Files::new(8);
    files.write("file", b"old");
    let part = files.begin("file", 5);
    let path = beside("file", &part);
    files.store(&path, 0, b"four");
    let error = files.commit("file", &part, b"fives").unwrap_err();
    assert!(error.message.contains("holds 4 bytes in place of 5"), "{error}");
    files.store(&path, 0, b"wrong");
    let error = files.commit("file", &part, b"right").unwrap_err();
    assert_eq!(error.code, Errno::BADMSG.raw_os_error(), "{error}");
    assert_eq!(fs::read(files.path("file")).unwrap(), b"old");
    files.store(&path, 0, b"right");
    files.commit("file", &part, b"right").unwrap();
    assert_eq!(fs::read(files.path("file")).unwrap(), b"right");
}

#[test]
fn an_upload_that_is_over_is_gone() {
    let files = Files::new(8);
    let part = files.begin("file", 1);
    files.ask(ABANDON, &part).unwrap();
    assert_eq!(files.names(), [""; 0]);
    let errors = [
        files.ask(ABANDON, &part).unwrap_err(),
        files.try_store(beside("file", &part), 0, b"x").unwrap_err(),
        files.commit("file", &part, b"x").unwrap_err(),
    ];
    for error in errors {
        assert!(error.message.contains("is gone"), "{error}");
        assert_eq!(error.code, Errno::NOENT.raw_os_error());
    }
    assert_eq!(files.names(), [""; 0], "a late store creates nothing");
}

#[test]
fn an_interrupted_upload_is_found_by_its_token_and_taken_over() {
    let files = Files::new(8);
    let old = files.begin("file", 10);
    files.store(&beside("file", &old), 0, b"12345");
    let short = files.begin("file", 10);
    files.store(&beside("file", &short), 0, b"123");
    let long = files.begin("file", 20);
    files.store(&beside("file", &long), 0, &[0; 11]);

    let (len, other) = files.try_begin("file", 10, OTHER, true).unwrap();
    assert_eq!(len, 0, "another token finds nothing");
    let (len, part) = files.try_begin("file", 10, MINE, true).unwrap();
    assert_eq!(len, 5, "the longest that is not too long");
    assert!(part != old && part != other);
    let error = files.try_store(beside("file", &old), 5, b"late").unwrap_err();
    assert!(error.message.contains("resumed by another"), "{error}");
    assert_eq!(files.checksum(&beside("file", &part), 0, 10).unwrap(), (5, Checksum::of(b"12345")));
    files.store(&beside("file", &part), 5, b"67890");
    files.commit("file", &part, b"1234567890").unwrap();
}

#[test]
fn clients_that_resume_the_same_upload_have_a_part_each() {
    let files = Files::new(8);
    (0..4).for_each(|_| drop(files.begin("file", 10)));
    let mut parts: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| files.begin_again())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    parts.sort();
    parts.dedup();
    assert!(!parts.is_empty());
    let last = files.begin_again();
    assert!(files.path(last.to_str().unwrap()).exists());
}

impl Files {
    fn begin_again(&self) -> OsString {
        self.try_begin("file", 10, MINE, true).unwrap().1
    }
}

#[test]
fn lists_keep_parts_to_themselves_and_no_target_bears_their_name() {
    let files = Files::new(8);
    let part = files.begin("file", 10);
    assert_eq!(files.list(".", 4096).unwrap(), []);
    let name = part.to_str().unwrap();
    files.try_begin(name, 1, MINE, false).unwrap_err();
    files.try_store(".genie-00.part", 0, b"x").unwrap_err();
    files.commit(name, &part, b"").unwrap_err();
    files.commit("file", &"file".into(), b"").unwrap_err();
    files.commit("file", &"../file".into(), b"").unwrap_err();
    files.ask(ABANDON, "file").unwrap_err();
    assert_eq!(files.names(), [part]);
}

/// Makes something that is no regular file at a path, and says whether it could.
type Make = fn(&Path) -> bool;

/// Links, pipes and devices were once replaced. The device is a node of the test's own, with the numbers of /dev/null.
#[test]
fn only_regular_files_are_replaced() {
    let makes: [(&str, Errno, Make); 5] = [
        ("directory", Errno::ISDIR, |path| fs::create_dir(path).is_ok()),
        ("link", Errno::LOOP, |path| symlink("linked", path).is_ok()),
        ("dangling link", Errno::LOOP, |path| symlink("missing", path).is_ok()),
        ("pipe", Errno::NXIO, |path| rustix::fs::mkfifoat(CWD, path, 0o600.into()).is_ok()),
        ("device", Errno::NXIO, |path| {
            mknodat(CWD, path, FileType::CharacterDevice, 0o600.into(), makedev(1, 3)).is_ok()
        }),
    ];
    for (what, errno, make) in makes {
        let files = Files::new(8);
        files.write("linked", b"linked");
        let part = files.begin("file", 1);
        files.store(&beside("file", &part), 0, b"x");
        if !make(&files.path("file")) {
            skip("uploads::only_regular_files_are_replaced", &format!("no {what} can be made"));
            continue;
        }
        let kind = || fs::symlink_metadata(files.path("file")).unwrap().file_type();
        let (made, names) = (kind(), files.names());
        let begun = files.try_begin("file", 1, MINE, false).map(drop);
        for refused in [begun, files.commit("file", &part, b"x")] {
            let error = refused.expect_err(what);
            assert_eq!(error.code, errno.raw_os_error(), "{what}: {error}");
        }
        assert_eq!((kind(), files.names()), (made, names), "{what}");
        assert_eq!(fs::read(files.path("linked")).unwrap(), b"linked");
        let path = files.path("file");
        if made.is_dir() { fs::remove_dir(path) } else { fs::remove_file(path) }.unwrap();
        files.commit("file", &part, b"x").unwrap();
        assert_eq!(files.names(), ["file", "linked"]);
    }
}

#[test]
fn more_than_the_disk_holds_is_refused_before_anything_is_stored() {
    let files = Files::new(8);
    let error = files.try_begin("file", i64::MAX as u64, MINE, false).unwrap_err();
    assert_eq!(error.code, Errno::NOSPC.raw_os_error(), "{error}");
    assert!(error.message.contains("free space"), "{error}");
    assert_eq!(files.names(), [""; 0]);
    let part = files.begin("file", 1);
    let end = 1u64 << 42;
    if files.try_store(beside("file", &part), end - 1, b"x").is_ok() {
        let commit = Commit { size: end, checksum: Some(Checksum::of(b"")), mode: 0, durable: false };
        let error = files.tell(COMMIT, &commit.argument(&part, "file"), 0).unwrap_err();
        assert_eq!(error.code, Errno::FBIG.raw_os_error(), "not hashed for minutes: {error}");
    }
}

#[test]
fn readers_see_one_whole_file_or_the_other_while_many_upload() {
    let files = Files::new(0);
    let contents: Vec<_> = (0..3).map(|seed| pattern(seed, 50_000)).collect();
    files.write("file", &contents[0]);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let stop = Stop(&done);
        let reader = scope.spawn(|| {
            while !done.load(Relaxed) {
                let seen = fs::read(files.path("file")).unwrap();
                assert!(contents.contains(&seen), "{} bytes of no one file", seen.len());
            }
        });
        let writers: Vec<_> = contents
            .iter()
            .map(|bytes| {
                scope.spawn(|| {
                    for _ in 0..20 {
                        let part = files.begin("file", bytes.len());
                        for (at, piece) in bytes.chunks(20_000).enumerate() {
                            files.store(&beside("file", &part), at as u64 * 20_000, piece);
                        }
                        files.commit("file", &part, bytes).unwrap();
                    }
                })
            })
            .collect();
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        drop(stop);
        reader.join().unwrap();
    });
    assert_eq!(files.names(), ["file"]);
}

#[test]
fn leftovers_of_more_than_a_day_are_removed_wherever_they_are_and_nothing_else() {
    let files = Files::new(0);
    files.ask(MKDIR, "directory").unwrap();
    symlink("..", files.path("directory/up")).unwrap();
    files.write("old file", b"x");
    let stale = [files.begin("file", 1), OsString::from("old file")].map(|name| files.root().join(name));
    let deep = files.path(&beside("directory/file", &files.begin("directory/file", 1)));
    let fresh = files.begin("file", 1);
    let long_ago = SystemTime::now() - DAY - Duration::from_secs(60);
    for path in stale.iter().chain([&deep]) {
        let file = fs::File::options().write(true).open(path).unwrap();
        file.set_times(FileTimes::new().set_modified(long_ago)).unwrap();
    }
    let server = File::open(files.root(), 0).unwrap();
    assert_eq!(server.remove_leftovers(DAY), 2);
    assert_eq!(files.names(), [fresh, "directory".into(), "old file".into()]);
    assert!(!deep.exists());
    assert_eq!(server.remove_leftovers(DAY), 0);
}
