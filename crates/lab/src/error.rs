//! Why something could not be measured, for an operator.

use std::path::PathBuf;

/// What every function of the lab that can fail returns.
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
    /// A request failed.
    #[error(transparent)]
    Request(#[from] genie::Error),
    /// The folder that holds servers' names could not be used.
    #[error(transparent)]
    Names(#[from] genie_io::channel::directory::Error),
    /// A file or folder could not be used.
    #[error("{} {what}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What could not be done, as `cannot be read`.
        what: &'static str,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A process that takes part did not do its part; the sentence says why.
    #[error("{0}")]
    Peer(String),
    /// A process was started as a peer by nobody who measures.
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
    /// A scheme wires memory, which this process may not; the sentence says what would help.
    #[error("{0}")]
    Unwired(String),
}

impl Error {
    /// Why a request failed.
    pub(crate) fn of_request(error: genie::Error) -> Self {
        match error {
            genie::Error::Passing(wire @ genie_passing::Error::Wire { .. }) => {
                Self::Unwired(wire.to_string())
            }
            other => Self::Request(other),
        }
    }
}
