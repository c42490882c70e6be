//! The axes of a figure: their ranges, divisions and words.
//!
//! How: lengths in bytes on a logarithmic axis are divided by powers of two, which people know by name (`64 KiB`); other
//! logarithmic axes are divided by 1, 2 and 5 where they span little, else by ten.

use std::sync::Arc;

use kuva::render::layout::{Layout, TickFormat};
use kuva::render::theme::Theme;

use super::{FONT, Ink, Shape};
use crate::findings::{Axis, Figure, Scale};
use crate::length;

/// Values at or below this have no place on a logarithmic axis.
const LEAST: f64 = 1e-6;
/// How far whiskers may stretch the vertical axis beyond the medians, as a factor; longer ones are cut.
const REACH: f64 = 1.6;
/// Room at either end of an axis of lengths, in doublings.
const BESIDE: f64 = 0.3;
/// How many letters a label on the axis of lengths takes, with the space between two labels.
const LETTERS: f64 = 9.0;

/// How values are mapped to places on an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Division {
    Linear,
    PowersOfTwo,
    Logarithmic,
}

impl Division {
    fn of(axis: &Axis) -> Self {
        match axis.scale {
            Scale::Linear => Self::Linear,
            Scale::Logarithmic if axis.label.contains("byte") => Self::PowersOfTwo,
            Scale::Logarithmic => Self::Logarithmic,
        }
    }
}

/// Both axes, with the ranges that they must show.
#[derive(Debug)]
pub(super) struct Axes {
    x: Division,
    y: Division,
    across: (f64, f64),
    up: (f64, f64),
}

impl Axes {
    /// Axes that show all of a figure.
    pub(super) fn around(figure: &Figure) -> Self {
        let (x, y) = (Division::of(&figure.x), Division::of(&figure.y));
        let points = || figure.curves.iter().flat_map(|curve| &curve.points);
        let across = range(points().map(|point| place(x, point.x)));
        let medians = range(points().map(|point| place(y, point.y)));
        let reach = (medians.0.min(medians.0 / REACH), medians.1.max(medians.1 * REACH));
        let ends = points().flat_map(|point| [point.low, point.high]).flatten();
        let reached = ends.map(|end| place(y, end).clamp(reach.0, reach.1));
        let up = range([medians.0, medians.1].into_iter().chain(reached));
        Self { x, y, across: beside(x, across), up: padded(y, up) }
    }

    /// Where the end of a whisker is; a rare sample must not carry it out of the drawing.
    pub(super) fn end(&self, value: f64) -> f64 {
        self.up(value).clamp(self.up.0, self.up.1)
    }

    /// Where a value is in the library's coordinates, across.
    pub(super) fn across(&self, value: f64) -> f64 {
        place(self.x, value)
    }

    /// Where a value is in the library's coordinates, upwards.
    pub(super) fn up(&self, value: f64) -> f64 {
        place(self.y, value)
    }

    /// The layout, as the plotting library needs it.
    pub(super) fn layout(&self, figure: &Figure, shape: Shape, ink: Ink) -> Layout {
        let width = f64::from(shape.width - shape.legend.unwrap_or_default());
        let letters = (width * 0.8 / (f64::from(shape.text) * LETTERS * 0.6)).max(2.0);
        let mut layout = Layout::new(self.across, self.up)
            .with_width(width)
            .with_height(f64::from(shape.height))
            .with_x_label(&figure.x.label)
            .with_y_label(&figure.y.label)
            .with_y_label_wrap(if shape.legend.is_some() { 60 } else { 40 })
            .with_x_axis_min(self.across.0)
            .with_x_axis_max(self.across.1)
            .with_y_axis_min(self.up.0)
            .with_y_axis_max(self.up.1)
            .with_label_size(shape.text)
            .with_tick_size(shape.text - 1)
            .with_body_size(shape.text)
            .with_font_family(FONT)
            .with_theme(theme(ink))
            .with_grid_line_width(1.0)
            .with_x_label_overlap(kuva::render::layout::AxisLabelOverlap::Thin)
            .with_tick_format(TickFormat::Custom(Arc::new(number)));
        layout = match self.x {
            Division::Linear => layout,
            Division::Logarithmic => layout.with_log_x(),
            Division::PowersOfTwo => {
                let step = ((self.across.1 - self.across.0) / letters).ceil().max(1.0);
                layout.with_x_tick_step(step).with_x_tick_format(TickFormat::Custom(Arc::new(power_of_two)))
            }
        };
        match self.y {
            Division::Linear => layout,
            Division::Logarithmic => layout.with_log_y(),
            Division::PowersOfTwo => {
                layout.with_y_tick_step(1.0).with_y_tick_format(TickFormat::Custom(Arc::new(power_of_two)))
            }
        }
    }
}

