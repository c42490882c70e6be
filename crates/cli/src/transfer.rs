//! The common part of `genie fetch` and `genie store`: passing files between this machine's directories and a file server,
//! in chunks.
//!
//! How: a file goes in chunks, several of which are in flight at a time; jobs share out a directory's files. A chunk's data
//! lies in a buffer of the interface, into which the local file is read or from which it is written. Checksums verify the
//! bytes that arrived: on fetching, chunk by chunk; on storing, of the whole file, before the server lets it appear.
//! Invariants: the target has its old content or all of its new content, whatever happens during the transfer.
//! Limits: each job holds at most as many buffers as it has chunks in flight.

mod carrier;
mod client;
mod download;
mod jobs;
mod part;
mod place;
mod range;
mod summary;
mod tree;
mod upload;

use std::fmt::Display;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Instant;

use genie::Scheme;
use genie_lab::interface::Granule;

use crate::failure::Failure;
use crate::number;
use crate::output;
use client::Client;
use summary::Summary;

pub(crate) use download::fetch;
pub(crate) use place::{CACHE_BYTES, DEFAULT_NAME, Remote};
pub(crate) use range::Bytes;
pub(crate) use summary::Outcome;
pub(crate) use upload::store;

/// Enough to keep two CPUs busy while others wait for a disk.
const JOBS: NonZeroUsize = NonZeroUsize::new(4).unwrap();

/// The options of both commands.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Take a directory with everything in it. Its contents go into the target, which is made if it is not there.
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// Go on with a transfer that was interrupted; data already there is compared by checksums, chunk by chunk.
    #[arg(long)]
    pub(crate) resume: bool,
    /// How many files of a directory are under way at a time.
    #[arg(long, value_name = "N", default_value_t = JOBS, value_parser = number::within::<NonZeroUsize>(1..=1024))]
    pub(crate) jobs: NonZeroUsize,
    /// How data is passed to and from the server, such as copy or "emulated copy".
    #[arg(long, default_value_t = Scheme::EmulatedCopy)]
    pub(crate) scheme: Scheme,
    /// The kind of pages of the buffers.
    #[arg(long, value_enum, default_value_t = Granule::Best)]
    pub(crate) granule: Granule,
    /// Compare no checksums.
    #[arg(long)]
    pub(crate) no_verify: bool,
    /// Print one JSON document instead of a line.
    #[arg(long)]
    pub(crate) json: bool,
    /// Serve this directory in the same process, in place of asking the server that is named.
    #[arg(long, value_name = "DIR", hide = true)]
    pub(crate) in_process: Option<PathBuf>,
}

impl Options {
    /// Refuses a directory, unless all that is in it was asked for.
    fn check_recursive(&self, directory: impl Display) -> Result<(), Failure> {
        if self.recursive {
            return Ok(());
        }
        Err(Failure::usage(format!("{directory} is a directory; add --recursive to take all of it")))
    }
}

/// Runs `transfer`, and prints the outcome.
pub(crate) fn run(
    operation: &'static str,
    remote: &Remote,
    options: &Options,
    transfer: impl FnOnce(&Client) -> Result<Outcome, Failure>,
) -> Result<(), Failure> {
    let genie = options.granule.open()?;
    let server = place::connect(&genie, remote, options.in_process.as_deref())?;
    let client = Client::new(genie, server);
    let begun = Instant::now();
    let outcome = transfer(&client)?;
    let summary = Summary::new(operation, outcome, begun.elapsed(), options);
    if options.json { output::print_json(&summary) } else { output::print(&summary.line()) }
}
