//! The table of J. van Rantwijk, *Experiments with zero-copy UDP transmission under Linux*.

use serde::Deserialize;

use crate::papers::{Printed, read};

/// How fast one interface sent datagrams of one length.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Rate {
    /// `standard socket`, `copying extension`, `mmap` or `gather` (the paper's kiobuf extension).
    pub interface: String,
    /// `yes` or `no`; empty where the paper does not say.
    pub checksum: String,
    /// Bytes of data in a datagram.
    pub len: u64,
    /// Of the receiver, in KByte/s of 1024 bytes.
    pub rate: Printed,
}

/// The table.
pub fn rates() -> Vec<Rate> {
    read(include_str!("../../papers/rantwijk.csv"))
}
