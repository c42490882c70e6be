//! The times of operations under one scheme, from a run's measurements.
//!
//! How: `primitives` has a series for each row of table 8.2; a setting is a side, `sender` or `receiver`, and a scheme. A
//! scheme is estimated from its own costs. Where another operation did the work of one operation under the same lock, the
//! one without work counts with the little time that it took itself. `rows`, in contrast, averages over schemes.
//! Source: Brustoloni, section 8.2.2.

use genie_passing::Scheme;

use crate::measurement::{Measurements, Quantity};
use crate::model::breakdown::{Buffering, Unpriced, receiver_rows, sender_rows};
use crate::model::fit::{Line, fit};

/// The experiment that times operations.
pub const EXPERIMENT: &str = "primitives";

/// The experiment's series that holds the length of granules.
pub const GRANULE: &str = "granule";

/// The side that runs an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The client with the output.
    Sender,
    /// The client with the input.
    Receiver,
}

/// Operations that delay the data but have no row in table 8.2; table 12.1 prices them.
const UNPRICED: [(Side, &str); 3] = [
    (Side::Sender, "System buffer allocate"),
    (Side::Receiver, "System buffer deallocate"),
    (Side::Receiver, "Aligned buffer deallocate"),
];

/// A median in microseconds at a length in bytes.
pub type Median = (u64, f64);

/// The times of operations of one run.
#[derive(Debug, Clone, Copy)]
pub struct Operations<'m>(pub &'m Measurements);

impl Side {
    /// The word with which this side's settings begin.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sender => "sender",
            Self::Receiver => "receiver",
        }
    }
}

/// The length in bytes of the granules with which a run timed operations.
pub fn granule(measurements: &Measurements) -> Option<u64> {
    let mut measured = measurements.of(EXPERIMENT).flat_map(|step| &step.measured);
    measured.find(|one| one.quantity == Quantity::Bytes && one.series == GRANULE)?.samples.first().copied()
}

impl Operations<'_> {
    /// The medians of an operation under a scheme.
    pub fn medians(self, side: Side, scheme: Scheme, row: &str) -> Vec<Median> {
        let setting = format!("{}, {scheme}", side.name());
        self.0.medians(EXPERIMENT, &setting, row, Quantity::OperationTime)
    }

    /// The rows that a scheme adds to the base, each with the side that runs it.
    pub fn rows(scheme: Scheme) -> Vec<(Side, &'static str)> {
        let sender = sender_rows(scheme).into_iter().map(|row| (Side::Sender, row));
        let receiver = receiver_rows(scheme, Buffering::EarlyDemultiplexed).into_iter();
        sender.chain(receiver.map(|row| (Side::Receiver, row))).collect()
    }

    /// The time that a scheme adds to the base at one length: the sum of its operations' medians there.
    ///
    /// # Errors
    /// An operation was not timed at that length.
    pub fn added_at(self, scheme: Scheme, length: u64) -> Result<f64, Unpriced> {
        let cost = |(side, row)| {
            let medians = self.medians(side, scheme, row);
            let here = medians.iter().find(|(at, _)| *at == length);
            here.map(|(_, cost)| *cost).ok_or(Unpriced(row))
        };
        Self::rows(scheme).into_iter().map(cost).sum()
    }

    /// The other operations of a scheme at one length, which table 8.2 does not price, as far as they were timed.
    pub fn unpriced_at(self, scheme: Scheme, length: u64) -> Vec<(&'static str, f64)> {
        let cost = |(side, row): (Side, &'static str)| {
            let medians = self.medians(side, scheme, row);
            medians.iter().find(|(at, _)| *at == length).map(|(_, cost)| (row, *cost))
        };
        UNPRICED.into_iter().filter_map(cost).collect()
    }

    /// The line of the time that a scheme adds to the base, fitted over these lengths.
    ///
    /// # Errors
    /// An operation was timed at fewer than two of them.
    pub fn added_line(self, scheme: Scheme, lengths: &[u64]) -> Result<Line, Unpriced> {
        Self::rows(scheme).into_iter().map(|(side, row)| self.line(side, scheme, row, lengths)).sum()
    }

    /// The line of one operation under a scheme, fitted over these lengths.
    ///
    /// # Errors
    /// It was timed at fewer than two of them.
    pub fn line(
        self,
        side: Side,
        scheme: Scheme,
        row: &'static str,
        lengths: &[u64],
    ) -> Result<Line, Unpriced> {
        let mut medians = self.medians(side, scheme, row);
        medians.retain(|(length, _)| lengths.contains(length));
        fit(&medians).map(|fit| fit.line).ok_or(Unpriced(row))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::synthetic::{self, made};

    fn run<const N: usize>(operations: [(&str, &str, u64, f64); N]) -> Measurements {
        let made = |(setting, series, x, us)| made(setting, series, Quantity::OperationTime, (x, us));
        synthetic::run(EXPERIMENT, operations.map(made))
    }

    #[test]
    fn what_copy_adds_is_copyin_at_the_sender_and_copyout_at_the_receiver() {
        let run = run([
            ("sender, copy", "Copyin", 10, 1.0),
            ("sender, copy", "Copyin", 20, 2.0),
            ("receiver, copy", "Copyout", 10, 0.5),
            ("receiver, copy", "Copyout", 20, 0.5),
        ]);
        let operations = Operations(&run);
        assert_eq!(operations.added_at(Scheme::Copy, 20), Ok(2.5));
        assert_eq!(operations.added_at(Scheme::Copy, 30), Err(Unpriced("Copyin")));
        assert_eq!(operations.added_at(Scheme::Share, 20), Err(Unpriced("Reference")));
        let line = operations.added_line(Scheme::Copy, &[10, 20]).unwrap();
        assert!((line.factor - 0.1).abs() < 1e-9 && (line.fixed - 0.5).abs() < 1e-9, "{line:?}");
    }
}
