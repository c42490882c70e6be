//! Thresholds, as text for people and as JSON for programs.

use std::fmt::Write;

use genie::mechanism::{Costs, Thresholds};
use genie_lab::length;
use serde::Serialize;

/// The shortest data, in bytes, for which copying is avoided; none where copying is never avoided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Shortest {
    output: Option<usize>,
    unchanged: Option<usize>,
    held: Option<usize>,
    input: Option<usize>,
    input_alone: Option<usize>,
    input_run: Option<usize>,
    input_edge: Option<usize>,
    mapping: Option<usize>,
}

/// The thresholds for both kinds of servers.
#[derive(Debug, Serialize)]
pub(crate) struct Both {
    /// For servers in the client's process.
    thresholds: Shortest,
    /// For servers in other processes, on another CPU.
    thresholds_between_processes: Shortest,
}

impl Both {
    pub(crate) fn of(costs: &Costs, granule: usize) -> Self {
        let of = |costs: &Costs| Shortest::from(&Thresholds::derive(costs, granule));
        Self { thresholds: of(costs), thresholds_between_processes: of(&costs.between()) }
    }

    /// The thresholds, a line for each.
    pub(crate) fn text(&self) -> String {
        let mut text = format!(
            "copying is avoided from these lengths on:{:14} {:>20} {:>20}\n",
            "", "in one process", "between processes"
        );
        for ((what, here), (_, there)) in
            self.thresholds.lines().into_iter().zip(self.thresholds_between_processes.lines())
        {
            let [here, there] = [here, there].map(|bytes| bytes.map_or("never".to_owned(), readable));
            let _ = writeln!(text, "  {what:53} {here:>20} {there:>20}");
        }
        text
    }
}

impl From<&Thresholds> for Shortest {
    fn from(thresholds: &Thresholds) -> Self {
        let finite = |bytes: usize| (bytes != usize::MAX).then_some(bytes);
        Self {
            output: finite(thresholds.output),
            unchanged: finite(thresholds.unchanged),
            held: finite(thresholds.held),
            input: finite(thresholds.input),
            input_alone: finite(thresholds.input_alone),
            input_run: finite(thresholds.input_run),
            input_edge: finite(thresholds.input_edge),
            mapping: finite(thresholds.mapping),
        }
    }
}

impl Shortest {
    fn lines(self) -> [(&'static str, Option<usize>); 8] {
        [
            ("output whose data is borrowed (send)", self.held),
            ("output whose data is not (submit: t_o)", self.output),
            ("the same, while its data stays unchanged", self.unchanged),
            ("input on one partly filled granule (t_i)", self.input),
            ("the same, where the granule holds nothing else", self.input_alone),
            ("input on a run of full granules", self.input_run),
            ("input on a partly filled granule beside such a run", self.input_edge),
            ("another lender's buffer, mapped to a server (t_m)", self.mapping),
        ]
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
        let [thresholds, thresholds_between_processes] =
            [&Thresholds::ALWAYS, &Thresholds::NEVER].map(Shortest::from);
        assert_eq!((thresholds.input_edge, thresholds_between_processes.output), (Some(1), None));
        let text = Both { thresholds, thresholds_between_processes }.text();
        assert_eq!((text.matches(" 1 B").count(), text.matches(" never").count()), (8, 8), "{text}");
    }

    #[test]
    fn odd_numbers_are_explained() {
        assert_eq!(readable(4096), "4 KiB");
        assert_eq!(readable(700_001), "700001 B (683.6 KiB)");
    }
}
