use super::*;
use crate::findings::{Axis, Curve, CurvePoint, Scale};

fn curve(name: &str, measured: bool, ends: f64) -> Curve {
    let points = [(64.0, 1.0), (65_536.0, ends)].map(|(x, y)| CurvePoint {
        x,
        y,
        low: measured.then_some(y * 0.9),
        high: measured.then_some(y * 1.2),
    });
    Curve { name: name.to_owned(), points: points.to_vec(), measured, beside: false }
}

fn figure(curves: Vec<Curve>) -> Figure {
    let axis = |label: &str| Axis { label: label.to_owned(), scale: Scale::Logarithmic };
    Figure {
        name: "unlimited".to_owned(),
        title: "Latency <by> scheme".to_owned(),
        x: axis("data length in bytes"),
        y: axis("latency in microseconds"),
        curves,
    }
}

/// Where texts are in a drawing, by what they say.
fn position(svg: &str, text: &str) -> usize {
    svg.find(&format!(">{text}</text>")).unwrap_or_else(|| panic!("no {text} in {svg}"))
}

#[test]
fn the_legend_lists_curves_as_they_end_from_top_to_bottom() {
    let curves = vec![curve("share", true, 30.0), curve("copy", true, 90.0), curve("move", true, 60.0)];
    for shape in [WIDE, NARROW] {
        let svg = draw(&figure(curves.clone()), shape, Ink::Printed);
        let places = ["copy", "move", "share"].map(|name| position(&svg, name));
        assert!(places.is_sorted(), "{places:?}");
    }
}

#[test]
fn estimates_are_dashed_and_measurements_are_not() {
    let dashes = |measured| {
        draw(&figure(vec![curve("copy", measured, 90.0)]), WIDE, Ink::Printed)
            .contains("stroke-dasharray=\"7 5\"")
    };
    assert!(dashes(false) && !dashes(true));
}

#[test]
fn a_sheet_has_every_figure_and_each_curve_once_in_one_legend() {
    let beside = Curve { beside: true, ..curve("pipe", true, 99.0) };
    let panel = |title: &str, curves: &[Curve]| Figure { title: title.to_owned(), ..figure(curves.to_vec()) };
    let svg = sheet(
        "A machine",
        &[
            panel("output", &[curve("copy", true, 90.0), beside.clone()]),
            panel("input", &[beside, curve("share", true, 30.0)]),
        ],
    );
    for words in ["A machine", "output", "input", "copy", "share", "pipe"] {
        assert_eq!(svg.matches(&format!(">{words}</text>")).count(), 1, "{words}");
    }
    let places = ["copy", "share", "pipe"].map(|name| position(&svg, name));
    assert!(places.is_sorted(), "what others are compared with comes last: {places:?}");
}

#[test]
fn no_two_curves_look_alike() {
    let names = [
        "copy",
        "emulated copy",
        "copy, in a process",
        "emulated copy, in a process",
        "move",
        "weak move",
        "memcpy",
        "checksum apart",
        "share",
        "emulated share",
        "emulated move",
        "emulated weak move",
        "limit",
    ];
    let curves: Vec<_> = names.map(|name| curve(name, true, 1.0)).to_vec();
    let styles = style::assign(&curves);
    for (index, style) in styles.iter().enumerate() {
        let alike = styles[..index].iter().position(|other| other == style);
        assert!(alike.is_none(), "{} looks like {}", names[index], names[alike.unwrap_or_default()]);
    }
    let look = |one: &Style| (one.mark, one.full, one.dashes);
    let colourless = |one: usize, other: usize| look(&styles[one]) == look(&styles[other]);
    assert!(!colourless(0, 1) && !colourless(0, 2) && !colourless(1, 3), "{styles:?}");
}

#[test]
fn an_estimate_has_the_colour_of_its_scheme() {
    let curves = [curve("emulated copy", true, 1.0), curve("emulated copy, estimated", false, 1.0)];
    let styles = style::assign(&curves);
    assert_eq!(styles[0].hue, styles[1].hue);
    assert_ne!(styles[0], styles[1]);
}

#[test]
fn lengths_on_the_axis_are_written_as_people_write_them() {
    let svg = draw(&figure(vec![curve("copy", true, 90.0)]), WIDE, Ink::Printed);
    for text in ["64 B", "64 KiB", "data length in bytes", "latency in microseconds"] {
        position(&svg, text);
    }
}

