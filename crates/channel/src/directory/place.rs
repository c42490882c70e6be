//! Which directory is the run-time directory, and whether it is safe to use.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::Error;

const WRITABLE_BY_GROUP: u32 = 0o020;
const WRITABLE_BY_OTHERS: u32 = 0o002;
const STICKY: u32 = 0o1000;

/// The chosen directory.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) path: PathBuf,
    pub(super) chosen_by: ChosenBy,
}

/// The party that chose the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChosenBy {
    /// The user or an administrator, who may share it with a group, or with everybody as /tmp is shared.
    Administrator,
    /// Genie itself: the directory must be this user's alone.
    Default,
}

/// Chooses by the values of the two variables. Empty ones count as unset, and so does an XDG_RUNTIME_DIR that is relative, as
/// its specification demands.
pub(super) fn choose(genie: Option<OsString>, xdg: Option<OsString>, user: u32) -> Place {
    if let Some(path) = genie.filter(|path| !path.is_empty()) {
        return Place { path: path.into(), chosen_by: ChosenBy::Administrator };
    }
    let path = match xdg.map(PathBuf::from) {
        Some(xdg) if xdg.is_absolute() => xdg.join("genie"),
        _ => format!("/tmp/genie-{user}").into(),
    };
    Place { path, chosen_by: ChosenBy::Default }
}

impl Place {
    /// Makes the directory if it is missing, makes sure that `user` may rely on it, and returns its absolute path.
    pub(super) fn prepare(self, user: u32) -> Result<PathBuf, Error> {
        let unusable = |source| Error::Unusable { path: self.path.clone(), source };
        match DirBuilder::new().mode(0o700).create(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(unusable(error)),
            _ => {}
        }
        let metadata = self.look().map_err(unusable)?;
        judge(self.chosen_by, &metadata, user).map_err(|(what, remedy)| Error::Unsafe {
            path: self.path.clone(),
            what,
            remedy,
        })?;
        std::path::absolute(&self.path).map_err(unusable)
    }

    /// Follows a link only where the directory was named: an administrator may have put it there. At the default place, a
    /// link would be another user's.
    fn look(&self) -> io::Result<Metadata> {
        let path: &Path = &self.path;
        match self.chosen_by {
            ChosenBy::Administrator => fs::metadata(path),
            ChosenBy::Default => fs::symlink_metadata(path),
        }
    }
}

/// What is wrong with a directory, and what to do about it.
fn judge(chosen_by: ChosenBy, metadata: &Metadata, user: u32) -> Result<(), (String, &'static str)> {
    let (mode, owner) = (metadata.mode(), metadata.uid());
    if !metadata.is_dir() {
        let what = if metadata.is_symlink() { "it is a symbolic link" } else { "it is no directory" };
        return Err((what.to_owned(), "remove it, or name a directory in GENIE_RUNTIME_DIR"));
    }
    match chosen_by {
        ChosenBy::Default if owner != user => {
            let what = format!("it belongs to user {owner}, and this process runs as user {user}");
            Err((what, "name a directory of yours in GENIE_RUNTIME_DIR"))
        }
        ChosenBy::Default if mode & (WRITABLE_BY_GROUP | WRITABLE_BY_OTHERS) != 0 => {
            Err((format!("others may write to it (mode {:o})", mode & 0o7777), "run chmod 700 on it"))
        }
        ChosenBy::Administrator if mode & WRITABLE_BY_OTHERS != 0 && mode & STICKY == 0 => {
            let what = format!("everybody may rename what is in it (mode {:o})", mode & 0o7777);
            Err((what, "run chmod o-w or chmod +t on it"))
        }
        _ => Ok(()),
    }
}
