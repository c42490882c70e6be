//! Why something could not be measured, for an operator.

use std::path::PathBuf;

/// The result of every function of the lab that can fail.
pub type Result<T> = std::result::Result<T, Error>;

/// Why something could not be measured, drawn or kept.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// This process may run on no CPU.
    #[error("this process may run on no CPU")]
    NoCpu,
    /// The kernel refused a call.
    #[error(transparent)]
    Kernel(#[from] genie_sys::Error),
    /// Memory or costs could not be had.
    #[error(transparent)]
    Memory(#[from] genie_memory::Error),
    /// An event cannot be counted.
    #[error(transparent)]
    Counter(#[from] crate::counter::Refusal),
    /// A buffer could not be passed, or there is none.
    #[error(transparent)]
    Fbufs(#[from] genie_fbufs::Error),
    /// A request failed.
    #[error(transparent)]
    Request(#[from] genie::Error),
    /// The folder that holds servers' names could not be used.
    #[error(transparent)]
    Names(#[from] genie_channel::directory::Error),
    /// A file or folder could not be used.
    #[error("{} {what}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What could not be done, such as `cannot be read`.
        what: &'static str,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A file holds nothing that could be passed.
    #[error("{} {what}", path.display())]
    NoData {
        /// Which.
        path: PathBuf,
        /// Why, and what to do about it.
        what: &'static str,
    },
    /// A process that takes part did not do its part; the sentence says why.
    #[error("{0}")]
    Peer(String),
    /// The command that makes a process a peer was not started by a measuring program.
    #[error("this command is started by `genie compare` and `genie lab`, and of no use otherwise")]
    NoLink,
    /// A run names a step that the experiment does not have.
    #[error(
        "the experiment {experiment} has no step \"{step}\": the run was begun by another version; begin a new one"
    )]
    NoSuchStep {
        /// The experiment's id.
        experiment: &'static str,
        /// The step's name.
        step: String,
    },
    /// A scheme wires memory, which this process may not, so its emulated twin passed the data instead.
    #[error(
        "{0} cannot wire its region: raise the memory-lock limit (`ulimit -l unlimited`, or limits.conf)"
    )]
    Unwired(genie_passing::Scheme),
    /// A file does not say what it should.
    #[error("{} is damaged: {what}; nothing was changed", path.display())]
    Damaged {
        /// Which.
        path: PathBuf,
        /// Where, and what was expected.
        what: String,
    },
    /// A file follows a schema that is not known here.
    #[error("{} follows version {found} of the schema, and this genie knows {known}; use the genie that wrote it", path.display())]
    Schema {
        /// Which.
        path: PathBuf,
        /// What the file says.
        found: u64,
        /// What this build writes and reads.
        known: u64,
    },
    /// There is no such run.
    #[error("{} has no run {name}; the latest ones are: {}", folder.display(), listed(there))]
    NoRun {
        /// Where runs are kept.
        folder: PathBuf,
        /// Which was asked for.
        name: String,
        /// Those that are there, the latest first.
        there: Vec<String>,
    },
    /// There is no run yet.
    #[error("{} has no run yet; make one with: genie lab run all", folder.display())]
    NoRunYet {
        /// Where runs are kept.
        folder: PathBuf,
    },
    /// Another process is working on a run.
    #[error("another process is at work on {}; wait for it to end", folder.display())]
    Busy {
        /// The run's folder.
        folder: PathBuf,
    },
    /// There is no such experiment.
    #[error("there is no experiment {id}; the experiments are: {}", listed(known))]
    NoExperiment {
        /// Which was asked for.
        id: String,
        /// Those that are there.
        known: Vec<&'static str>,
    },
    /// The report could not be made.
    #[error("the report cannot be made: {0}")]
    Report(#[from] minijinja::Error),
}

/// Names in a sentence.
fn listed(names: &[impl AsRef<str>]) -> String {
    let names: Vec<_> = names.iter().map(AsRef::as_ref).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}
