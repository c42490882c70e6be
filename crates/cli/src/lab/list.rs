//! `genie lab list`: which experiments there are.

use genie_lab::experiments;

use super::tables;
use crate::failure::Failure;
use crate::output;

/// List the experiments: their ids, what they measure, where it is in the papers, and which experiments they build on.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Print one JSON document, with each experiment's claims.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let declarations = experiments::ALL.iter().map(|experiment| experiment.declaration());
    if args.json {
        return output::print_json(&declarations.collect::<Vec<_>>());
    }
    let rows = declarations
        .map(|one| [one.id, one.title, one.source, &one.needs.join(", ")].map(str::to_owned).to_vec());
    let columns = ["id", "what it measures", "source", "needs"].map(str::to_owned);
    output::print(&(tables::wrapped(&columns, rows) + "\n"))
}
