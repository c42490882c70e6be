//! Directories: lists in pages of any size, what names stand for, and checksums.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use genie_conformance::bytes::pattern;
use genie_file::{
    self as file, self, Attributes, CHECKSUM, CHECKSUM_MAX, Checksum, Entry, Kind, LIST, MKDIR, STAT,
};
use genie_io::{In, ServerError, ServerHandle};
use genie_sys::Errno;

use crate::{Files, refused, settle};

impl Files {
    /// One page of a list, and whether more follows.
    fn page(&self, directory: &Path, last: &OsStr, room: usize) -> Result<(Vec<Entry>, bool), ServerError> {
        let mut bytes = vec![0; room];
        let after = file::after(directory, last);
        let request = self.interface.request(&self.handle, LIST);
        let reply = request.input(In::copy(&mut bytes)).argument(&after).room(1).send().map_err(refused)?;
        let entries = file::entries(&bytes[..reply.actual()]).expect("entries");
        Ok((entries, reply.argument() == [1]))
    }

    /// Everything in a directory, by pages of `room` bytes.
    pub(crate) fn list(&self, directory: impl AsRef<Path>, room: usize) -> Result<Vec<Entry>, ServerError> {
        let mut all: Vec<Entry> = Vec::new();
        loop {
            let last = all.last().map(|entry| entry.name.clone()).unwrap_or_default();
            let (page, is_followed) = self.page(directory.as_ref(), &last, room)?;
            all.extend(page);
            if !is_followed {
                return Ok(all);
            }
        }
    }
}

#[test]
fn a_list_names_everything_once_in_order_whatever_the_pages() {
    let files = Files::new(0);
    let mut names: Vec<String> = (0..500).map(|at| format!("file {at}")).collect();
    names.iter().for_each(|name| files.write(name, name.as_bytes()));
    fs::create_dir(files.path("directory")).unwrap();
    names.push("directory".to_owned());
    names.sort_unstable();
    for room in [64, 1000, 1 << 20] {
        let listed = files.list(".", room).unwrap();
        let found: Vec<_> = listed.iter().map(|entry| entry.name.to_str().unwrap()).collect();
        assert_eq!(found, names, "pages of {room} bytes");
    }
    assert_eq!(files.list("directory", 64).unwrap(), []);
}

#[test]
fn what_stays_is_listed_once_while_others_come_and_go() {
    let files = Files::new(0);
    (0..100).for_each(|at| files.write(&format!("stays {at:02}"), b""));
    let mut listed = Vec::new();
    loop {
        let last: Entry = match listed.last() {
            Some(last) => Clone::clone(last),
            None => Entry { name: Default::default(), attributes: files.stat("stays 00") },
        };
        let (page, is_followed) = files.page(Path::new("."), &last.name, 200).unwrap();
        listed.extend(page);
        let turn = listed.len();
        files.write(&format!("comes {turn:03}"), b"");
        files.write(&format!("stays {turn:02} and more"), b"");
        let _ = fs::remove_file(files.path(&format!("comes {:03}", turn / 2)));
        if !is_followed {
            break;
        }
    }
    let stays = listed.iter().filter(|entry| entry.name.len() == "stays 00".len());
    let names: Vec<_> = stays.map(|entry| entry.name.clone().into_string().unwrap()).collect();
    let expected: Vec<_> = (0..100).map(|at| format!("stays {at:02}")).collect();
    assert_eq!(names, expected);
}

#[test]
fn attributes_are_those_of_the_file_system() {
    let files = Files::new(0);
    files.write("file", &pattern(1, 1234));
    fs::set_permissions(files.path("file"), Permissions::from_mode(0o640)).unwrap();
    fs::create_dir(files.path("directory")).unwrap();
    symlink("file", files.path("link")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, files.path("pipe"), 0o600.into()).unwrap();
    let name = OsStr::from_bytes(b"\xff\n");
    fs::write(files.root().join(name), b"").unwrap();
    let listed = files.list(".", 4096).unwrap();
    let kind = |name: &OsStr| listed.iter().find(|entry| entry.name == name).expect("listed").attributes.kind;
    assert_eq!(kind("file".as_ref()), Kind::File);
    assert_eq!(kind("directory".as_ref()), Kind::Directory);
    assert_eq!(kind("link".as_ref()), Kind::Link);
    assert_eq!(kind("pipe".as_ref()), Kind::Other);
    assert_eq!(kind(name), Kind::File);

    let metadata = fs::metadata(files.path("file")).unwrap();
    let expected = Attributes {
        kind: Kind::File,
        size: 1234,
        modified_seconds: metadata.mtime(),
        modified_nanoseconds: metadata.mtime_nsec() as u32,
        mode: 0o640,
    };
    assert_eq!(files.stat("file"), expected);
    assert_eq!(files.stat("link"), expected, "other services follow links");
    assert_eq!(files.stat(".").kind, Kind::Directory);
    assert_eq!(files.stat("pipe").kind, Kind::Other, "and looking at a pipe waits for nobody");
}

