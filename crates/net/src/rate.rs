//! The rate at which a network passes data.
//!
//! Why: the papers measured networks of 155 and 512 Mbit/s. The shares of data passing and of the network in an operation
//! depend on the rate, so the rate must be a choice.
//! How: a line sends bit after bit, and is idle if it has none: a token bucket that saves nothing up. Time is an argument.
//! Invariants: no more than rate x time has passed at any moment, and as much while there is always something to send.
//! Limits: rates up to 1 Tbit/s.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The units of time that a byte takes: a nanosecond has as many units as the rate has bits a second.
const UNITS_A_BYTE: u64 = 8_000_000_000;
const RATE_MAX: u64 = 1_000_000_000_000;

/// How fast a network passes data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rate {
    /// As fast as the processor copies.
    Unlimited,
    /// This many bits a second.
    Bits(u64),
}

impl Rate {
    /// The rates of the papers' networks, and of later ones.
    pub const ALL: [Self; 5] = [
        Self::Unlimited,
        Self::Bits(155_000_000),
        Self::Bits(512_000_000),
        Self::Bits(10_000_000_000),
        Self::Bits(100_000_000_000),
    ];

    /// The rate of `bits` bits a second, at most 1 Tbit/s; 0 stands for no limit.
    pub fn of(bits: u64) -> Self {
        if bits == 0 { Self::Unlimited } else { Self::Bits(bits.min(RATE_MAX)) }
    }

    /// How many bits a second; 0 without limit.
    pub fn bits(self) -> u64 {
        match self {
            Self::Unlimited => 0,
            Self::Bits(bits) => bits,
        }
    }

    /// The rate as people write it: `155 Mbit/s`.
    pub fn name(self) -> String {
        match self.bits() {
            0 => "unlimited".to_owned(),
            bits if bits.is_multiple_of(1_000_000_000) => format!("{} Gbit/s", bits / 1_000_000_000),
            bits if bits.is_multiple_of(1_000_000) => format!("{} Mbit/s", bits / 1_000_000),
            bits => format!("{bits} bit/s"),
        }
    }

    /// How long the network alone takes for `bytes` bytes; whole nanoseconds, rounded up.
    pub fn time(self, bytes: u64) -> Duration {
        match self {
            Self::Unlimited => Duration::ZERO,
            Self::Bits(bits) => {
                let units = u128::from(bytes) * u128::from(UNITS_A_BYTE);
                let nanoseconds = units.div_ceil(u128::from(bits.max(1)));
                Duration::from_nanos(nanoseconds.try_into().unwrap_or(u64::MAX))
            }
        }
    }
}

/// The sending end of a network.
#[derive(Debug)]
pub struct Line {
    rate: Rate,
    /// Since when it has been sending without a pause, and how many bytes.
    begun: Duration,
    bytes: u64,
}

impl Line {
    /// One that is idle.
    pub fn new(rate: Rate) -> Self {
        Self { rate, begun: Duration::ZERO, bytes: 0 }
    }

    /// When `bytes` bytes have been sent that come `now`, behind all that came before.
    pub fn send(&mut self, bytes: u64, now: Duration) -> Duration {
        if self.begun + self.rate.time(self.bytes) <= now {
            (self.begun, self.bytes) = (now, 0);
        }
        self.bytes += bytes;
        self.begun + self.rate.time(self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_line_sends_as_if_each_bit_followed_the_one_before(
            bits in 1_000_000u64..=RATE_MAX,
            sends in prop::collection::vec((0u64..1_000_000, 0u64..100_000), 1..200),
        ) {
            // The oracle counts in units of which a nanosecond has as many as the rate has bits a second.
            let mut line = Line::new(Rate::of(bits));
            let (mut now, mut free) = (0u64, 0u128);
            for (wait, bytes) in sends {
                now += wait;
                let begun = free.max(u128::from(now) * u128::from(bits));
                free = begun + u128::from(bytes) * u128::from(UNITS_A_BYTE);
                let sent = line.send(bytes, Duration::from_nanos(now)).as_nanos();
                prop_assert_eq!(sent, free.div_ceil(u128::from(bits)));
            }
        }
    }

    #[test]
    fn a_busy_line_is_not_late_by_a_nanosecond_after_a_million_frames() {
        // A frame of 60 bytes takes 3,096.77 ns.
        let mut line = Line::new(Rate::Bits(155_000_000));
        let sent = (0..1_000_000).map(|_| line.send(60, Duration::ZERO)).last();
        assert_eq!(sent, Some(Duration::from_nanos((60 * 8 * 1_000_000 * 1_000u64).div_ceil(155))));
    }

    #[test]
    fn an_idle_line_saves_nothing_up_and_time_never_runs_backwards() {
        let mut line = Line::new(Rate::Bits(8_000_000_000));
        let later = Duration::from_secs(1_000_000);
        assert_eq!(line.send(10, later), later + Duration::from_nanos(10));
        assert_eq!(line.send(10, Duration::ZERO), later + Duration::from_nanos(20));
    }

    #[test]
    fn rates_have_names() {
        let names: Vec<_> = Rate::ALL.iter().map(|rate| rate.name()).collect();
        assert_eq!(names, ["unlimited", "155 Mbit/s", "512 Mbit/s", "10 Gbit/s", "100 Gbit/s"]);
        assert_eq!(Rate::of(0), Rate::Unlimited);
    }
}
