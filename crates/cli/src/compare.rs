//! `genie compare`: what each data passing scheme costs and does, on the user's data and machine.
//!
//! How: the options are checked, the data is read, and an interface and a memory server are opened, all on one CPU. Then
//! for each length and direction a series measures all schemes side by side. What was measured is printed as tables or
//! as one JSON document, and drawn.
//! Invariants: every byte is verified; a byte that is wrong is a failure. Nothing is left behind but the plot.

mod bench;
mod data;
mod document;
mod machine;
mod options;
mod plot;
mod probe;
mod progress;
mod random;
mod series;
mod statistics;
mod subject;
mod table;
mod touch;
mod verify;
mod wiring;

pub(crate) use options::Args;

use std::path::Path;

use genie::Error;

use crate::failure::Failure;
use crate::{interface, length, output};
use bench::Bench;
use data::Data;
use document::{Document, Gathering, Row};
use machine::{Before, Machine};
use probe::Probe;
use progress::Progress;
use series::Series;
use wiring::LeftOut;

/// Measures, prints and draws.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let lengths = args.lengths(genie_sys::machine::total_memory())?;
    let longest = lengths.last().copied().unwrap_or_default();
    let data =
        args.file.as_deref().map_or_else(|| Ok(Data::generate(longest)), |path| Data::read(path, longest))?;
    if let Some(path) = &args.plot {
        check_folder(path)?;
    }
    let before = Before::read();
    // Where that fails, wiring fails later, and says why.
    let _ = genie_sys::machine::raise_memory_lock_limit();
    let probe = Probe::pin()?;
    let bench = Bench::open(args, data)?;
    let document = measure(args, &lengths, &bench, &probe, before)?;
    if let Some(path) = &args.plot {
        plot::write(&document, path)?;
    }
    if args.json {
        output::print_json(&document)?;
    } else {
        output::print(&table::text(&document, output::is_coloured()))?;
    }
    notice(&bench);
    document.results.iter().find_map(wrong).map_or(Ok(()), Err)
}

fn measure(
    args: &Args,
    lengths: &[usize],
    bench: &Bench,
    probe: &Probe,
    before: Before,
) -> Result<Document, Failure> {
    let progress = Progress::new(lengths.iter().map(|len| args.rounds(*len) * args.directions().len()).sum());
    let mut gathering = Gathering::default();
    let mut left_out = LeftOut::default();
    let mut results = Vec::new();
    for len in lengths.iter().copied() {
        for direction in args.directions().iter().copied() {
            progress.begin(len, direction);
            let fail = |error: Error| {
                Failure::could_not(format!(
                    "{} {direction} could not be measured: {error}",
                    length::format(len)
                ))
            };
            let subjects = left_out.usable(bench, &args.schemes(), direction, len).map_err(fail)?;
            if subjects.is_empty() {
                continue;
            }
            let mut series = Series::new(bench, subjects, args.touch).map_err(fail)?;
            let measured =
                series.measure(args.rounds(len), probe, |rounds| progress.done(rounds)).map_err(fail)?;
            gathering.add(len, &measured);
            let placement = measured.placement;
            let rows = measured.schemes.into_iter();
            results.extend(rows.map(|one| Row::new(one, direction, len, args.touch.name(), placement)));
        }
    }
    drop(progress);
    left_out.report(results.is_empty())?;
    Ok(Document {
        machine: Machine::describe(bench.genie.space(), before),
        granule: bench.genie.space().granule(),
        file: bench.data.name.clone(),
        limits: gathering.limits(),
        results,
        baselines: Vec::new(),
    })
}

/// Says what small granules lose.
fn notice(bench: &Bench) {
    if let Some(loss) = interface::loss(bench.genie.space().granule_kind()) {
        eprintln!("genie: {loss}");
    }
}

/// The failure of a row with wrong bytes.
fn wrong(row: &Row) -> Option<Failure> {
    row.wrong.as_ref().map(|wrong| {
        let length = length::format(row.length);
        Failure::could_not(format!("wrong bytes by {} {} of {length}: {wrong}", row.scheme, row.direction))
    })
}

/// Refuses a plot that could not be written when all is measured.
fn check_folder(path: &Path) -> Result<(), Failure> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if path.is_dir() {
        return Err(Failure::could_not(format!("the plot {} is a directory; name a file", path.display())));
    }
    match folder.metadata() {
        Ok(metadata) if metadata.is_dir() => Ok(()),
        Ok(_) => Err(Failure::could_not(format!("the plot's folder {} is a file", folder.display()))),
        Err(error) => {
            Err(Failure::could_not(format!("the plot's folder {} cannot be used: {error}", folder.display())))
        }
    }
}
