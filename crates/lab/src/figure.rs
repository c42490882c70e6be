//! Draws figures as SVG.
//!
//! How: the plotting library draws axes, grid and lines; markers, whiskers and the legend are added in its own primitives,
//! since it has no hollow markers and its legend shows either a line or a marker. Each curve differs from the others in
//! colour and marker, and estimates are dashed. The legend lists the curves in the order of their right ends, from top to
//! bottom. Emulated copy is drawn last, over the others. No line joins two measured points, which would look like a curve.
//! Limits: the files of this module are the only ones that know the plotting library.

mod axes;
mod crowd;
mod curve;
mod legend;
pub mod palette;
mod style;

use kuva::backend::svg::SvgBackend;
use kuva::render::color::Color;
use kuva::render::layout::ComputedLayout;
use kuva::render::render::{Primitive, Scene, TextAnchor, render_multiple};

use crate::findings::{self, Figure};
use axes::Axes;
pub use palette::Ink;
use style::Style;

/// How large a drawing is, and where its legend is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Its width, chosen so that text of height `text` is readable.
    width: u32,
    /// The height of axes and curves.
    height: u32,
    /// The width of a legend beside the curves; without one it is below them.
    legend: Option<u32>,
    /// The height of letters.
    text: u32,
}

/// For screens and paper.
pub const WIDE: Shape = Shape { width: 1080, height: 520, legend: Some(230), text: 15 };
/// For telephones.
pub const NARROW: Shape = Shape { width: 370, height: 330, legend: None, text: 13 };

/// For one of several figures on a sheet.
const PANEL: Shape = Shape { width: 520, height: 380, legend: None, text: 12 };
/// The width of a sheet's legend.
const LEGEND: u32 = 230;
/// The heights of a sheet's heading, and of its figures' headings.
const HEADING: u32 = 36;
const PANEL_HEADING: u32 = 24;

/// The typefaces of all drawings.
pub const FONT: &str = "system-ui, Segoe UI, Roboto, DejaVu Sans, Liberation Sans, Arial, sans-serif";

/// The name of a figure's file.
pub fn file(experiment: &str, figure: &Figure) -> String {
    let name = figure.name.as_str();
    if name.starts_with(experiment) { format!("{name}.svg") } else { format!("{experiment}-{name}.svg") }
}

/// Draws a figure.
pub fn draw(figure: &Figure, shape: Shape, ink: Ink) -> String {
    let (thinned, notes) = crowd::thinned(std::slice::from_ref(figure));
    let figure = thinned.first().unwrap_or(figure);
    let axes = Axes::around(figure);
    let styles = style::assign(&figure.curves);
    let order = legend::order(figure, &axes);
    let (mut scene, top) = plotted(figure, &axes, &styles, shape, ink);
    legend::add(&mut scene, figure, (&order, &notes), &styles, top, shape, ink);
    finished(&scene, figure)
}

/// Draws figures on a sheet to be printed, two in a row; they share their axes and one legend.
pub fn sheet(title: &str, figures: &[Figure]) -> String {
    let (figures, notes) = crowd::thinned(figures);
    let Some(first) = figures.first() else { return String::new() };
    let ink = Ink::Printed;
    let curves = || figures.iter().flat_map(|figure| &figure.curves);
    let axes = Axes::around(&Figure { curves: curves().cloned().collect(), ..first.clone() });
    let mut names = std::collections::BTreeSet::new();
    let each = curves().filter(|curve| names.insert(&curve.name)).cloned().collect();
    let each = Figure { title: title.to_owned(), curves: each, ..first.clone() };
    let styles = style::assign(&each.curves);
    let columns = figures.len().min(2) as u32;
    let width = columns * PANEL.width + LEGEND;
    let step = PANEL_HEADING + PANEL.height;
    let height = HEADING + figures.len().div_ceil(2) as u32 * step;
    let mut scene = Scene::new(width.into(), height.into());
    scene.font_family = Some(FONT.to_owned());
    // A long title has smaller letters.
    let letters = f64::from(width) / (title.chars().count().max(1) as f64 * 0.62);
    heading(
        &mut scene,
        title,
        (f64::from(width) / 2.0, f64::from(HEADING) * 0.6),
        (PANEL.text + 3).min(letters as u32),
    );
    for (index, figure) in figures.iter().enumerate() {
        let style_of = |curve: &findings::Curve| each.curves.iter().position(|one| one.name == curve.name);
        let styles: Vec<_> = figure.curves.iter().filter_map(style_of).map(|index| styles[index]).collect();
        let (panel, _) = plotted(figure, &axes, &styles, PANEL, ink);
        let (column, row) = (index as u32 % columns, index as u32 / columns);
        let (x, y) = (column * PANEL.width, HEADING + row * step + PANEL_HEADING);
        let transform = Some(format!("translate({x},{y})"));
        scene.add(Primitive::GroupStart { transform, title: None, extra_attrs: None });
        scene.elements.extend(panel.elements);
        scene.defs.extend(panel.defs);
        heading(&mut scene, &figure.title, (f64::from(PANEL.width) / 2.0, 0.0), PANEL.text);
        scene.add(Primitive::GroupEnd);
    }
    let shape = Shape { width, height, legend: Some(LEGEND), ..PANEL };
    let order = legend::order(&each, &axes);
    legend::add(&mut scene, &each, (&order, &notes), &styles, f64::from(HEADING), shape, ink);
    finished(&scene, &each)
}

fn heading(scene: &mut Scene, words: &str, place: (f64, f64), size: u32) {
    scene.add(text(words, place, size, TextAnchor::Middle, None));
}

/// Words at a place: in the given colour, or bold in the theme's colour.
fn text(words: &str, (x, y): (f64, f64), size: u32, anchor: TextAnchor, color: Option<Color>) -> Primitive {
    let (content, bold) = (words.to_owned(), color.is_none());
    Primitive::Text { x, y, content, size, anchor, rotate: None, bold, color }
}

/// Draws axes and curves; also returns how far down the axes begin.
fn plotted(figure: &Figure, axes: &Axes, styles: &[Style], shape: Shape, ink: Ink) -> (Scene, f64) {
    let layout = axes.layout(figure, shape, ink);
    let lines = curve::lines(figure, axes, styles, ink);
    let computed = ComputedLayout::from_layout(&layout);
    let mut scene = render_multiple(lines, layout);
    for (curve, style) in curve::in_front(figure, styles) {
        curve::marks(&mut scene, &computed, axes, curve, *style, ink);
    }
    (scene, computed.margin_top)
}

/// The drawing as text. It scales with its surroundings, and describes itself to readers who cannot see it.
fn finished(scene: &Scene, figure: &Figure) -> String {
    let svg = SvgBackend::new().render_scene(scene);
    let (head, body) = svg.split_once('>').unwrap_or(("", &svg));
    // The library signs each drawing with a comment, which is removed: one document does not need it ten times.
    let body = match body.split_once("-->") {
        Some((comment, rest)) if comment.trim_start().starts_with("<!--") => rest,
        _ => body,
    };
    let (width, height) = (scene.width.round(), scene.height.round());
    let names: Vec<_> = figure.curves.iter().map(|curve| curve.name.as_str()).collect();
    let label = format!(
        "{}. {} against {}. Curves: {}.",
        figure.title,
        figure.y.label,
        figure.x.label,
        names.join("; ")
    );
    format!(
        "{head} viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{}\">{body}",
        minijinja::HtmlEscape(&label)
    )
}

#[cfg(test)]
mod tests;
