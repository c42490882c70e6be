//! `genie lab report`: writes again what a run found, without measuring.

use genie_lab::conclude::{self, Found};
use genie_lab::experiments::ALL;
use genie_lab::report;
use genie_lab::store::Run;

use super::Place;
use crate::failure::Failure;
use crate::output;

/// The page's file in a run's folder.
const PAGE: &str = "report.html";

/// Write a run's report again, without measuring: one HTML file, and documents, numbers and drawings beside it.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The run: its name, or the path of its folder. The latest by default.
    run: Option<String>,
    #[command(flatten)]
    place: Place,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let run = args.place.folder().open(args.run.as_deref())?;
    write(&run)?;
    output::print(&format!("{}\n", run.path(PAGE).display()))
}

/// Concludes from a run and writes everything that follows from it.
pub(super) fn write(run: &Run) -> Result<Vec<Found>, Failure> {
    for id in run.record.experiments.iter().filter(|id| genie_lab::experiments::find(id).is_none()) {
        eprintln!(
            "genie: the run has an experiment {id}, which this genie does not know: it is left out of the report"
        );
    }
    let found = conclude::conclude(run, ALL)?;
    conclude::write(run, &found)?;
    run.write(PAGE, &report::page(run, ALL, &found)?)?;
    Ok(found)
}

/// Says where the page is.
pub(super) fn announce(run: &Run) {
    eprintln!("genie: the report is {}", run.path(PAGE).display());
}
