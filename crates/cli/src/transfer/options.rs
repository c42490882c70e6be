//! The options of `genie fetch` and `genie store`.

use std::fmt::Display;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use genie::Scheme;
use genie_lab::interface::Granule;

use crate::failure::Failure;
use crate::number;

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
    pub(super) fn check_recursive(&self, directory: impl Display) -> Result<(), Failure> {
        if self.recursive {
            return Ok(());
        }
        Err(Failure::usage(format!("{directory} is a directory; add --recursive to take all of it")))
    }
}
