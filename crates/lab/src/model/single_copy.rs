//! How fast a stream protocol can be that copies data twice or once, and that computes the checksum separately or while
//! copying.
//!
//! How: a packet takes a call, the handling of a packet, and its data. The conventional stack copies between client and
//! system, reads for the checksum, and copies between system and interface. The two-copy stack does not read the data
//! separately for the checksum; the single-copy stack copies directly between client and interface.
//! Source: Dalton and others, *Afterburner*, tables 1 and 2 and the section before them.

/// A way to move data through the system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stack {
    /// Two copies, and a separate reading for the checksum.
    Conventional,
    /// Two copies.
    TwoCopy,
    /// One copy.
    SingleCopy,
}

/// The costs of the steps of a packet: times in one unit, for data per byte.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Costs {
    /// A call of `send` or `recv`.
    pub call: f64,
    /// Handling a packet, apart from its data.
    pub packet: f64,
    /// Copying a byte between client and system.
    pub client_copy: f64,
    /// Copying a byte between system, or client, and interface.
    pub interface_copy: f64,
    /// Reading a byte for the checksum.
    pub checksum: f64,
}

impl Stack {
    /// All stacks, the slowest first.
    pub const ALL: [Self; 3] = [Self::Conventional, Self::TwoCopy, Self::SingleCopy];

    /// The name in the tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Conventional => "conventional",
            Self::TwoCopy => "two-copy",
            Self::SingleCopy => "single-copy",
        }
    }

    /// The cost of moving a byte.
    pub fn per_byte(self, costs: &Costs) -> f64 {
        match self {
            Self::Conventional => costs.client_copy + costs.checksum + costs.interface_copy,
            Self::TwoCopy => costs.client_copy + costs.interface_copy,
            Self::SingleCopy => costs.interface_copy,
        }
    }

    /// The time of a packet that has a call of its own.
    pub fn per_packet(self, costs: &Costs, length: f64) -> f64 {
        total(costs, self.per_byte(costs) * length)
    }
}

/// The time of a packet whose data takes the time `data`.
pub fn total(costs: &Costs, data: f64) -> f64 {
    costs.call + costs.packet + data
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_with_fewer_passes_over_the_data_takes_less_by_just_these() {
        let costs = Costs { call: 1.0, packet: 2.0, client_copy: 3.0, interface_copy: 4.0, checksum: 0.5 };
        assert_eq!(Stack::ALL.map(|stack| stack.per_packet(&costs, 2.0)), [18.0, 17.0, 11.0]);
    }
}
