//! `genie lab compare`: two runs side by side.

use std::fmt::Write;

use genie_lab::comparison::{self, Row};
use genie_lab::findings::Table;
use genie_lab::length;
use genie_lab::measurement::Measurements;
use genie_lab::model::comparison::{Scaling, scaling};
use genie_lab::store::Run;
use serde::Serialize;

use super::{Place, tables};
use crate::failure::Failure;
use crate::output;
use crate::tables::fold;

/// Compare two runs: their medians side by side, and where they differ by more than noise explains.
///
/// A point differs where all sittings of one run lie beyond all of the other, and the medians are more than 10 % apart. Where
/// both runs measured primitives, their costs are compared by kind, beside those that the machines' own figures predict.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The run to compare with: its name, or the path of its folder.
    one: String,
    /// The run that is compared.
    other: String,
    /// Show only the points that differ.
    #[arg(long)]
    differing: bool,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: Place,
}

/// The document that is printed as JSON.
#[derive(Debug, Serialize)]
struct Printed {
    schema: u64,
    runs: [String; 2],
    placed_otherwise: Vec<String>,
    points: Vec<Row>,
    scaling: Option<Table>,
    notes: Vec<String>,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let folder = args.place.folder();
    let runs = [folder.open(Some(&args.one))?, folder.open(Some(&args.other))?];
    let measurements = [runs[0].measurements()?, runs[1].measurements()?];
    let rows = comparison::compare(measurements.each_ref());
    if rows.is_empty() {
        return Err(Failure::could_not("the two runs have no point in common"));
    }
    let placed_otherwise = comparison::placed_otherwise(measurements.each_ref());
    let scaling = scaled(&measurements);
    if args.json {
        let (scaling, notes) = scaling.map(|scaling| (scaling.table, scaling.notes)).unzip();
        return output::print_json(&Printed {
            schema: genie_lab::store::SCHEMA,
            runs: runs.each_ref().map(Run::name),
            placed_otherwise,
            points: rows,
            scaling,
            notes: notes.unwrap_or_default(),
        });
    }
    let mut text = heading(&runs);
    for id in &placed_otherwise {
        let _ = writeln!(
            text,
            "{id}: the CPUs were near each other in one run and far apart in the other: do not compare it"
        );
    }
    text += &side_by_side(&rows, args.differing);
    text += &summary(&rows);
    if let Some(Scaling { table, notes }) = scaling {
        let _ = write!(text, "\n{}{}", fold(&table.title), tables::numbers(&table));
        notes.iter().for_each(|note| text += &fold(&format!("note: {note}")));
    }
    output::print(&text)
}

/// How the costs of operations scale from the first run's machine to the second's, where both runs have such costs.
fn scaled([one, other]: &[Measurements; 2]) -> Option<Scaling> {
    let has_costs = |run: &Measurements| run.of("primitives").next().is_some();
    (has_costs(one) && has_costs(other)).then(|| scaling(one, other))
}

fn heading(runs: &[Run; 2]) -> String {
    let line = |run: &Run| fold(&format!("{}: {}", run.name(), run.record.machine.line()));
    line(&runs[0]) + &line(&runs[1])
}

/// A table for each experiment, setting and quantity.
fn side_by_side(rows: &[Row], differing: bool) -> String {
    let mut text = String::new();
    let alike = |one: &Row, next: &Row| {
        (&one.experiment, &one.setting, one.quantity) == (&next.experiment, &next.setting, next.quantity)
    };
    for group in rows.chunk_by(alike) {
        let first = &group[0];
        let shown: Vec<_> = group.iter().filter(|row| row.differs || !differing).map(cells).collect();
        if shown.is_empty() {
            continue;
        }
        let parts = [first.experiment.as_str(), &first.setting, first.quantity.name()];
        let parts: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        let columns =
            ["series", "length", "one", "other", "ratio", "sittings", ""].map(str::to_owned).to_vec();
        let table = Table { title: parts.join(", "), columns, rows: shown };
        let _ = write!(text, "\n{}{}", fold(&table.title), tables::numbers(&table));
    }
    text
}

fn cells(row: &Row) -> Vec<String> {
    let percent = |disagreement: f64| format!("{:.0} %", (disagreement - 1.0) * 100.0);
    vec![
        row.series.clone(),
        length::format(row.x as usize),
        row.quantity.amount(row.medians[0]),
        row.quantity.amount(row.medians[1]),
        format!("{:.3}", row.ratio),
        row.disagreements.map(percent).join(", "),
        if row.differs { "differs" } else { "" }.to_owned(),
    ]
}

fn summary(rows: &[Row]) -> String {
    let count = |condition: fn(&Row) -> bool| rows.iter().filter(|row| condition(row)).count();
    fold(&format!(
        "\nof {} points {} agree within 10 %, and {} differ by more than noise explains\n\
         ratio: the other run's median over the one's; sittings: how far those of each run are apart\n",
        rows.len(),
        count(Row::agrees),
        count(|row| row.differs),
    ))
}
