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
mod options;
mod part;
mod place;
mod range;
mod summary;
mod tree;
mod upload;

use std::time::Instant;

use crate::failure::Failure;
use crate::output;
use client::Client;
use summary::Summary;

pub(crate) use download::fetch;
pub(crate) use options::Options;
pub(crate) use place::{CACHE_BYTES, DEFAULT_NAME, Remote};
pub(crate) use range::Bytes;
pub(crate) use summary::Outcome;
pub(crate) use upload::store;

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
