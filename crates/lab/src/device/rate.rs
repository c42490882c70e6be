//! The rate at which a device passes data: a token bucket.
//!
//! Why: the papers measured networks of 155 and 512 Mbit/s. The shares of data passing and of the network in an operation
//! depend on the rate, so the rate must be a choice.
//! How: bytes go in chunks, each chunk at the time when it would have been sent in full. Tokens accrue from the moment when
//! the wire is taken, and a chunk costs as many tokens as it has bytes. While a chunk is copied, the tokens for the next
//! chunk accrue.
//! Invariants: no more than rate x time + one chunk has passed at any moment since the wire was taken. Time is an argument.
//! Limits: rates up to 1 Tbit/s.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The time that one chunk takes, where chunks then have a length within these bounds.
const CHUNK_TIME_NS: u64 = 5_000;
const CHUNK_MIN: usize = 4 << 10;
const CHUNK_MAX: usize = 64 << 10;
/// The units of tokens that make a byte: so many that each nanosecond brings as many units as the rate has bits a second.
const TOKENS_A_BYTE: u64 = 8_000_000_000;
/// At higher rates tokens would not fit into their integer.
const RATE_MAX: u64 = 1_000_000_000_000;

/// How fast a device passes data.
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

    /// How many bytes go at once; all of them without limit.
    pub fn chunk(self) -> usize {
        match self {
            Self::Unlimited => usize::MAX,
            Self::Bits(bits) => {
                let bytes = u128::from(bits) * u128::from(CHUNK_TIME_NS) / u128::from(TOKENS_A_BYTE);
                (bytes as usize).clamp(CHUNK_MIN, CHUNK_MAX)
            }
        }
    }

    /// How long the network alone takes for `bytes` bytes.
    pub fn time(self, bytes: u64) -> Duration {
        match self {
            Self::Unlimited => Duration::ZERO,
            Self::Bits(bits) => Duration::from_secs_f64(bytes as f64 * 8.0 / bits as f64),
        }
    }
}

/// The tokens of one wire with a limited rate.
#[derive(Debug)]
pub struct Bucket {
    rate: u64,
    tokens: u64,
    tokens_max: u64,
    /// The time when tokens were last counted.
    at: Duration,
}

impl Bucket {
    /// An empty bucket: the wire is taken `now`. None for a wire without limit.
    pub fn new(rate: Rate, now: Duration) -> Option<Self> {
        let Rate::Bits(bits) = rate else { return None };
        let tokens_max = rate.chunk() as u64 * TOKENS_A_BYTE;
        Some(Self { rate: bits.clamp(1, RATE_MAX), tokens: 0, tokens_max, at: now })
    }

    /// Takes the tokens for `bytes` bytes, at most a chunk, if they have accrued by `now`.
    pub fn take(&mut self, bytes: usize, now: Duration) -> bool {
        self.accrue(now);
        let cost = bytes as u64 * TOKENS_A_BYTE;
        debug_assert!(cost <= self.tokens_max, "more than a chunk never accrues");
        let enough = self.tokens >= cost;
        if enough {
            self.tokens -= cost;
        }
        enough
    }

    fn accrue(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.at).as_nanos().min(u128::from(u64::MAX)) as u64;
        self.tokens = self.rate.saturating_mul(passed).saturating_add(self.tokens).min(self.tokens_max);
        self.at = self.at.max(now);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_more_passes_than_the_rate_and_one_chunk_allow(
            bits in 1_000_000u64..=RATE_MAX,
            steps in prop::collection::vec((0u64..1_000_000, 1usize..=64 << 10), 1..200),
        ) {
            let rate = Rate::of(bits);
            let begun = Duration::from_secs(3);
            let mut bucket = Bucket::new(rate, begun).unwrap();
            let (mut now, mut passed) = (begun, 0u128);
            for (wait, bytes) in steps {
                now += Duration::from_nanos(wait);
                let bytes = bytes.min(rate.chunk());
                if bucket.take(bytes, now) {
                    passed += bytes as u128;
                }
                let accrued = u128::from(bits) * (now - begun).as_nanos() / u128::from(TOKENS_A_BYTE);
                prop_assert!(passed <= accrued + rate.chunk() as u128, "{passed} bytes of {accrued}");
            }
        }
    }

    #[test]
    fn a_wire_that_is_always_asked_runs_at_its_rate() {
        for rate in Rate::ALL {
            let Some(mut bucket) = Bucket::new(rate, Duration::ZERO) else { continue };
            let chunk = rate.chunk();
            let now = |step: u64| Duration::from_nanos(100 * step);
            let passed: u64 = (1..=100_000).filter(|step| bucket.take(chunk, now(*step))).count() as u64;
            let (found, expected) = (passed * chunk as u64 * 8 * 100, rate.bits());
            assert!(found <= expected && found + 800 * chunk as u64 >= expected, "{}: {found}", rate.name());
        }
    }

    #[test]
    fn an_idle_wire_saves_up_one_chunk_at_most_and_time_never_runs_backwards() {
        let rate = Rate::Bits(155_000_000);
        let mut bucket = Bucket::new(rate, Duration::ZERO).unwrap();
        let later = Duration::from_secs(1_000_000);
        assert!(bucket.take(rate.chunk(), later));
        assert!(!bucket.take(1, later));
        assert!(!bucket.take(1, Duration::ZERO));
        assert!(!bucket.take(1, later));
    }

    #[test]
    fn rates_have_names() {
        let names: Vec<_> = Rate::ALL.iter().map(|rate| rate.name()).collect();
        assert_eq!(names, ["unlimited", "155 Mbit/s", "512 Mbit/s", "10 Gbit/s", "100 Gbit/s"]);
        assert_eq!(Rate::of(0), Rate::Unlimited);
    }
}
