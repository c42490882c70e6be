//! Refusals: each says in one sentence, with the path, what cannot be done.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use genie_conformance::bytes::{pattern, same};
use genie_conformance::machine::skip;
use genie_file::{self as file, File, STAT, SYNC};
use genie_io::{Error, In, Out, ServerError, ServiceId};
use genie_sys::Errno;
use rustix::process::Uid;

use crate::{Files, settle};

#[track_caller]
fn says(error: &ServerError, errno: Errno, words: &[&str]) {
    assert_eq!(error.code, errno.raw_os_error(), "{error}");
    assert!(!error.message.contains('\n'), "one line: {error}");
    for word in words {
        assert!(error.message.contains(word), "{word:?} is missing in: {error}");
    }
}

#[test]
fn a_missing_file_is_named() {
    let files = Files::new(4);
    let words = ["there is no file \"missing\" beneath", "store to it first"];
    says(&files.try_fetch("missing", 0, 10).unwrap_err(), Errno::NOENT, &words);
    says(&files.ask(STAT, "missing").unwrap_err(), Errno::NOENT, &words);
    says(&files.ask(SYNC, "missing").unwrap_err(), Errno::NOENT, &words);
    let words = ["the directory of \"missing/file\"", "create it first"];
    says(&files.try_store("missing/file", 0, b"x").unwrap_err(), Errno::NOENT, &words);
    assert!(!files.path("missing").exists());
}

#[test]
fn what_is_no_regular_file_is_refused() {
    let files = Files::new(4);
    fs::create_dir(files.path("dir")).unwrap();
    files.write("file", b"x");
    for result in [files.try_fetch("dir", 0, 1).map(drop), files.try_store("dir", 0, b"x").map(drop)] {
        says(&result.unwrap_err(), Errno::ISDIR, &["\"dir\" beneath", "is a directory"]);
    }
    says(&files.ask(SYNC, ".").unwrap_err(), Errno::ISDIR, &["is a directory"]);
    says(&files.try_fetch("file/x", 0, 1).unwrap_err(), Errno::NOTDIR, &["\"file/x\"", "no directory"]);
    rustix::fs::mkfifoat(rustix::fs::CWD, files.path("pipe"), 0o600.into()).unwrap();
    for result in [files.try_fetch("pipe", 0, 1).map(drop), files.try_store("pipe", 0, b"x").map(drop)] {
        says(&result.unwrap_err(), Errno::NXIO, &["\"pipe\"", "not a regular file"]);
    }
}

#[test]
fn a_name_with_a_line_break_stays_on_one_line() {
    let files = Files::new(4);
    says(&files.try_fetch("a\nb", 0, 1).unwrap_err(), Errno::NOENT, &["a\\nb"]);
}

#[test]
fn a_forbidden_file_is_refused_for_its_mode() {
    let files = Files::new(4);
    files.write("file", b"secret");
    fs::set_permissions(files.path("file"), Permissions::from_mode(0o000)).unwrap();
    fs::set_permissions(files.directory.path(), Permissions::from_mode(0o755)).unwrap();
    let try_both = || {
        let words = ["\"file\" beneath", "may not be read", "change its owner or mode"];
        says(&files.try_fetch("file", 0, 1).unwrap_err(), Errno::ACCESS, &words);
        let words = ["\"file\" beneath", "may not be written"];
        says(&files.try_store("file", 0, b"x").unwrap_err(), Errno::ACCESS, &words);
    };
    if !rustix::process::geteuid().is_root() {
        return try_both();
    }
    // Root may do anything; one thread of it becomes somebody else.
    std::thread::scope(|scope| {
        let somebody = scope.spawn(|| {
            let nobody = Uid::from_raw(65534);
            rustix::thread::set_thread_res_uid(nobody, nobody, nobody).expect("another user for this thread");
            try_both();
        });
        somebody.join().expect("the other user's requests");
    });
}

#[test]
fn a_root_that_cannot_be_served_is_named() {
    let files = Files::new(4);
    files.write("file", b"x");
    let error = File::open(files.path("missing"), 0).unwrap_err();
    says(&error, Errno::NOENT, &["cannot serve files beneath", "missing"]);
    says(&File::open(files.path("file"), 0).unwrap_err(), Errno::NOTDIR, &["name a directory"]);
}

