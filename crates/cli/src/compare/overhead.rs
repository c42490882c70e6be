//! How much more a server in another process costs than a server in the client's process, when both were measured.
//!
//! Source: thesis chapter 9, figure 9.1: the difference should be the same at every length.

use genie_lab::samples::rounded;
use serde::Serialize;

use super::bench::Place;
use super::document::Row;

/// One scheme at one length in one direction.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Overhead {
    /// With its call, where that is the less usual one.
    pub(super) scheme: String,
    pub(super) direction: &'static str,
    pub(super) length: usize,
    /// How much longer the median latency is with the server in a process of its own.
    pub(super) latency_us: f64,
}

/// The differences, in the order of the rows; none where only one kind of server was measured.
pub(super) fn of(rows: &[Row]) -> Vec<Overhead> {
    let at = |place: Place| rows.iter().filter(move |row| row.server == place.name());
    at(Place::Process)
        .filter_map(|there| {
            let here =
                at(Place::InProcess).find(|here| (here.label(), here.at()) == (there.label(), there.at()))?;
            Some(Overhead {
                scheme: there.label(),
                direction: there.direction,
                length: there.length,
                latency_us: rounded(there.latency_us.median - here.latency_us.median),
            })
        })
        .collect()
}

/// For each length and direction, the middle, the least and the greatest difference among the schemes.
pub(super) fn lines(all: &[Overhead]) -> Vec<String> {
    all.chunk_by(|a, b| (a.length, a.direction) == (b.length, b.direction))
        .map(|block| {
            let mut times: Vec<_> = block.iter().map(|one| one.latency_us).collect();
            times.sort_by(f64::total_cmp);
            let (least, middle, most) = (times[0], times[times.len() / 2], times[times.len() - 1]);
            let length = genie_lab::length::format(block[0].length);
            format!("  {length:>8} {:3}  {middle:8.2} us  ({least:.2} to {most:.2})", block[0].direction)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_give_the_middle_difference_of_each_length() {
        let one = |scheme: &str, length, latency_us| Overhead {
            scheme: scheme.to_owned(),
            direction: "out",
            length,
            latency_us,
        };
        let all = [one("copy", 64, 1.5), one("move", 64, 1.0), one("share", 64, 9.0), one("copy", 4096, 2.0)];
        let lines = lines(&all);
        assert_eq!(lines.len(), 2);
        assert_eq!(
            lines[0].split_whitespace().collect::<Vec<_>>().join(" "),
            "64 B out 1.50 us (1.00 to 9.00)"
        );
    }
}
