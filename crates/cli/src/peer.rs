//! `genie peer`: the other side of a measurement, in a process of its own, which `genie compare` and `genie lab` start.

use genie_lab::error::Error;
use genie_lab::{cards, parties, transport};

use crate::failure::Failure;

/// Be the other side of a measurement; `genie compare` and `genie lab` start this.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// What to be.
    role: Option<String>,
    /// The CPU to run on.
    #[arg(long)]
    cpu: Option<usize>,
}

/// Runs the role that was asked for.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let result = match args.role.as_deref() {
        Some(parties::ROLE) => parties::run(args.cpu),
        Some(cards::ROLE) => cards::run(args.cpu),
        Some(transport::ROLE) => transport::run(args.cpu),
        Some(genie_baselines::ROLE) => genie_baselines::run(args.cpu),
        _ => Err(Error::NoLink),
    };
    result.map_err(|error| match error {
        Error::NoLink => Failure::usage(error),
        other => other.into(),
    })
}
