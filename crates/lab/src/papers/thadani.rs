//! The figures of M. N. Thadani and Y. A. Khalidi, *An Efficient Zero-Copy I/O Framework for UNIX*, section 6 and
//! appendix A.
//!
//! Limits: in the paper a Mbit is 2^20 bits: 8 KiB at 113 Mbit/s take the printed 553 us; with 10^6 bits they would take 580
//! us.

use serde::Deserialize;

use crate::papers::{Printed, read, row};

/// How one framework passed writes of 8 KiB over TCP.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Framework {
    /// `fbufs` or `single-copy`.
    pub framework: String,
    /// In Mbit/s.
    pub throughput: Printed,
    /// The receiver's, in per cent.
    pub utilization: Printed,
    /// Of 8 KiB, in microseconds.
    pub latency: Printed,
    /// CPU time for 8 KiB, in microseconds.
    pub cost: Printed,
    /// How much of the cost is copying, in microseconds.
    pub copying: Printed,
}

/// The measurements of both frameworks.
pub fn frameworks() -> Vec<Framework> {
    read(include_str!("../../papers/thadani-a.csv"))
}

/// How long a network takes for 8 KiB and their encapsulation.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Network {
    /// `current` or `OC12`.
    pub network: String,
    /// The number of bytes sent.
    pub bytes: Printed,
    /// The line rate in Mbit/s.
    pub rate: Printed,
    /// In microseconds.
    pub latency: Printed,
}

/// The two networks.
pub fn networks() -> Vec<Network> {
    read(include_str!("../../papers/thadani-a-network.csv"))
}

/// A projection.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Projection {
    /// How many times as fast everything but copying becomes.
    pub cpu: Printed,
    /// How many times as fast copying becomes.
    pub copy: Printed,
    /// How much more throughput fbufs then have, in per cent.
    pub advantage: Printed,
}

/// The projections that section 6.3 quotes.
pub fn projections() -> Vec<Projection> {
    read(include_str!("../../papers/thadani-section-6.3.csv"))
}

/// What a micro-benchmark takes with fbufs.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Share {
    /// `discard`, `loopback` or `mapwr`.
    pub benchmark: String,
    /// The latency of 8 KiB, in per cent of that with the standard calls.
    pub share: Printed,
}

/// What the micro-benchmark of that name takes.
///
/// # Panics
/// There is none of that name.
pub fn share(benchmark: &str) -> Printed {
    row(read(include_str!("../../papers/thadani-section-6.1.csv")), |one: &Share| one.benchmark == benchmark)
        .share
}

/// What a program gains.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Gain {
    /// `ttcp` or `ftp`.
    pub program: String,
    /// How much more throughput it has with fbufs, in per cent.
    pub gain: Printed,
}

/// What the program of that name gains.
///
/// # Panics
/// There is none of that name.
pub fn gain(program: &str) -> Printed {
    row(read(include_str!("../../papers/thadani-section-6.2.csv")), |one: &Gain| one.program == program).gain
}

/// How busy ttcp kept a node's CPU.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Utilization {
    /// `receiver` or `sender`.
    pub node: String,
    /// In per cent, with the standard calls.
    pub standard: Printed,
    /// In per cent, with fbufs.
    pub fbufs: Printed,
}

/// How busy ttcp kept both nodes' CPUs.
pub fn utilizations() -> Vec<Utilization> {
    read(include_str!("../../papers/thadani-3.csv"))
}
