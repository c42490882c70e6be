//! The legend: the curves in the order of their right ends, from top to bottom.

use kuva::render::color::Color;
use kuva::render::render::{Primitive, Scene, TextAnchor};

use super::axes::Axes;
use super::curve;
use super::style::Style;
use super::{Ink, Shape, text};
use crate::findings::{Curve, Figure};

/// The length of a line's sample.
const SAMPLE: f64 = 34.0;
const GAP: f64 = 9.0;
/// The distance of two lines of text, in heights of letters.
const LEADING: f64 = 1.55;
/// The mean width of a letter, in heights of letters.
const LETTER: f64 = 0.56;

/// The curves in the order in which they end, from top to bottom: by their last points, wherever these are. Curves that
/// others are compared with come last.
pub(super) fn order(figure: &Figure, axes: &Axes) -> Vec<usize> {
    let end = |curve: &Curve| curve.points.last().map_or(f64::MIN, |point| axes.up(point.y));
    let mut order: Vec<_> = (0..figure.curves.len()).collect();
    let order_of = |one: &Curve, other: &Curve| {
        one.beside.cmp(&other.beside).then_with(|| end(other).total_cmp(&end(one)))
    };
    order.sort_by(|one, other| order_of(&figure.curves[*one], &figure.curves[*other]));
    order
}

/// Adds the legend beside the curves, from `top` on, or below them, and the notes on curves that are not drawn; makes room for
/// both.
pub(super) fn add(
    scene: &mut Scene,
    figure: &Figure,
    (order, notes): (&[usize], &[String]),
    styles: &[Style],
    top: f64,
    shape: Shape,
    ink: Ink,
) {
    let line = f64::from(shape.text) * LEADING;
    let (left, mut top, width) = match shape.legend {
        Some(width) => (f64::from(shape.width - width) + GAP, top + line / 2.0, f64::from(width)),
        None => (GAP, f64::from(shape.height) + line / 2.0, f64::from(shape.width)),
    };
    let letters = ((width - SAMPLE - 3.0 * GAP) / (f64::from(shape.text) * LETTER)) as usize;
    for index in order {
        let (curve, style) = (&figure.curves[*index], styles[*index]);
        sample(scene, (left, top), curve, style, ink);
        for part in wrapped(&curve.name, letters) {
            let place = (left + SAMPLE + GAP, top + f64::from(shape.text) * 0.36);
            let colour = Some(Color::from(ink.text()));
            scene.add(text(&part, place, shape.text, TextAnchor::Start, colour));
            top += line;
        }
    }
    for part in notes
        .iter()
        .flat_map(|note| wrapped(note, letters + (SAMPLE / (f64::from(shape.text) * LETTER)) as usize))
    {
        let place = (left, top + f64::from(shape.text) * 0.36);
        scene.add(text(&part, place, shape.text, TextAnchor::Start, Some(Color::from(ink.text()))));
        top += line;
    }
    scene.width = f64::from(shape.width);
    scene.height = scene.height.max(top);
}

/// How a curve looks: a line only where one joins its points.
fn sample(scene: &mut Scene, (left, y): (f64, f64), curve: &Curve, style: Style, ink: Ink) {
    if curve::is_joined(curve) {
        scene.add(Primitive::Line {
            x1: left,
            y1: y,
            x2: left + SAMPLE,
            y2: y,
            stroke: Color::from(ink.hue(style.hue)),
            stroke_width: style.width,
            stroke_dasharray: style.dashes.map(str::to_owned),
        });
    }
    if style.marked {
        scene.add(curve::marker((left + SAMPLE / 2.0, y), style, ink));
    }
}

/// Breaks a name between words into lines of at most `letters` letters.
fn wrapped(name: &str, letters: usize) -> Vec<String> {
    let mut lines: Vec<String> = vec![String::new()];
    for word in name.split_whitespace() {
        let Some(line) = lines.last_mut() else { continue };
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() <= letters {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}
