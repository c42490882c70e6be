//! The tables of chapters 8 and 9 of J. C. Brustoloni's thesis, *Effects of Data Passing Semantics and Operating System
//! Structure on Network I/O Performance*.

use serde::Deserialize;

use crate::papers::{Printed, read};

/// The computers of chapter 8, at the rate of the network between two of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Platform {
    /// Micron P166 at 155 Mbit/s: table 8.2.
    P166,
    /// Micron P166 at 512 Mbit/s: table 8.3.
    P166At512,
    /// Gateway P5-90 at 155 Mbit/s: table 8.4.
    P5,
    /// AlphaStation 255/233 at 155 Mbit/s: table 8.5.
    AlphaStation,
}

/// A row of tables 8.2 to 8.5: microseconds of one primitive operation on B bytes, factor * B + fixed.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Cost {
    /// The operation, or `Base`.
    pub operation: String,
    /// Microseconds per byte; none where the operation costs the same for any length.
    pub factor: Option<Printed>,
    /// Microseconds.
    pub fixed: Printed,
}

/// Tables 8.2 to 8.5.
pub fn costs(platform: Platform) -> Vec<Cost> {
    read(match platform {
        Platform::P166 => include_str!("../../papers/brustoloni-8.2.csv"),
        Platform::P166At512 => include_str!("../../papers/brustoloni-8.3.csv"),
        Platform::P5 => include_str!("../../papers/brustoloni-8.4.csv"),
        Platform::AlphaStation => include_str!("../../papers/brustoloni-8.5.csv"),
    })
}

/// How a machine's rating is to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rating {
    /// It is the rating of the machine itself.
    Measured,
    /// The machine's own rating is lower.
    Bound,
}

/// A computer: a row of tables 8.1 and 9.1. Rates are those of copying, in Mbit/s.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Machine {
    /// Its name.
    pub machine: String,
    /// Its SPECint95 rating.
    pub specint95: Printed,
    /// How that rating is to be read.
    pub rating: Rating,
    /// Within the second-level cache.
    pub l2_cache: Printed,
    /// In main memory.
    pub memory: Printed,
}

/// Table 8.1, and the one row of table 9.1.
pub fn machines() -> Vec<Machine> {
    let mut machines = read(include_str!("../../papers/brustoloni-8.1.csv"));
    machines.extend(read::<Machine>(include_str!("../../papers/brustoloni-9.1.csv")));
    machines
}

/// A cell of tables 8.6 and 8.7: end-to-end latency, estimated and actual, in microseconds, each factor * B + fixed.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Latency {
    /// Which of the table's columns.
    pub setting: String,
    /// The scheme of sender and receiver.
    pub scheme: String,
    /// Estimated, per byte.
    pub estimated_factor: Printed,
    /// Estimated, in all.
    pub estimated_fixed: Printed,
    /// Fitted to measurements, per byte.
    pub actual_factor: Printed,
    /// Fitted to measurements, in all.
    pub actual_fixed: Printed,
}

/// Table 8.6: with early demultiplexing, settings `155 Mbit/s` and `512 Mbit/s`, both estimated from table 8.2.
pub fn latencies_demultiplexed() -> Vec<Latency> {
    read(include_str!("../../papers/brustoloni-8.6.csv"))
}

/// Table 8.7: with pooled buffers at 512 Mbit/s, settings `aligned` and `unaligned`, estimated from table 8.3.
pub fn latencies_pooled() -> Vec<Latency> {
    read(include_str!("../../papers/brustoloni-8.7.csv"))
}

/// A row of table 8.8: the cost of a byte in microseconds, estimated from a machine's rates, and actual.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct CostPerByte {
    /// The computer.
    pub machine: String,
    /// The kind of parameter.
    pub parameter: String,
    /// The estimate, or its least value.
    pub from: Printed,
    /// The greatest value of the estimate; none where `from` is a bound.
    pub to: Option<Printed>,
    /// As measured.
    pub actual: Printed,
}

/// Table 8.8.
pub fn costs_per_byte() -> Vec<CostPerByte> {
    read(include_str!("../../papers/brustoloni-8.8.csv"))
}

/// A row of table 8.9: costs relative to the Micron P166, estimated, and the spread of the actual ratios.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Scaling {
    /// The computer.
    pub machine: String,
    /// The kind of parameter.
    pub parameter: String,
    /// The estimate, or its least value.
    pub from: Printed,
    /// The greatest value of the estimate; none where `from` is a bound.
    pub to: Option<Printed>,
    /// Of the actual ratios.
    pub geometric_mean: Printed,
    /// Of the actual ratios.
    pub least: Printed,
    /// Of the actual ratios.
    pub greatest: Printed,
}

