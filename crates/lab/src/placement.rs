//! Whether two CPUs are near each other, by the time in which a cache line goes from one to the other and back.
//!
//! Why: a virtual machine's host moves its CPUs, and everything in which two CPUs take part may then cost several times as
//! much. Runs with unlike placement must not be compared.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Round trips shorter than this stay within one cache; longer ones leave it. Measured: 100 to 140 ns and 390 ns.
const NEAR_BELOW: Duration = Duration::from_nanos(240);

/// How near two CPUs are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// The CPUs share a cache.
    Near,
    /// The CPUs do not share a cache.
    Far,
}

impl Placement {
    /// Judges a measured round trip.
    pub fn of(round_trip: Duration) -> Self {
        if round_trip < NEAR_BELOW { Self::Near } else { Self::Far }
    }

    /// The word for the placement.
    pub fn name(self) -> &'static str {
        match self {
            Self::Near => "near",
            Self::Far => "far",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_round_trips_measured_fall_on_either_side() {
        assert_eq!(Placement::of(Duration::from_nanos(140)).name(), "near");
        assert_eq!(Placement::of(Duration::from_nanos(390)).name(), "far");
    }
}
