//! The conclusion of `single-copy-tcp`: the paper's tables, computed anew, and the same tables for this machine.

use super::DECLARATION;
use super::costs::{Direction, PACKET, costs};
use crate::amounts::significant;
use crate::experiments::reading::findings;
use crate::findings::{Axis, Conclusion, Curve, Figure, Judgement, Table, row};
use crate::measurement::Measurements;
use crate::model::reproduced::stacks::{self, MBYTE};
use crate::model::reproduced::{KEY, Reproduced};
use crate::model::single_copy::{Costs, Stack};
use crate::papers::Rounding;

const DIRECTIONS: [Direction; 2] = [Direction::Transmission, Direction::Reception];

/// The lengths of the figure's packets, as powers of two.
const LENGTHS: std::ops::RangeInclusive<u32> = 8..=16;

pub(super) fn conclude(measurements: &Measurements) -> Conclusion {
    let here = costs(measurements, Direction::Transmission).zip(costs(measurements, Direction::Reception));
    let here = here.map(|(transmission, reception)| [transmission, reception]);
    let measured = || here.iter().flatten().zip(DIRECTIONS);
    let papers = [stacks::transmission(), stacks::reception(), stacks::bounds()];
    let tables = measured().map(|(costs, direction)| table(costs, direction));
    let judgements = here.as_ref().map(|here| vec![order(here), ratio(here), bounds(&here[0])]);
    let unmeasured_here =
        "Calls, packets, copies and checksums were not measured, or there is no loopback network.";
    Conclusion {
        figures: measured().filter_map(|(costs, direction)| figure(costs, direction)).collect(),
        tables: tables.chain(papers.iter().map(Reproduced::table)).collect(),
        verdicts: findings(&DECLARATION, judgements.ok_or(unmeasured_here)),
        notes: vec![KEY.to_owned(), of_the_paper(), unmeasured()],
    }
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

/// Mbyte/s with packets of a length.
fn throughput(costs: &Costs, stack: Stack, length: f64) -> f64 {
    length / stack.per_packet(costs, length) * 1e6 / MBYTE
}

fn table(costs: &Costs, direction: Direction) -> Table {
    let length = PACKET as f64;
    let cells = |stack: Stack| {
        let data = stack.per_byte(costs) * length;
        let total = stack.per_packet(costs, length);
        let numbers = [costs.call, costs.packet, data, total, throughput(costs, stack, length)];
        row(stack.name(), numbers.map(significant))
    };
    let title =
        format!("{} of packets of 4 KiB on this machine, by the model: µs, and MiB/s", direction.name());
    let columns = ["", "call", "packet", "data", "total", "throughput"];
    Table::new(title, columns, Stack::ALL.map(cells))
}

/// The throughputs of all stacks in one direction, for a sentence.
fn listed(costs: &Costs) -> String {
    let shown =
        |stack: Stack| format!("{} {}", stack.name(), significant(throughput(costs, stack, PACKET as f64)));
    Stack::ALL.map(shown).join(", ")
}

fn order(here: &[Costs; 2]) -> Judgement {
    let rises = |costs: &Costs| {
        let rates = Stack::ALL.map(|stack| throughput(costs, stack, PACKET as f64));
        rates.is_sorted_by(|slower, faster| slower < faster)
    };
    let found = here.iter().zip(DIRECTIONS);
    let found = found.map(|(costs, direction)| format!("{}: {} MiB/s", direction.name(), listed(costs)));
    let found = found.collect::<Vec<_>>().join("; ");
    Ok((here.iter().all(rises), format!("By the model, in packets of 4 KiB: {found}.")))
}

fn gain(costs: &Costs) -> f64 {
    let [conventional, _, single] = Stack::ALL.map(|stack| stack.per_packet(costs, PACKET as f64));
    conventional / single
}

/// How much of the conventional stack's time moving the data takes, in per cent.
fn share(costs: &Costs) -> f64 {
    let stack = Stack::Conventional;
    stack.per_byte(costs) * PACKET as f64 / stack.per_packet(costs, PACKET as f64) * 100.0
}

/// Holds where the gain is at least the paper's in both directions.
fn ratio(here: &[Costs; 2]) -> Judgement {
    let found = here.iter().zip(DIRECTIONS).map(|(costs, direction)| {
        format!(
            "{} times in {}, where moving the data takes {:.0} % of the conventional stack's time",
            significant(gain(costs)),
            direction.name(),
            share(costs)
        )
    });
    let found = format!(
        "By the model {}; on the paper's machine it took {:.0} % in transmission.",
        found.collect::<Vec<_>>().join(", and "),
        share(&stacks::costs("transmission", Rounding::Nearest))
    );
    Ok((here.iter().zip([1.47, 1.58]).all(|(costs, paper)| gain(costs) >= paper), found))
}

/// Holds where, in transmission, a single copy allows at least 2.4 times the throughput of the conventional stack, as in the
/// paper.
fn bounds(transmission: &Costs) -> Judgement {
    let [all, _, one] = Stack::ALL.map(|stack| 1e6 / stack.per_byte(transmission) / MBYTE);
    let share = transmission.checksum / Stack::Conventional.per_byte(transmission);
    let found = format!(
        "Moving data alone allows {} MiB/s with one copy and {} with two and a checksum, {} times as much; the checksum is {:.0} % of \
         the latter.",
        significant(one),
        significant(all),
        significant(one / all),
        share * 100.0
    );
    Ok((one / all >= 2.4, found))
}

fn figure(costs: &Costs, direction: Direction) -> Option<Figure> {
    let lengths = || LENGTHS.map(|power| f64::from(power).exp2());
    let curve =
        |stack: Stack| Curve::estimate(stack.name(), lengths().map(|x| (x, throughput(costs, stack, x))));
    let name = format!("single-copy-{}", direction.name());
    let title = format!("Throughput of three stacks by the model, {}", direction.name());
    let axes = ["packet length in bytes", "throughput in MiB/s"].map(Axis::logarithmic);
    Figure::of(name, title, axes, Stack::ALL.map(curve))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_the_papers_costs_the_order_the_bounds_and_the_gain_in_sending_are_the_papers() {
        let paper = DIRECTIONS.map(|direction| stacks::costs(direction.name(), Rounding::Nearest));
        let [order, ratio, bounds] = [order(&paper), ratio(&paper), bounds(&paper[0])].map(Result::unwrap);
        assert!(order.0, "{order:?}");
        assert!(
            order.1.contains("transmission: conventional 11.6, two-copy 12.8, single-copy 17.1"),
            "{order:?}"
        );
        // The text's costs of reception give 1.47, the data column of table 2 gives 1.58.
        assert!(!ratio.0, "{ratio:?}");
        assert!(ratio.1.contains("1.48 times in transmission"), "{ratio:?}");
        assert!(bounds.0, "{bounds:?}");
        assert!(bounds.1.contains("the checksum is 17 %"), "{bounds:?}");
    }

    #[test]
    fn where_packets_cost_most_copies_matter_less() {
        let costs =
            Costs { call: 100.0, packet: 900.0, client_copy: 0.01, interface_copy: 0.01, checksum: 0.01 };
        assert!(!ratio(&[costs, costs]).unwrap().0);
        assert!(order(&[costs, costs]).unwrap().0);
    }

    #[test]
    fn without_measurements_the_papers_tables_are_there_still() {
        assert_eq!(conclude(&Measurements::default()).tables.len(), 3);
    }
}
