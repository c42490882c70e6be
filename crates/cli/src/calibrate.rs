//! `genie calibrate`: the costs of the primitive operations on this machine, and the thresholds that follow.
//!
//! How: thorough measurements replace the quick ones that a program makes the first time it runs; later programs with
//! the same kind of granules find them.
//! Source: thesis §8.2.2, table 8.2.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io::IsTerminal;

use comfy_table::Table;
use genie::mechanism::Space;
use genie_lab::interface::{self, Granule};
use genie_lab::length;
use genie_passing::Cost;
use genie_passing::calibration::{self, Circumstances, Effort, Measured};
use serde::Serialize;

use crate::circumstances;
use crate::failure::Failure;
use crate::output;
use crate::tables;
use crate::thresholds::Both;

/// The lengths whose costs the table shows.
const SHOWN: [usize; 3] = [4 << 10, 64 << 10, 2 << 20];

/// Measure what the operations of the data passing schemes cost on this machine, and remember it.
///
/// Takes some seconds. A program that uses Genie measures the same more hastily the first time; the costs measured here
/// replace those, unless other programs disturbed the measurement, and disturbed the earlier one less. Builds with and without
/// optimization have costs of their own. Operations of which nothing was left when what they have in common with others was taken off
/// are "lost in noise".
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The kind of pages of the interface's memory; each kind has costs of its own.
    #[arg(long, value_enum, default_value_t = Granule::Best)]
    granule: Granule,
    /// Print one JSON document instead of a table.
    #[arg(long)]
    json: bool,
}

/// Everything that one calibration found.
#[derive(Debug, Serialize)]
struct Document {
    granule: usize,
    granules: String,
    /// The file that holds the costs from now on; none where it could not be written, or better costs stay.
    stored: Option<String>,
    circumstances: Circumstances,
    /// How better costs were measured, which were stored before and stay.
    kept: Option<Circumstances>,
    costs: Vec<Operation>,
    #[serde(flatten)]
    thresholds: Both,
}

/// One operation's cost for B bytes: `per_byte_ns` * B + `fixed_ns`.
#[derive(Debug, Serialize)]
struct Operation {
    operation: &'static str,
    per_byte_ns: f64,
    fixed_ns: f64,
    /// Bytes and nanoseconds, as measured; none where the operation cannot be used here.
    points: Vec<(usize, f64)>,
    /// Costs in microseconds, by length, between the points measured.
    at_us: BTreeMap<usize, f64>,
}

/// Measures, stores and prints.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    // Where that fails, wiring cannot be measured, and the table says so.
    let _ = genie_sys::machine::raise_memory_lock_limit();
    let space = args.granule.space()?;
    if std::io::stderr().is_terminal() {
        eprintln!("genie: measuring for some seconds ...");
    }
    let measure = |space: &Space| {
        let measured = calibration::measure(space, Effort::Thorough).map_err(Failure::could_not)?;
        let better = |stored: &Circumstances| stored.outdoes(&measured.circumstances);
        let kept = calibration::load(space).map(|stored| stored.circumstances).filter(better);
        let stored = match kept {
            Some(_) => Ok(None),
            None => calibration::store(space, &measured).map(Some),
        };
        Ok::<_, Failure>((measured, kept, stored))
    };
    // The small granules' costs are stored, too; the table shows those of the large ones.
    space.small().map(measure).transpose()?;
    let space = space.alone();
    let (measured, kept, stored) = measure(&space)?;
    let path = stored.as_ref().ok().and_then(Option::as_ref).map(|path| path.display().to_string());
    let document = Document { kept, ..Document::new(&space, &measured, path) };
    if args.json {
        output::print_json(&document)?;
    } else {
        output::print(&document.text())?;
    }
    stored.map(drop).map_err(|error| not_stored(&space, &error))
}

fn not_stored(space: &Space, error: &std::io::Error) -> Failure {
    let place = calibration::path(space).map_or("any folder".to_owned(), |path| path.display().to_string());
    Failure::could_not(format!(
        "the costs could not be stored in {place}: {error}; set GENIE_CACHE_DIR to a folder that can be written"
    ))
}

impl Document {
    fn new(space: &Space, measured: &Measured, stored: Option<String>) -> Self {
        let Measured { costs, circumstances } = measured;
        Self {
            granule: space.granule(),
            granules: interface::describe(space),
            stored,
            circumstances: *circumstances,
            kept: None,
            costs: costs.rows().into_iter().map(|(name, cost)| Operation::new(name, cost)).collect(),
            thresholds: Both::of(costs, space.granule()),
        }
    }

    fn text(&self) -> String {
        let mut text = format!("granules of {}; costs for B bytes, in microseconds\n\n", self.granules);
        text.push_str(&tables::text(&self.table()));
        let _ = write!(text, "\n{}", self.thresholds.text());
        if let Some(sentence) = circumstances::sentence(self.circumstances) {
            text += &tables::fold(&format!("\n{sentence}"));
        }
        if let Some(kept) = self.kept {
            text += &tables::fold(&format!(
                "\nnot stored: the costs that are stored already were measured under less load (other programs had {:.0} % of \
                 the CPUs), and stay",
                kept.load * 100.0
            ));
        }
        if let Some(path) = &self.stored {
            let _ = writeln!(text, "\nstored in {path}");
        }
        text
    }

    fn table(&self) -> Table {
        let headings = ["operation", "a * B", "+ b"].into_iter().map(str::to_owned);
        let headings: Vec<_> = headings.chain(SHOWN.map(length::format)).collect();
        let mut table = tables::new(&headings, 1..headings.len());
        for operation in &self.costs {
            table.add_row(operation.cells());
        }
        table
    }
}

impl Operation {
    fn new(operation: &'static str, cost: &Cost) -> Self {
        let measured = !cost.points.is_empty();
        let shown = SHOWN.into_iter().filter(|_| measured);
        Self {
            operation,
            per_byte_ns: cost.line.per_byte,
            fixed_ns: cost.line.fixed,
            points: cost.points.clone(),
            at_us: shown.map(|bytes| (bytes, (cost.at(bytes)).round() / 1e3)).collect(),
        }
    }

    /// Whether nothing was left of the measurements when what they have in common with others was taken off.
    fn is_lost(&self) -> bool {
        self.points.iter().all(|(_, nanoseconds)| *nanoseconds < 1.0)
    }

    fn cells(&self) -> Vec<String> {
        let mut cells = vec![self.operation.to_owned()];
        if self.points.is_empty() {
            cells.push("not usable here".to_owned());
            return cells;
        }
        cells.push(format!("{:.6} B", self.per_byte_ns / 1e3));
        cells.push(format!("{:.3}", self.fixed_ns / 1e3));
        if self.is_lost() {
            cells.truncate(1);
            cells.push("lost in noise".to_owned());
            return cells;
        }
        cells.extend(self.at_us.values().map(|us| format!("{us:.3}")));
        cells
    }
}
