//! Servers that are killed in the middle of a transfer: the command fails in one line, nothing half-written is visible, and
//! the same command goes on by `--resume` with the next server, however often that happens.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use super::{MIB, Place, pattern, same};
use crate::running::assert_fails_in_one_line;

const LEN: usize = 96 * MIB;
/// What is transferred between two kills, at least.
const STRETCH: usize = 16 * MIB;
/// How often a transfer may be done before its server can be killed.
const TRIES: usize = 20;

/// Bytes in all files beneath a directory.
fn written(directory: &Path) -> usize {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let len = |entry: fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => written(&entry.path()),
        Ok(metadata) => metadata.len() as usize,
        // It has another name by now.
        Err(_) => 0,
    };
    entries.map(len).sum()
}

impl Place {
    /// Runs the command, and kills the server as soon as so many bytes are beneath `target`; returns false when the command
    /// was done before. Then there is no server.
    #[track_caller]
    fn loses_server(&mut self, args: &[&str], target: &Path, bytes: usize) -> bool {
        let mut command = self.command(args);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let begun = Instant::now();
        while written(target) < bytes && child.try_wait().unwrap().is_none() {
            assert!(begun.elapsed() < Duration::from_secs(60), "nothing is written");
        }
        let mut server = self.server.take().unwrap();
        server.kill().unwrap();
        server.wait().unwrap();
        // It ends of its own accord, though no server comes.
        let output = child.wait_with_output().unwrap();
        if output.status.success() {
            return false;
        }
        let error = assert_fails_in_one_line(&output, 1);
        assert!(error.contains("files is gone") && error.contains("--resume"), "{error}");
        true
    }

    /// Transfers a file of this content to `target`, losing the server as often as there is something left to transfer.
    #[track_caller]
    fn arrives_at_last(&mut self, args: &[&str], target: &Path, bytes: &[u8]) {
        let file = target.join("file");
        let mut lost = 0;
        for _ in 0..TRIES {
            self.serve(&[]);
            fs::write(&file, b"old").unwrap();
            let goal = written(target) + STRETCH;
            if goal + STRETCH > LEN {
                break;
            }
            if self.loses_server(args, target, goal) {
                lost += 1;
                same(file.clone(), b"old");
                assert!(written(target) >= STRETCH, "what was transferred is kept");
            }
        }
        assert!(lost > 1, "the transfer was done each time before the server could be killed");
        if self.server.is_none() {
            self.serve(&[]);
        }
        let has_part = written(target) >= STRETCH;
        let summary = self.done(args);
        let [kept, passed] = ["kept_bytes", "bytes"].map(|name| summary[name].as_u64().unwrap() as usize);
        assert!(!has_part || kept >= STRETCH / 2, "{summary}");
        assert_eq!(kept + passed, bytes.len(), "{summary}");
        same(file, bytes);
        assert_eq!(self.names(target.to_owned()), ["file"]);
    }
}

#[test]
fn a_fetch_whose_server_is_killed_again_and_again_arrives_at_last() {
    let mut place = Place::without_server();
    let bytes = pattern(1, LEN);
    fs::write(place.served("file"), &bytes).unwrap();
    let target = place.here("");
    place.arrives_at_last(&["fetch", "files:file", "--resume"], &target, &bytes);
}

#[test]
fn a_store_whose_server_is_killed_again_and_again_arrives_at_last() {
    let mut place = Place::without_server();
    let bytes = pattern(2, LEN);
    fs::write(place.here("file"), &bytes).unwrap();
    let target = place.served("");
    place.arrives_at_last(&["store", "file", "--resume"], &target, &bytes);
}

/// Files of a tree, each with the seed of its pattern.
const FILES: u64 = 24;

fn tree(root: &Path) {
    for seed in 0..FILES {
        let directory = root.join(format!("tree/{}", seed % 5));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join(seed.to_string()), pattern(seed, LEN / FILES as usize)).unwrap();
    }
}

/// Verifies that each file is there whole, or not at all; returns how many are.
#[track_caller]
fn whole(root: &Path) -> u64 {
    let path = |seed: u64| root.join(format!("tree/{}/{seed}", seed % 5));
    let there: Vec<u64> = (0..FILES).filter(|seed| path(*seed).exists()).collect();
    there.iter().for_each(|seed| same(path(*seed), &pattern(*seed, LEN / FILES as usize)));
    there.len() as u64
}

#[test]
fn of_a_tree_whose_server_is_killed_each_file_is_there_whole_or_not_at_all() {
    let mut place = Place::without_server();
    for (args, from, to) in [
        (["store", "-r", "tree", "--resume"], place.here(""), place.served("")),
        (["fetch", "-r", "files:tree", "--resume"], place.served(""), place.here("")),
    ] {
        let _ = fs::remove_dir_all(from.join("tree"));
        tree(&from);
        let mut is_lost = false;
        for _ in 0..TRIES {
            let _ = fs::remove_dir_all(to.join("tree"));
            place.serve(&[]);
            is_lost = place.loses_server(&args, &to, LEN / 3);
            if is_lost {
                break;
            }
        }
        assert!(is_lost, "{args:?} was done each time before the server could be killed");
        assert!(whole(&to) < FILES, "{args:?} failed");
        place.serve(&[]);
        place.done(&args);
        assert_eq!(whole(&to), FILES);
        assert_eq!(written(&to.join("tree")), LEN / FILES as usize * FILES as usize, "no part is left");
        place.server.take().map(|mut server| (server.kill().unwrap(), server.wait().unwrap()));
    }
}