#[test]
fn requests_without_argument_room_or_buffer_are_refused() {
    let files = Files::new(4);
    files.write("file", b"x");
    let place = file::at("file", 0);
    let request = || files.interface.request(&files.handle, STAT);
    let failed = request().argument(&place).room(27).send().unwrap_err();
    assert_eq!(failed.error, Error::ArgumentTooLong { len: 28, room: 27 });
    let failed = request().room(8).send().unwrap_err();
    assert!(failed.to_string().contains("0 bytes in all"), "{failed}");
    let failed = request().send().unwrap_err();
    assert!(failed.to_string().contains("0 bytes in all"), "{failed}");
    let request = files.interface.request(&files.handle, file::FETCH);
    let failed = request.out(Out::copy(b"x")).argument(&place).send().unwrap_err();
    assert!(failed.to_string().contains("buffer 0 of the request is of the other direction"), "{failed}");
    let failed = files.interface.request(&files.handle, ServiceId(10)).send().unwrap_err();
    assert!(matches!(failed.error, Error::NoSuchService { count: 10, .. }), "{failed}");
}

#[test]
fn a_store_whose_buffer_goes_the_wrong_way_creates_no_file() {
    let files = Files::new(4);
    let place = file::at("new", 0);
    let request = files.interface.request(&files.handle, file::STORE);
    request.input(In::copy(&mut [0; 10])).argument(&place).send().unwrap_err();
    assert!(!files.path("new").exists());
}

const FULL: &str = "GENIE_TEST_FULL_DIRECTORY";

#[test]
fn a_full_disk_is_named_and_spoils_nothing() {
    let test = "refusals::a_full_disk_is_named_and_spoils_nothing";
    if let Some(full) = std::env::var_os(FULL) {
        return store_on_a_full_disk(full.as_ref());
    }
    // In a mount namespace of its own, which goes with the process: the machine's mounts stay as they are.
    let directory = tempfile::tempdir().unwrap();
    let script = r#"mount -t tmpfs -o size=256k genie-test "$1" || exit 77; shift; exec "$@""#;
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, "sh"]).arg(directory.path());
    command.arg(std::env::current_exe().unwrap()).args(["--exact", test]).env(FULL, directory.path());
    match command.output() {
        Ok(output) if output.status.success() && ran(&output.stdout) => {}
        Ok(output) if matches!(output.status.code(), Some(1 | 77)) && !ran(&output.stdout) => {
            skip(
                test,
                &format!("no tmpfs can be mounted: {}", String::from_utf8_lossy(&output.stderr).trim()),
            );
        }
        Ok(output) => {
            panic!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
        }
        Err(error) => skip(test, &format!("unshare cannot be run: {error}")),
    }
}

/// Whether a test binary wrote this.
fn ran(output: &[u8]) -> bool {
    String::from_utf8_lossy(output).contains("running 1 test")
}

fn store_on_a_full_disk(full: &std::path::Path) {
    let mut files = Files::new(4);
    files.file = File::open(full, 4 * file::BLOCK).unwrap();
    files.handle = genie_io::ServerHandle::new(files.file.clone());
    let bytes = pattern(1, file::BLOCK);
    files.store("file", 0, &bytes);
    settle();
    files.fetch("file", 0, file::BLOCK);
    same(&files.fetch("file", 0, file::BLOCK), &bytes, "cached");
    assert_eq!(files.file.statistics().hits, 1);
    let error = files.try_store("file", 1000, &pattern(2, 1 << 20)).unwrap_err();
    says(&error, Errno::NOSPC, &["1048576 bytes", "offset 1000 of \"file\" beneath", "free space"]);
    for _ in 0..2 {
        let now = fs::read(full.join("file")).unwrap();
        same(&files.fetch("file", 0, 1 << 20), &now, "what the file holds after the failure");
        same(&files.fetch("file", 0, file::BLOCK), &now[..file::BLOCK], "its first block");
        settle();
    }
    fs::remove_file(full.join("file")).unwrap();
    files.store("file", 0, &bytes);
    same(&files.fetch("file", 0, 1 << 20), &bytes, "stored again where there was space");
}
