//! The breakdown model: a latency is a base that no scheme changes, and the operations that hold the data up.
//!
//! How: at the sender, a scheme adds the request column of table 7.1, since later operations overlap with the transfer. At
//! the receiver, it adds the reply column of table 7.2 where buffers are customized (early demultiplexing), and the ready
//! and reply columns of table 7.3 where buffers are pooled. The base is the latency of emulated share with early
//! demultiplexing, less the cost of its referencing and unreferencing.
//! Source: Brustoloni, section 8.2.2, tables 8.6 and 8.7. Tables 7.1 to 7.3 are those that the schemes themselves run by.

use std::collections::BTreeMap;

use genie_passing::Scheme;
use genie_passing::tables::{self, InputOperations};

use crate::model::fit::Line;
use crate::papers::Rounding;
use crate::papers::brustoloni::Cost;

/// The name of the base's row.
pub const BASE: &str = "Base";

/// How input reaches the receiver's buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Buffering {
    /// The device finds the receiver's own request first.
    EarlyDemultiplexed,
    /// The device takes a buffer from a pool; its offset is that of the receiver's buffer.
    PooledAligned,
    /// The device takes a buffer from a pool; its offset differs from that of the receiver's buffer.
    PooledUnaligned,
}

impl Buffering {
    /// The table of input that holds.
    pub fn input(self, scheme: Scheme) -> InputOperations {
        match self {
            Self::EarlyDemultiplexed => tables::customized_input(scheme),
            Self::PooledAligned | Self::PooledUnaligned => tables::overlaid_input(scheme),
        }
    }

    /// Whether the device's buffer and the receiver's have one offset.
    pub fn is_aligned(self) -> bool {
        self != Self::PooledUnaligned
    }
}

/// The operation whose missing cost prevents the estimate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "there is no cost of the operation \"{0}\": run the experiment primitives with the lengths of latency"
)]
pub struct Unpriced(pub &'static str);

/// The cost of each row of table 8.2 on one machine.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Costs(BTreeMap<String, Line>);

/// The rows that a scheme adds to the base at the sender.
pub fn sender_rows(scheme: Scheme) -> Vec<&'static str> {
    tables::primitives(tables::output(scheme).request, true)
}

/// The rows that a scheme adds to the base at the receiver. The ready column of table 7.2 has none: allocating buffers is
/// priced by no row of table 8.2.
pub fn receiver_rows(scheme: Scheme, buffering: Buffering) -> Vec<&'static str> {
    let InputOperations { ready, reply, .. } = buffering.input(scheme);
    [ready, reply].into_iter().flat_map(|column| tables::primitives(column, buffering.is_aligned())).collect()
}

/// All rows but the base that a scheme needs if sender and receiver both use it.
pub fn rows(scheme: Scheme, buffering: Buffering) -> Vec<&'static str> {
    [sender_rows(scheme), receiver_rows(scheme, buffering)].concat()
}

impl Costs {
    /// No costs yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The costs of a paper's table: as printed, or as high or low as the table's rounding allows.
    pub fn of(table: &[Cost], rounding: Rounding) -> Self {
        let line = |cost: &Cost| Line {
            factor: cost.factor.map_or(0.0, |factor| factor.at(rounding)),
            fixed: cost.fixed.at(rounding),
        };
        Self(table.iter().map(|cost| (cost.operation.clone(), line(cost))).collect())
    }

    /// Sets the cost of a row.
    pub fn set(&mut self, row: &str, cost: Line) {
        self.0.insert(row.to_owned(), cost);
    }

    /// The cost of a row.
    pub fn get(&self, row: &str) -> Option<Line> {
        self.0.get(row).copied()
    }

    /// The rows, in alphabetical order, with their costs.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Line)> {
        self.0.iter().map(|(row, cost)| (row.as_str(), *cost))
    }

    /// Sets the base by the latency of emulated share with early demultiplexing.
    ///
    /// # Errors
    /// There is no cost of referencing, or of unreferencing.
    pub fn set_base(&mut self, emulated_share: Line) -> Result<(), Unpriced> {
        let added = self.sum(&rows(Scheme::EmulatedShare, Buffering::EarlyDemultiplexed))?;
        self.set(BASE, emulated_share - added);
        Ok(())
    }

    /// Replaces the network by one that is `times` times as fast. This divides the base's factor and, for simplicity,
    /// nothing else: part of the fixed term is the network's, too, so the fixed term comes out somewhat too high for a
    /// faster network.
    pub fn with_network(&self, times: f64) -> Self {
        let mut costs = self.clone();
        if let Some(base) = costs.0.get_mut(BASE) {
            base.factor /= times;
        }
        costs
    }

    /// The sum of some rows.
    ///
    /// # Errors
    /// A row has no cost.
    pub fn sum(&self, rows: &[&'static str]) -> Result<Line, Unpriced> {
        rows.iter().map(|row| self.get(row).ok_or(Unpriced(row))).sum()
    }

    /// Estimates the end-to-end latency from a sender with one scheme to a receiver with the same or another scheme.
    ///
    /// # Errors
    /// A row has no cost.
    pub fn latency(&self, sender: Scheme, receiver: Scheme, buffering: Buffering) -> Result<Line, Unpriced> {
        let rows = [vec![BASE], sender_rows(sender), receiver_rows(receiver, buffering)].concat();
        self.sum(&rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONSTANT: Line = Line { factor: 0.0, fixed: 1.0 };

    #[test]
    fn sender_and_receiver_may_use_different_schemes() {
        let mut costs = Costs::new();
        for row in [BASE, "Copyin", "Unreference"] {
            costs.set(row, CONSTANT);
        }
        let buffering = Buffering::EarlyDemultiplexed;
        let mixed = costs.latency(Scheme::Copy, Scheme::EmulatedShare, buffering).unwrap();
        assert_eq!(mixed, Line::constant(3.0));
        assert_eq!(costs.latency(Scheme::Copy, Scheme::Copy, buffering), Err(Unpriced("Copyout")));
    }

    #[test]
    fn the_base_is_emulated_share_without_its_operations() {
        let mut costs = Costs::new();
        costs.set("Reference", CONSTANT);
        assert_eq!(costs.set_base(Line::constant(10.0)), Err(Unpriced("Unreference")));
        costs.set("Unreference", Line { factor: 0.5, fixed: 2.0 });
        costs.set_base(Line { factor: 1.5, fixed: 10.0 }).unwrap();
        assert_eq!(costs.get(BASE), Some(Line { factor: 1.0, fixed: 7.0 }));
    }
}
