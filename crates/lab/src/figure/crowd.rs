//! Which curves are drawn where there are too many to be told apart, and what is said of the others.
//!
//! How: of curves that lie on one another one is drawn; of the rest, the first ones, emulated copy and copy before all. Words
//! below the legend name the others.

use std::collections::BTreeMap;

use crate::findings::{CurvePoint, Figure};

/// The most curves of a drawing.
pub(super) const MOST: usize = 8;
/// Curves lie on one another where no two of their points are further apart than this.
const ALIKE: f64 = 1.05;
/// The curves that are there in any case.
const FIRST: [&str; 2] = ["emulated copy", "copy"];

/// The figures, which share their curves' names, with as many of their curves as can be told apart, and sentences about the others.
pub(super) fn thinned(figures: &[Figure]) -> (Vec<Figure>, Vec<String>) {
    let mut names: Vec<&str> = Vec::new();
    for curve in figures.iter().flat_map(|figure| &figure.curves) {
        if !names.contains(&curve.name.as_str()) {
            names.push(&curve.name);
        }
    }
    if names.len() <= MOST {
        return (figures.to_vec(), Vec::new());
    }
    names.sort_by_key(|name| FIRST.iter().position(|first| first == name).unwrap_or(FIRST.len()));
    let (mut drawn, mut left_out) = (Vec::<&str>::new(), Vec::<&str>::new());
    let mut hidden = BTreeMap::<&str, Vec<&str>>::new();
    for name in names {
        match drawn.iter().find(|other| figures.iter().all(|figure| are_alike(figure, name, other))) {
            Some(other) => hidden.entry(*other).or_default().push(name),
            None if drawn.len() == MOST => left_out.push(name),
            None => drawn.push(name),
        }
    }
    let lie = |(one, others): (&str, Vec<&str>)| format!("On {one}, within 5 %: {}.", others.join(", "));
    let mut notes: Vec<_> = hidden.into_iter().map(lie).collect();
    if !left_out.is_empty() {
        notes.push(format!("Not drawn: {}.", left_out.join(", ")));
    }
    let keep = |figure: &Figure| {
        let curves = figure.curves.iter().filter(|curve| drawn.contains(&curve.name.as_str()));
        Figure { curves: curves.cloned().collect(), ..figure.clone() }
    };
    (figures.iter().map(keep).collect(), notes)
}

/// Whether two curves of a figure lie on one another; two that are not in it do.
fn are_alike(figure: &Figure, one: &str, other: &str) -> bool {
    let points =
        |name: &str| figure.curves.iter().find(|curve| curve.name == name).map(|curve| &curve.points);
    let near = |(one, other): (&CurvePoint, &CurvePoint)| {
        let ratio = one.y / other.y;
        one.x == other.x && (ratio == 1.0 || (ratio <= ALIKE && ratio >= ALIKE.recip()))
    };
    match (points(one), points(other)) {
        (None, None) => true,
        (Some(one), Some(other)) => one.len() == other.len() && one.iter().zip(other).all(near),
        _ => false,
    }
}
