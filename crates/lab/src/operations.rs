//! Operation times: makes rows of the papers' tables from a recorder's records.
//!
//! How: the records of a column are cut into its steps, as the tables word them. A step that the thesis prices as one row
//! counts as the sum of its operations; of the other steps, each operation is a row.
//! Source: J. C. Brustoloni's thesis, tables 8.2 and 12.1.

use genie::Direction;
use genie_passing::operation::Operation;
use genie_passing::tables::{self, InputOperations, OutputOperations};
use genie_passing::{Column, Moment, Record};
use serde::{Deserialize, Serialize};

use crate::model::breakdown::Buffering;

/// How long one row's operations took, in one request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationTime {
    /// The row: of table 8.2, of table 12.1, or of our own.
    pub row: String,
    /// The scheme that was in effect, by its name.
    pub scheme: String,
    /// The length of the data.
    pub len: usize,
    /// The time in nanoseconds.
    pub nanoseconds: u64,
}

/// A row's time before it leaves this process.
#[derive(Debug, Clone, Copy)]
struct Timed {
    row: &'static str,
    column: Column,
    nanoseconds: u64,
}

/// Neighbours in a column that table 12.1 prices together.
const TOGETHER: [([&str; 2], &str); 4] = [
    (["System buffer allocate", "Copyin"], "Allocate and copyin"),
    (["Copyout", "System buffer deallocate"], "Copyout and deallocate"),
    (["Swap", "Aligned buffer deallocate"], "Swap and deallocate"),
    (["Reference", "Read only"], "Reference and read-only"),
];

/// Computes the times of rows from the records of requests, whose inputs were buffered as `buffering` says. Columns that do
/// not match the tables, because records were lost, are left out.
pub fn times(records: &[Record], buffering: Buffering) -> Vec<OperationTime> {
    let mut rest = records;
    let mut timed = Vec::new();
    while let [first, after @ ..] = rest {
        let operations = operations(first.column, buffering);
        let (these, others) = rest.split_at_checked(operations.len()).unwrap_or((&[], after));
        let matches = |(record, operation): (&Record, &Operation)| {
            record.operation == *operation && record.column == first.column
        };
        if these.is_empty() || !these.iter().zip(operations).all(matches) {
            rest = after;
            continue;
        }
        add(&mut timed, these, operations, buffering);
        rest = others;
    }
    timed.into_iter().map(OperationTime::from).collect()
}

impl From<Timed> for OperationTime {
    fn from(timed: Timed) -> Self {
        Self {
            row: timed.row.to_owned(),
            scheme: timed.column.scheme.name().to_owned(),
            len: timed.column.len,
            nanoseconds: timed.nanoseconds,
        }
    }
}

/// The operations of a column.
fn operations(column: Column, buffering: Buffering) -> &'static [Operation] {
    let InputOperations { request, ready, reply } = buffering.input(column.scheme);
    let output: OutputOperations = tables::output(column.scheme);
    match (column.direction, column.moment) {
        (Direction::Out, Moment::Request) => output.request,
        (Direction::Out, Moment::Reply) => output.reply,
        (Direction::Out, Moment::Ready) => &[],
        (Direction::In, Moment::Request) => request,
        (Direction::In, Moment::Ready) => ready,
        (Direction::In, Moment::Reply) => reply,
    }
}

fn add(timed: &mut Vec<Timed>, records: &[Record], operations: &[Operation], buffering: Buffering) {
    let (begin, column, aligned) = (timed.len(), records[0].column, buffering.is_aligned());
    let mut at = 0;
    for step in tables::steps(operations) {
        let records = &records[at..at + step.len()];
        at += step.len();
        let sum = records.iter().map(|record| record.nanoseconds).sum();
        match step {
            [Operation::CheckRegion, _, ..] => {
                let rows = tables::primitives(step, aligned);
                timed.extend(rows.into_iter().map(|row| Timed { row, column, nanoseconds: sum }));
            }
            _ => timed.extend(records.iter().map(|record| Timed {
                row: row(record.operation, aligned),
                column,
                nanoseconds: record.nanoseconds,
            })),
        }
    }
    let together: Vec<Timed> = timed[begin..].windows(2).filter_map(together).collect();
    timed.extend(together);
}

