//! A folder for what cannot do without names; it goes with everything in it.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::error::{Error, Result};

/// A folder that only this user may enter.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Makes one in the directory for temporary files.
    ///
    /// # Errors
    /// That directory's.
    pub fn create() -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("genie-run-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        // One that was killed may have left the folder behind, and its number to this process.
        let _ = std::fs::remove_dir_all(&path);
        match std::fs::DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => Ok(Self(path)),
            Err(source) => Err(Error::File { path, what: "cannot be made", source }),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Whatever cannot be removed is in a folder for temporary files.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_goes_with_what_is_in_it() {
        let folder = Folder::create().unwrap();
        let path = folder.path().to_owned();
        std::fs::write(path.join("file"), "x").unwrap();
        drop(folder);
        assert!(!path.exists());
    }
}
