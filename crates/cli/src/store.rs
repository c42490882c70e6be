//! `genie store`: files from this machine to a file server.

use std::path::PathBuf;

use clap::builder::{OsStringValueParser, TypedValueParser};

use crate::failure::Failure;
use crate::transfer::{self, DEFAULT_NAME, Options, Remote};

/// Store a file or a directory on a file server.
///
/// Each file appears whole or not at all: the server compares its checksum before it replaces an older file. Only regular
/// files are replaced: a link, pipe, socket or device in the target's place is refused, and stays. An interrupted transfer is
/// kept for a day, for --resume to go on with. A file that does not end where its size says, as files of procfs do not, is
/// read to its end before it is sent, and may have 256 MiB.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The file or directory to be stored.
    source: PathBuf,
    /// The server's name, and the new path beneath its root; by default the same name, in the root. If that is a directory
    /// already, a file goes into it.
    #[arg(value_name = "NAME[:PATH]", default_value = DEFAULT_NAME)]
    #[arg(value_parser = OsStringValueParser::new().try_map(Remote::parse))]
    to: Remote,
    /// Do not wait until files are on the server's disk.
    #[arg(long)]
    no_sync: bool,
    #[command(flatten)]
    options: Options,
}

/// Stores the files, and prints the outcome.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let Args { source, to, no_sync, options } = args;
    transfer::run("store", to, options, |client| transfer::store(client, source, to, !no_sync, options))
}