fn together(pair: &[Timed]) -> Option<Timed> {
    let rows = [pair[0].row, pair[1].row];
    let (_, row) = TOGETHER.iter().find(|(each, _)| *each == rows)?;
    Some(Timed { row, nanoseconds: pair[0].nanoseconds + pair[1].nanoseconds, ..pair[0] })
}

/// The row that prices an operation by itself.
fn row(operation: Operation, aligned: bool) -> &'static str {
    if let [row] = tables::primitives(&[operation], aligned)[..] {
        return row;
    }
    match operation {
        Operation::AllocateSystemBuffer => "System buffer allocate",
        Operation::DeallocateSystemBuffer => "System buffer deallocate",
        Operation::AllocateAlignedBuffer => "Aligned buffer allocate",
        Operation::DeallocateAlignedBuffer => "Aligned buffer deallocate",
        Operation::RemoveRegion => "Region remove",
        Operation::MarkRegionEmigrantAndEnqueue | Operation::MarkRegionWeakEmigrantAndEnqueue => {
            "Region enqueue"
        }
        Operation::DequeueEmigrantRegion | Operation::DequeueWeakEmigrantRegion => "Region dequeue",
        other => other.phrase(),
    }
}

#[cfg(test)]
mod tests {
    use genie::Scheme;

    use super::*;

    /// A record of each operation of a column, which took 1, 2, 3 ... ns.
    fn records(scheme: Scheme, direction: Direction, moment: Moment, buffering: Buffering) -> Vec<Record> {
        let column = Column { scheme, direction, moment, len: 4096 };
        let record = |(at, operation): (usize, &Operation)| Record {
            operation: *operation,
            column,
            nanoseconds: at as u64 + 1,
        };
        operations(column, buffering).iter().enumerate().map(record).collect()
    }

    fn rows(times: &[OperationTime]) -> Vec<(&str, u64)> {
        times.iter().map(|time| (time.row.as_str(), time.nanoseconds)).collect()
    }

    #[test]
    fn every_row_that_prices_a_column_has_a_time() {
        for buffering in [Buffering::EarlyDemultiplexed, Buffering::PooledAligned, Buffering::PooledUnaligned]
        {
            for scheme in Scheme::ALL {
                for direction in [Direction::Out, Direction::In] {
                    for moment in [Moment::Request, Moment::Ready, Moment::Reply] {
                        let column = Column { scheme, direction, moment, len: 0 };
                        let priced =
                            tables::primitives(operations(column, buffering), buffering.is_aligned());
                        let times = times(&records(scheme, direction, moment, buffering), buffering);
                        for row in priced {
                            assert_eq!(
                                times.iter().filter(|time| time.row == row).count(),
                                1,
                                "{column:?}: {row}"
                            );
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn operations_that_the_thesis_prices_together_are_added_up() {
        let reply = |scheme| {
            let records = records(scheme, Direction::In, Moment::Reply, Buffering::EarlyDemultiplexed);
            times(&records, Buffering::EarlyDemultiplexed)
        };
        let emulated = reply(Scheme::EmulatedMove);
        assert_eq!(rows(&emulated), [("Region check, unreference, reinstate, mark in", 10)]);
        let weak = reply(Scheme::WeakMove);
        let separate = [("Region check", 1), ("Unwire", 2), ("Unreference", 3), ("Region mark in", 4)];
        assert_eq!(rows(&weak), separate);
        let copy = reply(Scheme::Copy);
        let both = [("Copyout", 1), ("System buffer deallocate", 2), ("Copyout and deallocate", 3)];
        assert_eq!(rows(&copy), both);
    }

    #[test]
    fn what_is_left_of_a_column_whose_other_records_were_lost_is_left_out() {
        let of = |scheme| records(scheme, Direction::Out, Moment::Request, Buffering::EarlyDemultiplexed);
        let (mut all, copy) = (of(Scheme::Move), of(Scheme::Copy));
        all.remove(0);
        all.extend(copy);
        let times = times(&all, Buffering::EarlyDemultiplexed);
        let of_copy = [("System buffer allocate", 1), ("Copyin", 2), ("Allocate and copyin", 3)];
        assert_eq!(rows(&times), of_copy);
    }
}
