//! What `single-copy-tcp` concludes: the paper's tables, computed anew, and the same tables for this machine.

use crate::amounts::significant;
use crate::experiments::single_copy_tcp::costs::{Direction, PACKET, costs};
use crate::experiments::single_copy_tcp::{BOUNDS, DECLARATION, ORDER, RATIO};
use crate::findings::{Axis, Conclusion, Curve, Figure, Finding, Table, Verdict};
use crate::measurement::Measurements;
use crate::model::reproduced;
use crate::model::reproduced::stacks::{self, MBYTE};
use crate::model::single_copy::{Costs, Stack};
use crate::papers::Rounding;

const DIRECTIONS: [Direction; 2] = [Direction::Transmission, Direction::Reception];

/// Packets of the figure, in powers of two.
const LENGTHS: std::ops::RangeInclusive<u32> = 8..=16;

pub(super) fn conclude(measurements: &Measurements) -> Conclusion {
    let mut conclusion = Conclusion {
        tables: [stacks::transmission(), stacks::reception(), stacks::bounds()]
            .iter()
            .map(reproduced::Reproduced::table)
            .collect(),
        notes: vec![reproduced::KEY.to_owned(), of_the_paper(), unmeasured()],
        ..Conclusion::default()
    };
    let here: Option<Vec<Costs>> =
        DIRECTIONS.into_iter().map(|direction| costs(measurements, direction)).collect();
    let Some(here) = here else {
        let found =
            "Calls, packets, copies and checksums were not measured, or there is no loopback network.";
        let cannot =
            |claim: &crate::experiment::Claim| finding(claim.id, Verdict::CannotBeTested, found.to_owned());
        conclusion.verdicts = DECLARATION.claims.iter().map(cannot).collect();
        return conclusion;
    };
    conclusion.figures =
        here.iter().zip(DIRECTIONS).map(|(costs, direction)| figure(costs, direction)).collect();
    let tables = here.iter().zip(DIRECTIONS).map(|(costs, direction)| table(costs, direction));
    conclusion.tables.splice(0..0, tables);
    conclusion.verdicts = vec![order(&here), ratio(&here), bounds(&here)];
    conclusion
}

fn of_the_paper() -> String {
    "Table 1 follows from the costs of a byte that the text gives. Of table 2 the data column does so in its last row only: it \
     implies 62.5, 47.1 and 30.3 ns for a byte, where the text's costs add up to 56.6, 49 and 30. So a second copy has 16.8 ns \
     there, not 19, and a checksum 15.4, twice the 7.6 of the text, as if the data were no longer in the cache. Totals and \
     throughputs follow from that column."
        .to_owned()
}

fn unmeasured() -> String {
    "Only the model is here: what a stack is made of is measured, and no stack. The shortest system call stands for a call of send or \
     recv, so that context switches are left out, which the paper's calls contain."
        .to_owned()
}

fn finding(claim: &str, verdict: Verdict, found: String) -> Finding {
    Finding { claim: claim.to_owned(), verdict, found }
}

fn judged(claim: &str, holds: bool, found: String) -> Finding {
    finding(claim, if holds { Verdict::Holds } else { Verdict::DoesNotHold }, found)
}

/// Mbyte/s with packets of a length.
fn throughput(costs: &Costs, stack: Stack, length: f64) -> f64 {
    length / stack.per_packet(costs, length) * 1e6 / MBYTE
}

fn table(costs: &Costs, direction: Direction) -> Table {
    let length = PACKET as f64;
    let row = |stack: Stack| {
        let data = stack.per_byte(costs) * length;
        let numbers = [
            costs.call,
            costs.packet,
            data,
            stack.per_packet(costs, length),
            throughput(costs, stack, length),
        ];
        std::iter::once(stack.name().to_owned()).chain(numbers.map(significant)).collect()
    };
    Table {
        title: format!(
            "{} of packets of 4 KiB on this machine, by the model: µs, and MiB/s",
            direction.name()
        ),
        columns: ["", "call", "packet", "data", "total", "throughput"].map(str::to_owned).to_vec(),
        rows: Stack::ALL.into_iter().map(row).collect(),
    }
}

/// The throughputs of all stacks in one direction, as a sentence has them.
fn listed(costs: &Costs) -> String {
    let shown =
        |stack: Stack| format!("{} {}", stack.name(), significant(throughput(costs, stack, PACKET as f64)));
    Stack::ALL.map(shown).join(", ")
}

