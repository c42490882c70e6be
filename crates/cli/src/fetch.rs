//! `genie fetch`: files from a file server to this machine.

use std::path::PathBuf;

use clap::builder::{OsStringValueParser, TypedValueParser};

use crate::failure::Failure;
use crate::transfer::{self, Bytes, Options, Remote};

/// Fetch a file or a directory from a file server.
///
/// The target appears whole or not at all: it grows in OUT.part, with which --resume goes on after an interruption. Every
/// chunk's checksum is compared with the server's. Only regular files are replaced: a link, pipe, socket or device in the
/// target's place is refused, and stays. A file ends where reading it ends, whatever its size says (files of procfs say 0).
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The server's name, and the path of a file or directory beneath its root; all of it if there is none.
    #[arg(value_name = "NAME[:PATH]", value_parser = OsStringValueParser::new().try_map(Remote::parse))]
    from: Remote,
    /// The new file or directory; by default the same name, here. If that is a directory already, a file goes into it.
    out: Option<PathBuf>,
    /// Fetch only these bytes of a file, such as 4K..1M or 1G.. (the end is left out).
    #[arg(long, value_name = "A..B")]
    range: Option<Bytes>,
    #[command(flatten)]
    options: Options,
}

/// Fetches the files, and prints the outcome.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let Args { from, out, range, options } = args;
    transfer::run("fetch", from, options, |client| {
        transfer::fetch(client, from, out.as_deref(), *range, options)
    })
}