#[test]
fn a_drawing_in_a_page_takes_all_its_colours_from_the_page() {
    let svg = draw(&figure(vec![curve("copy", true, 90.0), curve("limit", true, 2.0)]), WIDE, Ink::OfPage);
    assert!(svg.contains("var(--paper)") && svg.contains("var(--ink)"));
    assert!(!svg.contains("=\"#"), "{svg}");
    assert!(svg.contains("aria-label=\"Latency &lt;by&gt; scheme. latency in microseconds against"));
}

#[test]
fn a_figure_with_one_point_or_none_is_drawn_all_the_same() {
    let mut one = curve("copy", true, 90.0);
    one.points.truncate(1);
    let mut none = one.clone();
    none.points.clear();
    for curves in [vec![one], vec![none], vec![]] {
        assert!(draw(&figure(curves), NARROW, Ink::Printed).ends_with("</svg>"));
    }
}

#[test]
fn a_rare_sample_stretches_the_axis_only_so_far() {
    let mut rare = curve("copy", true, 90.0);
    let height = |curve: &Curve| {
        let svg = draw(&figure(vec![curve.clone()]), WIDE, Ink::Printed);
        svg.matches(">1000</text>").count()
    };
    assert_eq!(height(&rare), 0);
    rare.points[1].high = Some(50_000.0);
    assert_eq!(height(&rare), 0, "the axis goes to where a twentieth of the samples are");
}

#[test]
fn a_file_is_named_for_its_experiment_once() {
    let mut one = figure(Vec::new());
    assert_eq!(file("latency", &one), "latency-unlimited.svg");
    one.name = "latency-unlimited".to_owned();
    assert_eq!(file("latency", &one), "latency-unlimited.svg");
}

/// A picture of twenty curves shows none.
#[test]
fn of_many_curves_eight_are_drawn_and_the_others_are_named() {
    let mut curves: Vec<_> =
        (0..12).map(|index| curve(&format!("means {index}"), true, 10.0 * f64::from(index + 1))).collect();
    curves.push(curve("emulated copy", true, 5.0));
    curves.push(curve("emulated share", true, 5.1));
    let (thinned, notes) = crowd::thinned(&[figure(curves.clone())]);
    assert_eq!(thinned[0].curves.len(), crowd::MOST);
    assert!(thinned[0].curves.iter().any(|curve| curve.name == "emulated copy"));
    assert_eq!(notes[0], "On emulated copy, within 5 %: emulated share.");
    assert_eq!(notes[1], "Not drawn: means 7, means 8, means 9, means 10, means 11.");
    let svg = draw(&figure(curves), WIDE, Ink::Printed);
    assert!(svg.contains(">On emulated copy,"), "{svg}");
}

#[test]
fn emulated_copy_is_in_front_and_two_points_make_no_line() {
    let mut curves = vec![curve("emulated copy", true, 5.0), curve("copy", true, 9.0)];
    let both = figure(curves.clone());
    let styles = style::assign(&both.curves);
    assert_eq!(curve::in_front(&both, &styles).last().unwrap().0.name, "emulated copy");
    assert!(!curve::is_joined(&curves[0]), "two points");
    let middle = CurvePoint { x: 4096.0, ..curves[0].points[1] };
    curves[0].points.insert(1, middle);
    assert!(curve::is_joined(&curves[0]));
}

#[test]
fn the_legend_shows_no_line_where_none_joins_the_points() {
    let lines = |curve| draw(&figure(vec![curve]), WIDE, Ink::Printed).matches("stroke-width=\"2\"").count();
    let two = curve("copy", true, 90.0);
    let middle = CurvePoint { x: 4096.0, ..two.points[1] };
    let three = Curve { points: vec![two.points[0], middle, two.points[1]], ..two.clone() };
    assert_eq!([two, three].map(lines), [0, 2]);
}

#[test]
fn a_means_has_one_look_in_all_figures() {
    let beside = |name: &str| Curve { beside: true, ..curve(name, true, 99.0) };
    let alone = style::assign(&[beside("pipe")])[0];
    let among = style::assign(&[beside("unix-stream"), beside("pipe-polled"), beside("pipe")]);
    assert_eq!((alone, alone.hue), (among[2], among[1].hue));
}