/// A value in the library's coordinates.
fn place(division: Division, value: f64) -> f64 {
    match division {
        Division::Linear => value,
        Division::Logarithmic => value.max(LEAST),
        Division::PowersOfTwo => value.max(1.0).log2(),
    }
}

fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (low, high) = values
        .filter(|value| value.is_finite())
        .fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(value), high.max(value)));
    if low <= high { (low, high) } else { (1.0, 10.0) }
}

/// The range of the horizontal axis; a single value is in the middle.
fn beside(division: Division, (low, high): (f64, f64)) -> (f64, f64) {
    let room = if low < high { BESIDE } else { 1.0 };
    match division {
        Division::PowersOfTwo => (low - room, high + room),
        _ => padded(division, (low, high)),
    }
}

/// The range with some room; from zero where it is linear and nothing is negative.
fn padded(division: Division, (low, high): (f64, f64)) -> (f64, f64) {
    match division {
        Division::Logarithmic => (stepped(low / 1.05, false), stepped(high * 1.05, true)),
        Division::PowersOfTwo => (low.floor(), high.ceil().max(low.floor() + 1.0)),
        Division::Linear => {
            let room = ((high - low.min(0.0)) * 0.06).max(f64::EPSILON);
            (if low < 0.0 { low - room } else { 0.0 }, if high > 0.0 { high + room } else { 1.0 })
        }
    }
}

/// The next of 1, 2 and 5 times a power of ten, up or down.
fn stepped(value: f64, up: bool) -> f64 {
    let power = 10_f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
    let found = if up {
        steps.into_iter().find(|step| *step >= value * (1.0 - 1e-9))
    } else {
        steps.into_iter().rev().find(|step| *step <= value * (1.0 + 1e-9))
    };
    found.unwrap_or(value)
}

fn power_of_two(power: f64) -> String {
    length::format(2_f64.powf(power).round() as usize)
}

/// A number without needless digits: `0.5`, `20`, `10 000`.
fn number(value: f64) -> String {
    if value.fract().abs() > 1e-9 || value.abs() < 1e4 {
        let rounded = (value * 1e4).round() / 1e4;
        return rounded.to_string();
    }
    let digits = format!("{value:.0}");
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy).collect();
    groups.join("\u{202f}")
}

fn theme(ink: Ink) -> Theme {
    Theme {
        background: ink.ground().to_owned(),
        axis_color: ink.axis().to_owned(),
        grid_color: ink.grid().to_owned(),
        tick_color: ink.axis().to_owned(),
        text_color: ink.text().to_owned(),
        ..Theme::light()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_grouped() {
        for (value, text) in [(0.05, "0.05"), (20.0, "20"), (2000.0, "2000"), (20_000.0, "20\u{202f}000")] {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn logarithmic_ranges_end_at_divisions() {
        assert_eq!((stepped(3.1, false), stepped(3.1, true)), (2.0, 5.0));
        assert_eq!((stepped(10.0, false), stepped(10.0, true)), (10.0, 10.0));
    }
}
