use std::ffi::OsString;
use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, Stdio};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use genie_sys::Errno;
use genie_sys::socket::{Listener, Socket};
use tempfile::TempDir;

use super::*;

/// Tells the child of a test in which directory it is to claim a name.
const CHILD_DIRECTORY: &str = "GENIE_TEST_CLAIM_IN";

fn scratch() -> (TempDir, Directory) {
    let scratch = tempfile::tempdir().unwrap();
    let directory = Directory::at(scratch.path().join("run")).unwrap();
    (scratch, directory)
}

fn entries(directory: &Directory) -> Vec<OsString> {
    let mut names: Vec<_> =
        fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort_unstable();
    names
}

fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn default_at(path: &Path) -> Place {
    Place { path: path.to_owned(), chosen_by: ChosenBy::Default }
}

fn complaint(result: Result<impl std::fmt::Debug, Error>) -> String {
    result.expect_err("a complaint").to_string()
}

#[test]
fn a_path_anywhere_is_claimed_also_in_place_of_a_process_that_is_gone() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("any name, of more than a server's characters");
    drop(Listener::bind(&path).unwrap());
    let claim = Claim::at(&path).unwrap();
    let Error::Running { pid, .. } = Claim::at(&path).unwrap_err() else { panic!("it is claimed") };
    assert_eq!(pid, Some(std::process::id()));
    let _client = Socket::connect(&path).unwrap();
    assert!(claim.listener().accept().unwrap().is_some());
    drop(claim);
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0, "neither path nor lock file is left");
    fs::write(&path, "somebody's").unwrap();
    assert!(matches!(Claim::at(&path), Err(Error::InTheWay { .. })));
    assert!(matches!(Claim::at(Path::new("")), Err(Error::Socket(error)) if error.errno == Errno::NOENT));
}

#[test]
fn the_variables_choose_the_directory_in_their_order() {
    let choose = |genie: &str, xdg: &str| place::choose(Some(genie.into()), Some(xdg.into()), 7);
    let default = |path: &str| default_at(Path::new(path));
    assert_eq!(choose("/a", "/b"), Place { path: "/a".into(), chosen_by: ChosenBy::Administrator });
    assert_eq!(choose("", "/b"), default("/b/genie"));
    assert_eq!(choose("", "b"), default("/tmp/genie-7"), "a relative XDG_RUNTIME_DIR is to be ignored");
    assert_eq!(place::choose(None, None, 7), default("/tmp/genie-7"));
}

#[test]
fn a_missing_directory_is_made_for_this_user_alone() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("run");
    assert_eq!(default_at(&path).prepare(user()).unwrap(), path);
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o700);
    default_at(&path).prepare(user()).unwrap();
    let missing = complaint(Directory::at(scratch.path().join("a/b")));
    assert!(missing.contains("GENIE_RUNTIME_DIR"), "{missing}");
}

#[test]
fn a_default_directory_that_others_could_have_laid_is_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("run");
    default_at(&path).prepare(user()).unwrap();
    let foreign = complaint(default_at(&path).prepare(user() + 1));
    assert!(foreign.contains(&format!("belongs to user {}", user())), "{foreign}");
    for mode in [0o720, 0o702, 0o1777] {
        set_mode(&path, mode);
        let writable = complaint(default_at(&path).prepare(user()));
        assert!(writable.contains(&format!("mode {mode:o}")) && writable.contains("chmod 700"), "{writable}");
    }
    set_mode(&path, 0o700);
    let link = scratch.path().join("link");
    symlink(&path, &link).unwrap();
    assert!(complaint(default_at(&link).prepare(user())).contains("symbolic link"));
    let file = scratch.path().join("file");
    fs::write(&file, "").unwrap();
    assert!(complaint(default_at(&file).prepare(user())).contains("no directory"));
}

#[test]
fn a_directory_that_was_named_may_be_shared_but_not_by_everybody_without_a_sticky_bit() {
    let (scratch, directory) = scratch();
    let link = scratch.path().join("link");
    symlink(directory.path(), &link).unwrap();
    for mode in [0o770, 0o1777] {
        set_mode(directory.path(), mode);
        Directory::at(directory.path()).unwrap();
        Directory::at(&link).unwrap();
    }
    set_mode(directory.path(), 0o777);
    assert!(complaint(Directory::at(directory.path())).contains("chmod +t"));
}

#[test]
fn names_that_would_not_make_a_socket_of_the_directory_are_refused() {
    let (_scratch, directory) = scratch();
    let longest = "n".repeat(MAX_NAME);
    for name in ["a", "A.b_c-9", "lock", &longest] {
        check_name(name).unwrap();
    }
    for name in ["", ".", "..", ".a", "a/b", "a b", "a\0", "\u{e9}", "a.lock", &"n".repeat(MAX_NAME + 1)] {
        assert!(matches!(directory.socket_path(name), Err(Error::Name { .. })), "{name:?}");
    }
    let deep = Directory { path: PathBuf::from("/").join("d".repeat(MAX_PATH - 3)) };
    assert_eq!(deep.socket_path("a").unwrap().as_os_str().len(), MAX_PATH);
    assert!(complaint(deep.socket_path("ab")).contains("has 108 bytes, more than 107"));
}

#[test]
fn a_claimed_name_is_listed_and_taken_until_the_claim_is_dropped() {
    let (_scratch, directory) = scratch();
    let claim = directory.claim("one").unwrap();
    assert_eq!(claim.path(), directory.socket_path("one").unwrap());
    Socket::connect(claim.path()).unwrap();
    fs::write(directory.path().join("two"), "no socket").unwrap();
    assert_eq!(directory.names().unwrap(), ["one"]);
    let taken = complaint(directory.claim("one"));
    let expected = format!("server one is running already, process {};", std::process::id());
    assert!(taken.starts_with(&expected), "{taken}");
    drop(claim);
    assert_eq!(entries(&directory), ["two"]);
    directory.claim("one").unwrap();
}

