//! The local part: the file in which a fetch grows, until it is renamed to the target.
//!
//! How: `NAME.part` beside the target, locked, so that two fetches of the same target cannot mix.
//! Invariants: nothing that was there before is written to, unless an interrupted fetch is to go on. Nothing but regular files
//! is replaced.
//! Limits: if this process dies, the target is whole or absent; if the machine crashes, the file system decides. What another
//! process puts in the target's place between the last look and the renaming is replaced, unless it is a directory.

use std::fs::{self, File, OpenOptions, Permissions, TryLockError};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::FileType;

use crate::failure::Failure;

/// A target in the making. Dropping it keeps the bytes that came, so that the fetch can be resumed; if no bytes came, the
/// part is removed.
#[derive(Debug)]
pub(super) struct Part {
    file: File,
    path: PathBuf,
    is_finished: bool,
}

impl Part {
    /// Creates the part, in place of one into which no byte came; with `resume`, goes on with a part that is there.
    pub(super) fn open(path: PathBuf, resume: bool) -> Result<Self, Failure> {
        loop {
            check_replaceable(&path)?;
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).create_new(!resume);
            let file = match options.open(&path) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists && remove_empty(&path) => continue,
                opened => opened.map_err(|error| refusal(&path, &error))?,
            };
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    return Err(Failure::could_not(format!(
                        "{} is being written by another fetch; wait for its end",
                        path.display()
                    )));
                }
                Err(TryLockError::Error(error)) => return Err(refusal(&path, &error)),
            }
            // Another fetch may have finished the part between the opening and the locking.
            if is_at(&file, &path) {
                return Ok(Self { file, path, is_finished: false });
            }
        }
    }

    /// How many bytes there are.
    pub(super) fn len(&self) -> Result<u64, Failure> {
        self.file.metadata().map(|metadata| metadata.len()).map_err(|error| refusal(&self.path, &error))
    }

    pub(super) fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<(), Failure> {
        self.file.read_exact_at(bytes, offset).map_err(|error| refusal(&self.path, &error))
    }

    pub(super) fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), Failure> {
        self.file.write_all_at(bytes, offset).map_err(|error| refusal(&self.path, &error))
    }

    /// Makes the part the target: `len` bytes with these permissions.
    pub(super) fn finish(mut self, target: &Path, len: u64, mode: u32) -> Result<(), Failure> {
        check_replaceable(target)?;
        let done = self
            .file
            .set_len(len)
            .and_then(|()| self.file.set_permissions(Permissions::from_mode(mode & 0o777)))
            .and_then(|()| fs::rename(&self.path, target));
        done.map_err(|error| {
            let path = self.path.display();
            Failure::could_not(format!("{path} cannot become {}: {error}", target.display()))
        })?;
        self.is_finished = true;
        Ok(())
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if !self.is_finished && self.file.metadata().is_ok_and(|metadata| metadata.len() == 0) {
            // The part is of no use to anybody; if it cannot be removed, it does no harm.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Refuses what a fetch must not replace: all that is there and is no regular file.
pub(super) fn check_replaceable(path: &Path) -> Result<(), Failure> {
    // If this look fails, so does the opening or renaming that follows, with a reason.
    let Ok(there) = fs::symlink_metadata(path) else { return Ok(()) };
    let what = match FileType::from_raw_mode(there.mode()) {
        FileType::RegularFile => return Ok(()),
        FileType::Directory => "a directory",
        FileType::Symlink => "a symbolic link",
        FileType::Fifo => "a pipe",
        FileType::Socket => "a socket",
        _ => "a device",
    };
    let path = path.display();
    Err(Failure::could_not(format!(
        "{path} is {what} where a file is to be; fetch to another name, or remove it"
    )))
}

/// Removes a part into which no byte came and which no fetch has now; returns whether it did.
fn remove_empty(path: &Path) -> bool {
    let Ok(file) = File::open(path) else { return false };
    let is_empty = || file.metadata().is_ok_and(|metadata| metadata.len() == 0);
    file.try_lock().is_ok() && is_at(&file, path) && is_empty() && fs::remove_file(path).is_ok()
}

fn is_at(file: &File, path: &Path) -> bool {
    let (Ok(open), Ok(there)) = (file.metadata(), fs::symlink_metadata(path)) else { return false };
    (open.dev(), open.ino()) == (there.dev(), there.ino())
}

fn refusal(path: &Path, error: &std::io::Error) -> Failure {
    let path = path.display();
    Failure::could_not(match error.kind() {
        ErrorKind::AlreadyExists => {
            format!("{path} is there already: go on with it by --resume, or remove it")
        }
        ErrorKind::NotFound => format!("the directory of {path} does not exist; create it first"),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            format!("{path} cannot be written: {error}; free space and go on by --resume")
        }
        _ => format!("{path} cannot be written: {error}"),
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn what_takes_the_target_s_place_while_the_part_grows_is_not_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let [path, target] = ["target.part", "target"].map(|name| directory.path().join(name));
        let part = Part::open(path.clone(), false).unwrap();
        part.write(0, b"bytes").unwrap();
        symlink("elsewhere", &target).unwrap();
        let failure = part.finish(&target, 5, 0o644).unwrap_err();
        assert!(failure.message.contains("target is a symbolic link"), "{}", failure.message);
        assert!(target.is_symlink());
        assert_eq!(fs::read(path).unwrap(), b"bytes", "the fetch can be resumed");
    }
}
