//! Refusals: a transfer that cannot be done prints one line, and leaves nothing behind.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::process::Command;

use genie::channel::{Directory, Listener, ServeOptions};
use genie::memory::Memory;

use super::{MIB, Place, pattern, same};
use crate::running::{assert_fails_in_one_line, is_root, skip, text};

#[test]
fn what_is_not_there_is_named() {
    let place = Place::new();
    let error = place.refused(&["fetch", "files:missing"], 1);
    assert!(error.contains("nothing at \"missing\""), "{error}");
    let error = place.refused(&["store", "missing"], 1);
    assert!(error.contains("missing cannot be read"), "{error}");
    fs::write(place.here("file"), b"x").unwrap();
    let error = place.refused(&["store", "file", "files:no/such/directory/file"], 1);
    assert!(error.contains("create it first"), "{error}");
    fs::write(place.served("file"), b"x").unwrap();
    let error = place.refused(&["fetch", "files:file", "no/such/directory"], 1);
    assert!(error.contains("does not exist; create it first"), "{error}");
    assert_eq!(place.names(place.served("")), ["file"]);
    assert_eq!(place.names(place.here("")), ["file"]);
}

/// Services were asked for by their numbers, whatever they did on a server of another kind.
#[test]
fn a_server_of_another_kind_is_asked_nothing() {
    let place = Place::without_server();
    let directory = Directory::at(place.directory.path().join("run")).unwrap();
    let letters = Memory::customized();
    let served = Listener::bind_in(&directory, "letters", letters, ServeOptions::default()).unwrap();
    let _running = served.start().unwrap();
    fs::write(place.here("file"), b"x").unwrap();
    for args in [["fetch", "letters:file", "fetched"], ["store", "file", "letters"]] {
        let error = assert_fails_in_one_line(&place.plain(&args).output().unwrap(), 1);
        assert!(error.contains("\"letters\" is no file server: its services are null, "), "{error}");
    }
    assert_eq!(place.names(place.here("")), ["file"]);
}

#[test]
fn nobody_gets_out_of_what_is_served() {
    let place = Place::new();
    fs::write(place.here("secret"), b"secret").unwrap();
    fs::write(place.here("file"), b"overwritten").unwrap();
    symlink("../here", place.served("out")).unwrap();
    symlink("../here/secret", place.served("link")).unwrap();
    symlink("/etc", place.served("etc")).unwrap();
    let secret = place.here("secret").into_os_string().into_string().unwrap();
    let paths = ["../here/secret", "a/../../here/secret", &secret, "out/secret", "link", "etc/passwd"];
    for path in paths {
        place.refused(&["fetch", &format!("files:{path}"), "stolen"], 1);
    }
    place.refused(&["fetch", "-r", "files:..", "stolen"], 1);
    place.refused(&["fetch", "-r", "files:out", "stolen"], 1);
    for path in ["../here/secret", &secret, "out/secret", "etc/new"] {
        place.refused(&["store", "file", &format!("files:{path}")], 1);
    }
    place.refused(&["store", "-r", ".", "files:../here"], 1);
    same(place.here("secret"), b"secret");
    assert_eq!(place.names(place.here("")), ["file", "secret"]);
}

#[test]
fn a_file_that_may_not_be_read_is_named() {
    const NAME: &str = "refusals::a_file_that_may_not_be_read_is_named";
    let place = Place::without_server();
    let directory = place.directory.path();
    for path in [directory.to_owned(), place.here(""), place.served("")] {
        fs::set_permissions(path, PermissionsExt::from_mode(0o777)).unwrap();
    }
    for path in [place.here("forbidden"), place.served("forbidden")] {
        fs::write(&path, b"x").unwrap();
        fs::set_permissions(path, PermissionsExt::from_mode(0o000)).unwrap();
    }
    for args in [["store", "forbidden"], ["fetch", "files:forbidden"]] {
        let mut command = place.command(&args);
        command.env("GENIE_CACHE_DIR", place.here("cache"));
        if is_root() {
            command.uid(65534).gid(65534);
        }
        let Ok(output) = command.output() else {
            return skip(NAME, "another user may not run the program where it was built");
        };
        let error = assert_fails_in_one_line(&output, 1);
        assert!(error.contains("forbidden") && error.contains("ermission denied"), "{error}");
    }
    assert!(!place.here("forbidden.part").exists());
}

const FULL: &str = "GENIE_TEST_FULL_DIRECTORY";

#[test]
fn a_full_disk_is_named_and_the_target_stays_as_it_was() {
    const NAME: &str = "transfer::refusals::a_full_disk_is_named_and_the_target_stays_as_it_was";
    if let Some(full) = std::env::var_os(FULL) {
        return transfer_to_a_full_disk(full.as_ref());
    }
    // In a mount namespace of its own, which goes with the process: the machine's mounts stay as they are.
    let directory = tempfile::tempdir().unwrap();
    let script = r#"mount -t tmpfs -o size=12m genie-test "$1" || exit 77; shift; exec "$@""#;
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, "sh"]).arg(directory.path());
    command.arg(std::env::current_exe().unwrap()).args(["--exact", NAME]).env(FULL, directory.path());
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => return skip(NAME, &format!("unshare cannot be run: {error}")),
    };
    let (said, ran) = (text(&output.stderr), text(&output.stdout).contains("running 1 test"));
    if !ran {
        return skip(NAME, &format!("no tmpfs can be mounted: {}", said.trim()));
    }
    assert!(output.status.success(), "{}{said}", text(&output.stdout));
}

fn transfer_to_a_full_disk(full: &std::path::Path) {
    let place = Place::new();
    let bytes = pattern(1, 20 * MIB);
    fs::write(place.served("file"), &bytes).unwrap();
    let target = full.join("target");
    fs::write(&target, b"old").unwrap();
    let error = place.refused(&["fetch", "files:file", target.to_str().unwrap()], 1);
    assert!(error.contains("free space and go on by --resume"), "{error}");
    same(target.clone(), b"old");
    fs::remove_file(full.join("target.part")).unwrap();

    fs::write(place.here("file"), &bytes).unwrap();
    let mut command = crate::running::genie(&["store", "file", "files:target", "--granule", "4k"]);
    let output = command.arg("--in-process").arg(full).current_dir(place.here("")).output().unwrap();
    let error = assert_fails_in_one_line(&output, 1);
    assert!(error.contains("do not fit") && error.contains("free space"), "{error}");
    same(target, b"old");
    assert_eq!(place.names(full.to_owned()), ["target"]);
}
