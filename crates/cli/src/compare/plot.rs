//! The result as a drawing: latency and cycle against length, on logarithmic axes.
//!
//! How: four panels, out and in beside each other, latency above cycle. Schemes have the same lines as in the lab's figures;
//! baselines are thin, and dotted or dashed. The legend has the order in which the curves of the first panel end, from top
//! to bottom, schemes before baselines.

use std::path::Path;

use genie::Scheme;
use genie_baselines::Means;
use genie_lab::figure;
use genie_lab::findings::{Axis, Curve, Figure};

use super::document::{Document, Timed};
use super::place::Place;
use crate::failure::Failure;

/// What a panel shows: the word for it, and where its values are.
type Time = (&'static str, fn(&Timed) -> f64);

const TIMES: [Time; 2] =
    [("latency", |timed| timed.latency_us.median), ("cycle", |timed| timed.cycle_us.median)];

/// Writes the drawing, or nothing.
pub(super) fn write(document: &Document, path: &Path) -> Result<(), Failure> {
    let panels = TIMES
        .into_iter()
        .flat_map(|time| [("out", "output"), ("in", "input")].map(|direction| (time, direction)));
    let panels: Vec<_> = panels.filter_map(|(time, direction)| panel(document, time, direction)).collect();
    let drawn = figure::sheet(&document.machine.name(), &panels);
    std::fs::write(path, drawn).map_err(|error| {
        Failure::could_not(format!("the plot {} cannot be written: {error}", path.display()))
    })
}

/// One panel, if its direction was measured.
fn panel(document: &Document, (time, median): Time, (direction, word): (&str, &str)) -> Option<Figure> {
    let axes = [Axis::logarithmic("length in bytes"), Axis::logarithmic(&format!("{time} in microseconds"))];
    let both = document.results.iter().any(|row| row.timed.server == Place::Process.name());
    let points = |timed: &Timed| {
        // Where servers in both places were measured, the server in another process is drawn.
        let is_drawn = timed.direction == direction && (!both || timed.server == Place::Process.name());
        is_drawn.then(|| (timed.length as f64, median(timed)))
    };
    let schemes = Scheme::ALL.into_iter().map(|scheme| {
        let rows = document.results.iter().filter(move |row| row.scheme == scheme.name());
        Curve::plain(scheme.name(), rows.filter_map(|row| points(&row.timed)))
    });
    let baselines = Means::all().map(|means| {
        let rows = document.baselines.iter().filter(move |row| row.name == means.name());
        Curve::beside(means.name(), rows.filter_map(|row| points(&row.timed)))
    });
    let title = format!("{word}, {time}");
    Figure::of(format!("{direction}-{time}"), title, axes, schemes.chain(baselines))
}
