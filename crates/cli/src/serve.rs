//! `genie serve`: a directory's files, for clients in other processes.
//!
//! How: interrupt and termination signals stop the server, so that its name is free again at once; a server that is killed
//! leaves its name to be replaced.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use genie::file::File;
use genie_channel::{Listener, ServeOptions};
use genie_lab::length;

use crate::failure::Failure;
use crate::number;
use crate::signals;
use crate::transfer::{CACHE_BYTES, DEFAULT_NAME};

/// For how long an interrupted upload can be resumed.
const LEFTOVERS_AGE: Duration = Duration::from_secs(24 * 60 * 60);
/// More threads than this do not serve one machine's clients any faster.
const THREADS: usize = 4;

/// Serve the files beneath a directory to other processes, until interrupted.
///
/// Nobody gets out of the directory, by ".." or by links. Uploads that were interrupted more than a day ago are removed at
/// the start.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The directory.
    directory: PathBuf,
    /// The name by which clients find it.
    #[arg(long, default_value = DEFAULT_NAME)]
    name: String,
    /// Serve from mappings of the files, which are kept, in place of reading into a cache.
    #[arg(long)]
    mapped: bool,
    /// Refuse every change.
    #[arg(long)]
    read_only: bool,
    /// How many threads serve; one for each CPU, up to 4, by default.
    #[arg(long, value_name = "N", value_parser = number::within::<NonZeroUsize>(1..=64))]
    threads: Option<NonZeroUsize>,
    /// How much of the files is cached, in bytes or with a suffix K, M or G.
    #[arg(long, value_name = "BYTES", value_parser = length::parse, default_value_t = CACHE_BYTES)]
    cache: usize,
}

/// Serves until a signal comes.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let mut files = File::open(&args.directory, args.cache).map_err(Failure::could_not)?;
    if args.read_only {
        files = files.read_only();
    } else {
        files.remove_leftovers(LEFTOVERS_AGE);
    }
    if args.mapped {
        files = files.mapped();
    }
    let cpus = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let threads = args.threads.map_or(cpus.min(THREADS), NonZeroUsize::get);
    let options = ServeOptions { threads, ..ServeOptions::default() };
    let serving = Listener::bind(&args.name, files, options).map_err(Failure::could_not)?;
    let stopper = serving.stopper();
    signals::on_first(move || stopper.stop())?;
    eprintln!("genie: serving {} as \"{}\"; interrupt to stop", args.directory.display(), args.name);
    serving.run().map_err(Failure::could_not)
}
