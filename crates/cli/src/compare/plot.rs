//! The result as a drawing: latency and cycle against length, on logarithmic axes.
//!
//! How: four panels, out and in beside each other, latency above cycle. Colour tells the semantics (in colours
//! that colour-blind readers can tell apart), a dashed line the plain scheme and a solid one the emulated one.
//! Baselines are thin: a colour for each kind, dotted where both sides poll and dashed and dotted where they sleep.
//! The legend has the order in which the curves of the first panel end, from top to bottom, schemes before baselines.
//! Limits: this file is the only one that knows the plotting library.

use std::path::Path;
use std::sync::Arc;

use genie::Scheme;
use genie::model::Semantics;
use genie_baselines::{Kind, Means, Waiting};
use genie_lab::figure::FONT;
use genie_lab::figure::palette::{self, Hue};
use genie_lab::length;
use kuva::backend::svg::SvgBackend;
use kuva::plot::{LegendEntry, LegendShape, LinePlot, LineStyle, ScatterPlot};
use kuva::render::figure::Figure;
use kuva::render::layout::{Layout, TickFormat};
use kuva::render::plots::Plot;

use super::document::{BaselineRow, Document, Row, Timed};
use super::place::Place;
use crate::failure::Failure;

/// A panel's width and height.
const PANEL: (f64, f64) = (520.0, 380.0);
/// Small enough for one panel's width.
const TITLE: u32 = 15;
/// The pattern of a plain scheme's line in the legend, whose samples are short.
const DASHES: &str = "4 3";
/// The patterns of the baselines' lines: where both sides poll, and where they sleep.
const POLLED: &str = "2 2";
const BLOCKING: &str = "7 2 1 2";
const THIN: f64 = 1.5;
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
        .filter(|direction| document.results.iter().any(|row| row.timed.direction == *direction))
        .collect();
    let panels: Vec<_> = [Time::Latency, Time::Cycle]
        .into_iter()
        .flat_map(|time| directions.iter().map(move |direction| (time, *direction)))
        .collect();
    let axes = Axes::around(document);
    let plots = panels.iter().map(|(time, direction)| curves(document, *time, direction)).collect();
    let layouts = panels.iter().map(|(time, direction)| axes.layout(*time, direction)).collect();
    let scene = Figure::new(2, directions.len().max(1))
        .with_plots(plots)
        .with_layouts(layouts)
        .with_cell_size(PANEL.0, PANEL.1)
        .with_title(document.machine.name())
        .with_title_size(TITLE)
        .with_shared_legend_entries(legend(document))
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
    fn of(self, timed: &Timed) -> f64 {
        let spread = match self {
            Self::Latency => timed.latency_us,
            Self::Cycle => timed.cycle_us,
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
    fn around(document: &Document) -> Self {
        let schemes = document.results.iter().map(|row| &row.timed);
        let all = schemes.chain(document.baselines.iter().map(|row| &row.timed));
        let times = all.flat_map(|timed| [Time::Latency, Time::Cycle].map(|time| time.of(timed)));
        let (low, high) =
            times.fold((f64::MAX, 0.0_f64), |(low, high), time| (low.min(time), high.max(time)));
        let lengths = document.results.iter().map(|row| (row.timed.length as f64).log2());
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

/// One panel's lines, with a dot where a scheme was measured. Where servers in both places were, the one in a process is
/// drawn.
fn curves(document: &Document, time: Time, direction: &str) -> Vec<Plot> {
    let mut plots = Vec::new();
    for means in Means::ALL {
        let points = baseline_points(&document.baselines, means, time, direction);
        if !points.is_empty() {
            let line = LinePlot::new().with_data(points).with_color(baseline_colour(means));
            let style = LineStyle::Custom(pattern(means).to_owned());
            plots.push(Plot::Line(line.with_line_style(style).with_stroke_width(THIN)));
        }
    }
    for scheme in Scheme::ALL {
        let points = points(&document.results, scheme, time, direction);
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
    let both = rows.iter().any(|row| row.timed.server == Place::Process.name());
    let drawn = |row: &&Row| !both || row.timed.server == Place::Process.name();
    let its = rows.iter().filter(|row| row.scheme == scheme.name()).filter(drawn);
    curve(its.map(|row| &row.timed), time, direction)
}

fn baseline_points(rows: &[BaselineRow], means: Means, time: Time, direction: &str) -> Vec<(f64, f64)> {
    let its = rows.iter().filter(|row| row.name == means.name());
    curve(its.map(|row| &row.timed), time, direction)
}

fn curve<'t>(all: impl Iterator<Item = &'t Timed>, time: Time, direction: &str) -> Vec<(f64, f64)> {
    let its = all.filter(|timed| timed.direction == direction);
    its.map(|timed| (power(timed.length), time.of(timed))).collect()
}

fn power(length: usize) -> f64 {
    (length as f64).log2()
}

/// The schemes and then the baselines, in each case those first whose latency at the greatest length is the longest.
fn legend(document: &Document) -> Vec<LegendEntry> {
    let Some(first) = document.results.first() else { return Vec::new() };
    let last = |points: Vec<(f64, f64)>| points.last().map(|(_, time)| *time);
    let schemes = Scheme::ALL.into_iter().filter_map(|scheme| {
        let dashes = (!scheme.is_emulated()).then_some(DASHES);
        let end = last(points(&document.results, scheme, Time::Latency, first.timed.direction))?;
        Some((end, entry(scheme.name(), colour(scheme), dashes)))
    });
    let baselines = Means::ALL.into_iter().filter_map(|means| {
        let end = last(baseline_points(&document.baselines, means, Time::Latency, first.timed.direction))?;
        Some((end, entry(means.name(), baseline_colour(means), Some(pattern(means)))))
    });
    let (mut schemes, mut baselines): (Vec<_>, Vec<_>) = (schemes.collect(), baselines.collect());
    for entries in [&mut schemes, &mut baselines] {
        entries.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    }
    schemes.into_iter().chain(baselines).map(|(_, entry)| entry).collect()
}

fn entry(label: &str, color: &str, dashes: Option<&str>) -> LegendEntry {
    LegendEntry {
        label: label.to_owned(),
        color: color.to_owned(),
        shape: LegendShape::Line,
        dasharray: dashes.map(str::to_owned),
    }
}

fn pattern(means: Means) -> &'static str {
    match means.waiting {
        Waiting::Polled => POLLED,
        Waiting::Blocking => BLOCKING,
    }
}

fn baseline_colour(means: Means) -> &'static str {
    match means.kind {
        Kind::UnixStream => Hue::Amber.printed(),
        Kind::Pipe => palette::OCHRE,
        Kind::TcpLoopback => Hue::Purple.printed(),
        Kind::ProcessVm => Hue::Sky.printed(),
        Kind::SharedMemory | Kind::HandOver | Kind::Rotation => Hue::Grey.printed(),
        Kind::SharedMemoryCopy => palette::SLATE,
        Kind::IceoryxLoan => palette::VIOLET,
        Kind::IceoryxCopy => palette::LAVENDER,
        Kind::ZeromqIpc => palette::OLIVE,
    }
}

fn colour(scheme: Scheme) -> &'static str {
    match scheme.semantics() {
        Semantics::Copy => Hue::Black.printed(),
        Semantics::Share => Hue::Blue.printed(),
        Semantics::Move => Hue::Vermilion.printed(),
        Semantics::WeakMove => Hue::Green.printed(),
    }
}
