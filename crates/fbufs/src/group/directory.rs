//! The directory in which groups' names are kept.

use std::fs::DirBuilder;
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::failed;
use crate::error::Result;

const MAX_NAME: usize = 64;

/// Makes the directory if it is missing, and makes sure that it is safe to use, and that the name can be one.
pub(super) fn prepare(path: &Path, name: &str) -> Result<()> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if !(1..=MAX_NAME).contains(&name.len()) || name.starts_with('.') || !name.bytes().all(is_allowed) {
        return Err(failed(name, "names are 1 to 64 of A-Z a-z 0-9 . _ - and have no dot in front"));
    }
    let unusable = |error| failed(name, format!("the directory {} cannot be used: {error}", path.display()));
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(unusable(error)),
        _ => {}
    }
    // Another user could have put a link there: this call does not follow it.
    let found = std::fs::symlink_metadata(path).map_err(unusable)?;
    let is_own = found.is_dir() && found.uid() == rustix::process::geteuid().as_raw();
    if is_own && found.mode() & 0o077 == 0 {
        Ok(())
    } else {
        let why =
            "is not a directory of this user's alone: chmod it to 700, or name another by GENIE_RUNTIME_DIR";
        Err(failed(name, format!("{} {why}", path.display())))
    }
}

/// The directory that the environment names.
pub(super) fn choose() -> PathBuf {
    let variable = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    if let Some(path) = variable("GENIE_RUNTIME_DIR") {
        return path.join("fbufs");
    }
    let user = rustix::process::geteuid().as_raw();
    variable("XDG_RUNTIME_DIR")
        .map_or_else(|| format!("/tmp/genie-fbufs-{user}").into(), |path| path.join("genie-fbufs"))
}
