//! The tables of C. Dalton and others, *Afterburner: Architectural Support for High-Performance Protocols*.
//!
//! Limits: in the paper a Mbyte is 2^20 bytes, and a Mbit is 10^6 bits.

use serde::Deserialize;

use crate::papers::{Printed, read};

/// The cost of moving a byte.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Rate {
    /// `copy`, `copy from interface` or `checksum`.
    pub what: String,
    /// Nanoseconds per byte.
    pub nanoseconds: Printed,
    /// Mbyte/s, as measured.
    pub rate: Printed,
}

/// The rates that the text quotes.
pub fn rates() -> Vec<Rate> {
    read(include_str!("../../papers/dalton-rates.csv"))
}

/// The costs of a call and of a packet, apart from moving data, in microseconds.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Overhead {
    /// `transmission` or `reception`.
    pub direction: String,
    /// Of `send` or `recv`.
    pub call: Printed,
    /// Of each packet.
    pub packet: Printed,
}

/// The overheads that the text quotes.
pub fn overheads() -> Vec<Overhead> {
    read(include_str!("../../papers/dalton-overheads.csv"))
}

/// The throughput in transmission that moving data alone would allow.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Bound {
    /// How many copies there are.
    pub copies: u32,
    /// Whether the data is read separately for the checksum.
    pub checksum: bool,
    /// In Mbyte/s.
    pub mbytes: Printed,
    /// In Mbit/s.
    pub mbits: Printed,
}

/// The bounds that the text quotes.
pub fn bounds() -> Vec<Bound> {
    read(include_str!("../../papers/dalton-bounds.csv"))
}

/// A row of tables 1 and 2: the time of a packet of 4 Kbyte in microseconds, and the throughput in Mbyte/s.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Packet {
    /// `transmission` (table 1) or `reception` (table 2).
    pub direction: String,
    /// `conventional`, `two-copy` or `single-copy`.
    pub stack: String,
    /// Of `send` or `recv`.
    pub call: Printed,
    /// Of handling the packet.
    pub packet: Printed,
    /// Of moving its data.
    pub data: Printed,
    /// The sum of these three.
    pub total: Printed,
    /// The throughput that this total allows.
    pub throughput: Printed,
}

/// Tables 1 and 2.
pub fn packets() -> Vec<Packet> {
    read(include_str!("../../papers/dalton-1-2.csv"))
}
