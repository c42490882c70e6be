//! `genie party`: a party of an experiment, in a process of its own, which `genie lab` starts.

use genie_lab::error::Error;
use genie_lab::parties;

use crate::failure::Failure;

/// Be a party of an experiment; `genie lab` starts this.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The CPU to run on.
    #[arg(long)]
    cpu: Option<usize>,
}

/// Is the party.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    parties::run(args.cpu).map_err(|error| match error {
        Error::NoLink => Failure::usage(error),
        other => other.into(),
    })
}
