//! Whole directories.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use super::{Place, pattern};

/// Everything beneath a directory: files with their bytes and modes, directories.
fn contents(root: &Path) -> BTreeMap<PathBuf, Option<(Vec<u8>, u32)>> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![root.to_owned()];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let entry = entry.unwrap();
            let (path, metadata) = (entry.path(), entry.metadata().unwrap());
            let name = path.strip_prefix(root).unwrap().to_owned();
            if metadata.is_dir() {
                waiting.push(path);
                found.insert(name, None);
            } else if metadata.is_file() {
                let bytes = fs::read(&path).unwrap();
                found.insert(name, Some((bytes, metadata.permissions().mode() & 0o777)));
            } else {
                found.insert(name, Some((b"neither".to_vec(), 0)));
            }
        }
    }
    found
}

/// A tree of 500 small files and some more.
fn plant(root: &Path) {
    for directory in 0..20 {
        let path = root.join(format!("{}/directory {directory}", directory % 3));
        fs::create_dir_all(&path).unwrap();
        for file in 0..25u64 {
            let len = (file * file * 37) as usize % 20_000;
            fs::write(path.join(format!("file {file}")), pattern(directory * 25 + file, len)).unwrap();
        }
    }
    fs::create_dir(root.join("empty")).unwrap();
    fs::write(root.join("large"), pattern(9, 20 << 20)).unwrap();
    fs::write(root.join("script"), b"#!").unwrap();
    fs::set_permissions(root.join("script"), PermissionsExt::from_mode(0o755)).unwrap();
    fs::write(root.join("clash"), b"first").unwrap();
    fs::write(root.join("clash.part"), b"second").unwrap();
    fs::write(root.join("clash.part.part"), b"third").unwrap();
}

#[test]
fn a_tree_goes_there_and_back_with_several_jobs() {
    let place = Place::new();
    plant(&place.here("tree"));
    let expected = contents(&place.here("tree"));
    for jobs in ["1", "8"] {
        let stored = place.done(&["store", "-r", "tree", "--jobs", jobs, "--no-sync"]);
        assert_eq!(stored["files"], 505, "{stored}");
        assert!(contents(&place.served("tree")) == expected, "what was stored by {jobs} jobs");
        let fetched = place.done(&["fetch", "-r", "files:tree", "back", "--jobs", jobs]);
        assert_eq!(fetched["files"], 505, "{fetched}");
        assert!(contents(&place.here("back")) == expected, "what was fetched by {jobs} jobs");
        fs::remove_dir_all(place.served("tree")).unwrap();
        fs::remove_dir_all(place.here("back")).unwrap();
    }
}

#[test]
fn all_that_is_served_is_fetched_into_a_directory_of_the_server_s_name() {
    let place = Place::new();
    plant(&place.served("a/b"));
    place.done(&["fetch", "--recursive", "files"]);
    assert!(contents(&place.here("files")) == contents(&place.served("")));
}

#[test]
fn trees_are_merged_into_what_is_there() {
    let place = Place::new();
    fs::create_dir_all(place.here("tree/below")).unwrap();
    fs::write(place.here("tree/below/file"), b"new").unwrap();
    fs::create_dir_all(place.served("deep/target/below")).unwrap();
    fs::write(place.served("deep/target/below/file"), b"old").unwrap();
    fs::write(place.served("deep/target/other"), b"other").unwrap();
    place.done(&["store", "-r", "tree", "files:deep/target"]);
    place.done(&["store", "-r", "tree", "files:not/there/yet"]);
    let found = contents(&place.served("deep/target"));
    assert_eq!(found[Path::new("below/file")].as_ref().unwrap().0, b"new");
    assert_eq!(found[Path::new("other")].as_ref().unwrap().0, b"other");
    assert!(contents(&place.served("not/there/yet")) == contents(&place.here("tree")));
}

#[test]
fn links_and_special_files_are_left_out_and_counted() {
    let place = Place::new();
    for root in [place.here("tree"), place.served("tree")] {
        fs::create_dir(&root).unwrap();
        fs::write(root.join("file"), b"bytes").unwrap();
        symlink("file", root.join("link")).unwrap();
        symlink("..", root.join("up")).unwrap();
        symlink("/etc", root.join("away")).unwrap();
        let made = std::process::Command::new("mkfifo").arg(root.join("pipe")).status().unwrap();
        assert!(made.success());
    }
    for args in [["store", "-r", "tree", "files:new"], ["fetch", "-r", "files:tree", "new"]] {
        let summary = place.done(&args);
        assert_eq!((&summary["files"], &summary["left_out"]), (&1.into(), &4.into()), "{summary}");
    }
    assert_eq!(place.names(place.served("new")), ["file"]);
    assert_eq!(place.names(place.here("new")), ["file"]);
}

#[test]
fn a_directory_in_the_place_of_a_file_is_named_and_stays() {
    let place = Place::new();
    for root in [place.here("tree"), place.served("tree")] {
        fs::create_dir(&root).unwrap();
        fs::write(root.join("name"), b"bytes").unwrap();
    }
    fs::create_dir_all(place.here("clash/name")).unwrap();
    fs::create_dir_all(place.served("clash/name")).unwrap();
    let error = place.refused(&["fetch", "-r", "files:tree", "clash"], 1);
    assert!(error.contains("clash/name is a directory where a file is to be"), "{error}");
    let error = place.refused(&["store", "-r", "tree", "files:clash"], 1);
    assert!(error.contains("\"clash/name\" beneath") && error.contains("is a directory"), "{error}");
    let error = place.refused(&["fetch", "files:tree"], 2);
    assert!(error.contains("add --recursive"), "{error}");
    let error = place.refused(&["store", "tree"], 2);
    assert!(error.contains("add --recursive"), "{error}");
    assert_eq!(place.names(place.served("clash")), ["name"]);
    assert_eq!(place.names(place.here("clash")), ["name"]);
}
