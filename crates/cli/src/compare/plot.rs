//! The result as a drawing: latency and cycle against length, on logarithmic axes.
//!
//! How: four panels, out and in beside each other, latency above cycle. Schemes have the same lines as in the lab's figures;
//! baselines are thin, and dotted or dashed. Where there are more curves than can be told apart, copy, emulated copy, a Unix socket
//! and the limit are drawn before others. The legend has the order in which the curves of the first panel end, from top
//! to bottom, schemes before baselines.

use std::path::Path;

use genie::Scheme;
use genie_baselines::Means;
use genie_lab::figure;
use genie_lab::findings::{Axis, Curve, Figure};

use super::bench::Place;
use super::document::{Document, Row};
use crate::failure::Failure;

/// What a panel shows: the word for it, and where its values are.
type Time = (&'static str, fn(&Row) -> f64);

/// The usual means, and the limit, which are drawn before others.
const FIRST: [&str; 2] = ["unix-stream", "shared-memory-polled"];

const TIMES: [Time; 2] = [("latency", |row| row.latency_us.median), ("cycle", |row| row.cycle_us.median)];

/// Writes the drawing, or nothing.
pub(super) fn write(document: &Document, path: &Path) -> Result<(), Failure> {
    let panels = TIMES
        .into_iter()
        .flat_map(|time| [("out", "output"), ("in", "input")].map(|direction| (time, direction)));
    let panels: Vec<_> = panels.filter_map(|(time, direction)| panel(document, time, direction)).collect();
    let title = format!("genie compare: {}, {}", document.machine.cpu, document.machine.name());
    let drawn = figure::sheet(&title, &panels);
    std::fs::write(path, drawn).map_err(|error| {
        Failure::could_not(format!("the plot {} cannot be written: {error}", path.display()))
    })
}

/// One panel, if its direction was measured.
fn panel(document: &Document, (time, median): Time, (direction, word): (&str, &str)) -> Option<Figure> {
    let axes = [Axis::logarithmic("length in bytes"), Axis::logarithmic(&format!("{time} in microseconds"))];
    let both = document.results.iter().any(|row| row.server == Place::Process.name());
    let points = |rows: &[Row], name: &str| -> Vec<_> {
        // Where servers in both places were measured, the server in another process is drawn.
        let is_drawn = |row: &&Row| {
            (row.label().as_str(), row.direction) == (name, direction)
                && (!both || row.server == Place::Process.name())
        };
        rows.iter().filter(is_drawn).map(|row| (row.length as f64, median(row))).collect()
    };
    let schemes =
        Scheme::ALL.map(Scheme::name).map(|name| Curve::plain(name, points(&document.results, name)));
    let baselines =
        Means::all().map(Means::name).map(|name| Curve::beside(name, points(&document.baselines, name)));
    let title = format!("{word}, {time}");
    let (copies, others): (Vec<_>, Vec<_>) =
        schemes.into_iter().partition(|curve| curve.name.ends_with("copy"));
    let (usual, baselines): (Vec<_>, Vec<_>) =
        baselines.partition(|curve| FIRST.contains(&curve.name.as_str()));
    let curves = copies.into_iter().chain(usual).chain(others).chain(baselines);
    Figure::of(format!("{direction}-{time}"), title, axes, curves)
}
