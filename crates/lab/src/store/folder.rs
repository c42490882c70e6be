//! The folder of all runs, and the folder of one run.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use super::journal::{self, Entry};
use super::record::Record;
use super::{read_json, write, write_json};
use crate::error::{Error, Result};
use crate::measurement::{Measurements, StepResult};

/// The file with a run's record.
const RECORD: &str = "run.json";
const MEASUREMENTS: &str = "measurements";
/// The most runs that may begin in one second.
const SAME_SECOND: usize = 100;
/// The most names in an error.
const NAMED: usize = 5;

/// Where all runs are kept.
#[derive(Debug, Clone)]
pub struct Folder(PathBuf);

/// One run.
#[derive(Debug)]
pub struct Run {
    folder: PathBuf,
    /// How it is made.
    pub record: Record,
    /// Holds the lock, for the process that measures.
    _lock: Option<File>,
}

impl Folder {
    /// The folder with that path, which need not exist yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// Begins a run, in a folder of its own.
    ///
    /// # Errors
    /// Writing there is not allowed, or no room is left.
    pub fn begin(&self, record: Record) -> Result<Run> {
        let unable =
            |path: &Path, source| Error::File { path: path.to_path_buf(), what: "cannot be made", source };
        fs::create_dir_all(&self.0).map_err(|source| unable(&self.0, source))?;
        let folder = self.unused(&record.name())?;
        let measurements = folder.join(MEASUREMENTS);
        fs::create_dir(&measurements).map_err(|source| unable(&measurements, source))?;
        write_json(&folder.join(RECORD), &record)?;
        let lock = lock(&folder)?;
        Ok(Run { folder, record, _lock: Some(lock) })
    }

    /// Makes the run's folder; its name gets a number at the end where several runs begin in one second.
    fn unused(&self, name: &str) -> Result<PathBuf> {
        let mut tries = 2..SAME_SECOND;
        let mut folder = self.0.join(name);
        loop {
            match (fs::create_dir(&folder), tries.next()) {
                (Ok(()), _) => return Ok(folder),
                (Err(error), Some(count)) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                    folder = self.0.join(format!("{name}-{count}"));
                }
                (Err(source), _) => return Err(Error::File { path: folder, what: "cannot be made", source }),
            }
        }
    }

    /// The names of all runs, the latest first.
    pub fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).into_iter().flatten().flatten();
        let runs = entries.filter(|entry| entry.path().join(RECORD).is_file());
        let mut names: Vec<_> = runs.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort_unstable_by(|one, other| other.cmp(one));
        names
    }

    /// Opens a run to read it: the run with this name or path, or the latest.
    ///
    /// # Errors
    /// The run is not there, or damaged, or of another version.
    pub fn open(&self, name: Option<&str>) -> Result<Run> {
        let names = self.names();
        let folder = match name {
            Some(name) if self.0.join(name).join(RECORD).is_file() => self.0.join(name),
            Some(name) if Path::new(name).join(RECORD).is_file() => PathBuf::from(name),
            None if !names.is_empty() => self.0.join(&names[0]),
            _ if names.is_empty() => return Err(Error::NoRunYet { folder: self.0.clone() }),
            name => {
                let there = names.into_iter().take(NAMED).collect();
                return Err(Error::NoRun {
                    folder: self.0.clone(),
                    name: name.unwrap_or_default().to_owned(),
                    there,
                });
            }
        };
        let record = read_json(&folder.join(RECORD))?;
        Ok(Run { folder, record, _lock: None })
    }

    /// Opens a run to go on with it.
    ///
    /// # Errors
    /// As [`Folder::open`]; or another process is working on the run.
    pub fn resume(&self, name: Option<&str>) -> Result<Run> {
        let run = self.open(name)?;
        let lock = lock(&run.folder)?;
        Ok(Run { _lock: Some(lock), ..run })
    }
}

/// Keeps other processes away from a run until the result is dropped, or this process ends.
fn lock(folder: &Path) -> Result<File> {
    let unable = |source| Error::File { path: folder.to_path_buf(), what: "cannot be locked", source };
    let file = File::open(folder).map_err(unable)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Error::Busy { folder: folder.to_path_buf() }),
        Err(TryLockError::Error(source)) => Err(unable(source)),
    }
}

impl Run {
    /// Its folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The name of its folder.
    pub fn name(&self) -> String {
        self.folder.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// The path of one of its files.
    pub fn path(&self, file: &str) -> PathBuf {
        self.folder.join(file)
    }

    /// Adds experiments to the run.
    ///
    /// # Errors
    /// No room is left, or writing there is not allowed.
    pub fn add(&mut self, experiments: Vec<String>) -> Result<()> {
        if self.record.experiments != experiments {
            self.record.experiments = experiments;
            write_json(&self.path(RECORD), &self.record)?;
        }
        Ok(())
    }

    /// Stores the outcome of a step of an experiment.
    ///
    /// # Errors
    /// No room is left, or writing there is not allowed.
    pub fn append(&self, experiment: &str, entry: &Entry) -> Result<()> {
        journal::append(&self.journal(experiment), entry)
    }

    /// The outcomes of the steps of an experiment so far.
    ///
    /// # Errors
    /// A file is damaged.
    pub fn entries(&self, experiment: &str) -> Result<Vec<Entry>> {
        journal::read(&self.journal(experiment))
    }

    /// All measurements, and their circumstances.
    ///
    /// # Errors
    /// A file is damaged.
    pub fn measurements(&self) -> Result<Measurements> {
        let mut steps: Vec<StepResult> = Vec::new();
        for experiment in &self.record.experiments {
            let entries = self.entries(experiment)?.into_iter();
            steps.extend(entries.filter_map(|entry| match entry {
                Entry::Measured(result) => Some(result),
                Entry::Failed(_) => None,
            }));
        }
        Ok(Measurements { steps, circumstances: self.record.circumstances.clone() })
    }

    fn journal(&self, experiment: &str) -> PathBuf {
        self.folder.join(MEASUREMENTS).join(format!("{experiment}.jsonl"))
    }

    /// Puts a file into its folder.
    ///
    /// # Errors
    /// No room is left, or writing there is not allowed.
    pub fn write(&self, file: &str, content: &str) -> Result<()> {
        write(&self.path(file), content.as_bytes())
    }

    /// Puts a document into its folder.
    ///
    /// # Errors
    /// No room is left, or writing there is not allowed.
    pub fn write_json(&self, file: &str, value: &impl serde::Serialize) -> Result<()> {
        write_json(&self.path(file), value)
    }
}
