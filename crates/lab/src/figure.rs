//! Draws figures as SVG.
//!
//! How: the plotting library draws axes, grid and lines; markers, whiskers and the legend are added in its own primitives,
//! since it has no hollow markers and its legend shows either a line or a marker. Each curve differs from the others in
//! colour and marker, and estimates are dashed. The legend lists the curves as they end, from top to bottom.
//! Limits: the files of this module are the only ones that know the plotting library.

mod axes;
mod curve;
mod legend;
pub mod palette;
mod style;

use kuva::backend::svg::SvgBackend;
use kuva::render::layout::ComputedLayout;
use kuva::render::render::{Scene, render_multiple};

use crate::findings::Figure;
use axes::Axes;
pub use palette::Ink;

/// How large a drawing is, and where its legend stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Its width, of which its text is a part of readable size.
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

/// The typefaces of all drawings.
pub const FONT: &str = "system-ui, Segoe UI, Roboto, DejaVu Sans, Liberation Sans, Arial, sans-serif";

/// The name of a figure's file.
pub fn file(experiment: &str, figure: &Figure) -> String {
    let name = figure.name.as_str();
    if name.starts_with(experiment) { format!("{name}.svg") } else { format!("{experiment}-{name}.svg") }
}

/// Draws a figure.
pub fn draw(figure: &Figure, shape: Shape, ink: Ink) -> String {
    let axes = Axes::around(figure);
    let styles = style::assign(&figure.curves);
    let order = legend::order(figure, &axes);
    let layout = axes.layout(figure, shape, ink);
    let lines = curve::lines(figure, &axes, &styles, ink);
    let computed = ComputedLayout::from_layout(&layout);
    let mut scene = render_multiple(lines, layout);
    for (curve, style) in figure.curves.iter().zip(&styles) {
        curve::marks(&mut scene, &computed, &axes, curve, *style, ink);
    }
    legend::add(&mut scene, &computed, figure, &order, &styles, shape, ink);
    finished(&scene, figure)
}

/// The drawing as text: it scales with what it stands in, and says what it shows to who cannot see it.
fn finished(scene: &Scene, figure: &Figure) -> String {
    let svg = SvgBackend::new().render_scene(scene);
    let (head, body) = svg.split_once('>').unwrap_or(("", &svg));
    // The library signs its drawings with a comment, which one document needs no ten times.
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
