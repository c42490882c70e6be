//! Where results are kept: a folder that has one folder for each run, with the run's measurements and everything made from
//! them.
//!
//! How: a run's folder is named by the time of the run's beginning, in UTC, so that names sort by time. `run.json` says how
//! the run was made; `measurements/ID.jsonl` has one line for each step, added when the step is over; everything else is
//! made from these two and can be made again. `docs/lab.md` describes every file, field by field.
//! Invariants: a file is there whole or not at all. The only exception is a journal whose writer was killed: its last line
//! may lack its end, and that step is measured again. One process at a time works on a run.

pub mod csv;
pub mod folder;
pub mod journal;
pub mod record;

pub use folder::{Folder, Run};
pub use journal::{Entry, Failed};
pub use record::Record;

use std::fs;
use std::io::Write;
use std::path::Path;

use crate::error::{Error, Result};

/// The version of the schema of all files, which `docs/lab.md` describes.
pub const SCHEMA: u64 = 1;

/// Puts a whole file in its place, or leaves what was there.
///
/// # Errors
/// No room is left, or writing there is not allowed.
pub fn write(path: &Path, content: &[u8]) -> Result<()> {
    let failed = |source| Error::File { path: path.to_path_buf(), what: "cannot be written", source };
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(".unfinished");
    let mut file = fs::File::create(&unfinished).map_err(failed)?;
    file.write_all(content).and_then(|()| file.sync_data()).map_err(failed)?;
    fs::rename(&unfinished, path).map_err(failed)
}

/// Reads a file of text.
///
/// # Errors
/// The file is not there, or is not text.
pub fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).map_err(|source| Error::File {
        path: path.to_path_buf(),
        what: "cannot be read",
        source,
    })
}

/// Writes a value as an indented document.
///
/// # Errors
/// As [`write()`].
pub fn write_json(path: &Path, value: &impl serde::Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(value).map_err(|error| Error::File {
        path: path.to_path_buf(),
        what: "cannot be written",
        source: error.into(),
    })?;
    write(path, (text + "\n").as_bytes())
}

/// Reads a document of this schema.
///
/// # Errors
/// The version is not known, or the file is no such document.
pub fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T> {
    let text = read(path)?;
    let damaged =
        |error: serde_json::Error| Error::Damaged { path: path.to_path_buf(), what: error.to_string() };
    let value: serde_json::Value = serde_json::from_str(&text).map_err(damaged)?;
    let Some(found) = value.get("schema").and_then(serde_json::Value::as_u64) else {
        let what = "it does not say which version of the schema it follows".to_owned();
        return Err(Error::Damaged { path: path.to_path_buf(), what });
    };
    if found != SCHEMA {
        return Err(Error::Schema { path: path.to_path_buf(), found, known: SCHEMA });
    }
    serde_json::from_value(value).map_err(damaged)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_version_and_a_damaged_file_are_told_apart_and_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.json");
        for (content, expected) in [
            ("{\"schema\": 2}", "run.json follows version 2 of the schema, and this genie knows 1"),
            ("{\"schema\": 1, ", "run.json is damaged: EOF"),
            ("{}", "run.json is damaged: it does not say which version"),
        ] {
            fs::write(&path, content).unwrap();
            let error = read_json::<serde_json::Value>(&path).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
            assert_eq!(fs::read_to_string(&path).unwrap(), content);
        }
    }

    #[test]
    fn writing_leaves_nothing_unfinished() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        write_json(&path, &[1, 2]).unwrap();
        write_json(&path, &[3]).unwrap();
        assert_eq!(read(&path).unwrap(), "[\n  3\n]\n");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
