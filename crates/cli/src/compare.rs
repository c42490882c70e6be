//! `genie compare`: what each data passing scheme costs and does, on the user's data and machine.
//!
//! How: the options are checked, the data is read, and an interface and a memory server are opened on one CPU; on another
//! CPU a peer process opens what the baselines need. Then for each length and direction a series measures all schemes and
//! baselines side by side. Datagrams between two interfaces are compared apart (`network`). The measurements are printed as tables or as one JSON document, and drawn.
//! Invariants: every byte is verified; a byte that is wrong is a failure. Nothing is left behind but the plot.

mod bench;
mod conclusion;
mod document;
mod measured;
mod network;
mod options;
mod overhead;
mod plot;
mod series;
mod subject;
mod table;
mod throughput;
mod verify;

pub(crate) use options::Args;

use std::path::Path;

use genie::Error;
use genie_baselines::Baselines;
use genie_lab::data::Data;
use genie_lab::machine::{Before, Machine};
use genie_lab::probe::Probe;
use genie_lab::{interface, length};

use crate::bar::Bar;
use crate::failure::Failure;
use crate::output;
use bench::Bench;
use document::{Block, Document, Gathering};
use options::Server;
use series::Series;
use subject::Subject;

/// Measures, prints and draws.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let places = match &args.server {
        Server::At(places) => *places,
        Server::Network(wanted) => return network::run(args, wanted),
    };
    let lengths = args.lengths(genie_sys::machine::total_memory())?;
    let means = args.baselines()?;
    let longest = lengths.last().copied().unwrap_or_default();
    let data =
        args.file.as_deref().map_or_else(|| Ok(Data::generate(longest)), |path| Data::read(path, longest))?;
    if let Some(path) = &args.plot {
        check_folder(path)?;
    }
    let before = Before::read();
    // Where raising the limit fails, schemes that wire do without, and their receipts say so.
    let _ = genie_sys::machine::raise_memory_lock_limit();
    let probe = Probe::pin()?;
    let genie = args.granule.open()?;
    let bench = Bench::open(genie, data, places, args.buffers, probe.other(), !means.is_empty())?;
    let (granules, queue) = (bench.genie.space().granule_kind(), args.outstanding.unwrap_or(1) as usize);
    let mut baselines = (!means.is_empty())
        .then(|| Baselines::open(&means, &bench.data, granules, probe.other(), queue))
        .transpose()?;
    let mut document = measure(args, &lengths, &bench, baselines.as_mut(), &probe, before)?;
    if let Some(outstanding) = args.outstanding {
        let (outstanding, touch) = (outstanding as usize, args.touch);
        let most = args.rounds.map_or(throughput::REQUESTS, |rounds| rounds as usize * outstanding);
        document.throughput =
            throughput::measure(&bench, baselines.as_mut(), &lengths, touch, outstanding, most)?;
    }
    if let Some(path) = &args.plot {
        plot::write(&document, path)?;
    }
    if args.json {
        output::print_json(&document)?;
    } else {
        let text = if args.is_brief() { table::screen } else { table::text };
        output::print_styled(&text(&document, output::is_coloured()))?;
    }
    notice(&bench, baselines.as_ref());
    document.wrong().map_or(Ok(()), Err)
}

fn measure(
    args: &Args,
    lengths: &[usize],
    bench: &Bench,
    mut baselines: Option<&mut Baselines>,
    probe: &Probe,
    before: Before,
) -> Result<Document, Failure> {
    let rounds: usize = lengths.iter().map(|len| args.rounds(*len).most * args.directions().len()).sum();
    let bar = Bar::new(rounds as u64, "{msg:14} {wide_bar} {percent:>3} %");
    let mut gathering = Gathering::default();
    let (mut results, mut others) = (Vec::new(), Vec::new());
    for len in lengths.iter().copied() {
        for direction in args.directions().iter().copied() {
            bar.say(format!("{:>8} {direction}", length::format(len)));
            let what = format!("{} {direction}", length::format(len));
            let unable = |error: Error| Failure::could_not(format!("{what} could not be measured: {error}"));
            let ways = args.ways(direction);
            let all =
                bench.places().flat_map(|place| ways.iter().map(move |(scheme, call)| (place, call, scheme)));
            let subjects =
                all.map(|(place, call, scheme)| Subject::new(bench, (place, *call), *scheme, direction, len));
            let subjects = subjects.collect::<Result<_, _>>().map_err(unable)?;
            let series =
                Series::new(bench, baselines.as_deref_mut(), subjects, args.touch).map_err(unable)?;
            let measured = series
                .measure(args.rounds(len), probe, |rounds| bar.done(rounds))
                .map_err(|failure| unmeasured(&what, failure))?;
            gathering.add(len, &measured);
            let (touch, placement) = (args.touch.name(), measured.placement);
            let block = Block { direction: document::name(direction), length: len, touch, placement };
            let (schemes, baselines) = document::rows(measured, block);
            results.extend(schemes);
            others.extend(baselines);
        }
    }
    drop(bar);
    let means = baselines.iter().flat_map(|baselines| baselines.means());
    others.extend(gathering.empty_rows(bench.places(), means));
    Ok(Document {
        machine: Machine::describe(bench.genie.space(), before),
        costs: bench.genie.passing().circumstances(),
        granule: bench.genie.space().granule(),
        file: bench.data.name.clone(),
        limits: gathering.limits(),
        overhead: overhead::of(&results),
        results,
        baselines: others,
        throughput: Vec::new(),
    })
}

fn unmeasured(what: &str, failure: Failure) -> Failure {
    Failure { message: format!("{what} could not be measured: {}", failure.message), ..failure }
}

/// Says what is lost with small granules, and with one CPU.
fn notice(bench: &Bench, baselines: Option<&Baselines>) {
    for line in baselines.iter().flat_map(|baselines| baselines.left_out()) {
        eprintln!("genie: left out of the comparison: {line}");
    }
    if let Some(loss) = interface::loss(bench.genie.space().granule_kind()) {
        eprintln!("genie: {loss}");
    }
}

/// Refuses, before anything is measured, a plot that could not be written afterwards.
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
