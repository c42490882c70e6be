//! Thresholds, as text for people and as JSON for programs.

use std::collections::BTreeMap;
use std::fmt::Write;

use genie::mechanism::{Costs, Thresholds};
use genie_lab::length;
use serde::Serialize;

use crate::tables;

/// The length at which costs are compared where copying is never avoided: the longest that thresholds are found for.
const LONG: usize = 16 << 20;

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
    /// Why copying is never avoided, by threshold, where that is so for either kind of server.
    never: BTreeMap<&'static str, String>,
}

/// The costs that are compared: what they contain, so that nobody compares them with times measured elsewhere.
const CONTAIN: &str = "All costs contain what the client's next loads and stores pay for changed mappings, and none contains the server's \
                       work on the data. With two processes, copying costs what it adds: one side loads the data from the other's \
                       cache in any case.";

impl Both {
    pub(crate) fn of(costs: &Costs, granule: usize) -> Self {
        let of = |costs: &Costs| Shortest::from(&Thresholds::derive(costs, granule));
        let (between, mut never) = (costs.between(), BTreeMap::new());
        let [here, there] = [of(costs), of(&between)];
        for (thresholds, costs, place) in [(there, &between, "with two processes, "), (here, costs, "")] {
            let lost = thresholds.lines().into_iter().filter(|line| line.bytes.is_none());
            never.extend(lost.map(|line| (line.name, place.to_owned() + &why(line.name, costs, granule))));
        }
        Self { thresholds: here, thresholds_between_processes: there, never }
    }

    /// The thresholds, a line for each, the reasons where there is none, and what costs contain.
    pub(crate) fn text(&self) -> String {
        let mut text = format!(
            "copying is avoided from these lengths on:{:10} {:>12} {:>12}\n",
            "", "one process", "two of them"
        );
        let lines = self.thresholds.lines().into_iter().zip(self.thresholds_between_processes.lines());
        for (Line { what, bytes, .. }, there) in lines {
            let [here, there] = [bytes, there.bytes].map(|bytes| bytes.map_or("never".to_owned(), readable));
            let _ = writeln!(text, "  {what:49} {here:>12} {there:>12}");
        }
        for (why, whats) in self.reasons() {
            text += &tables::fold(&format!("never for {}: {why}", whats.join(", nor for ")));
        }
        text + &tables::fold(CONTAIN)
    }

    /// The reasons, each with the thresholds that are never reached for it, in their order.
    fn reasons(&self) -> Vec<(&str, Vec<&'static str>)> {
        let mut reasons: Vec<(&str, Vec<_>)> = Vec::new();
        for line in self.thresholds.lines() {
            let Some(why) = self.never.get(line.name) else { continue };
            match reasons.iter_mut().find(|(known, _)| known == why) {
                Some((_, whats)) => whats.push(line.what),
                None => reasons.push((why, vec![line.what])),
            }
        }
        reasons
    }
}

/// Why copying is never avoided below this threshold.
fn why(name: &str, costs: &Costs, granule: usize) -> String {
    let copyin = |len: usize| costs.copyin.at(len) + costs.system_buffer.at(len);
    let copyout = |len: usize| costs.copyout.at(len) + costs.system_buffer.at(len);
    let swap = |len: usize| costs.swap.at(len) + costs.aligned_buffer.at(len);
    let cannot = |what: &str| format!("{what} cannot be used here (see `genie doctor`)");
    let dear = |what: &str, len: usize, cost: f64, copy: f64| {
        let [cost, copy] = [cost, copy].map(|nanoseconds| nanoseconds / 1e3);
        let len = length::format(len);
        format!(
            "{what} {len} costs {cost:.1} us, copying it {copy:.1} us, and avoiding a copy must save a quarter"
        )
    };
    match name {
        "output" | "unchanged" if costs.read_only.points.is_empty() => {
            cannot("write protection, by which output that is not borrowed is referenced,")
        }
        "output" | "unchanged" => {
            dear("protecting and reinstating", LONG, costs.protecting(LONG), copyin(LONG))
        }
        "held" => dear("referencing", LONG, costs.referencing(LONG), copyin(LONG)),
        "mapping" if costs.zero.points.is_empty() => cannot("zeroing the rest of a mapped granule"),
        "mapping" => {
            dear("zeroing the rest of a granule of", granule, costs.zero.at(0), costs.copyin.at(granule))
        }
        _ if costs.swap.points.is_empty() => cannot("page swapping"),
        "input" | "input_edge" if costs.guard.points.is_empty() => {
            cannot("guarding a granule while it is completed")
        }
        "input_run" => dear("swapping", LONG, swap(LONG), copyout(LONG)),
        _ => dear("swapping a granule of", granule, swap(granule), copyout(granule)),
    }
}

