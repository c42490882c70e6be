//! Trees: the contents of a directory, here or on the server, and the directories that those contents need.
//!
//! Trust: a server can claim any tree; what no file system here could hold is refused.
//! Limits: a path has [`PATH_MAX`] bytes, and a tree of a server's [`ENTRIES_MAX`] entries.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};

use genie::file::{Attributes, Kind};

use super::client::Client;
use crate::failure::Failure;

/// The kernel's limit on the bytes of a path, the end mark not counted.
const PATH_MAX: usize = 4095;
/// The most entries of a tree that is fetched at a time: their names fit into memory with ease.
const ENTRIES_MAX: usize = 1 << 22;

/// Everything beneath a directory, by paths relative to it.
#[derive(Debug, Default)]
pub(super) struct Tree {
    /// Parents come first.
    pub(super) directories: Vec<PathBuf>,
    pub(super) files: Vec<Leaf>,
    /// Entries that are neither: links, pipes, devices.
    pub(super) left_out: u64,
}

/// A file in a tree.
#[derive(Debug)]
pub(super) struct Leaf {
    pub(super) path: PathBuf,
    pub(super) size: u64,
    /// A name for the file's part, which neither another entry of the directory nor that entry's part bears.
    pub(super) part: OsString,
    /// The file's attributes, if it is a file of the server's.
    pub(super) attributes: Option<Attributes>,
}

impl Tree {
    /// Lists a directory of the server's.
    pub(super) fn remote(client: &Client, root: &Path) -> Result<Self, Failure> {
        let mut tree = Self::default();
        let mut waiting = vec![PathBuf::new()];
        let mut left = ENTRIES_MAX;
        while let Some(directory) = waiting.pop() {
            let path = served(root, &directory);
            if path.as_os_str().len() > PATH_MAX {
                return Err(Failure::could_not(format!(
                    "beneath {root:?} the server lists directories within directories, until their paths have more than \
                     {PATH_MAX} bytes; fetch a directory further down"
                )));
            }
            let entries = client.list(&path, left)?;
            left -= entries.len();
            let mut taken: HashSet<OsString> = entries.iter().map(|entry| entry.name.clone()).collect();
            for entry in &entries {
                let path = directory.join(&entry.name);
                match entry.attributes.kind {
                    Kind::Directory => waiting.push(path),
                    Kind::File => {
                        let part = part_name(&entry.name, &mut taken);
                        let (size, attributes) = (entry.attributes.size, Some(entry.attributes));
                        tree.files.push(Leaf { path, size, part, attributes });
                    }
                    Kind::Link | Kind::Other => tree.left_out += 1,
                }
            }
            tree.directories.push(directory);
        }
        Ok(tree)
    }

    /// Lists a directory of this machine's.
    pub(super) fn local(root: &Path) -> Result<Self, Failure> {
        let mut tree = Self::default();
        let mut waiting = vec![PathBuf::new()];
        while let Some(directory) = waiting.pop() {
            let path = root.join(&directory);
            let fail =
                |error| Failure::could_not(format!("directory {} cannot be read: {error}", path.display()));
            for entry in fs::read_dir(&path).map_err(fail)? {
                let entry = entry.map_err(fail)?;
                let metadata = entry.metadata().map_err(fail)?;
                let path = directory.join(entry.file_name());
                if metadata.is_dir() {
                    waiting.push(path);
                } else if metadata.is_file() {
                    let (size, part) = (metadata.len(), OsString::new());
                    tree.files.push(Leaf { path, size, part, attributes: None });
                } else {
                    tree.left_out += 1;
                }
            }
            tree.directories.push(directory);
        }
        tree.files.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        Ok(tree)
    }
}

/// A path beneath a directory of the server's, in the form that the server expects: a dot for the root, which has no name.
pub(super) fn served(root: &Path, path: &Path) -> PathBuf {
    match (root.as_os_str().is_empty(), path.as_os_str().is_empty()) {
        (true, true) => ".".into(),
        (false, true) => root.to_owned(),
        (_, false) => root.join(path),
    }
}

/// A file's name with `.part` added until the name is free; the name is then marked as taken. In the same directory the
/// result is the same the next time.
pub(super) fn part_name(name: &OsStr, taken: &mut HashSet<OsString>) -> OsString {
    let mut part = name.to_owned();
    loop {
        part.push(".part");
        if taken.insert(part.clone()) {
            return part;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_never_bears_the_name_of_another_file_of_its_directory_or_of_its_part() {
        let mut taken = ["a", "a.part", "b"].map(OsString::from).into();
        let mut part = |name: &str| part_name(name.as_ref(), &mut taken).into_string().unwrap();
        assert_eq!(part("a"), "a.part.part");
        assert_eq!(part("a.part"), "a.part.part.part");
        assert_eq!(part("b"), "b.part");
    }

    #[test]
    fn the_root_of_a_server_is_a_dot() {
        assert_eq!(served(Path::new(""), Path::new("")), Path::new("."));
        assert_eq!(served(Path::new("a"), Path::new("")).as_os_str(), "a");
        assert_eq!(served(Path::new(""), Path::new("b")), Path::new("b"));
    }
}
