//! How a wire is.

use std::time::Duration;

use crate::Rate;

/// The longest MTU of datagrams: as long as an IP packet can be.
pub const MTU_MAX: usize = 65_535;
/// How many bits of a frame are damaged at most.
pub const DAMAGED_BITS_MAX: usize = 1024;
/// How many bytes a frame may be longer than the MTU: an Ethernet header, which the MTU does not count.
pub const LINK_HEADER: usize = 14;

/// How a wire is. By default it is as fast as memory, and nothing goes wrong. Probabilities are between 0 and 1, each for a frame, and do not
/// depend on each other: with another probability of loss, the same frames come twice.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// The longest packet, without its link header (65,535): frames have up to [`LINK_HEADER`] bytes more. Transfers may have longer ones: as
    /// long as a message on a network that does not cut it.
    pub mtu: usize,
    /// How fast bits are sent. A frame arrives with its last bit; one that is lost, or comes twice, takes as long as any other.
    pub rate: Rate,
    /// How long each bit is on its way.
    pub delay: Duration,
    /// That a frame does not arrive.
    pub loss: f64,
    /// That a frame arrives twice, the second time right after the first.
    pub duplication: f64,
    /// That a frame arrives later than its turn. Only frames that are in flight together change places, which those of a client that waits
    /// for each reply never are; a lone one comes 20 ms late.
    pub reordering: f64,
    /// Behind how many frames such a frame comes at most (1): at least one.
    pub displacement: u64,
    /// That a frame's end is cut off.
    pub truncation: f64,
    /// That bits of a frame are turned over, which the frame's own check does not find.
    pub damage: f64,
    /// How many bits of such a frame at most (1): at least one, and no more than [`DAMAGED_BITS_MAX`].
    pub damaged_bits: usize,
    /// From what all that happens follows.
    pub seed: u64,
    /// How many frames may be in flight (1,024). More are refused.
    pub in_flight: usize,
}

/// Why a wire cannot be made.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Unusable {
    /// A probability.
    #[error("the probability of {of} is from 0 to 1, not {is}")]
    Probability {
        /// Of what.
        of: &'static str,
        /// It.
        is: f64,
    },
    /// Too many damaged bits.
    #[error("no more than {DAMAGED_BITS_MAX} bits of a frame are damaged, not {bits}")]
    DamagedBits {
        /// How many.
        bits: usize,
    },
    /// A number that is 0.
    #[error("{what} is at least 1")]
    None {
        /// Which.
        what: &'static str,
    },
}

impl Default for Options {
    fn default() -> Self {
        Self {
            mtu: MTU_MAX,
            rate: Rate::Unlimited,
            delay: Duration::ZERO,
            loss: 0.0,
            duplication: 0.0,
            reordering: 0.0,
            displacement: 1,
            truncation: 0.0,
            damage: 0.0,
            damaged_bits: 1,
            seed: 0,
            in_flight: 1024,
        }
    }
}

impl Options {
    pub(super) fn check(&self) -> Result<(), Unusable> {
        let probabilities = [
            ("loss", self.loss),
            ("duplication", self.duplication),
            ("reordering", self.reordering),
            ("truncation", self.truncation),
            ("damage", self.damage),
        ];
        if let Some((of, is)) = probabilities.into_iter().find(|(_, is)| !(0.0..=1.0).contains(is)) {
            return Err(Unusable::Probability { of, is });
        }
        let numbers = [
            ("the MTU", self.mtu == 0),
            ("the displacement", self.displacement == 0),
            ("the number of damaged bits", self.damaged_bits == 0),
            ("the number of frames in flight", self.in_flight == 0),
        ];
        match numbers.into_iter().find(|(_, is_none)| *is_none) {
            Some((what, _)) => Err(Unusable::None { what }),
            None if self.damaged_bits > DAMAGED_BITS_MAX => {
                Err(Unusable::DamagedBits { bits: self.damaged_bits })
            }
            None => Ok(()),
        }
    }

    /// Whether frames arrive later than they are sent.
    pub(super) fn is_timed(&self) -> bool {
        self.rate != Rate::Unlimited || !self.delay.is_zero() || self.reordering > 0.0
    }
}
