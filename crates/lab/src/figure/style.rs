//! How each curve looks: a colour, a marker, and a dashed line where it is an estimate.
//!
//! How: a scheme's colour and marker are the same in all figures. The shape of the marker tells the semantics; the marker is
//! full for the emulated scheme, hollow for the basic one. A curve that would look like an earlier curve gets another marker
//! and finer dashes. Curves of no scheme get the remaining looks, in order.

use crate::figure::palette::Hue;
use crate::findings::Curve;

/// The pattern of an estimate's line.
const ESTIMATE: &str = "7 5";
/// The patterns of curves that would otherwise look like another one.
const OTHERWISE: [&str; 3] = ["2 3", "10 3 2 3", "12 4"];

/// Curves that others are compared with, whose colours are the same in all figures.
const KNOWN: [&str; 9] = [
    "shared-memory",
    "unix-stream",
    "pipe",
    "tcp-loopback",
    "process-vm",
    "shared-memory-copy",
    "iceoryx2-loan",
    "zeromq-ipc",
    "iceoryx2-copy",
];
/// The patterns of such curves: of those that sleep, and of those that spin.
const BESIDE: [&str; 2] = ["7 2 1 2", "2 2"];
/// The widths of the line of a curve, and of a curve that others are compared with.
const WIDTH: f64 = 2.0;
const THIN: f64 = 1.5;

/// How many measured points make a line.
pub(super) const LINE: usize = 3;

/// The shape of a marker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    Circle,
    Square,
    Triangle,
    Diamond,
}

const MARKS: [Mark; 4] = [Mark::Circle, Mark::Square, Mark::Triangle, Mark::Diamond];

/// How a curve looks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Style {
    pub(super) hue: Hue,
    pub(super) mark: Mark,
    pub(super) full: bool,
    pub(super) dashes: Option<&'static str>,
    /// The line's width.
    pub(super) width: f64,
    /// Whether markers are drawn.
    pub(super) marked: bool,
}

/// The schemes' names; where a name ends with another name, the longer one is first.
const SCHEMES: [(&str, Hue, Mark, bool); 8] = [
    ("emulated weak move", Hue::Grey, Mark::Diamond, true),
    ("emulated share", Hue::Green, Mark::Square, true),
    ("emulated copy", Hue::Blue, Mark::Circle, true),
    ("emulated move", Hue::Vermilion, Mark::Triangle, true),
    ("weak move", Hue::Purple, Mark::Diamond, false),
    ("share", Hue::Sky, Mark::Square, false),
    ("copy", Hue::Black, Mark::Circle, false),
    ("move", Hue::Amber, Mark::Triangle, false),
];

/// The looks of these curves, which all differ as long as there are enough looks.
pub(super) fn assign(curves: &[Curve]) -> Vec<Style> {
    let mut styles: Vec<Style> = Vec::with_capacity(curves.len());
    for curve in curves {
        let dashes = (!curve.measured).then_some(ESTIMATE);
        let style = match scheme(&curve.name) {
            _ if curve.beside => beside(&curve.name, &styles),
            Some((_, hue, mark, full)) => plain(*hue, *mark, *full, dashes),
            None => unused(&styles, dashes, curves),
        };
        // An estimate's points were computed, not observed: its line is enough.
        let marked = match curve.beside {
            true => curve.points.len() < LINE,
            false => curve.measured || curve.points.len() == 1,
        };
        let style = Style { marked, ..style };
        styles.push(if curve.beside && !styles.contains(&style) { style } else { distinct(&styles, style) });
    }
    styles
}

fn plain(hue: Hue, mark: Mark, full: bool, dashes: Option<&'static str>) -> Style {
    Style { hue, mark, full, dashes, width: WIDTH, marked: false }
}

/// The look of a curve that others are compared with: that of its name in all figures, or the next one.
fn beside(name: &str, styles: &[Style]) -> Style {
    let polled = name.strip_suffix("-polled");
    let known = KNOWN.iter().position(|known| *known == polled.unwrap_or(name));
    let next = || KNOWN.len() + styles.iter().filter(|style| style.width < WIDTH).count();
    let hue = Hue::ALL[known.unwrap_or_else(next) % Hue::ALL.len()];
    Style { width: THIN, ..plain(hue, Mark::Diamond, false, Some(BESIDE[usize::from(polled.is_some())])) }
}

/// The scheme of a curve, by the beginning of the curve's name.
fn scheme(name: &str) -> Option<&'static (&'static str, Hue, Mark, bool)> {
    SCHEMES.iter().find(|(scheme, ..)| {
        name.strip_prefix(scheme).is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
    })
}

/// A look whose colour no other curve has, where there is one.
fn unused(styles: &[Style], dashes: Option<&'static str>, curves: &[Curve]) -> Style {
    let of_schemes = || curves.iter().filter_map(|curve| scheme(&curve.name)).map(|(_, hue, ..)| *hue);
    let count = |hue: Hue| {
        styles.iter().filter(|style| style.hue == hue).count()
            + of_schemes().filter(|other| *other == hue).count()
    };
    let hue = Hue::ALL.into_iter().min_by_key(|hue| count(*hue)).unwrap_or(Hue::Black);
    let others = styles.iter().filter(|style| style.dashes == dashes).count();
    let full = (others / MARKS.len()).is_multiple_of(2);
    plain(hue, MARKS[others % MARKS.len()], full, dashes)
}

/// The look, or the next similar look that no other curve has.
fn distinct(styles: &[Style], style: Style) -> Style {
    let patterns = std::iter::once(style.dashes).chain(OTHERWISE.map(Some));
    let looks = patterns.flat_map(|dashes| {
        let next = |step: usize| MARKS[(style.mark as usize + step) % MARKS.len()];
        // The pattern alone is hard to see where lines are short: the marker changes with it.
        (usize::from(dashes != style.dashes)..MARKS.len())
            .map(move |step| Style { mark: next(step), dashes, ..style })
            .take(if dashes == style.dashes { 1 } else { MARKS.len() })
    });
    looks.into_iter().find(|look| !styles.contains(look)).unwrap_or(style)
}
