//! The result as a drawing: latency and cycle against length, on logarithmic axes.
//!
//! How: four panels, out and in beside each other, latency above cycle. Colour tells the semantics (Okabe and Ito's
//! colours, which colour-blind readers can tell apart), a dashed line the plain scheme and a solid one the emulated one.
//! The legend has the order in which the curves of the first panel end, from top to bottom.
//! Limits: this file is the only one that knows the plotting library.

use std::path::Path;
use std::sync::Arc;

use genie::Scheme;
use genie::model::Semantics;
use kuva::backend::svg::SvgBackend;
use kuva::plot::{LegendEntry, LegendShape, LinePlot, ScatterPlot};
use kuva::render::figure::Figure;
use kuva::render::layout::{Layout, TickFormat};
use kuva::render::plots::Plot;

use super::document::{Document, Row};
use crate::failure::Failure;
use crate::length;

/// A panel's width and height.
const PANEL: (f64, f64) = (520.0, 380.0);
const FONT: &str = "DejaVu Sans, Liberation Sans, Arial, sans-serif";
/// Small enough for one panel's width.
const TITLE: u32 = 15;
/// The pattern of a plain scheme's line in the legend, whose samples are short.
const DASHES: &str = "4 3";
/// Labels on the axis of lengths, at most.
const LABELS: f64 = 7.0;

/// Writes the drawing, or nothing.
pub(super) fn write(document: &Document, path: &Path) -> Result<(), Failure> {
    std::fs::write(path, draw(document)).map_err(|error| {
        Failure::could_not(format!("the plot {} cannot be written: {error}", path.display()))
    })
}

/// Draws the panels for which there are results.
fn draw(document: &Document) -> String {
    let directions: Vec<_> = ["out", "in"]
        .into_iter()
        .filter(|direction| document.results.iter().any(|row| row.direction == *direction))
        .collect();
    let panels: Vec<_> = [Time::Latency, Time::Cycle]
        .into_iter()
        .flat_map(|time| directions.iter().map(move |direction| (time, *direction)))
        .collect();
    let axes = Axes::around(&document.results);
    let plots = panels.iter().map(|(time, direction)| curves(&document.results, *time, direction)).collect();
    let layouts = panels.iter().map(|(time, direction)| axes.layout(*time, direction)).collect();
    let scene = Figure::new(2, directions.len().max(1))
        .with_plots(plots)
        .with_layouts(layouts)
        .with_cell_size(PANEL.0, PANEL.1)
        .with_title(document.machine.name())
        .with_title_size(TITLE)
        .with_shared_legend_entries(legend(&document.results))
        .with_shared_legend_right_middle()
        .render();
    SvgBackend.render_scene(&scene)
}

/// What a panel shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Time {
    Latency,
    Cycle,
}

impl Time {
    fn of(self, row: &Row) -> f64 {
        let spread = match self {
            Self::Latency => row.latency_us,
            Self::Cycle => row.cycle_us,
        };
        spread.median.max(1e-3)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Latency => "latency",
            Self::Cycle => "cycle",
        }
    }
}

/// The ranges that all panels share, so that they can be compared.
#[derive(Debug)]
struct Axes {
    /// Powers of two.
    lengths: (f64, f64),
    /// Microseconds.
    times: (f64, f64),
}

impl Axes {
    fn around(rows: &[Row]) -> Self {
        let times = rows.iter().flat_map(|row| [Time::Latency.of(row), Time::Cycle.of(row)]);
        let (low, high) =
            times.fold((f64::MAX, 0.0_f64), |(low, high), time| (low.min(time), high.max(time)));
        let lengths = rows.iter().map(|row| (row.length as f64).log2());
        let (first, last) =
            lengths.fold((f64::MAX, 0.0_f64), |(first, last), len| (first.min(len), last.max(len)));
        let decades = |time: f64, up: f64| 10_f64.powf(time.log10().floor() + up);
        // A single length stands in the middle.
        let beside = if first < last { 0.0 } else { 1.0 };
        Self {
            lengths: ((first.floor() - beside).max(0.0), last.ceil() + beside),
            times: (decades(low, 0.0), decades(high, 1.0)),
        }
    }

    fn layout(&self, time: Time, direction: &str) -> Layout {
        let step = ((self.lengths.1 - self.lengths.0) / (LABELS - 1.0)).ceil().max(1.0);
        let unit = |power: f64| length::format(2_f64.powf(power).round() as usize);
        Layout::new(self.lengths, self.times)
            .with_title(format!("{}, {}", if direction == "out" { "output" } else { "input" }, time.name()))
            .with_x_label("length")
            .with_y_label(format!("{} in microseconds", time.name()))
            .with_log_y()
            .with_x_axis_min(self.lengths.0)
            .with_x_axis_max(self.lengths.1)
            .with_y_axis_min(self.times.0)
            .with_y_axis_max(self.times.1)
            .with_x_tick_step(step)
            .with_x_tick_format(TickFormat::Custom(Arc::new(unit)))
            .with_y_tick_format(TickFormat::Custom(Arc::new(|time| time.to_string())))
            .with_font_family(FONT)
    }
}

/// One panel's lines, with a dot where something was measured.
fn curves(rows: &[Row], time: Time, direction: &str) -> Vec<Plot> {
    let mut plots = Vec::new();
    for scheme in Scheme::ALL {
        let points = points(rows, scheme, time, direction);
        if points.is_empty() {
            continue;
        }
        let dots = ScatterPlot::new().with_data(points.clone()).with_color(colour(scheme)).with_size(3.0);
        let line = LinePlot::new().with_data(points).with_color(colour(scheme));
        let line = if scheme.is_emulated() { line } else { line.with_dashed() };
        plots.extend([Plot::Line(line), Plot::Scatter(dots)]);
    }
    plots
}

fn points(rows: &[Row], scheme: Scheme, time: Time, direction: &str) -> Vec<(f64, f64)> {
    let its = rows.iter().filter(|row| row.scheme == scheme.name() && row.direction == direction);
    its.map(|row| ((row.length as f64).log2(), time.of(row))).collect()
}

/// The schemes, those first whose latency at the greatest length is the longest.
fn legend(rows: &[Row]) -> Vec<LegendEntry> {
    let Some(first) = rows.first() else { return Vec::new() };
    let end = |scheme: &Scheme| {
        points(rows, *scheme, Time::Latency, first.direction).last().map_or(0.0, |(_, time)| *time)
    };
    let mut schemes: Vec<_> =
        Scheme::ALL.into_iter().filter(|scheme| rows.iter().any(|row| row.scheme == scheme.name())).collect();
    schemes.sort_by(|a, b| end(b).total_cmp(&end(a)));
    let entry = |scheme: Scheme| LegendEntry {
        label: scheme.name().to_owned(),
        color: colour(scheme).to_owned(),
        shape: LegendShape::Line,
        dasharray: (!scheme.is_emulated()).then(|| DASHES.to_owned()),
    };
    schemes.into_iter().map(entry).collect()
}

fn colour(scheme: Scheme) -> &'static str {
    match scheme.semantics() {
        Semantics::Copy => "#000000",
        Semantics::Share => "#0072B2",
        Semantics::Move => "#D55E00",
        Semantics::WeakMove => "#009E73",
    }
}