/// Table 8.9.
pub fn scalings() -> Vec<Scaling> {
    read(include_str!("../../papers/brustoloni-8.9.csv"))
}

/// Mbit/s of single datagrams of 60 KiB at 512 Mbit/s, from section 8.2.1.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct EquivalentThroughput {
    /// The scheme of sender and receiver.
    pub scheme: String,
    /// With early demultiplexing.
    pub early_demultiplexing: Printed,
    /// With pooled buffers, and client buffers that are aligned with them.
    pub aligned: Printed,
    /// With pooled buffers, and client buffers that are not.
    pub unaligned: Printed,
}

/// The throughputs that section 8.2.1 quotes.
pub fn equivalent_throughputs() -> Vec<EquivalentThroughput> {
    read(include_str!("../../papers/brustoloni-section-8.2.1.csv"))
}

/// Mbit/s of transfers of 60 KiB in several packets at 155 Mbit/s, from section 8.5.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct PacketThroughput {
    /// Which figure: `pooled` or `early demultiplexing`.
    pub figure: String,
    /// The curve, as the experiment names it.
    pub series: String,
    /// None where the text does not tell it.
    pub throughput: Option<Printed>,
}

/// The throughputs that section 8.5 quotes.
pub fn packet_throughputs() -> Vec<PacketThroughput> {
    read(include_str!("../../papers/brustoloni-section-8.5.csv"))
}

/// Microseconds of I/O processing for a transfer of 60 KiB, from section 8.3.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct ProcessingTime {
    /// The scheme of sender and receiver.
    pub scheme: String,
    /// Of one transfer.
    pub processing_time: Printed,
}

/// The times that section 8.3 quotes.
pub fn processing_times() -> Vec<ProcessingTime> {
    read(include_str!("../../papers/brustoloni-section-8.3.csv"))
}

/// A column of table 9.2: Mbit/s of single datagrams of 60 KiB at 512 Mbit/s.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct ServerThroughput {
    /// The scheme of the clients.
    pub scheme: String,
    /// With a protocol server in the kernel.
    pub kernel_level: Printed,
    /// With a protocol server in a process of its own.
    pub user_level: Printed,
}

/// Table 9.2.
pub fn server_throughputs() -> Vec<ServerThroughput> {
    read(include_str!("../../papers/brustoloni-9.2.csv"))
}

/// A row of table 9.3: the time that a user-level server adds to latency, and its scaling relative to the last row.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct ServerOverhead {
    /// The CPU.
    pub processor: String,
    /// Its rating.
    pub specint95: Printed,
    /// In microseconds.
    pub overhead: Printed,
    /// The ratio of the ratings.
    pub predicted: Printed,
    /// The ratio of the overheads.
    pub actual: Printed,
}

/// Table 9.3.
pub fn server_overheads() -> Vec<ServerOverhead> {
    read(include_str!("../../papers/brustoloni-9.3.csv"))
}

/// A row of table 12.1: the time of one part of a transfer.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Part {
    /// The row's letter.
    pub letter: String,
    /// The part's description.
    pub part: String,
    /// Nanoseconds per byte; none where the part takes the same time for any length.
    pub factor: Option<Printed>,
    /// Microseconds.
    pub fixed: Printed,
}

/// Table 12.1.
pub fn parts() -> Vec<Part> {
    read(include_str!("../../papers/brustoloni-12.1.csv"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_platform_prices_the_base_and_every_primitive_operation() {
        let rows: Vec<&str> = std::iter::once("Base").chain(genie_passing::operation::PRIMITIVES).collect();
        for platform in [Platform::P166, Platform::P166At512, Platform::P5, Platform::AlphaStation] {
            let costs = costs(platform);
            assert_eq!(
                costs.iter().map(|cost| cost.operation.as_str()).collect::<Vec<_>>(),
                rows,
                "{platform:?}"
            );
        }
    }

    #[test]
    fn every_table_has_all_its_rows() {
        assert_eq!((machines().len(), costs_per_byte().len(), scalings().len()), (4, 9, 8));
        assert_eq!((latencies_demultiplexed().len(), latencies_pooled().len()), (16, 16));
        assert_eq!((equivalent_throughputs().len(), processing_times().len()), (8, 8));
        assert_eq!(packet_throughputs().len(), 10);
        assert_eq!((server_throughputs().len(), server_overheads().len(), parts().len()), (3, 3, 25));
    }
}