fn order(here: &[Costs]) -> Finding {
    let rises = |costs: &Costs| {
        let rates = Stack::ALL.map(|stack| throughput(costs, stack, PACKET as f64));
        rates.is_sorted_by(|slower, faster| slower < faster)
    };
    let found: Vec<String> = here
        .iter()
        .zip(DIRECTIONS)
        .map(|(costs, direction)| format!("{}: {} MiB/s", direction.name(), listed(costs)))
        .collect();
    judged(ORDER, here.iter().all(rises), format!("By the model, in packets of 4 KiB: {}.", found.join("; ")))
}

fn gain(costs: &Costs) -> f64 {
    let [conventional, _, single] = Stack::ALL.map(|stack| stack.per_packet(costs, PACKET as f64));
    conventional / single
}

/// Holds where the gain is at least the paper's in both directions.
fn ratio(here: &[Costs]) -> Finding {
    let found = here.iter().zip(DIRECTIONS).map(|(costs, direction)| {
        let share = Stack::Conventional.per_byte(costs) * PACKET as f64
            / Stack::Conventional.per_packet(costs, PACKET as f64);
        format!(
            "{} times in {}, where moving the data takes {:.0} % of the conventional stack's time",
            significant(gain(costs)),
            direction.name(),
            share * 100.0
        )
    });
    let found: Vec<String> = found.collect();
    let holds = here.iter().zip([1.47, 1.58]).all(|(costs, paper)| gain(costs) >= paper);
    let paper = stacks::costs("transmission", Rounding::Nearest);
    let share = Stack::Conventional.per_byte(&paper) * PACKET as f64
        / Stack::Conventional.per_packet(&paper, PACKET as f64);
    judged(
        RATIO,
        holds,
        format!(
            "By the model {}; on the paper's machine it took {:.0} % in transmission.",
            found.join(", and "),
            share * 100.0
        ),
    )
}

/// Holds where one copy allows at least twice the throughput of all passes in transmission.
fn bounds(here: &[Costs]) -> Finding {
    let Some(costs) = here.first() else {
        return finding(BOUNDS, Verdict::CannotBeTested, "Nothing was measured.".to_owned());
    };
    let mbytes = |stack: Stack| 1e6 / stack.per_byte(costs) / MBYTE;
    let [all, _, one] = Stack::ALL.map(mbytes);
    let share = costs.checksum / Stack::Conventional.per_byte(costs);
    judged(
        BOUNDS,
        one / all >= 2.4,
        format!(
            "Moving data alone allows {} MiB/s with one copy and {} with two and a checksum, {} times as much; the checksum is {:.0} % of \
             the latter.",
            significant(one),
            significant(all),
            significant(one / all),
            share * 100.0
        ),
    )
}

fn figure(costs: &Costs, direction: Direction) -> Figure {
    let lengths = || LENGTHS.map(|power| f64::from(power).exp2());
    let curve =
        |stack: Stack| Curve::estimate(stack.name(), lengths().map(|x| (x, throughput(costs, stack, x))));
    Figure {
        name: format!("single-copy-{}", direction.name()),
        title: format!("Throughput of three stacks by the model, {}", direction.name()),
        x: Axis::logarithmic("packet length in bytes"),
        y: Axis::logarithmic("throughput in MiB/s"),
        curves: Stack::ALL.into_iter().map(curve).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_the_papers_costs_the_order_the_bounds_and_the_gain_in_sending_are_the_papers() {
        let paper = DIRECTIONS.map(|direction| stacks::costs(direction.name(), Rounding::Nearest));
        let [order, ratio, bounds] = [order(&paper), ratio(&paper), bounds(&paper)];
        assert_eq!(order.verdict, Verdict::Holds);
        assert!(
            order.found.contains("transmission: conventional 11.6, two-copy 12.8, single-copy 17.1"),
            "{order:?}"
        );
        // The text's costs of reception give 1.47, the data column of table 2 gives 1.58.
        assert_eq!(ratio.verdict, Verdict::DoesNotHold, "{ratio:?}");
        assert!(ratio.found.contains("1.48 times in transmission"), "{ratio:?}");
        assert_eq!(bounds.verdict, Verdict::Holds, "{bounds:?}");
        assert!(bounds.found.contains("the checksum is 17 %"), "{bounds:?}");
    }

    #[test]
    fn where_packets_cost_most_copies_matter_less() {
        let costs =
            Costs { call: 100.0, packet: 900.0, client_copy: 0.01, interface_copy: 0.01, checksum: 0.01 };
        assert_eq!(ratio(&[costs, costs]).verdict, Verdict::DoesNotHold);
        assert_eq!(order(&[costs, costs]).verdict, Verdict::Holds);
    }

    #[test]
    fn without_measurements_the_papers_tables_are_there_still() {
        let conclusion = conclude(&Measurements::default());
        assert_eq!(conclusion.tables.len(), 3);
        assert!(conclusion.verdicts.iter().all(|finding| finding.verdict == Verdict::CannotBeTested));
    }
}
