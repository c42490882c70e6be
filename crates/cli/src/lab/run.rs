//! `genie lab run`: measures, concludes, reports.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use genie_lab::conclude::Found;
use genie_lab::experiment::Options;
use genie_lab::experiments::ALL;
use genie_lab::findings::Conclusion;
use genie_lab::interface::Granule;
use genie_lab::runner::noise::Noise;
use genie_lab::runner::{self, Interruptions, Outcome, plan};
use genie_lab::store::{Failed, Record, Run};
use serde::Serialize;
use signal_hook::consts::SIGCONT;

use super::progress::Progress;
use super::{Place, report, tables};
use crate::failure::Failure;
use crate::number;
use crate::{output, signals};

/// How often each experiment is made by default: often enough to show how far the sittings disagree.
const SITTINGS: usize = 3;
/// The seed where none is given.
const SEED: u64 = 1999;

/// Run experiments, print what was found, and write a report.
///
/// Interrupt it once to have it finish the step under way and stop; go on later with --resume. Measurements that an
/// experiment needs of others are made first. After a stop (Ctrl-Z), the step under way is measured again.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The experiments, by their ids, which `genie lab list` shows; or "all".
    #[arg(value_name = "ID", required_unless_present = "resume")]
    ids: Vec<String>,
    /// Everything once and small, within a minute: to see that it works, not to conclude anything.
    #[arg(long, conflicts_with = "resume")]
    smoke: bool,
    /// The granules to measure with.
    #[arg(long, value_enum, default_value = "best", conflicts_with = "resume")]
    granule: Granule,
    /// How often to make each experiment, 3 by default and 1 for --smoke. Between sittings everything is opened anew, so
    /// that their disagreement shows how far another run would differ.
    #[arg(long, value_name = "COUNT", value_parser = number::within::<u16>(1..=99), conflicts_with = "resume")]
    sittings: Option<u16>,
    /// Go on with a run that was interrupted, or in which steps failed, with its own options: the run of this name, or the
    /// latest. Experiments named before this option are added to it.
    #[arg(long, value_name = "RUN", num_args = 0..=1)]
    resume: Option<Option<String>>,
    /// Decides the order of turns and the data; equal seeds give equal ones.
    #[arg(long, value_name = "NUMBER", default_value_t = SEED, value_parser = number::within::<u64>(0..=u64::MAX), conflicts_with = "resume")]
    seed: u64,
    /// Print what was found as one JSON document instead of tables.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: Place,
}

/// The document that is printed as JSON.
#[derive(Debug, Serialize)]
struct Printed<'p> {
    schema: u64,
    run: String,
    folder: String,
    complete: bool,
    experiments: Vec<One<'p>>,
}

/// One experiment in the printed document.
#[derive(Debug, Serialize)]
struct One<'p> {
    id: &'p str,
    noise: &'p Noise,
    failures: &'p [Failed],
    conclusion: &'p Conclusion,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let (run, resumed) = open(args)?;
    let experiments = plan::plan(ALL, &run.record.experiments)?;
    let interruptions = heed_signals()?;
    let verb = if resumed { "goes on" } else { "begins" };
    eprintln!("genie: run {} {verb}, in {}", run.name(), run.folder().display());
    let outcome = runner::go_on(&run, &experiments, &interruptions, &mut Progress::new())?;
    let found = report::write(&run)?;
    if args.json {
        output::print_json(&printed(&run, &outcome, &found))?;
    } else {
        output::print_styled(&tables::all(&found, run.record.options.smoke, output::is_coloured()))?;
    }
    report::announce(&run);
    judge(&run, &outcome)
}

/// Begins a run, or opens the one to be resumed.
fn open(args: &Args) -> Result<(Run, bool), Failure> {
    let folder = args.place.folder();
    let names = |ids: &[String]| -> Result<Vec<String>, Failure> {
        let planned = plan::plan(ALL, ids).map_err(Failure::usage)?;
        Ok(planned.iter().map(|experiment| experiment.declaration().id.to_owned()).collect())
    };
    if let Some(name) = &args.resume {
        let mut run = folder.resume(name.as_deref())?;
        let wanted = [run.record.experiments.as_slice(), &args.ids].concat();
        run.add(names(&wanted)?)?;
        return Ok((run, true));
    }
    let experiments = names(&args.ids)?;
    let sittings = args.sittings.map_or(if args.smoke { 1 } else { SITTINGS }, usize::from);
    let options = Options { smoke: args.smoke, granule: args.granule, seed: args.seed };
    let command = std::env::args().skip(1).fold("genie".to_owned(), |line, word| line + " " + &word);
    let record = Record::begin(command, experiments, options, sittings)?;
    Ok((folder.begin(record)?, false))
}

/// Tells the run to stop at the first signal that asks for an end; a second such signal ends the process. Also tells the run
/// when the process went on after it had been stopped.
fn heed_signals() -> Result<Interruptions, Failure> {
    let interruptions = Interruptions::default();
    // The signal handler runs in the first thread, which measures, before that thread goes on.
    let noted = signal_hook::flag::register(SIGCONT, Arc::clone(&interruptions.went_on));
    noted.map_err(|error| signals::refused(&error))?;
    let told = Arc::clone(&interruptions.stop);
    signals::on_first(move || {
        told.store(true, Ordering::Relaxed);
        eprintln!("\ngenie: finishing the step under way; interrupt once more to stop at once");
    })?;
    Ok(interruptions)
}

fn printed<'p>(run: &Run, outcome: &Outcome, found: &'p [Found]) -> Printed<'p> {
    let one = |one: &'p Found| One {
        id: one.declaration.id,
        noise: &one.noise,
        failures: &one.failures,
        conclusion: &one.conclusion,
    };
    Printed {
        schema: genie_lab::store::SCHEMA,
        run: run.name(),
        folder: run.folder().display().to_string(),
        complete: outcome.measured == outcome.steps,
        experiments: found.iter().map(one).collect(),
    }
}

/// A run that was stopped, or in which steps failed, is a failure; its message says how to go on.
fn judge(run: &Run, outcome: &Outcome) -> Result<(), Failure> {
    let Outcome { measured, steps, failed, interrupted } = outcome;
    let go_on = format!("genie lab run --resume {}", run.folder().display());
    if *interrupted {
        return Err(Failure::could_not(format!(
            "interrupted when {measured} of {steps} steps were measured; go on with: {go_on}"
        )));
    }
    match &failed[..] {
        [] => Ok(()),
        [first, ..] => Err(Failure::could_not(format!(
            "{} of {steps} steps failed, the first of them {} of {}: {}; try them again with: {go_on}",
            failed.len(),
            first.step,
            first.experiment,
            first.error
        ))),
    }
}