#[test]
fn what_is_in_the_way_is_left_alone() {
    let (_scratch, directory) = scratch();
    let path = directory.socket_path("a").unwrap();
    fs::write(&path, "precious").unwrap();
    assert!(complaint(directory.claim("a")).contains("it is no socket; remove it"));
    assert_eq!(fs::read(&path).unwrap(), b"precious");
    fs::remove_file(&path).unwrap();
    let _datagrams = UnixDatagram::bind(&path).unwrap();
    assert!(complaint(directory.claim("a")).contains("another type"));
    fs::remove_file(&path).unwrap();
    let target = directory.path().join("target");
    symlink(&target, directory.path().join("a.lock")).unwrap();
    assert!(matches!(directory.claim("a"), Err(Error::File { done: "opened", .. })));
    assert!(!target.exists(), "a lock file that is a link must not be followed");
    fs::create_dir(directory.path().join("b.lock")).unwrap();
    directory.claim("b").unwrap_err();
}

#[test]
fn a_server_whose_lock_file_was_removed_by_hand_still_has_its_name() {
    let (_scratch, directory) = scratch();
    let path = directory.socket_path("a").unwrap();
    let listener = Listener::bind(&path).unwrap();
    let Err(Error::Running { pid, .. }) = directory.claim("a") else { panic!("the name was given twice") };
    assert_eq!(pid, Some(std::process::id()));
    assert_eq!(entries(&directory), ["a"], "the claim that failed left its lock file");
    drop(listener);
    assert!(path.exists());
    directory.claim("a").unwrap();
}

#[test]
fn a_dropped_claim_removes_no_files_but_its_own() {
    let (_scratch, directory) = scratch();
    let claim = directory.claim("a").unwrap();
    let lock = directory.path().join("a.lock");
    for path in [claim.path(), &lock] {
        // The old file still exists while the new one is made, so the two have different inodes.
        let other = directory.path().join("other");
        fs::write(&other, "another's").unwrap();
        fs::rename(&other, path).unwrap();
    }
    drop(claim);
    assert_eq!(entries(&directory), ["a", "a.lock"]);
}

#[test]
#[ignore = "the child of the next test, which runs it"]
fn child_claims_a_name_and_waits_to_be_killed() {
    let Some(path) = std::env::var_os(CHILD_DIRECTORY) else { return };
    let _claim = Directory::at(path).unwrap().claim("a").unwrap();
    std::thread::sleep(Duration::from_secs(60));
}

/// Starts a process that claims the name "a", and waits until it has.
fn claiming_child(directory: &Directory) -> Child {
    let name = "directory::tests::child_claims_a_name_and_waits_to_be_killed";
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--ignored"])
        .env(CHILD_DIRECTORY, directory.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let path = directory.socket_path("a").unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    while Socket::connect(&path).is_err() {
        assert!(Instant::now() < deadline, "the child claims no name");
        std::thread::sleep(Duration::from_millis(2));
    }
    child
}

#[test]
fn a_killed_server_leaves_its_files_and_the_next_claim_replaces_them() {
    let (_scratch, directory) = scratch();
    let mut child = claiming_child(&directory);
    let Err(Error::Running { pid, .. }) = directory.claim("a") else { panic!("the name was given twice") };
    assert_eq!(pid, Some(child.id()));
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(entries(&directory), ["a", "a.lock"]);
    assert_eq!(directory.names().unwrap(), ["a"]);
    let path = directory.socket_path("a").unwrap();
    assert_eq!(Socket::connect(&path).unwrap_err().errno, Errno::CONNREFUSED);
    let claim = directory.claim("a").unwrap();
    Socket::connect(&path).unwrap();
    drop(claim);
    assert!(entries(&directory).is_empty());
}

#[test]
fn of_several_starters_at_once_one_gets_the_name() {
    const STARTERS: usize = 4;
    let (_scratch, directory) = scratch();
    for _ in 0..100 {
        // A dead server's socket, which all claiming processes find.
        drop(Listener::bind(&directory.socket_path("a").unwrap()).unwrap());
        let (start, end) = (Barrier::new(STARTERS), Barrier::new(STARTERS));
        let winners = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..STARTERS {
                scope.spawn(|| {
                    start.wait();
                    let claim = directory.claim("a");
                    match &claim {
                        Ok(_) => drop(winners.fetch_add(1, Ordering::Relaxed)),
                        Err(Error::Running { .. }) => {}
                        Err(other) => panic!("{other}"),
                    }
                    end.wait();
                });
            }
        });
        assert_eq!(winners.into_inner(), 1);
        assert!(entries(&directory).is_empty());
    }
}

#[test]
fn a_name_that_changes_hands_all_the_time_is_never_in_two() {
    let (_scratch, directory) = scratch();
    let is_held = AtomicBool::new(false);
    let claims = AtomicUsize::new(0);
    let hold = || match directory.claim("a") {
        Ok(claim) => {
            assert!(!is_held.swap(true, Ordering::SeqCst), "two hold the name");
            Socket::connect(claim.path()).unwrap();
            claims.fetch_add(1, Ordering::Relaxed);
            is_held.store(false, Ordering::SeqCst);
        }
        Err(Error::Running { .. }) => {}
        Err(other) => panic!("{other}"),
    };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while claims.load(Ordering::Relaxed) < 1000 {
                    hold();
                }
            });
        }
    });
    assert!(entries(&directory).is_empty());
}
