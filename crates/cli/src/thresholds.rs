//! Thresholds, as text for people and as JSON for programs.

use std::fmt::Write;

use genie::mechanism::Thresholds;
use genie_lab::length;
use serde::Serialize;

/// The shortest data, in bytes, for which copying is avoided; none where copying is never avoided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Shortest {
    output: Option<usize>,
    input: Option<usize>,
    input_run: Option<usize>,
    input_edge: Option<usize>,
    mapping: Option<usize>,
}

impl From<&Thresholds> for Shortest {
    fn from(thresholds: &Thresholds) -> Self {
        let finite = |bytes: usize| (bytes != usize::MAX).then_some(bytes);
        Self {
            output: finite(thresholds.output),
            input: finite(thresholds.input),
            input_run: finite(thresholds.input_run),
            input_edge: finite(thresholds.input_edge),
            mapping: finite(thresholds.mapping),
        }
    }
}

impl Shortest {
    /// The thresholds, a line for each.
    pub(crate) fn text(self) -> String {
        let lines = [
            ("output (t_o)", self.output),
            ("input on one partly filled granule (t_i)", self.input),
            ("input on a run of full granules", self.input_run),
            ("input on a partly filled granule beside such a run", self.input_edge),
            ("another lender's buffer, mapped to a server (t_m)", self.mapping),
        ];
        let mut text = "copying is avoided from these lengths on:\n".to_owned();
        for (what, bytes) in lines {
            let from = bytes.map_or("never".to_owned(), readable);
            let _ = writeln!(text, "  {what:50}  {from}");
        }
        text
    }
}

/// A number of bytes, with an approximation where it is no round number.
fn readable(bytes: usize) -> String {
    let exact = length::format(bytes);
    if bytes >= 10_000 && exact.ends_with(" B") {
        return format!("{exact} ({})", length::approximate(bytes as u64));
    }
    exact
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threshold_that_is_never_reached_is_none() {
        let shortest = Shortest::from(&Thresholds::NEVER);
        assert_eq!(shortest.output, None);
        assert_eq!(shortest.text().matches("never").count(), 5);
        assert_eq!(Shortest::from(&Thresholds::ALWAYS).input_edge, Some(1));
    }

    #[test]
    fn odd_numbers_are_explained() {
        assert_eq!(readable(4096), "4 KiB");
        assert_eq!(readable(700_001), "700001 B (683.6 KiB)");
    }
}
