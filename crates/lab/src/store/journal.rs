//! Journals: one line for the outcome of each step, added when the step is over.
//!
//! Why: a run may end at any moment, and must not lose a step that was over. Adding a line costs the same however many lines
//! there are.
//! Invariants: a line counts if its end is there. Of several lines on a step the last one counts, so that a failed step can
//! be tried again.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::measurement::StepResult;

/// The outcome of a step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Entry {
    /// The step measured something.
    Measured(StepResult),
    /// The step failed and measured nothing.
    Failed(Failed),
}

/// A step that failed, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
    /// The experiment.
    pub experiment: String,
    /// The step's name.
    pub step: String,
    /// Which sitting, from 0.
    pub sitting: usize,
    /// Why, for an operator.
    pub error: String,
}

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, sitting {}: {}", self.step, self.sitting + 1, self.error)
    }
}

impl Entry {
    /// The sitting and the step that this entry is about.
    pub fn step(&self) -> (usize, &str) {
        match self {
            Self::Measured(result) => (result.sitting, &result.step),
            Self::Failed(failed) => (failed.sitting, &failed.step),
        }
    }
}

/// Adds a line, after removing an incomplete last line that a killed writer left.
///
/// # Errors
/// No room is left, or writing there is not allowed.
pub fn append(path: &Path, entry: &Entry) -> Result<()> {
    let failed = |source| Error::File { path: path.to_path_buf(), what: "cannot be written", source };
    let mut line = serde_json::to_vec(entry).map_err(|error| failed(error.into()))?;
    line.push(b'\n');
    let mut file = OpenOptions::new().create(true).read(true).append(true).open(path).map_err(failed)?;
    cut(&file, path).map_err(failed)?;
    file.write_all(&line).and_then(|()| file.sync_data()).map_err(failed)
}

/// Cuts off a last line that has no end.
fn cut(file: &File, path: &Path) -> std::io::Result<()> {
    let (length, mut last) = (file.metadata()?.len(), [0]);
    if length == 0 {
        return Ok(());
    }
    file.read_exact_at(&mut last, length - 1)?;
    if last != *b"\n" {
        file.set_len(end_of_lines(&std::fs::read(path)?) as u64)?;
    }
    Ok(())
}

/// The last entry on each step, in the order in which the steps were first over.
///
/// # Errors
/// A line is no entry; the error has the line's number.
pub fn read(path: &Path) -> Result<Vec<Entry>> {
    if !path.exists() {
        return Ok(Vec::new());
    }
    let text = super::read(path)?;
    let mut entries: Vec<Entry> = Vec::new();
    for (index, line) in text[..end_of_lines(text.as_bytes())].lines().enumerate() {
        let entry: Entry = serde_json::from_str(line).map_err(|error| Error::Damaged {
            path: path.to_path_buf(),
            what: format!("line {} says of no step what became of it ({error})", index + 1),
        })?;
        match entries.iter_mut().find(|other| other.step() == entry.step()) {
            Some(earlier) => *earlier = entry,
            None => entries.push(entry),
        }
    }
    Ok(entries)
}

fn end_of_lines(content: &[u8]) -> usize {
    content.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(step: &str, error: &str) -> Entry {
        let (experiment, step, error) = ("latency".to_owned(), step.to_owned(), error.to_owned());
        Entry::Failed(Failed { experiment, step, sitting: 0, error })
    }

    #[test]
    fn what_a_killed_writer_left_is_no_line_and_gives_way_to_the_next_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("latency.jsonl");
        append(&path, &failed("4 KiB", "first")).unwrap();
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"{\"measured\":{\"exper").unwrap();
        assert_eq!(read(&path).unwrap(), [failed("4 KiB", "first")]);
        append(&path, &failed("8 KiB", "second")).unwrap();
        assert_eq!(read(&path).unwrap(), [failed("4 KiB", "first"), failed("8 KiB", "second")]);
    }

    #[test]
    fn the_last_word_on_a_step_counts() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("latency.jsonl");
        for error in ["first", "second"] {
            append(&path, &failed("4 KiB", error)).unwrap();
        }
        assert_eq!(read(&path).unwrap(), [failed("4 KiB", "second")]);
    }

    #[test]
    fn a_damaged_line_is_named_and_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("latency.jsonl");
        append(&path, &failed("4 KiB", "first")).unwrap();
        let damaged = std::fs::read_to_string(&path).unwrap() + "{\"measured\": 7}\n";
        std::fs::write(&path, &damaged).unwrap();
        let error = read(&path).unwrap_err().to_string();
        assert!(error.contains("latency.jsonl is damaged: line 2"), "{error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), damaged);
    }
}
