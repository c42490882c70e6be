//! `genie lab`: the papers' experiments on this machine: run, kept, reported, and compared between runs.

mod compare;
mod list;
mod progress;
mod report;
mod run;
mod tables;

use std::path::PathBuf;

use genie_lab::store::Folder;

use crate::failure::Failure;

/// Run the papers' experiments on this machine, and see which of their claims hold.
///
/// Each experiment repeats a figure or a table of a paper on the library's real code. Measurements are kept step by step in
/// a folder for each run, so that a run can be interrupted and resumed, reported again and compared with others.
///
/// Begin with: genie lab run all --smoke
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    List(list::Args),
    Run(run::Args),
    Report(report::Args),
    Compare(compare::Args),
}

/// Where results are.
#[derive(Debug, clap::Args)]
struct Place {
    /// The folder of all runs. Each run has a folder of its own in it, named by the time in UTC.
    #[arg(long, value_name = "FOLDER", default_value = "genie-lab")]
    dir: PathBuf,
}

impl Place {
    fn folder(&self) -> Folder {
        Folder::new(&self.dir)
    }
}

/// Runs the subcommand.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    match &args.command {
        Command::List(args) => list::run(args),
        Command::Run(args) => run::run(args),
        Command::Report(args) => report::run(args),
        Command::Compare(args) => compare::run(args),
    }
}