/// A threshold: its name in documents, what it is of, and the bytes.
struct Line {
    name: &'static str,
    what: &'static str,
    bytes: Option<usize>,
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
    fn lines(self) -> [Line; 8] {
        [
            ("held", "output by send, or by submit by value", self.held),
            ("output", "output by submit borrowed (t_o)", self.output),
            ("unchanged", "such output whose data stays unchanged", self.unchanged),
            ("input", "input on part of a granule (t_i)", self.input),
            ("input_alone", "input on a granule that holds nothing else", self.input_alone),
            ("input_run", "input on a run of full granules", self.input_run),
            ("input_edge", "input on part of a granule beside such a run", self.input_edge),
            ("mapping", "another lender's buffer, mapped to a server (t_m)", self.mapping),
        ]
        .map(|(name, what, bytes)| Line { name, what, bytes })
    }
}

/// A number of bytes, approximate where it is no round number.
fn readable(bytes: usize) -> String {
    let exact = length::format(bytes);
    if bytes >= 10_000 && exact.ends_with(" B") { length::approximate(bytes as u64) } else { exact }
}

#[cfg(test)]
mod tests {
    use genie_passing::Cost;

    use super::*;

    #[test]
    fn a_threshold_that_is_never_reached_is_none() {
        let [thresholds, thresholds_between_processes] =
            [&Thresholds::ALWAYS, &Thresholds::NEVER].map(Shortest::from);
        assert_eq!((thresholds.input_edge, thresholds_between_processes.output), (Some(1), None));
        let never = BTreeMap::new();
        let text = Both { thresholds, thresholds_between_processes, never }.text();
        assert_eq!((text.matches(" 1 B").count(), text.matches(" never").count()), (8, 8), "{text}");
    }

    #[test]
    fn never_has_a_reason_in_the_costs() {
        let line =
            |per_byte: f64| Cost::measured([1, 4096, LONG].map(|len| (len, per_byte * len as f64)).into());
        let costs = Costs { copyin: line(1.0), copyout: line(1.0), reference: line(0.1), ..Costs::default() };
        let both = |costs: &Costs| Both::of(costs, 4096);
        let unable = both(&costs);
        assert!(unable.never["output"].contains("write protection"), "{:?}", unable.never);
        assert!(unable.never["input_run"].contains("page swapping"), "{:?}", unable.never);
        assert!(!unable.never.contains_key("held"));
        let slow = both(&Costs { read_only: line(2.0), swap: line(3.0), ..costs });
        let said = "protecting and reinstating 16 MiB costs 35232.2 us, copying it 16777.2 us, and avoiding a copy must save a quarter";
        assert_eq!(slow.never["output"], said);
        assert!(slow.never["input_edge"].contains("guarding"), "{:?}", slow.never);
        let text = slow.text();
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        let prose = |text: &str| text.replace("\n  ", " ");
        let alone = "never for output by submit borrowed (t_o): protecting and reinstating 16 MiB";
        assert!(prose(&text).contains(alone), "{text}");
        let both = "never for output by submit borrowed (t_o), nor for such output whose data stays unchanged: write";
        assert!(prose(&unable.text()).contains(both), "{}", unable.text());
    }

    #[test]
    fn a_reason_that_holds_for_other_processes_alone_says_so() {
        let line =
            |per_byte: f64| Cost::measured([1, 4096, LONG].map(|len| (len, per_byte * len as f64)).into());
        let slow = Costs { copyin: line(1.0), copyout: line(1.0), swap: line(0.5), ..Costs::default() };
        let both = Both::of(&Costs { copyout_between: line(0.5), ..slow }, 4096);
        assert!(both.thresholds.input_run.is_some());
        let why = &both.never["input_run"];
        assert!(why.starts_with("with two processes, swapping 16 MiB costs"), "{why}");
    }

    #[test]
    fn odd_numbers_are_explained() {
        assert_eq!(readable(4096), "4 KiB");
        assert_eq!(readable(700_001), "683.6 KiB");
    }
}
