//! A curve: its line, its markers, and its spread.

use kuva::plot::{LinePlot, LineStyle};
use kuva::render::color::Color;
use kuva::render::layout::ComputedLayout;
use kuva::render::plots::Plot;
use kuva::render::render::{PathData, Primitive, Scene};

use super::Ink;
use super::axes::Axes;
use super::style::{LINE, Mark, Style};
use crate::findings::{Curve, Figure};

/// Half the width of a marker.
const MARKER: f64 = 4.2;
/// How much of a curve's colour its spread has.
const FAINT: f64 = 0.45;

/// The lines of all curves.
pub(super) fn lines(figure: &Figure, axes: &Axes, styles: &[Style], ink: Ink) -> Vec<Plot> {
    let line = |(curve, style): (&Curve, &Style)| {
        let points: Vec<_> =
            curve.points.iter().map(|point| (axes.across(point.x), axes.up(point.y))).collect();
        // The library draws axes around lines only: where there is none to be seen, it has no width.
        let width = if is_joined(curve) { style.width } else { 0.0 };
        let line = LinePlot::new().with_data(points).with_color(ink.hue(style.hue)).with_stroke_width(width);
        Plot::Line(match style.dashes {
            Some(dashes) => line.with_line_style(LineStyle::Custom(dashes.to_owned())),
            None => line,
        })
    };
    in_front(figure, styles).into_iter().map(line).collect()
}

/// Whether a line joins the points: measured ones must be so many that it does not pass for a curve that was measured.
pub(super) fn is_joined(curve: &Curve) -> bool {
    !curve.measured || curve.points.len() >= LINE
}

/// The curves in the order in which they are drawn, each over those before it: emulated copy comes last.
pub(super) fn in_front<'f>(figure: &'f Figure, styles: &'f [Style]) -> Vec<(&'f Curve, &'f Style)> {
    let mut all: Vec<_> = figure.curves.iter().zip(styles).collect();
    all.sort_by_key(|(curve, _)| curve.name.starts_with("emulated copy"));
    all
}

/// Adds the markers of a curve and, behind them, its spread.
pub(super) fn marks(
    scene: &mut Scene,
    computed: &ComputedLayout,
    axes: &Axes,
    curve: &Curve,
    style: Style,
    ink: Ink,
) {
    for point in &curve.points {
        let x = computed.map_x(axes.across(point.x));
        if let (Some(low), Some(high)) = (point.low, point.high) {
            let ends = [low, high].map(|end| computed.map_y(axes.end(end)));
            scene.add(whisker(x, ends, ink.hue(style.hue)));
        }
    }
    if style.marked {
        for point in &curve.points {
            let place = (computed.map_x(axes.across(point.x)), computed.map_y(axes.up(point.y)));
            scene.add(marker(place, style, ink));
        }
    }
}

fn whisker(x: f64, [low, high]: [f64; 2], colour: &str) -> Primitive {
    Primitive::Path(Box::new(PathData {
        d: format!("M{x:.1},{low:.1} L{x:.1},{high:.1}"),
        fill: None,
        stroke: Color::from(colour),
        stroke_width: 1.2,
        opacity: Some(FAINT),
        stroke_dasharray: None,
    }))
}

/// A marker, also for the legend.
pub(super) fn marker((x, y): (f64, f64), style: Style, ink: Ink) -> Primitive {
    let corner = |(across, up): (f64, f64)| format!("{:.1},{:.1}", x + across * MARKER, y - up * MARKER);
    let path = |corners: &[(f64, f64)]| {
        let corners: Vec<_> = corners.iter().copied().map(corner).collect();
        format!("M{} Z", corners.join(" L"))
    };
    let d = match style.mark {
        Mark::Circle => {
            let (left, right) = (x - MARKER, x + MARKER);
            format!(
                "M{left:.1},{y:.1} A{MARKER},{MARKER} 0 1 0 {right:.1},{y:.1} A{MARKER},{MARKER} 0 1 0 {left:.1},{y:.1} Z"
            )
        }
        Mark::Square => path(&[(-0.9, -0.9), (-0.9, 0.9), (0.9, 0.9), (0.9, -0.9)]),
        Mark::Triangle => path(&[(-1.1, -0.85), (0.0, 1.15), (1.1, -0.85)]),
        Mark::Diamond => path(&[(-1.25, 0.0), (0.0, 1.25), (1.25, 0.0), (0.0, -1.25)]),
    };
    let fill = if style.full { ink.hue(style.hue) } else { ink.ground() };
    Primitive::Path(Box::new(PathData {
        d,
        fill: Some(Color::from(fill)),
        stroke: Color::from(ink.hue(style.hue)),
        stroke_width: 1.6,
        opacity: None,
        stroke_dasharray: None,
    }))
}