#[test]
fn a_list_that_cannot_be_made_says_why() {
    let files = Files::new(0);
    files.write("a file with a name", b"");
    let error = files.list(".", 40).unwrap_err();
    assert!(error.message.contains("needs 47 bytes") && error.message.contains("has 40"), "{error}");
    let error = files.list("missing", 4096).unwrap_err();
    assert!(error.code == Errno::NOENT.raw_os_error() && error.message.contains("\"missing\""), "{error}");
    let error = files.list("a file with a name", 4096).unwrap_err();
    assert_eq!(error.code, Errno::NOTDIR.raw_os_error(), "{error}");
    files.tell(LIST, b"\x05abc", 1).unwrap_err();
    files.tell(LIST, b"", 1).unwrap_err();
}

#[test]
fn directories_are_made_once_and_stay_if_they_are_there() {
    let files = Files::new(0);
    for path in ["a", "a/b", "a", "a/b/"] {
        files.ask(MKDIR, path).unwrap();
        assert!(files.path(path).is_dir());
    }
    files.write("a/file", b"x");
    for (path, errno) in [("a/file", Errno::NOTDIR), ("a/file/b", Errno::NOTDIR), ("x/y", Errno::NOENT)] {
        let error = files.ask(MKDIR, path).unwrap_err();
        assert_eq!(error.code, errno.raw_os_error(), "{path}: {error}");
    }
    files.ask(MKDIR, ".").unwrap_err();
    files.ask(MKDIR, ".genie-00.part").unwrap_err();
}

#[test]
fn checksums_are_of_the_bytes_in_the_range_and_not_of_the_cache() {
    let files = Files::new(8);
    let bytes = pattern(1, 400_001);
    files.write_settled("file", &bytes);
    for (offset, len) in [(0, 400_001), (0, 1), (131_071, 131_074), (5, 0), (400_000, 1)] {
        let expected = Checksum::of(&bytes[offset..offset + len]);
        assert_eq!(files.checksum("file", offset as u64, len as u64).unwrap(), (len as u64, expected));
    }
    assert_eq!(files.checksum("file", 400_000, 100).unwrap(), (1, Checksum::of(&bytes[400_000..])));
    assert_eq!(files.checksum("file", 1 << 40, 100).unwrap(), (0, Checksum::of(b"")));
    files.checksum("file", i64::MAX as u64, CHECKSUM_MAX).unwrap();
    files.checksum("file", u64::MAX, 1).unwrap_err();
    let error = files.checksum("file", 0, CHECKSUM_MAX + 1).unwrap_err();
    assert!(error.message.contains("ask for parts"), "{error}");
    assert_eq!(files.file.statistics().blocks, 0);
}

#[test]
fn a_read_only_server_changes_nothing() {
    let mut files = Files::new(8);
    files.write("file", b"bytes");
    let handle = ServerHandle::new(files.file.clone().read_only());
    let writable = std::mem::replace(&mut files.handle, handle);
    assert_eq!(files.fetch("file", 0, 10), b"bytes");
    assert_eq!(files.list(".", 100).unwrap().len(), 1);
    files.ask(STAT, "file").unwrap();
    let begin = file::Begin { size: 1, token: [0; 16], resume: false };
    let errors = [
        files.try_store("file", 0, b"x").unwrap_err(),
        files.ask(MKDIR, "directory").unwrap_err(),
        files.tell(file::BEGIN, &begin.argument("new"), file::BEGIN_ROOM).unwrap_err(),
        files.ask(file::ABANDON, ".genie-00.part").unwrap_err(),
        files.tell(file::COMMIT, b"", 0).unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.code, Errno::ROFS.raw_os_error(), "{error}");
    }
    settle();
    assert_eq!(fs::read_dir(files.root()).unwrap().count(), 1);
    files.handle = writable;
    files.store("file", 0, b"x");
}

#[test]
fn a_checksum_of_nonsense_is_refused() {
    let files = Files::new(0);
    for argument in [&b""[..], b"1234567", b"\0\0\0\0\0\0\0\0", b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"] {
        files.tell(CHECKSUM, argument, 40).unwrap_err();
    }
}
